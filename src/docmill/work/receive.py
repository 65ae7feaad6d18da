"""The one door for reports, whether a child process here or a worker across the ocean sent them."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID, uuid4

from docmill.core import machine
from docmill.core.machine import Change, StageResult, Verdict
from docmill.core.task import Attempt, Fault, Task
from docmill.ports import Ports


@dataclass(frozen=True, slots=True)
class Progress:
    done: int
    total: int | None


@dataclass(frozen=True, slots=True)
class Succeeded:
    result: StageResult


@dataclass(frozen=True, slots=True)
class Failed:
    fault: Fault
    retryable: bool = False
    crashed: bool = False


@dataclass(frozen=True, slots=True)
class GivenBack:
    """The worker shuts down and has not finished."""


Report = Progress | Succeeded | Failed | GivenBack


async def receive(
    ports: Ports, task_id: int, attempt_id: UUID, report: Report, *, keep_for: str | None = None
) -> Change:
    """Let the machine judge a report, write what follows, and ring whoever is next."""
    next_id = uuid4()

    def judge(task: Task, attempt: Attempt | None) -> Change:
        if attempt is None:
            return Change(Verdict.SUPERSEDED, task)
        match report:
            case Progress(done, total):
                return machine.on_progress(task, attempt, done=done, total=total)
            case Succeeded(result):
                return machine.on_success(task, attempt, result, next_id=next_id, keep_for=keep_for)
            case Failed(fault, retryable, crashed):
                return machine.on_failure(task, attempt, fault, retryable=retryable, crashed=crashed, next_id=next_id)
            case GivenBack():
                return machine.give_back(task, attempt, next_id=next_id)

    change = await ports.ledger.decide(task_id, judge, attempt_id=attempt_id)
    await ring(ports, change)
    return change


async def ring(ports: Ports, change: Change) -> None:
    """After the commit: tell watchers and workers. Both may miss it; the ledger does not."""
    if not change.writes:
        return
    ports.signals.changed(change.task.id)
    opens = change.opens
    if opens and not opens.owner:
        await ports.queue.put(opens.id, delay_ms=opens.delay_ms, priority=change.task.wishes.priority)
