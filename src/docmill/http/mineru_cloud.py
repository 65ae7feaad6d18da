"""The routes of MinerU's cloud (API v4), answered by docmill.

    POST /api/v4/file-urls/batch                announce files; the answer has an address for each
    PUT  /api/v4/uploads/{token}                such an address: takes the bytes, and starts the task
    GET  /api/v4/extract-results/batch/{id}     the states of the files, and where their results are
    GET  /api/v4/results/{token}.zip            such a result
    POST /api/v4/extract/task                   parse a file at an address, and GET /api/v4/extract/task/{id}

Upload and result addresses carry their own permission, as in the cloud: clients send no credential there. Every answer
is the cloud's envelope, `{"code": 0, "data": …, "msg": "ok", "trace_id": …}`, also when something is wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from docmill.core.access import Principal
from docmill.core.body_limits import accept_body
from docmill.core.errors import BadRequest, Conflict, DocmillError, Forbidden, NotFound, TooLarge, Unauthorized
from docmill.core.mineru import are_page_ranges, cloud_code, select_ranges
from docmill.core.task import Status, Task
from docmill.http.addresses import base_url
from docmill.http.body import takes_bytes
from docmill.http.bound import Bound
from docmill.http.caller import Caller
from docmill.http.errors import retry_after, validation
from docmill.http.limits import HttpOptions
from docmill.http.mineru import FileAnswer, error_of
from docmill.http.wire import Json, check_json
from docmill.ports import Links, Ports
from docmill.work import exports, mineru
from docmill.work.mineru import Archive, Batch, BatchFile

BASE = "/api/v4"
MAX_FILES = 200
MAX_BODY_BYTES = 1024**2
LINK_S = 24 * 3600.0
"""How long an upload address is valid, as in the cloud, and that of a result."""
FETCH_S = 60.0

Wish = TypeVar("Wish", bound=BaseModel)


class FileWish(BaseModel):
    model_config = ConfigDict(extra="ignore")

    name: str = Field(min_length=1, max_length=1_024)
    data_id: str | None = Field(default=None, max_length=128)
    is_ocr: bool = Field(default=False, description="Read all pages as images.")
    page_ranges: str | None = Field(default=None, max_length=4_096, description="2,4-6 or 2--2")

    @field_validator("page_ranges")
    @classmethod
    def _check_ranges(cls, text: str | None) -> str | None:
        if text and not are_page_ranges(text):
            raise ValueError("page numbers and ranges, separated by commas: 2,4-6")
        return text

    def to_file(self) -> BatchFile:
        return BatchFile(self.name, self.data_id, self.is_ocr, self.page_ranges or "")


class Options(BaseModel):
    """What may be asked of all files. Unknown fields choose among MinerU's models and are ignored."""

    model_config = ConfigDict(extra="ignore")

    no_cache: bool = False
    extra_formats: list[str] | None = Field(default=None, max_length=16)
    callback: str | None = Field(default=None, max_length=4_096)

    def refuse_what_is_not_offered(self) -> None:
        if self.extra_formats:
            raise BadRequest("request_invalid", why="extra_formats is not offered: results are Markdown and JSON.")
        if self.callback:
            raise BadRequest("request_invalid", why="callback is not offered: use docmill's webhooks, or poll.")


class BatchWish(Options):
    files: list[FileWish] = Field(min_length=1, max_length=MAX_FILES)


class UrlWish(Options):
    url: str = Field(min_length=1, max_length=4_096)
    data_id: str | None = Field(default=None, max_length=128)
    is_ocr: bool = False
    page_ranges: str | None = Field(default=None, max_length=4_096)

    def to_wish(self) -> FileWish:
        name = self.url.split("?")[0].rstrip("/").rsplit("/", 1)[-1][:1_024] or "document"
        return FileWish(name=name, data_id=self.data_id, is_ocr=self.is_ocr, page_ranges=self.page_ranges)


class Answer(BaseModel):
    """The cloud's envelope."""

    code: int | str = Field(description="0: it worked")
    data: dict[str, Any] | None = None
    msg: str
    trace_id: str


class EnvelopeRoute(APIRoute):
    """Errors leave in the envelope, too."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestValidationError as error:
                return _refusal(request, validation(error.errors()))
            except DocmillError as error:
                return _refusal(request, error)

        return handle


def refuse(scope: Scope, error: DocmillError) -> Response:
    """A body that is refused before its route runs."""
    return _refusal(Request(scope), error)


def _answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Answer, "description": "What is wrong, in the envelope."} for status in statuses}


router = APIRouter(
    prefix=BASE,
    tags=["MinerU"],
    route_class=EnvelopeRoute,
    responses=_answers(400, 401, 403, 404, 409, 413, 422, 429, 500, 503, 507),
)


def _body_of(model: type[BaseModel]) -> dict[str, Any]:
    """The body is read by the route itself, so that what is wrong with it is told in the envelope."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    definitions = schema.pop("$defs", {})
    for name, one in definitions.items():
        for place in schema["properties"].values():
            if place.get("items") == {"$ref": f"#/components/schemas/{name}"}:
                place["items"] = one
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


