"""A receiver that stands in for docmill, on loopback, and misbehaves as it is told.

with Receiver() as docmill:
    docmill.says(Say(500), Say(429, headers={"Retry-After": "1"}), Say(reset=True))
    ... Callback(docmill.job(), "token") ...
    docmill.finals[-1].json

Every POST is answered by the next thing to say, or else by 200. GET gives what was put into `files`, PUT goes there.
"""

from __future__ import annotations

import hashlib
import json
import socket
import struct
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import Any
from uuid import uuid4

from support.loopback import Loopback

KEPT = 4 * 1024 * 1024


@dataclass(frozen=True)
class Say:
    status: int = 200
    body: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    reset: bool = False
    """Cut the connection instead of answering, after the body was read."""
    deaf: bool = False
    """Answer without reading the body."""


@dataclass(frozen=True)
class Heard:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    """Its beginning, if it was long."""
    size: int
    sha256: str
    at: float
    said: Say

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def is_final(self) -> bool:
        return b'"progress":' not in self.body[:200]

    @property
    def is_accepted(self) -> bool:
        return self.said.status == 200 and not self.said.reset


class Receiver(Loopback):
    def __init__(self) -> None:
        super().__init__(partial(Handler, self))
        self.heard: list[Heard] = []
        self.files: dict[str, bytes] = {}
        self.otherwise = Say()
        self.on_progress: Say | None = None
        self._script: deque[Say] = deque()
        self._changed = threading.Condition()

    def job(self, job_id: str | None = None) -> str:
        """The callback address of a secretary's job."""
        return f"{self.url}/api/external/jobs/{job_id or uuid4()}"

    def task(self, task_id: str | None = None) -> str:
        """The callback address of a dispatcher's task."""
        return f"{self.url}/api/v1/tasks/{task_id or uuid4()}/callback/"

    def serve(self, name: str, data: bytes) -> str:
        self.files[f"/{name}"] = data
        return f"{self.url}/{name}"

    def says(self, *script: Say) -> None:
        self._script.extend(script)

    @property
    def posts(self) -> list[Heard]:
        return [one for one in self.heard if one.method == "POST"]

    @property
    def finals(self) -> list[Heard]:
        return [one for one in self.posts if one.is_final]

    @property
    def accepted(self) -> list[Heard]:
        return [one for one in self.finals if one.is_accepted]

    @property
    def progress(self) -> list[Heard]:
        return [one for one in self.posts if not one.is_final]

    def wait(self, what: Any, seconds: float = 60) -> None:
        """Until `what(self)` is true."""
        ends = time.monotonic() + seconds
        with self._changed:
            while not what(self):
                assert time.monotonic() < ends, [one.body[:200] for one in self.heard]
                self._changed.wait(0.02)

    def next_say(self, is_final: bool) -> Say:
        if not is_final and self.on_progress:
            return self.on_progress
        return self._script.popleft() if self._script else self.otherwise

    def note(self, heard: Heard) -> None:
        with self._changed:
            self.heard.append(heard)
            self._changed.notify_all()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def __init__(self, receiver: Receiver, *args: Any) -> None:
        self.receiver = receiver
        super().__init__(*args)

    def do_POST(self) -> None:
        at = time.monotonic()
        peek_final = self._peek()
        say = self.receiver.next_say(peek_final)
        if say.deaf:
            self._note(say, self._start, len(self._start), "", at)
            self.close_connection = True
            self._answer(say)
            return
        body, size, digest = self._read()
        time.sleep(say.delay)
        self._note(say, body, size, digest, at)
        if say.reset:
            self._reset()
        else:
            self._answer(say)

    def do_PUT(self) -> None:
        say = self.receiver._script.popleft() if self.receiver._script else Say()
        self._peek()
        body, size, digest = self._read(keep=1 << 30)
        if say.status == 200:
            self.receiver.files[self.path] = body
        self._note(say, body, size, digest, time.monotonic())
        self._answer(say)

    def do_GET(self) -> None:
        data = self.receiver.files.get(self.path)
        self.send_response(404 if data is None else 200)
        self.send_header("Content-Length", str(len(data or b"")))
        self.end_headers()
        self.wfile.write(data or b"")

    def _peek(self) -> bool:
        """Read the first bytes: enough to tell progress from a final."""
        self._left = int(self.headers.get("Content-Length", "0"))
        self._start = self.rfile.read(min(self._left, 200))
        self._left -= len(self._start)
        return b'"progress":' not in self._start

    def _read(self, keep: int = KEPT) -> tuple[bytes, int, str]:
        digest = hashlib.sha256(self._start)
        kept, size = bytearray(self._start), len(self._start)
        while self._left:
            piece = self.rfile.read(min(self._left, 1 << 20))
            if not piece:
                raise ConnectionResetError
            self._left -= len(piece)
            size += len(piece)
            digest.update(piece)
            kept += piece[: max(0, keep - len(kept))]
        return bytes(kept), size, digest.hexdigest()

    def _note(self, say: Say, body: bytes, size: int, digest: str, at: float) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.receiver.note(Heard(self.command, self.path, headers, body, size, digest, at, say))

    def _answer(self, say: Say) -> None:
        body = json.dumps(say.body if say.body is not None else {"status": "ok"}).encode()
        self.send_response(say.status)
        for name, value in {"Content-Length": str(len(body)), **say.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def log_message(self, *args: Any) -> None:
        pass
