"""Documents and assets of the caller's tenant, and their bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from docmill.contracts import Asset, NormalizedDocument
from docmill.core.access import Principal
from docmill.core.body_limits import accept_body
from docmill.core.conform import conform
from docmill.http.body import judged, read_body, takes_model
from docmill.http.bound import Bound
from docmill.http.caller import Caller
from docmill.http.errors import problems
from docmill.http.wire import PRIVATE, encode
from docmill.ports import Ports
from docmill.work import documents, pages
from docmill.work.intake import attachment

MAX_RANGE_DIGITS: Final = 19
UNTRUSTED: Final = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Accept-Ranges": "bytes",
    **PRIVATE,
}
"""Bytes that somebody sent are for saving, never for showing: they must not run in our origin."""

_RANGE = re.compile(rf"bytes=([0-9]{{0,{MAX_RANGE_DIGITS}}})-([0-9]{{0,{MAX_RANGE_DIGITS}}})")

router = APIRouter(prefix="/api/v1", tags=["documents"], responses=problems(403, 404, 409, 429))

Version = Annotated[
    str | None,
    Query(
        pattern=r"^[A-Za-z0-9._-]{0,64}$", description="Left out: the latest, or all; empty: the one without version"
    ),
]
Limit = Annotated[int, Query(ge=1, le=100)]
PageNumber = Annotated[int, Path(ge=1, le=1_000_000, description="Counted from 1")]
Width = Annotated[int, Query(ge=16, le=2400, description="Of the picture, in pixels")]
Cursor = Annotated[str | None, Query(max_length=500, description="next_cursor of the page before")]
BINARY: Final = {"schema": {"type": "string", "format": "binary"}}
BYTES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The bytes, as an attachment.", "content": {"*/*": BINARY}},
    206: {"description": "The part that `Range` asked for.", "content": {"*/*": BINARY}},
    416: {"description": "`Range` lies outside the bytes."},
}


class DocumentPage(BaseModel):
    documents: list[NormalizedDocument]
    next_cursor: str | None


class VersionPage(BaseModel):
    versions: list[NormalizedDocument]
    next_cursor: None


class AssetPage(BaseModel):
    assets: list[Asset]
    next_cursor: str | None


@router.post(
    "/documents",
    status_code=201,
    summary="Store a document; inline bytes move to the store",
    response_model=NormalizedDocument,
    responses={200: {"model": NormalizedDocument, "description": "The same document was stored before."}},
    openapi_extra=takes_model(NormalizedDocument),
)
@accept_body(is_streamed=True)
async def store_document(request: Request, who: Caller, ports: Bound) -> Response:
    """Store a document with its assets. Bytes that are inline move to the store. The same document again is 200."""
    document = await judged(await read_body(request), partial(conform, "document"))
    kept, is_new = await documents.store_document(ports, who, document)
    return _json(kept.model_dump_json(), 201 if is_new else 200)


@router.get("/documents", response_model=DocumentPage, summary="Documents, newest first")
async def list_documents(
    who: Caller, ports: Bound, collection_id: UUID | None = None, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """Documents of the tenant, the newest first, a page at a time."""
    page, after = await ports.documents.list(who.tenant, collection_id=collection_id, limit=limit, after=cursor)
    return _page("documents", page, after)


@router.get(
    "/documents/{document_id}", response_model=NormalizedDocument, summary="A version of a document, or the latest"
)
async def get_document(document_id: UUID, who: Caller, ports: Bound, version: Version = None) -> Response:
    """A version of a document with its assets; without `version` the latest."""
    return _json((await documents.get_document(ports, who, document_id, version)).model_dump_json())


@router.get("/documents/{document_id}/versions", response_model=VersionPage, summary="All versions, newest first")
async def list_document_versions(document_id: UUID, who: Caller, ports: Bound) -> Response:
    """All versions of a document, the newest first."""
    return _page("versions", await documents.get_versions(ports, who, document_id), None)


@router.delete("/documents/{document_id}", status_code=204, summary="Hide a document, or remove it for good")
async def delete_document(
    document_id: UUID, who: Caller, ports: Bound, version: Version = None, hard: bool = False
) -> None:
    """Hide a document or one of its versions; with `hard` remove it with its bytes."""
    await documents.delete_document(ports, who, document_id, version=version, hard=hard)


@router.get("/documents/{document_id}/blob", summary="The document's bytes", response_class=Response, responses=BYTES)
async def download_document(
    document_id: UUID, request: Request, who: Caller, ports: Bound, version: Version = None
) -> Response:
    """The bytes of the document that was processed. `Range` is understood."""
    document = await documents.get_document(ports, who, document_id, version)
    return await _download(ports, who, document, request.headers.get("range"))


@router.get(
    "/documents/{document_id}/pages/{page}.png",
    summary="A page as it looks: PDF files and images",
    response_class=Response,
    responses={200: {"description": "The page", "content": {"image/png": BINARY}}},
)
async def get_page_image(
    document_id: UUID, page: PageNumber, who: Caller, ports: Bound, width: Width = 1200, version: Version = None
) -> Response:
    """A page of a PDF file or image as a picture of the width asked for."""
    image = await pages.page_image(ports, who, document_id, page, width=width, version=version)
    headers = {"ETag": f'"{image.etag}"', "X-Content-Type-Options": "nosniff", **PRIVATE}
    return Response(image.png, 200, headers, "image/png")


@router.get(
    "/documents/{document_id}/assets",
    response_model=AssetPage,
    summary="The assets of the latest version, in order",
)
async def list_document_assets(
    document_id: UUID, who: Caller, ports: Bound, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """The assets of the latest version of a document, in order, a page at a time."""
    page, after = await ports.documents.list_assets(who.tenant, document_id, limit=limit, after=cursor)
    return _page("assets", page, after)


@router.post(
    "/assets",
    status_code=201,
    summary="Add an asset to the latest version of its document",
    response_model=Asset,
    responses={200: {"model": Asset, "description": "The asset existed, and is now as sent."}},
    openapi_extra=takes_model(Asset),
)
@accept_body(is_streamed=True)
async def store_asset(request: Request, who: Caller, ports: Bound) -> Response:
    """Add an asset to the latest version of its document, or replace it."""
    asset = await judged(await read_body(request), partial(conform, "asset"))
    kept, is_new = await documents.store_asset(ports, who, asset)
    return _json(kept.model_dump_json(), 201 if is_new else 200)


@router.get("/assets/{asset_id}", response_model=Asset, summary="An asset")
async def get_asset(asset_id: UUID, who: Caller, ports: Bound) -> Response:
    """An asset: its place in the document, its text and where its bytes are."""
    return _json((await documents.get_asset(ports, who, asset_id)).model_dump_json())


@router.delete("/assets/{asset_id}", status_code=204, summary="Hide an asset, or remove it for good")
async def delete_asset(asset_id: UUID, who: Caller, ports: Bound, hard: bool = False) -> None:
    """Hide an asset; with `hard` remove it with its bytes."""
    await documents.delete_asset(ports, who, asset_id, hard=hard)


@router.get("/assets/{asset_id}/blob", summary="The asset's bytes", response_class=Response, responses=BYTES)
async def download_asset(asset_id: UUID, request: Request, who: Caller, ports: Bound) -> Response:
    """The bytes of an asset. `Range` is understood."""
    asset = await documents.get_asset(ports, who, asset_id)
    return await _download(ports, who, asset, request.headers.get("range"))


def _json(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="application/json")


def _page(name: str, items: Iterable[NormalizedDocument | Asset], cursor: str | None) -> Response:
    listed = ",".join(item.model_dump_json() for item in items)
    return _json(f'{{"{name}":[{listed}],"next_cursor":{encode(cursor).decode()}}}')


async def _download(ports: Ports, who: Principal, thing: NormalizedDocument | Asset, wanted: str | None) -> Response:
    blob = await documents.open_blob(ports, who, thing)
    headers = {**UNTRUSTED, "ETag": f'"{blob.sha256}"', "Content-Disposition": attachment(blob.filename)}
    part = read_range(wanted, blob.size)
    if part is None:
        headers["Content-Length"] = str(blob.size)
        return StreamingResponse(blob.stream, 200, headers, blob.media_type)
    start, end = part
    if start >= end:
        return Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{blob.size}"})
    headers |= {"Content-Length": str(end - start), "Content-Range": f"bytes {start}-{end - 1}/{blob.size}"}
    blob = await documents.open_blob(ports, who, thing, start=start, end=end)
    return StreamingResponse(blob.stream, 206, headers, blob.media_type)


def read_range(header: str | None, size: int) -> tuple[int, int] | None:
    """What one range asks for, end excluded; empty if it lies outside. None: no range, several, or nonsense."""
    found = _RANGE.fullmatch(header or "")
    if not found or found[1] == found[2] == "":
        return None
    if found[1] == "":
        return max(0, size - int(found[2])), size
    start = int(found[1])
    if found[2] == "":
        return start, size
    # A range that ends before it begins is no range at all (RFC 9110), and the whole is sent.
    return (start, min(int(found[2]) + 1, size)) if int(found[2]) >= start else None
