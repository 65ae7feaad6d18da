"""Progress of many jobs in one transaction: what workers report most often costs the least.

The rule and the compare-and-set are those of every other decision, and a test holds both ways against each other. But
no task is built and taken apart again: of a row, progress changes two numbers and three places of its face. Columns
that it cannot change are left alone, for most of them are in an index.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.rows import STAGE_OF, STATE_OF, STATUS_OF, TASK_COLUMNS, body_of, decode, encode, task_of
from docmill.adapters.sql.statement import Op, Row, Statement
from docmill.core import machine
from docmill.core.errors import Unavailable
from docmill.core.face import iso
from docmill.core.machine import Verdict
from docmill.core.task import Stage
from docmill.ports import Heard

LOAD_TASK = Statement(
    "SELECT version, event_seq, progress, updated_ms, face, attempt_id, status, {now} FROM tasks WHERE id = :id {lock}"
)
LOAD_ATTEMPT = Statement("SELECT stage, state, token_hash FROM attempts WHERE id = :id")
LOAD_WHOLE = Statement(f"SELECT {TASK_COLUMNS} FROM tasks WHERE id = :id")
UPDATE_TASK = Statement(
    """
    UPDATE tasks SET version = version + 1, event_seq = :event_seq, progress = :progress, face = :face,
           updated_ms = :now_ms
    WHERE id = :id AND version = :version
    RETURNING id
    """
)
SET_BODY = Statement("UPDATE tasks SET body = :body WHERE id = :id")
SIGN_OF_LIFE = Statement(
    """
    UPDATE attempts SET deadline_ms = CAST(:now_ms AS BIGINT) + timeout_ms, lease_ms = NULL,
           process_id = COALESCE(:process_id, process_id)
    WHERE id = :id
    """
)
INSERT_EVENT = Statement(
    "INSERT INTO events (task_id, seq, kind, data, at_ms) VALUES (:task_id, :seq, :kind, :data, :now_ms)"
)


LANES = 8
"""Transactions at once where the database takes more than one: each statement there is a round trip."""


async def write(database: Database, reports: Sequence[Heard]) -> list[Verdict | None]:
    lanes = 1 if database.dialect == "sqlite" else min(LANES, len(reports))
    if lanes <= 1:
        return await database.write(record(reports))
    found = await asyncio.gather(*(database.write(record(reports[lane::lanes])) for lane in range(lanes)))
    return [found[n % lanes][n // lanes] for n in range(len(reports))]


def record(reports: Sequence[Heard]) -> Op[list[Verdict | None]]:
    """What became of each report. Rows are locked in the order of their ids, so that two batches never deadlock."""
    verdicts: list[Verdict | None] = [None] * len(reports)
    for n in sorted(range(len(reports)), key=lambda n: reports[n].task_id):
        heard = reports[n]
        job = str(heard.job_id)
        tasks = yield LOAD_TASK(id=heard.task_id)
        attempts = yield LOAD_ATTEMPT(id=job)
        if tasks and attempts:
            verdicts[n] = verdict = _judge(heard, job, tasks[0], attempts[0])
            if verdict is Verdict.APPLIED:
                yield from _write(heard, job, tasks[0], STAGE_OF[attempts[0][0]])
    return verdicts


def _judge(heard: Heard, job: str, task: Row, attempt: Row) -> Verdict:
    return machine.may_report(
        is_current=task[5] == job,
        status=STATUS_OF[task[6]],
        state=STATE_OF[attempt[1]],
        is_holder=attempt[2] == heard.token_hash,
    )


def _write(heard: Heard, job: str, task: Row, stage: Stage) -> Op[None]:
    version, event_seq, progress, updated_ms, face_text, _, _, now_ms = task
    said = heard.progress
    progress = machine.reached(stage, said.percent, progress)
    face = decode(face_text)
    metadata = face["metadata"]
    if said.process_id and said.process_id != metadata["provider_task_id"]:
        metadata["provider_task_id"] = said.process_id
        rows = yield LOAD_WHOLE(id=heard.task_id)
        yield SET_BODY(id=heard.task_id, body=body_of(replace(task_of(rows[0]), provider_task_id=said.process_id)))
    updated_ms = max(now_ms, updated_ms)
    face["progress"], face["updated_at"] = progress, iso(updated_ms)
    written = yield UPDATE_TASK(
        id=heard.task_id,
        version=version,
        event_seq=event_seq + 1,
        progress=progress,
        face=encode(face),
        now_ms=updated_ms,
    )
    if not written:
        raise Unavailable("ledger_busy", task=heard.task_id)
    yield SIGN_OF_LIFE(id=job, now_ms=now_ms, process_id=said.process_id)
    event = machine.progress_said(progress, said.phase, said.message)
    yield INSERT_EVENT(
        task_id=heard.task_id, seq=event_seq + 1, kind=event.kind, data=encode(event.data), now_ms=now_ms
    )
