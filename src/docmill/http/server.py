"""uvicorn, told to drain before it waits: streams and long polls end with the signal, not with the grace period."""

from __future__ import annotations

import asyncio
import socket
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

JOINED_BYTES = 64 * 1024
"""A larger first part of a body is not worth copying."""


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


class Protocol(HttpToolsProtocol):
    def connection_made(self, transport: Any) -> None:
        super().connection_made(Joined(transport, self.loop))  # type: ignore[arg-type]  # all that it asks for


class Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._app.state.drain.begin()
        super().handle_exit(sig, frame)


async def run(app: FastAPI, listener: socket.socket, *, grace_s: float) -> None:
    """Serve until a signal, then give open requests *grace_s* seconds."""
    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        timeout_graceful_shutdown=max(1, round(grace_s)),
    )
    await Server(config, app).serve(sockets=[listener])
