"""Tombstones on SQL: a task that was kept long enough goes in one transaction, and what points to it goes along."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.rows import STATUS_OF, TASK_COLUMNS, encode, task_of
from docmill.adapters.sql.statement import Op, Query, Row, Statement
from docmill.core import machine
from docmill.core.access import Owner
from docmill.core.errors import DocmillError, Gone, NotFound
from docmill.core.keys import task_of_artifact
from docmill.core.retention import Aged, Estate, Leavings, Retention, Tombstone
from docmill.core.task import Task

COLUMNS = "task_id, tenant, owner, status, ended_ms, expired_ms"
AGED = Statement(
    "SELECT id, status, {now} - created_ms, {now} - updated_ms FROM tasks WHERE id > :after ORDER BY id LIMIT :limit"
)
LOAD = Statement(f"SELECT {TASK_COLUMNS}, {{now}} FROM tasks WHERE id = :id {{lock}}")
ATTEMPTS = Statement("SELECT id FROM attempts WHERE task_id = :id ORDER BY id")
LOANS = Statement("SELECT parsed_key FROM loans WHERE task_id = :id ORDER BY parsed_key")
BURY = Statement(
    """
    INSERT INTO tombstones (task_id, tenant, owner, status, ended_ms, expired_ms, leavings)
    VALUES (:id, :tenant, :owner, :status, :ended_ms, {now}, :leavings)
    """
)
COUNT = Statement(
    """
    UPDATE task_counts SET n = n - 1
    WHERE tenant = :tenant AND owner = :owner AND project_id = :project_id AND status = :status
    """
)
# Attempts, deliveries, events and loans go with the task's row. What a receiver has yet to hear is still sent to it.
GOES_ALONG = tuple(
    Statement(f"DELETE FROM {what}")
    for what in (
        "parses WHERE task_id = :id",
        "idempotency WHERE task_id = :id",
        "notices WHERE task_id = :id AND state <> 'pending'",
        "tasks WHERE id = :id",
    )
)
FIND = Statement(f"SELECT {COLUMNS} FROM tombstones WHERE task_id = :id AND tenant = :tenant AND owner = :owner")
FULL = Statement(
    f"""
    SELECT {COLUMNS}, leavings FROM tombstones
    WHERE leavings IS NOT NULL AND task_id > :after ORDER BY task_id LIMIT :limit
    """
)
EMPTIED = Statement("UPDATE tombstones SET leavings = NULL WHERE task_id = :id")
LENT = Statement("SELECT 1 FROM loans WHERE parsed_key = :parsed_key LIMIT 1")
LIVES = Statement("SELECT 1 FROM tasks WHERE id = :id")
LENDER = Statement("SELECT 1 FROM tasks WHERE id = :id {lock}")
LEND = Statement(
    "INSERT INTO loans (task_id, parsed_key) VALUES (:id, :parsed_key) ON CONFLICT (task_id, parsed_key) DO NOTHING"
)
IS_SOURCE = Statement("SELECT 1 FROM tasks WHERE tenant = :tenant AND source_key = :key LIMIT 1")


class SqlTombstones:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def aged(self, *, after: int, limit: int) -> list[Aged]:
        rows = await self._database.read(_rows(AGED(after=after, limit=limit)))
        return [Aged(row[0], STATUS_OF[row[1]], row[2], row[3]) for row in rows]

    async def bury(self, task_id: int, retention: Retention) -> bool:
        return await self._database.write(_bury(task_id, retention))

    async def find(self, task_id: int, who: Owner) -> Tombstone | None:
        rows = await self._database.read(_rows(_stone(task_id, who)), tenant=who.tenant)
        return Tombstone(*rows[0]) if rows else None

    async def full(self, *, after: int, limit: int) -> list[Estate]:
        rows = await self._database.read(_rows(FULL(after=after, limit=limit)))
        return [Estate(Tombstone(*row[:6]), msgspec.json.decode(row[6], type=Leavings)) for row in rows]

    async def emptied(self, task_id: int) -> None:
        await self._database.write(_rows(EMPTIED(id=task_id)))

    async def is_parse_used(self, parsed_key: str) -> bool:
        return await self._database.read(_is_parse_used(parsed_key), snapshot=True)

    async def is_source_used(self, tenant: str, key: str) -> bool:
        return bool(await self._database.read(_rows(IS_SOURCE(tenant=tenant, key=key)), tenant=tenant))


def missing(task_id: int, who: Owner | None) -> Op[DocmillError]:
    """Why there is no such task: it was removed after its time, or there never was one."""
    rows = (yield _stone(task_id, who)) if who else []
    return Gone("task_expired", task=task_id) if rows else NotFound("task_not_found", task=task_id)


def borrow(old: Task, new: Task) -> Op[bool]:
    """Note that the task uses another one's parse from now on. False: that one is gone, and its parse may be."""
    lender = lender_of(old, new)
    if lender is None:
        return True
    # Locked, as who removes it does: either the loan is seen there, or the end here.
    rows = yield LENDER(id=lender)
    if not rows:
        return False
    yield LEND(id=new.id, parsed_key=new.artifacts.parsed_key)
    return True


def lender_of(old: Task, new: Task) -> int | None:
    """The other task whose parse this one uses from now on."""
    key = new.artifacts.parsed_key
    lender = task_of_artifact(key) if key and key != old.artifacts.parsed_key else None
    return None if lender == new.id else lender


def _bury(task_id: int, retention: Retention) -> Op[bool]:
    rows = yield LOAD(id=task_id)
    task = task_of(rows[0]) if rows else None
    if task is None or not retention.is_over(task.status, rows[0][-1] - task.updated_ms):
        # Another sweeper was quicker, or somebody retried it.
        return False
    attempts = yield ATTEMPTS(id=task_id)
    loans = yield LOANS(id=task_id)
    status = machine.wire_status(task)
    leavings = {
        "project_id": task.project_id,
        "source_key": task.source_key,
        "attempts": [row[0] for row in attempts],
        "loans": [row[0] for row in loans],
    }
    yield BURY(
        id=task_id,
        tenant=task.tenant,
        owner=task.owner,
        status=status,
        ended_ms=task.updated_ms,
        leavings=encode(leavings),
    )
    yield COUNT(tenant=task.tenant, owner=task.owner, project_id=task.project_id, status=status)
    for statement in GOES_ALONG:
        yield statement(id=task_id)
    return True


def _is_parse_used(parsed_key: str) -> Op[bool]:
    lent = yield LENT(parsed_key=parsed_key)
    if lent:
        return True
    lives = yield LIVES(id=task_of_artifact(parsed_key))
    return bool(lives)


def _stone(task_id: int, who: Owner) -> Query:
    return FIND(id=task_id, tenant=who.tenant, owner=who.user)


def _rows(query: Query) -> Op[Sequence[Row]]:
    rows = yield query
    return rows
