"""Every error leaves as RFC 9457 `application/problem+json`, with the stable code and without a stack trace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from docmill.core.catalogue import entry
from docmill.core.errors import (
    BadRequest,
    DocmillError,
    Invalid,
    NotAllowed,
    NotFound,
    StageFailed,
    StorageFull,
    Unauthorized,
    unwrap,
)
from docmill.http.wire import encode

RETRY_AFTER = {429: 1, 503: 2, 507: 30}
CLIENT_GONE = 499
MAX_ERRORS = 100
CODE_PAGES = "/docs/codes/"
NO_NEXT_STEP = "Read the detail; the request id finds the request in the log."
"""For a code that is not docmill's own, such as that of an external worker."""

SENTENCE_OF_STATUS = {
    400: "The request cannot be read.",
    401: "The credential is missing or not valid.",
    403: "The credential does not allow this.",
    404: "It does not exist, or belongs to another user.",
    405: "The address does not take this method.",
    409: "It contradicts the present state.",
    410: "It was removed when its time was over.",
    413: "The body is too large.",
    415: "The body has a media type that is not accepted here.",
    422: "A value is not valid; `errors` names every field that is wrong.",
    429: "Too many requests; `Retry-After` says when to try again.",
    500: "An internal error; the log has it under the request id.",
    503: "A part of the service is not available; try again.",
    504: "It takes longer than a caller may wait.",
    507: "The storage is full; the same request succeeds later.",
}

log = structlog.get_logger("docmill.http")


class FieldError(BaseModel):
    code: str
    loc: list[str | int]
    message: str


class Problem(BaseModel):
    """RFC 9457, and beside it docmill's stable code."""

    type: str = Field(description="The page that explains the code, as a path of this service.")
    title: str
    status: int
    detail: str
    code: str
    instance: str
    request_id: str
    retryable: bool
    next_step: str = Field(description="What to do about it.")
    errors: list[FieldError] | None = Field(default=None, description="Every field that is wrong.")


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a router: what it may answer besides success."""
    schema = {"$ref": "#/components/schemas/Problem"}
    everywhere = (400, 401, 413, 422, 500, 503, 507)
    return {
        status: {
            "description": SENTENCE_OF_STATUS[status],
            "content": {"application/problem+json": {"schema": schema}},
        }
        for status in sorted({*everywhere, *statuses})
    }


def install(app: FastAPI) -> None:
    app.add_exception_handler(DocmillError, _on_ours)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)


def answer(scope: Any, error: DocmillError, headers: dict[str, str] | None = None) -> Response:
    """The problem as a response. *scope* is the ASGI scope of the request."""
    body = {
        "type": problem_type(error.code),
        "title": problem_title(error.code),
        "status": error.status,
        "detail": error.message,
        "code": error.code,
        "instance": scope.get("path", ""),
        "request_id": scope.get("state", {}).get("request_id", ""),
        "retryable": error.retryable,
        "next_step": next_step(error.code),
    }
    if errors := error.facts.get("errors"):
        body["errors"] = errors
    return Response(
        encode(body),
        status_code=error.status,
        headers={**_headers(error), **(headers or {})},
        media_type="application/problem+json",
    )


def problem_type(code: str) -> str:
    """The page of the code. A path without a host: the same code has the same type on every deployment."""
    return CODE_PAGES + code


def problem_title(code: str) -> str:
    return code.replace("_", " ").capitalize()


def next_step(code: str) -> str:
    found = entry(code)
    return found.text["en"][1] if found else NO_NEXT_STEP


def unexpected(error: Exception, scope: Any) -> Response:
    """What a client learns of an error that nobody expected: that it happened, and under which request id."""
    found = unwrap(error)
    if isinstance(found, DocmillError):
        log.warning("request_failed", code=found.code, path=scope.get("path"), error=found.message)
        return answer(scope, found)
    log.error("unexpected_error", path=scope.get("path"), exc_info=error)
    return answer(scope, StageFailed("internal_error"))


def validation(errors: Iterable[Any]) -> Invalid:
    """Pydantic's errors as ours. The input is not repeated: it may be a secret, and it may be huge."""
    found = [
        {"code": str(one["type"]), "loc": [_loc(step) for step in one["loc"]], "message": _explain(one)}
        for one in errors
    ][:MAX_ERRORS]
    first = found[0]
    where = ".".join(str(step) for step in first["loc"])
    return Invalid("request_invalid", why=f"{where}: {first['message']}"[:500], errors=found)


def retry_after(error: DocmillError) -> dict[str, str]:
    """When to come again, if that helps."""
    if error.status not in RETRY_AFTER:
        return {}
    return {"Retry-After": str(error.facts.get("retry_after", RETRY_AFTER[error.status]))}


def _headers(error: DocmillError) -> dict[str, str]:
    headers = retry_after(error)
    if isinstance(error, Unauthorized):
        reason = ', error="invalid_token"' if error.code == "credential_invalid" else ""
        headers["WWW-Authenticate"] = f'Bearer realm="docmill"{reason}'
    return headers


def _explain(one: Any) -> str:
    return "there is no field of this name" if one["type"] == "extra_forbidden" else str(one["msg"])


def _loc(step: Any) -> str | int:
    return step if isinstance(step, int) else str(step)[:100]


async def _on_ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, DocmillError)  # noqa: S101  registered for nothing else
    error = unwrap(error)
    assert isinstance(error, DocmillError)  # noqa: S101  an error of ours stays one
    if error.status >= 500:
        log.warning("request_failed", code=error.code, path=request.url.path, error=error.message)
    return answer(request.scope, error)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    # FastAPI wraps whatever goes wrong while it reads the body, a body over its limit included.
    if isinstance(error.__cause__, DocmillError):
        return await _on_ours(request, error.__cause__)
    if isinstance(full := unwrap(error), StorageFull):
        return await _on_ours(request, full)
    if isinstance(error.__cause__, ClientDisconnect):
        return Response(status_code=CLIENT_GONE)
    return answer(request.scope, _of_status(error, request.method), dict(error.headers or {}))


def _of_status(error: HTTPException, method: str) -> DocmillError:
    if error.status_code == 404:
        return NotFound("route_not_found")
    if error.status_code == 405:
        return NotAllowed("method_not_allowed", method=method[:16])
    if error.status_code < 500:
        return BadRequest("request_invalid", why=str(error.detail)[:500])
    return StageFailed("internal_error")


async def _on_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    return answer(request.scope, validation(error.errors()))


async def _on_disconnect(_: Request, __: Exception) -> Response:
    """Nobody is there to read it; the access log still wants a status."""
    return Response(status_code=CLIENT_GONE)
