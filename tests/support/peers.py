"""Providers on loopback that answer as theirs do, and misbehave on request. A peer declares routes; this serves them.

class Peer(ProviderPeer):
    @route("GET", "/health")
    def health(self, asked: Asked) -> Reply: ...

peer.faults.append(Fault("GET", "/health", status=503, times=2))
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support.loopback import Loopback


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes
    found: tuple[str, ...] = ()
    """Groups of the route's pattern."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def form(self) -> tuple[dict[str, list[str]], dict[str, tuple[str, bytes]]]:
        """Fields and files of a multipart form."""
        kind = self.headers["content-type"].encode()
        parsed = BytesParser().parsebytes(b"Content-Type: " + kind + b"\r\n\r\n" + self.body)
        fields: dict[str, list[str]] = {}
        files: dict[str, tuple[str, bytes]] = {}
        for part in parsed.get_payload():
            assert isinstance(part, Message)
            name = str(part.get_param("name", header="content-disposition"))
            content = part.get_payload(decode=True)
            assert isinstance(content, bytes)
            if given := part.get_filename():
                files[name] = (given, content)
            else:
                fields.setdefault(name, []).append(content.decode())
        return fields, files


@dataclass(frozen=True)
class Reply:
    status: int = 200
    json: Any = None
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        return self.body or (b"" if self.json is None else json.dumps(self.json).encode())


@dataclass
class Fault:
    """What goes wrong with a request, *times* often after *skip*."""

    method: str
    path: str
    """A pattern that the whole path matches."""
    status: int = 0
    """Answer this instead; 0: serve as usual, but spoil it as the other fields say."""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    """Answer these bytes, whatever they are."""
    cut: bool = False
    """Promise the whole answer, send half of it, and hang up."""
    promise: float = 1.0
    """Tell a size that is so much of the true one: more than comes, or less."""
    hang_up: bool = False
    """Say nothing at all."""
    slow_s: float = 0.0
    times: int = 1
    skip: int = 0
    after: bool = False
    """Do what was asked first: only the answer gets lost."""


Handler = Callable[[Any, Asked], Reply]


def route(method: str, pattern: str) -> Callable[[Handler], Handler]:
    def mark(handler: Handler) -> Handler:
        handler.route = (method, re.compile(pattern))  # type: ignore[attr-defined]
        return handler

    return mark


class ProviderPeer(Loopback):
    def __init__(self) -> None:
        super().__init__(_handler(self))
        self.faults: list[Fault] = []
        self.seen: list[Asked] = []
        self.lock = threading.RLock()
        self._routes = [
            (*handler.route, handler)
            for kind in type(self).__mro__
            for handler in vars(kind).values()
            if hasattr(handler, "route")
        ]

    def asked(self, method: str, pattern: str) -> list[Asked]:
        with self.lock:
            return [one for one in self.seen if one.method == method and re.fullmatch(pattern, one.path)]

    def wait_for(self, method: str, pattern: str, *, count: int = 1, seconds: float = 30) -> list[Asked]:
        ends = time.monotonic() + seconds
        while len(found := self.asked(method, pattern)) < count:
            assert time.monotonic() < ends, [(one.method, one.path) for one in self.seen]
            time.sleep(0.01)
        return found

    def fault_for(self, asked: Asked) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.method == asked.method and re.fullmatch(fault.path, asked.path) and fault.times:
                    if fault.skip:
                        fault.skip -= 1
                        continue
                    fault.times -= 1
                    return fault
        return None

    def answer(self, asked: Asked) -> Reply:
        for method, pattern, handler in self._routes:
            if method == asked.method and (found := pattern.fullmatch(asked.path)):
                with self.lock:
                    return handler(
                        self, Asked(asked.method, asked.path, asked.query, asked.headers, asked.body, found.groups())
                    )
        return Reply(404, {"detail": "Not Found"})


def _handler(peer: ProviderPeer) -> type[BaseHTTPRequestHandler]:
    class Handling(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def serve(self) -> None:
            parts = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(self.command, parts.path, parse_qs(parts.query), headers, self._body(headers))
            with peer.lock:
                peer.seen.append(asked)
            fault = peer.fault_for(asked)
            if fault and fault.slow_s:
                time.sleep(fault.slow_s)
            if fault and fault.hang_up and not fault.after:
                self.close_connection = True
                return
            spoilt = fault and (fault.status or fault.body is not None)
            reply = peer.answer(asked) if not spoilt or (fault and fault.after) else Reply()
            if fault and fault.hang_up:
                self.close_connection = True
                return
            if fault and spoilt:
                reply = Reply(fault.status or 200, body=fault.body or b"nothing to see", headers=fault.headers)
            self._send(reply, cut=bool(fault and fault.cut), promise=fault.promise if fault else 1.0)

        do_GET = do_POST = do_PUT = do_DELETE = serve  # noqa: N815 - the names that http.server calls

        def _body(self, headers: dict[str, str]) -> bytes:
            if "chunked" in headers.get("transfer-encoding", ""):
                pieces = []
                while size := int(self.rfile.readline().strip(), 16):
                    pieces.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(pieces)
            return self.rfile.read(int(headers.get("content-length", "0")))

        def _send(self, reply: Reply, *, cut: bool, promise: float) -> None:
            data = reply.data
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(int(len(data) * promise)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if cut else data)
            if cut or promise != 1:
                self.close_connection = True

    return Handling
