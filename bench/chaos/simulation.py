"""A deterministic simulation: real workers, use cases and SQL on a virtual clock, with faults drawn from a seed (R19).

    python -m bench.chaos.simulation --seeds 1000
    python -m bench.chaos.simulation --seed 4711 --trace

One event loop holds several simulated docmill processes on one in-memory database and one in-memory store. Time is
virtual: the loop jumps to the next timer, so an hour of backoff costs nothing. Every call of a process to the database,
the store, the queue or a receiver takes a random time and may fail: before it took effect, after it (the answer is
lost), or because the process was killed meanwhile, which then never continues. The wall clock is set forward and back.
The same seed gives the same run; `--trace` prints it.

Simulated are: processes, time, disk and network. Real are: the ledger and all SQL on SQLite, the state machine,
workers, sweeper, collector, stages, outbox and notifier.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import selectors
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar
from uuid import UUID, uuid4

import apsw
import msgspec
import structlog

from docmill.adapters.queues.local import LocalQueue
from docmill.adapters.signals.local import LocalSignals
from docmill.adapters.sql.documents import SqlDocuments
from docmill.adapters.sql.ledger import SqlLedger
from docmill.adapters.sql.migrate import migrate
from docmill.adapters.sql.outbox import SqlOutbox
from docmill.adapters.sql.rules import SqlRules
from docmill.adapters.sql.sealing import Sealer
from docmill.adapters.sql.sqlite import _drive, _translated
from docmill.adapters.sql.statement import Op, Query, Statement
from docmill.adapters.sql.tombstones import SqlTombstones
from docmill.adapters.sql.webhooks import SqlWebhooks
from docmill.core import webhooks
from docmill.core.access import Principal
from docmill.core.clocks import MIN_WATCH_MS
from docmill.core.errors import DocmillError, NotFound, StageFailed, Unavailable
from docmill.core.machine import StageResult
from docmill.core.parsed import Page, Parsed
from docmill.core.reports import Failed, Progress, Succeeded
from docmill.core.task import Artifacts, Fault, Task, Wishes
from docmill.core.turns import Lane, Waiting
from docmill.core.webhooks import Answer, WebhookDraft
from docmill.ports import Dispatch, Limits, Once, Ports, Stored, Work
from docmill.work import control, intake, query
from docmill.work.objects import objects
from docmill.work.places import Places
from docmill.work.receive import receive
from docmill.worker import Worker

T = TypeVar("T")

EPOCH_S = 1_800_000_000.0
"""Where the virtual wall clock begins."""
HOUR_S = 3600.0
WHO = Principal(user="anna", tenant="acme")
SEALER = Sealer(lambda: [b"secret of the simulation"])
STORM_S = 60.0
DRAIN_S = 4 * HOUR_S
"""Virtual time for everything to end after the last fault: longer than any backoff."""
WORKERS, APIS, TASKS, CLIENTS = 3, 2, 18, 3
LEASE_MS, BEAT_S, SWEEP_S = 5_000, 1.5, 0.5
JOB_TIMEOUT_S = 30.0
CLOCK_S = 2 * MIN_WATCH_MS / 1000
"""Between two settings of the clock. What is set and set back sooner, a process may not see at all."""
FAULT_CHANCE = 0.03
MAY_FAIL_WITH = frozenset({"worker_failed", "worker_timeout", "parse_crashed"})
"""What the simulated document or its external worker did; no fault of ours fails a task for good."""


class Broken(AssertionError):
    """An invariant does not hold."""


class VirtualSelector(selectors.BaseSelector):
    """Waits by moving the virtual clock. There is no input to wait for."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Broken("nothing is scheduled, and the simulation waits: a deadlock")
        self._clock.now_s += max(0.0, timeout)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, 0, None)

    def get_map(self) -> Any:
        return {}


@dataclass
class VirtualClock:
    now_s: float = 0.0
    wall_offset_s: float = 0.0

    @property
    def wall_s(self) -> float:
        return EPOCH_S + self.now_s + self.wall_offset_s


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        super().__init__(VirtualSelector(clock))

    def time(self) -> float:
        return self._clock.now_s

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        # There is one thread.
        return self.call_soon(callback, *args, context=context)


