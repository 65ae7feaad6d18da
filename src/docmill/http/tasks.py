"""Tasks: look, wait, cancel, retry, mount."""

from __future__ import annotations

import base64
import re
from contextlib import AsyncExitStack
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from docmill.core.access import Principal
from docmill.core.errors import BadRequest
from docmill.core.task import Task
from docmill.http.bound import Bound
from docmill.http.caller import Caller
from docmill.http.errors import problems
from docmill.http.strict import StrictModel
from docmill.http.uploads import MAX_ROW_ID, Mount
from docmill.http.waiting import wait_for_client
from docmill.http.wire import (
    PRIVATE,
    Json,
    MountAck,
    TaskAck,
    TaskBatch,
    TaskList,
    TaskOut,
    faces_json,
    task_json,
    tasks_json,
)
from docmill.ports import Filter, Ports
from docmill.work import control, query, twins

MAX_BATCH = 100
MAX_WAIT_S = 60.0
BINARY = {"type": "string", "format": "binary"}

router = APIRouter(prefix="/api/v1/etl", tags=["tasks"], responses=problems(403, 404, 409, 410, 429))

TaskId = Annotated[int, Path(ge=1, le=MAX_ROW_ID)]
ListStatus = Literal["pending", "running", "mineru_parsing", "llm_processing", "completed", "failed", "cancelled"]
"""The names of the API, and `running` for both of a task that runs."""

_ID = re.compile(r"[0-9]{1,19}")
_CURSOR = re.compile(r"t([0-9]{1,19})[.]([0-9-]*)[.]([a-z_]*)")
_WAIT = re.compile(r"(?:^|[,;\s])wait=([0-9]{1,4})(?:$|[,;\s])", re.IGNORECASE)


class Retry(StrictModel):
    from_stage: str = Field(max_length=64, description="mineru or postprocess")


