"""Limits of connections and request heads, over real sockets: nobody keeps others out by holding on."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network
from typing import Any

import pytest
import uvicorn
from prometheus_client import CollectorRegistry

from docmill.http.connections import ConnectionLimits, Connections
from docmill.http.server import Config

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class App:
    """Answers `/` at once, `/hold` when it is let go, and `/large` with more than any buffer holds."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.go = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append(scope["path"])
        if scope["path"] == "/hold":
            await self.go.wait()
        body = b"x" * 64 * 1024**2 if scope["path"] == "/large" else b"ok"
        head = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": body})


class Server:
    def __init__(self, app: App, connections: Connections, address: tuple[str, int]) -> None:
        self.app, self.connections, self.address = app, connections, address
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self.address)
        self._writers.append(writer)
        return reader, writer

    async def ask(self, path: str = "/") -> bytes:
        reader, writer = await self.connect()
        writer.write(GET.replace(b"/ ", path.encode() + b" ", 1))
        return await status(reader)

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def serving(**limits: Any) -> AsyncIterator[Server]:
    app, connections = App(), Connections(ConnectionLimits(**limits))
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    server = uvicorn.Server(Config(app, connections, lifespan="off", log_config=None, access_log=False))
    running = asyncio.ensure_future(server._serve([listener]))
    ours = Server(app, connections, listener.getsockname())
    try:
        yield ours
    finally:
        app.go.set()
        ours.close()
        server.should_exit = True
        await asyncio.wait_for(running, 30)


async def status(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(10):
        return (await reader.readline()).split()[1]


async def until_closed(reader: asyncio.StreamReader, seconds: float = 30) -> bytes:
    async with asyncio.timeout(seconds):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


# Heads


@pytest.mark.parametrize(
    ("sent", "answer"),
    [(b"", b""), (b"\r\n", b""), (b"GET / HT", b"408"), (b"GET / HTTP/1.1\r\nHost: x\r\nX-A: b\r\n", b"408")],
)
async def test_a_head_must_arrive_in_time(sent: bytes, answer: bytes) -> None:
    async with serving(head_s=0.2) as server:
        reader, writer = await server.connect()
        writer.write(sent)

        assert answer in await until_closed(reader)
        assert [] == server.app.asked


async def test_a_head_that_trickles_is_cut_off_however_busy_it_looks() -> None:
    async with serving(head_s=0.3) as server:
        reader, writer = await server.connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n")

        async def trickle() -> None:
            while True:
                writer.write(b"X-A: b\r\n")
                await asyncio.sleep(0.02)

        trickling = asyncio.ensure_future(trickle())
        assert b" 408 " in await until_closed(reader)
        trickling.cancel()


async def test_the_time_of_a_later_head_counts_from_its_first_byte() -> None:
    async with serving(head_s=0.2, keep_alive_s=30) as server:
        reader, writer = await server.connect()
        writer.write(GET)
        await reader.readuntil(b"ok")
        await asyncio.sleep(0.9)
        assert 1 == len(server.connections), "it may wait between two requests"
        writer.write(b"GET / HTTP/1.1\r\n")
        assert b" 408 " in await until_closed(reader)


@pytest.mark.parametrize("field", [b"X-A: " + b"b" * 1000 + b"\r\n", b"b" * 1000, b"A: b\r\n" * 160])
async def test_a_head_is_bounded_in_size(field: bytes) -> None:
    async with serving() as server:
        reader, writer = await server.connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-First: ")
        sent = 0

        async def send() -> None:
            nonlocal sent
            while sent < 300 * 1024**2:
                writer.write(field * 64)
                sent += len(field) * 64
                await writer.drain()

        sending = asyncio.ensure_future(send())
        answer = await until_closed(reader)
        await asyncio.gather(sending, return_exceptions=True)

        assert answer == b"" or b" 431 " in answer
        assert sent < 16 * 1024**2, "what the kernel buffers, and little more"
        assert [] == server.app.asked


@pytest.mark.parametrize(("size", "expected"), [(60_000, b"200"), (70_000, b"431")])
async def test_the_limit_of_a_head_is_exact_also_if_it_comes_at_once(size: int, expected: bytes) -> None:
    async with serving() as server:
        reader, writer = await server.connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + b"b" * size + b"\r\n\r\n")
        assert expected == await status(reader)


