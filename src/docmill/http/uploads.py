"""Documents come in: upload, submit, or both at once for several files."""

from __future__ import annotations

import json
import mimetypes
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Literal

import structlog
from fastapi import APIRouter, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from docmill.core.access import Principal
from docmill.core.body_limits import accept_body
from docmill.core.errors import BadRequest, DocmillError, Invalid, StageFailed, StorageFull, TooLarge, unwrap
from docmill.core.keys import MAX_PROJECT
from docmill.core.machine import wire_status
from docmill.core.task import MountWish, Task, TwinWish, Wishes
from docmill.http.bound import Bound
from docmill.http.caller import Caller
from docmill.http.errors import problems, validation
from docmill.http.limits import HttpOptions
from docmill.http.multipart import Form, FormLimits, Part
from docmill.http.strict import StrictModel
from docmill.http.wire import Json, SubmittedFiles, TaskAck, UploadAck, check_json, check_text
from docmill.ports import Once, Ports, Stored
from docmill.work import intake
from docmill.work.intake import Submission
from docmill.work.objects import objects

FORM_OVERHEAD = 2 * 1024**2
"""What a form may have besides its files."""
MAX_ROW_ID = 2**63 - 1

log = structlog.get_logger("docmill.http")
router = APIRouter(prefix="/api/v1/etl", tags=["tasks"], responses=problems(403, 404, 409, 410, 415, 429, 507))

_PROJECT = re.compile(r"0|[1-9][0-9]{0,18}")
_ONCE_KEY = re.compile(r"[\x21-\x7e]{1,255}")


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number, not a truth value")
    return value


RowId = Annotated[int, Field(ge=1, le=MAX_ROW_ID), BeforeValidator(_no_bool)]
ProjectId = Annotated[int, Field(ge=0, le=MAX_PROJECT), BeforeValidator(_no_bool)]


class Mount(StrictModel):
    table_id: RowId
    json_path: str = Field(default="", max_length=4_096, description="JSON Pointer; empty: the whole table.")


class Twin(StrictModel):
    folder: str = Field(default="", max_length=4_096)
    layout: Literal["folder", "sidecar"] = "folder"
    force: bool = False


def _twin(value: Any) -> Any:
    """`true` is a twin of the usual kind."""
    if value is None or isinstance(value, dict | Twin):
        return value
    try:
        return {} if _BOOL.validate_python(value) else None
    except ValidationError:
        raise ValueError("true, false, or an object with folder, layout and force") from None


_BOOL = TypeAdapter(bool)


class ParseOptions(BaseModel):
    """Options of the engine. What the engine does not know is refused with its name (`option_unknown`)."""

    # Unknown ones are kept, for the check that knows the engine; the schema forbids them all the same.
    model_config = ConfigDict(extra="allow", json_schema_extra={"additionalProperties": False})

    language: str | None = Field(default=None, max_length=35, pattern="^[A-Za-z0-9_-]*$")
    ocr: Literal["auto", "always", "never"] | bool | None = None
    page_images: bool | None = None
    max_pages: Annotated[int, Field(ge=1, le=1_000_000), BeforeValidator(_no_bool)] | None = None
    stay_home: bool | None = Field(default=None, description="The document must not leave the house.")
    budget_pages: Annotated[int, Field(ge=0, le=1_000_000), BeforeValidator(_no_bool)] | None = None
    extraction_method: str | None = Field(
        default=None,
        max_length=64,
        pattern="^[A-Za-z0-9_-]+$",
        description="Secretary workers only, as all that follow: native, ocr, or what else the worker knows.",
    )
    target_language: str | None = Field(default=None, max_length=35, pattern="^[A-Za-z0-9_-]*$")
    use_cache: bool | None = Field(default=None, description="The worker may answer from its cache.")
    include_images: bool | None = Field(default=None, description="The result shall have the images; default true.")
    force_refresh: bool | None = Field(default=None, description="The worker shall not answer from its cache.")
    template: str | None = Field(default=None, max_length=255, pattern=r"^[^\x00-\x1f\x7f]*$")

    def wishes(self) -> dict[str, Any]:
        asked = self.model_dump(exclude_none=True) | (self.model_extra or {})
        if isinstance(self.ocr, bool):
            asked["ocr"] = "always" if self.ocr else "never"
        return asked


