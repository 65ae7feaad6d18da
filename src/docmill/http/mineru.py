"""The routes of a self-hosted MinerU server (2.x and 3.x), answered by docmill.

    POST /file_parse              multipart: files and options; the answer is the result
    POST /tasks                   the same form; the answer is a task to look after
    GET  /tasks/{id}              its status, and GET /tasks/{id}/result

They are also served below /mineru, beside a /mineru/health in MinerU's form: MinerU's own client asks for that, and
/health belongs to docmill. Every file becomes an ordinary task. The `task_id` on this wire names the tasks of a request
and how their result is wanted, so that nothing else has to be stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import IO, Annotated, Any

import pybase64
from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from docmill import __version__
from docmill.core.access import Principal
from docmill.core.body_limits import accept_body
from docmill.core.errors import BadRequest, NotFound
from docmill.core.face import iso
from docmill.core.mineru import (
    BACKEND,
    LAST_PAGE_ID,
    MAX_PAGE_ID,
    MAX_TASKS,
    OCR_BY_METHOD,
    PARSE_ID,
    Outputs,
    ParseMethod,
    ParseRequest,
    unique_stems,
)
from docmill.core.task import Status, Task, Wishes
from docmill.http.addresses import base_url
from docmill.http.bound import Bound
from docmill.http.caller import Caller
from docmill.http.errors import problems
from docmill.http.repeated_fields import RepeatedFields, check_fields
from docmill.http.uploads import FORM_OVERHEAD, MAX_ROW_ID
from docmill.http.waiting import wait_until_ended
from docmill.http.wire import Json, check_json
from docmill.ports import Ports
from docmill.work import intake, mineru, query
from docmill.work.intake import Submission
from docmill.work.mineru import Archive, Rendered

PREFIX = "/mineru"
PROTOCOL_VERSION = 2
PROCESSING_WINDOW_PAGES = 64
MAX_CONCURRENT_REQUESTS = 16
"""What MinerU's client is told; it sends no more at once."""
MAX_SYNC_S = 600.0
"""After this a caller who waits is told to poll; the tasks go on."""
STREAM_CHUNK_BYTES = 1 << 18

Contents = dict[str, str | dict[str, str] | None]


class ParseIdConvertor(Convertor[str]):
    """Lets only our own ids through: the console has pages below /tasks, too."""

    regex = PARSE_ID

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("mineru_task", ParseIdConvertor())


class ParseOptions(BaseModel):
    """The options that mean something here. All others choose among MinerU's models and are ignored."""

    model_config = ConfigDict(extra="ignore")

    backend: str = Field(default="pipeline", pattern=f"^{BACKEND}$")
    parse_method: ParseMethod = "auto"
    lang_list: list[Annotated[str, Field(max_length=128)]] = Field(default=["ch"], max_length=MAX_TASKS)
    formula_enable: bool = True
    table_enable: bool = True
    server_url: str = Field(default="", max_length=4_096)
    return_md: bool = True
    return_middle_json: bool = False
    return_model_output: bool = False
    return_content_list: bool = False
    return_images: bool = False
    return_original_file: bool = False
    response_format_zip: bool = False
    client_side_output_generation: bool = False
    start_page_id: int = Field(default=0, ge=0, le=MAX_PAGE_ID)
    end_page_id: int = Field(default=LAST_PAGE_ID, ge=0, le=MAX_PAGE_ID)

    def refuse_what_is_not_offered(self) -> None:
        if self.server_url:
            raise BadRequest("request_invalid", why="server_url is not offered: docmill chooses its engines itself.")
        if self.client_side_output_generation:
            why = "client_side_output_generation is not offered: there is no middle JSON to generate from."
            raise BadRequest("request_invalid", why=why)
        if self.end_page_id < self.start_page_id:
            raise BadRequest("request_invalid", why="end_page_id is smaller than start_page_id.")

    def outputs(self) -> Outputs:
        return Outputs(
            md=self.return_md,
            content_list=self.return_content_list,
            images=self.return_images,
            middle_json=self.return_middle_json,
            model_output=self.return_model_output,
            original_file=self.return_original_file and self.response_format_zip,
            is_zip=self.response_format_zip,
        )

    def wishes(self) -> Wishes:
        ocr = OCR_BY_METHOD.get(self.parse_method)
        return Wishes(parse={"ocr": ocr} if ocr else {})


