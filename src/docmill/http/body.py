"""A body as bytes, counted while it arrives, for routes that judge it themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from starlette.requests import Request

from docmill.core.errors import TooLarge

T = TypeVar("T")

MAX_BODY: Final = 256 * 1024**2
OFF_LOOP_BYTES: Final = 1024**2


async def read_body(request: Request, *, limit: int = MAX_BODY) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise TooLarge("body_too_large", limit=limit)
    return bytes(body)


async def judged(body: bytes, judge: Callable[[bytes], T]) -> T:
    """Call *judge*; for a large body in a thread, so that other requests go on."""
    return await asyncio.to_thread(judge, body) if len(body) > OFF_LOOP_BYTES else judge(body)


def takes(kind: str) -> dict[str, Any]:
    """What OpenAPI says of a body that FastAPI does not read."""
    schema = {"type": "object", "description": f"Its schema is at /api/v1/contracts/{kind}/schema"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
