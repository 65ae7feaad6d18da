"""A server on loopback, in threads of its own, for whoever stands in for somebody else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

IDLE_S = 30.0
"""Dozens of them stand by at the same time: none may cost anything while nobody calls."""


class Loopback:
    """Serves while the `with` lasts. *handler* makes the handler of a request, as `http.server` wants it."""

    def __init__(self, handler: Callable[..., BaseHTTPRequestHandler]) -> None:
        self._server = _Server(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(IDLE_S,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        ending = threading.Thread(target=self._server.shutdown, daemon=True)
        ending.start()
        while ending.is_alive():
            # Whoever calls wakes the server, which then sees that it shall end.
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            ending.join(0.01)
        self._server.server_close()
        self._thread.join(60)

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever calls may hang up in the middle, or be killed: that is what the tests are about."""