class ParseStatus(BaseModel):
    task_id: str
    status: str = Field(description="pending, processing, completed, failed")
    backend: str
    file_names: list[str]
    created_at: str
    started_at: str | None
    completed_at: str | None
    error: str | None
    status_url: str
    result_url: str
    message: str | None = None


class ParseResult(BaseModel):
    backend: str
    version: str
    results: dict[str, dict[str, Any]] = Field(
        description="By file name without extension: md_content, content_list (JSON as text), images (data URIs); "
        "middle_json and model_output are null. A file that failed has an error instead."
    )


FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["files"],
                    "properties": {
                        "files": {"type": "array", "items": {"type": "string", "format": "binary"}},
                        **ParseOptions.model_json_schema()["properties"],
                    },
                }
            }
        },
    }
}
RESULT: dict[int | str, dict[str, Any]] = {
    200: {
        "model": ParseResult,
        "description": "The result, or with response_format_zip a ZIP file",
        "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
    },
    409: {"model": ParseStatus, "description": "No file could be parsed."},
}
NOT_READY: dict[int | str, dict[str, Any]] = {
    202: {"model": ParseStatus, "description": "The result is not ready yet."}
}
TIMED_OUT: dict[int | str, dict[str, Any]] = {
    504: {"model": ParseStatus, "description": "It takes longer: ask `status_url`."}
}
ParseId = Annotated[str, Path(max_length=2_100, pattern=f"^{PARSE_ID}$", description="As the submission gave it out.")]

routes = APIRouter()


# Routes


@routes.post("/file_parse", summary="MinerU: parse files, and wait", responses=RESULT | TIMED_OUT, openapi_extra=FORM)
@accept_body(is_streamed=True)
async def mineru_parse_files(request: Request, who: Caller, ports: Bound) -> Response:
    """Parse files and wait for the result, as a self-hosted MinerU server does."""
    asked = await _submit_form(request, ports, who)
    is_over = await wait_until_ended(request, ports, who, asked.task_ids, MAX_SYNC_S)
    tasks = await _tasks(ports, who, asked)
    if not is_over:
        message = "The files are still being parsed. Ask status_url for them."
        return Json(_status(request, asked, tasks) | {"message": message}, status_code=504)
    return await _result(request, ports, asked, tasks, is_sync=True)


@routes.post("/tasks", status_code=202, response_model=ParseStatus, summary="MinerU: submit files", openapi_extra=FORM)
@accept_body(is_streamed=True)
async def mineru_submit_files(request: Request, who: Caller, ports: Bound) -> Response:
    """Submit files; the result is fetched with the id of the answer."""
    asked = await _submit_form(request, ports, who)
    status = _status(request, asked, await _tasks(ports, who, asked))
    return Json(status | {"message": "Task submitted successfully"}, status_code=202)


@routes.get("/tasks/{parse_id:mineru_task}", response_model=ParseStatus, summary="MinerU: how far a submission is")
async def mineru_get_status(parse_id: ParseId, request: Request, who: Caller, ports: Bound) -> Response:
    """How far a submission is."""
    asked = _read_id(parse_id)
    return Json(_status(request, asked, await _tasks(ports, who, asked)))


@routes.get(
    "/tasks/{parse_id:mineru_task}/result",
    summary="MinerU: the result of a submission",
    responses=RESULT | NOT_READY,
)
async def mineru_get_result(parse_id: ParseId, request: Request, who: Caller, ports: Bound) -> Response:
    """The result of a submission: JSON, or a ZIP file if one was asked for."""
    asked = _read_id(parse_id)
    tasks = await _tasks(ports, who, asked)
    if not all(task.is_final for task in tasks):
        message = "Task result is not ready yet"
        return Json(_status(request, asked, tasks) | {"message": message}, status_code=202)
    return await _result(request, ports, asked, tasks, is_sync=False)


