"""Jobs as their owner sees them: state, log, result, and what callbacks came in."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from docmill.core import machine
from docmill.core.access import Principal
from docmill.core.errors import Conflict, NotFound
from docmill.core.machine import Change, Handover, Verdict
from docmill.core.task import Attempt, LoggedEvent, Stage, State, Status, Task
from docmill.core.tokens import digest, new_token
from docmill.ports import Delivery, Ports
from docmill.work import query
from docmill.work.receive import ring

MAX_LOGS = 1000


@dataclass(frozen=True, slots=True)
class Job:
    task: Task
    attempt: Attempt
    status: str
    logs: list[LoggedEvent]
    deliveries: list[Delivery]
    result: Any


def status_of(task: Task, attempt: Attempt) -> str:
    """The secretary's word for where the job is."""
    if attempt.state in (State.QUEUED, State.RUNNING):
        return "queued"
    if attempt.state is State.HANDED_OVER:
        return "running"
    if attempt.state is State.FAILED:
        return "cancelled" if task.status is Status.CANCELLED else "failed"
    if attempt.state in (State.DROPPED, State.GIVEN_BACK):
        return "failed" if task.status is Status.FAILED and task.attempt_id == attempt.id else "cancelled"
    if task.status is Status.COMPLETED:
        return "completed"
    if task.status is Status.FAILED:
        return "failed"
    if task.status is Status.CANCELLED:
        return "cancelled"
    waiting = task.stage is Stage.PUBLISH and task.wishes.twin is not None
    return "pending-storage" if waiting else "running"


async def find(ports: Ports, job_id: UUID, who: Principal | None = None) -> tuple[Task, Attempt]:
    """The job and its task. Foreign ones, and attempts that never left the house, are not there."""
    found = await ports.ledger.find(job_id)
    if found is None or not found[1].is_job or (who and (found[0].tenant, found[0].owner) != (who.tenant, who.user)):
        raise NotFound("job_not_found", job=job_id)
    return found


async def show(ports: Ports, who: Principal, job_id: UUID, *, limit: int) -> Job:
    task, attempt = await find(ports, job_id, who)
    events = await ports.ledger.events(task.id, limit=MAX_LOGS)
    deliveries = await ports.ledger.deliveries(job_id, limit=limit)
    result = await query.result(ports, task) if task.status is Status.COMPLETED else None
    return Job(task, attempt, status_of(task, attempt), events[-limit:] if limit else [], deliveries, result)


async def page(ports: Ports, who: Principal, *, before_ms: int | None, limit: int) -> list[Attempt]:
    newest = int(time.time() * 1000) + 3_600_000
    return await ports.ledger.jobs(who.owner, before_ms=before_ms or newest, limit=limit)


async def take_over(ports: Ports, who: Principal, job_id: UUID) -> tuple[Attempt, str]:
    """A new token for a job, for its owner: who has it speaks for the job, and the old one no longer does."""
    task, attempt = await find(ports, job_id, who)
    token = new_token()
    handover = Handover(attempt.worker or "", attempt.dialect or "", digest(token), attempt.timeout_ms or 0)

    def rule(task: Task, current: Attempt | None) -> Change:
        change = machine.hand_over(task, current, handover) if current else Change(Verdict.SUPERSEDED, task)
        if change.verdict is not Verdict.APPLIED:
            raise Conflict("task_finished", task=task.id, status=machine.wire_status(task))
        return change

    await ring(ports, await ports.ledger.decide(task.id, rule, attempt_id=job_id))
    return attempt, token
