"""Decisions about tasks, of many callers in one transaction: load the rows, let each rule decide, write what they say.

The rules are `core.machine`'s, and each caller has its own answer. A transaction takes as many statements for many
decisions as for one. It locks in one order, so that no two wait for each other: tasks, their attempts, and then what
many tasks have in common (counts, parses), each of these by its key. Times are the database's, read once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from operator import attrgetter, itemgetter
from typing import Any
from uuid import UUID

from docmill.adapters.sql import tombstones
from docmill.adapters.sql.batching import Result
from docmill.adapters.sql.outbox import ANNOUNCE, announcement
from docmill.adapters.sql.rows import ATTEMPT_COLUMNS, TASK_COLUMNS, attempt_of, body_of, encode, task_of
from docmill.adapters.sql.statement import Bulk, Op, Statement, Together
from docmill.core import machine
from docmill.core.access import Owner
from docmill.core.errors import NotFound, Unavailable
from docmill.core.face import face_of
from docmill.core.machine import Change, Opening, Verdict
from docmill.core.task import Attempt, State, Status, Task
from docmill.ports import Transition

_LOAD_TASKS = f"""
    SELECT {TASK_COLUMNS}, {{now}} FROM tasks WHERE id IN (
        SELECT CAST(value AS BIGINT) FROM {{each}}(CAST(:ids AS {{json}}))
        UNION
        SELECT task_id FROM attempts WHERE id IN (SELECT value FROM {{each}}(CAST(:attempt_ids AS {{json}})))
    ) ORDER BY id
    """
LOAD_TASKS = Statement(_LOAD_TASKS + "{lock}")
LOAD_FREE_TASKS = Statement(_LOAD_TASKS + "{skip_locked}")
LOAD_ATTEMPTS = Statement(
    f"""
    SELECT {ATTEMPT_COLUMNS}, {{now}} FROM attempts
    WHERE id IN (SELECT value FROM {{each}}(CAST(:ids AS {{json}}))) ORDER BY id {{lock}}
    """
)
UPDATE_TASK = Bulk(
    """
    UPDATE tasks SET status = :status, stage = :stage, attempt = :attempt, attempt_id = :attempt_id,
           version = version + 1, event_seq = :event_seq, progress = :progress, body = :body, face = :face,
           updated_ms = :now_ms
    {rows} WHERE id = :id AND version = :version
    RETURNING id
    """,
    numbers="id version attempt event_seq progress now_ms",
)
MOVE_TASK = Bulk(
    """
    UPDATE tasks SET version = version + 1, event_seq = :event_seq, progress = :progress, updated_ms = :now_ms
    {rows} WHERE id = :id AND version = :version
    RETURNING id
    """,
    numbers="id version event_seq progress now_ms",
)
"""For changes of nothing but progress: most of the row's columns are indexed or large. Lists insert the progress into
the stored summary (`core.face.moved`)."""
INSERT_ATTEMPT = Bulk(
    """
    INSERT INTO attempts (id, task_id, number, stage, state, priority, owner, due_ms, lease_ms, started_ms)
    SELECT :id, :task_id, :number, :stage, :state, :priority, :owner, :due_ms, :lease_ms, :started_ms {rows}
    """,
    numbers="task_id number priority due_ms lease_ms started_ms",
)
CLAIM_ATTEMPT = Bulk(
    """
    UPDATE attempts SET state = 'running', owner = :owner, started_ms = :now_ms, lease_ms = :lease_ms
    {rows} WHERE id = :id
    """,
    numbers="now_ms lease_ms",
)
END_ATTEMPT = Bulk(
    """
    UPDATE attempts SET state = :state, ended_ms = :now_ms, lease_ms = NULL, outcome_hash = :outcome_hash,
           report_id = :report_id, failure = :failure,
           job_status = CASE WHEN dialect IS NULL THEN NULL ELSE :job_status END
    {rows} WHERE id = :id
    """,
    numbers="now_ms",
)
HAND_OVER = Bulk(
    """
    UPDATE attempts SET state = 'handed_over', worker = :worker, dialect = :dialect,
           token_hash = :token_hash, timeout_ms = :timeout_ms, deadline_ms = :deadline_ms,
           job_tenant = :job_tenant, job_user = :job_user, job_status = :job_status
    {rows} WHERE id = :id
    """,
    numbers="timeout_ms deadline_ms",
)
SIGN_OF_LIFE = Bulk(
    """
    UPDATE attempts SET deadline_ms = COALESCE(:deadline_ms, deadline_ms), lease_ms = NULL, failure = :failure,
           process_id = COALESCE(:process_id, process_id), start_ids = COALESCE(:start_ids, start_ids)
    {rows} WHERE id = :id AND state = 'handed_over'
    """,
    numbers="deadline_ms",
)
MOVE_JOB = Bulk("UPDATE attempts SET job_status = :job_status {rows} WHERE id = :id AND state = 'succeeded'")
INSERT_EVENT = Bulk(
    "INSERT INTO events (task_id, seq, kind, data, at_ms) SELECT :task_id, :seq, :kind, :data, :now_ms {rows}",
    numbers="task_id seq now_ms",
)
COUNT = Bulk(
    """
    INSERT INTO task_counts (tenant, owner, project_id, status, n)
    SELECT :tenant, :owner, :project_id, :status, :by {rows} WHERE true
    ON CONFLICT (tenant, owner, project_id, status) DO UPDATE SET n = task_counts.n + excluded.n
    """,
    numbers="project_id by",
)
KEEP_RESULT = Bulk(
    """
    INSERT INTO results (task_id, output) SELECT :task_id, :output {rows} WHERE true
    ON CONFLICT (task_id) DO UPDATE SET output = excluded.output
    """,
    numbers="task_id",
)
KEEP_PARSE = Bulk(
    """
    INSERT INTO parses (tenant, fingerprint, task_id, markdown_key, parsed_key, created_ms)
    SELECT :tenant, :fingerprint, :task_id, :markdown_key, :parsed_key, :now_ms {rows} WHERE true
    ON CONFLICT (tenant, fingerprint) DO UPDATE
    SET task_id = excluded.task_id, markdown_key = excluded.markdown_key, parsed_key = excluded.parsed_key
    """,
    numbers="task_id now_ms",
)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a rule says of a task, and of this attempt or the current one. Its answer is the `Change` as written."""

    task_id: int
    rule: Transition
    attempt_id: UUID | None = None
    who: Owner | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker wants a queued attempt. Its answer is the task and the attempt, or None."""

    attempt_id: UUID
    worker: str
    lease_ms: int


_AT_ONCE = (
    COUNT,
    CLAIM_ATTEMPT,
    END_ATTEMPT,
    HAND_OVER,
    SIGN_OF_LIFE,
    MOVE_JOB,
    INSERT_ATTEMPT,
    INSERT_EVENT,
    KEEP_RESULT,
    ANNOUNCE,
)
"""What goes with the tasks' rows in one statement, always in this order: the fewer statements, the fewer plans."""

