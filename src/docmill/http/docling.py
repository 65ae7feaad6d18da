"""docling-serve's own routes, answered by docmill: its clients can be pointed here unchanged.

    POST /v1/convert/file[/async]     multipart: files, and the options as fields
    POST /v1/convert/source[/async]   JSON: sources (http, file), options, target
    GET  /v1/status/poll/{task_id}    and GET /v1/result/{task_id}
    GET  /v1/clear/results            and GET /v1/clear/converters
    GET  /livez, /readyz, /version

A document becomes an ordinary task. The `task_id` on this wire names the tasks of a request and how their result was
wanted (`12.mj.e.1-0.i`), so that nothing else needs to be remembered. Options that concern docling's own models are
taken and have no effect.
"""

from __future__ import annotations

import asyncio
import re
import zipfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Annotated, Any, Literal, get_args

import pybase64
from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.requests import Request
from starlette.responses import Response

from docmill import __version__
from docmill.core.access import Principal
from docmill.core.body_limits import accept_body
from docmill.core.errors import BadRequest, DocmillError, Forbidden, Invalid, NotFound, TimedOut
from docmill.core.task import Status, Task, Wishes
from docmill.http.body import read_model, takes_model
from docmill.http.bound import Bound
from docmill.http.caller import Caller
from docmill.http.errors import problems
from docmill.http.health import Readiness, get_ready
from docmill.http.limits import HttpOptions
from docmill.http.repeated_fields import RepeatedFields, check_fields
from docmill.http.uploads import FORM_OVERHEAD, MAX_ROW_ID
from docmill.http.waiting import MAX_WAIT_S, wait_until_ended
from docmill.http.wire import Json, check_json, encode
from docmill.ports import Ports
from docmill.work import exports, intake, query, retention
from docmill.work.exports import Export, Format, Images, Wanted
from docmill.work.intake import Submission

MAX_SOURCES = 100
MAX_SOURCES_BYTES = 128 * 1024**2
"""Of one JSON body: documents are in it as Base64."""
SYNC_S = 600.0
"""After this a caller who waits is told to poll; the task goes on."""
FETCH_S = 60.0
PROJECT = "0"
WORKFLOW = "docling-serve"
"""The `workflow_id` of tasks that came through these routes: only these are cleared by `/v1/clear/results`."""
CLEAR_AFTER_S = 3600.0

router = APIRouter(tags=["docling-serve"], responses=problems(403, 404, 409, 415, 429, 504, 507))

_LETTERS: dict[str, Format] = {"m": "md", "j": "json", "h": "html", "t": "text"}
_IMAGES: dict[str, Images] = {"e": "embedded", "p": "placeholder", "r": "referenced"}
_ID = re.compile(r"([0-9]{1,19}(?:-[0-9]{1,19}){0,99})[.]([mjht]{1,4})[.]([epr])[.]([0-9]{1,9})-([0-9]{1,9})[.]([iz])")


class TaskMissing(NotFound):
    """In the words that docling-serve's clients look for."""

    def __init__(self, words: str = "Task not found.") -> None:
        super().__init__("task_not_found", task="")
        self.message = words


class ConversionFailed(DocmillError):
    """The document could not be converted; the code is the task's."""

    status = 422

    def __init__(self, code: str, message: str) -> None:
        Exception.__init__(self, message)
        self.code, self.message, self.facts = code, message, {}


NotOffered = Literal["doctags", "yaml", "html_split_page", "vtt", "doclang", "dclx", "chunks", "latex"]
"""Formats of docling that docmill does not make. Beside others they are null; alone they are refused."""


