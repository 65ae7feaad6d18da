"""Fan-out: one event to 1,000 watchers by server-sent events, against the same bytes written to 1,000 bare sockets.

Both servers are processes of their own on uvloop, asked in turns; the watchers are sockets of this process. What counts
is the processor time of the serving process for each delivery, and every watcher must get every byte.

python bench/fanout.py [watchers]
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import cast

import psutil
import uvicorn
import uvloop

from docmill import compose, settings
from docmill.core.access import LOCAL
from docmill.core.machine import Change, note
from docmill.core.task import Attempt, Event, Task
from docmill.http import logs
from docmill.http.app import Authenticator, AuthOptions, HttpOptions, build_app
from docmill.http.connections import ConnectionLimits, Connections
from docmill.http.server import Config
from docmill.work import intake
from docmill.work.receive import ring
from embedded import upload

GOAL = 2.2
TURNS = 7
EVENTS = 20
"""In one turn."""
PADDING = "x" * 100


async def serve_docmill() -> None:
    """Without a worker the task waits, and its log says only what we let it say."""
    logs.configure(json=True, level="error")
    with tempfile.TemporaryDirectory() as folder:
        async with compose.opened(settings.load(data=Path(folder))) as ports:
            key = await upload(ports, "a.txt", b"hello")
            task, _ = await intake.submit(ports, LOCAL, intake.Submission(s3_key=key, filename="a.txt"))
            app = build_app(ports, auth=Authenticator(AuthOptions(require=False), ports.keys), options=HttpOptions())
            listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
            config = Config(
                app, Connections(ConnectionLimits()), ws="none", lifespan="off", log_config=None, access_log=False
            )
            serving = asyncio.ensure_future(uvicorn.Server(config).serve(sockets=[listener]))

            async def emit() -> None:
                await ring(ports, await ports.ledger.decide(task.id, said))

            await obey(f"{listener.getsockname()[1]} /api/v1/etl/tasks/{task.id}/events", emit)
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


def said(task: Task, _: Attempt | None) -> Change:
    return note(task, Event("progress", {"said": PADDING}))


async def serve_bare() -> None:
    """As little as can be done: the frame, ready to be sent, to every transport."""
    transports: set[asyncio.Transport] = set()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    frame = b"id: 7\nevent: progress\ndata: " + b"x" * 190 + b"\n\n"
    chunk = b"%x\r\n%s\r\n" % (len(frame), frame)

    class Bare(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by name

        def data_received(self, data: bytes) -> None:
            self.transport.write(head)
            transports.add(self.transport)

        def connection_lost(self, _: Exception | None) -> None:
            transports.discard(self.transport)

    server = await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", 0, backlog=2048)

    async def emit() -> None:
        for transport in transports:
            transport.write(chunk)

    await obey(f"{server.sockets[0].getsockname()[1]} /", emit)
    server.close()


async def obey(address: str, emit: Callable[[], Awaitable[None]]) -> None:
    """Say where we are; then one event for each line, until there are no more."""
    print(address, flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        await emit()


class Side:
    """A serving process and its watchers."""

    def __init__(self, kind: str, watchers: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self._process.stdout
        port, path = self._process.stdout.readline().split()
        self._seen = psutil.Process(self._process.pid)
        self._selector = DefaultSelector()
        self._sockets = [self._connect(int(port), path) for _ in range(watchers)]
        self._got = dict.fromkeys(self._sockets, 0)
        self._settle()

    def _connect(self, port: int, path: str) -> socket.socket:
        one = socket.create_connection(("127.0.0.1", port))
        one.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n".encode())
        one.setblocking(False)
        self._selector.register(one, EVENT_READ)
        return one

    def _settle(self) -> None:
        """Until everybody has what is there to say at the beginning, and nothing more comes."""
        while self._read(1.0):
            pass

    def _read(self, seconds: float) -> int:
        ready = self._selector.select(seconds)
        for key, _ in ready:
            data = key.fileobj.recv(65536)  # type: ignore[union-attr]
            assert data, "a watcher was cut"
            self._got[key.fileobj] += data.count(b"event: ")  # type: ignore[index]
        return len(ready)

    def turn(self) -> float:
        """Processor microseconds of the serving process for one delivery."""
        before = dict(self._got)
        began = self._cpu()
        assert self._process.stdin
        for number in range(1, EVENTS + 1):
            self._process.stdin.write("go\n")
            self._process.stdin.flush()
            ends = time.monotonic() + 60
            while any(self._got[one] < before[one] + number for one in self._sockets):
                self._read(0.2)
                assert time.monotonic() < ends, "an event did not reach everybody"
        assert all(self._got[one] == before[one] + EVENTS for one in self._sockets), "an event came twice"
        return (self._cpu() - began) / (EVENTS * len(self._sockets)) * 1e6

    def _cpu(self) -> float:
        used = self._seen.cpu_times()
        return used.user + used.system

    def close(self) -> None:
        for one in self._sockets:
            one.close()
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def sides(watchers: int) -> Iterator[tuple[Side, Side]]:
    ours, bare = Side("docmill", watchers), Side("bare", watchers)
    try:
        yield ours, bare
    finally:
        ours.close()
        bare.close()


def measure(watchers: int) -> bool:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with sides(watchers) as (ours, bare):
        ours.turn(), bare.turn()
        pairs = [(ours.turn(), bare.turn()) for _ in range(TURNS)]
    our, raw = min(one for one, _ in pairs), min(one for _, one in pairs)
    median = statistics.median(one / other for one, other in pairs)
    print(f"fan-out, {watchers} watchers, {TURNS} turns of {EVENTS} events: processor time of one delivery")
    print(f"  docmill         {our:7.2f} us")
    print(f"  bare sockets    {raw:7.2f} us")
    print(f"  ratio           {our / raw:7.2f} x of the best turns, {median:.2f} x in the median   (goal {GOAL})")
    return our / raw <= GOAL


if __name__ == "__main__":
    if sys.argv[1:2] in (["docmill"], ["bare"]):
        main = serve_docmill if sys.argv[1] == "docmill" else serve_bare
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
        os._exit(0)
    sys.exit(0 if measure(int(sys.argv[1]) if sys.argv[1:] else 1000) else 1)
