"""A body as bytes, counted while it arrives, or as a model: for routes that read it themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from docmill.core.body_limits import MAX_LARGE_JSON_NODES
from docmill.core.errors import TooLarge
from docmill.http.errors import validation
from docmill.http.json_meter import JsonMeter

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

MAX_BODY: Final = 256 * 1024**2
OFF_LOOP_BYTES: Final = 1024**2


async def read_body(request: Request, *, limit: int = MAX_BODY) -> bytes:
    """All of a JSON body. Its depth is left to the contract, which has a code of its own for it."""
    body = bytearray()
    meter = JsonMeter(max_nodes=MAX_LARGE_JSON_NODES, max_depth=None)
    async for chunk in request.stream():
        meter.feed(chunk)
        body += chunk
        if len(body) > limit:
            raise TooLarge("body_too_large", limit=limit)
    return bytes(body)


async def judged(body: bytes, judge: Callable[[bytes], T]) -> T:
    """Call *judge*; for a large body in a thread, so that other requests go on."""
    return await asyncio.to_thread(judge, body) if len(body) > OFF_LOOP_BYTES else judge(body)


async def read_model(request: Request, model: type[M]) -> M:
    """The JSON body as *model*, validated in a thread: FastAPI would parse it again, and on the event loop."""
    if not hasattr(request.state, "json"):
        raise validation([{"type": "missing", "loc": ("body",), "msg": "A JSON body is required"}])
    try:
        return await asyncio.to_thread(model.model_validate, request.state.json)
    except ValidationError as error:
        raise validation({**one, "loc": ("body", *one["loc"])} for one in error.errors(include_input=False)) from None


def takes_bytes() -> dict[str, Any]:
    """What OpenAPI says of a body that is a file."""
    schema = {"type": "string", "format": "binary"}
    return {"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": schema}}}}


def takes_model(model: type[BaseModel]) -> dict[str, Any]:
    """What OpenAPI says of a body that `read_model` reads. The app moves `$defs` to the components."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