# Routes


@router.post(
    "/file-urls/batch",
    response_model=Answer,
    summary="MinerU cloud: announce files",
    openapi_extra=_body_of(BatchWish),
)
@accept_body(refuse=refuse)
async def mineru_cloud_announce_files(request: Request, who: Caller, ports: Bound) -> Response:
    """Announce files; the answer has an address for the upload of each."""
    links = _links(ports)
    wish = await _read(request, BatchWish)
    wish.refuse_what_is_not_offered()
    files = [file.to_file() for file in wish.files]
    batch = await mineru.open_batch(ports, who, files, no_cache=wish.no_cache)
    at = f"{base_url(request)}{BASE}/uploads"
    urls = [at + links.upload(who.tenant, _subject(batch, index), seconds=LINK_S) for index in range(len(files))]
    return _envelope(request, {"batch_id": batch.id, "file_urls": urls})


@router.put(
    "/uploads/{token}",
    response_class=Response,
    summary="MinerU cloud: upload a file to its address",
    responses={200: {"description": "The file is stored."}},
    openapi_extra=takes_bytes(),
)
@accept_body(is_streamed=True, is_public=True, refuse=refuse)
async def mineru_cloud_upload_file(token: str, request: Request, ports: Bound) -> Response:
    """Upload a file to the address that was given out for it. The address is the credential."""
    batch, index = await _permitted(ports, token, "PUT")
    stored = await mineru.receive_file(ports, batch, index, _chunks(request, ports))
    request.app.state.metrics.uploaded(stored.size)
    return Response(headers={"ETag": f'"{stored.etag}"'} if stored.etag.isascii() else {})


BatchId = Annotated[str, Path(max_length=64, description="As the submission gave it out")]


@router.get("/extract-results/batch/{batch_id}", response_model=Answer, summary="MinerU cloud: how far a batch is")
async def mineru_cloud_get_batch(batch_id: BatchId, request: Request, who: Caller, ports: Bound) -> Response:
    """The state of every file of a batch, and where the results are."""
    batch = await mineru.find_batch(ports, who, batch_id)
    return _envelope(request, {"batch_id": batch.id, "extract_result": await _results(request, ports, batch)})


@router.post(
    "/extract/task",
    response_model=Answer,
    summary="MinerU cloud: parse a file at an address",
    openapi_extra=_body_of(UrlWish),
)
@accept_body(refuse=refuse)
async def mineru_cloud_submit_url(request: Request, who: Caller, ports: Bound) -> Response:
    """The file is fetched before the answer: whether it can be is known then."""
    _links(ports)
    wish = await _read(request, UrlWish)
    wish.refuse_what_is_not_offered()
    file = wish.to_wish().to_file()
    async with exports.fetched_from(ports, wish.url, seconds=FETCH_S) as chunks:
        batch = await mineru.open_batch(ports, who, [file], no_cache=wish.no_cache)
        await mineru.receive_file(ports, batch, 0, chunks)
    return _envelope(request, {"task_id": batch.id})


@router.get("/extract/task/{batch_id}", response_model=Answer, summary="MinerU cloud: how far a task is")
async def mineru_cloud_get_task(batch_id: BatchId, request: Request, who: Caller, ports: Bound) -> Response:
    """The state of a file that was submitted by its address."""
    batch = await mineru.find_batch(ports, who, batch_id)
    [result, *_] = await _results(request, ports, batch)
    return _envelope(request, {"task_id": batch.id, **result})