class Asked(StrictModel):
    """What may be asked of a task."""

    project_id: ProjectId | None = None
    rule_id: RowId | None = None
    workflow_id: str | None = Field(default=None, min_length=1, max_length=128)
    engine: str | None = Field(default=None, max_length=64)
    no_cache: bool = False
    twin: Annotated[Twin | None, BeforeValidator(_twin, json_schema_input_type=bool | Twin | None)] = None
    mount: Mount | None = None
    priority: Annotated[int, Field(ge=-10, le=10), BeforeValidator(_no_bool)] = 0
    options: ParseOptions | None = None

    def wishes(self, trace: str = "") -> Wishes:
        return Wishes(
            workflow_id=self.workflow_id or Wishes().workflow_id,
            engine=self.engine or None,
            no_cache=self.no_cache,
            twin=TwinWish(**self.twin.model_dump()) if self.twin else None,
            mount=MountWish(**self.mount.model_dump()) if self.mount else None,
            priority=self.priority,
            parse=self.options.wishes() if self.options else {},
            trace=trace,
        )

    def submission(self, trace: str, *, s3_key: str | None = None, filename: str | None = None) -> Submission:
        return Submission(s3_key, self.project_id, filename, self.rule_id, self.wishes(trace))


class Submit(Asked):
    filename: str | None = Field(default=None, max_length=1_024)
    s3_key: str | None = Field(default=None, max_length=1_024)


_TRACE = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")

# Routes


@router.post("/submit", response_model=TaskAck, summary="Process a stored file")
async def submit_task(body: Submit, request: Request, who: Caller, ports: Bound) -> Response:
    """Process a file that was uploaded. Table, rule, engine and options are checked first; the answer has the id of
    the task."""
    once = once_of(request, body.model_dump(mode="json"))
    task, is_new = await intake.submit(ports, who, _of_stored(body, request), once=once)
    return Json(TaskAck.of(task, "Task submitted successfully").model_dump(), headers=_replayed(not is_new))


def _of_stored(body: Submit, request: Request) -> Submission:
    return body.submission(trace_of(request), s3_key=body.s3_key, filename=body.filename)


def trace_of(request: Request) -> str:
    """The caller's trace, if it has one."""
    found = request.headers.get("traceparent", "")
    return found if _TRACE.fullmatch(found) else ""


_FILE = {"type": "string", "format": "binary"}
_PROJECT_FIELD = {
    "type": "integer",
    "minimum": 0,
    "maximum": MAX_PROJECT,
    "description": "Before the file, or in the address.",
}


def _wish_fields() -> dict[str, Any]:
    """The fields of `Asked` as those of a form: texts, and JSON for what is an object."""
    as_json = {
        name: {"type": "string", "description": f"A JSON value, as {name} of /submit."}
        for name in ("twin", "mount", "options")
    }
    mount = {"table_id": {"type": "integer"}, "json_path": {"type": "string"}}
    return {name: {"type": "string"} for name in Asked.model_fields} | as_json | mount


def _form_of(required: str, **fields: Any) -> dict[str, Any]:
    schema = {"type": "object", "required": [required], "properties": {**fields, "project_id": _PROJECT_FIELD}}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


@router.post(
    "/upload",
    status_code=201,
    response_model=UploadAck,
    summary="Store a file",
    openapi_extra=_form_of("file", file=_FILE),
)
@accept_body(is_streamed=True)
async def upload_file(
    request: Request, who: Caller, ports: Bound, project_id: Annotated[str | None, Query()] = None
) -> Response:
    """Store a file under a key of the caller's own; `submit_task` processes it."""
    inbox = Inbox(request, ports, who, project_id, max_files=1, max_bytes=_file_limit(request, ports) + FORM_OVERHEAD)
    async with inbox:
        await inbox.read()
        [file] = inbox.files
        if file.fault:
            raise file.fault
        return Json(file.ack(ports.store.bucket), status_code=201)


@router.post(
    "/upload_and_submit",
    status_code=201,
    response_model=SubmittedFiles,
    summary="Store and process several files",
    openapi_extra=_form_of("files", **_wish_fields(), files={"type": "array", "items": _FILE}),
)
@accept_body(is_streamed=True)
async def upload_and_submit(
    request: Request, who: Caller, ports: Bound, project_id: Annotated[str | None, Query()] = None
) -> Response:
    """Store files and process each of them as a task of its own. A file that cannot be stored is a failed task."""
    options: HttpOptions = request.app.state.options
    key = once_key(request)
    inbox = Inbox(request, ports, who, project_id, max_files=options.max_batch_files, max_bytes=options.max_batch_bytes)
    async with inbox:
        await inbox.read()
        asked = inbox.asked()
        if full := next((file.fault for file in inbox.files if isinstance(file.fault, StorageFull)), None):
            # No task exists yet, and there is nothing wrong with the files: the same request succeeds later.
            raise full
        await intake.check_wishes(ports, who, asked.submission(trace_of(request)))
        items, replayed = [], True
        for index, file in enumerate(inbox.files):
            item, is_new = await _submit_one(ports, who, file, asked, trace_of(request), key and f"{key}/{index}")
            items.append(item)
            replayed = replayed and not is_new
    return Json({"items": items, "total": len(items)}, status_code=201, headers=_replayed(replayed))


