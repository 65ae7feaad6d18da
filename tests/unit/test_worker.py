"""The worker takes an attempt once, however often the queue delivers it, and gives back what it cannot finish."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from docmill import compose, settings
from docmill.adapters.sql.ledger import SqlLedger
from docmill.adapters.stores.local import LocalStore
from docmill.core.access import LOCAL
from docmill.core.machine import Change
from docmill.core.parsed import Page, Parsed
from docmill.core.task import Status, Task, Wishes
from docmill.ports import PageReport, Ports, Store, Stored, Work
from docmill.work import control, intake, query
from docmill.work.notify import Notifier
from docmill.work.turns import line_up
from support.elsewhere import Elsewhere
from support.waiting import until


class SlowEngine:
    """Takes a moment, and counts who asked."""

    name = "local"
    version = "0"

    def __init__(self, seconds: float, pages: tuple[Page, ...] = (Page(0, "# Hello"),)) -> None:
        self.seconds = seconds
        self.pages = pages
        self.starts: Counter[int] = Counter()
        self.done = 0
        self.stopped: list[int] = []

    async def start(self, work: Work, report: PageReport) -> Parsed:
        self.starts[work.task_id] += 1
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.stopped.append(work.task_id)
            raise
        report(1, 1)
        self.done += 1
        return Parsed("local", "text/plain", self.pages)

    async def warm(self) -> None:
        pass

    async def close(self) -> None:
        pass


class SlowStore(LocalStore):
    """Lets whatever ends in a name wait until it is told to go on."""

    def __init__(self, root: Path, name: str) -> None:
        super().__init__(root)
        self.name = name
        self.waiting = 0
        self.may_go_on = asyncio.Event()

    async def put_bytes(self, key: str, data: bytes) -> Stored:
        if key.endswith(self.name):
            self.waiting += 1
            await self.may_go_on.wait()
        return await super().put_bytes(key, data)


@asynccontextmanager
async def working(
    folder: Path,
    engine: SlowEngine,
    *,
    store: Store | None = None,
    ledger: type[SqlLedger] = SqlLedger,
    jobs: int = 3,
    **flags: object,
) -> AsyncIterator[Ports]:
    chosen = settings.load(data=folder / "data", jobs=jobs, **flags)
    async with compose.opened(chosen, "http://127.0.0.1:9") as real:
        assert isinstance(real.ledger, SqlLedger)
        real = replace(real, ledger=ledger(real.ledger._database))
        ports = replace(real, engines={"local": engine}, store=store or real.store)
        async with compose.working(chosen, ports):
            yield ports


async def submitted(ports: Ports, name: str = "a.txt", engine: str | None = None) -> Task:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"hello"

    stored = await intake.upload(ports, LOCAL, 1, name, chunks())
    wanted = intake.Submission(s3_key=stored.key, filename=name, wishes=Wishes(no_cache=True, engine=engine))
    task, _ = await intake.submit(ports, LOCAL, wanted)
    return task


async def ended(ports: Ports, task: Task) -> Task:
    while not task.is_final:
        task = await query.changed(ports, LOCAL, task.id, seconds=10)
    return task


async def test_an_attempt_that_is_delivered_again_and_again_runs_once(tmp_path: Path) -> None:
    """Also within one process, where the worker that has it and the one that gets it again have the same name."""
    engine = SlowEngine(0.05)
    async with working(tmp_path, engine) as ports:
        tasks = [await submitted(ports, f"{n}.txt") for n in range(10)]
        for _ in range(20):
            for task in tasks:
                assert task.attempt_id
                await line_up(ports, task, task.attempt_id, task.stage)
            await asyncio.sleep(0.01)
        done = [await ended(ports, task) for task in tasks]

    assert {Status.COMPLETED} == {task.status for task in done}
    assert [1] * 10 == [engine.starts[task.id] for task in tasks]


class LateLedger(SqlLedger):
    """Takes its time after each commit, so that a heartbeat falls between it and the answer."""

    async def decide(self, *args: Any, **flags: Any) -> Change:
        change = await super().decide(*args, **flags)
        await asyncio.sleep(0.2)
        return change


async def test_a_heartbeat_between_a_stages_commit_and_the_next_stage_drops_neither(tmp_path: Path) -> None:
    flags = {"heartbeat": 0.02, "lease": 60}
    async with working(tmp_path, SlowEngine(0), ledger=LateLedger, **flags) as ports, asyncio.timeout(20):
        done = await ended(ports, await submitted(ports))

    assert (Status.COMPLETED, 1) == (done.status, done.attempt)


async def test_a_forced_cancel_stops_the_work_at_once(tmp_path: Path) -> None:
    engine = SlowEngine(30)
    async with working(tmp_path, engine) as ports:
        task = await submitted(ports)
        await until(lambda: engine.starts)
        await control.cancel(ports, LOCAL, task.id, force=True)
        async with asyncio.timeout(20):
            while not engine.stopped:
                await asyncio.sleep(0.01)
        assert Status.CANCELLED is (await query.task(ports, LOCAL, task.id)).status


async def test_a_stop_gives_back_without_costing_an_attempt(tmp_path: Path) -> None:
    slow, quick = SlowEngine(30), SlowEngine(0)
    async with working(tmp_path, slow) as ports:
        task = await submitted(ports)
        await until(lambda: slow.starts)
    async with working(tmp_path, quick) as ports:
        done = await ended(ports, await query.task(ports, LOCAL, task.id))

    assert (Status.COMPLETED, 1) == (done.status, done.attempt)


async def test_a_stage_that_takes_too_long_is_ended_and_said(tmp_path: Path) -> None:
    engine = SlowEngine(30)
    async with working(tmp_path, engine) as ports:
        object.__setattr__(ports, "limits", replace(ports.limits, task_timeout_s=0.2))
        failed = await ended(ports, await submitted(ports))

    assert failed.fault
    assert ("task_timeout", "timeout") == (failed.fault.code, failed.fault.stage)
    assert engine.stopped


async def test_who_waits_for_the_engine_is_pending_and_loses_no_time(tmp_path: Path) -> None:
    engine = SlowEngine(2.8)
    async with working(tmp_path, engine, jobs=1, etl_task_timeout=8) as ports:
        tasks = [await submitted(ports, f"{n}.txt") for n in range(4)]
        await until(lambda: bool(engine.starts))
        seen = [(await query.task(ports, LOCAL, task.id)).status for task in tasks]
        done = [await ended(ports, task) for task in tasks]

    assert [Status.RUNNING] + [Status.PENDING] * 3 == seen
    # The last one waited for longer than a stage may take.
    assert [Status.COMPLETED] * 4 == [task.status for task in done]


async def test_the_next_parse_starts_while_results_are_stored_but_only_so_many_wait_for_that(tmp_path: Path) -> None:
    engine, store = SlowEngine(0), SlowStore(tmp_path / "objects", "parsed.json")
    async with working(tmp_path, engine, store=store, jobs=1) as ports:
        tasks = [await submitted(ports, f"{n}.txt") for n in range(4)]
        await until(lambda: engine.done == 2)
        await asyncio.sleep(0.2)  # time enough for a third, if it were let in
        assert (2, 1) == (len(engine.starts), store.waiting)
        seen = [(await query.task(ports, LOCAL, task.id)).status for task in tasks]
        store.may_go_on.set()
        done = [await ended(ports, task) for task in tasks]

    assert [Status.RUNNING, Status.RUNNING, Status.PENDING, Status.PENDING] == seen
    assert {Status.COMPLETED} == {task.status for task in done}


async def test_later_stages_hold_no_place_at_the_engine(tmp_path: Path) -> None:
    engine, store = SlowEngine(0), SlowStore(tmp_path / "objects", "output.json")
    async with working(tmp_path, engine, store=store, jobs=1, stage_jobs=2) as ports:
        tasks = [await submitted(ports, f"{n}.txt") for n in range(8)]
        await until(lambda: engine.done == 8 and store.waiting == 2)
        await asyncio.sleep(0.2)  # time enough for a third, if it were let in
        assert 2 == store.waiting
        store.may_go_on.set()
        done = [await ended(ports, task) for task in tasks]

    assert {Status.COMPLETED} == {task.status for task in done}
    assert {1} == set(engine.starts.values())


async def test_a_stop_while_results_are_stored_gives_back_all_of_them(tmp_path: Path) -> None:
    engine, store = SlowEngine(0), SlowStore(tmp_path / "objects", "output.json")
    async with working(tmp_path, engine, store=store, jobs=1, stage_jobs=2) as ports:
        tasks = [await submitted(ports, f"{n}.txt") for n in range(5)]
        async with asyncio.timeout(30):
            while 5 != (await ports.ledger.counts()).get("llm_processing"):
                await asyncio.sleep(0.01)
    again = SlowEngine(0)
    async with working(tmp_path, again, store=LocalStore(tmp_path / "objects")) as ports:
        done = [await ended(ports, await query.task(ports, LOCAL, task.id)) for task in tasks]

    assert [(Status.COMPLETED, 1)] * 5 == [(task.status, task.attempt) for task in done]
    assert not again.starts


async def test_a_busy_engine_keeps_nobody_from_an_external_worker(tmp_path: Path) -> None:
    engine = SlowEngine(30)
    with Elsewhere() as there:
        async with working(tmp_path, engine, jobs=1, workers=json.loads(there.settings())) as ports:
            await submitted(ports, "near.txt")
            await until(lambda: bool(engine.starts))
            waits, goes = await submitted(ports, "waits.txt"), await submitted(ports, "far.txt", "secretary")
            job = await asyncio.to_thread(there.jobs.get, timeout=30)
            assert str(goes.attempt_id) == job.id
            assert Status.PENDING is (await query.task(ports, LOCAL, waits.id)).status


async def test_a_page_that_could_not_be_read_is_named_by_task_and_event(tmp_path: Path) -> None:
    engine = SlowEngine(0, (Page(0, "fine"), Page(1, "", damage="the page cannot be loaded")))
    async with working(tmp_path, engine) as ports:
        done = await ended(ports, await submitted(ports))
        events = await ports.ledger.events(done.id)

    told = [event.data["damaged_pages"] for event in events if "damaged_pages" in event.data]
    assert (Status.COMPLETED, (1,)) == (done.status, done.damaged_pages)
    assert [[{"page_index": 1, "why": "the page cannot be loaded"}]] == told


async def test_who_is_woken_and_stopped_in_the_same_moment_stops(tmp_path: Path) -> None:
    async with compose.opened(settings.load(data=tmp_path / "data", jobs=1)) as ports:
        for ticks in range(8):
            notifier = Notifier(ports)
            notifying = asyncio.create_task(notifier.run())
            await asyncio.sleep(0.05)
            notifier._wake.set()
            for _ in range(ticks):
                await asyncio.sleep(0)
            notifying.cancel()
            _, left = await asyncio.wait({notifying}, timeout=ports.limits.sweep_s / 2)
            assert not left, f"after {ticks} ticks it went on"
