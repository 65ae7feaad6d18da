"""Run a claimed attempt: the stage, its progress, and the report of how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from uuid import UUID

import structlog

from docmill.core.errors import DocmillError, DocumentError, StageFailed, StorageFull, Unavailable, unwrap
from docmill.core.machine import MAX_ABSENCES, MAX_ERRORS, WIRE_STAGE, Change, StageResult, Verdict
from docmill.core.reports import Failed, Pages, Report, Succeeded
from docmill.core.task import Artifacts, Attempt, Fault, Stage, Task
from docmill.ports import Deferred, Ports
from docmill.work.places import Place
from docmill.work.receive import receive
from docmill.work.stages import parse, postprocess, publish
from docmill.work.stages.step import AtStage, Step

log = structlog.get_logger(__name__)

PROGRESS_AFTER_S = 0.25
"""Who is done by then need not say how far he was."""
PROGRESS_EVERY_S = 0.5
ABSENCES = frozenset(
    {
        "worker_unreachable",
        "twin_unavailable",
        "fetch_failed",
        "provider_unreachable",
        "provider_busy",
        "storage_unavailable",
        "storage_full",
        "llm_rate_limit",
        "llm_unreachable",
    }
)
POSTPONED = frozenset({"storage_full", "database_unavailable", "database_busy"})
"""Without room or a database nothing can be stored: the stage is tried again for as long as that lasts."""
REPORT_AGAIN_S = 1.0
ENDED_BY = {"parse_timeout": "timeout", "parse_memory": "crash"}
"""The `error_stage` of a document that ended its parser."""

Claimed = tuple[Task, Attempt]

STAGES: dict[Stage, Callable[[Ports, Step], Awaitable[StageResult | Deferred]]] = {
    Stage.PARSE: parse.run,
    Stage.POSTPROCESS: postprocess.run,
    Stage.PUBLISH: publish.run,
}


async def run_attempt(ports: Ports, task: Task, attempt: Attempt, place: Place, *, worker: str) -> Claimed | None:
    """Run the stage and report. The next attempt if this worker shall go on with it at once."""
    reporter = Reporter(ports, task.id, attempt.id)
    try:
        with traced(ports, task, attempt):
            async with reporter, asyncio.timeout(ports.limits.task_timeout_s):
                outcome = await STAGES[attempt.stage](ports, Step(task, attempt, reporter.pages, place.parsed))
    except TimeoutError:
        late = StageFailed("task_timeout", seconds=round(ports.limits.task_timeout_s))
        await _fail(ports, task, attempt, late, "timeout")
        return None
    except AtStage as at:
        await _fail(ports, task, attempt, _fault(at.error, task, attempt), at.stage, at.artifacts)
        return None
    except Exception as error:
        await _fail(ports, task, attempt, _fault(error, task, attempt), WIRE_STAGE[attempt.stage])
        return None
    if isinstance(outcome, Deferred):
        return None
    keep_for = worker if await place.goes_on() else None
    # As long as the document stays here and is not done, nobody has heard of what a power cut would undo.
    durable = keep_for is None or attempt.stage is Stage.PUBLISH
    change = await _report(ports, task, attempt, Succeeded(outcome), keep_for=keep_for, durable=durable)
    if change.verdict is not Verdict.APPLIED:
        # Somebody else has the task by now, or nobody wants it any more: what we made is dropped.
        log.info("report_refused", task=task.id, attempt=attempt.number, verdict=change.verdict)
        return None
    return (change.task, change.opened) if change.opened else None


def traced(ports: Ports, task: Task, attempt: Attempt) -> AbstractContextManager[str]:
    """The stage, after the time that it waited for us."""
    parent, facts = task.wishes.trace, {"task": task.id, "attempt": attempt.number, "stage": attempt.stage.value}
    if attempt.started_ms and attempt.started_ms > attempt.due_ms:
        ports.tracer.record("queue", parent=parent, began_ms=attempt.due_ms, ended_ms=attempt.started_ms, **facts)
    return ports.tracer.span(f"stage {attempt.stage.value}", parent=parent, **facts)


def _fault(caught: Exception, task: Task, attempt: Attempt) -> DocmillError:
    """What the task is told of an error, however deeply it was wrapped."""
    error = unwrap(caught)
    if isinstance(error, AtStage):
        error = error.error
    if isinstance(error, DocmillError):
        return error
    if isinstance(error, OSError):
        return StageFailed("storage_failed", why=error.strerror or str(error))
    log.error("stage_failed", task=task.id, stage=attempt.stage, attempt=attempt.number, exc_info=caught)
    return StageFailed("stage_failed", why=type(error).__name__)


async def _report(
    ports: Ports, task: Task, attempt: Attempt, report: Report, *, keep_for: str | None = None, durable: bool = True
) -> Change:
    """Report until it is written: what was done must not be lost because the database has no room for a moment.

    Meanwhile the attempt is ours; should its lease run out, the report is refused or this task is cancelled.
    """
    while True:
        try:
            return await receive(ports, task.id, attempt.id, report, keep_for=keep_for, durable=durable)
        except (StorageFull, Unavailable) as error:
            if error.code not in POSTPONED:
                raise
            log.warning("report_postponed", task=task.id, attempt=attempt.number, code=error.code)
        await asyncio.sleep(REPORT_AGAIN_S)


async def _fail(
    ports: Ports,
    task: Task,
    attempt: Attempt,
    error: DocmillError,
    stage: str,
    artifacts: Artifacts | None = None,
) -> None:
    fault = Fault(error.code, error.message, ENDED_BY.get(error.code, stage))
    retryable = error.retryable and not isinstance(error, DocumentError)
    tries = MAX_ABSENCES if error.code in ABSENCES else MAX_ERRORS
    report = Failed(
        fault,
        retryable=retryable,
        crashed=error.code == "parse_crashed",
        tries=tries,
        artifacts=artifacts,
        is_postponed=error.code in POSTPONED and not error.facts.get("is_remote"),
    )
    await _report(ports, task, attempt, report)


class Reporter:
    """Turns many page reports into few ledger writes: the newest one, at most twice a second, none if it was quick."""

    def __init__(self, ports: Ports, task_id: int, attempt_id: UUID) -> None:
        self._ports = ports
        self._task_id = task_id
        self._attempt_id = attempt_id
        self._newest: Pages | None = None
        self._sending: asyncio.Task[None] | None = None

    def pages(self, done: int, total: int | None) -> None:
        self._newest = Pages(done, total)
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send())

    async def _send(self) -> None:
        await asyncio.sleep(PROGRESS_AFTER_S)
        while (newest := self._newest) is not None:
            self._newest = None
            try:
                await receive(self._ports, self._task_id, self._attempt_id, newest, durable=False)
            except DocmillError:
                log.debug("progress_not_written", task=self._task_id)
            await asyncio.sleep(PROGRESS_EVERY_S)
        self._sending = None

    async def __aenter__(self) -> Reporter:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait({self._sending})
