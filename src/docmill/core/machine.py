"""The state machine. A transition takes values and returns a `Change`; it never awaits and has no clock.

Whoever saves a change writes it in one transaction, guarded by the task's version. Times are given as durations;
the database adds its own clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from uuid import UUID

from docmill.core.errors import Conflict, Invalid
from docmill.core.task import (
    PROGRESS,
    Artifacts,
    Attempt,
    Event,
    Fault,
    Stage,
    State,
    Status,
    Task,
)

MAX_ERRORS = 3
"""Tries of a stage that fails with a retryable error."""
MAX_ABSENCES = 8
"""Tries when somebody else's service does not answer: it may be restarting, which takes longer than an error."""
MAX_CRASHES = 3
"""Times that a document may kill its parser."""
SUSPECT_AFTER_LOST_WORKERS = 7
"""Workers that vanish under a task before its next attempt runs alone. Machines die for their own reasons, and take
innocent tasks along; only what happens to a task that runs alone says something about it."""
BACKOFF_MS = 1_000
MOST_BACKOFF_MS = 16_000
"""Eight tries are spread over a minute, in which a machine is up again, and nobody waits long after it is."""
MAX_POSTPONED_MS = 60_000
"""Between two tries of a stage that waits for room on the disk. A document that fills it itself hurts others less."""
SUSPICION_MS = 250
MAX_SUSPICION_MS = 1_000

WORKING = frozenset({State.RUNNING, State.HANDED_OVER})
WIRE_STAGE = {Stage.PARSE: "mineru", Stage.POSTPROCESS: "postprocess", Stage.PUBLISH: "postprocess"}


class Verdict(StrEnum):
    APPLIED = "applied"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    """The attempt has ended with another report."""
    SUPERSEDED = "superseded"
    REPLACED = "replaced"
    """The job has another token since: the sender no longer speaks for it."""


@dataclass(frozen=True, slots=True)
class Opening:
    """An attempt to be created: queued, or at once running for the worker that just finished the stage before."""

    id: UUID
    number: int
    stage: Stage
    owner: str | None = None
    lease_ms: int | None = None
    """For how long it is the owner's, until the first heartbeat."""
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class Handover:
    """The attempt becomes a job of an external worker."""

    worker: str
    dialect: str
    token_hash: str
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class SignOfLife:
    """Of a job: its deadline starts anew."""

    attempt_id: UUID
    timeout_ms: int | None
    """None: the deadline stays."""
    process_id: str | None
    start_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """What should be written: the task as it shall be, and what goes with it. Nothing, unless it was applied."""

    verdict: Verdict
    task: Task
    ends: tuple[tuple[UUID, State], ...] = ()
    opens: Opening | None = None
    hands_over: Handover | None = None
    sign_of_life: SignOfLife | None = None
    failure: Fault | None = None
    """Why the attempt in *ends* failed; with *sign_of_life*, why the job fails if no other report follows."""
    outcome_hash: str | None = None
    report_id: str | None = None
    """Of the final report that ends a job: the folder of its artifacts."""
    output: str | None = None
    """The task's output for lists, as JSON text; empty: too large for them; None: there is no new one."""
    reuse_as: str | None = None
    """The fingerprint under which the parse that is committed with it may be reused."""
    events: tuple[Event, ...] = ()
    opened: Attempt | None = None
    """Once it is written: the attempt that was opened for the worker itself."""

    @property
    def writes(self) -> bool:
        return self.verdict is Verdict.APPLIED or bool(self.events)


@dataclass(frozen=True, slots=True)
class StageResult:
    """What a stage that succeeded left behind. None: the task keeps what it had."""

    artifacts: Artifacts | None = None
    source_sha256: str | None = None
    reuse_as: str | None = None
    """The fingerprint under which others may reuse this parse, once it is committed."""
    engine: str | None = None
    cache_hit: bool | None = None
    pages: int | None = None
    damaged_pages: tuple[int, ...] = ()
    missing_archives: tuple[str, ...] = ()
    document_id: UUID | None = None
    twin_path: str | None = None
    mounted_path: str | None = None
    mount_table_id: int | None = None
    output: str | None = None
    """As in `Change`."""
    provider_task_id: str | None = None
    facts: dict[str, Any] | None = None


