"""A local server that speaks as much of Microsoft Graph as docmill uses, and misbehaves on request.

It is strict where OneDrive is: names without regard to case, forbidden names and long paths refused, `If-Match` obeyed,
fragments in order and in multiples of 320 KiB. Downloads and uploads go to addresses that must see no token.
"""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from unicodedata import normalize
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

SMALL = 4 * 1024 * 1024
STEP = 320 * 1024
FORBIDDEN = re.compile(r'["*:<>?/\\|\x00-\x1f\x7f]|^[ ]|[ .]$|^~\$|_vti_', re.IGNORECASE)
RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])([.].*)?|[.]lock|desktop[.]ini", re.IGNORECASE)


def quick_xor(data: bytes) -> str:
    """As Microsoft describes it, byte by byte: slow, and not the code that is tested."""
    bits = 0
    for index, byte in enumerate(data):
        shift = index * 11 % 160
        bits ^= (byte << shift | byte << shift >> 160) & (1 << 160) - 1
    bits ^= len(data) << 96
    return base64.b64encode(bits.to_bytes(20, "little")).decode()


@dataclass
class Node:
    name: str
    parent: Node | None
    data: bytes | None = None
    id: str = field(default_factory=lambda: f"01{uuid4().hex.upper()}")
    version: int = 1
    content_version: int = 1
    modified: datetime = field(default_factory=lambda: datetime.now(UTC))
    children: list[Node] = field(default_factory=list)
    hash: str = ""

    def find(self, name: str) -> Node | None:
        return next((child for child in self.children if alike(child.name) == alike(name)), None)

    @property
    def path(self) -> str:
        return f"{self.parent.path}/{self.name}" if self.parent else ""

    @property
    def etag(self) -> str:
        return f'"{{{self.id}}},{self.version}"'

    @property
    def ctag(self) -> str:
        return f'"c:{{{self.id}}},{self.content_version}"'

    def walk(self) -> Iterator[Node]:
        for child in self.children:
            yield child
            yield from child.walk()


@dataclass
class Fault:
    """What goes wrong with a request, once or *times* often. Without a status the line is cut."""

    method: str
    path: str
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1
    after: bool = False
    """Do the work first, and then fail: the answer gets lost."""
    do: Callable[[], None] | None = None
    """Something that happens before the request is served; it then goes on as usual if there is nothing else wrong."""
    wait: float = 0.0
    skip: int = 0
    """Let so many pass first."""


class Refused(Exception):
    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


def alike(name: str) -> str:
    return normalize("NFC", name.casefold())


