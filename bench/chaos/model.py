"""A small model of what a task may do, and Hypothesis, which looks for a walk on which the real thing differs.

The model is written from the description, not from the code: plain values, no databases, no clocks but its own. The
same machine runs over every backend. Time is moved by moving the times in the database, so that nobody waits.

    python -m bench.chaos.model --backend sqlite --steps 10000
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar
from uuid import UUID, uuid4

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.database import InMemoryExampleDatabase
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule, run_state_machine_as_test

import bench.chaos  # noqa: F401 - finds the tests' support
from docmill.adapters.queues.local import LocalQueue
from docmill.adapters.signals.local import LocalSignals
from docmill.adapters.sql.ledger import SqlLedger
from docmill.adapters.sql.outbox import SqlOutbox
from docmill.adapters.sql.statement import Op, Statement
from docmill.core import machine
from docmill.core.access import Principal
from docmill.core.clocks import MIN_WATCH_MS, ClockWatch
from docmill.core.errors import Conflict, NotFound
from docmill.core.machine import Handover, StageResult
from docmill.core.reports import Failed, GivenBack, Pages, Progress, Report, Succeeded
from docmill.core.task import Artifacts, Attempt, Fault, Task
from docmill.core.turns import Lane
from docmill.ports import Limits, Once, Ports
from docmill.work import control, sweep
from docmill.work.receive import receive
from support.databases import open_database
from support.ledgers import SEALER, a_task
from support.servers import Postgres, Redis

T = TypeVar("T")

LEASE_S, TIMEOUT_S, JOB_S = 60, 600, 250
MAX_LOST_ALONE = 2
STALE_S = TIMEOUT_S + 30
STEPS_S = (100, 1000)
"""How far the clock is moved at once: a lease is over after the small step, a task is stale after the large one."""
RANGES = {"parse": (10, 55), "postprocess": (60, 75), "publish": (80, 95)}
NEXT = {"parse": "postprocess", "postprocess": "publish", "publish": None}
WHO = Principal(user="anna", tenant="acme")
STRANGER = Principal(user="anna", tenant="other")
WORKERS = ("w1", "w2")
WHICH = st.sampled_from([0, 0, 0, 0, 0, 1, 2, 5])
"""The current attempt mostly; sometimes one before it, for late reports come from them."""
SELDOM = st.integers(0, 7).map(lambda n: n == 7)
MOST_TASKS = 3


@dataclass
class Try:
    """An attempt, as the model has it. Times are seconds of the model's clock."""

    id: UUID
    number: int
    stage: str
    state: str = "queued"
    owner: str | None = None
    due: float = 0.0
    lease: float | None = None
    deadline: float | None = None
    token: str | None = None
    outcome: str | None = None
    is_delayed: bool = False
    """The queue waits by the real clock, which we do not move."""

    @property
    def works(self) -> bool:
        return self.state in ("running", "handed_over")


