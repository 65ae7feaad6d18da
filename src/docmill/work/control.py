"""People steer tasks: cancel, retry, mount."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import structlog

from docmill.core import machine
from docmill.core.access import Principal
from docmill.core.errors import BadRequest, DocmillError
from docmill.core.machine import Change
from docmill.core.output import stem_of
from docmill.core.task import Attempt, Event, State, Status, Task
from docmill.ports import Ports
from docmill.work import query, tables
from docmill.work.receive import ring

log = structlog.get_logger(__name__)

CANCEL_S = 5.0


async def cancel(ports: Ports, who: Principal, task_id: int, *, force: bool) -> Task:
    """Cancel a pending task; with *force* also a running one. The worker hears of it through the signal."""
    dropped: list[Attempt] = []

    def rule(task: Task, attempt: Attempt | None) -> Change:
        dropped[:] = [attempt] if attempt else []
        return machine.cancel(task, attempt, force=force)

    change = await ports.ledger.decide(task_id, rule, who=who.owner)
    await ring(ports, change)
    for attempt in dropped:
        await _tell_worker(ports, attempt)
    return change.task


async def _tell_worker(ports: Ports, attempt: Attempt) -> None:
    """Ask an external worker to stop. The task is cancelled whether it listens or not."""
    worker = ports.workers.get(attempt.worker or "")
    if worker is None or attempt.state is not State.HANDED_OVER:
        return
    try:
        async with asyncio.timeout(CANCEL_S):
            await worker.cancel(attempt.id, attempt.worker_ids)
    except (DocmillError, TimeoutError) as error:
        log.info("worker_not_told", worker=worker.name, job=str(attempt.id), why=type(error).__name__)


async def retry(ports: Ports, who: Principal, task_id: int, *, from_stage: str) -> Task:
    next_id = uuid4()

    def rule(task: Task, _: Attempt | None) -> Change:
        return machine.retry(task, from_stage=from_stage, next_id=next_id)

    change = await ports.ledger.decide(task_id, rule, who=who.owner)
    await ring(ports, change)
    return change.task


async def mount(ports: Ports, who: Principal, task_id: int, *, table_id: int, json_path: str) -> str:
    """Put a completed task's output into a table; the path of what was written."""
    task = await query.task(ports, who, task_id)
    if task.status is not Status.COMPLETED:
        raise BadRequest("task_not_completed", task=task_id, status=machine.wire_status(task))
    output = await query.output(ports, task)
    path = await tables.mount(ports, who, task.id, table_id, json_path, stem_of(task.filename), output)

    def rule(task: Task, _: Attempt | None) -> Change:
        said = Event("mounted", {"table_id": table_id, "path": path})
        return machine.note(task, said, mounted_path=path, mount_table_id=table_id)

    await ring(ports, await ports.ledger.decide(task_id, rule, who=who.owner))
    return path
