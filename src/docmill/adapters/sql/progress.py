"""Progress of many jobs in one transaction: what workers report most often costs the least.

The rule is that of every other decision, and a test holds both ways against each other. But no task is built and taken
apart again: of a row, progress changes four numbers. The face stays as it was, for whoever shows it puts the numbers in
(`core.face.moved`). Columns that progress cannot change are left alone, for most of them are in an index. And a batch
takes as many statements as one report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.rows import STAGE_OF, STATE_OF, STATUS_OF, TASK_COLUMNS, body_of, encode, task_of
from docmill.adapters.sql.statement import Op, Row, Statement
from docmill.core import machine
from docmill.core.face import face_of
from docmill.core.machine import Verdict
from docmill.core.reports import Progress
from docmill.core.task import Stage
from docmill.ports import Heard

LOAD = Statement(
    """
    SELECT {now}, t.id, t.event_seq, t.progress, t.updated_ms, t.attempt_id, t.status,
           a.id, a.stage, a.state, a.token_hash, a.process_id, a.lease_ms, a.deadline_ms, a.timeout_ms
    FROM tasks t JOIN attempts a ON a.task_id = t.id
    WHERE a.id IN (SELECT value FROM {each}(CAST(:ids AS {json})))
    ORDER BY t.id {lock}
    """
)
LOAD_WHOLE = Statement(f"SELECT {TASK_COLUMNS} FROM tasks WHERE id = :id")
UPDATE_TASK = Statement(
    """
    UPDATE tasks SET version = version + 1, event_seq = :event_seq, progress = :progress, updated_ms = :now_ms
    WHERE id = :id
    """
)
NAME_PROCESS = Statement("UPDATE tasks SET body = :body, face = :face WHERE id = :id")
SIGN_OF_LIFE = Statement(
    "UPDATE attempts SET deadline_ms = :deadline_ms, lease_ms = NULL, process_id = :process_id WHERE id = :id"
)
INSERT_EVENT = Statement(
    "INSERT INTO events (task_id, seq, kind, data, at_ms) VALUES (:task_id, :seq, :kind, :data, :now_ms)"
)

MOST_SLACK_MS = 5_000
BRIEF = 128
"""Reports that take about a millisecond to write."""


@dataclass(slots=True)
class _Task:
    """A row, and what the batch makes of it."""

    id: int
    event_seq: int
    progress: int
    updated_ms: int
    attempt_id: str | None
    status: str


@dataclass(slots=True)
class _Job:
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


async def write(database: Database, reports: Sequence[Heard]) -> list[Verdict | None]:
    return await database.write(record(reports), brief=len(reports) <= BRIEF)


def record(reports: Sequence[Heard]) -> Op[list[Verdict | None]]:
    """What became of each report. Rows are locked in the order of their tasks, so that two batches never deadlock, and
    a task before its job, as by everybody else."""
    rows = yield LOAD(ids=encode([heard.job_id for heard in reports]))
    tasks = {row[1]: _Task(*row[1:7]) for row in rows}
    jobs = {row[7]: _Job(*row[7:]) for row in rows}
    now_ms: int = rows[0][0] if rows else 0

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
            if heard.progress.process_id not in (None, job.process_id):
                yield from _name_process(task.id, heard.progress.process_id)
            events.append(_apply(task, STAGE_OF[job.stage], heard.progress, now_ms))
            if job.lives(heard.progress.process_id, now_ms):
                alive.append((job.deadline_ms, job.process_id, job.id))
    if events:
        changed = [tasks[number] for number in dict.fromkeys(event[0] for event in events)]
        yield UPDATE_TASK.many([(one.event_seq, one.progress, one.updated_ms, one.id) for one in changed])
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


def _name_process(task_id: int, process_id: str | None) -> Op[None]:
    """The worker's own name for the job is told once, and then only repeated."""
    rows = yield LOAD_WHOLE(id=task_id)
    task = replace(task_of(rows[0]), provider_task_id=process_id)
    yield NAME_PROCESS(id=task_id, body=body_of(task), face=encode(face_of(task)))


def _apply(task: _Task, stage: Stage, said: Progress, now_ms: int) -> Row:
    """Moves the task on; the line for its log."""
    task.progress = machine.reached(stage, said.percent, task.progress)
    task.event_seq += 1
    task.updated_ms = max(task.updated_ms, now_ms)  # the clock may have been set back
    data = machine.progress_said(task.progress, said.phase, said.message)
    return task.id, task.event_seq, "progress", encode(data), now_ms
