"""An external worker as docmill sees one: it takes start requests, and reports when the test says so."""

from __future__ import annotations

import hmac
import json
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message
from email.parser import BytesParser
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import httpx2


@dataclass
class Job:
    """A job as its worker knows it."""

    form: dict[str, Any]
    headers: Message
    file: bytes = b""

    @property
    def url(self) -> str:
        return str(self.form["callback_url"])

    @property
    def token(self) -> str:
        return str(self.form["callback_token"])

    @property
    def id(self) -> str:
        return next(part for part in self.url.split("/") if part.count("-") == 4)

    def send(self, body: Any, *, token: str | None = "", key: str | None = None, **headers: str) -> httpx2.Response:
        """A callback; *token* None sends none, *key* signs it."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"Content-Type": "application/json", **headers}
        if token is not None:
            given["Authorization"] = f"Bearer {token or self.token}"
        if key:
            given["X-Kohakku-Signature"] = "sha256=" + signature(key, self.id, raw)
        return httpx2.post(self.url, content=raw, headers=given, timeout=60, trust_env=False)


def signature(key: str, guid: str, raw: bytes) -> str:
    return hmac.new(key.encode(), f"{guid}:".encode() + raw, sha256).hexdigest()


@dataclass
class Elsewhere:
    """`with Elsewhere() as worker:` serves both dialects' start requests on loopback."""

    status: int = 202
    jobs: queue.Queue[Job] = field(default_factory=queue.Queue)
    cancelled: list[str] = field(default_factory=list)
    """Paths of accepted requests to cancel."""
    calls: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    """What it serves under `/api/`, by path, to whoever has the secretary's key."""
    moved: dict[str, str] = field(default_factory=dict)
    """Where paths redirect to."""
    fetched: list[tuple[str, Message]] = field(default_factory=list)
    prefix: str = ""
    """Before every route, as behind a proxy or under `/api`."""
    answer: dict[str, Any] | None = None
    """To start requests, instead of the usual one."""
    knows_delete: bool = True
    """False: jobs are cancelled by POST alone, and DELETE is 405."""
    before_answer: Callable[[Job], object] = lambda job: None
    """Called with each job before its start request is answered."""

    def __enter__(self) -> Self:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                if not self.path.startswith("/api/"):
                    self._answer(200, {"status": "ok"})
                    return
                outer.fetched.append((self.path, self.headers))
                keys = self.headers["Authorization"], self.headers["X-Service-Token"]
                if keys != ("Bearer sec-key", "sec-key"):
                    self._answer(401, {"error": "no key"})
                elif self.path in outer.moved:
                    self.send_response(302)
                    self.send_header("Location", outer.moved[self.path])
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                elif self.path in outer.files:
                    self._send(200, outer.files[self.path])
                else:
                    self._answer(404, {"error": "not found"})

            def do_DELETE(self) -> None:
                if not outer.knows_delete:
                    self._answer(405, {"error": "method not allowed"})
                    return
                outer.cancelled.append(self.path)
                self._answer(200, {})

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path.endswith("/cancel"):
                    outer.cancelled.append(self.path)
                    self._answer(200, {})
                    return
                outer.calls += 1
                if outer.status >= 300:
                    self._answer(outer.status, {"error": "no"})
                    return
                job = _job(self.headers, raw)
                outer.before_answer(job)
                outer.jobs.put(job)
                usual = {"status": "accepted", "process": {"id": f"sec-{outer.calls}"}}
                self._answer(outer.status, outer.answer or usual)

            def _answer(self, status: int, body: Any) -> None:
                self._send(status, json.dumps(body).encode())

            def _send(self, status: int, data: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def settings(self, **more: Any) -> str:
        """For DOCMILL_WORKERS."""
        return json.dumps(
            {
                "secretary": {
                    "dialect": "secretary",
                    "url": f"{self.origin}{self.prefix}/pdf/process",
                    "api_key": "sec-key",
                    **more,
                },
                "dispatcher": {
                    "dialect": "dispatcher",
                    "url": f"{self.origin}{self.prefix}/tasks",
                    "api_key": "dis-key",
                    **more,
                },
            }
        )

    def next_job(self, seconds: float = 20) -> Job:
        return self.jobs.get(timeout=seconds)


def _job(headers: Message, raw: bytes) -> Job:
    kind = headers["Content-Type"]
    if kind.startswith("application/json"):
        return Job(json.loads(raw), headers)
    form = BytesParser().parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + raw)
    fields: dict[str, Any] = {}
    file = b""
    for part in form.get_payload():
        assert isinstance(part, Message)
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        if part.get_filename():
            file = content
        else:
            fields[str(name)] = content.decode()
    return Job(fields, headers, file)