class ConvertOptions(BaseModel):
    """The options that mean something here. All others are taken and ignored."""

    model_config = ConfigDict(extra="ignore")

    to_formats: list[Format | NotOffered] = Field(default=["md"], min_length=1, max_length=16)
    image_export_mode: Images = "embedded"
    include_images: bool = True
    do_ocr: bool = True
    force_ocr: bool = False
    page_range: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] | None = None

    @field_validator("to_formats")
    @classmethod
    def _has_an_offered_format(cls, given: list[Format | NotOffered]) -> list[Format | NotOffered]:
        if not _offered(given):
            raise ValueError(f"none of these formats is offered; those that are: {', '.join(get_args(Format))}")
        return given

    def wanted(self) -> Wanted:
        first, last = self.page_range or (1, 0)
        return Wanted(
            formats=_offered(self.to_formats),
            images=self.image_export_mode if self.include_images else "placeholder",
            first=min(first, 999_999_999),
            last=0 if last > 999_999_999 else last,
        )

    def wishes(self) -> Wishes:
        ocr = "always" if self.force_ocr else "auto" if self.do_ocr else "never"
        return Wishes(workflow_id=WORKFLOW, parse={} if ocr == "auto" else {"ocr": ocr})


def _offered(formats: Sequence[str]) -> tuple[Format, ...]:
    return tuple(one for one in get_args(Format) if one in formats)


class Source(BaseModel):
    model_config = ConfigDict(extra="ignore")

    kind: Literal["http", "file"]
    url: str | None = Field(default=None, max_length=4_096)
    headers: dict[str, Any] = Field(default_factory=dict)
    base64_string: str | None = None
    filename: str = Field(default="document", max_length=1_024)


class Target(BaseModel):
    model_config = ConfigDict(extra="ignore")

    kind: str = "inbody"


class ConvertSources(BaseModel):
    model_config = ConfigDict(extra="ignore")

    options: ConvertOptions = Field(default_factory=ConvertOptions)
    sources: list[Source] = Field(min_length=1, max_length=MAX_SOURCES)
    target: Target = Field(default_factory=Target)


class Cleared(BaseModel):
    status: Literal["ok"] = "ok"


class TaskMeta(BaseModel):
    num_docs: int
    num_processed: int
    num_succeeded: int
    num_failed: int


class TaskStatus(BaseModel):
    task_id: str
    task_type: Literal["convert"]
    task_status: Literal["pending", "started", "success", "partial_success", "failure"]
    task_position: int | None
    task_meta: TaskMeta
    error_message: str | None


class Exported(BaseModel):
    filename: str
    md_content: str | None
    json_content: dict[str, Any] | None = Field(description="A DoclingDocument")
    html_content: str | None
    text_content: str | None
    doctags_content: str | None


class Fault(BaseModel):
    component_type: str
    module_name: str
    error_message: str


class Converted(BaseModel):
    document: Exported
    status: Literal["success", "partial_success"]
    errors: list[Fault]
    processing_time: float
    timings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Conversion:
    """The tasks of one request, and how their result is wanted."""

    task_ids: tuple[int, ...]
    wanted: Wanted
    is_zip: bool

    def to_id(self) -> str:
        letters = {one: letter for letter, one in _LETTERS.items()}
        [mode] = [letter for letter, one in _IMAGES.items() if one == self.wanted.images]
        ids = "-".join(str(one) for one in self.task_ids)
        formats = "".join(letters[one] for one in self.wanted.formats)
        pages = f"{self.wanted.first}-{self.wanted.last}"
        return f"{ids}.{formats}.{mode}.{pages}.{'z' if self.is_zip else 'i'}"

    @classmethod
    def of_id(cls, text: str) -> Conversion:
        found = _ID.fullmatch(text)
        ids = tuple(int(one) for one in found[1].split("-")) if found else ()
        if not found or any(one > MAX_ROW_ID for one in ids):
            raise TaskMissing
        formats = tuple(dict.fromkeys(_LETTERS[letter] for letter in found[2]))
        wanted = Wanted(formats, _IMAGES[found[3]], int(found[4]), int(found[5]))
        return cls(ids, wanted, found[6] == "z")


# Routes


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
                        "to_formats": {"type": "array", "items": {"type": "string", "enum": list(get_args(Format))}},
                        "image_export_mode": {"type": "string", "enum": list(get_args(Images))},
                        "do_ocr": {"type": "boolean"},
                        "force_ocr": {"type": "boolean"},
                        "target_type": {"type": "string", "enum": ["inbody", "zip"]},
                    },
                }
            }
        },
    }
}
ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "model": Converted,
        "description": "The document, or a ZIP file of several",
        "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
    }
}
TaskText = Annotated[str, Path(max_length=2_100, description="As the submission gave it out")]