class VirtualVfs(apsw.VFS):
    """Gives SQLite the virtual time of day."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        super().__init__("simulated", "")

    def xCurrentTimeInt64(self) -> int:  # noqa: N802 - SQLite's name
        return round((self._clock.wall_s / 86_400 + 2_440_587.5) * 86_400_000)


@contextmanager
def virtual_time(clock: VirtualClock, chance: random.Random) -> Any:
    """Time, random bytes and threads of this process belong to the simulation."""

    async def inline(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        return function(*args, **kwargs)

    kept = time.time, time.time_ns, time.monotonic, os.urandom, asyncio.to_thread
    kept_urandom = random._urandom  # type: ignore[attr-defined]
    time.time = lambda: clock.wall_s
    time.time_ns = lambda: int(clock.wall_s * 1e9)
    time.monotonic = lambda: clock.now_s
    os.urandom = random._urandom = chance.randbytes  # type: ignore[attr-defined,assignment]
    asyncio.to_thread = inline  # type: ignore[assignment]
    random.seed(chance.getrandbits(64))
    try:
        yield
    finally:
        time.time, time.time_ns, time.monotonic, os.urandom, asyncio.to_thread = kept
        random._urandom = kept_urandom  # type: ignore[attr-defined]


@dataclass
class World:
    """What outlives a process: database, store, receivers; and the source of all faults."""

    seed: int
    folder: Path
    clock: VirtualClock
    chance: random.Random
    trace: list[str] = field(default_factory=list)
    is_stormy: bool = True
    is_over: bool = False
    abandoned: list[asyncio.Future[None]] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    objects: dict[str, bytes] = field(default_factory=dict)
    posts: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Message ids by task, in the order in which a receiver said 200."""

    def __post_init__(self) -> None:
        self.vfs = VirtualVfs(self.clock)
        self.connection = apsw.Connection(":memory:", vfs="simulated")
        self.connection.pragma("foreign_keys", True)

    def note(self, text: str) -> None:
        self.trace.append(f"{self.clock.now_s:10.3f} {text}")

    def happens(self, kind: str, chance: float = FAULT_CHANCE) -> bool:
        if not self.is_stormy or self.chance.random() >= chance:
            return False
        self.faults[kind] += 1
        return True

    def delay_s(self) -> float:
        """Mostly fast, sometimes as slow as a busy disk, seldom longer than a lease."""
        drawn = self.chance.random()
        if drawn < 0.9 or not self.is_stormy:
            return self.chance.uniform(0.0, 0.01)
        return self.chance.uniform(0.01, 0.5) if drawn < 0.995 else self.chance.uniform(1.0, 8.0)


@dataclass
class Process:
    """One docmill process. Once killed, none of its coroutines gets an answer again."""

    name: str
    world: World
    is_dead: bool = False

    async def call(self, what: str, effect: Callable[[], T]) -> T:
        """Reach something outside the process, which takes time and may fail."""
        await self._pass_time()
        if self.world.happens("failed before"):
            self.world.note(f"{self.name} {what}: fails before")
            raise Unavailable("database_unavailable")
        value = effect()
        await self._pass_time()
        if self.world.happens("failed after", FAULT_CHANCE / 2):
            self.world.note(f"{self.name} {what}: answer lost")
            raise Unavailable("database_unavailable")
        return value

    async def _pass_time(self) -> None:
        await asyncio.sleep(self.world.delay_s())
        await self.stay_alive()

    async def stay_alive(self) -> None:
        if self.world.is_over:
            raise asyncio.CancelledError
        if self.is_dead:
            never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.world.abandoned.append(never)  # whoever waits for it is not collected in the middle of a run
            await never

    def kill(self) -> None:
        self.is_dead = True
        self.world.faults["killed"] += 1
        self.world.note(f"{self.name} killed")


