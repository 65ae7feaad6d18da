"""The ledger on SQL: tasks, attempts and events. Decisions are `core.machine`'s; this file loads and writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any
from uuid import UUID

import structlog

from docmill.adapters.sql import clock, jobs, pages
from docmill.adapters.sql.batching import Batcher, Result
from docmill.adapters.sql.database import Database
from docmill.adapters.sql.decisions import Claim, Decision, decide
from docmill.adapters.sql.opening import GET_TASK, OnceTaken, open_task
from docmill.adapters.sql.rows import (
    ATTEMPT_COLUMNS,
    TASK_COLUMNS,
    TASK_WIDTH,
    attempt_of,
    decode,
    encode,
    of,
    task_of,
)
from docmill.adapters.sql.statement import Op, Row, Statement
from docmill.core.access import Owner
from docmill.core.errors import NotFound
from docmill.core.machine import Change
from docmill.core.task import Attempt, LoggedEvent, State, Task
from docmill.ports import Delivery, Faces, Filter, JobFilter, JobListing, Listing, NewTask, Once, Transition

log = structlog.get_logger(__name__)

FIND = Statement(
    f"""
    SELECT {of("t", TASK_COLUMNS)}, {of("a", ATTEMPT_COLUMNS)}
    FROM attempts a JOIN tasks t ON t.id = a.task_id WHERE a.id = :id
    """
)
# A sub-select for each: by the key, however young the table was when this was planned.
STATES = Statement("SELECT value, (SELECT state FROM attempts WHERE id = value) FROM {each}(CAST(:ids AS {json}))")
ATTEMPTS_OF = Statement(
    f"SELECT {ATTEMPT_COLUMNS} FROM attempts WHERE task_id = :task_id ORDER BY started_ms, number, due_ms"
)
DELIVER = Statement(
    """
    INSERT INTO deliveries (attempt_id, task_id, kind, status, reason, body_hash, size, at_ms)
    VALUES (:attempt_id, :task_id, :kind, :status, :reason, :body_hash, :size, {now})
    """
)
DELIVERIES = Statement(
    """
    SELECT kind, status, reason, body_hash, size, at_ms FROM deliveries
    WHERE attempt_id = :attempt_id ORDER BY id DESC LIMIT :limit
    """
)
BEAT = Statement(
    """
    UPDATE attempts SET lease_ms = {now} + CAST(:lease_ms AS BIGINT)
    WHERE id = :id AND owner = :owner AND (state = 'running' OR (state = 'handed_over' AND lease_ms IS NOT NULL))
    RETURNING id
    """
)
EVENTS = Statement(
    """
    SELECT task_id, seq, kind, data, at_ms FROM events
    WHERE task_id = :task_id AND seq > :after ORDER BY seq LIMIT :limit
    """
)
LAST_EVENTS = Statement(
    "SELECT task_id, seq, kind, data, at_ms FROM events WHERE task_id = :task_id ORDER BY seq DESC LIMIT :limit"
)
DUE = Statement(
    f"""
    WITH waiting AS (
        SELECT a.id, a.priority, a.task_id,
               ROW_NUMBER() OVER (PARTITION BY a.priority, t.tenant ORDER BY a.due_ms, a.task_id) AS turn
        FROM attempts a JOIN tasks t ON t.id = a.task_id
        WHERE a.state = 'queued' AND a.due_ms <= {{now}}
    ), first AS (
        SELECT id, priority, turn, task_id FROM waiting ORDER BY priority DESC, turn, task_id LIMIT :limit
    )
    SELECT {of("t", TASK_COLUMNS)}, {of("a", ATTEMPT_COLUMNS)}
    FROM first f JOIN attempts a ON a.id = f.id JOIN tasks t ON t.id = a.task_id
    ORDER BY f.priority DESC, f.turn, f.task_id
    """
)
LAPSED = Statement(
    f"""
    SELECT {ATTEMPT_COLUMNS}, {{now}} - lease_ms FROM attempts WHERE state = 'running' AND lease_ms < {{now}}
    UNION ALL
    SELECT {ATTEMPT_COLUMNS}, {{now}} - lease_ms FROM attempts WHERE state = 'handed_over' AND lease_ms < {{now}}
    UNION ALL
    SELECT {ATTEMPT_COLUMNS}, {{now}} - deadline_ms FROM attempts WHERE state = 'handed_over' AND deadline_ms < {{now}}
    LIMIT :limit
    """
)
NOW = Statement("SELECT {now}")
HELD = Statement(
    f"""
    SELECT {ATTEMPT_COLUMNS} FROM attempts
    WHERE (state = 'running' OR (state = 'handed_over' AND lease_ms IS NOT NULL))
      AND (CAST(:owner AS TEXT) IS NULL OR owner = :owner) LIMIT :limit
    """
)
LEAVINGS = Statement(
    f"""
    SELECT {", ".join("t." + name.strip() for name in TASK_COLUMNS.split(","))}, a.id
    FROM attempts a JOIN tasks t ON t.id = a.task_id
    WHERE a.collected_ms IS NULL AND a.state IN ('dropped', 'failed', 'given_back')
      AND a.ended_ms < {{now}} - CAST(:older_ms AS BIGINT)
    ORDER BY a.ended_ms LIMIT :limit
    """
)
REPORTED = Statement(
    f"""
    SELECT {", ".join("t." + name.strip() for name in TASK_COLUMNS.split(","))}, a.id, a.report_id
    FROM attempts a JOIN tasks t ON t.id = a.task_id
    WHERE a.collected_ms IS NULL AND a.report_id IS NOT NULL AND a.ended_ms < {{now}} - CAST(:older_ms AS BIGINT)
    ORDER BY a.ended_ms LIMIT :limit
    """
)
COLLECTED = Statement("UPDATE attempts SET collected_ms = {now} WHERE id = :id")
PARSE_OF = Statement(
    "SELECT markdown_key, parsed_key FROM parses WHERE tenant = :tenant AND fingerprint = :fingerprint"
)
ATTEMPTS = Statement(
    f"SELECT {ATTEMPT_COLUMNS} FROM attempts WHERE id IN (SELECT value FROM {{each}}(CAST(:ids AS {{json}})))"
)
PING = Statement("SELECT 1")
COUNTS = Statement("SELECT status, CAST(SUM(n) AS BIGINT) FROM task_counts GROUP BY status")


BATCH_LOCK_S = 1.0
"""One locked row must not delay a whole batch of decisions for longer."""


class SqlLedger:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._decisions = {durable: Batcher(partial(self._decide, durable=durable)) for durable in (True, False)}
        self._lookups = Batcher(self._look_up)

    async def open(self, new: NewTask, *, attempt_id: UUID, once: Once | None = None) -> tuple[Task, bool]:
        while True:
            try:
                return await self._database.write(open_task(new, attempt_id, once), tenant=new.tenant)
            except OnceTaken:
                continue  # now its task is the answer

    async def decide(
        self,
        task_id: int,
        rule: Transition,
        *,
        attempt_id: UUID | None = None,
        who: Owner | None = None,
        durable: bool = True,
    ) -> Change:
        decision = Decision(task_id, rule, attempt_id, who)
        change: Change = await self._decisions[durable].submit(decision, tenant=who.tenant if who else None)
        return change

    async def _decide(
        self, items: Sequence[Any], *, alone: bool, tenant: str | None, durable: bool
    ) -> Sequence[Result | None]:
        op = decide(items, alone=alone)
        return await self._database.write(op, tenant=tenant, durable=durable, lock_s=None if alone else BATCH_LOCK_S)

    async def claim(self, attempt_id: UUID, *, worker: str, lease_ms: int) -> tuple[Task, Attempt] | None:
        taken: tuple[Task, Attempt] | None = await self._decisions[False].submit(Claim(attempt_id, worker, lease_ms))
        return taken

    async def beat(self, attempt_ids: Sequence[UUID], *, worker: str, lease_ms: int) -> set[UUID]:
        return await self._database.write(_beat(attempt_ids, worker, lease_ms), durable=False)

    async def get(self, task_id: int, who: Owner | None = None) -> Task | None:
        return await self._database.read(_get(task_id, who), tenant=who.tenant if who else None)

    async def find(self, attempt_id: UUID) -> tuple[Task, Attempt] | None:
        return await self._database.read(_find(attempt_id))

    async def find_attempt(self, attempt_id: UUID) -> Attempt | None:
        found: Attempt | None = await self._lookups.submit(str(attempt_id))
        return found

    async def _look_up(self, items: Sequence[Any], *, alone: bool, tenant: str | None) -> Sequence[Result]:  # noqa: ARG002
        rows = {row[0]: row for row in await self._database.read(_rows(ATTEMPTS, ids=encode(items)))}
        return [Result(attempt_of(rows[item]) if item in rows else None) for item in items]

    async def dropped(self, attempt_ids: Sequence[UUID]) -> set[UUID]:
        rows = await self._database.read(_rows(STATES, ids=encode([str(one) for one in attempt_ids])))
        return {UUID(row[0]) for row in rows if row[1] in (None, State.DROPPED.value)}

    async def batch(self, task_ids: Sequence[int], who: Owner) -> list[Task]:
        return await self._database.read(pages.batch(task_ids, who), tenant=who.tenant)

    async def outputs(self, task_ids: Sequence[int], who: Owner) -> dict[int, str]:
        return await self._database.read(pages.outputs(task_ids), tenant=who.tenant)

    async def page(self, where: Filter) -> Listing:
        return await self._database.read(pages.tasks(where), tenant=where.who.tenant)

    async def faces(self, where: Filter) -> Faces:
        return await self._database.read(pages.faces(where), tenant=where.who.tenant)

    async def events(
        self, task_id: int, *, after: int = 0, limit: int = 500, who: Owner | None = None
    ) -> list[LoggedEvent]:
        return await self._database.read(_events(task_id, after, limit), tenant=who.tenant if who else None)

    async def last_events(self, task_id: int, *, limit: int) -> list[LoggedEvent]:
        rows = await self._database.read(_rows(LAST_EVENTS, task_id=task_id, limit=limit))
        return [_event(row) for row in reversed(rows)]

    async def attempts(self, task_id: int) -> list[Attempt]:
        return await self._database.read(_attempts(ATTEMPTS_OF, task_id=task_id))

    async def due(self, *, limit: int) -> list[tuple[Task, Attempt]]:
        return await self._database.read(_due(limit))

    async def lapsed(self, *, limit: int) -> list[tuple[Attempt, int]]:
        rows = await self._database.read(_rows(LAPSED, limit=limit))
        return [(attempt_of(row), row[-1]) for row in rows]

    async def now_ms(self) -> int:
        return int((await self._database.read(_rows(NOW)))[0][0])

    async def restart_times(self, *, lease_ms: int) -> int:
        return await self._database.write(clock.restart(lease_ms))

    async def mend_times(self, *, lease_ms: int) -> int:
        # Nearly always there is nothing to mend, and a look costs less than a write.
        if not await self._database.read(clock.is_off(lease_ms)):
            return 0
        return await self._database.write(clock.mend(lease_ms))

    async def held(self, *, limit: int, owner: str | None = None) -> list[Attempt]:
        return await self._database.read(_attempts(HELD, limit=limit, owner=owner))

    async def leavings(self, *, older_ms: int, limit: int) -> list[tuple[Task, UUID]]:
        rows = await self._database.read(_rows(LEAVINGS, older_ms=older_ms, limit=limit))
        return [(task, UUID(row[-1])) for task, row in _readable(rows)]

    async def reported(self, *, older_ms: int, limit: int) -> list[tuple[Task, UUID, str]]:
        rows = await self._database.read(_rows(REPORTED, older_ms=older_ms, limit=limit))
        return [(task, UUID(row[-2]), row[-1]) for task, row in _readable(rows)]

    async def collected(self, attempt_id: UUID) -> None:
        await self._database.write(_rows(COLLECTED, id=str(attempt_id)))

    async def parse_of(self, tenant: str, fingerprint: str) -> tuple[str, str] | None:
        rows = await self._database.read(_rows(PARSE_OF, tenant=tenant, fingerprint=fingerprint), tenant=tenant)
        return (rows[0][0], rows[0][1]) if rows else None

    async def record_delivery(self, attempt: Attempt, delivery: Delivery) -> None:
        params = {name: value for name, value in asdict(delivery).items() if name != "at_ms"}
        await self._database.write(_rows(DELIVER, attempt_id=str(attempt.id), task_id=attempt.task_id, **params))

    async def deliveries(self, attempt_id: UUID, *, limit: int) -> list[Delivery]:
        rows = await self._database.read(_rows(DELIVERIES, attempt_id=str(attempt_id), limit=limit))
        return [Delivery(*row) for row in rows]

    async def jobs(self, where: JobFilter) -> JobListing:
        return await self._database.read(jobs.page(where), tenant=where.who.tenant)

    async def ping(self) -> None:
        await self._database.read(_rows(PING))

    async def counts(self) -> dict[str, int]:
        return {row[0]: int(row[1]) for row in await self._database.read(_rows(COUNTS))}


def _rows(statement: Statement, **params: object) -> Op[list[Row]]:
    rows = yield statement(**params)
    return rows


def _visible(rows: Sequence[Row], task_id: int, who: Owner | None) -> Task:
    task = task_of(rows[0]) if rows else None
    if task is None or (who is not None and (task.tenant, task.owner) != (who.tenant, who.user)):
        raise NotFound("task_not_found", task=task_id)
    return task


def _get(task_id: int, who: Owner | None) -> Op[Task | None]:
    rows = yield GET_TASK(id=task_id)
    try:
        return _visible(rows, task_id, who)
    except NotFound:
        return None


def _find(attempt_id: UUID) -> Op[tuple[Task, Attempt] | None]:
    rows = yield FIND(id=str(attempt_id))
    return (task_of(rows[0]), attempt_of(rows[0][TASK_WIDTH:])) if rows else None


def _beat(attempt_ids: Sequence[UUID], worker: str, lease_ms: int) -> Op[set[UUID]]:
    alive: set[UUID] = set()
    for attempt_id in sorted(attempt_ids, key=str):
        rows = yield BEAT(id=str(attempt_id), owner=worker, lease_ms=lease_ms)
        if rows:
            alive.add(attempt_id)
    return alive


def _events(task_id: int, after: int, limit: int) -> Op[list[LoggedEvent]]:
    rows = yield EVENTS(task_id=task_id, after=after, limit=limit)
    return [_event(row) for row in rows]


def _event(row: Row) -> LoggedEvent:
    return LoggedEvent(row[0], row[1], row[2], decode(row[3]), row[4])


def _attempts(statement: Statement, **params: object) -> Op[list[Attempt]]:
    rows = yield statement(**params)
    return [attempt_of(row) for row in rows]


def _due(limit: int) -> Op[list[tuple[Task, Attempt]]]:
    rows = yield DUE(limit=limit)
    return [(task, attempt_of(row[TASK_WIDTH:])) for task, row in _readable(rows)]


def _readable(rows: Sequence[Row]) -> Iterator[tuple[Task, Row]]:
    """A row that nobody can read must not keep the others waiting."""
    for row in rows:
        try:
            yield task_of(row), row
        except (ValueError, KeyError):
            log.error("row_unreadable", task=row[0])
