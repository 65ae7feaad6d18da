"""Rows to values and back. What lists filter by is a column; the rest of a task is one JSON text."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from docmill.adapters.sql.statement import Row
from docmill.core.task import Artifacts, Attempt, Fault, Stage, State, Status, Task, Wishes
from docmill.ports import NewTask

TASK_COLUMNS = (
    "id, tenant, owner, project_id, filename, source_key, rule_id, status, stage, attempt, attempt_id,"
    " version, event_seq, progress, body, created_ms, updated_ms"
)
ATTEMPT_COLUMNS = (
    "id, task_id, number, stage, state, owner, due_ms, lease_ms, deadline_ms, started_ms, ended_ms,"
    " worker, dialect, token_hash, process_id, timeout_ms, outcome_hash, failure, start_ids, job_status"
)
TASK_WIDTH = TASK_COLUMNS.count(",") + 1
ATTEMPT_WIDTH = ATTEMPT_COLUMNS.count(",") + 1


def of(table: str, columns: str) -> str:
    """The columns of one table in a join."""
    return ", ".join(f"{table}.{name.strip()}" for name in columns.split(","))


STATUS_OF = {"mineru_parsing": Status.RUNNING, "llm_processing": Status.RUNNING} | {
    status.value: status for status in Status
}
STAGE_OF = {stage.value: stage for stage in Stage}
STATE_OF = {state.value: state for state in State}


class Body(msgspec.Struct, omit_defaults=True):
    """The part of a task that no query looks into."""

    run: int = 1
    wishes: Wishes = msgspec.field(default_factory=Wishes)
    artifacts: Artifacts = msgspec.field(default_factory=Artifacts)
    fault: Fault | None = None
    errors: int = 0
    crashes: int = 0
    lost_workers: int = 0
    lost_alone: int = 0
    runs_alone: bool = False
    source_sha256: str | None = None
    source_size: int | None = None
    engine: str | None = None
    cache_hit: bool = False
    pages_done: int | None = None
    pages_total: int | None = None
    damaged_pages: tuple[int, ...] = ()
    missing_archives: tuple[str, ...] = ()
    provider_task_id: str | None = None
    job_id: UUID | None = None
    document_id: UUID | None = None
    twin_path: str | None = None
    mounted_path: str | None = None
    mount_table_id: int | None = None


FIELDS = Body.__struct_fields__
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Body)
_fault_decoder = msgspec.json.Decoder(Fault)


def encode(value: Any) -> str:
    return _encoder.encode(value).decode()


def decode(text: str) -> Any:
    return msgspec.json.decode(text)


def body_of(task: Task) -> str:
    return encode(Body(*[getattr(task, name) for name in FIELDS]))


def wishes_body(new: NewTask, fault: Fault | None) -> str:
    return encode(Body(wishes=new.wishes, fault=fault, source_size=new.source_size, source_sha256=new.source_sha256))


def task_of(row: Row) -> Task:
    body = _decoder.decode(row[14])
    # The fields of Body stand in Task's order; a test compares whole tasks.
    return Task(  # type: ignore[call-arg]
        row[0],
        row[1],
        row[2],
        row[3],
        row[4],
        row[5],
        row[6],
        STATUS_OF[row[7]],
        STAGE_OF[row[8]],
        row[9],
        UUID(row[10]) if row[10] else None,
        row[11],
        row[12],
        row[13],
        *[getattr(body, name) for name in FIELDS],
        row[15],
        row[16],
    )


def attempt_of(row: Row) -> Attempt:
    # The columns stand in Attempt's order; the conformance suite compares whole attempts.
    return Attempt(  # type: ignore[call-arg]
        UUID(row[0]),
        row[1],
        row[2],
        STAGE_OF[row[3]],
        STATE_OF[row[4]],
        *row[5:17],
        _fault_decoder.decode(row[17]) if row[17] else None,
        tuple(decode(row[18])) if row[18] else (),
        row[19],
    )
