"""A task, its attempts and its events, as values. What may happen to them is in `machine`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID


class Word(StrEnum):
    """Equal to its text, and so hashed as its text: enums hash their name, and slowly."""

    __hash__ = str.__hash__


class Status(Word):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in FINAL


FINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})


class Stage(Word):
    PARSE = "parse"
    POSTPROCESS = "postprocess"
    PUBLISH = "publish"

    @property
    def next(self) -> Stage | None:
        return {Stage.PARSE: Stage.POSTPROCESS, Stage.POSTPROCESS: Stage.PUBLISH, Stage.PUBLISH: None}[self]


class State(Word):
    """Of an attempt."""

    QUEUED = "queued"
    RUNNING = "running"
    HANDED_OVER = "handed_over"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DROPPED = "dropped"
    """Cancelled, superseded or given up: what it still reports changes nothing."""
    GIVEN_BACK = "given_back"


PROGRESS: dict[Stage, tuple[int, int]] = {
    Stage.PARSE: (10, 55),
    Stage.POSTPROCESS: (60, 75),
    Stage.PUBLISH: (80, 95),
}
"""Progress within a stage. The seed's `postprocess` (60-95) is our postprocess and publish."""


@dataclass(frozen=True, slots=True)
class TwinWish:
    """Where the twin is wanted. `folder` is relative to the library's root, or an absolute path inside it."""

    folder: str = ""
    layout: Literal["folder", "sidecar"] = "folder"
    force: bool = False


@dataclass(frozen=True, slots=True)
class MountWish:
    table_id: int
    json_path: str = ""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the submitter asked for beyond the plain run."""

    workflow_id: str = "etl"
    engine: str | None = None
    no_cache: bool = False
    twin: TwinWish | None = None
    mount: MountWish | None = None
    priority: int = 0
    parse: dict[str, Any] = field(default_factory=dict)
    """Options of the engine: language, ocr, page_images, max_pages."""
    trace: str = ""
    """The trace that the task belongs to, as W3C's `traceparent`."""


@dataclass(frozen=True, slots=True)
class WorkerError:
    """An error in the words of the external worker that reported it."""

    code: str | None = None
    message: str = ""
    details: Any = None
    """A small JSON value."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a task or attempt failed. `code` is stable; `stage` is the wire's `error_stage`."""

    code: str
    message: str
    stage: str
    worker_error: WorkerError | None = None


@dataclass(frozen=True, slots=True)
class Artifacts:
    """Keys of what the stages left in the object store."""

    markdown_key: str | None = None
    parsed_key: str | None = None
    output_key: str | None = None
    extraction_key: str | None = None
    """How a language model came to the output, or what it said last when it did not."""


@dataclass(frozen=True, slots=True)
class Task:
    id: int
    tenant: str
    owner: str
    project_id: int
    filename: str
    source_key: str
    rule_id: int
    status: Status
    stage: Stage
    attempt: int
    """Counts the tries of the whole task: 1, and one more with each retry, by hand or by itself."""
    attempt_id: UUID | None
    version: int
    """Rises with every change; a write expects the version it read."""
    event_seq: int
    progress: int = 0
    run: int = 1
    """Counts the retries by hand: each run makes a version of the document of its own."""
    wishes: Wishes = field(default_factory=Wishes)
    artifacts: Artifacts = field(default_factory=Artifacts)
    fault: Fault | None = None
    errors: int = 0
    """Retryable errors of the current stage since the last retry by hand."""
    crashes: int = 0
    """Parsers that died on the current stage: counted apart from errors."""
    lost_workers: int = 0
    """Workers that vanished during the current stage, whatever killed them."""
    lost_alone: int = 0
    """Of these, the ones that had no other document at that time."""
    runs_alone: bool = False
    """The current attempt is the only one of its worker."""
    source_sha256: str | None = None
    source_size: int | None = None
    engine: str | None = None
    cache_hit: bool = False
    pages_done: int | None = None
    pages_total: int | None = None
    damaged_pages: tuple[int, ...] = ()
    missing_archives: tuple[str, ...] = ()
    """Fields of a worker's report whose address could not be fetched: the document lacks these images."""
    provider_task_id: str | None = None
    job_id: UUID | None = None
    """The attempt that an external worker parsed, or parses."""
    document_id: UUID | None = None
    twin_path: str | None = None
    mounted_path: str | None = None
    mount_table_id: int | None = None
    """The table that the output was last mounted into."""
    created_ms: int = 0
    updated_ms: int = 0

    @property
    def is_final(self) -> bool:
        return self.status.is_final


@dataclass(frozen=True, slots=True)
class Attempt:
    id: UUID
    task_id: int
    number: int
    stage: Stage
    state: State
    owner: str | None = None
    """The worker that holds the lease."""
    due_ms: int = 0
    lease_ms: int | None = None
    deadline_ms: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    worker: str | None = None
    """The external worker that the attempt was handed to; with it the attempt is a job."""
    dialect: str | None = None
    token_hash: str | None = None
    process_id: str | None = None
    """What the worker calls it."""
    timeout_ms: int | None = None
    """How long the worker may be silent."""
    outcome_hash: str | None = None
    """Of the report that ended it: the same one again is a duplicate, another one a conflict."""
    failure: Fault | None = None
    """Why it failed. While the job runs: an error that the worker reported, and that fails the job at its deadline."""
    start_ids: tuple[str, ...] = ()
    """The ids in the worker's answer to the start request. Its reports may carry another one (`process_id`)."""
    job_status: str | None = None
    """What pollers see as the status of the job; None if the attempt is no job."""

    @property
    def worker_ids(self) -> tuple[str, ...]:
        """Every id by which the worker may know the job."""
        return tuple(dict.fromkeys([*self.start_ids, *([self.process_id] if self.process_id else [])]))

    @property
    def is_job(self) -> bool:
        return self.dialect is not None

    @property
    def is_out(self) -> bool:
        """An external worker has it, and has said so. Until then our own worker holds the lease."""
        return self.state is State.HANDED_OVER and self.lease_ms is None

    @property
    def has_ended(self) -> bool:
        return self.state in (State.SUCCEEDED, State.FAILED)


@dataclass(frozen=True, slots=True)
class Event:
    kind: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event as the log holds it: numbered within its task, stamped by the database's clock."""

    task_id: int
    seq: int
    kind: str
    data: dict[str, Any]
    at_ms: int