async def _submit_one(
    ports: Ports, who: Principal, file: Received, asked: Asked, trace: str, key: str | None
) -> tuple[dict[str, Any], bool]:
    """One line of the answer, and whether it is a new task."""
    request = fingerprint({**asked.model_dump(mode="json"), "file": file.filename}) if key else ""
    if file.fault or not file.stored:
        fault = file.fault or StageFailed("upload_failed", why="nothing was stored")
        wanted = asked.submission(trace, filename=file.filename)
        task, is_new = await intake.record_failed_upload(
            ports, who, file.project_id, file.filename, fault, wanted, once=Once(key, request) if key else None
        )
        return _item(task, task.fault.message if task.fault else None), is_new
    once = Once(key, f"{request}:{file.stored.sha256}") if key else None
    wanted = asked.submission(trace, s3_key=file.stored.key, filename=file.filename)
    try:
        task, is_new = await intake.submit(ports, who, wanted, once=once)
    except DocmillError as error:
        if not file.is_late:
            raise
        # Some files have become tasks already: say what happened to this one, and go on.
        return {**_item(None, error.message), "filename": file.filename, "s3_key": file.stored.key}, True
    file.used = is_new
    return _item(task, task.fault.message if task.fault else None), is_new


def _item(task: Task | None, error: str | None) -> dict[str, Any]:
    return {
        "filename": task.filename if task else "",
        "task_id": task.id if task else None,
        "status": wire_status(task) if task else "failed",
        "s3_key": (task.source_key or None) if task else None,
        "error": error,
    }


# Reading a form


@dataclass(slots=True)
class Received:
    """A file of a form: stored, or the reason why not."""

    filename: str
    project_id: int
    content_type: str
    is_late: bool
    """Not the first of its form."""
    stored: Stored | None = None
    fault: DocmillError | None = None
    used: bool = False

    def ack(self, bucket: str) -> dict[str, Any]:
        assert self.stored  # noqa: S101  the caller looked at the fault
        self.used = True
        return {
            "key": self.stored.key,
            "bucket": bucket,
            "size": self.stored.size,
            "etag": self.stored.etag,
            "content_type": self.content_type,
            "sha256": self.stored.sha256,
        }