class SimulatedDatabase:
    """The one SQLite of the world, as one process reaches it."""

    dialect = "sqlite"

    def __init__(self, process: Process) -> None:
        self._process, self._connection = process, process.world.connection

    async def write(
        self,
        op: Op[T],
        *,
        tenant: str | None = None,
        durable: bool = True,
        lock_s: float | None = None,
        statement_s: float | None = None,
    ) -> T:
        return await self._process.call("write", lambda: self._commit(op))

    def _commit(self, op: Op[T]) -> T:
        with _translated():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                value = _drive(self._connection, op)
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
            return value

    async def read(self, op: Op[T], *, tenant: str | None = None, snapshot: bool = False) -> T:
        return await self._process.call("read", lambda: _drive(self._connection, op))

    async def script(self, text: str) -> None:
        def run() -> Op[None]:
            for part in text.split(";\n"):
                yield Query(Statement(part), {})

        await self.write(run())

    async def close(self) -> None: ...


class SimulatedStore:
    bucket = "simulated"

    def __init__(self, process: Process) -> None:
        self._process, self._objects = process, process.world.objects

    async def put(
        self, key: str, chunks: AsyncIterable[bytes], *, limit: int | None = None, filename: str = ""
    ) -> Stored:
        return await self.put_bytes(key, b"".join([chunk async for chunk in chunks]))

    async def put_bytes(self, key: str, data: bytes) -> Stored:
        def effect() -> Stored:
            if self._objects.setdefault(key, data) != data:
                raise Broken(f"{key} is overwritten with other bytes")
            return _stored(key, data)

        return await self._process.call("put", effect)

    async def put_file(self, key: str, path: Path) -> Stored:
        return await self.put_bytes(key, path.read_bytes())

    async def stat(self, key: str) -> Stored | None:
        def effect() -> Stored | None:
            data = self._objects.get(key)
            return None if data is None else _stored(key, data)

        return await self._process.call("stat", effect)

    async def read(self, key: str, *, limit: int | None = None) -> bytes:
        def effect() -> bytes:
            if key not in self._objects:
                raise NotFound("object_not_found", key=key)
            return self._objects[key]

        return await self._process.call("get", effect)

    async def fetch(self, key: str, path: Path) -> Stored:
        data = await self.read(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return _stored(key, data)

    async def stream(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        yield (await self.read(key))[start:end]

    async def delete(self, key: str) -> bool:
        return await self._process.call("delete", lambda: self._objects.pop(key, None) is not None)

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, int, float]]:
        for key in [key for key in sorted(self._objects) if key.startswith(prefix)]:
            await self._process.stay_alive()
            yield key, len(self._objects.get(key, b"")), 0.0

    async def free_bytes(self) -> int | None:
        return None

    async def close(self) -> None: ...


def _stored(key: str, data: bytes) -> Stored:
    digest = sha256(data).hexdigest()
    return Stored(key, len(data), digest, digest)


class SimulatedQueue:
    """Shared by all processes, and forgetful."""

    def __init__(self, process: Process, fleet: Fleet) -> None:
        self._process, self._fleet = process, fleet

    async def put(self, waiting: Waiting, *, delay_ms: int = 0) -> None:
        await self._process.stay_alive()
        if not self._process.world.happens("hint lost", 0.1):
            await self._fleet.queue.put(waiting, delay_ms=delay_ms)

    async def take(self, lane: Lane, most: int = 1) -> list[UUID]:
        taken: list[UUID] = []
        while not taken:
            # Now and then the queue is another one: it was flushed.
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    taken = await self._fleet.queue.take(lane, most)
            await self._process.stay_alive()  # what a dead process took is gone
        return taken


class SimulatedSignals:
    may_miss = True

    def __init__(self, process: Process, shared: LocalSignals) -> None:
        self._process, self._shared = process, shared

    def changed(self, task_id: int) -> None:
        if not self._process.is_dead and not self._process.world.happens("signal lost", 0.1):
            self._shared.changed(task_id)

    def subscribe(self, task_id: int | None = None) -> Any:
        return self._shared.subscribe(task_id)


