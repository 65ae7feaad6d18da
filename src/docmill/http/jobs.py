"""Jobs of external workers, for the people who watch them."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.responses import Response

from docmill.core.face import iso
from docmill.core.task import Attempt
from docmill.http.bound import Bound
from docmill.http.caller import Caller
from docmill.http.errors import problems
from docmill.http.wire import Json, event_json
from docmill.work import jobs
from docmill.work.stages.dispatch import callback_url

router = APIRouter(prefix="/api/external", tags=["jobs"], responses=problems(404))


class JobOut(BaseModel):
    jobId: str  # noqa: N815 - the wire's name
    status: str
    logs: list[dict[str, Any]]
    deliveries: list[dict[str, Any]]
    result: Any
    processId: str | None  # noqa: N815 - the wire's name
    error: dict[str, Any] | None
    task_id: int
    worker: str | None
    dialect: str | None
    created_at: str | None
    updated_at: str | None


@router.get("/jobs", summary="Jobs, newest first")
async def get_jobs(
    who: Caller,
    ports: Bound,
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
    before: Annotated[int | None, Query(ge=0)] = None,
) -> Response:
    found = await jobs.page(ports, who, before_ms=before, limit=limit)
    more = found[-1].started_ms if len(found) == limit else None
    return Json({"jobs": [_line(one) for one in found], "next": more})


@router.get("/jobs/{job_id}", response_model=JobOut, summary="A job: state, log, result")
async def get_job(
    job_id: UUID, who: Caller, ports: Bound, limit: Annotated[int, Query(ge=0, le=1000)] = 100
) -> Response:
    job = await jobs.show(ports, who, job_id, limit=limit)
    fault = job.task.fault
    return Json(
        _line(job.attempt)
        | {
            "status": job.status,
            "logs": [event_json(event) for event in job.logs],
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
            "error": {"code": fault.code, "message": fault.message, "stage": fault.stage} if fault else None,
            "updated_at": iso(job.task.updated_ms),
        }
    )


@router.post("/jobs/{job_id}/token", status_code=201, summary="Take a job over", responses=problems(409))
async def post_token(job_id: UUID, who: Caller, ports: Bound) -> Response:
    """A new callback token for a job. The worker that held the old one is refused from now on."""
    attempt, token = await jobs.take_over(ports, who, job_id)
    url = callback_url(ports, attempt.dialect or "", attempt.id)
    return Json({"callback_url": url, "callback_token": token, "dialect": attempt.dialect}, status_code=201)


def _line(attempt: Attempt) -> dict[str, Any]:
    return {
        "jobId": str(attempt.id),
        "task_id": attempt.task_id,
        "state": attempt.state.value,
        "worker": attempt.worker,
        "dialect": attempt.dialect,
        "processId": attempt.process_id,
        "attempt": attempt.number,
        "created_at": iso(attempt.started_ms) if attempt.started_ms else None,
        "ended_at": iso(attempt.ended_ms) if attempt.ended_ms else None,
    }
