"""The contracts over HTTP: check a value without storing it, and read the schemas."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from docmill.contracts import KINDS, check, json_schema
from docmill.core.body_limits import accept_body
from docmill.core.errors import NotFound
from docmill.http.body import judged, read_body
from docmill.http.caller import caller
from docmill.http.errors import FieldError, problems
from docmill.http.wire import Json, encode

router = APIRouter(
    prefix="/api/v1/contracts", tags=["contracts"], dependencies=[Depends(caller)], responses=problems(403, 404, 429)
)

MAX_PREFIXES = 32
TAKES_ANYTHING: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": {"description": "Any JSON value."}}}}
}
SCHEMA: dict[int | str, dict[str, Any]] = {
    200: {"description": "The schema.", "content": {"application/schema+json": {"schema": {"type": "object"}}}}
}


class Kinds(BaseModel):
    kinds: list[str]


class Verdict(BaseModel):
    valid: bool
    errors: list[FieldError]
    value: Any


@router.get("", response_model=Kinds, summary="The names of the contracts")
async def list_contracts() -> Json:
    """The names of the contracts that can be checked."""
    return Json({"kinds": list(KINDS)})


@router.post(
    "/{kind}/check",
    response_model=Verdict,
    summary="Everything that is wrong with a value, or the value as it would be stored",
    openapi_extra=TAKES_ANYTHING,
)
@accept_body(is_streamed=True)
async def check_contract(
    kind: str,
    request: Request,
    strict: bool = False,
    media_guard: Annotated[list[str] | None, Query(description="Allowed prefixes of media types, say image/")] = None,
) -> Response:
    """Check a value against a contract without storing it. The answer has every violation."""
    contract = _known(kind)
    prefixes = tuple(part for one in media_guard or () for part in one.split(",") if part)[:MAX_PREFIXES]

    def verdict(body: bytes) -> bytes:
        checked = check(contract, body, strict=strict, media_guard=prefixes)
        errors = encode([error.as_dict() for error in checked.errors])
        value = b"null" if checked.value is None else checked.value.model_dump_json().encode()
        valid = b"true" if checked.valid else b"false"
        return b'{"valid":%b,"errors":%b,"value":%b}' % (valid, errors, value)

    return Response(await judged(await read_body(request), verdict), media_type="application/json")


@router.get("/{kind}/schema", response_class=Response, responses=SCHEMA, summary="A contract as JSON Schema")
async def get_contract_schema(kind: str) -> Response:
    """A contract as JSON Schema."""
    return Response(encode(json_schema(_known(kind))), media_type="application/schema+json")


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise NotFound(
            "contract_kind_unknown", kind=kind.encode("utf-8", "replace").decode()[:64], known=", ".join(KINDS)
        )
    return kind
