"""Progress of many jobs in one transaction: what workers report most often costs the least.

The rule is that of every other decision, and a test holds both ways against each other. But no task is built and taken
apart again: of a row, progress changes four numbers. The face stays as it was, for whoever shows it puts the numbers in
(`core.face.moved`). Columns that progress cannot change are left alone, for most of them are in an index. And a batch
takes as many statements as one report.

How a report left its job is remembered. Whatever else changes a job moves the version of its task on: as long as that
stands where we left it, nothing of the job needs to be read again.

Where one process alone changes tasks, reports go *ahead* into the daybook, and from there to their tasks when somebody
looks. A task's row then stands at the version that it had before them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from docmill.adapters.sql import daybook
from docmill.adapters.sql.database import Database
from docmill.adapters.sql.rows import STAGE_OF, STATE_OF, STATUS_OF, TASK_COLUMNS, body_of, encode, task_of
from docmill.adapters.sql.statement import Op, Row, Statement
from docmill.core import machine
from docmill.core.face import face_of
from docmill.core.machine import Verdict
from docmill.core.reports import Progress
from docmill.ports import Heard

LOOK = Statement(
    """
    SELECT {now}, id, version FROM tasks
    WHERE id IN (SELECT CAST(value AS BIGINT) FROM {each}(CAST(:ids AS {json}))) ORDER BY id {lock}
    """
)
LOAD = Statement(
    """
    SELECT a.id, t.id, t.version, t.event_seq, t.progress, t.updated_ms, t.attempt_id, t.status,
           a.stage, a.state, a.token_hash, a.process_id, a.lease_ms, a.deadline_ms, a.timeout_ms, a.failure, t.version
    FROM tasks t JOIN attempts a ON a.task_id = t.id
    WHERE a.id IN (SELECT value FROM {each}(CAST(:ids AS {json})))
    ORDER BY t.id {lock}
    """
)
LOAD_WHOLE = Statement(f"SELECT {TASK_COLUMNS} FROM tasks WHERE id = :id")
UPDATE_TASK = Statement(
    """
    UPDATE tasks SET version = :version, event_seq = :event_seq, progress = :progress, updated_ms = :now_ms
    WHERE id = :id
    """
)
NAME_PROCESS = Statement("UPDATE tasks SET body = :body, face = :face WHERE id = :id")
SIGN_OF_LIFE = Statement(
    """
    UPDATE attempts SET deadline_ms = :deadline_ms, lease_ms = NULL, process_id = :process_id, failure = NULL
    WHERE id = :id
    """
)
INSERT_EVENT = Statement(
    "INSERT INTO events (task_id, seq, kind, data, at_ms) VALUES (:task_id, :seq, 'progress', :data, :now_ms)"
)

MOST_SLACK_MS = 5_000
MOST_KNOWN = 4096
BRIEF = 128
"""Reports that take about a millisecond to write."""


@dataclass(slots=True)
class _Job:
    """What a report needs of a job and its task, and what it makes of them."""

    id: str
    task_id: int
    version: int
    event_seq: int
    progress: int
    updated_ms: int
    current_id: str | None
    status: str
    stage: str
    state: str
    token_hash: str | None
    process_id: str | None
    lease_ms: int | None
    deadline_ms: int | None
    timeout_ms: int | None
    failure: str | None
    """An error that the worker logged, and that progress makes void."""
    stored: int
    """The version of the task's row. It may be behind, until the daybook is posted."""

    def stands_at(self, stored: int | None) -> bool:
        """Whether nothing but our reports has changed the task, posted or not."""
        if stored is None or stored not in (self.stored, self.version):
            return False
        self.stored = stored
        return True

    def judge(self, heard: Heard) -> Verdict:
        return machine.may_report(
            is_current=self.current_id == self.id,
            status=STATUS_OF[self.status],
            state=STATE_OF[self.state],
            is_holder=self.token_hash == heard.token_hash,
        )

    def move(self, said: Progress, now_ms: int) -> Row:
        """Moves its task on; the line for the task's log."""
        self.progress = machine.reached(STAGE_OF[self.stage], said.percent, self.progress)
        self.version += 1
        self.event_seq += 1
        self.updated_ms = max(self.updated_ms, now_ms)  # the clock may have been set back
        data = machine.progress_said(self.progress, said.phase, said.message, said.percent)
        return self.task_id, self.event_seq, self.version, self.progress, self.updated_ms, encode(data), now_ms

    def lives(self, process_id: str | None, now_ms: int) -> bool:
        """A sign of life; whether it changes the row.

        The deadline is set a little later than it must be, so that not every report has to move it.
        """
        due_ms = now_ms + (self.timeout_ms or 0)
        latest_ms = due_ms + min((self.timeout_ms or 0) // 20, MOST_SLACK_MS)
        is_new = process_id is not None and process_id != self.process_id
        # One further ahead is from before the clock was set back, and may have been mended since.
        is_ahead = self.deadline_ms is not None and due_ms <= self.deadline_ms <= latest_ms
        if not is_new and self.lease_ms is None and self.failure is None and is_ahead:
            return False
        self.process_id = process_id or self.process_id
        self.lease_ms = self.failure = None
        self.deadline_ms = latest_ms
        return True


class ProgressLog:
    """One for each ledger."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._left: dict[str, _Job] = {}
        """As our last report left them, the newest last."""
        # What is not posted yet is known from here alone: no two may go ahead of the same row.
        self._turn = asyncio.Lock() if database.puts_off else nullcontext()

    async def write(self, reports: Sequence[Heard]) -> list[Verdict | None]:
        """What became of each report."""
        async with self._turn:
            return await self._write(reports)

    async def _write(self, reports: Sequence[Heard]) -> list[Verdict | None]:
        # Whatever happens on the way, what is not committed is not remembered.
        known = {heard.job_id: job for heard in reports if (job := self._left.pop(heard.job_id, None))}
        ahead = self._database.puts_off
        # For strangers the daybook is posted first, which may take its time.
        brief = len(reports) <= BRIEF and (len(known) == len(reports) or not ahead)
        op = record(reports, known, ahead=ahead)
        verdicts, moved = await self._database.write(op, brief=brief, later=daybook.post if ahead else None)
        self._left |= moved
        while len(self._left) > MOST_KNOWN:
            del self._left[next(iter(self._left))]
        return verdicts


def record(
    reports: Sequence[Heard], known: Mapping[str, _Job], *, ahead: bool
) -> Op[tuple[list[Verdict | None], dict[str, _Job]]]:
    """What became of each report, and the jobs that moved. Rows are locked in the order of their tasks, so that two
    batches never deadlock, and a task before its job, as by everybody else."""
    rows = yield LOOK(ids=encode([heard.task_id for heard in reports]))
    now_ms: int = rows[0][0] if rows else 0
    versions = {row[1]: row[2] for row in rows}
    jobs = {job.id: job for job in known.values() if job.stands_at(versions.get(job.task_id))}
    if strange := [heard.job_id for heard in reports if heard.job_id not in jobs]:
        if ahead:
            yield from daybook.post()
            for posted in jobs.values():
                posted.stored = posted.version
        rows = yield LOAD(ids=encode(strange))
        jobs |= {row[0]: _Job(*row) for row in rows}

    verdicts: list[Verdict | None] = []
    lines: list[Row] = []
    moved: dict[str, _Job] = {}
    alive: list[Row] = []
    for heard in reports:
        job = jobs.get(heard.job_id)
        if job is None or job.task_id != heard.task_id:
            verdicts.append(None)
            continue
        verdict = job.judge(heard)
        verdicts.append(verdict)
        if verdict is Verdict.APPLIED:
            process_id = heard.progress.process_id
            if process_id not in (None, job.process_id):
                yield from _name_process(job.task_id, process_id)
            moved[job.id] = job
            lines.append(job.move(heard.progress, now_ms))
            if job.lives(process_id, now_ms):
                alive.append((job.deadline_ms, job.process_id, job.id))
    if moved and ahead:
        yield daybook.ENTER.many(lines)
    elif moved:
        yield UPDATE_TASK.many(
            [(job.version, job.event_seq, job.progress, job.updated_ms, job.task_id) for job in moved.values()]
        )
        yield INSERT_EVENT.many([(task_id, seq, data, at_ms) for task_id, seq, _, _, _, data, at_ms in lines])
    if alive:
        yield SIGN_OF_LIFE.many(alive)
    return verdicts, moved


def _name_process(task_id: int, process_id: str | None) -> Op[None]:
    """The worker's own name for the job is told once, and then only repeated."""
    rows = yield LOAD_WHOLE(id=task_id)
    task = replace(task_of(rows[0]), provider_task_id=process_id)
    yield NAME_PROCESS(id=task_id, body=body_of(task), face=encode(face_of(task)))