def claim(task: Task, attempt: Attempt, *, owner: str) -> Change:
    """A worker takes a queued attempt. Losing a twice-delivered one is normal."""
    if not _is_current(task, attempt) or attempt.state is not State.QUEUED or task.is_final:
        return Change(Verdict.SUPERSEDED, task)
    low, _ = PROGRESS[attempt.stage]
    return Change(
        Verdict.APPLIED,
        replace(task, status=Status.RUNNING, stage=attempt.stage, progress=max(task.progress, low)),
        events=(Event("started", {"stage": attempt.stage, "attempt": attempt.number, "worker": owner}),),
    )


def hand_over(task: Task, attempt: Attempt, handover: Handover) -> Change:
    """The attempt becomes a job. Saved before the worker is called, for it may answer before the call returns."""
    if not _is_working(task, attempt):
        return Change(Verdict.SUPERSEDED, task)
    said = {"stage": attempt.stage, "worker": handover.worker, "job_id": str(attempt.id)}
    return Change(
        Verdict.APPLIED, replace(task, job_id=attempt.id), hands_over=handover, events=(Event("handed_over", said),)
    )


def on_worker_progress(
    task: Task, attempt: Attempt, *, percent: float | None, phase: str, message: str, process_id: str | None
) -> Change:
    """An external worker is at work. Also the sign of life that its deadline waits for."""
    if attempt.has_ended:
        return Change(Verdict.CONFLICT, task)
    if not _is_working(task, attempt):
        return Change(Verdict.SUPERSEDED, task)
    progress = reached(attempt.stage, percent, task.progress)
    return Change(
        Verdict.APPLIED,
        replace(task, progress=progress, provider_task_id=process_id or task.provider_task_id),
        sign_of_life=SignOfLife(attempt.id, attempt.timeout_ms or 0, process_id),
        events=(Event("progress", progress_said(progress, phase, message, percent)),),
    )


def on_start_accepted(task: Task, attempt: Attempt, *, ids: tuple[str, ...]) -> Change:
    """The worker answered the start request. Its reports may have arrived before this answer, and then they count."""
    if not _is_working(task, attempt):
        return Change(Verdict.SUPERSEDED, task)
    has_reported = attempt.is_out
    process_id = None if attempt.process_id else next(iter(ids), None)
    progress = reached(attempt.stage, None, task.progress)
    return Change(
        Verdict.APPLIED,
        replace(task, progress=progress, provider_task_id=process_id or task.provider_task_id),
        sign_of_life=SignOfLife(attempt.id, None if has_reported else attempt.timeout_ms or 0, process_id, ids),
        failure=attempt.failure,
        events=(Event("progress", progress_said(progress, "queued", "")),),
    )


def on_worker_error(task: Task, attempt: Attempt, fault: Fault, *, grace_ms: int, process_id: str | None) -> Change:
    """An external worker logged an error, which need not be the end: workers do so for a single page, too.

    The job fails with this error if no other report follows within the grace period. Progress restores the normal
    deadline, and a result counts as always.
    """
    if not _is_working(task, attempt):
        return Change(Verdict.SUPERSEDED, task)
    return Change(
        Verdict.APPLIED,
        replace(task, provider_task_id=process_id or task.provider_task_id),
        sign_of_life=SignOfLife(attempt.id, min(grace_ms, attempt.timeout_ms or grace_ms), process_id),
        failure=fault,
        events=(Event("worker_error", {"phase": "failed", "message": fault.message}),),
    )


def reached(stage: Stage, percent: float | None, so_far: int) -> int:
    """The task's progress when its worker is at *percent* of the stage. It never falls."""
    low, high = PROGRESS[stage]
    return max(so_far, low + int((high - low) * min(max(percent or 0, 0), 100) / 100))


def progress_said(progress: int, phase: str, message: str, percent: float | None = None) -> dict[str, Any]:
    """*progress* is the task's, *percent* the worker's own number for its job."""
    said: dict[str, Any] = {"progress": progress, "phase": phase, "message": message}
    if percent is not None:
        clamped = min(max(percent, 0), 100)
        said["percent"] = int(clamped) if clamped == int(clamped) else clamped
    return said


def judged(task: Task, attempt: Attempt, outcome_hash: str, change: Change, *, report_id: str | None = None) -> Change:
    """A terminal report of a job: the same one again is a duplicate, another one comes too late."""
    if attempt.has_ended:
        same = attempt.outcome_hash == outcome_hash
        return Change(Verdict.DUPLICATE if same else Verdict.CONFLICT, task)
    return replace(change, outcome_hash=outcome_hash, report_id=report_id)


