"""An answer's head leaves with its body, and never waits for one."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from docmill.http.connections import ConnectionLimits, Connections
from docmill.http.server import JOINED_BYTES, Config

LARGE = b"x" * (JOINED_BYTES + 1)


class Stream:
    """An app that answers by its path; `/slow` sends its body when it is let go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = {"/large": LARGE, "/none": b""}.get(scope["path"], b"HTTP/1.1 is what I say")
        head = [(b"content-length", str(len(body)).encode())]
        if scope["path"] == "/close":
            head.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": 200, "headers": head})
        if scope["path"] == "/slow":
            await self.go.wait()
        await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def connected(app: Any) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    listener = socket.create_server(("127.0.0.1", 0))
    config = Config(app, Connections(ConnectionLimits()), lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server._serve([listener]))
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        server.should_exit = True
        await asyncio.wait_for(serving, 30)


async def ask(path: str, writer: asyncio.StreamWriter, method: str = "GET") -> None:
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await writer.drain()


async def answer(reader: asyncio.StreamReader, *, has_body: bool = True) -> bytes:
    async with asyncio.timeout(30):
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split()[0])
        return await reader.readexactly(length) if has_body else b""


async def test_every_answer_arrives_whole_and_in_order() -> None:
    async with connected(Stream()) as (reader, writer):
        for path in ("/small", "/large", "/none", "/small"):
            await ask(path, writer)
            assert {"/large": LARGE, "/none": b""}.get(path, b"HTTP/1.1 is what I say") == await answer(reader)
        await ask("/small", writer, "HEAD")
        await answer(reader, has_body=False)
        await ask("/close", writer)
        assert b"HTTP/1.1 is what I say" == await answer(reader)
        assert b"" == await asyncio.wait_for(reader.read(), 30), "closed, with nothing left behind"


async def test_a_head_does_not_wait_for_a_slow_body() -> None:
    app = Stream()
    async with connected(app) as (reader, writer):
        await ask("/slow", writer)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        app.go.set()
        assert b"HTTP/1.1 is what I say" == await asyncio.wait_for(reader.readexactly(22), 30)
