"""Decisions that come at the same time share a transaction: each has the answer that it would have had alone."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from docmill.adapters.sql import ledger as sql_ledger
from docmill.adapters.sql.ledger import SqlLedger
from docmill.adapters.sql.postgres import PostgresDatabase
from docmill.core import machine
from docmill.core.errors import Conflict, NotFound, Unavailable
from docmill.core.machine import Change, Handover, Opening, StageResult, Verdict
from docmill.core.task import Artifacts, Attempt, Event, Fault, Stage, Status, Task
from docmill.ports import Filter
from support.databases import KINDS, open_database, url_of
from support.ledgers import ANNA, BERT, CARL, a_task, opened, succeed

MANY = 12


@pytest.fixture(params=KINDS)
async def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqlLedger]:
    async with open_database(request.param, tmp_path, url_of(request.param, request)) as database:
        yield SqlLedger(database)


class Counting(PostgresDatabase):
    """Remembers the transactions of decisions: whether each was of one decision alone."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.wrote: list[bool] = []

    async def write(self, op: Any, **how: Any) -> Any:
        if op.__name__ == "decide":
            self.wrote.append(how.get("lock_s") is None)
        return await super().write(op, **how)


@pytest.fixture
async def counting(tmp_path: Path, postgres_database: str) -> AsyncIterator[Counting]:
    async with open_database("postgres", tmp_path, postgres_database):
        database = Counting(postgres_database)
        yield database
        await database.close()


@asynccontextmanager
async def somebody(url: str, holds: str) -> AsyncIterator[asyncpg.Connection]:
    """Another session that holds what this statement locks, until the end or its own rollback."""
    other = await asyncpg.connect(url, server_settings={"docmill.scope": "*"})
    try:
        await other.execute(f"BEGIN; {holds}")
        yield other
    finally:
        await other.close()


async def blocked(other: asyncpg.Connection, count: int = 1) -> list[int]:
    """The sessions that wait for a lock, once there are so many."""
    async with asyncio.timeout(10):
        while True:
            await other.execute("SELECT pg_stat_clear_snapshot()")
            rows = await other.fetch("SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
            if len(rows) >= count:
                return [row[0] for row in rows]
            await asyncio.sleep(0.01)


async def taken(ledger: SqlLedger, task: Task, worker: str = "w") -> tuple[Task, Attempt] | None:
    assert task.attempt_id
    return await ledger.claim(task.attempt_id, worker=worker, lease_ms=15_000)


def note(said: str) -> Any:
    return lambda task, _: machine.note(task, Event("noted", {"said": said}))


async def log_of(ledger: SqlLedger, task: Task) -> list[str]:
    events = await ledger.events(task.id)
    assert list(range(1, len(events) + 1)) == [event.seq for event in events]
    return [event.kind for event in events]


async def test_many_claims_and_decisions_take_few_transactions_and_one_alone_takes_one(counting: Counting) -> None:
    ledger = SqlLedger(counting)
    tasks = [await opened(ledger) for _ in range(MANY)]
    got = await asyncio.gather(*(taken(ledger, task) for task in tasks))

    assert [task.id for task in tasks] == [found[0].id for found in got if found]
    assert len(counting.wrote) <= 3, counting.wrote
    counting.wrote.clear()
    await asyncio.gather(*(succeed(ledger, found[0].id, found[1].id) for found in got if found))
    assert len(counting.wrote) <= 3, counting.wrote
    counting.wrote.clear()
    await ledger.decide(tasks[0].id, note("alone"))
    assert [False] == counting.wrote


async def test_a_rule_that_refuses_and_one_that_breaks_fail_alone(ledger: SqlLedger) -> None:
    tasks = [await opened(ledger) for _ in range(MANY)]
    await taken(ledger, tasks[3])

    def breaks(task: Task, attempt: Attempt | None) -> Change:
        raise ZeroDivisionError

    def cancel(task: Task, attempt: Attempt | None) -> Change:
        return machine.cancel(task, attempt, force=False)

    wanted = {n: (task.id, breaks if n == 5 else cancel) for n, task in enumerate(tasks)} | {7: (999_999, cancel)}
    outcomes = await asyncio.gather(
        *(ledger.decide(task_id, rule) for task_id, rule in wanted.values()), return_exceptions=True
    )

    assert {3: Conflict, 5: ZeroDivisionError, 7: NotFound} == {
        n: type(outcome) for n, outcome in enumerate(outcomes) if isinstance(outcome, Exception)
    }
    for n, task in enumerate(tasks):
        found = await ledger.get(task.id)
        assert found
        assert (n not in (3, 5, 7)) == (found.status is Status.CANCELLED)
    assert 9 == (await ledger.page(Filter(ANNA, status="cancelled"))).total


@pytest.mark.parametrize("poison", ["number", "text", "twice"])
async def test_what_the_database_cannot_hold_takes_no_neighbour_with_it(ledger: SqlLedger, poison: str) -> None:
    tasks = [await opened(ledger) for _ in range(5)]

    def rule(task: Task, attempt: Attempt | None) -> Change:
        if task.id != tasks[2].id:
            return machine.note(task, Event("noted"))
        if poison == "number":
            return machine.note(task, Event("noted"), progress=2**70)
        if poison == "text":
            return machine.note(task, Event("noted", {"half a pair": "\ud800"}))
        assert task.attempt_id
        there = Opening(task.attempt_id, 1, Stage.PARSE)
        return replace(machine.note(task, Event("noted")), opens=there)

    outcomes = await asyncio.gather(*(ledger.decide(task.id, rule) for task in tasks), return_exceptions=True)

    assert [2] == [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Exception)]
    assert tasks[2] == await ledger.get(tasks[2].id)
    assert [["submitted"] if n == 2 else ["submitted", "noted"] for n in range(5)] == [
        await log_of(ledger, task) for task in tasks
    ]