_Write = tuple[Bulk, dict[str, Any]]
_MOVING = ("version", "event_seq", "progress", "updated_ms")
_settled = attrgetter(*(field.name for field in fields(Task) if field.name not in _MOVING))
"""What of a task stays as it is when only its progress changes."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    """Tasks, attempts, and the database's clock."""

    tasks: dict[int, Task]
    attempts: dict[UUID, Attempt]
    now_ms: int

    def of(self, item: Decision | Claim) -> tuple[Task | None, Attempt | None]:
        if isinstance(item, Claim):
            attempt = self.attempts.get(item.attempt_id)
            return (self.tasks.get(attempt.task_id) if attempt else None), attempt
        task = self.tasks.get(item.task_id)
        wanted = item.attempt_id or (task.attempt_id if task else None)
        return task, self.attempts.get(wanted) if wanted else None


def decide(items: Sequence[Decision | Claim], *, alone: bool) -> Op[list[Result | None]]:
    """Unless *alone*, it leaves out tasks that another transaction has locked, all but the first change of each task,
    and changes that need another task's row as well."""
    loaded = yield from _load(items, alone=alone)
    answers: list[Result | None] = []
    rows: defaultdict[Bulk, list[dict[str, Any]]] = defaultdict(list)
    changed: dict[int, tuple[Task, Task]] = {}
    for item in items:
        task, attempt = loaded.of(item)
        if task is None or task.id in changed:
            answers.append((yield from _missing(item)) if alone else None)
            continue
        try:
            value, change = _judged(item, task, attempt, loaded.now_ms)
            writes = list(_writes(task, change, loaded.now_ms)) if change else []
        except Exception as error:  # of the rule, or of a value that cannot be written: its caller's, and nobody else's
            answers.append(Result(error=error))
            continue
        if change and not alone and tombstones.lender_of(task, change.task):
            answers.append(None)
            continue
        for statement, row in writes:
            rows[statement].append(row)
        if change:
            changed[task.id] = task, change.task
        answers.append(Result(value))
    if changed:
        yield from _write(rows, changed)
    return answers