class SimulatedHeart:
    """The heartbeat without its thread."""

    def __init__(self, process: Process, ledger: SqlLedger) -> None:
        self._process, self._ledger = process, ledger
        self._held: dict[UUID, Callable[[], object]] = {}
        self._beating: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._beating = asyncio.ensure_future(self._beat())

    @property
    def is_beating(self) -> bool:
        return self._beating is not None and not self._beating.done()

    def stop(self) -> None:
        if self._beating:
            self._beating.cancel()

    def hold(self, attempt_id: UUID, on_lost: Callable[[], object]) -> None:
        self._held[attempt_id] = on_lost

    def release(self, attempt_id: UUID) -> None:
        self._held.pop(attempt_id, None)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            ids = list(self._held)
            if not ids:
                continue
            try:
                alive = await self._ledger.beat(ids, worker=self._process.name, lease_ms=LEASE_MS)
            except DocmillError:
                continue
            for attempt_id in ids:
                if attempt_id not in alive and (on_lost := self._held.pop(attempt_id, None)):
                    on_lost()


class SimulatedEngine:
    """Reads the text it is given, slowly, and dies of some documents now and then."""

    name, version = "local", "simulated"

    def __init__(self, process: Process) -> None:
        self._process = process

    async def start(self, work: Work, report: Callable[[int, int | None], None]) -> Parsed:
        world = self._process.world
        text = work.source.read_text()
        pages = 1 + len(text) % 4
        for done in range(pages):
            await asyncio.sleep(world.chance.uniform(0.0, 1.5))
            await self._process.stay_alive()
            if world.happens("parser crashed", 0.02):
                raise StageFailed("parse_crashed", how="simulated")
            report(done + 1, pages)
        return Parsed("local", "text/plain", (Page(0, text),))

    async def warm(self) -> None: ...

    async def close(self) -> None: ...


