"""uvicorn with limits on connections and request heads, and told to drain before it waits.

Streams and long polls end with the signal, not with the grace period.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from docmill.http.connections import ConnectionLimits, Connections
from docmill.http.stoppable import StoppableServer

JOINED_BYTES = 64 * 1024
"""A larger first part of a body is not worth copying."""
MAX_UNREAD_BYTES = 64 * 1024**2
MAX_UNREAD_PIECES = 20_000
"""Of a body that still arrives when its request is answered: it is read and dropped, because many clients look for the
answer only when they have sent everything. Parsing a million chunks of one byte takes 0.2 s of the event loop."""
REASONS = {
    400: "Bad Request",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class Joined:
    """A connection that sends an answer's head together with its body: one system call and one packet, not two."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._head:
            head, self._head = self._head, b""
            if len(data) <= JOINED_BYTES:
                data = head + data
            else:
                self._transport.write(head)
        elif data.startswith(b"HTTP/1.1 "):
            # A body that lets us wait must not hold its head back.
            self._head = data
            self._loop.call_soon(self._flush)
            return
        self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)


class Config(uvicorn.Config):
    """uvicorn's configuration, and the connections that share its limits."""

    def __init__(self, app: Any, connections: Connections, **options: Any) -> None:
        super().__init__(app, http=Protocol, timeout_keep_alive=connections.limits.keep_alive_s, **options)  # type: ignore[arg-type]  # it only adds to it
        self.connections = connections


class Protocol(HttpToolsProtocol):
    """HTTP/1.1 on one connection, within the limits of `Connections`."""

    def __init__(self, config: uvicorn.Config, *rest: Any, **named: Any) -> None:
        super().__init__(config, *rest, **named)
        if not isinstance(config, Config):
            raise TypeError("this protocol needs docmill.http.server.Config")
        self._registry = config.connections
        self._limits = config.connections.limits
        self._idle_since = 0.0
        """When the connection was made, or its last answer complete."""
        self._head_since: float | None = None
        self._head_bytes = 0
        """Received of the present head; may count some of the bytes around it, too."""
        self._stalled_since: float | None = None
        self._status = 400
        self._has_asked = False
        self._unread_bytes = self._unread_pieces = 0

    # Connections

    def connection_made(self, transport: Any) -> None:
        super().connection_made(Joined(transport, self.loop))  # type: ignore[arg-type]  # all that it asks for
        self._idle_since = self.loop.time()
        if not self._registry.admit(self, self.client[0] if self.client else ""):
            self._refuse(503)

    def connection_lost(self, exc: Exception | None) -> None:
        self._registry.discard(self)
        super().connection_lost(exc)

    @property
    def is_busy(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def close_idle(self) -> None:
        self.transport.close()

    def overdue(self, now: float) -> bool:
        limits = self._limits
        if self._stalled_since is not None and now - self._stalled_since > limits.stalled_s:
            self.transport.abort()
            return True
        if self.is_busy:
            return False
        if self._head_since is not None:
            is_late = now - self._head_since > limits.head_s
        else:
            is_late = now - self._idle_since > (limits.keep_alive_s if self._has_asked else limits.head_s)
        if is_late and self._head_since is not None:
            self._refuse(408)
        elif is_late:
            self.transport.close()
        return is_late

    def pause_writing(self) -> None:
        self._stalled_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stalled_since = None
        super().resume_writing()

    # Requests

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if not self.is_busy:
            self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._head_since is not None and self._head_bytes > self._limits.max_head_bytes:
            self._refuse(431)
        elif self._unread_bytes > MAX_UNREAD_BYTES or self._unread_pieces > MAX_UNREAD_PIECES:
            self.transport.close()

    def on_message_begin(self) -> None:
        self._head_since = self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        # The exact size is counted only where there is reason to: heads of one chunk are far below the limit.
        if self._head_bytes > self._limits.max_head_bytes and self._count_head() > self._limits.max_head_bytes:
            self._status = 431
            raise ValueError("the head is too large")
        if len(self.pipeline) >= self._limits.max_pipelined:
            raise ValueError("too many pipelined requests")
        self._head_since, self._head_bytes, self._has_asked = None, 0, True
        self._unread_bytes = self._unread_pieces = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self.cycle.response_started:
            self._unread_bytes += len(body)
            self._unread_pieces += 1
        super().on_body(body)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.is_busy:
            self._idle_since = self.loop.time()
            if self._head_since is not None:
                # The next head came while we were busy: its time begins now.
                self._head_since = self._idle_since
            self._registry.touch(self)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's signature
        """Called for whatever the parser or a callback of it refuses."""
        self._refuse(self._status)

    def _count_head(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _refuse(self, status: int) -> None:
        """Answer without a request, and close. In the middle of another answer only a broken connection is clear."""
        if self.is_busy:
            self.transport.abort()
            return
        body = REASONS[status].encode()
        head = f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
        retry = "Retry-After: 2\r\n" if status == 503 else ""
        self.transport.write(f"{head}{retry}Connection: close\r\n\r\n".encode() + body)
        self.transport.close()


class Server(StoppableServer):
    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    def drain(self) -> None:
        self._app.state.drain.begin()
        super().drain()


async def run(app: FastAPI, listener: socket.socket, *, grace_s: float, limits: ConnectionLimits | None = None) -> None:
    """Serve until cancelled, then give open requests *grace_s* seconds."""
    connections = Connections(limits or ConnectionLimits())
    app.state.metrics.registry.register(connections)
    config = Config(
        app,
        connections,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        timeout_graceful_shutdown=max(1, round(grace_s)),
    )
    await Server(config, app).serve_until_cancelled(listener)
