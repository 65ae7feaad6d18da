"""The ledger on SQL: tasks, attempts and events. Decisions are `core.machine`'s; this file loads and writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import product
from uuid import UUID

import structlog

from docmill.adapters.sql import clock, progress, tombstones
from docmill.adapters.sql.database import Database
from docmill.adapters.sql.outbox import announce
from docmill.adapters.sql.rows import (
    ATTEMPT_COLUMNS,
    TASK_COLUMNS,
    TASK_WIDTH,
    attempt_of,
    body_of,
    decode,
    encode,
    of,
    task_of,
    wishes_body,
)
from docmill.adapters.sql.statement import Op, Query, Row, Statement, Together
from docmill.core import machine
from docmill.core.access import Owner
from docmill.core.errors import Gone, Invalid, NotFound, Unavailable
from docmill.core.face import face_of
from docmill.core.machine import Change, Opening, Verdict
from docmill.core.task import Attempt, Event, Fault, LoggedEvent, Stage, State, Status, Task
from docmill.ports import Delivery, Faces, Filter, Heard, Listing, NewTask, Once, Transition

log = structlog.get_logger(__name__)

INSERT_TASK = Statement(
    """
    INSERT INTO tasks (tenant, owner, project_id, filename, source_key, rule_id, status, stage, attempt, attempt_id,
                       version, event_seq, progress, body, face, created_ms, updated_ms)
    VALUES (:tenant, :owner, :project_id, :filename, :source_key, :rule_id, :status, 'parse', 1, :attempt_id,
            1, :event_seq, 0, :body, '', {now}, {now})
    RETURNING id
    """
)
UPDATE_TASK = Statement(
    """
    UPDATE tasks SET status = :status, stage = :stage, attempt = :attempt, attempt_id = :attempt_id,
           version = version + 1, event_seq = :event_seq, progress = :progress, body = :body, face = :face,
           updated_ms = :now_ms
    WHERE id = :id AND version = :version
    RETURNING id
    """
)
SET_FACE = Statement("UPDATE tasks SET face = :face WHERE id = :id")
LOAD_TASK = Statement(f"SELECT {TASK_COLUMNS}, {{now}} FROM tasks WHERE id = :id {{lock}}")
GET_TASK = Statement(f"SELECT {TASK_COLUMNS} FROM tasks WHERE id = :id")
GET_ATTEMPT = Statement(f"SELECT {ATTEMPT_COLUMNS} FROM attempts WHERE id = :id")
ATTEMPTS_OF = Statement(
    f"SELECT {ATTEMPT_COLUMNS} FROM attempts WHERE task_id = :task_id ORDER BY started_ms, number, due_ms"
)
INSERT_ATTEMPT = Statement(
    """
    INSERT INTO attempts (id, task_id, number, stage, state, priority, owner, due_ms, lease_ms, started_ms)
    VALUES (:id, :task_id, :number, :stage, :state, :priority, :owner, {now} + CAST(:delay_ms AS BIGINT),
            {now} + CAST(:lease_ms AS BIGINT), CASE WHEN CAST(:owner AS TEXT) IS NULL THEN NULL ELSE {now} END)
    RETURNING due_ms
    """
)
END_ATTEMPT = Statement(
    """
    UPDATE attempts SET state = :state, ended_ms = {now}, lease_ms = NULL, outcome_hash = :outcome_hash WHERE id = :id
    """
)
CLAIM_ATTEMPT = Statement(
    """
    UPDATE attempts SET state = 'running', owner = :owner, started_ms = {now},
           lease_ms = {now} + CAST(:lease_ms AS BIGINT)
    WHERE id = :id AND state = 'queued' AND due_ms <= {now}
    RETURNING task_id
    """
)
HAND_OVER = Statement(
    """
    UPDATE attempts SET state = 'handed_over', worker = :worker, dialect = :dialect,
           token_hash = :token_hash, timeout_ms = :timeout_ms, deadline_ms = {now} + CAST(:timeout_ms AS BIGINT)
    WHERE id = :id
    """
)
SIGN_OF_LIFE = Statement(
    """
    UPDATE attempts SET deadline_ms = {now} + CAST(:timeout_ms AS BIGINT), lease_ms = NULL,
           process_id = COALESCE(:process_id, process_id)
    WHERE id = :id AND state = 'handed_over'
    """
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
JOBS = Statement(
    f"""
    SELECT {of("a", ATTEMPT_COLUMNS)}
    FROM attempts a JOIN tasks t ON t.id = a.task_id
    WHERE a.dialect IS NOT NULL AND t.tenant = :tenant AND t.owner = :owner AND a.started_ms < :before
    ORDER BY a.started_ms DESC LIMIT :limit
    """
)
BEAT = Statement(
    """
    UPDATE attempts SET lease_ms = {now} + CAST(:lease_ms AS BIGINT)
    WHERE id = :id AND owner = :owner AND (state = 'running' OR (state = 'handed_over' AND lease_ms IS NOT NULL))
    RETURNING id
    """
)
INSERT_EVENT = Statement(
    "INSERT INTO events (task_id, seq, kind, data, at_ms) VALUES (:task_id, :seq, :kind, :data, {now})"
)
EVENTS = Statement(
    """
    SELECT task_id, seq, kind, data, at_ms FROM events
    WHERE task_id = :task_id AND seq > :after ORDER BY seq LIMIT :limit
    """
)
COUNT = Statement(
    """
    INSERT INTO task_counts (tenant, owner, project_id, status, n)
    VALUES (:tenant, :owner, :project_id, :status, :by)
    ON CONFLICT (tenant, owner, project_id, status) DO UPDATE SET n = task_counts.n + excluded.n
    """
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
COLLECTED = Statement("UPDATE attempts SET collected_ms = {now} WHERE id = :id")
ONCE = Statement(
    "SELECT fingerprint, task_id FROM idempotency WHERE tenant = :tenant AND owner = :owner AND key = :key"
)
KEEP_ONCE = Statement(
    """
    INSERT INTO idempotency (tenant, owner, key, fingerprint, task_id, created_ms)
    VALUES (:tenant, :owner, :key, :fingerprint, :task_id, {now})
    ON CONFLICT (tenant, owner, key) DO NOTHING
    RETURNING task_id
    """
)
PARSE_OF = Statement(
    "SELECT markdown_key, parsed_key FROM parses WHERE tenant = :tenant AND fingerprint = :fingerprint"
)
KEEP_PARSE = Statement(
    """
    INSERT INTO parses (tenant, fingerprint, task_id, markdown_key, parsed_key, created_ms)
    VALUES (:tenant, :fingerprint, :task_id, :markdown_key, :parsed_key, {now})
    ON CONFLICT (tenant, fingerprint) DO UPDATE
    SET task_id = excluded.task_id, markdown_key = excluded.markdown_key, parsed_key = excluded.parsed_key
    """
)
PING = Statement("SELECT 1")
COUNTS = Statement("SELECT status, CAST(SUM(n) AS BIGINT) FROM task_counts GROUP BY status")


class SqlLedger:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def open(self, new: NewTask, *, attempt_id: UUID, once: Once | None = None) -> tuple[Task, bool]:
        while True:
            try:
                return await self._database.write(_open(new, attempt_id, once), tenant=new.tenant)
            except _OnceTaken:
                # Another request with the same key committed between our look and our write: its task is the answer.
                continue

    async def decide(
        self, task_id: int, rule: Transition, *, attempt_id: UUID | None = None, who: Owner | None = None
    ) -> Change:
        return await self._database.write(_decide(task_id, rule, attempt_id, who), tenant=who.tenant if who else None)

    async def progress(self, reports: Sequence[Heard]) -> list[Verdict | None]:
        return await progress.write(self._database, reports)

    async def claim(self, attempt_id: UUID, *, worker: str, lease_ms: int) -> tuple[Task, Attempt] | None:
        return await self._database.write(_claim(attempt_id, worker, lease_ms))

    async def beat(self, attempt_ids: Sequence[UUID], *, worker: str, lease_ms: int) -> set[UUID]:
        return await self._database.write(_beat(attempt_ids, worker, lease_ms))

    async def get(self, task_id: int, who: Owner | None = None) -> Task | None:
        return await self._database.peek(_get(task_id, who), tenant=who.tenant if who else None)

    async def find(self, attempt_id: UUID) -> tuple[Task, Attempt] | None:
        return await self._database.read(_find(attempt_id))

    async def batch(self, task_ids: Sequence[int], who: Owner) -> list[Task]:
        return await self._database.glance(_batch(task_ids, who), tenant=who.tenant)

    async def page(self, where: Filter) -> Listing:
        return await self._database.glance(_list(where), tenant=where.who.tenant)

    async def faces(self, where: Filter) -> Faces:
        return await self._database.glance(_faces(where), tenant=where.who.tenant)

    async def events(
        self, task_id: int, *, after: int = 0, limit: int = 500, who: Owner | None = None
    ) -> list[LoggedEvent]:
        return await self._database.glance(_events(task_id, after, limit), tenant=who.tenant if who else None)

    async def attempts(self, task_id: int) -> list[Attempt]:
        return await self._database.glance(_attempts(ATTEMPTS_OF, task_id=task_id))

    async def due(self, *, limit: int) -> list[tuple[Task, Attempt]]:
        return await self._database.glance(_due(limit))

    async def lapsed(self, *, limit: int) -> list[tuple[Attempt, int]]:
        rows = await self._database.glance(_rows(LAPSED, limit=limit))
        return [(attempt_of(row), row[-1]) for row in rows]

    async def mend_times(self, *, lease_ms: int) -> int:
        # Nearly always there is nothing to mend, and a look costs less than a write.
        if not await self._database.glance(clock.is_off(lease_ms)):
            return 0
        return await self._database.write(clock.mend(lease_ms))

    async def held(self, *, limit: int, owner: str | None = None) -> list[Attempt]:
        return await self._database.glance(_attempts(HELD, limit=limit, owner=owner))

    async def leavings(self, *, older_ms: int, limit: int) -> list[tuple[Task, UUID]]:
        rows = await self._database.glance(_rows(LEAVINGS, older_ms=older_ms, limit=limit))
        return [(task, UUID(row[-1])) for task, row in _readable(rows)]

    async def collected(self, attempt_id: UUID) -> None:
        await self._database.write(_rows(COLLECTED, id=str(attempt_id)))

    async def parse_of(self, tenant: str, fingerprint: str) -> tuple[str, str] | None:
        rows = await self._database.glance(_rows(PARSE_OF, tenant=tenant, fingerprint=fingerprint), tenant=tenant)
        return (rows[0][0], rows[0][1]) if rows else None

    async def record_delivery(self, attempt: Attempt, delivery: Delivery) -> None:
        params = {name: value for name, value in asdict(delivery).items() if name != "at_ms"}
        await self._database.write(_rows(DELIVER, attempt_id=str(attempt.id), task_id=attempt.task_id, **params))

    async def deliveries(self, attempt_id: UUID, *, limit: int) -> list[Delivery]:
        rows = await self._database.glance(_rows(DELIVERIES, attempt_id=str(attempt_id), limit=limit))
        return [Delivery(*row) for row in rows]

    async def jobs(self, who: Owner, *, before_ms: int, limit: int) -> list[Attempt]:
        return await self._database.read(
            _attempts(JOBS, tenant=who.tenant, owner=who.user, before=before_ms, limit=limit), tenant=who.tenant
        )

    async def ping(self) -> None:
        await self._database.glance(_rows(PING))

    async def counts(self) -> dict[str, int]:
        return {row[0]: int(row[1]) for row in await self._database.glance(_rows(COUNTS))}


class _OnceTaken(Exception):
    pass


def _rows(statement: Statement, **params: object) -> Op[list[Row]]:
    rows = yield statement(**params)
    return rows


def _open(new: NewTask, attempt_id: UUID, once: Once | None) -> Op[tuple[Task, bool]]:
    if once is not None:
        seen = yield ONCE(tenant=new.tenant, owner=new.owner, key=once.key)
        if seen:
            if not once.is_same(seen[0][0]):
                raise Invalid("idempotency_mismatch")
            rows = yield GET_TASK(id=seen[0][1])
            if not rows:
                raise Gone("task_expired", task=seen[0][1])
            return task_of(rows[0]), False
    failed = new.upload_fault is not None
    status = Status.FAILED if failed else Status.PENDING
    fault = Fault("upload_failed", new.upload_fault, "upload") if new.upload_fault else None
    body = wishes_body(new, fault)
    rows = yield INSERT_TASK(
        tenant=new.tenant,
        owner=new.owner,
        project_id=new.project_id,
        filename=new.filename,
        source_key=new.source_key,
        rule_id=new.rule_id,
        status=status.value,
        attempt_id=None if failed else str(attempt_id),
        event_seq=2 if failed else 1,
        body=body,
    )
    task_id = rows[0][0]
    if once is not None:
        kept = yield KEEP_ONCE(
            tenant=new.tenant, owner=new.owner, key=once.key, fingerprint=once.fingerprint, task_id=task_id
        )
        if not kept:
            raise _OnceTaken
    said = {"filename": new.filename, "size": new.source_size}
    changes = [
        COUNT(tenant=new.tenant, owner=new.owner, project_id=new.project_id, status=status.value, by=1),
        INSERT_EVENT(task_id=task_id, seq=1, kind="submitted", data=encode(said)),
    ]
    if fault:
        told = {"code": fault.code, "message": fault.message, "error_stage": fault.stage}
        changes.append(INSERT_EVENT(task_id=task_id, seq=2, kind="failed", data=encode(told)))
    else:
        opening = Opening(attempt_id, 1, Stage.PARSE)
        changes.append(_insert_attempt(task_id, opening, new.wishes.priority))
    yield Together(changes)
    rows = yield GET_TASK(id=task_id)
    task = task_of(rows[0])
    yield SET_FACE(id=task_id, face=encode(face_of(task)))
    yield from announce(None, task)
    return task, True


def _decide(task_id: int, rule: Transition, attempt_id: UUID | None, who: Owner | None) -> Op[Change]:
    task, now_ms = yield from _load(task_id, who)
    attempt: Attempt | None = None
    wanted = attempt_id or task.attempt_id
    if wanted is not None:
        rows = yield GET_ATTEMPT(id=str(wanted))
        attempt = attempt_of(rows[0]) if rows else None
    change = rule(task, attempt)
    return (yield from _write(task, change, now_ms))


def _claim(attempt_id: UUID, worker: str, lease_ms: int) -> Op[tuple[Task, Attempt] | None]:
    rows = yield GET_ATTEMPT(id=str(attempt_id))
    if not rows or rows[0][4] != State.QUEUED.value:
        return None
    # The task's row is locked before the attempt's, as everywhere: one order, no deadlock.
    task, now_ms = yield from _load(rows[0][1], None)
    rows = yield GET_ATTEMPT(id=str(attempt_id))
    change = machine.claim(task, attempt_of(rows[0]), owner=worker)
    if change.verdict is not Verdict.APPLIED:
        return None
    taken = yield CLAIM_ATTEMPT(id=str(attempt_id), owner=worker, lease_ms=lease_ms)
    if not taken:
        return None
    change = yield from _write(task, change, now_ms)
    rows = yield GET_ATTEMPT(id=str(attempt_id))
    return change.task, attempt_of(rows[0])


def _write(old: Task, change: Change, now_ms: int) -> Op[Change]:
    """Write what a rule decided. The version guard makes it a compare-and-set even where rows are not locked."""
    if not change.writes:
        return change
    seq = old.event_seq + len(change.events)
    new = replace(change.task, version=old.version + 1, event_seq=seq, updated_ms=max(now_ms, old.updated_ms))
    changes = [
        UPDATE_TASK(
            id=old.id,
            version=old.version,
            status=machine.wire_status(new),
            stage=new.stage.value,
            attempt=new.attempt,
            attempt_id=str(new.attempt_id) if new.attempt_id else None,
            event_seq=new.event_seq,
            progress=new.progress,
            body=body_of(new),
            face=encode(face_of(new)),
            now_ms=new.updated_ms,
        ),
        *_of_attempts(old, new, change),
        *_recount(old, new),
        *_log(old, change.events),
        *announce(old, new),
    ]
    rows = yield Together(changes)
    if not rows or not (yield from tombstones.borrow(old, new)):
        raise Unavailable("ledger_busy", task=old.id)
    if change.opens is None or not change.opens.owner:
        return replace(change, task=new)
    [row] = yield GET_ATTEMPT(id=str(change.opens.id))
    return replace(change, task=new, opened=attempt_of(row))


def _of_attempts(old: Task, new: Task, change: Change) -> Iterator[Query]:
    """No rule ends an attempt and changes it otherwise at once: each row is touched by one of these."""
    for attempt_id, state in change.ends:
        yield END_ATTEMPT(id=str(attempt_id), state=state.value, outcome_hash=change.outcome_hash)
    if change.hands_over:
        yield HAND_OVER(id=str(old.attempt_id), **asdict(change.hands_over))
    if change.sign_of_life:
        alive = change.sign_of_life
        yield SIGN_OF_LIFE(id=str(alive.attempt_id), timeout_ms=alive.timeout_ms, process_id=alive.process_id)
    if change.reuse_as:
        yield KEEP_PARSE(
            tenant=new.tenant,
            fingerprint=change.reuse_as,
            task_id=new.id,
            markdown_key=new.artifacts.markdown_key or "",
            parsed_key=new.artifacts.parsed_key or "",
        )
    if change.opens:
        yield _insert_attempt(old.id, change.opens, old.wishes.priority)


def _insert_attempt(task_id: int, opening: Opening, priority: int) -> Query:
    return INSERT_ATTEMPT(
        id=str(opening.id),
        task_id=task_id,
        number=opening.number,
        stage=opening.stage.value,
        state=(State.RUNNING if opening.owner else State.QUEUED).value,
        priority=priority,
        owner=opening.owner,
        delay_ms=opening.delay_ms,
        lease_ms=opening.lease_ms,
    )


def _recount(old: Task, new: Task) -> Iterator[Query]:
    before, after = machine.wire_status(old), machine.wire_status(new)
    if before == after:
        return
    # In the order of their keys, so that two transactions never wait for each other.
    for status, by in sorted([(before, -1), (after, 1)]):
        yield COUNT(tenant=old.tenant, owner=old.owner, project_id=old.project_id, status=status, by=by)


def _log(old: Task, events: Sequence[Event]) -> Iterator[Query]:
    for seq, event in enumerate(events, old.event_seq + 1):
        yield INSERT_EVENT(task_id=old.id, seq=seq, kind=event.kind, data=encode(event.data))


def _load(task_id: int, who: Owner | None) -> Op[tuple[Task, int]]:
    """The task, locked, and the database's clock."""
    rows = yield LOAD_TASK(id=task_id)
    if not rows:
        raise (yield from tombstones.missing(task_id, who))
    return _visible(rows, task_id, who), rows[0][-1]


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
    rows = yield GET_ATTEMPT(id=str(attempt_id))
    if not rows:
        return None
    attempt = attempt_of(rows[0])
    rows = yield GET_TASK(id=attempt.task_id)
    return task_of(rows[0]), attempt