class SimulatedPoster:
    """A receiver of webhooks that is sometimes away, and sometimes hears but its answer is lost."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def check(self, url: str) -> None: ...

    async def post(self, url: str, body: bytes, headers: dict[str, str], *, seconds: float) -> Answer:
        world = self._process.world
        await self._process._pass_time()
        if world.happens("receiver away", 0.2):
            return Answer(503, "webhook_refused")
        world.posts[url].append(headers["webhook-id"])
        await self._process._pass_time()
        if world.happens("receipt lost", 0.1):
            return Answer(None, "webhook_timeout")
        return Answer(200)


class SimulatedWorker:
    """An external worker. It reports through any process that is up, until it is heard."""

    name, dialect, timeout_s = "far", "secretary", JOB_TIMEOUT_S

    def __init__(self, process: Process, fleet: Fleet) -> None:
        self._process, self._fleet = process, fleet

    async def check(self) -> None: ...

    async def dispatch(self, job: Dispatch) -> tuple[str, ...]:
        world = self._process.world
        text = job.source.read_text()
        await self._process._pass_time()
        if world.happens("worker away", 0.1):
            raise StageFailed("worker_unreachable", worker=self.name, why="simulated")
        self._fleet.spawn(self._work(job, text))
        await self._process._pass_time()
        if world.happens("start answer lost", 0.1):
            raise StageFailed("worker_unreachable", worker=self.name, why="simulated")
        return (f"process-{job.job_id.hex[:6]}",)

    async def cancel(self, job_id: UUID, worker_ids: Sequence[str]) -> None: ...

    async def close(self) -> None: ...

    async def _work(self, job: Dispatch, text: str) -> None:
        world = self._fleet.world
        if world.happens("worker silent", 0.05):
            return
        for percent in (20, 60):
            await asyncio.sleep(world.chance.uniform(0.0, 3.0))
            await self._report(partial(self._progress, job, percent))
        if world.happens("worker failed", 0.1):
            fault = Fault("worker_failed", "simulated", "mineru")
            await self._deliver(
                lambda ports: receive(ports, job.task_id, job.job_id, Failed(fault), outcome_hash="failed")
            )
            return
        await self._deliver(lambda ports: self._final(ports, job, text))
        if world.happens("final twice", 0.3):
            await self._deliver(lambda ports: self._final(ports, job, text))

    async def _progress(self, job: Dispatch, percent: int, ports: Ports) -> None:
        await receive(ports, job.task_id, job.job_id, Progress(percent, "work", ""))

    async def _final(self, ports: Ports, job: Dispatch, text: str) -> None:
        parsed = Parsed(self.name, "text/plain", (Page(0, text),))
        store, folder = objects(ports, WHO.tenant), f"users/{WHO.user}/etl_artifacts/1/{job.task_id}/{uuid4().hex[:12]}"
        markdown = await store.put_bytes(f"{folder}/mineru.md", parsed.markdown.encode())
        whole = await store.put_bytes(f"{folder}/parsed.json", msgspec.json.encode(parsed))
        result = StageResult(Artifacts(markdown.key, whole.key), engine=self.name, pages=1)
        await receive(ports, job.task_id, job.job_id, Succeeded(result), outcome_hash=sha256(text.encode()).hexdigest())

    async def _report(self, send: Callable[[Ports], Coroutine[Any, Any, Any]]) -> None:
        """Progress: one try, given up when the process that hears it dies."""
        with suppress(DocmillError):
            await self._fleet.reach(send)

    async def _deliver(self, send: Callable[[Ports], Coroutine[Any, Any, Any]]) -> None:
        for _ in range(40):
            try:
                if await self._fleet.reach(send):
                    return
            except NotFound:
                return
            except DocmillError:
                pass
            await asyncio.sleep(self._fleet.world.chance.uniform(0.5, 3.0))


class Fleet:
    """All processes of a run, and who replaces those that are killed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.queue, self._signals = LocalQueue(), LocalSignals()
        self._numbers = 0
        self._running: set[asyncio.Task[None]] = set()
        self.workers: list[Process] = []
        self.apis: list[tuple[Process, Ports]] = []
        self._engines: dict[str, Worker] = {}

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def ports(self, process: Process) -> Ports:
        database: Any = SimulatedDatabase(process)
        unneeded: dict[str, Any] = {
            one.name: SimpleNamespace() for one in fields(Ports) if one.default is one.default_factory is MISSING
        }
        given: dict[str, Any] = {
            "ledger": SqlLedger(database),
            "tombstones": SqlTombstones(database),
            "outbox": SqlOutbox(database, SEALER),
            "webhooks": SqlWebhooks(database, SEALER),
            "rules": SqlRules(database),
            "documents": SqlDocuments(database),
            "store": SimulatedStore(process),
            "queue": SimulatedQueue(process, self),
            "signals": SimulatedSignals(process, self._signals),
            "poster": SimulatedPoster(process),
            "engines": {"local": SimulatedEngine(process)},
            "workers": {"far": SimulatedWorker(process, self)},
            "scratch": self.world.folder / process.name,
        }
        limits = Limits(lease_ms=LEASE_MS, beat_s=BEAT_S, sweep_s=SWEEP_S, task_timeout_s=120.0, leavings_ms=600_000)
        return Ports(**unneeded | given, limits=limits)

    def start_api(self) -> None:
        process = self._process("api")
        self.apis.append((process, self.ports(process)))

    def start_worker(self) -> None:
        process = self._process("worker")
        ports = self.ports(process)
        heart: Any = SimulatedHeart(process, ports.ledger)  # type: ignore[arg-type]
        worker = Worker(ports, heart, Places(jobs=2, stage_jobs=2), name=process.name)
        worker.start()
        self.workers.append(process)
        self._engines[process.name] = worker

    def _process(self, kind: str) -> Process:
        self._numbers += 1
        return Process(f"{kind}{self._numbers}", self.world)

    async def reach(self, send: Callable[[Ports], Coroutine[Any, Any, Any]]) -> bool:
        """Talk to one of the API processes. False: it died, or did not answer in time."""
        process, ports = self.world.chance.choice(self.apis)
        if process.is_dead:
            return False
        calling = asyncio.ensure_future(send(ports))
        ends = self.world.clock.now_s + 20.0
        while not calling.done() and not process.is_dead and self.world.clock.now_s < ends:
            await asyncio.wait([calling], timeout=0.5)
        if calling.done():
            calling.result()
            return True
        return False

    async def rage(self) -> None:
        """Kill and replace processes, set the clock, until the storm is over."""
        chance, clock = self.world.chance, self.world.clock
        set_at_s = -CLOCK_S
        while clock.now_s < STORM_S:
            await asyncio.sleep(chance.uniform(0.5, 4.0))
            may_set = clock.now_s - set_at_s >= CLOCK_S
            match chance.choice(["worker", "worker", "worker", "api", "flush", "forward", "back", "stop"]):
                case "worker":
                    self.workers.pop(chance.randrange(len(self.workers))).kill()
                    self.start_worker()
                case "api":
                    self.apis.pop(chance.randrange(len(self.apis)))[0].kill()
                    self.start_api()
                case "flush":
                    self.queue = LocalQueue()
                    self.world.note("queue flushed")
                case "forward" if clock.wall_offset_s == 0 and may_set:
                    clock.wall_offset_s, set_at_s = HOUR_S, clock.now_s
                    self.world.note("clock an hour ahead")
                case "back" if clock.wall_offset_s and may_set:
                    clock.wall_offset_s, set_at_s = 0.0, clock.now_s
                    self.world.note("clock back")
                case "stop":
                    await self._stop_one()
                case _:
                    pass
        self.world.is_stormy = False
        clock.wall_offset_s = 0.0
        self.world.note("calm")

    async def _stop_one(self) -> None:
        """A planned restart."""
        process = self.workers.pop(self.world.chance.randrange(len(self.workers)))
        self.world.note(f"{process.name} stops")
        self.start_worker()
        stopping = asyncio.ensure_future(self._engines[process.name].stop())
        await asyncio.wait([stopping], timeout=30)
        process.is_dead = True