@router.get("/tasks", response_model=TaskList, summary="Tasks, newest first")
async def list_tasks(
    who: Caller,
    ports: Bound,
    project_id: Annotated[int | None, Query(ge=0, le=MAX_ROW_ID)] = None,
    status: Annotated[ListStatus | None, Query(description="running: mineru_parsing or llm_processing")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
    offset: Annotated[int, Query(ge=0, le=MAX_ROW_ID)] = 0,
    cursor: Annotated[str | None, Query(max_length=200)] = None,
    include: Literal["result"] | None = None,
) -> Response:
    """Tasks of the caller, the newest first, a page at a time. Follow `next_cursor` to read them all."""
    before = read_cursor(cursor, project_id, status) if cursor else None
    offset = 0 if cursor else offset
    where = Filter(who.owner, project_id, status, limit, offset, before)
    tasks: Any
    if include:
        listing = await query.tasks(ports, where)
        tasks, total = tasks_json(listing.tasks, await query.full_results(ports, listing.tasks)), listing.total
        ids = [task.id for task in listing.tasks]
    else:
        found = await query.faces(ports, where)
        tasks, total, ids = faces_json(found.faces), found.total, [face[0] for face in found.faces]
    more = len(ids) == limit and (before is not None or offset + limit < total)
    cursor = write_cursor(ids[-1], project_id, status) if more else None
    return Json({"tasks": tasks, "total": total, "limit": limit, "offset": offset, "next_cursor": cursor})


@router.get("/tasks/batch", response_model=TaskBatch, summary="Several tasks by their ids")
async def list_tasks_by_id(
    who: Caller,
    ports: Bound,
    task_ids: Annotated[str, Query(description="1 to 100 ids, separated by commas")] = "",
    include: Literal["result"] | None = None,
) -> Response:
    """Up to 100 tasks by their ids, in the order asked for. Ids of others and unknown ones are left out."""
    found = await query.batch(ports, who, read_ids(task_ids))
    results = await (query.full_results(ports, found) if include else query.small_results(ports, who, found))
    return Json({"tasks": tasks_json(found, results), "total": len(found)})


@router.get(
    "/tasks/{task_id}",
    response_model=TaskOut,
    summary="A task",
    responses={304: {"description": "The task has not changed."}},
)
async def get_task(
    task_id: TaskId,
    request: Request,
    who: Caller,
    ports: Bound,
    wait: Annotated[float, Query(ge=0, le=MAX_WAIT_S, description="Seconds to wait for the next change")] = 0,
) -> Response:
    """A task with its result. `wait` holds the answer back until the task changes."""
    task = await query.task(ports, who, task_id)
    known = request.headers.get("if-none-match")
    preferred = _preferred_wait(request.headers.get("prefer", ""))
    wait = wait or preferred
    if wait and (known is None or _is_known(task, known)):
        task = await _next(request, ports, who, task, wait)
    headers = {"ETag": _etag(task)} | ({"Preference-Applied": f"wait={preferred:g}"} if preferred else {})
    if known is not None and _is_known(task, known):
        return Response(status_code=304, headers=headers)
    return Json(task_json(task, await query.outcome(ports, task)), headers=headers)


@router.post("/tasks/{task_id}/cancel", response_model=TaskAck, summary="Cancel a task")
async def cancel_task(task_id: TaskId, who: Caller, ports: Bound, force: bool = False) -> TaskAck:
    """Cancel a task that waits; with `force` one that runs, too."""
    task = await control.cancel(ports, who, task_id, force=force)
    return TaskAck.of(task, "Task cancelled successfully")


@router.post("/tasks/{task_id}/retry", response_model=TaskAck, summary="Run a finished task again")
async def retry_task(task_id: TaskId, body: Retry, who: Caller, ports: Bound) -> TaskAck:
    """Run a task that has ended again, from the stage named."""
    task = await control.retry(ports, who, task_id, from_stage=body.from_stage)
    return TaskAck.of(task, "Task retry submitted successfully")


@router.post("/tasks/{task_id}/mount", response_model=MountAck, summary="Put a task's output into a table")
async def mount_task(task_id: TaskId, body: Mount, who: Caller, ports: Bound) -> MountAck:
    """Write the output of a completed task into a table, at a JSON Pointer."""
    path = await control.mount(ports, who, task_id, table_id=body.table_id, json_path=body.json_path)
    return MountAck(success=True, message="Task result mounted successfully", mounted_path=path)


@router.get(
    "/tasks/{task_id}/twin",
    summary="The twin of a completed task as a ZIP file: Markdown, pages, images",
    response_class=Response,
    responses={200: {"description": "The archive", "content": {"application/zip": {"schema": BINARY}}}},
)
async def download_twin(
    task_id: TaskId, who: Caller, ports: Bound, layout: Literal["folder", "sidecar"] = "folder"
) -> Response:
    """The twin of a completed task: Markdown with its images and the data of its pages, as a ZIP file."""
    stack = AsyncExitStack()
    archive = await stack.enter_async_context(twins.packed(ports, who, task_id, layout))
    headers = {"Content-Disposition": f'attachment; filename="twin-{task_id}.zip"', **PRIVATE}
    return FileResponse(archive, headers=headers, media_type="application/zip", background=BackgroundTask(stack.aclose))


def read_ids(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",", MAX_BATCH)]
    if len(parts) > MAX_BATCH or not all(_ID.fullmatch(part) and int(part) <= MAX_ROW_ID for part in parts):
        raise BadRequest("task_ids_invalid")
    return [int(part) for part in parts]


def write_cursor(last_id: int, project_id: int | None, status: str | None) -> str:
    """Opaque, and good only for the list that gave it out."""
    text = f"t{last_id}.{'' if project_id is None else project_id}.{status or ''}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(cursor: str, project_id: int | None, status: str | None) -> int:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode("ascii")
    except ValueError:
        raise BadRequest("cursor_invalid") from None
    found = _CURSOR.fullmatch(text)
    if not found or int(found[1]) > MAX_ROW_ID or write_cursor(int(found[1]), project_id, status) != cursor:
        raise BadRequest("cursor_invalid")
    return int(found[1])


async def _next(request: Request, ports: Ports, who: Principal, task: Task, seconds: float) -> Task:
    """The task after its next change, or as it is after *seconds*; sooner if the service stops."""
    change = query.changed(ports, who, task.id, seconds=seconds, version=task.version)
    return await wait_for_client(request, change) or task


def _preferred_wait(prefer: str) -> float:
    """Seconds that `Prefer: wait=30` (RFC 7240) asks for, as far as we go along."""
    found = _WAIT.search(prefer)
    return min(float(found[1]), MAX_WAIT_S) if found else 0


def _etag(task: Task) -> str:
    return f'"{task.version}"'


def _is_known(task: Task, if_none_match: str) -> bool:
    tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return "*" in tags or _etag(task) in tags
