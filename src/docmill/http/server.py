"""uvicorn, told to drain before it waits: streams and long polls end with the signal, not with the grace period."""

from __future__ import annotations

import socket
from types import FrameType

import uvicorn
from fastapi import FastAPI


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
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        timeout_graceful_shutdown=max(1, round(grace_s)),
    )
    await Server(config, app).serve(sockets=[listener])