def _load(items: Sequence[Decision | Claim], *, alone: bool) -> Op[_Loaded]:
    """The attempts are read when their tasks are locked: whoever changes more of one than its times has locked its
    task."""
    statement = LOAD_TASKS if alone else LOAD_FREE_TASKS
    claims = [str(item.attempt_id) for item in items if isinstance(item, Claim)]
    decisions = [item for item in items if isinstance(item, Decision)]
    found = yield statement(ids=encode([item.task_id for item in decisions]), attempt_ids=encode(claims))
    if not found:
        return _Loaded({}, {}, 0)
    tasks = {row[0]: task_of(row) for row in found}
    wanted = [item.attempt_id or getattr(tasks.get(item.task_id), "attempt_id", None) for item in decisions]
    ids = claims + [str(one) for one in wanted if one]
    rows = (yield LOAD_ATTEMPTS(ids=encode(ids))) if ids else []
    attempts = [attempt_of(row) for row in rows]
    return _Loaded(tasks, {attempt.id: attempt for attempt in attempts}, (rows or found)[-1][-1])


def _missing(item: Decision | Claim) -> Op[Result]:
    if isinstance(item, Claim):
        return Result(None)
    return Result(error=(yield from tombstones.missing(item.task_id, item.who)))


def _judged(item: Decision | Claim, task: Task, attempt: Attempt | None, now_ms: int) -> tuple[Any, Change | None]:
    """The answer, and what is to be written for it: the change as it will be, once it is written."""
    if isinstance(item, Claim):
        return _claimed(item, task, attempt, now_ms)
    if item.who is not None and (task.tenant, task.owner) != (item.who.tenant, item.who.user):
        raise NotFound("task_not_found", task=task.id)
    change = item.rule(task, attempt)
    if not change.writes:
        return change, None
    change = _stamped(task, change, now_ms)
    return change, change


def _claimed(
    item: Claim, task: Task, attempt: Attempt | None, now_ms: int
) -> tuple[tuple[Task, Attempt] | None, Change | None]:
    if attempt is None or attempt.due_ms > now_ms:
        return None, None
    change = machine.claim(task, attempt, owner=item.worker)
    if change.verdict is not Verdict.APPLIED:
        return None, None
    taken = replace(attempt, state=State.RUNNING, owner=item.worker, started_ms=now_ms, lease_ms=now_ms + item.lease_ms)
    change = replace(_stamped(task, change, now_ms), opened=taken)
    return (change.task, taken), change


def _stamped(old: Task, change: Change, now_ms: int) -> Change:
    seq = old.event_seq + len(change.events)
    new = replace(change.task, version=old.version + 1, event_seq=seq, updated_ms=max(now_ms, old.updated_ms))
    opens = change.opens
    opened = _attempt(old.id, opens, now_ms) if opens and opens.owner else None
    return replace(change, task=new, opened=opened)


def _attempt(task_id: int, opening: Opening, now_ms: int) -> Attempt:
    return Attempt(
        opening.id,
        task_id,
        opening.number,
        opening.stage,
        State.RUNNING if opening.owner else State.QUEUED,
        opening.owner,
        now_ms + opening.delay_ms,
        None if opening.lease_ms is None else now_ms + opening.lease_ms,
        started_ms=now_ms if opening.owner else None,
    )


def _writes(old: Task, change: Change, now_ms: int) -> Iterator[_Write]:
    """The rows that a change is made of. The version makes it a compare-and-set even where rows are not locked."""
    new = change.task
    moved = {
        "id": old.id,
        "version": old.version,
        "event_seq": new.event_seq,
        "progress": new.progress,
        "now_ms": new.updated_ms,
    }
    if new.status is Status.RUNNING and _settled(old) == _settled(new):
        yield MOVE_TASK, moved
    else:
        yield (
            UPDATE_TASK,
            moved
            | {
                "status": machine.wire_status(new),
                "stage": new.stage.value,
                "attempt": new.attempt,
                "attempt_id": str(new.attempt_id) if new.attempt_id else None,
                "body": body_of(new),
                "face": encode(face_of(new)),
            },
        )
    yield from _of_attempts(old, change, now_ms)
    for seq, event in enumerate(change.events, old.event_seq + 1):
        data = encode(event.data)
        yield INSERT_EVENT, {"task_id": old.id, "seq": seq, "kind": event.kind, "data": data, "now_ms": now_ms}
    if change.output is not None:
        yield KEEP_RESULT, {"task_id": old.id, "output": change.output}
    notice = announcement(old, new)
    if notice:
        yield ANNOUNCE, notice


