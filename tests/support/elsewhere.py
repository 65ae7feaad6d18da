"""An external worker as docmill sees one: it takes start requests, and reports when the test says so."""

from __future__ import annotations

import hmac
import json
import queue
import threading
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
    calls: int = 0

    def __enter__(self) -> Self:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                self._answer(200, {"status": "ok"})

            def do_DELETE(self) -> None:
                outer.cancelled.append(self.path)
                self._answer(200, {})

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                outer.calls += 1
                if outer.status >= 300:
                    self._answer(outer.status, {"error": "no"})
                    return
                outer.jobs.put(_job(self.headers, raw))
                self._answer(outer.status, {"status": "accepted", "process": {"id": f"sec-{outer.calls}"}})

            def _answer(self, status: int, body: Any) -> None:
                data = json.dumps(body).encode()
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
                    "url": f"{self.origin}/pdf/process",
                    "api_key": "sec-key",
                    **more,
                },
                "dispatcher": {"dialect": "dispatcher", "url": f"{self.origin}/tasks", "api_key": "dis-key", **more},
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
