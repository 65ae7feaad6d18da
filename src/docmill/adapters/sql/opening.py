"""A task is opened: its row, its first attempt and the first line of its log, in one transaction."""

from __future__ import annotations

from uuid import UUID

from docmill.adapters.sql.decisions import COUNT, INSERT_ATTEMPT, INSERT_EVENT, attempt_row, count_row
from docmill.adapters.sql.outbox import ANNOUNCE, announcement
from docmill.adapters.sql.rows import TASK_COLUMNS, encode, task_of, wishes_body
from docmill.adapters.sql.statement import Op, Statement, Together
from docmill.core.errors import Gone, Invalid
from docmill.core.face import face_of
from docmill.core.task import Attempt, Fault, Stage, State, Status, Task
from docmill.ports import NewTask, Once

INSERT_TASK = Statement(
    f"""
    INSERT INTO tasks (tenant, owner, project_id, filename, source_key, rule_id, status, stage, attempt, attempt_id,
                       version, event_seq, progress, body, face, created_ms, updated_ms)
    SELECT :tenant, :owner, :project_id, :filename, :source_key, :rule_id, :status, 'parse', 1, :attempt_id,
           1, :event_seq, 0, :body, '', now_ms, now_ms FROM (SELECT {{now}} AS now_ms) AS clock
    RETURNING {TASK_COLUMNS}
    """
)
SET_FACE = Statement("UPDATE tasks SET face = :face WHERE id = :id")
GET_TASK = Statement(f"SELECT {TASK_COLUMNS} FROM tasks WHERE id = :id")
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


class OnceTaken(Exception):
    """Another request with the same key committed between our look and our write."""


def open_task(new: NewTask, attempt_id: UUID, once: Once | None) -> Op[tuple[Task, bool]]:
    if once is not None:
        seen = yield ONCE(tenant=new.tenant, owner=new.owner, key=once.key)
        if seen:
            if not once.is_same(seen[0][0]):
                raise Invalid("idempotency_mismatch")
            rows = yield GET_TASK(id=seen[0][1])
            if not rows:
                raise Gone("task_expired", task=seen[0][1])
            return task_of(rows[0]), False
    fault = Fault("upload_failed", new.upload_fault, "upload") if new.upload_fault is not None else None
    task = yield from _insert(new, attempt_id, fault)
    if once is not None:
        kept = yield KEEP_ONCE(
            tenant=new.tenant, owner=new.owner, key=once.key, fingerprint=once.fingerprint, task_id=task.id
        )
        if not kept:
            raise OnceTaken
    lines = [("submitted", {"filename": new.filename, "size": new.source_size})]
    if fault:
        lines.append(("failed", {"code": fault.code, "message": fault.message, "error_stage": fault.stage}))
    events = [
        {"task_id": task.id, "seq": seq, "kind": kind, "data": encode(said), "now_ms": task.created_ms}
        for seq, (kind, said) in enumerate(lines, 1)
    ]
    changes = [
        SET_FACE(id=task.id, face=encode(face_of(task))),
        COUNT.of([count_row(task, 1)]),
        INSERT_EVENT.of(events),
    ]
    if not fault:
        first = Attempt(attempt_id, task.id, 1, Stage.PARSE, State.QUEUED, due_ms=task.created_ms)
        changes.append(INSERT_ATTEMPT.of([attempt_row(first, new.wishes.priority)]))
    notice = announcement(None, task)
    if notice:
        changes.append(ANNOUNCE.of([notice]))
    yield Together(changes)
    return task, True


def _insert(new: NewTask, attempt_id: UUID, fault: Fault | None) -> Op[Task]:
    rows = yield INSERT_TASK(
        tenant=new.tenant,
        owner=new.owner,
        project_id=new.project_id,
        filename=new.filename,
        source_key=new.source_key,
        rule_id=new.rule_id,
        status=(Status.FAILED if fault else Status.PENDING).value,
        attempt_id=None if fault else str(attempt_id),
        event_seq=2 if fault else 1,
        body=wishes_body(new, fault),
    )
    return task_of(rows[0])
