"""JSON at the doors: read strictly, written straight to bytes.

`json` and FastAPI accept NaN, lone surrogates, NUL and repeated keys; a database further down does not. `check_json`
refuses them all, so that a hostile value is the client's error here and never ours there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from math import isinf
from typing import Any

import msgspec
from pydantic import BaseModel, Field
from starlette.responses import Response

from docmill.core.errors import BadRequest, Invalid
from docmill.core.face import face_of, iso
from docmill.core.machine import wire_status
from docmill.core.task import LoggedEvent, Task
from docmill.ports import Face
from docmill.work.query import Result

MAX_DEPTH = 64
MIN_INT, MAX_INT = -(2**63), 2**64 - 1
WIRE_STATUSES = ("pending", "mineru_parsing", "llm_processing", "completed", "failed", "cancelled")

PRIVATE = {"Cache-Control": "private, no-store"}
"""Of downloads: no proxy and no browser keeps a copy."""

_ESCAPES = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_encoder = msgspec.json.Encoder(enc_hook=str)


# Reading


def check_json(body: bytes) -> Any:
    """The value of a JSON text that is safe to store anywhere. 400: it is no JSON; 422: it holds what we refuse."""
    try:
        value = _strict.decode(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise BadRequest("request_invalid", why="the body is not UTF-8.") from None
    except json.JSONDecodeError as error:
        raise BadRequest("request_invalid", why=f"the body is not JSON ({error.msg} at {error.pos}).") from None
    except RecursionError:
        raise _refused(f"it is nested deeper than {MAX_DEPTH} levels.") from None
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH:
        _check_depth(value)
    # Without such an escape no string can hold NUL or half a surrogate pair: the bytes are valid UTF-8 and JSON.
    if _ESCAPES.search(body):
        for text in _texts(value):
            check_text(text)
    return value


def check_text(text: str) -> str:
    """The text itself, if every database can hold it."""
    if "\0" in text:
        raise _refused("a text holds the character NUL.")
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise _refused("a text holds half of a surrogate pair.")
    return text


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _refused("an object has the same key twice.")
    return found


def _int(digits: str) -> int:
    if len(digits) > 20 or not MIN_INT <= (number := int(digits)) <= MAX_INT:
        raise _refused("a whole number has more than 64 bits.")
    return number


def _float(digits: str) -> float:
    if isinf(number := float(digits)):
        raise _refused("a number is too large.")
    return number


def _constant(name: str) -> None:
    raise _refused(f"{name} is not a number that JSON knows.")


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level := [one for one in level if isinstance(one, dict | list)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise _refused(f"it is nested deeper than {MAX_DEPTH} levels.")
        level = [child for one in level for child in (one.values() if isinstance(one, dict) else one)]


def _texts(value: Any) -> Iterable[str]:
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            yield from one
            stack.extend(one.values())
        elif isinstance(one, list):
            stack.extend(one)


def _refused(why: str) -> Invalid:
    return Invalid("request_invalid", why=why)


_strict = json.JSONDecoder(object_pairs_hook=_object, parse_int=_int, parse_float=_float, parse_constant=_constant)


# Writing


class Json(Response):
    """A value as JSON bytes, without a detour through a model."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encode(content)


def encode(value: Any) -> bytes:
    return _encoder.encode(value)


def task_json(task: Task, result: Result | None = None) -> dict[str, Any]:
    face = face_of(task)
    if result is not None:
        face["result"] = result.value
        face["metadata"] |= {"result_omitted": result.is_omitted, "result_error": result.error}
    return face


def tasks_json(tasks: Sequence[Task], results: dict[int, Result]) -> list[dict[str, Any]]:
    return [task_json(task, results.get(task.id)) for task in tasks]


def faces_json(faces: Sequence[Face]) -> msgspec.Raw:
    """The same for faces, which are encoded already."""
    return msgspec.Raw(f"[{','.join([face[1] for face in faces])}]".encode())


def event_json(event: LoggedEvent) -> dict[str, Any]:
    return {"seq": event.seq, "kind": event.kind, "data": event.data, "at": iso(event.at_ms)}


# What OpenAPI says about it. A test keeps these models and the functions above the same.


class WorkerErrorOut(BaseModel):
    code: str | None
    message: str
    details: Any = None


class TaskMetadata(BaseModel):
    s3_key: str | None
    provider_task_id: str | None
    artifact_mineru_markdown_key: str | None
    artifact_extraction_key: str | None = Field(description="How a language model came to the output, or failed to.")
    error_stage: str | None = Field(description="upload, mineru, postprocess, mount, twin, timeout, stale, lost, crash")
    error_code: str | None
    worker_error: WorkerErrorOut | None = Field(default=None, description="The external worker's own words.")
    stage: str
    attempt: int
    job_id: str | None = Field(description="The job of an external worker, if one parses the document.")
    engine: str | None
    pages_done: int | None
    pages_total: int | None
    damaged_pages: list[int]
    missing_archives: list[str] = Field(
        description="Fields of an external worker's report whose archive of images could not be fetched."
    )
    cache_hit: bool
    document_id: str | None
    twin_path: str | None
    result_omitted: bool = Field(description="In lists: the result is larger than 64 KB. Ask for the task alone.")
    result_error: str | None = Field(description="Why there is no result: object_not_found, object_damaged.")
    mount_table_id: int | None = Field(description="The table of the mount that was asked for, or made last.")
    mounted_path: str | None


class TaskOut(BaseModel):
    task_id: int
    user_id: str
    project_id: int
    filename: str
    rule_id: int
    status: str = Field(description=", ".join(WIRE_STATUSES))
    progress: int = Field(ge=0, le=100)
    created_at: datetime
    updated_at: datetime
    result: Any = Field(
        description="The output JSON of a completed task. In lists up to 64 KB, or of any size with include=result."
    )
    error: str | None
    metadata: TaskMetadata


class TaskList(BaseModel):
    tasks: list[TaskOut]
    total: int
    limit: int
    offset: int
    next_cursor: str | None


class TaskBatch(BaseModel):
    tasks: list[TaskOut]
    total: int


class TaskAck(BaseModel):
    task_id: int
    status: str
    message: str

    @classmethod
    def of(cls, task: Task, message: str) -> TaskAck:
        return cls(task_id=task.id, status=wire_status(task), message=message)


class MountAck(BaseModel):
    success: bool
    message: str
    mounted_path: str


class UploadAck(BaseModel):
    key: str
    bucket: str
    size: int
    etag: str
    content_type: str
    sha256: str


class SubmittedFile(BaseModel):
    filename: str
    task_id: int | None
    status: str
    s3_key: str | None
    error: str | None


class SubmittedFiles(BaseModel):
    items: list[SubmittedFile]
    total: int


class EventOut(BaseModel):
    seq: int
    kind: str
    data: dict[str, Any]
    at: datetime


class EventPage(BaseModel):
    events: list[EventOut]
    next: int = Field(description="Give it as ?after= to go on.")