async def get_mineru_health() -> Response:
    """What MinerU's own client wants to know before it sends anything. Open to all, as /health is."""
    return Json(
        {
            "status": "healthy",
            "version": __version__,
            "protocol_version": PROTOCOL_VERSION,
            "max_concurrent_requests": MAX_CONCURRENT_REQUESTS,
            "processing_window_size": PROCESSING_WINDOW_PAGES,
        }
    )


router = APIRouter(tags=["MinerU"], responses=problems(403, 404, 410, 415, 429, 507))
router.include_router(routes)
router.include_router(routes, prefix=PREFIX, include_in_schema=False)
router.add_api_route(f"{PREFIX}/health", get_mineru_health, include_in_schema=False)


# Submitting


@dataclass
class ParseForm(RepeatedFields):
    max_fields = 128

    def options(self) -> ParseOptions:
        found: dict[str, Any] = {name: texts[-1] for name, texts in self.lists.items() if texts[-1] != ""}
        if languages := self.lists.get("lang_list"):
            is_json = len(languages) == 1 and languages[0].lstrip().startswith("[")
            found["lang_list"] = check_json(languages[0].encode()) if is_json else languages
        return check_fields(ParseOptions, found)


async def _submit_form(request: Request, ports: Ports, who: Principal) -> ParseRequest:
    """Every file of the form as a task. If one cannot be stored, none is started."""
    limit = request.app.state.options.max_batch_bytes + FORM_OVERHEAD
    form = ParseForm(request, ports, who, str(mineru.PROJECT_ID), max_files=MAX_TASKS, max_bytes=limit)
    async with form:
        await form.read()
        options = form.options()
        options.refuse_what_is_not_offered()

        async def submit(key: str, name: str) -> int:
            wanted = Submission(key, mineru.PROJECT_ID, name, None, options.wishes())
            return (await intake.submit(ports, who, wanted))[0].id

        ids = await form.submit(submit)
    return ParseRequest(
        tuple(ids),
        options.outputs(),
        options.start_page_id,
        options.end_page_id,
        options.parse_method,
        options.backend,
    )


# Answering


def _read_id(text: str) -> ParseRequest:
    asked = ParseRequest.of_id(text)
    if asked is None or any(one > MAX_ROW_ID for one in asked.task_ids):
        raise TaskNotFound
    return asked


class TaskNotFound(NotFound):
    """In the words of MinerU's server."""

    def __init__(self) -> None:
        super().__init__("task_not_found", task="")
        self.message = "Task not found"


async def _tasks(ports: Ports, who: Principal, asked: ParseRequest) -> list[Task]:
    found = await query.batch(ports, who, list(asked.task_ids))
    if len(found) != len(asked.task_ids):
        raise TaskNotFound
    return found


def error_of(task: Task) -> str:
    """Why a task that has ended was not completed."""
    return f"{task.fault.code}: {task.fault.message}" if task.fault else "task_cancelled: The task was cancelled."


def _status(request: Request, asked: ParseRequest, tasks: Sequence[Task]) -> dict[str, Any]:
    has_ended = all(task.is_final for task in tasks)
    if has_ended:
        status = "completed" if any(task.status is Status.COMPLETED for task in tasks) else "failed"
    else:
        status = "pending" if all(task.status is Status.PENDING for task in tasks) else "processing"
    failed = [task for task in tasks if task.is_final and task.status is not Status.COMPLETED]
    prefix = PREFIX if request.url.path.startswith(f"{PREFIX}/") else ""
    address = f"{base_url(request)}{prefix}/tasks/{asked.to_id()}"
    return {
        "task_id": asked.to_id(),
        "status": status,
        "backend": asked.backend,
        "file_names": unique_stems([task.filename for task in tasks]),
        "created_at": iso(min(task.created_ms for task in tasks)),
        "started_at": None,
        "completed_at": iso(max(task.updated_ms for task in tasks)) if has_ended else None,
        "error": "; ".join(f"{task.filename}: {error_of(task)}" for task in failed) or None,
        "status_url": address,
        "result_url": f"{address}/result",
    }