async def test_a_long_body_does_not_count_as_a_head() -> None:
    async with serving() as server:
        reader, writer = await server.connect()
        body = b"b" * 200_000
        for _ in range(2):
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n" + body)
            await asyncio.wait_for(reader.readuntil(b"ok"), 10)
        assert ["/", "/"] == server.app.asked


# Between requests


async def test_an_idle_connection_is_closed_also_if_it_sends_empty_lines() -> None:
    async with serving(keep_alive_s=0.5) as server:
        reader, writer = await server.connect()
        writer.write(GET)
        await reader.readuntil(b"ok")

        async def keep() -> None:
            while True:
                writer.write(b"\r\n")
                await asyncio.sleep(0.05)

        keeping = asyncio.ensure_future(keep())
        assert b"" == await until_closed(reader)
        keeping.cancel()


async def test_a_few_pipelined_requests_are_answered_in_order() -> None:
    async with serving() as server:
        reader, writer = await server.connect()
        writer.write(b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(10)))
        for _ in range(10):
            await asyncio.wait_for(reader.readuntil(b"ok"), 10)
        assert [f"/{number}" for number in range(10)] == server.app.asked


async def test_thousands_of_pipelined_requests_are_not() -> None:
    async with serving() as server:
        reader, writer = await server.connect()
        writer.write(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n" + GET * 5000)
        assert b"" == await until_closed(reader)
        assert ["/hold"] == server.app.asked


async def test_a_client_that_takes_nothing_of_its_answer_is_cut_off() -> None:
    async with serving(stalled_s=0.5) as server:
        _, writer = await server.connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(10):
            while server.app.asked == [] or len(server.connections):
                await asyncio.sleep(0.05)


# How many


async def test_silent_connections_make_room_for_new_ones() -> None:
    async with serving(max_open=20) as server:
        silent = [await server.connect() for _ in range(60)]
        for _ in range(30):
            assert b"200" == await server.ask()

        assert len(server.connections) <= 20
        assert b"" == await until_closed(silent[0][0])


async def test_the_longest_idle_goes_first_and_the_busy_stay() -> None:
    async with serving(max_open=3) as server:
        busy_reader, busy = await server.connect()
        busy.write(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
        first, _ = await server.connect()
        second, writer = await server.connect()
        writer.write(GET)
        await second.readuntil(b"ok")
        assert b"200" == await server.ask()

        assert b"" == await until_closed(first)
        writer.write(GET)
        assert b"200" == await status(second)
        server.app.go.set()
        assert b"200" == await status(busy_reader)


async def test_a_new_connection_is_refused_only_if_all_are_busy() -> None:
    async with serving(max_open=3) as server:
        for _ in range(3):
            _, writer = await server.connect()
            writer.write(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(10):
            while len(server.app.asked) < 3:
                await asyncio.sleep(0.01)
        reader, _ = await server.connect()
        answer = await until_closed(reader)
        assert b" 503 " in answer
        assert b"Retry-After" in answer
        registry = CollectorRegistry()
        registry.register(server.connections)
        assert 1 == registry.get_sample_value("docmill_http_connections_closed_total", {"reason": "refused"})
        assert 3 == registry.get_sample_value("docmill_http_connections")


@pytest.mark.parametrize(("proxies", "expected"), [((), b" 503 "), ((ip_network("127.0.0.0/8"),), b" 200 ")])
async def test_an_address_has_a_limit_of_its_own_unless_it_is_a_trusted_proxy(proxies: Any, expected: bytes) -> None:
    async with serving(max_per_address=2, proxies=proxies) as server:
        for _ in range(2):
            _, writer = await server.connect()
            writer.write(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(10):
            while len(server.app.asked) < 2:
                await asyncio.sleep(0.01)
        reader, writer = await server.connect()
        writer.write(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert expected in await until_closed(reader)


async def test_closed_connections_leave_no_trace() -> None:
    async with serving(max_per_address=5) as server:
        for _ in range(20):
            assert b"200" == await server.ask()
        server.close()
        async with asyncio.timeout(10):
            while len(server.connections):
                await asyncio.sleep(0.01)
        assert {} == server.connections._by_address