@dataclass
class Client:
    """Submits documents and never gives up; cancels and retries some."""

    number: int
    fleet: Fleet
    accepted: dict[int, str] = field(default_factory=dict)
    cancelled: set[int] = field(default_factory=set)

    async def run(self, count: int) -> None:
        chance = self.fleet.world.chance
        for n in range(count):
            await asyncio.sleep(chance.uniform(0.0, 6.0))
            text = f"document {self.number}.{n} marker{chance.getrandbits(40):010x} " + "x" * chance.randrange(8)
            engine = chance.choice([None, None, "far"])
            key = await self._insist(lambda ports, text=text: self._upload(ports, text))
            once = Once(f"{self.number}-{n}", "same")
            wanted = intake.Submission(key, 1, f"{n}.txt", wishes=Wishes(engine=engine))
            task = await self._insist(lambda ports, wanted=wanted, once=once: self._submit(ports, wanted, once))
            again = await self._insist(lambda ports, wanted=wanted, once=once: self._submit(ports, wanted, once))
            if task != again:
                raise Broken(f"one key, two tasks: {task} and {again}")
            self.accepted[task] = text
            if chance.random() < 0.1:
                self.cancelled.add(task)
                await self._insist(lambda ports, task=task: self._cancel(ports, task))
            if chance.random() < 0.15:
                await asyncio.sleep(chance.uniform(0.0, 20.0))
                await self._insist(lambda ports, task=task: self._retry(ports, task))

    async def _insist(self, call: Callable[[Ports], Coroutine[Any, Any, T]]) -> T:
        answer: list[T] = []

        async def kept(ports: Ports) -> None:
            answer[:] = [await call(ports)]

        while True:
            with suppress(Unavailable):
                if await self.fleet.reach(kept):
                    return answer[0]
            await asyncio.sleep(0.2)

    async def _upload(self, ports: Ports, text: str) -> str:
        async def chunks() -> AsyncIterator[bytes]:
            yield text.encode()

        return (await intake.upload(ports, WHO, 1, "a.txt", chunks())).key

    async def _submit(self, ports: Ports, wanted: intake.Submission, once: Once) -> int:
        return (await intake.submit(ports, WHO, wanted, once=once))[0].id

    async def _cancel(self, ports: Ports, task_id: int) -> None:
        try:
            await control.cancel(ports, WHO, task_id, force=True)
        except DocmillError as error:
            if error.code != "task_finished":
                raise

    async def _retry(self, ports: Ports, task_id: int) -> None:
        try:
            await control.retry(ports, WHO, task_id, from_stage="mineru")
        except DocmillError as error:
            if error.code != "task_busy":
                raise