@router.get("/version", response_model=dict[str, str], summary="docling-serve: versions")
async def docling_get_version(_: Caller) -> dict[str, str]:
    """The versions of docmill and of the protocol of docling-serve."""
    return {"docmill": __version__, "docling-serve": "1.0.0"}


class Alive(BaseModel):
    status: Literal["ok"]


@router.get("/livez", response_model=Alive, summary="docling-serve: is the process alive?")
async def docling_get_livez() -> Response:
    """Answers as long as the process runs."""
    return Json({"status": "ok"})


@router.get(
    "/readyz",
    response_model=Alive,
    summary="docling-serve: can it work?",
    responses={503: {"model": Readiness, "description": "A part fails; `checks` says which."}},
)
async def docling_get_readyz(request: Request, ports: Bound) -> Response:
    """Whether the service can work."""
    ready = await get_ready(request, ports)
    return Json({"status": "ok"}) if ready.status_code == 200 else ready


@router.post("/v1/convert/file", summary="docling-serve: convert files, and wait", responses=ANSWER, openapi_extra=FORM)
@accept_body(is_streamed=True)
async def docling_convert_files(request: Request, who: Caller, ports: Bound) -> Response:
    """Convert files and wait for the result, as docling-serve does."""
    return await _awaited(request, ports, who, await _of_form(request, ports, who))


@router.post(
    "/v1/convert/file/async", response_model=TaskStatus, summary="docling-serve: submit files", openapi_extra=FORM
)
@accept_body(is_streamed=True)
async def docling_submit_files(request: Request, who: Caller, ports: Bound) -> Response:
    """Submit files; the result is fetched with the id of the answer."""
    return await _status(ports, who, await _of_form(request, ports, who))


@router.post(
    "/v1/convert/source",
    summary="docling-serve: convert sources, and wait",
    responses=ANSWER,
    openapi_extra=takes_model(ConvertSources),
)
@accept_body(max_bytes=MAX_SOURCES_BYTES)
async def docling_convert_sources(request: Request, who: Caller, ports: Bound) -> Response:
    """Convert files at addresses or in Base64 and wait for the result."""
    body = await read_model(request, ConvertSources)
    return await _awaited(request, ports, who, await _of_sources(body, ports, who))


@router.post(
    "/v1/convert/source/async",
    response_model=TaskStatus,
    summary="docling-serve: submit sources",
    openapi_extra=takes_model(ConvertSources),
)
@accept_body(max_bytes=MAX_SOURCES_BYTES)
async def docling_submit_sources(request: Request, who: Caller, ports: Bound) -> Response:
    """Submit files at addresses or in Base64; the result is fetched with the id of the answer."""
    body = await read_model(request, ConvertSources)
    return await _status(ports, who, await _of_sources(body, ports, who))


@router.get(
    "/v1/status/poll/{conversion_id}", response_model=TaskStatus, summary="docling-serve: how far a submission is"
)
async def docling_get_status(
    conversion_id: TaskText, request: Request, who: Caller, ports: Bound, wait: Annotated[float, Query(ge=0)] = 0
) -> Response:
    """How far a submission is. `wait` holds the answer back until it has ended."""
    asked = Conversion.of_id(conversion_id)
    await _tasks(ports, who, asked)
    await wait_until_ended(request, ports, who, asked.task_ids, min(wait, MAX_WAIT_S))
    return await _status(ports, who, asked)


@router.get("/v1/result/{conversion_id}", summary="docling-serve: the result of a submission", responses=ANSWER)
async def docling_get_result(conversion_id: TaskText, who: Caller, ports: Bound) -> Response:
    """The result of a submission that has ended: JSON, or a ZIP file of several documents."""
    asked = Conversion.of_id(conversion_id)
    tasks = await _tasks(ports, who, asked)
    if not all(task.is_final for task in tasks) or not any(task.status is Status.COMPLETED for task in tasks):
        raise TaskMissing("Task result not found. Please wait for a completion status.")
    return await _result(ports, asked, tasks)