def _of_attempts(old: Task, change: Change, now_ms: int) -> Iterator[_Write]:
    """No rule ends an attempt and changes it otherwise at once: each row is touched by one of these."""
    new = change.task
    failure = encode(change.failure) if change.failure else None
    for attempt_id, state in change.ends:
        yield (
            END_ATTEMPT,
            {
                "id": str(attempt_id),
                "state": state.value,
                "now_ms": now_ms,
                "outcome_hash": change.outcome_hash,
                "report_id": change.report_id,
                "failure": failure,
                "job_status": machine.job_status(new, state, change.failure),
            },
        )
    if change.hands_over:
        handover = asdict(change.hands_over)
        of_job = {"job_tenant": new.tenant, "job_user": new.owner}
        of_job["job_status"] = machine.job_status(new, State.HANDED_OVER, None)
        deadline_ms = now_ms + change.hands_over.timeout_ms
        yield HAND_OVER, {"id": str(old.attempt_id), "deadline_ms": deadline_ms, **handover, **of_job}
    if change.sign_of_life:
        alive = change.sign_of_life
        yield (
            SIGN_OF_LIFE,
            {
                "id": str(alive.attempt_id),
                "deadline_ms": None if alive.timeout_ms is None else now_ms + alive.timeout_ms,
                "process_id": alive.process_id,
                "start_ids": encode(alive.start_ids) if alive.start_ids else None,
                "failure": failure,
            },
        )
    yield from _of_parsed_job(old, change)
    if change.reuse_as:
        yield (
            KEEP_PARSE,
            {
                "tenant": new.tenant,
                "fingerprint": change.reuse_as,
                "task_id": new.id,
                "markdown_key": new.artifacts.markdown_key or "",
                "parsed_key": new.artifacts.parsed_key or "",
                "now_ms": now_ms,
            },
        )
    if change.opens:
        yield INSERT_ATTEMPT, attempt_row(_attempt(old.id, change.opens, now_ms), old.wishes.priority)
    elif change.opened:
        taken = change.opened
        yield (
            CLAIM_ATTEMPT,
            {
                "id": str(taken.id),
                "owner": taken.owner,
                "now_ms": taken.started_ms,
                "lease_ms": taken.lease_ms,
            },
        )


def _of_parsed_job(old: Task, change: Change) -> Iterator[_Write]:
    """A job that delivered its result goes on with its task: through the stages that follow, to the task's end."""
    job_id, new = change.task.job_id, change.task
    if (old.status, old.stage) == (new.status, new.stage):
        return
    if job_id is None or any(job_id == attempt_id for attempt_id, _ in change.ends):
        return
    status = machine.job_status(new, State.SUCCEEDED, None)
    if status != machine.job_status(old, State.SUCCEEDED, None):
        yield MOVE_JOB, {"id": str(job_id), "job_status": status}


def attempt_row(attempt: Attempt, priority: int) -> dict[str, Any]:
    return {
        "id": str(attempt.id),
        "task_id": attempt.task_id,
        "number": attempt.number,
        "stage": attempt.stage.value,
        "state": attempt.state.value,
        "priority": priority,
        "owner": attempt.owner,
        "due_ms": attempt.due_ms,
        "lease_ms": attempt.lease_ms,
        "started_ms": attempt.started_ms,
    }


def _write(rows: Mapping[Bulk, Sequence[dict[str, Any]]], changed: Mapping[int, tuple[Task, Task]]) -> Op[None]:
    rows = {**rows, COUNT: _recount(changed.values())}
    also = [statement.of(rows[statement]) for statement in _AT_ONCE if rows.get(statement)]
    *first, last = [statement.of(rows[statement]) for statement in (MOVE_TASK, UPDATE_TASK) if rows.get(statement)]
    written = 0
    for update in first:
        written += len((yield update))
    written += len((yield Together([last, *also])))
    if written != len(changed):
        raise Unavailable("ledger_busy", task=min(changed))
    if KEEP_PARSE in rows:
        # After the counts, as where tasks are removed; and of two that parsed the same the later one is kept.
        kept = {(row["tenant"], row["fingerprint"]): row for row in rows[KEEP_PARSE]}
        yield KEEP_PARSE.of([kept[key] for key in sorted(kept)])
    for old, new in changed.values():
        if not (yield from tombstones.borrow(old, new)):
            raise Unavailable("ledger_busy", task=old.id)


def _recount(changed: Iterable[tuple[Task, Task]]) -> list[dict[str, Any]]:
    """In the order of their keys, so that two transactions never wait for each other."""
    counts: dict[tuple[str, str, int, str], dict[str, Any]] = {}
    for old, new in changed:
        if (old.status, old.stage) == (new.status, new.stage):
            continue
        for task, by in ((old, -1), (new, 1)):
            key = (task.tenant, task.owner, task.project_id, machine.wire_status(task))
            counts.setdefault(key, count_row(task, 0))["by"] += by
    return [row for _, row in sorted(counts.items(), key=itemgetter(0)) if row["by"]]


def count_row(task: Task, by: int) -> dict[str, Any]:
    return {
        "tenant": task.tenant,
        "owner": task.owner,
        "project_id": task.project_id,
        "status": machine.wire_status(task),
        "by": by,
    }