@dataclass
class Model:
    """A task, as the model has it."""

    id: int
    tries: dict[UUID, Try]
    current: UUID
    status: str = "pending"
    stage: str = "parse"
    number: int = 1
    progress: int = 0
    errors: int = 0
    crashes: int = 0
    lost: int = 0
    lost_alone: int = 0
    runs_alone: bool = False
    has_markdown: bool = False
    ends: int = 0

    @property
    def is_final(self) -> bool:
        return self.status in ("completed", "failed", "cancelled")

    def is_working(self, one: Try) -> bool:
        return self.current == one.id and self.status == "running" and one.works

    def end(self, status: str) -> None:
        self.status, self.ends = status, self.ends + 1

    def open(self, one: Try) -> None:
        self.tries[one.id], self.current = one, one.id
        self.stage, self.number = one.stage, one.number

    def claim(self, one: Try, worker: str, now: float) -> bool:
        if self.current != one.id or one.state != "queued" or self.is_final or one.due > now:
            return False
        one.state, one.owner, one.lease = "running", worker, now + LEASE_S
        self.status, self.progress = "running", max(self.progress, RANGES[one.stage][0])
        return True

    def succeed(self, one: Try, next_id: UUID | None, keep_for: str | None, now: float) -> str:
        if one.state == "succeeded":
            return "duplicate"
        if not self.is_working(one):
            return "superseded"
        one.state, one.lease, self.errors, self.crashes = "succeeded", None, 0, 0
        self.lost, self.lost_alone, self.runs_alone = 0, 0, False
        self.has_markdown = True
        following = NEXT[one.stage]
        if following is None:
            self.progress = 100
            self.end("completed")
            return "applied"
        assert next_id
        state = "running" if keep_for else "queued"
        lease = now + LEASE_S if keep_for else None
        self.open(Try(next_id, one.number, following, state, keep_for, now, lease))
        self.progress = max(self.progress, RANGES[following][0])
        return "applied"

    def fail(self, one: Try, next_id: UUID | None, now: float, *, retryable: bool, crashed: bool) -> str:
        if one.state == "failed":
            return "duplicate"
        if not self.is_working(one):
            return "superseded"
        one.state, one.lease = "failed", None
        self.errors, self.crashes = self.errors + (not crashed), self.crashes + crashed
        if not retryable or self.errors >= 3 or self.crashes >= 3:
            self.end("failed")
        else:
            assert next_id
            self._again(one, next_id, now, 2 ** (self.errors + self.crashes - 1))
        return "applied"

    def lose(self, one: Try, next_id: UUID | None, now: float) -> None:
        """The sweeper found its lease or deadline over."""
        if not self.is_working(one):
            return
        lapsed = now - (one.deadline if one.lease is None else one.lease)  # type: ignore[operator]
        is_out = one.state == "handed_over" and one.lease is None
        one.state, one.lease = "dropped", None
        if is_out or lapsed > STALE_S:
            self.end("failed")
            return
        self.lost, self.lost_alone = self.lost + 1, self.lost_alone + self.runs_alone
        if self.lost_alone >= MAX_LOST_ALONE:
            one.state = "failed"
            self.end("failed")
            return
        assert next_id
        wait = 0.0 if self.lost <= 2 else min(0.25 * 2 ** (self.lost - 3), 1)
        self._again(one, next_id, now, wait)

    def isolate(self, one: Try) -> str:
        if not self.is_working(one):
            return "superseded"
        self.runs_alone = True
        return "applied"

    def give_back(self, one: Try, next_id: UUID | None, now: float) -> str:
        if not self.is_working(one):
            return "superseded"
        assert next_id
        one.state, one.lease = "given_back", None
        self.status, self.runs_alone = "pending", False
        self.open(Try(next_id, one.number, one.stage, due=now))
        return "applied"

    def cancel(self, *, force: bool) -> str:
        if self.is_final:
            return "task_finished"
        if self.status == "running" and not force:
            return "task_running"
        self.end("cancelled")
        one = self.tries[self.current]
        one.state, one.lease = "dropped", None
        return "applied"

    def retry(self, stage: str, next_id: UUID | None, now: float) -> str:
        if not self.is_final:
            return "task_busy"
        if stage == "postprocess" and not self.has_markdown:
            return "artifact_missing"
        assert next_id
        self.status, self.progress, self.errors, self.crashes = "pending", 0, 0, 0
        self.lost, self.lost_alone, self.runs_alone = 0, 0, False
        self.has_markdown = stage == "postprocess"
        self.open(Try(next_id, self.number + 1, "parse" if stage == "mineru" else stage, due=now))
        return "applied"

    def report(self, one: Try, token: str, percent: int, now: float) -> str:
        if token != one.token:
            return "replaced"
        if one.state in ("succeeded", "failed"):
            return "conflict"
        if not self.is_working(one):
            return "superseded"
        low, high = RANGES[one.stage]
        self.progress = max(self.progress, low + int((high - low) * percent / 100))
        one.lease, one.deadline = None, now + JOB_S
        return "applied"

    def _again(self, one: Try, next_id: UUID, now: float, wait: float) -> None:
        self.status, self.progress, self.runs_alone = "pending", 0, False
        self.open(Try(next_id, one.number + 1, one.stage, due=now + wait, is_delayed=wait > 0))