@router.get("/v1/clear/results", response_model=Cleared, summary="docling-serve: remove the caller's old conversions")
async def docling_clear_results(
    request: Request,
    who: Caller,
    ports: Bound,
    older_then: Annotated[float, Query(ge=0, le=1e9, description="Seconds since a conversion ended")] = CLEAR_AFTER_S,
) -> Cleared:
    """Remove conversions of the caller that are older than the time given."""
    refuse_foreign_page(request)
    await retention.clear(ports, who, workflow_id=WORKFLOW, project_id=int(PROJECT), older_ms=int(older_then * 1000))
    return Cleared()


@router.get("/v1/clear/converters", response_model=Cleared, summary="docling-serve: there is nothing to unload here")
async def docling_clear_converters(_: Caller) -> Cleared:
    """Accepted for docling-serve's clients; there is nothing to unload."""
    return Cleared()


def refuse_foreign_page(request: Request) -> None:
    """A GET that removes something: a page of another site must not cause it by a link or an image."""
    options: HttpOptions = request.app.state.options
    site = request.headers.get("sec-fetch-site", "same-origin")
    if site not in ("same-origin", "none") and request.headers.get("origin") not in options.allowed_origins:
        raise Forbidden("forbidden")


# Submitting


@dataclass
class ConvertForm(RepeatedFields):
    max_fields = 96

    def options(self) -> ConvertOptions:
        found: dict[str, Any] = {}
        for name, texts in self.lists.items():
            is_list = name in ("to_formats", "page_range")
            if is_list and len(texts) == 1 and texts[0].lstrip().startswith("["):
                found[name] = check_json(texts[0].encode())
            else:
                found[name] = texts if is_list else texts[-1]
        return check_fields(ConvertOptions, found)


async def _of_form(request: Request, ports: Ports, who: Principal) -> Conversion:
    limit = request.app.state.options.max_batch_bytes + FORM_OVERHEAD
    form = ConvertForm(request, ports, who, PROJECT, max_files=MAX_SOURCES, max_bytes=limit)
    async with form:
        await form.read()
        options = form.options()
        is_zip = _is_zip(form.lists.get("target_type", ["inbody"])[-1], len(form.files))
        ids = await form.submit(lambda key, name: _submitted(ports, who, key, name, options))
    return Conversion(tuple(ids), options.wanted(), is_zip)


async def _of_sources(body: ConvertSources, ports: Ports, who: Principal) -> Conversion:
    is_zip = _is_zip(body.target.kind, len(body.sources))
    ids = [await _of_source(one, body.options, ports, who) for one in body.sources]
    return Conversion(tuple(ids), body.options.wanted(), is_zip)


async def _of_source(source: Source, options: ConvertOptions, ports: Ports, who: Principal) -> int:
    name = source.filename
    if source.kind == "http":
        if ports.fetcher is None or not source.url:
            raise Invalid("request_invalid", why="a source of kind http needs a url.")
        if source.headers:
            raise Invalid("request_invalid", why="headers of a source are not passed on; fetch it and send the file.")
        name = source.url.split("?")[0].rstrip("/").rsplit("/", 1)[-1] or "document"
        async with exports.fetched_from(ports, source.url, seconds=FETCH_S) as chunks:
            stored = await intake.upload(ports, who, int(PROJECT), name, chunks)
    else:
        stored = await intake.upload(ports, who, int(PROJECT), name, _decoded(source.base64_string or ""))
    return await _submitted(ports, who, stored.key, name, options)


async def _decoded(text: str) -> AsyncIterator[bytes]:
    try:
        yield await asyncio.to_thread(pybase64.b64decode, text, validate=True)
    except ValueError:
        raise Invalid("request_invalid", why="base64_string is not base64.") from None


async def _submitted(ports: Ports, who: Principal, key: str, filename: str, options: ConvertOptions) -> int:
    task, _ = await intake.submit(ports, who, Submission(key, int(PROJECT), filename, None, options.wishes()))
    return task.id


