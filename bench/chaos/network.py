"""A network that is slow, cuts connections or swallows what is sent: a proxy on loopback before a real server."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

CHUNK = 1 << 16
T = TypeVar("T")


class Network:
    """Between a client and a server. What it does can be changed at any time, also to open connections."""

    def __init__(self, url: str, *, seed: int = 1) -> None:
        self._target = urlsplit(url)
        self._chance = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._open: set[asyncio.StreamWriter] = set()
        self.latency_s = 0.0
        """Each way, for every piece of data."""
        self.reset_share = 0.0
        """Of the pieces of data: instead of it, the connection is cut."""
        self.is_silent = False
        """Connections stay open, and nothing comes through: half-open, or a firewall that drops."""
        self.connections = 0

    @property
    def url(self) -> str:
        """The server's address with our port in it."""
        port = self._listener.getsockname()[1]
        login, _, _ = self._target.netloc.rpartition("@")
        return urlunsplit(self._target._replace(netloc=f"{login}@127.0.0.1:{port}" if login else f"127.0.0.1:{port}"))

    def cut(self) -> None:
        """Reset every open connection."""
        self._run(self._cut())

    async def _cut(self) -> None:
        for writer in tuple(self._open):
            writer.transport.abort()

    def heal(self) -> None:
        self.latency_s, self.reset_share, self.is_silent = 0.0, 0.0, False
        self.cut()

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._serve, sock=self._listener))
        return self

    def __exit__(self, *exc: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await self._cut()
        await asyncio.sleep(0.05)  # until the transports that were aborted are closed

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            back, forth = await asyncio.open_connection(self._target.hostname, self._target.port)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, forth}
        try:
            await asyncio.gather(self._carry(reader, forth), self._carry(back, writer))
        finally:
            self._open -= {writer, forth}
            for one in (writer, forth):
                one.transport.abort()

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(CHUNK):
                if self.latency_s:
                    await asyncio.sleep(self.latency_s)
                if self.is_silent:
                    continue
                if self._chance.random() < self.reset_share:
                    break
                target.write(data)
                await target.drain()
        target.transport.abort()