@dataclass
class Backend:
    """A real ledger and a real queue, and the loop on which they live."""

    kind: str
    runner: asyncio.Runner = field(default_factory=asyncio.Runner)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    steps: int = 0

    def open(self, folder: Path, postgres_url: str | None = None, redis_url: str | None = None) -> Backend:
        self.do(self._open(folder, postgres_url, redis_url))
        return self

    async def _open(self, folder: Path, postgres_url: str | None, redis_url: str | None) -> None:
        kind = "sqlite" if self.kind == "sqlite" else "postgres"
        self.database = await self.stack.enter_async_context(open_database(kind, folder, postgres_url))
        queue: Any = LocalQueue()
        if redis_url:
            queue = await arq_queue(self.stack, redis_url)
        unneeded: dict[str, Any] = {
            one.name: SimpleNamespace() for one in fields(Ports) if one.default is one.default_factory is MISSING
        }
        given = {
            "ledger": SqlLedger(self.database),
            "outbox": SqlOutbox(self.database, SEALER),
            "queue": queue,
            "signals": LocalSignals(),
            "engines": {},
            "clock": ClockWatch(max_gap_ms=2 * MIN_WATCH_MS),
        }
        limits = Limits(task_timeout_s=TIMEOUT_S, lease_ms=LEASE_S * 1000, max_lost_alone=MAX_LOST_ALONE)
        self.ports = Ports(**unneeded | given, limits=limits)
        # As a process that has run for a while: one that has just started gives nothing up.
        now_ms = await self.ports.ledger.now_ms()
        self.ports.clock.observe(now_ms - MIN_WATCH_MS, round(time.monotonic() * 1000) - MIN_WATCH_MS)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def close(self) -> None:
        self.do(self.stack.aclose())
        self.runner.close()

    def clear(self) -> None:
        def op() -> Op[None]:
            for table in ("tasks", "task_counts", "idempotency"):
                yield Statement(f"DELETE FROM {table}")()

        self.do(self.database.write(op()))

    def step_clock(self, seconds: int) -> None:
        """Everything that waits for a time has waited that much longer."""

        def op() -> Op[None]:
            yield Statement(
                "UPDATE attempts SET due_ms = due_ms - :ms, lease_ms = lease_ms - :ms, deadline_ms = deadline_ms - :ms"
            )(ms=seconds * 1000)

        self.do(self.database.write(op()))


async def arq_queue(stack: AsyncExitStack, url: str) -> Any:
    from docmill.adapters import redis
    from docmill.adapters.queues.arq import ArqQueue

    client = redis.connect(url)
    stack.push_async_callback(client.aclose)
    queue = ArqQueue(client)
    stack.push_async_callback(queue.close)
    return queue


