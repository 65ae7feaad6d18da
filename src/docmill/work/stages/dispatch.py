"""Hand an attempt to an external worker: commit first, then call out."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import msgspec

from docmill.core import machine
from docmill.core.errors import StageFailed
from docmill.core.machine import Change, Handover, Verdict
from docmill.core.reports import Started
from docmill.core.task import Attempt, Status, Task
from docmill.core.tokens import digest, new_token
from docmill.ports import Deferred, Dispatch, ExternalWorker, Links, Ports, Stored
from docmill.work.objects import objects
from docmill.work.receive import receive, ring
from docmill.work.stages.step import Step, brief_key, result_key, result_prefix

CALLBACKS = {"secretary": "/api/external/jobs/{job}", "dispatcher": "/api/v1/tasks/{job}/callback/"}
LINK_SLACK_S = 3600.0


async def hand_over(ports: Ports, step: Step, worker: ExternalWorker, source: Path, stored: Stored) -> Deferred:
    await worker.check()
    token = new_token()
    brief_key = await _write_brief(ports, step, worker, stored) if worker.dialect == "dispatcher" else ""
    handover = Handover(worker.name, worker.dialect, digest(token), round(worker.timeout_s * 1000))

    def rule(task: Task, attempt: Attempt | None) -> Change:
        return machine.hand_over(task, attempt, handover) if attempt else Change(Verdict.SUPERSEDED, task)

    change = await ports.ledger.decide(step.task.id, rule, attempt_id=step.attempt.id)
    if change.verdict is not Verdict.APPLIED:
        return Deferred()
    await ring(ports, change)
    # From here on the worker may call back at any moment, even before dispatch() returns.
    seconds = worker.timeout_s + LINK_SLACK_S
    ids = await worker.dispatch(
        Dispatch(
            job_id=step.attempt.id,
            task_id=step.task.id,
            filename=step.task.filename,
            source=source,
            options=step.task.wishes.parse,
            callback_url=callback_url(ports, worker.dialect, step.attempt.id),
            callback_token=token,
            brief_key=brief_key,
            brief_url=_links(ports).download(step.task.tenant, brief_key, seconds=seconds) if brief_key else "",
        )
    )
    # It has heard us: from now on its own silence counts, no longer ours.
    change = await receive(ports, step.task.id, step.attempt.id, Started(ids))
    if change.verdict is not Verdict.APPLIED and change.task.status is Status.CANCELLED:
        # Cancelled while the worker was being called: whoever did it did not know yet what to call off.
        await worker.cancel(step.attempt.id, ids)
    return Deferred(next(iter(ids), None))


async def _write_brief(ports: Ports, step: Step, worker: ExternalWorker, stored: Stored) -> str:
    job, tenant, links = step.attempt.id, step.task.tenant, _links(ports)
    seconds = worker.timeout_s + LINK_SLACK_S
    brief = {
        "version": 1,
        "task_id": str(job),
        "source": {
            "filename": step.task.filename,
            "sha256": stored.sha256,
            "size": stored.size,
            "download_url": links.download(tenant, step.task.source_key, seconds=seconds),
        },
        "options": step.task.wishes.parse,
        "result": {
            "key": result_key(job),
            "prefix": result_prefix(job),
            "upload_url": links.upload(tenant, result_key(job), seconds=seconds),
        },
    }
    key = brief_key(job)
    await objects(ports, tenant).put_bytes(key, msgspec.json.encode(brief))
    return key


def _links(ports: Ports) -> Links:
    if ports.links is None:
        raise StageFailed("worker_refused", worker="dispatcher", why="this service has no links to give")
    return ports.links


def callback_url(ports: Ports, dialect: str, job_id: UUID) -> str:
    return ports.app_url + CALLBACKS[dialect].format(job=job_id)