@dataclass(frozen=True)
class Outcome:
    seed: int
    broken: str | None
    tasks: int
    statuses: dict[str, int]
    faults: dict[str, int]
    digest: str
    """Of the whole trace: the same for every run of a seed."""
    trace: Sequence[str] = ()


def simulate(seed: int, *, keep_trace: bool = False) -> Outcome:
    structlog.configure(processors=[_drop])
    chance, clock = random.Random(seed), VirtualClock()
    folder = Path(tempfile.mkdtemp(prefix="docmill-simulation-"))
    with virtual_time(clock, chance):
        world = World(seed, folder, clock, chance)
        loop = VirtualLoop(clock)
        asyncio.set_event_loop(loop)
        broken, tasks, statuses = None, 0, Counter[str]()
        try:
            tasks, statuses = loop.run_until_complete(_run(world))
        except Broken as error:
            broken = str(error)
        finally:
            world.is_over = True
            loop.run_until_complete(_cancel_all())
            loop.close()
            world.connection.close()
            world.vfs.unregister()
            asyncio.set_event_loop(None)
            shutil.rmtree(folder, ignore_errors=True)
    digest = sha256("\n".join(world.trace).encode()).hexdigest()
    kept = tuple(world.trace) if keep_trace else ()
    return Outcome(seed, broken, tasks, dict(statuses), dict(world.faults), digest, kept)


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for _ in range(100):
        for task in others:
            task.cancel()
        _, others = await asyncio.wait(others, timeout=1) if others else (set(), set())
        if not others:
            return
    raise Broken(f"cannot be cancelled: {others}")


def _drop(*_: Any) -> Any:
    raise structlog.DropEvent