async def _result(
    request: Request, ports: Ports, asked: ParseRequest, tasks: Sequence[Task], *, is_sync: bool
) -> Response:
    status = _status(request, asked, tasks)
    if status["status"] == "failed":
        return Json(status | {"message": "Task execution failed"}, status_code=409)
    if asked.outputs.is_zip:
        file = await mineru.build_archive(ports, _filler(ports, asked, tasks))
        headers = {
            "X-MinerU-Task-Id": status["task_id"],
            "X-MinerU-Task-Status": status["status"],
            "X-MinerU-Task-Status-Url": status["status_url"],
            "X-MinerU-Task-Result-Url": status["result_url"],
        }
        return FileAnswer(file, "results.zip", headers if is_sync else {})
    results: dict[str, Contents] = {}
    left = mineru.MAX_EMBEDDED_BYTES
    for stem, task in zip(status["file_names"], tasks, strict=True):
        if task.status is not Status.COMPLETED:
            results[stem] = {"error": error_of(task)}
            continue
        rendered = await mineru.render(ports, task, asked.select)
        results[stem] = await _contents(ports, asked.outputs, task, rendered, left)
        left -= sum(image.size for image in rendered.images) if asked.outputs.images else 0
    answer = {"backend": asked.backend, "version": __version__, "results": results}
    return Json(status | answer if is_sync else answer)


async def _contents(ports: Ports, outputs: Outputs, task: Task, rendered: Rendered, left: int) -> Contents:
    found: Contents = {}
    if outputs.md:
        found["md_content"] = rendered.markdown
    if outputs.middle_json:
        found["middle_json"] = None
    if outputs.model_output:
        found["model_output"] = None
    if outputs.content_list:
        found["content_list"] = (await asyncio.to_thread(rendered.content_list_json)).decode()
    if outputs.images:
        data = await mineru.read_images(ports, task.tenant, rendered.images, left=left)
        types = {image.name: image.media_type for image in rendered.images}
        found["images"] = {
            name: f"data:{types[name]};base64,{await asyncio.to_thread(_base64, one)}" for name, one in data.items()
        }
    return found


def _base64(data: bytes) -> str:
    return pybase64.b64encode(data).decode()


def _filler(ports: Ports, asked: ParseRequest, tasks: Sequence[Task]) -> Callable[[Archive], Any]:
    """Writes what was asked for of every completed task: `<name>/<method>/<name>.md` and so on."""

    async def fill(archive: Archive) -> None:
        stems = unique_stems([task.filename for task in tasks])
        for stem, task in zip(stems, tasks, strict=True):
            if task.status is not Status.COMPLETED:
                continue
            rendered = await mineru.render(ports, task, asked.select)
            folder = f"{stem}/{asked.folder}"
            if asked.outputs.md:
                await archive.add(f"{folder}/{stem}.md", rendered.markdown.encode())
            if asked.outputs.content_list:
                data = await asyncio.to_thread(rendered.content_list_json)
                await archive.add(f"{folder}/{stem}_content_list.json", data)
            if asked.outputs.images:
                for image in rendered.images:
                    await archive.add_object(f"{folder}/{image.path}", task.tenant, image.key, is_packed=True)
            if asked.outputs.original_file:
                ending = intake.extension(task.filename)
                await archive.add_object(f"{folder}/{stem}_origin{ending}", task.tenant, task.source_key)

    return fill


class FileAnswer(StreamingResponse):
    """An open file, which is closed however the answer ends."""

    def __init__(self, file: IO[bytes], name: str, headers: dict[str, str]) -> None:
        self._file = file
        size = file.seek(0, 2)
        file.seek(0)
        told = {"Content-Length": str(size), "Content-Disposition": f'attachment; filename="{name}"'}
        super().__init__(self._chunks(), media_type="application/zip", headers=told | headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            # In a thread: a file without a name is deleted when it is closed, which may take a while.
            await asyncio.to_thread(self._file.close)

    async def _chunks(self) -> AsyncIterator[bytes]:
        while chunk := await asyncio.to_thread(self._file.read, STREAM_CHUNK_BYTES):
            yield chunk