async def test_several_for_one_task_at_once_are_decided_one_after_the_other(ledger: SqlLedger) -> None:
    one, other = await opened(ledger), await opened(ledger)
    calls = [taken(ledger, task, f"w{n}") for n in range(3) for task in (one, other)]
    notes = [ledger.decide(task.id, note(str(n))) for n in range(MANY) for task in (one, other)]
    got, changes = await asyncio.gather(asyncio.gather(*calls), asyncio.gather(*notes))

    assert 2 == sum(found is not None for found in got)
    for task in (one, other):
        found = await ledger.get(task.id)
        assert found
        assert (MANY + 2, MANY + 2) == (found.version, found.event_seq)
        assert MANY == (await log_of(ledger, task)).count("noted")
        versions = [change.task.version for change in changes if change.task.id == task.id]
        assert MANY == len(set(versions)), "each saw what the one before had left"


async def test_a_crowd_writes_what_each_would_have_written_alone(ledger: SqlLedger) -> None:
    """The same lives of many tasks, at once and one by one, end in the same rows."""
    crowd = [await opened(ledger, a_task(who)) for who in (ANNA, BERT, CARL) for _ in range(len(LIVES))]
    lives = LIVES * 3
    await asyncio.gather(*(live(ledger, task) for live, task in zip(lives, crowd, strict=True)))
    together = await ledger.counts()
    single = [await opened(ledger, a_task(who)) for who in (ANNA, BERT, CARL) for _ in range(len(LIVES))]
    for live, task in zip(lives, single, strict=True):
        await live(ledger, task)

    assert {status: 2 * n for status, n in together.items() if n} == {
        status: n for status, n in (await ledger.counts()).items() if n
    }
    for ours, theirs in zip(crowd, single, strict=True):
        assert await plain(ledger, theirs.id) == await plain(ledger, ours.id)


async def finished(ledger: SqlLedger, task: Task) -> None:
    found = await taken(ledger, task)
    assert found
    attempt: Attempt | None = found[1]
    while attempt:
        change = await ledger.decide(task.id, _go_on(uuid4()), attempt_id=attempt.id)
        if change.opened:
            again = await ledger.find(change.opened.id)
            assert again
            assert again == (change.task, change.opened), "what is answered is what is there"
        attempt = change.opened


def _go_on(next_id: UUID) -> Any:
    result = StageResult(engine="local", pages=2, reuse_as="same bytes", artifacts=Artifacts("m", "p"))
    return lambda task, attempt: machine.on_success(task, attempt, result, next_id=next_id, keep_for="w")


async def failed(ledger: SqlLedger, task: Task) -> None:
    found = await taken(ledger, task)
    assert found
    fault = Fault("parse_failed", "no", "mineru")

    def rule(task: Task, attempt: Attempt | None) -> Change:
        assert attempt
        return machine.on_failure(task, attempt, fault, retryable=False, crashed=False, next_id=uuid4())

    await ledger.decide(task.id, rule, attempt_id=found[1].id)


