"""Durable progress callbacks against the same endpoint without storage, FastAPI + aiosqlite, and FastAPI + SQLAlchemy.

Every server is a process of its own on loopback and commits to a SQLite file (WAL, synchronous=FULL) before it answers;
a client in yet another process drives them in turn over connections that stay open, each reporting for jobs of its own.
The CPU time is the server's, its threads and its share of the kernel included; the best of the slices counts, for
each of the servers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psutil
import uvloop

JOBS = 1024
SERVERS = ("docmill", "no storage", "aiosqlite", "sqlalchemy")
LINE = "  {:12}{:>10}{:>14}{:>12}"


# Servers


async def serve(kind: str, folder: Path, out: int) -> None:
    import uvicorn

    from docmill.compose import address, listen

    jobs: dict[str, str] = json.loads((folder / "jobs.json").read_text())
    listener = listen("127.0.0.1", 0)

    def ready() -> None:
        os.write(out, f"{address(listener)}\n".encode())

    if kind in ("docmill", "no storage"):
        async with docmill(folder / "data", jobs, stored=kind == "docmill") as app:
            from docmill.compose import settle
            from docmill.http.server import run

            settle()
            ready()
            await run(app, listener, grace_s=1)
        return
    from peers import callbacks_aiosqlite, callbacks_sqlalchemy

    peer = callbacks_aiosqlite if kind == "aiosqlite" else callbacks_sqlalchemy
    app = peer.build(str(folder / "peer.db"), jobs)
    config = uvicorn.Config(app, log_config=None, access_log=False, loop="uvloop", http="httptools")
    ready()
    await uvicorn.Server(config).serve(sockets=[listener])


@asynccontextmanager
async def docmill(data: Path, jobs: dict[str, str], *, stored: bool) -> Any:
    """The real app with its real log, whose lines go nowhere."""
    from docmill import compose, settings
    from docmill.http import logs
    from docmill.http.app import HttpOptions, build_app

    logs.configure(stream=os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    chosen = settings.load(data=data, jobs=1)
    async with compose.opened(chosen) as ports:
        await seed(ports, jobs)
        if not stored:
            ports = replace(ports, ledger=NoStorage({UUID(job): await ports.ledger.find(UUID(job)) for job in jobs}))
        auth = await compose.authenticator(chosen, ports.keys)
        yield build_app(ports, auth=auth, options=HttpOptions(), callbacks=compose.callback_options(chosen))


async def seed(ports: Any, jobs: dict[str, str]) -> None:
    from docmill.core import machine
    from docmill.core.machine import Handover
    from docmill.core.task import Wishes
    from docmill.ports import NewTask

    async def one(job: str, token: str) -> None:
        attempt = UUID(job)
        new = NewTask("acme", "anna", 1, "invoice.pdf", "users/anna/raw/1/invoice.pdf", 1, Wishes(engine="secretary"))
        task, _ = await ports.ledger.open(new, attempt_id=attempt)
        await ports.ledger.claim(attempt, worker="bench", lease_ms=600_000)
        handover = Handover("secretary", "secretary", sha256(token.encode()).hexdigest(), 600_000)
        await ports.ledger.decide(task.id, lambda task, found: machine.hand_over(task, found, handover))

    await asyncio.gather(*(one(job, token) for job, token in jobs.items()))


class NoStorage:
    """A ledger whose jobs are in memory: rules are asked, and what they say is not written."""

    def __init__(self, jobs: dict[UUID, Any]) -> None:
        self._jobs = jobs

    async def find_attempt(self, attempt_id: UUID) -> Any:
        return self._jobs[attempt_id][1]

    async def decide(self, task_id: int, rule: Any, *, attempt_id: UUID, durable: bool) -> Any:
        return rule(*self._jobs[attempt_id])


# The client


class Connection(asyncio.Protocol):
    """Sends its requests one after the other, for ever. An answer is head and body, told by Content-Length."""

    def __init__(self, requests: list[bytes], seen: list[int]) -> None:
        self._requests = requests
        self._seen = seen
        self._next = random.randrange(len(requests))
        self._buffer = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(rest) < length:
            return
        self._buffer = b""
        self._seen[head[9:12] != b"200"] += 1
        self._send()

    def _send(self) -> None:
        self._next = (self._next + 1) % len(self._requests)
        self._transport.write(self._requests[self._next])


def requests_of(jobs: list[tuple[str, str]]) -> list[bytes]:
    found = []
    for percent in range(0, 100, 10):
        for job, token in jobs:
            said = {"phase": "extract_text", "progress": percent, "message": f"Seite {percent}/100 verarbeitet"}
            body = json.dumps(said | {"process": {"id": "sec-1234"}}).encode()
            head = (
                f"POST /api/external/jobs/{job} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            found.append(head.encode() + body)
    return found


async def drive(port: int, jobs: list[tuple[str, str]], count: int, seconds: float, pid: int) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    seen = [0, 0]
    open_ = [
        (await loop.create_connection(partial(Connection, requests_of(jobs[n::count]), seen), "127.0.0.1", port))[0]
        for n in range(count)
    ]
    server = psutil.Process(pid)
    await asyncio.sleep(seconds / 4)
    began, cpu, first = time.perf_counter(), sum(server.cpu_times()[:2]), seen[0]
    await asyncio.sleep(seconds)
    took, cpu, answers = time.perf_counter() - began, sum(server.cpu_times()[:2]) - cpu, seen[0] - first
    for transport in open_:
        transport.abort()
    return {"rate": answers / took, "cpu": cpu / max(answers, 1) * 1e6, "bad": seen[1]}


def client(folder: Path) -> None:
    """Obeys lines of JSON on its input."""
    jobs = list(json.loads((folder / "jobs.json").read_text()).items())
    for line in sys.stdin:
        wanted = json.loads(line)
        os.sync()  # what the one before left to be written is not for this one to wait for
        print(json.dumps(uvloop.run(drive(jobs=jobs, **wanted))), flush=True)


# The measurement


@dataclass
class Best:
    rate: float = 0.0
    cpu: float = float("inf")

    def take(self, found: dict[str, float]) -> None:
        self.rate, self.cpu = max(self.rate, found["rate"]), min(self.cpu, found["cpu"])


@contextmanager
def started(*flags: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, __file__, *flags]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def measure(names: list[str], counts: list[int], *, rounds: int, slices: int, seconds: float) -> bool:
    """A process that was started under a bad star stays slow for all of its slices: each round has new ones."""
    best = {count: {name: Best() for name in names} for count in counts}
    for _ in range(rounds):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            jobs = {str(uuid4()): f"cb_{sha256(os.urandom(9)).hexdigest()[:43]}" for _ in range(JOBS)}
            servers = {}
            for name in names:
                place = folder / name.replace(" ", "-")
                place.mkdir()
                (place / "jobs.json").write_text(json.dumps(jobs))
                process = stack.enter_context(started("--serve", name, "--folder", str(place)))
                servers[name] = int(process.stdout.readline().rpartition(":")[2]), process.pid
            driver = stack.enter_context(started("--client", "--folder", str(place)))
            for count in counts:
                for turn in range(slices + 1):
                    for name, (port, pid) in servers.items():
                        wanted = {"port": port, "pid": pid, "count": count, "seconds": seconds}
                        print(json.dumps(wanted), file=driver.stdin, flush=True)
                        found = json.loads(driver.stdout.readline())
                        assert not found["bad"], f"{name}: {found['bad']:.0f} requests were refused"
                        if turn:  # the first one warms up: it fills caches and tells every job's name
                            best[count][name].take(found)
    good = [show(count, best[count], f"best of {rounds} x {slices} slices") for count in counts]
    return all(good)


def show(count: int, best: dict[str, Best], of: str) -> bool:
    print(f"\n{count} connections, {JOBS} jobs, {of}")
    print(LINE.format("", "requests/s", "CPU us/request", "x docmill"))
    ours = best["docmill"]
    for name, one in best.items():
        print(LINE.format(name, f"{one.rate:,.0f}", f"{one.cpu:.0f}", f"{one.cpu / ours.cpu:.2f}"))
    good = True

    def goal(text: str, value: float, limit: float, *, at_least: bool = False) -> None:
        nonlocal good
        met = value >= limit if at_least else value <= limit
        good &= met
        print(f"  {'met   ' if met else 'MISSED'}  {text}: {value:.3f} (goal {'>=' if at_least else '<='} {limit:.3f})")

    if "no storage" in best:
        goal("CPU against no storage", ours.cpu / best["no storage"].cpu, 2.5)
        goal("throughput against no storage", ours.rate / best["no storage"].rate, 0.5, at_least=True)
    if "aiosqlite" in best:
        goal("CPU against FastAPI + aiosqlite", ours.cpu / best["aiosqlite"].cpu, 1 / 5)
    return good


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", default="32,256")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slices", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--only", default=",".join(SERVERS))
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--client", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        # Whatever else prints must not get between us and the one who waits for our address.
        out = os.dup(1)
        os.dup2(2, 1)
        uvloop.run(serve(given.serve, given.folder, out))
    elif given.client:
        client(given.folder)
    else:
        counts = [int(count) for count in given.connections.split(",")]
        length = {"rounds": given.rounds, "slices": given.slices, "seconds": given.seconds}
        sys.exit(0 if measure(given.only.split(","), counts, **length) else 1)