def _is_zip(kind: str, count: int) -> bool:
    if kind == "presigned_url":
        # docling-serve's client takes this sentence as the hint to ask for the result itself.
        raise BadRequest("request_invalid", why="presigned_url needs artifact storage to be configured; use inbody.")
    if kind not in ("inbody", "zip"):
        raise Invalid("request_invalid", why="target: inbody or zip.")
    return kind == "zip" or count > 1


# Answering


async def _tasks(ports: Ports, who: Principal, asked: Conversion) -> list[Task]:
    found = await query.batch(ports, who, list(asked.task_ids))
    if len(found) != len(asked.task_ids):
        raise TaskMissing
    return found


async def _awaited(request: Request, ports: Ports, who: Principal, asked: Conversion) -> Response:
    if not await wait_until_ended(request, ports, who, asked.task_ids, SYNC_S):
        raise TimedOut("conversion_pending", task=asked.to_id())
    tasks = await _tasks(ports, who, asked)
    if not any(task.status is Status.COMPLETED for task in tasks):
        raise _failure(tasks)
    return await _result(ports, asked, tasks)


def _failure(tasks: Sequence[Task]) -> ConversionFailed:
    fault = tasks[0].fault
    return ConversionFailed(fault.code, fault.message) if fault else ConversionFailed("task_cancelled", "Cancelled.")


async def _status(ports: Ports, who: Principal, asked: Conversion) -> Response:
    tasks = await _tasks(ports, who, asked)
    ended = [task for task in tasks if task.is_final]
    good = [task for task in ended if task.status is Status.COMPLETED]
    if len(ended) < len(tasks):
        status = "pending" if all(task.status is Status.PENDING for task in tasks) else "started"
    else:
        status = ("success" if len(good) == len(tasks) else "partial_success") if good else "failure"
    return Json(
        {
            "task_id": asked.to_id(),
            "task_type": "convert",
            "task_status": status,
            "task_position": None,
            "task_meta": {
                "num_docs": len(tasks),
                "num_processed": len(ended),
                "num_succeeded": len(good),
                "num_failed": len(ended) - len(good),
            },
            "error_message": _told(_failure(tasks)) if status == "failure" else None,
        }
    )


def _told(error: DocmillError) -> str:
    return f"{error.code}: {error.message}"


async def _result(ports: Ports, asked: Conversion, tasks: Sequence[Task]) -> Response:
    good = [task for task in tasks if task.status is Status.COMPLETED]
    made = [await exports.export(ports, task, asked.wanted) for task in good]
    if asked.is_zip:
        archive = await asyncio.to_thread(_zipped, made)
        headers = {"Content-Disposition": 'attachment; filename="converted_docs.zip"'}
        return Response(archive, headers=headers, media_type="application/zip")
    [task], [export] = good, made
    return Json(_converted(export, (task.updated_ms - task.created_ms) / 1000))


def _converted(export: Export, seconds: float) -> dict[str, Any]:
    names: Mapping[str, Format] = {"md": "md", "json": "json", "html": "html", "text": "text"}
    document = {f"{name}_content": export.contents.get(one) for name, one in names.items()}
    faults = [
        {"component_type": "document_backend", "module_name": "docmill", "error_message": f"page {page}: {why}"}
        for page, why in export.damage.items()
    ]
    return {
        "document": {"filename": export.filename, **document, "doctags_content": None},
        "status": "partial_success" if faults else "success",
        "errors": faults,
        "processing_time": seconds,
        "timings": {},
    }


def _zipped(made: Sequence[Export]) -> bytes:
    endings: dict[Format, str] = {"md": "md", "json": "json", "html": "html", "text": "txt"}
    out, taken = BytesIO(), set[str]()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, export in enumerate(made, 1):
            stem = export.stem if export.stem not in taken else f"{export.stem}_{number}"
            taken.add(stem)
            for one, content in export.contents.items():
                data = encode(content) if one == "json" else str(content).encode()
                archive.writestr(f"{stem}.{endings[one]}", data)
            for path, data in export.files.items():
                if path not in taken:
                    taken.add(path)
                    archive.writestr(path, data)
    return out.getvalue()
