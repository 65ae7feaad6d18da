"""Jobs of external workers, for the people who watch them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from docmill.core.face import iso
from docmill.core.task import Attempt, Fault, LoggedEvent, WorkerError
from docmill.http.bound import Bound
from docmill.http.caller import Caller
from docmill.http.errors import problems
from docmill.http.uploads import MAX_ROW_ID
from docmill.http.wire import Json, event_json
from docmill.ports import JobLine
from docmill.work import jobs
from docmill.work.stages.dispatch import callback_url

MAX_PAGE_NUMBER = 10**9

router = APIRouter(prefix="/api/external", tags=["jobs"], responses=problems(404))


JobStatus = Literal["queued", "running", "pending-storage", "completed", "failed", "cancelled"]


class JobLog(BaseModel):
    """A line of the log: the event as the task has it, and at the top level what the worker said."""

    seq: int
    kind: str
    data: dict[str, Any]
    at: datetime
    timestamp: datetime = Field(description="The same as at.")
    phase: str = Field(description="The worker's phase; for a line of docmill's own its kind.")
    progress: float | None = Field(description="The worker's own number, 0 to 100.")
    message: str | None


class JobError(BaseModel):
    """Why a job failed, in the worker's own words where it said something."""

    code: str = Field(description="The worker's code; docmill's, if the worker gave none.")
    message: str
    details: Any = None
    stage: str
    error_code: str = Field(description="docmill's own code, as in metadata.error_code of the task.")


class JobLineOut(BaseModel):
    jobId: str  # noqa: N815 - the wire's name
    status: JobStatus
    state: str
    fileName: str  # noqa: N815 - the wire's name
    processId: str | None  # noqa: N815 - the wire's name
    task_id: int
    worker: str | None
    dialect: str | None
    attempt: int
    created_at: datetime | None
    ended_at: datetime | None
    updated_at: datetime | None
    createdAt: datetime | None = Field(description="The same as created_at.")  # noqa: N815 - the wire's name
    updatedAt: datetime | None = Field(description="The same as updated_at.")  # noqa: N815 - the wire's name


class JobOut(JobLineOut):
    logs: list[JobLog]
    deliveries: list[dict[str, Any]]
    result: Any
    error: JobError | None


class ListedJob(JobLineOut):
    lastMessage: str | None  # noqa: N815 - the wire's name
    lastProgress: float | None = Field(description="The worker's own number.")  # noqa: N815 - the wire's name


class JobToken(BaseModel):
    callback_url: str
    callback_token: str
    dialect: str | None


class JobPage(BaseModel):
    items: list[ListedJob]
    jobs: list[ListedJob] = Field(description="The same as items.")
    page: int
    limit: int
    total: int
    next: int | None = Field(description="Give it as ?before= to go on; cheaper than page where there are many jobs.")


@router.get("/jobs", response_model=JobPage, summary="Jobs, newest first")
async def list_jobs(
    who: Caller,
    ports: Bound,
    limit: Annotated[int, Query(ge=1, le=MAX_ROW_ID, description=f"At most {jobs.MAX_PAGE}; more is clamped.")] = 50,
    page: Annotated[int, Query(ge=1, le=MAX_PAGE_NUMBER)] = 1,
    status: JobStatus | None = None,
    before: Annotated[int | None, Query(ge=0, le=MAX_ROW_ID)] = None,
) -> Response:
    """Jobs at external workers, the newest first, a page at a time."""
    limit = min(limit, jobs.MAX_PAGE)
    found = await jobs.page(ports, who, limit=limit, number=page, status=status, before_ms=before)
    lines = [_listed(one) for one in found.jobs]
    more = found.jobs[-1].attempt.started_ms if len(lines) == limit else None
    return Json({"items": lines, "page": page, "limit": limit, "total": found.total, "jobs": lines, "next": more})


@router.get("/jobs/{job_id}", response_model=JobOut, summary="A job: state, log, result")
async def get_job(
    job_id: UUID,
    who: Caller,
    ports: Bound,
    limit: Annotated[
        int, Query(ge=0, le=MAX_ROW_ID, description=f"The last lines of the log, at most {jobs.MAX_LOGS}.")
    ] = 100,
) -> Response:
    """A job with the last lines of its log, the callbacks that came and its result."""
    job = await jobs.show(ports, who, job_id, limit=limit)
    return Json(
        _line(job.attempt, job.status, job.task.filename, job.task.updated_ms)
        | {
            "logs": [_log(event) for event in job.logs],
            "deliveries": [
                {
                    "kind": one.kind,
                    "status": one.status,
                    "reason": one.reason,
                    "size": one.size,
                    "sha256": one.body_hash,
                    "at": iso(one.at_ms),
                }
                for one in job.deliveries
            ],
            "result": job.result,
            "error": _error(job.failure) if job.failure else None,
        }
    )


@router.post(
    "/jobs/{job_id}/token",
    status_code=201,
    response_model=JobToken,
    summary="Take a job over",
    responses=problems(409),
)
async def take_over_job(job_id: UUID, who: Caller, ports: Bound) -> Response:
    """A new callback token for a job. The worker that held the old one is refused from now on."""
    attempt, token = await jobs.take_over(ports, who, job_id)
    url = callback_url(ports, attempt.dialect or "", attempt.id)
    return Json({"callback_url": url, "callback_token": token, "dialect": attempt.dialect}, status_code=201)


def _log(event: LoggedEvent) -> dict[str, Any]:
    return event_json(event) | {
        "timestamp": iso(event.at_ms),
        "phase": event.data.get("phase") or event.kind,
        "progress": event.data.get("percent"),
        "message": event.data.get("message") or None,
    }


def _error(fault: Fault) -> dict[str, Any]:
    own = fault.worker_error or WorkerError()
    return {
        "code": own.code or fault.code,
        "message": own.message or fault.message,
        "details": own.details,
        "stage": fault.stage,
        "error_code": fault.code,
    }


def _listed(one: JobLine) -> dict[str, Any]:
    attempt = one.attempt
    failure = _error(attempt.failure)["message"] if attempt.failure and attempt.job_status == "failed" else None
    return _line(attempt, attempt.job_status, one.filename, one.updated_ms) | {
        "lastMessage": failure or one.last_message,
        "lastProgress": one.last_percent,
    }


def _line(attempt: Attempt, status: str | None, filename: str, updated_ms: int) -> dict[str, Any]:
    created, updated = iso(attempt.started_ms) if attempt.started_ms else None, iso(updated_ms)
    return {
        "jobId": str(attempt.id),
        "status": status,
        "fileName": filename,
        "task_id": attempt.task_id,
        "state": attempt.state.value,
        "worker": attempt.worker,
        "dialect": attempt.dialect,
        "processId": attempt.process_id,
        "attempt": attempt.number,
        "created_at": created,
        "ended_at": iso(attempt.ended_ms) if attempt.ended_ms else None,
        "updated_at": updated,
        "createdAt": created,
        "updatedAt": updated,
    }