class GraphServer:
    """One drive, in memory, on a loopback port."""

    def __init__(self) -> None:
        self.root = Node("root", None)
        self.tokens = {"good"}
        self.faults: list[Fault] = []
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.sessions: dict[str, dict[str, Any]] = {}
        self.lock = threading.RLock()
        self.allowed: int | None = None
        """How many requests are still served before the line is cut for good; None: all."""
        self.with_hashes = True
        self.page = 200
        self.office: dict[str, bytes] = {}
        """Endings of names, and what the server adds to such files, as SharePoint does."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def base(self) -> str:
        return f"{self.origin}/v1.0"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def fail(self, method: str, path: str, status: int = 0, **more: Any) -> None:
        self.faults.append(Fault(method, path, status, **more))

    def count(self, method: str, path: str) -> int:
        return sum(one == method and bool(re.search(path, url)) for one, url, _ in self.seen)

    # --- what a person does

    def node(self, path: str) -> Node | None:
        node: Node | None = self.root
        for name in filter(None, path.split("/")):
            node = node.find(name) if node else None
        return node

    def put(self, path: str, data: bytes) -> Node:
        folder, _, name = path.strip("/").rpartition("/")
        parent = self.folder(folder)
        node = parent.find(name)
        if node is None:
            node = Node(name, parent, b"")
            parent.children.append(node)
        self.store(node, data)
        return node

    def folder(self, path: str) -> Node:
        node = self.root
        for name in filter(None, path.split("/")):
            child = node.find(name)
            if child is None:
                child = Node(name, node)
                node.children.append(child)
            node = child
        return node

    def remove(self, path: str) -> None:
        node = self.node(path)
        assert node
        assert node.parent
        node.parent.children.remove(node)

    def files(self) -> dict[str, bytes]:
        return {node.path.strip("/"): node.data for node in self.root.walk() if node.data is not None}

    def grow_old(self) -> None:
        for node in self.root.walk():
            node.modified -= timedelta(hours=2)

    # --- what Graph does

    def store(self, node: Node, data: bytes) -> None:
        node.data = data + next((extra for end, extra in self.office.items() if node.name.endswith(end)), b"")
        node.hash = quick_xor(node.data) if len(node.data) < 1 << 20 else base64.b64encode(fast_xor(node.data)).decode()
        node.version += 1
        node.content_version += 1
        node.modified = datetime.now(UTC)

    def shown(self, node: Node) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "id": node.id,
            "name": node.name,
            "size": len(node.data or b""),
            "eTag": node.etag,
            "cTag": node.ctag,
            "lastModifiedDateTime": node.modified.isoformat().replace("+00:00", "Z"),
        }
        if node.parent:
            facts["parentReference"] = {"id": node.parent.id, "driveId": "d1"}
        if node.data is None:
            facts["folder"] = {"childCount": len(node.children)}
        else:
            facts["file"] = {"hashes": {"quickXorHash": node.hash} if self.with_hashes else {}}
        return facts

    def by_id(self, item_id: str) -> Node:
        if item_id == self.root.id:
            return self.root
        for node in self.root.walk():
            if node.id == item_id:
                return node
        raise Refused(404, "itemNotFound")

    def check_name(self, parent: Node, name: str) -> None:
        if parent.data is not None or not name or FORBIDDEN.search(name) or RESERVED.fullmatch(name) or len(name) > 255:
            raise Refused(400, "invalidRequest")
        if len(f"{parent.path}/{name}") > 400:
            raise Refused(400, "pathIsTooLong")

    def answer(self, method: str, url: str, headers: dict[str, str], body: bytes) -> tuple[int, Any, dict[str, str]]:
        parts = urlsplit(url)
        if parts.path.startswith("/upload/"):
            return self.session(method, parts.path, headers, body)
        if parts.path.startswith("/download/"):
            if "authorization" in headers:
                raise Refused(401, "tokenWhereNoneBelongs")
            return 200, self.by_id(parts.path.rpartition("/")[2]).data, {}
        if headers.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
            raise Refused(401, "InvalidAuthenticationToken")
        prefix = "/v1.0/drives/d1/"
        if not parts.path.startswith(prefix):
            raise Refused(404, "itemNotFound")
        node, parent, name, action = self.resolve(parts.path.removeprefix(prefix))
        if method == "PUT" and action == "content":
            conflicts = parse_qs(parts.query).get("@microsoft.graph.conflictBehavior", ["replace"])[0]
            if len(body) > SMALL:
                raise Refused(413, "requestTooLarge")
            return self.write(parent, name, node, body, conflicts, headers)
        if method == "POST" and action == "createUploadSession":
            return self.open_session(parent, name, node, json.loads(body), headers)
        if node is None:
            raise Refused(404, "itemNotFound")
        if method == "GET" and action == "children":
            return self.list(node, parts.query)
        if method == "POST" and action == "children":
            return self.make(node, json.loads(body))
        if method == "GET" and action == "content":
            return 302, b"", {"Location": f"{self.origin}/download/{node.id}"}
        if method == "GET" and not action:
            return 200, self.shown(node), {}
        if headers.get("if-match") not in (None, node.etag, "*"):
            raise Refused(412, "resourceModified")
        if method == "DELETE" and node.parent:
            node.parent.children.remove(node)
            return 204, b"", {}
        if method == "PATCH":
            return self.move(node, json.loads(body))
        raise Refused(405, "methodNotAllowed")

    def resolve(self, path: str) -> tuple[Node | None, Node, str, str]:
        """Node, its parent, its name and the action of `root:/a/b:/content`, `items/1:/a:`, `items/1/children`."""
        start, colon, rest = path.partition(":/")
        words = start.split("/")
        node: Node | None = self.root if words[0] == "root" else self.by_id(unquote(words[1]))
        action = "/".join(words[1 if words[0] == "root" else 2 :])
        assert node
        parent, name = node.parent or node, node.name
        if colon:
            inner, _, action = rest.partition(":")
            action = action.strip("/")
            for name in map(unquote, inner.split("/")):
                if node is None:
                    raise Refused(404, "itemNotFound")
                parent, node = node, node.find(name)
        return node, parent, name, action

    def write(
        self, parent: Node, name: str, node: Node | None, data: bytes, conflicts: str, headers: dict[str, str]
    ) -> tuple[int, Any, dict[str, str]]:
        self.check_write(parent, name, node, conflicts, headers)
        new = node is None
        if node is None:
            node = Node(name, parent, b"")
            parent.children.append(node)
        self.store(node, data)
        return 201 if new else 200, self.shown(node), {}

    def check_write(self, parent: Node, name: str, node: Node | None, conflicts: str, headers: dict[str, str]) -> None:
        self.check_name(parent, name)
        if headers.get("if-match") not in (None, node.etag if node else None, "*"):
            raise Refused(412, "resourceModified")
        if node and (conflicts == "fail" or node.data is None):
            raise Refused(409, "nameAlreadyExists")

    def make(self, parent: Node, body: dict[str, Any]) -> tuple[int, Any, dict[str, str]]:
        self.check_name(parent, body["name"])
        if parent.find(body["name"]):
            raise Refused(409, "nameAlreadyExists")
        node = Node(body["name"], parent)
        parent.children.append(node)
        return 201, self.shown(node), {}

    def move(self, node: Node, body: dict[str, Any]) -> tuple[int, Any, dict[str, str]]:
        parent = self.by_id(body["parentReference"]["id"]) if "parentReference" in body else node.parent
        assert parent
        assert node.parent
        self.check_name(parent, body["name"])
        other = parent.find(body["name"])
        if other and other is not node:
            raise Refused(409, "nameAlreadyExists")
        node.parent.children.remove(node)
        node.name, node.parent = body["name"], parent
        node.version += 1
        parent.children.append(node)
        return 200, self.shown(node), {}

    def list(self, node: Node, query: str) -> tuple[int, Any, dict[str, str]]:
        start = int(parse_qs(query).get("$skiptoken", ["0"])[0])
        page = [self.shown(child) for child in node.children[start : start + self.page]]
        answer: dict[str, Any] = {"value": page}
        if start + self.page < len(node.children):
            more = f"items/{node.id}/children?$skiptoken={start + self.page}"
            answer["@odata.nextLink"] = f"{self.base}/drives/d1/{more}"
        return 200, answer, {}

    # --- upload sessions

    def open_session(
        self, parent: Node, name: str, node: Node | None, body: dict[str, Any], headers: dict[str, str]
    ) -> tuple[int, Any, dict[str, str]]:
        conflicts = body.get("item", {}).get("@microsoft.graph.conflictBehavior", "replace")
        self.check_write(parent, name, node, conflicts, headers)
        key = uuid4().hex
        self.sessions[key] = {"parent": parent, "name": name, "data": bytearray(), "conflicts": conflicts}
        return 200, {"uploadUrl": f"{self.origin}/upload/{key}", "expirationDateTime": "2099-01-01T00:00:00Z"}, {}

    def session(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any, dict[str, str]]:
        if "authorization" in headers:
            raise Refused(401, "tokenWhereNoneBelongs")
        session = self.sessions.get(path.rpartition("/")[2])
        if session is None:
            raise Refused(404, "itemNotFound")
        data: bytearray = session["data"]
        if method == "DELETE":
            del self.sessions[path.rpartition("/")[2]]
            return 204, b"", {}
        if method == "PUT":
            match = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", headers.get("content-range", ""))
            if not match:
                raise Refused(400, "invalidRequest")
            first, last, total = map(int, match.groups())
            if first != len(data) or last - first + 1 != len(body) or (last + 1 < total and len(body) % STEP):
                raise Refused(416, "invalidRange")
            data += body
            if len(data) == total:
                del self.sessions[path.rpartition("/")[2]]
                parent, name = session["parent"], session["name"]
                return self.write(parent, name, parent.find(name), bytes(data), session["conflicts"], {})
        return 202 if method == "PUT" else 200, {"nextExpectedRanges": [f"{len(data)}-"]}, {}


def fast_xor(data: bytes) -> bytes:
    """The same for large files: columns of 160 bytes are folded first."""
    padded = data + bytes(-len(data) % 160)
    row = 0
    for at in range(0, len(padded), 160):
        row ^= int.from_bytes(padded[at : at + 160], "big")
    bits = len(data) << 96
    for index, byte in enumerate(row.to_bytes(160, "big")):
        shift = index * 11 % 160
        bits ^= (byte << shift | byte << shift >> 160) & (1 << 160) - 1
    return bits.to_bytes(20, "little")


def _handler(graph: GraphServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None: ...

        def serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            with graph.lock:
                graph.seen.append((self.command, self.path, headers))
                fault = Fault("", "") if self.is_cut() else self.fault()
            if fault and fault.wait:
                time.sleep(fault.wait)
            if fault and fault.do:
                fault.do()
            is_broken = fault is not None and not (fault.do or fault.wait)
            status, answer, more = 0, b"", {}
            if fault is None or not is_broken or fault.after:
                status, answer, more = self.work(headers, body)
            if fault and is_broken:
                status, answer, more = fault.status, {"error": {"code": "faulty"}}, fault.headers
            if not status:
                self.close_connection = True
                return
            self.reply(status, answer, more)

        def is_cut(self) -> bool:
            if graph.allowed is None:
                return False
            graph.allowed -= 1
            return graph.allowed < 0

        def fault(self) -> Fault | None:
            for fault in graph.faults:
                if fault.method == self.command and re.search(fault.path, unquote(self.path)) and fault.times:
                    if fault.skip:
                        fault.skip -= 1
                        continue
                    fault.times -= 1
                    return fault
            return None

        def work(self, headers: dict[str, str], body: bytes) -> tuple[int, Any, dict[str, str]]:
            try:
                with graph.lock:
                    return graph.answer(self.command, self.path, headers, body)
            except Refused as refused:
                return refused.status, {"error": {"code": refused.code, "message": "no"}}, {}

        def reply(self, status: int, answer: Any, more: dict[str, str]) -> None:
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            for name, value in more.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = serve  # noqa: N815 - the base class wants these names

    return Handler
