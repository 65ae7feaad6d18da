"""Signed links: an external worker takes its source and leaves its result without access to the store."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from docmill.core.body_limits import accept_body
from docmill.core.errors import NotFound
from docmill.http.body import takes_bytes
from docmill.http.bound import Bound
from docmill.http.errors import problems
from docmill.http.wire import PRIVATE, Json
from docmill.ports import Ports
from docmill.work import jobs
from docmill.work.objects import TenantStore, objects

router = APIRouter(prefix="/api/v1/objects", tags=["objects"], responses=problems(403, 404))


class StoredObject(BaseModel):
    key: str
    size: int
    sha256: str


@router.get(
    "/{token}",
    response_class=Response,
    summary="Read an object by its link",
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def download_object(token: str, ports: Bound) -> Response:
    """Read an object by a signed link, as an external worker gets it. The link is the credential."""
    store, key = _place(ports, token, "GET")
    stored = await store.stat(key)
    if stored is None:
        raise NotFound("object_not_found", key=key)
    headers = {
        "Content-Length": str(stored.size),
        "Content-Disposition": "attachment",
        "X-Content-Type-Options": "nosniff",
        **PRIVATE,
    }
    return StreamingResponse(store.stream(key), media_type="application/octet-stream", headers=headers)


@router.put(
    "/{token}",
    status_code=201,
    response_model=StoredObject,
    summary="Write an object by its link",
    responses=problems(409, 413),
    openapi_extra=takes_bytes(),
)
@accept_body(is_streamed=True, is_public=True)
async def upload_object(token: str, request: Request, ports: Bound) -> Response:
    """Write an object by a signed link, as an external worker gets it. The link is the credential."""
    store, key = _place(ports, token, "PUT")
    await jobs.check_upload(ports, store.prefix, key)
    stored = await store.put(key, _while_open(ports, store, key, request), limit=ports.limits.upload_bytes)
    return Json({"key": stored.key, "size": stored.size, "sha256": stored.sha256}, status_code=201)


async def _while_open(ports: Ports, store: TenantStore, key: str, request: Request) -> AsyncIterator[bytes]:
    """The body; the link must still be good at its end, because an upload may outlast its job."""
    async for chunk in request.stream():
        yield chunk
    await jobs.check_upload(ports, store.prefix, key)


def _place(ports: Ports, token: str, method: str) -> tuple[TenantStore, str]:
    if ports.links is None:
        raise NotFound("route_not_found")
    tenant, key = ports.links.read(token, method=method)
    return objects(ports, tenant), key