async def cancelled_by_hand(ledger: SqlLedger, task: Task) -> None:
    who = next(one for one in (ANNA, BERT, CARL) if (one.tenant, one.user) == (task.tenant, task.owner))
    await ledger.decide(task.id, lambda t, a: machine.cancel(t, a, force=False), who=who)
    await ledger.decide(task.id, lambda t, _: machine.retry(t, from_stage="mineru", next_id=uuid4()), who=who)


async def handed_over(ledger: SqlLedger, task: Task) -> None:
    found = await taken(ledger, task)
    assert found
    handover = Handover("elsewhere", "secretary", "hash", 60_000)
    await ledger.decide(task.id, lambda t, a: machine.hand_over(t, a, handover))
    for percent in (10, 20):
        said: dict[str, Any] = {"percent": percent, "phase": "ocr", "message": "", "process_id": "p"}
        await ledger.decide(task.id, lambda t, a, said=said: machine.on_worker_progress(t, a, **said))


LIVES = [finished, failed, cancelled_by_hand, handed_over]


async def plain(ledger: SqlLedger, task_id: int) -> Any:
    """Everything of a task but ids and times."""
    task = await ledger.get(task_id)
    assert task
    same = {"id": 0, "attempt_id": None, "job_id": None, "created_ms": 0, "updated_ms": 0}
    nothing = {"id": task_id, "task_id": 0, "due_ms": 0, "lease_ms": None, "deadline_ms": None, "started_ms": None}
    attempts = [replace(one, ended_ms=None, **nothing) for one in await ledger.attempts(task_id)]  # type: ignore[arg-type]
    events = [
        {name: value for name, value in event.data.items() if name != "job_id"} | {"kind": event.kind}
        for event in await ledger.events(task_id)
    ]
    return replace(task, **same), [replace(one, id=0) for one in attempts], events  # type: ignore[arg-type]


async def test_two_processes_that_batch_the_same_rows_neither_deadlock_nor_share_a_claim(
    tmp_path: Path, postgres_database: str
) -> None:
    async with (
        open_database("postgres", tmp_path, postgres_database) as one,
        open_database("postgres", tmp_path, postgres_database) as two,
    ):
        ledgers = [SqlLedger(one), SqlLedger(two)]
        for _ in range(4):
            tasks = [await opened(ledgers[0], a_task(who)) for who in (ANNA, CARL) for _ in range(MANY)]
            orders = (tasks, tasks[::-1])
            got = await asyncio.gather(
                *(taken(ledger, task, f"w{n}") for n in range(2) for ledger, task in zip_with(ledgers[n], orders[n]))
            )
            held = {found[1].id: found[1] for found in got if found}
            assert len(tasks) == len(held) == sum(found is not None for found in got)
            beats = [
                ledger.beat(list(held), worker=worker, lease_ms=15_000)
                for ledger, worker in zip(ledgers, ("w0", "w1"), strict=True)
            ]
            reports = [
                succeed(ledgers[n], held[task.attempt_id].task_id, task.attempt_id)
                for n in range(2)
                for task in orders[n]
                if task.attempt_id
            ]
            changes, *_ = await asyncio.gather(asyncio.gather(*reports), *beats)
            verdicts = [change.verdict for change in changes]
            assert (len(tasks), len(tasks)) == (
                verdicts.count(Verdict.APPLIED), verdicts.count(Verdict.DUPLICATE)
            )  # fmt: skip
            for task in tasks:
                assert ["submitted", "started", "stage_succeeded"] == await log_of(ledgers[0], task)
        assert {"llm_processing": 4 * 2 * MANY} == {k: n for k, n in (await ledgers[1].counts()).items() if n}


def zip_with(ledger: SqlLedger, tasks: list[Task]) -> Iterator[tuple[SqlLedger, Task]]:
    return ((ledger, task) for task in tasks)


