"""The worker server's HTTP side: start requests of both dialects, status, cancel, health.

| | secretary | dispatcher |
|---|---|---|
| start | `POST /pdf/process` | `POST /tasks` |
| look | `GET /jobs/{process_id}` | `GET /tasks/{task_id}` |
| stop | `DELETE /jobs/{process_id}` | `DELETE /tasks/{task_id}` |
| or | `POST` or `DELETE /jobs/{process_id}/cancel` | `POST /tasks/{task_id}/cancel` |
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import re
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from starlette.applications import Starlette
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .callback import job_in
from .delivery import check_url
from .desk import Busy, Desk, Job, Record
from .errors import is_storage_full

MAX_TASK_BYTES = 256 * 1024
MAX_FIELD = 64 * 1024
MAX_FIELDS = 32
LOCAL_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
_TASK_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_TOKEN = re.compile(r"[\x21-\x7e]{1,512}")
_TRUE = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True, slots=True)
class ServerOptions:
    api_key: str | None = field(default=None, repr=False)
    """Without one the server answers this machine alone, and no web page on it."""
    max_source_bytes: int = 2 * 1024**3
    version: str = ""


class Refusal(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        self.status, self.code, self.message = status, code, message
        super().__init__(message)


def build_app(desk: Desk, options: ServerOptions) -> Starlette:
    guard = _Guard(options)
    doors = _Doors(desk, options)

    def door(path: str, answer: Callable[[Request], Awaitable[Response]], *methods: str) -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                guard.check(request)
                return await answer(request)
            except Refusal as refusal:
                return _refused(refusal)
            except OSError as error:
                if not is_storage_full(error):
                    raise
                return _refused(Refusal(507, "storage_full", "the disk of the worker is full; try again later"))

        return Route(path, endpoint, methods=list(methods))

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok", "version": options.version, **desk.counts()})

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await desk.open()
        try:
            yield
        finally:
            await desk.close()

    routes = [
        Route("/health", health, methods=["GET"]),
        door("/pdf/process", doors.process, "POST"),
        door("/jobs/{process_id}", doors.show_process, "GET"),
        door("/jobs/{process_id}", doors.cancel_process, "DELETE"),
        door("/jobs/{process_id}/cancel", doors.cancel_process, "POST", "DELETE"),
        door("/tasks", doors.start_task, "POST"),
        door("/tasks/{task_id}", doors.show_task, "GET"),
        door("/tasks/{task_id}", doors.cancel_task, "DELETE"),
        door("/tasks/{task_id}/cancel", doors.cancel_task, "POST"),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


class _Guard:
    """Who may call: whoever has the key; without a key, programs on this machine."""

    def __init__(self, options: ServerOptions) -> None:
        self._digest = sha256(options.api_key.encode()).digest() if options.api_key else None

    def check(self, request: Request) -> None:
        if self._digest is None:
            # A page in the browser of this machine is not this machine.
            if not _is_local(request.headers.get("host", "")) or "origin" in request.headers:
                raise Refusal(403, "forbidden", "without a key only programs on this machine are served")
            return
        given = [key for key in _keys(request) if key]
        if not given or not all(hmac.compare_digest(sha256(key.encode()).digest(), self._digest) for key in given):
            raise Refusal(401, "unauthenticated", "the key is missing or wrong")


def _is_local(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return name in LOCAL_NAMES or bool(re.fullmatch(r"127(\.[0-9]{1,3}){3}", name))


def _keys(request: Request) -> list[str]:
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    return [
        bearer.strip() if scheme.lower() == "bearer" else "",
        request.headers.get("x-service-token", ""),
        request.headers.get("x-api-key", ""),
    ]


class _Doors:
    def __init__(self, desk: Desk, options: ServerOptions) -> None:
        self._desk = desk
        self._options = options

    # secretary

    async def process(self, request: Request) -> Response:
        self._check_room()
        form = await self._form(request)
        try:
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise Refusal(400, "upload_missing_file", "the form has no part named 'file'")
            url, token = _callback(_text(form, "callback_url"), _text(form, "callback_token"))
            if known := self._desk.find_by_callback(url):
                return _accepted_process(known)
            folder = self._desk.new_folder()
            try:
                size = await asyncio.to_thread(_keep, file, folder / "source")
                job = self._desk.find_by_callback(url) or self._desk.accept(
                    Record(
                        id=folder.name,
                        dialect="secretary",
                        callback_url=url,
                        token=token,
                        process_id=f"sec-{uuid4().hex}",
                        filename=(file.filename or "document")[-255:],
                        size=size,
                        options=_secretary_options(form),
                        wants_images=_flag(form, "includeImages", default=True),
                    ),
                    folder,
                )
            except BaseException:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
                raise
            if job.folder != folder:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            return _accepted_process(job)
        finally:
            await form.close()

    async def show_process(self, request: Request) -> Response:
        job = self._find_process(request)
        return JSONResponse({"process": {"id": job.record.process_id}, **job.shown()})

    async def cancel_process(self, request: Request) -> Response:
        job = self._find_process(request)
        job.stop("asked")
        return JSONResponse({"process": {"id": job.record.process_id}, **job.shown()}, 202)

    def _find_process(self, request: Request) -> Job:
        job = self._desk.find("secretary", request.path_params["process_id"])
        if job is None:
            raise Refusal(404, "job_not_found", "there is no such job here")
        return job

    async def _form(self, request: Request) -> FormData:
        if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
            raise Refusal(415, "media_type_unsupported", "this address takes multipart/form-data")
        limit = self._options.max_source_bytes + MAX_FIELDS * MAX_FIELD
        try:
            return await MultiPartParser(
                request.headers, _limited(request, limit), max_files=1, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD
            ).parse()
        except MultiPartException as error:
            raise Refusal(400, "request_invalid", error.message) from None
        except ClientDisconnect:
            raise Refusal(400, "upload_incomplete", "the upload ended before the file was complete") from None

    # dispatcher

    async def start_task(self, request: Request) -> Response:
        value = await _json(request)
        task_id = value.get("task_id")
        if not isinstance(task_id, str) or not _TASK_ID.fullmatch(task_id):
            raise Refusal(400, "request_invalid", "task_id is missing or not an id")
        if self._desk.find("dispatcher", task_id):
            return JSONResponse({"task_id": task_id, "status": "accepted"}, 202)
        self._check_room()
        url, token = _callback(value.get("callback_url"), value.get("callback_token"))
        folder = self._desk.new_folder()
        try:
            record = Record(
                id=folder.name,
                dialect="dispatcher",
                callback_url=url,
                token=token,
                process_id=task_id,
                brief_url=_brief_url(value),
                timeout_s=_seconds(value.get("timeout_seconds")),
            )
            self._desk.accept(record, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return JSONResponse({"task_id": task_id, "status": "accepted"}, 202)

    async def show_task(self, request: Request) -> Response:
        job = self._find_task(request)
        return JSONResponse({"task_id": job.record.process_id, **job.shown()})

    async def cancel_task(self, request: Request) -> Response:
        job = self._find_task(request)
        job.stop("asked")
        return JSONResponse({"task_id": job.record.process_id, **job.shown()}, 202)

    def _find_task(self, request: Request) -> Job:
        job = self._desk.find("dispatcher", request.path_params["task_id"])
        if job is None:
            raise Refusal(404, "task_not_found", "there is no such task here")
        return job

    def _check_room(self) -> None:
        try:
            self._desk.check_room()
        except Busy:
            raise Refusal(503, "worker_busy", "too many jobs wait already; try again later") from None


def _accepted_process(job: Job) -> Response:
    body = {"status": "accepted", "worker": "docmill", "process": {"id": job.record.process_id}, "job": job.shown()}
    return JSONResponse(body, 202)


def _refused(refusal: Refusal) -> Response:
    headers = {"Retry-After": "10"} if refusal.status in (503, 507) else {}
    if refusal.status in (400, 401, 403, 413, 415, 503, 507):
        # The body may still be on its way, and nobody will read it.
        headers["Connection"] = "close"
    error = {"code": refusal.code, "message": refusal.message}
    return JSONResponse({"status": "error", "error": error}, refusal.status, headers)


async def _limited(request: Request, limit: int) -> AsyncGenerator[bytes, None]:
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise Refusal(413, "upload_too_large", f"the file is larger than {limit} bytes")
        yield chunk


async def _json(request: Request) -> dict[str, Any]:
    raw = bytearray()
    async for chunk in _limited(request, MAX_TASK_BYTES):
        raw += chunk
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Refusal(400, "request_invalid", "the body is not a JSON object")
    return value


def _keep(file: UploadFile, path: Path) -> int:
    with path.open("xb") as out:
        shutil.copyfileobj(file.file, out, 1 << 20)
        out.flush()
        os.fsync(out.fileno())
        return out.tell()


def _text(form: FormData, name: str) -> str:
    value = form.get(name)
    return value if isinstance(value, str) else ""


def _flag(form: FormData, name: str, *, default: bool) -> bool:
    value = _text(form, name).strip().lower()
    return value in _TRUE if value else default


def _secretary_options(form: FormData) -> dict[str, Any]:
    """What a parser may want to know; `useCache`, `force_refresh` and `template` mean nothing to one without them."""
    options: dict[str, Any] = {}
    if language := _text(form, "target_language").strip():
        options["language"] = language[:35]
    method = _text(form, "extraction_method").strip().lower()
    if method in ("ocr", "native"):
        options["ocr"] = "always" if method == "ocr" else "auto"
    return options


def _callback(url: Any, token: Any) -> tuple[str, str]:
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise Refusal(400, "request_invalid", "callback_token is missing or not a token")
    try:
        if not isinstance(url, str):
            raise ValueError("it is missing")
        job_in(check_url(url))
    except ValueError as error:
        raise Refusal(400, "request_invalid", f"callback_url: {error}") from None
    return url, token


def _brief_url(value: dict[str, Any]) -> str:
    env = value.get("env")
    url = env.get("BRIEF_URL") if isinstance(env, dict) else None
    if not isinstance(url, str):
        raise Refusal(400, "brief_url_missing", "this worker has no access to the store: env.BRIEF_URL is needed")
    try:
        return check_url(url)
    except ValueError as error:
        raise Refusal(400, "request_invalid", f"env.BRIEF_URL: {error}") from None


def _seconds(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 10**7:
        raise Refusal(400, "request_invalid", "timeout_seconds must be a positive number")
    return float(value)
