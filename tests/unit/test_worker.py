"""The worker takes an attempt once, however often the queue delivers it, and gives back what it cannot finish."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from docmill import compose, settings
from docmill.core.access import LOCAL
from docmill.core.parsed import Page, Parsed
from docmill.core.task import Status, Task, Wishes
from docmill.ports import PageReport, Ports, Work
from docmill.work import control, intake, query
from docmill.work.turns import line_up


class SlowEngine:
    """Takes a moment, and counts who asked."""

    name = "local"
    version = "0"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.starts: Counter[int] = Counter()
        self.stopped: list[int] = []

    async def start(self, work: Work, report: PageReport) -> Parsed:
        self.starts[work.task_id] += 1
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.stopped.append(work.task_id)
            raise
        report(1, 1)
        return Parsed("local", "text/plain", (Page(0, "# Hello"),))

    async def warm(self) -> None:
        pass

    async def close(self) -> None:
        pass


@asynccontextmanager
async def working(folder: Path, engine: SlowEngine) -> AsyncIterator[Ports]:
    chosen = settings.load(data=folder / "data", jobs=3)
    async with compose.opened(chosen) as real:
        ports = replace(real, engines={"local": engine})
        async with compose.working(chosen, ports):
            yield ports


async def submitted(ports: Ports, name: str = "a.txt") -> Task:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"hello"

    stored = await intake.upload(ports, LOCAL, 1, name, chunks())
    wanted = intake.Submission(s3_key=stored.key, filename=name, wishes=Wishes(no_cache=True))
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


async def test_a_forced_cancel_stops_the_work_at_once(tmp_path: Path) -> None:
    engine = SlowEngine(30)
    async with working(tmp_path, engine) as ports:
        task = await submitted(ports)
        while not engine.starts:
            await asyncio.sleep(0.01)
        await control.cancel(ports, LOCAL, task.id, force=True)
        async with asyncio.timeout(1):
            while not engine.stopped:
                await asyncio.sleep(0.01)
        assert Status.CANCELLED is (await query.task(ports, LOCAL, task.id)).status


async def test_a_stop_gives_back_without_costing_an_attempt(tmp_path: Path) -> None:
    slow, quick = SlowEngine(30), SlowEngine(0)
    async with working(tmp_path, slow) as ports:
        task = await submitted(ports)
        while not slow.starts:
            await asyncio.sleep(0.01)
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