async def test_a_row_that_somebody_holds_keeps_only_its_own_caller_waiting(
    counting: Counting, postgres_database: str
) -> None:
    ledger = SqlLedger(counting)
    tasks = [await opened(ledger) for _ in range(5)]
    async with somebody(postgres_database, f"SELECT 1 FROM tasks WHERE id = {tasks[2].id} FOR UPDATE") as other:
        waiting = [asyncio.ensure_future(taken(ledger, task)) for task in tasks]
        await asyncio.wait(waiting, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        await blocked(other)
        done = await asyncio.wait_for(asyncio.gather(*waiting[:2], *waiting[3:]), 10)
        assert all(done)
        assert not waiting[2].done()
        await other.execute("ROLLBACK")
        assert await asyncio.wait_for(waiting[2], 10)


async def test_a_count_that_somebody_holds_keeps_no_other_tenant_waiting(
    counting: Counting, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_ledger, "BATCH_LOCK_S", 0.1)
    ledger = SqlLedger(counting)
    anna, carl = await opened(ledger), await opened(ledger, a_task(CARL))
    held = f"SELECT 1 FROM task_counts WHERE tenant = '{ANNA.tenant}' FOR UPDATE"
    async with somebody(postgres_database, held) as other:
        waiting = [asyncio.ensure_future(taken(ledger, task)) for task in (anna, carl)]
        assert await asyncio.wait_for(waiting[1], 10)
        await blocked(other)
        assert not waiting[0].done()
        await other.execute("ROLLBACK")
        assert await asyncio.wait_for(waiting[0], 10)
    assert [False, True, True] == counting.wrote


async def test_who_is_cancelled_in_the_middle_waits_for_its_end_and_takes_nobody_along(
    counting: Counting, postgres_database: str
) -> None:
    ledger = SqlLedger(counting)
    tasks = [await opened(ledger) for _ in range(4)]
    async with somebody(postgres_database, "SELECT 1 FROM task_counts FOR UPDATE") as other:
        waiting = [asyncio.ensure_future(taken(ledger, task)) for task in tasks]
        await blocked(other)
        waiting[1].cancel()
        await asyncio.sleep(0.05)
        assert not any(one.done() for one in waiting)
        await other.execute("ROLLBACK")
        outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10)

    assert isinstance(outcomes[1], asyncio.CancelledError)
    assert [True, False, True, True] == [isinstance(outcome, tuple) for outcome in outcomes]
    held = await ledger.held(limit=10, owner="w")
    assert {task.id for task in tasks} == {one.task_id for one in held}, "and what it did is there at once"


async def test_who_is_cancelled_before_its_turn_changes_nothing(counting: Counting, postgres_database: str) -> None:
    ledger = SqlLedger(counting)
    tasks = [await opened(ledger) for _ in range(4)]
    async with somebody(postgres_database, "SELECT 1 FROM task_counts FOR UPDATE") as other:
        first = asyncio.ensure_future(taken(ledger, tasks[0]))
        await blocked(other)
        late = [asyncio.ensure_future(taken(ledger, task)) for task in tasks[1:]]
        await asyncio.sleep(0)
        late[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await late[1]
        await other.execute("ROLLBACK")
        async with asyncio.timeout(10):
            assert all(await asyncio.gather(first, late[0], late[2]))

    assert tasks[2] == await ledger.get(tasks[2].id)


async def test_a_connection_lost_in_the_middle_fails_all_of_them_and_the_next_ones_go_on(
    counting: Counting, postgres_database: str
) -> None:
    ledger = SqlLedger(counting)
    tasks = [await opened(ledger) for _ in range(4)]
    async with somebody(postgres_database, "SELECT 1 FROM task_counts FOR UPDATE") as other:
        waiting = [asyncio.ensure_future(taken(ledger, task)) for task in tasks]
        for pid in await blocked(other):
            await other.execute(f"SELECT pg_terminate_backend({pid})")
        outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10)

    assert [Unavailable] * 4 == [type(outcome) for outcome in outcomes]
    assert ["database_unavailable"] * 4 == [outcome.code for outcome in outcomes if isinstance(outcome, Unavailable)]
    assert [False] == counting.wrote, "nobody may try again by themselves"
    assert tasks == [await ledger.get(task.id) for task in tasks]
    assert all(await asyncio.gather(*(taken(ledger, task) for task in tasks)))


async def test_who_comes_when_the_last_one_is_just_done_is_not_forgotten(counting: Counting) -> None:
    """In every moment around the end of a transaction."""
    ledger = SqlLedger(counting)
    task = await opened(ledger)
    for turns in range(30):
        first = asyncio.ensure_future(ledger.decide(task.id, note("first")))
        await asyncio.wait([first])
        for _ in range(turns % 6):
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await ledger.decide(task.id, note("second"))

    async def one_after_the_other() -> None:
        for _ in range(10):
            await ledger.decide(task.id, note("again"))

    async with asyncio.timeout(20):
        await asyncio.gather(*(one_after_the_other() for _ in range(3)))