async def _run(world: World) -> tuple[int, Counter[str]]:
    world.is_stormy = False
    fleet = Fleet(world)
    first = fleet.ports(Process("setup", world))
    await migrate(first.ledger._database)  # type: ignore[attr-defined]
    await first.rules.default()
    draft = WebhookDraft("https://receiver.example/in")
    await first.webhooks.add(webhooks.new_webhook_id(), draft, webhooks.new_secret(), WHO.owner, most=9)
    world.is_stormy = True
    for _ in range(APIS):
        fleet.start_api()
    for _ in range(WORKERS):
        fleet.start_worker()
    clients = [Client(number, fleet) for number in range(CLIENTS)]
    running = [asyncio.ensure_future(client.run(TASKS // CLIENTS)) for client in clients]
    await fleet.rage()
    await asyncio.gather(*running)
    auditor = fleet.ports(Process("auditor", world))
    accepted = {task: text for client in clients for task, text in client.accepted.items()}
    await _drain(world, auditor, accepted)
    statuses: Counter[str] = Counter()
    for task_id, text in accepted.items():
        statuses[await _check(world, auditor, task_id, text)] += 1
    return len(accepted), statuses


async def _drain(world: World, ports: Ports, accepted: dict[int, str]) -> None:
    """Everything ends, also what waits to be sent."""
    ends = world.clock.now_s + DRAIN_S
    pending = Statement("SELECT COUNT(*) FROM notices WHERE state = 'pending'")

    def waiting() -> Op[int]:
        return int((yield pending())[0][0])

    while True:
        tasks = [await ports.ledger.get(task_id) for task_id in accepted]
        if None in tasks:
            raise Broken(f"lost: {[task_id for task_id, task in zip(accepted, tasks, strict=True) if task is None]}")
        busy = [task.id for task in tasks if task and not task.is_final]
        notices = await ports.ledger._database.read(waiting())  # type: ignore[attr-defined]
        if not busy and not notices:
            return
        if world.clock.now_s > ends:
            raise Broken(f"stuck: tasks {busy}, notices {notices}")
        await asyncio.sleep(5.0)


async def _check(world: World, ports: Ports, task_id: int, text: str) -> str:
    task = await ports.ledger.get(task_id)
    events = await ports.ledger.events(task_id, limit=10_000)
    if task is None:
        raise Broken(f"task {task_id} is lost")
    fault = task.fault.code if task.fault else ""
    world.note(f"task {task_id} {task.status} {fault} {task.attempt} {[event.kind for event in events]}")
    if task.status == "failed" and fault not in MAY_FAIL_WITH:
        raise Broken(f"task {task_id} failed with {fault}")
    if [event.seq for event in events] != list(range(1, len(events) + 1)):
        raise Broken(f"task {task_id}: its log has gaps")
    _check_log(task_id, [(event.kind, event.data) for event in events])
    if task.status == "completed":
        await _check_result(ports, task, text)
    ended = sum(event.kind in ("completed", "failed", "cancelled") for event in events)
    await _check_messages(world, ports, task_id, ended)
    return str(task.status)


def _check_log(task_id: int, events: list[tuple[str, dict[str, Any]]]) -> None:
    """One end per run, nothing after it; each stage succeeds once per run; progress does not fall in an attempt."""
    is_over, progress, succeeded = False, 0, set[str]()
    for kind, data in events:
        if kind == "retried":
            is_over, progress, succeeded = False, 0, set()
            continue
        if is_over:
            raise Broken(f"task {task_id}: {kind} after its end")
        if kind in ("completed", "failed", "cancelled"):
            is_over = True
        elif kind in ("worker_lost", "retry_scheduled"):
            progress = 0
        elif kind == "stage_succeeded":
            if data["stage"] in succeeded:
                raise Broken(f"task {task_id}: {data['stage']} succeeded twice")
            succeeded.add(data["stage"])
        elif kind == "progress":
            if data["progress"] < progress:
                raise Broken(f"task {task_id}: progress fell from {progress} to {data['progress']}")
            progress = data["progress"]
    if not is_over:
        raise Broken(f"task {task_id}: its log has no end")


async def _check_result(ports: Ports, task: Task, text: str) -> None:
    output = await query.result(ports, task)
    if not output or text.strip() not in str(output):
        raise Broken(f"task {task.id}: wrong result {str(output)[:200]}")
    document = await ports.documents.get(task.tenant, task.document_id)  # type: ignore[arg-type]
    if document is None:
        raise Broken(f"task {task.id}: its document is missing")
    blob = document.blob
    data = ports.store._objects.get(blob.uri.split("/", 3)[3])  # type: ignore[attr-defined,union-attr]
    if data is None or sha256(data).hexdigest() != blob.sha256:
        raise Broken(f"task {task.id}: the document's bytes are missing or other ones")


async def _check_messages(world: World, ports: Ports, task_id: int, ended: int) -> None:
    """Each end was announced once, and every announcement arrived."""
    sql = Statement("SELECT message_id, state FROM notices WHERE task_id = :task_id")

    def notices() -> Op[list[Any]]:
        return (yield sql(task_id=task_id))

    found = await ports.ledger._database.read(notices())  # type: ignore[attr-defined]
    if len(found) != ended or {state for _, state in found} - {"delivered"}:
        raise Broken(f"task {task_id} ended {ended} times, messages {found}")
    heard = set(world.posts["https://receiver.example/in"])
    if missing := [message for message, _ in found if message not in heard]:
        raise Broken(f"task {task_id}: {missing} counted as delivered, and not heard")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seed", type=int, help="one seed alone")
    parser.add_argument("--trace", action="store_true")
    given = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets is part of a run.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "bench.chaos.simulation", *sys.argv[1:]],
            os.environ | {"PYTHONHASHSEED": "0"},
        )
    if given.seed is not None:
        outcome = simulate(given.seed, keep_trace=given.trace)
        print("\n".join(outcome.trace))
        print(outcome.broken or "holds", outcome.statuses, outcome.faults, outcome.digest[:12])
        return 1 if outcome.broken else 0
    return _many(range(given.first, given.first + given.seeds))


def _many(seeds: range) -> int:
    began, statuses, faults, broken = time.monotonic(), Counter[str](), Counter[str](), []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for outcome in pool.map(simulate, seeds, chunksize=10):
            statuses.update(outcome.statuses)
            faults.update(outcome.faults)
            if outcome.broken:
                broken.append(outcome)
                print(f"seed {outcome.seed}: {outcome.broken}", flush=True)
    print(f"{len(seeds)} seeds in {time.monotonic() - began:.0f} s: {len(broken)} broken")
    print(f"tasks {dict(statuses)}")
    print(f"faults {dict(faults.most_common())}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