def on_progress(task: Task, attempt: Attempt, *, done: int, total: int | None) -> Change:
    if not _is_working(task, attempt):
        return Change(Verdict.SUPERSEDED, task)
    low, high = PROGRESS[attempt.stage]
    progress = max(task.progress, low + (high - low) * min(done, total) // total if total else low)
    pages_done = max(task.pages_done or 0, done)
    return Change(
        Verdict.APPLIED,
        replace(task, progress=progress, pages_done=pages_done, pages_total=total or task.pages_total),
        events=(Event("progress", {"progress": progress, "pages_done": pages_done, "pages_total": total}),),
    )


def on_success(
    task: Task,
    attempt: Attempt,
    result: StageResult,
    *,
    next_id: UUID,
    keep_for: str | None = None,
    lease_ms: int = 15_000,
) -> Change:
    """A stage is done: the next one is opened, or the task is completed.

    *keep_for* names the worker that goes on with the next stage itself, without another round through the queue; it
    has a lease from the start, for it may die before its first heartbeat.
    """
    if attempt.state is State.SUCCEEDED:
        return Change(Verdict.DUPLICATE, task)
    if not _is_working(task, attempt):
        return Change(Verdict.SUPERSEDED, task)
    task = replace(
        task,
        artifacts=result.artifacts or task.artifacts,
        source_sha256=result.source_sha256 or task.source_sha256,
        engine=result.engine or task.engine,
        cache_hit=task.cache_hit if result.cache_hit is None else result.cache_hit,
        pages_done=task.pages_done if result.pages is None else result.pages,
        pages_total=task.pages_total if result.pages is None else result.pages,
        damaged_pages=result.damaged_pages or task.damaged_pages,
        missing_archives=result.missing_archives or task.missing_archives,
        document_id=result.document_id or task.document_id,
        twin_path=result.twin_path or task.twin_path,
        mounted_path=result.mounted_path or task.mounted_path,
        mount_table_id=result.mount_table_id or task.mount_table_id,
        provider_task_id=result.provider_task_id or task.provider_task_id,
        errors=0,
        crashes=0,
        lost_workers=0,
        lost_alone=0,
        runs_alone=False,
    )
    facts = {"stage": attempt.stage, "attempt": attempt.number, **(result.facts or {})}
    ended = Event("stage_succeeded", facts)
    following = attempt.stage.next
    if following is None:
        return Change(
            Verdict.APPLIED,
            replace(task, status=Status.COMPLETED, progress=100, attempt_id=attempt.id),
            ends=((attempt.id, State.SUCCEEDED),),
            events=(ended, Event("completed", {"document_id": str(task.document_id) if task.document_id else None})),
        )
    low, _ = PROGRESS[following]
    return Change(
        Verdict.APPLIED,
        replace(task, stage=following, progress=max(task.progress, low), attempt_id=next_id),
        ends=((attempt.id, State.SUCCEEDED),),
        opens=Opening(next_id, attempt.number, following, owner=keep_for, lease_ms=lease_ms if keep_for else None),
        output=result.output,
        reuse_as=result.reuse_as,
        events=(ended,),
    )


def on_failure(
    task: Task,
    attempt: Attempt,
    fault: Fault,
    *,
    retryable: bool,
    crashed: bool,
    next_id: UUID,
    tries: int = MAX_ERRORS,
    details: Mapping[str, Any] | None = None,
    artifacts: Artifacts | None = None,
    is_postponed: bool = False,
) -> Change:
    """A stage failed: try again with backoff while that helps, else the task has failed.

    *is_postponed*: try again with backoff however often it was tried; it does not count as an error.
    """
    if attempt.state is State.FAILED:
        return Change(Verdict.DUPLICATE, task)
    if not _is_working(task, attempt):
        return Change(Verdict.SUPERSEDED, task)
    task = replace(task, artifacts=artifacts or task.artifacts)
    errors = task.errors if crashed or is_postponed else task.errors + 1
    crashes = task.crashes + 1 if crashed else task.crashes
    if is_postponed or (retryable and errors < tries and crashes < MAX_CRASHES):
        failures, longest = (attempt.number, MAX_POSTPONED_MS) if is_postponed else (errors + crashes, MOST_BACKOFF_MS)
        delay = min(BACKOFF_MS * 2 ** min(failures - 1, 10), longest)
        return Change(
            Verdict.APPLIED,
            _requeue(task, attempt, next_id, errors=errors, crashes=crashes),
            ends=((attempt.id, State.FAILED),),
            failure=fault,
            opens=Opening(next_id, attempt.number + 1, attempt.stage, delay_ms=delay),
            events=(Event("retry_scheduled", {"code": fault.code, "message": fault.message, "delay_ms": delay}),),
        )
    if crashed and crashes >= MAX_CRASHES:
        fault = replace(fault, stage="crash")
    return Change(
        Verdict.APPLIED,
        replace(task, status=Status.FAILED, fault=fault, errors=errors, crashes=crashes),
        ends=((attempt.id, State.FAILED),),
        failure=fault,
        events=(_failed(fault, details),),
    )


def give_back(task: Task, attempt: Attempt, *, next_id: UUID) -> Change:
    """A worker that shuts down returns what it held. It costs no attempt: the number stays."""
    if not _is_working(task, attempt):
        return Change(Verdict.SUPERSEDED, task)
    return Change(
        Verdict.APPLIED,
        replace(
            _requeue(task, attempt, next_id, errors=task.errors, crashes=task.crashes),
            attempt=task.attempt,
            progress=task.progress,
        ),
        ends=((attempt.id, State.GIVEN_BACK),),
        opens=Opening(next_id, attempt.number, attempt.stage),
        events=(Event("given_back", {"stage": attempt.stage, "attempt": attempt.number}),),
    )


def on_worker_cancelled(task: Task, attempt: Attempt, *, message: str) -> Change:
    """The external worker says that the job was cancelled on its side."""
    if not _is_working(task, attempt):
        return Change(Verdict.SUPERSEDED, task)
    return Change(
        Verdict.APPLIED,
        replace(task, status=Status.CANCELLED),
        ends=((attempt.id, State.FAILED),),
        events=(Event("cancelled", {"forced": False, "by": "worker", "message": message}),),
    )


def is_suspect(task: Task) -> bool:
    """Workers keep dying on this task: its next attempt runs alone."""
    return task.lost_workers >= SUSPECT_AFTER_LOST_WORKERS


def isolate(task: Task, attempt: Attempt) -> Change:
    """The attempt of a suspect begins, with nothing beside it in its worker."""
    if not _is_working(task, attempt):
        return Change(Verdict.SUPERSEDED, task)
    return Change(
        Verdict.APPLIED,
        replace(task, runs_alone=True),
        events=(Event("isolated", {"stage": attempt.stage, "attempt": attempt.number}),),
    )


def on_lost_worker(task: Task, attempt: Attempt, *, next_id: UUID, fault: Fault, max_lost_alone: int) -> Change:
    """The lease ran out: the worker died, perhaps while it was calling an external one, which nobody may have heard.

    The next one starts over, unless workers keep dying on this task when it runs alone.
    """
    if not _is_working(task, attempt):
        return Change(Verdict.SUPERSEDED, task)
    lost, lost_alone = task.lost_workers + 1, task.lost_alone + task.runs_alone
    if lost_alone >= max_lost_alone:
        return Change(
            Verdict.APPLIED,
            replace(task, status=Status.FAILED, fault=fault, lost_workers=lost, lost_alone=lost_alone),
            ends=((attempt.id, State.FAILED),),
            failure=fault,
            events=(_failed(fault),),
        )
    return Change(
        Verdict.APPLIED,
        replace(
            _requeue(task, attempt, next_id, errors=task.errors, crashes=task.crashes),
            lost_workers=lost,
            lost_alone=lost_alone,
        ),
        ends=((attempt.id, State.DROPPED),),
        opens=Opening(next_id, attempt.number + 1, attempt.stage, delay_ms=_suspicion_ms(lost)),
        events=(Event("worker_lost", {"stage": attempt.stage, "attempt": attempt.number}),),
    )


def expire(task: Task, attempt: Attempt, fault: Fault) -> Change:
    """Nobody gave a sign of life for too long: the task is given up (`stale`, or `timeout` of an external worker)."""
    if not _is_current(task, attempt) or task.status is not Status.RUNNING:
        return Change(Verdict.SUPERSEDED, task)
    return Change(
        Verdict.APPLIED,
        replace(task, status=Status.FAILED, fault=fault),
        ends=((attempt.id, State.DROPPED),),
        failure=fault,
        events=(_failed(fault),),
    )


def cancel(task: Task, attempt: Attempt | None, *, force: bool) -> Change:
    if task.is_final:
        raise Conflict("task_finished", task=task.id, status=task.status)
    if task.status is Status.RUNNING and not force:
        raise Conflict("task_running", task=task.id, stage=WIRE_STAGE[task.stage])
    return Change(
        Verdict.APPLIED,
        replace(task, status=Status.CANCELLED),
        ends=((attempt.id, State.DROPPED),) if attempt else (),
        events=(Event("cancelled", {"forced": force}),),
    )


def retry(task: Task, *, from_stage: str, next_id: UUID) -> Change:
    """Only a finished task can be retried; its input must exist."""
    stages = {"mineru": Stage.PARSE, "postprocess": Stage.POSTPROCESS}
    if from_stage not in stages:
        raise Invalid("stage_unknown", stage=from_stage)
    if not task.is_final:
        raise Conflict("task_busy", task=task.id, status=wire_status(task))
    stage = stages[from_stage]
    if stage is Stage.POSTPROCESS and not task.artifacts.markdown_key:
        raise Conflict("artifact_missing", stage="postprocess", needs="Markdown of an earlier parse")
    if stage is Stage.PARSE and not task.source_key:
        raise Conflict("artifact_missing", stage="mineru", needs="stored source file")
    again = stage is Stage.PARSE
    return Change(
        Verdict.APPLIED,
        replace(
            task,
            status=Status.PENDING,
            stage=stage,
            attempt=task.attempt + 1,
            run=task.run + 1,
            attempt_id=next_id,
            progress=0,
            fault=None,
            errors=0,
            crashes=0,
            lost_workers=0,
            lost_alone=0,
            runs_alone=False,
            artifacts=Artifacts() if again else replace(task.artifacts, output_key=None, extraction_key=None),
            pages_done=None if again else task.pages_done,
            pages_total=None if again else task.pages_total,
            damaged_pages=() if again else task.damaged_pages,
            missing_archives=() if again else task.missing_archives,
            cache_hit=False if again else task.cache_hit,
            provider_task_id=None if again else task.provider_task_id,
            job_id=None if again else task.job_id,
        ),
        opens=Opening(next_id, task.attempt + 1, stage),
        events=(Event("retried", {"from_stage": from_stage, "attempt": task.attempt + 1}),),
    )


def note(task: Task, event: Event, **changes: Any) -> Change:
    """Write a line into the log, and what it changes beside the state."""
    return Change(Verdict.APPLIED, replace(task, **changes), events=(event,))


JOB_STATUSES = ("queued", "running", "pending-storage", "completed", "failed", "cancelled")


def job_status(task: Task, state: State, failure: Fault | None) -> str:
    """The secretary's word for where a job is, given the state of its attempt and why it failed."""
    if state in (State.QUEUED, State.RUNNING):
        return "queued"
    if state is State.HANDED_OVER:
        return "running"
    if state is State.FAILED:
        return "cancelled" if task.status is Status.CANCELLED else "failed"
    if state in (State.DROPPED, State.GIVEN_BACK):
        return "failed" if failure else "cancelled"
    if task.is_final:
        return task.status.value
    is_storing = task.stage is Stage.PUBLISH and task.wishes.twin is not None
    return "pending-storage" if is_storing else "running"


RUNNING_WIRE_STATUSES = ("mineru_parsing", "llm_processing")
"""The names of the API for a task that runs: in its first stage, and in a later one."""


def wire_status(task: Task) -> str:
    """The seed's name of the state."""
    if task.status is not Status.RUNNING:
        return task.status.value
    first, later = RUNNING_WIRE_STATUSES
    return first if task.stage is Stage.PARSE else later


def _requeue(task: Task, attempt: Attempt, next_id: UUID, *, errors: int, crashes: int) -> Task:
    return replace(
        task,
        status=Status.PENDING,
        stage=attempt.stage,
        attempt=attempt.number + 1,
        attempt_id=next_id,
        progress=0,
        errors=errors,
        crashes=crashes,
        runs_alone=False,
    )


def _failed(fault: Fault, details: Mapping[str, Any] | None = None) -> Event:
    said = {"code": fault.code, "message": fault.message, "error_stage": fault.stage}
    return Event("failed", said | {"details": dict(details)} if details else said)


def _suspicion_ms(lost: int) -> int:
    """A task that was there when several workers died may be what killed them: the others go first."""
    return 0 if lost <= 2 else min(SUSPICION_MS * 2 ** min(lost - 3, 8), MAX_SUSPICION_MS)


def _is_current(task: Task, attempt: Attempt) -> bool:
    return task.attempt_id == attempt.id


def _is_working(task: Task, attempt: Attempt) -> bool:
    return _is_current(task, attempt) and task.status is Status.RUNNING and attempt.state in WORKING