@dataclass
class Inbox:
    """Reads a form: files go to the store while they arrive. What nobody used is deleted at the end."""

    request: Request
    ports: Ports
    who: Principal
    project_id: str | None
    max_files: int
    max_bytes: int
    fields: dict[str, str] = field(default_factory=dict)
    files: list[Received] = field(default_factory=list)
    max_fields: ClassVar[int] = 16

    async def __aenter__(self) -> Inbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        store = objects(self.ports, self.who.tenant)
        for file in self.files:
            if file.stored and not file.used:
                try:
                    await store.inner.delete(store.prefix + file.stored.key)
                except Exception as error:
                    log.warning("orphan_left", key=file.stored.key, error=str(error))

    async def read(self) -> None:
        request = self.request
        if _content_length(request) > self.max_bytes:
            raise TooLarge("upload_too_large", limit=self.max_bytes)
        body = _body(request, self.max_bytes)
        form = Form.of(request.headers, body, self._limits())
        while part := await form.next_part():
            if part.is_file and part.name in ("file", "files"):
                await self._store(part)
            elif not part.is_file and part.filename is None:
                self.add(part.name, await part.text())
        if not self.files:
            raise Invalid("upload_missing_file")

    def asked(self) -> Asked:
        """The other fields of the form."""
        found: dict[str, Any] = {name: text for name, text in self.fields.items() if text.strip()}
        for name in ("twin", "mount", "options"):
            if name in found and found[name].strip()[:1] in "{tfn":
                found[name] = check_json(found[name].encode())
        given = {name: found.pop(name) for name in Mount.model_fields if name in found}
        if given and found.setdefault("mount", given) is not given:
            raise Invalid("request_invalid", why="give either mount, or table_id and json_path.")
        try:
            return Asked.model_validate({**found, "project_id": self._project()})
        except ValidationError as error:
            raise validation({**one, "loc": ("body", *one["loc"])} for one in error.errors()) from None

    def _limits(self) -> FormLimits:
        return FormLimits(fields=self.max_fields, files=self.max_files, parts=self.max_files + self.max_fields)

    def add(self, name: str, text: str) -> None:
        if name in self.fields:
            raise Invalid("request_invalid", why=f"the form has the field '{name[:64]}' twice.")
        self.fields[name] = text
        if name == "project_id":
            self._project()

    def _project(self) -> int:
        """The project, from the form or from the address."""
        given = {text.strip() for text in (self.fields.get("project_id"), self.project_id) if text is not None}
        if not given:
            raise ProjectTooLate
        text = given.pop()
        if given or not _PROJECT.fullmatch(text) or int(text) > MAX_PROJECT:
            raise Invalid("project_invalid")
        return int(text)

    async def _store(self, part: Part) -> None:
        filename = check_text(part.filename or "")
        file = Received(filename, self._project(), _media_type(part), is_late=bool(self.files))
        self.files.append(file)
        source = Source(part, _file_limit(self.request, self.ports))
        try:
            file.stored = await intake.upload(self.ports, self.who, file.project_id, filename, source.chunks())
        except Exception as error:
            if source.broken:
                raise source.broken from None
            fault = unwrap(error)
            file.fault = fault if isinstance(fault, DocmillError) else _storing_failed(error)
            if self.max_files == 1:
                # Nothing else to save: what is left of the body need not be read.
                raise file.fault from None
        else:
            self.request.app.state.metrics.uploaded(file.stored.size)


class Source:
    """The bytes of one file on their way to the store. Remembers whether the form itself broke under it."""

    def __init__(self, part: Part, limit: int) -> None:
        self._part = part
        self._limit = limit
        self.broken: Exception | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        seen = 0
        chunks = self._part.chunks()
        while True:
            try:
                chunk = await anext(chunks)
            except StopAsyncIteration:
                return
            except Exception as error:
                self.broken = error
                raise
            seen += len(chunk)
            if seen > self._limit:
                raise TooLarge("upload_too_large", limit=self._limit)
            yield chunk


def _storing_failed(error: Exception) -> DocmillError:
    log.error("upload_failed", exc_info=error)
    return StageFailed("upload_failed", why=type(error).__name__)


class ProjectTooLate(Invalid):
    """The file goes to the store while it arrives, so its project must be known by then."""

    def __init__(self) -> None:
        super().__init__("project_required")
        self.message = "project_id must come before the file in the form, or stand in the address as ?project_id=."


async def _body(request: Request, limit: int) -> AsyncIterator[bytes]:
    seen = 0
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        more = message.get("more_body", False)
        seen += len(chunk)
        if seen > limit:
            raise TooLarge("upload_too_large", limit=limit)
        if chunk:
            yield chunk


def _file_limit(request: Request, ports: Ports) -> int:
    options: HttpOptions = request.app.state.options
    return min(options.max_upload_bytes or ports.limits.upload_bytes, ports.limits.upload_bytes)


def _content_length(request: Request) -> int:
    raw = request.headers.get("content-length", "0")
    return int(raw) if raw.isdecimal() and len(raw) < 20 else 0


def _media_type(part: Part) -> str:
    """What the client says it is. What it really is, the parser reads from the bytes."""
    if part.content_type and part.content_type != "application/octet-stream":
        return part.content_type
    return mimetypes.guess_type(part.filename or "")[0] or "application/octet-stream"


# Idempotency


def once_key(request: Request) -> str | None:
    keys = request.headers.getlist("idempotency-key")
    if not keys:
        return None
    if len(keys) != 1 or not _ONCE_KEY.fullmatch(keys[0]):
        raise BadRequest("idempotency_key_invalid")
    return keys[0]


def once_of(request: Request, body: Any) -> Once | None:
    key = once_key(request)
    return Once(key, fingerprint(body)) if key else None


def fingerprint(value: Any) -> str:
    """SHA-256 of the canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256(text.encode()).hexdigest()


def _replayed(is_replay: bool) -> dict[str, str]:
    return {"Idempotent-Replayed": "true"} if is_replay else {}
