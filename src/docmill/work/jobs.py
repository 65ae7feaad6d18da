"""Jobs as their owner sees them: state, log, result, and what callbacks came in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from docmill.core import keys, machine
from docmill.core.access import Principal
from docmill.core.errors import Conflict, Forbidden, NotFound
from docmill.core.machine import Change, Handover, Verdict
from docmill.core.task import Attempt, Fault, LoggedEvent, State, Status, Task
from docmill.core.tokens import digest, new_token
from docmill.ports import Delivery, JobFilter, JobListing, Ports
from docmill.work import query
from docmill.work.receive import ring
from docmill.work.stages.step import job_of_result

MAX_LOGS = 1000
MAX_PAGE = 100


@dataclass(frozen=True, slots=True)
class Job:
    task: Task
    attempt: Attempt
    status: str
    logs: list[LoggedEvent]
    deliveries: list[Delivery]
    result: Any
    failure: Fault | None
    """Why the job failed."""


def status_of(task: Task, attempt: Attempt) -> str:
    """The secretary's word for where the job is."""
    return attempt.job_status or machine.job_status(task, attempt.state, attempt.failure)


async def find(ports: Ports, job_id: UUID, who: Principal | None = None) -> tuple[Task, Attempt]:
    """The job and its task. Foreign ones, and attempts that never left the house, are not there."""
    found = await ports.ledger.find(job_id)
    if found is None or not found[1].is_job or (who and (found[0].tenant, found[0].owner) != (who.tenant, who.user)):
        raise NotFound("job_not_found", job=job_id)
    return found


async def find_attempt(ports: Ports, job_id: UUID) -> Attempt:
    """The job alone, for callbacks: its token decides who may report."""
    attempt = await ports.ledger.find_attempt(job_id)
    if attempt is None or not attempt.is_job:
        raise NotFound("job_not_found", job=job_id)
    return attempt


async def show(ports: Ports, who: Principal, job_id: UUID, *, limit: int) -> Job:
    """A job with the last *limit* lines of its log, at most MAX_LOGS."""
    limit = min(limit, MAX_LOGS)
    task, attempt = await find(ports, job_id, who)
    events = await ports.ledger.last_events(task.id, limit=limit) if limit else []
    deliveries = await ports.ledger.deliveries(job_id, limit=limit)
    result = await query.result(ports, task) if task.status is Status.COMPLETED else None
    status = status_of(task, attempt)
    failure = (attempt.failure or task.fault) if status == "failed" else None
    return Job(task, attempt, status, events, deliveries, result, failure)


async def page(
    ports: Ports,
    who: Principal,
    *,
    limit: int,
    number: int = 1,
    status: str | None = None,
    before_ms: int | None = None,
) -> JobListing:
    """A page of jobs, counted from 1; with *before_ms* the jobs that started before that moment."""
    limit = min(limit, MAX_PAGE)
    offset = (number - 1) * limit if before_ms is None else 0
    return await ports.ledger.jobs(JobFilter(who.owner, status, limit, offset, before_ms))


async def check_upload(ports: Ports, tenant_prefix: str, key: str) -> None:
    """A worker may store its result as long as it has the job: Forbidden `link_invalid` after its end."""
    job_id = job_of_result(key)
    job = await ports.ledger.find(job_id) if job_id else None
    if job is None or keys.tenant_prefix(job[0].tenant) != tenant_prefix or job[1].state is not State.HANDED_OVER:
        raise Forbidden("link_invalid")


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