class Walk(RuleBasedStateMachine):
    """Hypothesis chooses the steps; after each one, model and ledger must say the same."""

    backend: Backend
    tasks = Bundle("tasks")

    def __init__(self) -> None:
        super().__init__()
        self.models: dict[int, Model] = {}
        self.keys: dict[str, int] = {}
        self.offset = 0.0
        self.touched: set[int] = set()
        self.began = time.monotonic()

    @property
    def now(self) -> float:
        return time.monotonic() + self.offset

    @property
    def ledger(self) -> SqlLedger:
        return self.backend.ports.ledger  # type: ignore[return-value]

    # What clients do.

    @rule(target=tasks, key=st.sampled_from([None, "k1", "k2"]))
    def submit(self, key: str | None) -> Any:
        if len(self.models) >= MOST_TASKS and (key is None or key not in self.keys):
            return multiple()
        self.backend.steps += 1
        once = Once(key, "same") if key else None
        attempt_id = uuid4()
        task, is_new = self.backend.do(self.ledger.open(a_task(WHO.owner), attempt_id=attempt_id, once=once))
        assert is_new == (key is None or key not in self.keys)
        if not is_new:
            assert key is not None
            assert self.keys[key] == task.id
            return multiple()
        if key:
            self.keys[key] = task.id
        self.models[task.id] = Model(task.id, {attempt_id: Try(attempt_id, 1, "parse", due=self.now)}, attempt_id)
        self.touched.add(task.id)
        return task.id

    @rule(task=tasks, force=st.booleans(), stranger=SELDOM, really=SELDOM)
    def cancel(self, task: int, force: bool, stranger: bool, really: bool) -> None:
        if not really:
            return
        if stranger:
            assert "task_not_found" == self._said(control.cancel(self.backend.ports, STRANGER, task, force=True))
            return
        said = self._said(control.cancel(self.backend.ports, WHO, task, force=force))
        assert self._model(task).cancel(force=force) == said

    @rule(task=tasks, stage=st.sampled_from(["mineru", "postprocess"]))
    def retry(self, task: int, stage: str) -> None:
        said = self._said(control.retry(self.backend.ports, WHO, task, from_stage=stage))
        assert self._model(task).retry(stage, self._next(task), self.now) == said

    # What workers do.

    @rule(task=tasks, which=WHICH, worker=st.sampled_from(WORKERS))
    def claim(self, task: int, which: int, worker: str) -> None:
        model, one = self._try(task, which)
        before = self.now
        taken = self.backend.do(self.ledger.claim(one.id, worker=worker, lease_ms=LEASE_S * 1000))
        unsure = before <= one.due < self.now
        if unsure and taken is None:
            return
        assert model.claim(one, worker, self.now) == (taken is not None)

    @rule(task=tasks, worker=st.sampled_from(WORKERS), keep=st.booleans())
    def claim_and_commit(self, task: int, worker: str, keep: bool) -> None:
        """The usual case, so that walks get far."""
        if self._model(task).tries[self.models[task].current].state == "queued":
            self.claim(task, 0, worker)
            self.they_agree()
        self.commit(task, 0, keep)

    @rule(task=tasks, worker=st.sampled_from(WORKERS))
    def claim_and_hand_over(self, task: int, worker: str) -> None:
        self.claim(task, 0, worker)
        self.they_agree()
        self.hand_over(task)

    @rule(task=tasks, worker=st.sampled_from(WORKERS), crashed=st.booleans())
    def claim_and_break_down(self, task: int, worker: str, crashed: bool) -> None:
        self.step_clock(STEPS_S[0])
        self.claim(task, 0, worker)
        self.they_agree()
        self.break_down(task, 0, False, crashed)

    @rule(task=tasks, worker=st.sampled_from(WORKERS), seconds=st.sampled_from(STEPS_S))
    def claim_and_vanish(self, task: int, worker: str, seconds: int) -> None:
        """A worker is killed; the clock goes on until somebody notices."""
        self.claim(task, 0, worker)
        self.step_clock(seconds)
        self.sweep_and_ring()

    @rule(task=tasks, which=WHICH, worker=st.sampled_from(WORKERS))
    def beat(self, task: int, which: int, worker: str) -> None:
        _, one = self._try(task, which)
        alive = self.backend.do(self.ledger.beat([one.id], worker=worker, lease_ms=LEASE_S * 1000))
        holds = one.owner == worker and one.works and one.lease is not None
        assert holds == (one.id in alive)
        if holds:
            one.lease = self.now + LEASE_S

    @rule(task=tasks, which=WHICH, done=st.integers(0, 9))
    def read_pages(self, task: int, which: int, done: int) -> None:
        model, one = self._try(task, which)
        said = self._receive(model, one, Pages(done, 9))
        if model.is_working(one):
            low, high = RANGES[one.stage]
            model.progress = max(model.progress, low + (high - low) * done // 9)
            assert "applied" == said
        else:
            assert "superseded" == said

    @rule(task=tasks, which=WHICH, keep=st.booleans())
    def commit(self, task: int, which: int, keep: bool) -> None:
        model, one = self._try(task, which)
        keep_for = "w1" if keep else None
        result = StageResult(artifacts=Artifacts("m.md", "p.json", "o.json"))
        said = self._receive(model, one, Succeeded(result), keep_for=keep_for)
        assert model.succeed(one, self._next(task), keep_for, self.now) == said

    @rule(task=tasks, which=WHICH, hopeless=SELDOM, crashed=st.booleans())
    def break_down(self, task: int, which: int, hopeless: bool, crashed: bool) -> None:
        retryable = not hopeless
        model, one = self._try(task, which)
        report = Failed(Fault("stage_failed", "x", "mineru"), retryable=retryable, crashed=crashed)
        said = self._receive(model, one, report)
        assert model.fail(one, self._next(task), self.now, retryable=retryable, crashed=crashed) == said

    @rule(task=tasks, which=WHICH)
    def stop_gracefully(self, task: int, which: int) -> None:
        model, one = self._try(task, which)
        said = self._receive(model, one, GivenBack())
        assert model.give_back(one, self._next(task), self.now) == said

    @rule(task=tasks, which=WHICH)
    def run_alone(self, task: int, which: int) -> None:
        model, one = self._try(task, which)

        def decide(found: Task, attempt: Attempt | None) -> machine.Change:
            assert attempt
            return machine.isolate(found, attempt)

        change = self.backend.do(self.ledger.decide(task, decide, attempt_id=one.id))
        assert model.isolate(one) == change.verdict

    # What external workers do.

    @rule(task=tasks)
    def hand_over(self, task: int) -> None:
        model, one = self._try(task, 0)
        token = f"token of {one.id}"
        handover = Handover("far", "secretary", token, JOB_S * 1000)

        def decide(found: Task, attempt: Attempt | None) -> machine.Change:
            assert attempt
            return machine.hand_over(found, attempt, handover)

        change = self.backend.do(self.ledger.decide(task, decide, attempt_id=one.id))
        if model.is_working(one):
            assert "applied" == change.verdict
            one.state, one.token, one.deadline = "handed_over", token, self.now + JOB_S
        else:
            assert "superseded" == change.verdict

    @rule(task=tasks, which=WHICH, percent=st.integers(0, 100), right=st.sampled_from([True, True, False]))
    def callback_progress(self, task: int, which: int, percent: int, right: bool) -> None:
        model, one = self._try(task, which)
        if one.token is None:
            return
        token = one.token if right else "somebody else's"
        said = receive(self.backend.ports, task, one.id, Progress(percent), token_hash=token)
        assert model.report(one, token, percent, self.now) == self.backend.do(said).verdict

    @rule(task=tasks, which=WHICH, body=st.sampled_from(["final", "another final", "failed"]))
    def callback_end(self, task: int, which: int, body: str) -> None:
        model, one = self._try(task, which)
        if one.token is None:
            return
        report: Report = Succeeded(StageResult(artifacts=Artifacts("m.md", "p.json", "o.json")))
        if body == "failed":
            report = Failed(Fault("worker_failed", "x", "mineru"))
        said = self._receive(model, one, report, outcome_hash=body)
        if one.state in ("succeeded", "failed"):
            assert ("duplicate" if one.outcome == body else "conflict") == said
            return
        if body == "failed":
            expected = model.fail(one, None, self.now, retryable=False, crashed=False)
        else:
            expected = model.succeed(one, self._next(task), None, self.now)
        assert expected == said
        if said == "applied":
            one.outcome = body

    # What time does, and what the sweeper makes of it.

    @rule(seconds=st.sampled_from(STEPS_S))
    def step_clock(self, seconds: int) -> None:
        self.backend.step_clock(seconds)
        self.offset += seconds
        self.backend.steps += 1

    @rule()
    def sweep_and_ring(self) -> None:
        """After a round nothing is overdue, and the queue gives out every attempt that may start."""
        self.backend.steps += 1
        self.backend.do(sweep.sweep(self.backend.ports))
        waiting = set()
        for model in self.models.values():
            one = model.tries[model.current]
            over = [at for at in (one.lease, None if one.lease is not None else one.deadline) if at is not None]
            if one.works and any(at < self.now for at in over):
                self.touched.add(model.id)
                model.lose(one, self._next(model.id), self.now)
            one = model.tries[model.current]
            if one.state == "queued" and one.due < self.now - 1 and not model.is_final and not one.is_delayed:
                waiting.add(one.id)
        self.backend.do(self._given_out(waiting))

    async def _given_out(self, waiting: set[UUID]) -> None:
        queue = self.backend.ports.queue
        gets = {asyncio.create_task(queue.take(lane)): lane for lane in Lane}
        async with asyncio.timeout(20):
            while waiting:
                done, _ = await asyncio.wait(gets, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    waiting.difference_update(one.result())
                    lane = gets.pop(one)
                    gets[asyncio.create_task(queue.take(lane))] = lane
        for one in gets:
            one.cancel()
        await asyncio.gather(*gets, return_exceptions=True)

    @invariant()
    def they_agree(self) -> None:
        for task_id in self.touched:
            self._compare(self.models[task_id])
        self.touched.clear()

    def teardown(self) -> None:
        assert time.monotonic() - self.began < LEASE_S, "too slow for the model's clock: the machine stood still"
        try:
            for model in self.models.values():
                self._compare(model)
        finally:
            self.backend.clear()

    def _compare(self, model: Model) -> None:
        task = self.backend.do(self.ledger.get(model.id, WHO.owner))
        assert task is not None
        real = (task.status, task.stage, task.attempt, task.progress, task.errors, task.crashes, task.attempt_id)
        assert (
            model.status,
            model.stage,
            model.number,
            model.progress,
            model.errors,
            model.crashes,
            model.current,
        ) == real
        assert (model.lost, model.lost_alone, model.runs_alone) == (task.lost_workers, task.lost_alone, task.runs_alone)
        attempts = self.backend.do(self.ledger.attempts(model.id))
        assert {one.id: (one.state, one.number, one.stage) for one in model.tries.values()} == {
            one.id: (one.state, one.number, one.stage) for one in attempts
        }
        events = self.backend.do(self.ledger.events(model.id, who=WHO.owner))
        assert list(range(1, len(events) + 1)) == [event.seq for event in events]
        assert model.ends == sum(event.kind in ("completed", "failed", "cancelled") for event in events)

    def _model(self, task: int) -> Model:
        self.backend.steps += 1
        self.touched.add(task)
        return self.models[task]

    def _try(self, task: int, which: int) -> tuple[Model, Try]:
        """The current attempt, or one of those before it: late reports come from them."""
        model = self._model(task)
        tries = list(model.tries.values())
        return model, model.tries[model.current] if which >= len(tries) else tries[-1 - which]

    def _next(self, task: int) -> UUID | None:
        """The attempt that the ledger opened and the model has not heard of: ids are random."""
        known = self.models[task].tries
        fresh = [one.id for one in self.backend.do(self.ledger.attempts(task)) if one.id not in known]
        assert len(fresh) <= 1
        return fresh[0] if fresh else None

    def _receive(self, model: Model, one: Try, report: Report, **more: Any) -> str:
        return str(self.backend.do(receive(self.backend.ports, model.id, one.id, report, **more)).verdict)

    def _said(self, work: Coroutine[Any, Any, object]) -> str:
        try:
            self.backend.do(work)
        except (Conflict, NotFound) as error:
            return error.code
        return "applied"


def walk(backend: Backend, *, examples: int, steps: int, seed: int | None = None) -> None:
    """Raises with the shortest walk found on which model and ledger differ."""
    from hypothesis import seed as seeded

    kind = type("Walk", (Walk,), {"backend": backend})
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=InMemoryExampleDatabase(),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    if seed is not None:
        kind = seeded(seed)(kind)
    run_state_machine_as_test(kind, settings=chosen)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=["sqlite", "postgres", "arq", "all"], default="all")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--length", type=int, default=50, help="steps of one walk")
    parser.add_argument("--seed", type=int, default=20_261_115)
    given = parser.parse_args()
    for kind in ("sqlite", "postgres", "arq") if given.backend == "all" else (given.backend,):
        began = time.monotonic()
        steps, walks = 0, 0
        with tempfile.TemporaryDirectory() as folder, _servers(kind) as (postgres_url, redis_url):
            backend = Backend(kind).open(Path(folder), postgres_url, redis_url)
            try:
                while backend.steps < given.steps:
                    walk(backend, examples=100, steps=given.length, seed=given.seed + walks)
                    walks += 1
                steps = backend.steps
            finally:
                backend.close()
        seconds = time.monotonic() - began
        print(f"{kind}: {steps} steps from seed {given.seed} on, no difference, {seconds:.0f} s", flush=True)
    return 0


class _servers:  # noqa: N801 - reads as a word in `with`
    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __enter__(self) -> tuple[str | None, str | None]:
        from contextlib import ExitStack

        self._stack = ExitStack()
        postgres = redis = None
        if self._kind != "sqlite":
            server = self._stack.enter_context(Postgres())
            postgres = self._stack.enter_context(server.address.database())
        if self._kind == "arq":
            redis = self._stack.enter_context(Redis()).url
        return postgres, redis

    def __exit__(self, *_: object) -> None:
        self._stack.close()


if __name__ == "__main__":
    sys.exit(main())
