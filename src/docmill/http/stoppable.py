"""A uvicorn server that is stopped by cancelling the task that runs it; signals belong to the command."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn


class StoppableServer(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the handlers of the process alone."""
        yield

    def drain(self) -> None:
        """Accept no more connections; open requests get the grace period of the configuration."""
        self.should_exit = True

    async def serve_until_cancelled(self, listener: socket.socket) -> None:
        """Serve on *listener*. When cancelled, drain first, and raise CancelledError then."""
        serving = asyncio.ensure_future(self.serve(sockets=[listener]))
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            self.drain()
            await serving
            raise