@router.get(
    "/results/{token}.zip",
    response_class=Response,
    summary="MinerU cloud: a result",
    responses={200: {"content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def mineru_cloud_download_result(token: str, ports: Bound) -> Response:
    """A result as a ZIP file. The address is the credential."""
    batch, index = await _permitted(ports, token, "GET")
    task = (await mineru.tasks_of(ports, batch)).get(index)
    if task is None:
        raise NotFound("task_not_found", task=batch.id)
    if task.status is not Status.COMPLETED:
        raise Conflict("task_not_completed", task=task.id, status=task.status)
    file = await mineru.build_archive(ports, _filler(ports, batch, index, task))
    return FileAnswer(file, f"{batch.id}.zip", {})


# Reading


def _links(ports: Ports) -> Links:
    if ports.batch_links is None:
        raise NotFound("route_not_found")
    return ports.batch_links


def _subject(batch: Batch, index: int) -> str:
    """What an address permits: one file of one batch."""
    return f"{batch.id}/{index}/{batch.user}"


async def _permitted(ports: Ports, token: str, method: str) -> tuple[Batch, int]:
    tenant, subject = _links(ports).read(token, method=method)
    batch_id, index, user = subject.split("/", 2)
    try:
        batch = await mineru.find_batch(ports, Principal(user, tenant), batch_id)
    except NotFound:
        raise Forbidden("link_invalid") from None
    return batch, int(index)


async def _read(request: Request, model: type[Wish]) -> Wish:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise TooLarge("body_too_large", limit=MAX_BODY_BYTES)
    value = await asyncio.to_thread(check_json, bytes(body))
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise validation({**one, "loc": ("body", *one["loc"])} for one in error.errors()) from None


async def _chunks(request: Request, ports: Ports) -> AsyncIterator[bytes]:
    options: HttpOptions = request.app.state.options
    limit = min(options.max_upload_bytes or ports.limits.upload_bytes, ports.limits.upload_bytes)
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and len(announced) < 20 and int(announced) > limit:
        raise TooLarge("upload_too_large", limit=limit)
    seen = 0
    async for chunk in request.stream():
        seen += len(chunk)
        if seen > limit:
            raise TooLarge("upload_too_large", limit=limit)
        if chunk:
            yield chunk


# Answering


def _envelope(request: Request, data: dict[str, Any]) -> Response:
    return Json({"code": 0, "data": data, "msg": "ok", "trace_id": _trace_id(request)})


def _refusal(request: Request, error: DocmillError) -> Response:
    code, trace_id = cloud_code(error.code, error.status), _trace_id(request)
    body = {"code": code, "msg": f"{error.code}: {error.message}", "trace_id": trace_id}
    headers = retry_after(error)
    if isinstance(error, Unauthorized):
        # The cloud's gateway has an envelope of its own; clients look for either.
        body |= {"success": False, "msgCode": code, "traceId": trace_id}
        headers["WWW-Authenticate"] = 'Bearer realm="docmill"'
    return Json(body, status_code=error.status, headers=headers)


def _trace_id(request: Request) -> str:
    return str(request.scope.get("state", {}).get("request_id", ""))


async def _results(request: Request, ports: Ports, batch: Batch) -> list[dict[str, Any]]:
    tasks = await mineru.tasks_of(ports, batch)
    return [_file_result(request, ports, batch, index, tasks) for index in range(len(batch.files))]


def _file_result(
    request: Request, ports: Ports, batch: Batch, index: int, tasks: Mapping[int, Task | None]
) -> dict[str, Any]:
    file = batch.files[index]
    result: dict[str, Any] = {"file_name": file.name, "state": "waiting-file", "err_msg": ""}
    if file.data_id is not None:
        result["data_id"] = file.data_id
    if index not in tasks:
        return result
    task = tasks[index]
    if task is None:
        why = "task_expired: The task was kept for as long as this service keeps tasks, and then removed."
        return result | {"state": "failed", "err_code": cloud_code("task_expired"), "err_msg": why}
    if task.status is Status.COMPLETED:
        link = _links(ports).download(batch.tenant, _subject(batch, index), seconds=LINK_S)
        return result | {"state": "done", "full_zip_url": f"{base_url(request)}{BASE}/results{link}.zip"}
    if task.is_final:
        code = cloud_code(task.fault.code if task.fault else "task_cancelled")
        return result | {"state": "failed", "err_code": code, "err_msg": error_of(task)}
    if task.status is Status.PENDING:
        return result | {"state": "pending"}
    return result | {"state": "running", **_progress(task)}


def _progress(task: Task) -> dict[str, Any]:
    if task.pages_total is None:
        return {}
    return {"extract_progress": {"extracted_pages": task.pages_done or 0, "total_pages": task.pages_total}}


def _filler(ports: Ports, batch: Batch, index: int, task: Task) -> Callable[[Archive], Any]:
    """The archive of one file: full.md, images/ and a content list."""

    async def fill(archive: Archive) -> None:
        ranges = batch.files[index].page_ranges
        rendered = await mineru.render(ports, task, lambda pages: select_ranges(pages, ranges))
        await archive.add("full.md", rendered.markdown.encode())
        await archive.add(f"{batch.id}_content_list.json", await asyncio.to_thread(rendered.content_list_json))
        for image in rendered.images:
            await archive.add_object(image.path, task.tenant, image.key, is_packed=True)

    return fill
