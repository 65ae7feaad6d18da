"""Progress of many jobs in one transaction: what workers report most often costs the least.

The rule is that of every other decision, and a test holds both ways against each other. But no task is built and taken
apart again: of a row, progress changes two numbers and three places of its face. Columns that it cannot change are left
alone, for most of them are in an index. And a batch takes as many statements as one report.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.rows import STAGE_OF, STATE_OF, STATUS_OF, TASK_COLUMNS, body_of, decode, encode, task_of
from docmill.adapters.sql.statement import Op, Row, Statement
from docmill.core import machine
from docmill.core.face import iso
from docmill.core.machine import Verdict
from docmill.core.reports import Progress
from docmill.core.task import Stage
from docmill.ports import Heard

LOAD_TASKS = Statement(
    """
    SELECT id, event_seq, progress, updated_ms, face, attempt_id, status FROM tasks
    WHERE id IN (SELECT CAST(value AS BIGINT) FROM {each}(CAST(:ids AS {json})))
    ORDER BY id {lock}
    """
)
LOAD_JOBS = Statement(
    """
    SELECT {now}, id, stage, state, token_hash, process_id, lease_ms, deadline_ms, timeout_ms FROM attempts
    WHERE id IN (SELECT value FROM {each}(CAST(:ids AS {json})))
    """
)
LOAD_WHOLE = Statement(f"SELECT {TASK_COLUMNS} FROM tasks WHERE id = :id")
UPDATE_TASK = Statement(
    """
    UPDATE tasks SET version = version + 1, event_seq = :event_seq, progress = :progress, face = :face,
           updated_ms = :now_ms
    WHERE id = :id
    """
)
SET_BODY = Statement("UPDATE tasks SET body = :body WHERE id = :id")
SIGN_OF_LIFE = Statement(
    "UPDATE attempts SET deadline_ms = :deadline_ms, lease_ms = NULL, process_id = :process_id WHERE id = :id"
)
INSERT_EVENT = Statement(
    "INSERT INTO events (task_id, seq, kind, data, at_ms) VALUES (:task_id, :seq, :kind, :data, :now_ms)"
)

MOST_SLACK_MS = 5_000
_PROGRESS = ',"progress":'
_MOVING = re.compile(_PROGRESS + r'\d+(,"created_at":"[^"]*","updated_at":")[^"]*')
"""The two places of a face that every report changes. A quote inside a text is escaped, so this finds only keys."""


@dataclass(slots=True)
class _Task:
    """A row, and what the batch makes of it."""

    id: int
    event_seq: int
    progress: int
    updated_ms: int
    face: str
    attempt_id: str | None
    status: str


@dataclass(slots=True)
class _Job:
    now_ms: int
    id: str
    stage: str
    state: str
    token_hash: str | None
    process_id: str | None
    lease_ms: int | None
    deadline_ms: int | None
    timeout_ms: int | None

    def lives(self, process_id: str | None, now_ms: int) -> bool:
        """A sign of life; whether it changes the row.

        The deadline is set a little later than it must be, so that not every report has to move it.
        """
        due_ms = now_ms + (self.timeout_ms or 0)
        is_new = process_id is not None and process_id != self.process_id
        if not is_new and self.lease_ms is None and self.deadline_ms is not None and self.deadline_ms >= due_ms:
            return False
        self.process_id = process_id or self.process_id
        self.lease_ms = None
        self.deadline_ms = due_ms + min((self.timeout_ms or 0) // 20, MOST_SLACK_MS)
        return True


def _moved(face: str, progress: int, updated_at: str) -> str:
    found = _MOVING.search(face, max(0, face.find(_PROGRESS)))
    if found is None:
        raise ValueError("a face without progress")
    return f'{face[: found.start()]},"progress":{progress}{found[1]}{updated_at}{face[found.end() :]}'


async def write(database: Database, reports: Sequence[Heard]) -> list[Verdict | None]:
    return await database.write(record(reports))


def record(reports: Sequence[Heard]) -> Op[list[Verdict | None]]:
    """What became of each report. Rows are locked in the order of their ids, so that two batches never deadlock.

    The jobs are read when their tasks are locked: whoever ends a job or hands it to another has locked its task.
    """
    rows = yield LOAD_TASKS(ids=encode([heard.task_id for heard in reports]))
    tasks = {row[0]: _Task(*row) for row in rows}
    rows = yield LOAD_JOBS(ids=encode([heard.job_id for heard in reports]))
    jobs = {row[1]: _Job(*row) for row in rows}
    now_ms: int = rows[0][0] if rows else 0
    now = iso(now_ms)

    verdicts: list[Verdict | None] = []
    events: list[Row] = []
    alive: list[Row] = []
    for heard in reports:
        task, job = tasks.get(heard.task_id), jobs.get(heard.job_id)
        if task is None or job is None:
            verdicts.append(None)
            continue
        verdict = _judge(heard, task, job)
        verdicts.append(verdict)
        if verdict is Verdict.APPLIED:
            if not _is_named(task, job, heard.progress.process_id):
                yield from _name_process(task, heard.progress.process_id)
            events.append(_apply(task, STAGE_OF[job.stage], heard.progress, now_ms, now))
            if job.lives(heard.progress.process_id, now_ms):
                alive.append((job.deadline_ms, job.process_id, job.id))
    if events:
        changed = [tasks[number] for number in dict.fromkeys(event[0] for event in events)]
        yield UPDATE_TASK.many([(one.event_seq, one.progress, one.face, one.updated_ms, one.id) for one in changed])
        yield INSERT_EVENT.many(events)
    if alive:
        yield SIGN_OF_LIFE.many(alive)
    return verdicts


def _judge(heard: Heard, task: _Task, job: _Job) -> Verdict:
    return machine.may_report(
        is_current=task.attempt_id == job.id,
        status=STATUS_OF[task.status],
        state=STATE_OF[job.state],
        is_holder=job.token_hash == heard.token_hash,
    )


def _is_named(task: _Task, job: _Job, process_id: str | None) -> bool:
    """The worker's own name for the job is told once, and then only repeated. Task and job learn it together."""
    if process_id is None or process_id == job.process_id:
        return True
    return f'"provider_task_id":{encode(process_id)},' in task.face


def _name_process(task: _Task, process_id: str | None) -> Op[None]:
    face = decode(task.face)
    face["metadata"]["provider_task_id"] = process_id
    task.face = encode(face)
    rows = yield LOAD_WHOLE(id=task.id)
    yield SET_BODY(id=task.id, body=body_of(replace(task_of(rows[0]), provider_task_id=process_id)))


def _apply(task: _Task, stage: Stage, said: Progress, now_ms: int, now: str) -> Row:
    """Moves the task on; the line for its log."""
    task.progress = machine.reached(stage, said.percent, task.progress)
    task.event_seq += 1
    if task.updated_ms > now_ms:  # a clock that was set back
        now = iso(task.updated_ms)
    else:
        task.updated_ms = now_ms
    task.face = _moved(task.face, task.progress, now)
    data = machine.progress_said(task.progress, said.phase, said.message)
    return task.id, task.event_seq, "progress", encode(data), now_ms
