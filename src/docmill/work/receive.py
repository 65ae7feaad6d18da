"""The one entrance for reports, whether a child process or an external worker sent them."""

from __future__ import annotations

from uuid import UUID, uuid4

from docmill.core import machine
from docmill.core.machine import Change, Verdict
from docmill.core.reports import Cancelled, Failed, GivenBack, Pages, Progress, Report, Started, Succeeded
from docmill.core.task import Attempt, Task
from docmill.ports import Limits, Ports
from docmill.work.turns import line_up


async def receive(
    ports: Ports,
    task_id: int,
    attempt_id: UUID,
    report: Report,
    *,
    keep_for: str | None = None,
    token_hash: str | None = None,
    outcome_hash: str | None = None,
    report_id: str | None = None,
    durable: bool = True,
) -> Change:
    """Let the machine judge a report, commit what follows, then notify watchers and enqueue the next stage.

    *keep_for* is the worker that goes on with the next stage itself. *token_hash* is the token that the sender proved,
    which must still be the job's. *outcome_hash* identifies the terminal report of a job, and *report_id* names the
    folder of what it brought. Not *durable*: a power cut may undo it, and then the work is done again.
    """

    def judge(task: Task, attempt: Attempt | None) -> Change:
        if attempt is None:
            return Change(Verdict.SUPERSEDED, task)
        if token_hash is not None and attempt.token_hash != token_hash:
            return Change(Verdict.REPLACED, task)
        change = _judge(task, attempt, report, keep_for, ports.limits)
        return (
            change if outcome_hash is None else machine.judged(task, attempt, outcome_hash, change, report_id=report_id)
        )

    change = await ports.ledger.decide(task_id, judge, attempt_id=attempt_id, durable=durable)
    await ring(ports, change)
    return change


def _judge(task: Task, attempt: Attempt, report: Report, keep_for: str | None, limits: Limits) -> Change:
    match report:
        case Pages(done, total):
            return machine.on_progress(task, attempt, done=done, total=total)
        case Progress(percent, phase, message, process_id):
            return machine.on_worker_progress(
                task, attempt, percent=percent, phase=phase, message=message, process_id=process_id
            )
        case Started(ids):
            return machine.on_start_accepted(task, attempt, ids=ids)
        case Succeeded(result):
            return machine.on_success(
                task, attempt, result, next_id=uuid4(), keep_for=keep_for, lease_ms=limits.lease_ms
            )
        case Failed(is_final=False):
            return machine.on_worker_error(
                task, attempt, report.fault, grace_ms=limits.failure_grace_ms, process_id=report.process_id
            )
        case Failed(fault, retryable, crashed, tries, details, artifacts, is_postponed):
            return machine.on_failure(
                task,
                attempt,
                fault,
                retryable=retryable,
                crashed=crashed,
                next_id=uuid4(),
                tries=tries,
                details=details,
                artifacts=artifacts,
                is_postponed=is_postponed,
            )
        case Cancelled(message):
            return machine.on_worker_cancelled(task, attempt, message=message)
        case GivenBack():
            return machine.give_back(task, attempt, next_id=uuid4())


async def ring(ports: Ports, change: Change) -> None:
    """After the commit: tell watchers and workers. Both may miss it; the ledger does not."""
    if not change.writes:
        return
    tell(ports, change.task)
    opens = change.opens
    if opens and not opens.owner:
        await line_up(ports, change.task, opens.id, opens.stage, delay_ms=opens.delay_ms)


def tell(ports: Ports, task: Task) -> None:
    """A task was committed: whoever watches it may look, here and in other processes."""
    if ports.runstate:
        ports.runstate.keep(task)
    ports.signals.changed(task.id)