def _beat(attempt_ids: Sequence[UUID], worker: str, lease_ms: int) -> Op[set[UUID]]:
    alive: set[UUID] = set()
    for attempt_id in sorted(attempt_ids, key=str):
        rows = yield BEAT(id=str(attempt_id), owner=worker, lease_ms=lease_ms)
        if rows:
            alive.add(attempt_id)
    return alive


def _batch(task_ids: Sequence[int], who: Owner) -> Op[list[Task]]:
    unique = list(dict.fromkeys(task_ids))
    if not unique:
        return []
    rows = yield _by_ids(len(unique))(tenant=who.tenant, owner=who.user, **{f"id{n}": i for n, i in enumerate(unique)})
    found = {row[0]: task_of(row) for row in rows}
    return [found[task_id] for task_id in unique if task_id in found]


_BY_IDS: dict[int, Statement] = {}


def _by_ids(count: int) -> Statement:
    if count not in _BY_IDS:
        names = ", ".join(f"CAST(:id{n} AS BIGINT)" for n in range(count))
        _BY_IDS[count] = Statement(
            f"SELECT {TASK_COLUMNS} FROM tasks WHERE tenant = :tenant AND owner = :owner AND id IN ({names})"
        )
    return _BY_IDS[count]


def _lists(columns: str) -> dict[tuple[bool, bool, bool], tuple[Statement, Statement]]:
    """A statement for every mix of filters, so that each one uses its own index; and one for the total alone."""
    statements = {}
    for project, status, keyset in product((False, True), repeat=3):
        where = "tenant = :tenant AND owner = :owner"
        where += " AND project_id = :project_id" if project else ""
        where += " AND status = :status" if status else ""
        page = where + (" AND id < :before" if keyset else "")
        total = f"SELECT CAST(COALESCE(SUM(n), 0) AS BIGINT) FROM task_counts WHERE {where}"
        statements[project, status, keyset] = (
            Statement(
                f"SELECT {columns}, ({total}) FROM tasks WHERE {page} ORDER BY id DESC LIMIT :limit OFFSET :offset"
            ),
            Statement(total),
        )
    return statements


LISTS = _lists(TASK_COLUMNS)
FACES = _lists("id, face")


def _list(where: Filter) -> Op[Listing]:
    rows, total = yield from _page(LISTS, where)
    return Listing([task_of(row) for row in rows], total)


def _faces(where: Filter) -> Op[Faces]:
    rows, total = yield from _page(FACES, where)
    return Faces(rows, total)


def _page(
    lists: dict[tuple[bool, bool, bool], tuple[Statement, Statement]], where: Filter
) -> Op[tuple[list[Row], int]]:
    page, total = lists[where.project_id is not None, where.status is not None, where.before is not None]
    params = {
        "tenant": where.who.tenant,
        "owner": where.who.user,
        "project_id": where.project_id,
        "status": where.status,
        "before": where.before,
        "limit": where.limit,
        "offset": where.offset,
    }
    rows = yield page(**params)
    count = rows or (yield total(**params))
    return rows, int(count[0][-1])


def _events(task_id: int, after: int, limit: int) -> Op[list[LoggedEvent]]:
    rows = yield EVENTS(task_id=task_id, after=after, limit=limit)
    return [LoggedEvent(row[0], row[1], row[2], decode(row[3]), row[4]) for row in rows]


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
