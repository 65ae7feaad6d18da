"""Documents and assets: inline bytes move to the store, rows to the repository, and back out through `open_blob`.

A blob's bytes lie under `tenants/<tenant>/documents/<document id>/<sha256>`, so that equal bytes lie there once. What
lies elsewhere stays a reference: docmill never fetches a blob from an address that somebody sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from mimetypes import guess_extension, guess_type
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pybase64

from docmill.contracts import Asset, FileBlob, InlineBlob, NormalizedDocument
from docmill.core.access import Principal
from docmill.core.errors import Forbidden, Invalid, NotFound
from docmill.core.keys import user_prefix
from docmill.ports import Ports
from docmill.work.objects import TenantStore, objects

UNKNOWN_TYPE = "application/octet-stream"
BIG = 1024**2
URIS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class OpenBlob:
    """Bytes on their way out. `size` is that of the whole object, also when only a part of it is streamed."""

    stream: AsyncIterator[bytes]
    size: int
    media_type: str
    filename: str
    sha256: str


async def store_document(ports: Ports, who: Principal, document: NormalizedDocument) -> tuple[NormalizedDocument, bool]:
    """Keep the document; as it was kept, and whether it is new."""
    _check_tenant(who, document.ref.tenant_id)
    assets = [await _settled(ports, who, asset, asset.ref.document_id) for asset in document.assets]
    kept = (await _settled(ports, who, document, document.ref.document_id)).model_copy(update={"assets": assets})
    return kept, await ports.documents.put(kept)


async def store_asset(ports: Ports, who: Principal, asset: Asset) -> tuple[Asset, bool]:
    """Add the asset to the latest version of its document; as it was kept, and whether it is new."""
    _check_tenant(who, asset.ref.tenant_id)
    settled = await _settled(ports, who, asset, asset.ref.document_id)
    is_new = await ports.documents.put_asset(settled)
    return await get_asset(ports, who, asset.ref.asset_id), is_new


async def get_document(
    ports: Ports, who: Principal, document_id: UUID, version: str | None = None
) -> NormalizedDocument:
    document = await ports.documents.get(who.tenant, document_id, version)
    if document is None:
        raise NotFound("document_not_found")
    return document


async def get_versions(ports: Ports, who: Principal, document_id: UUID) -> list[NormalizedDocument]:
    """All versions, newest first."""
    found = await ports.documents.versions(who.tenant, document_id)
    if not found:
        raise NotFound("document_not_found")
    return found


async def delete_document(
    ports: Ports, who: Principal, document_id: UUID, *, version: str | None = None, hard: bool = False
) -> None:
    """Hide a version, or all; with *hard* remove them, and the stored bytes that nothing of the document names."""
    if not await ports.documents.delete(who.tenant, document_id, version=version, hard=hard):
        raise NotFound("document_not_found")
    if hard:
        await drop_unused(ports, who, document_id)


async def get_asset(ports: Ports, who: Principal, asset_id: UUID) -> Asset:
    asset = await ports.documents.get_asset(who.tenant, asset_id)
    if asset is None:
        raise NotFound("asset_not_found")
    return asset


async def delete_asset(ports: Ports, who: Principal, asset_id: UUID, *, hard: bool = False) -> None:
    known = await ports.documents.get_asset(who.tenant, asset_id)
    if not await ports.documents.delete_asset(who.tenant, asset_id, hard=hard):
        raise NotFound("asset_not_found")
    if hard and known:
        await drop_unused(ports, who, known.ref.document_id)


async def open_blob(
    ports: Ports, who: Principal, thing: NormalizedDocument | Asset, *, start: int = 0, end: int | None = None
) -> OpenBlob:
    """The bytes, if docmill keeps them itself; else NotFound `blob_not_found`. An external address is never fetched."""
    store = objects(ports, who.tenant)
    key = store.key_of(thing.blob.uri) if isinstance(thing.blob, FileBlob) else None
    found = await store.stat(key) if key else None
    if key is None or found is None:
        raise NotFound("blob_not_found")
    if isinstance(thing.blob, FileBlob) and thing.blob.size not in (None, found.size):
        raise NotFound("object_damaged", key=key)
    media_type, filename = _described(thing)
    stream = store.stream(key, start=start, end=end)
    return OpenBlob(stream, found.size, media_type, filename, thing.checksum)


async def _settled(ports: Ports, who: Principal, thing: Any, document_id: UUID) -> Any:
    """The document or asset with its bytes in the store."""
    store = objects(ports, who.tenant)
    blob = thing.blob
    if isinstance(blob, FileBlob):
        await _check_file(store, who, blob)
    if not isinstance(blob, InlineBlob):
        return thing
    data = await _decoded(blob.base64)
    key = f"{_folder(document_id)}{blob.sha256}"
    if (stored := await store.stat(key)) is None or stored.size != len(data):
        await store.put_bytes(key, data)
    kept = FileBlob(type="file", uri=store.uri(key), sha256=blob.sha256, size=blob.size)
    return thing.model_copy(update={"blob": kept})


async def _check_file(store: TenantStore, who: Principal, blob: FileBlob) -> None:
    """A file of ours must be there, be the one that the blob describes, and be the caller's to show."""
    if not blob.uri.startswith("docmill:"):
        return
    key = store.key_of(blob.uri)
    if key is None or not key.startswith(("documents/", user_prefix(who.user))):
        raise Forbidden("forbidden")
    stored = await store.stat(key)
    if stored is None:
        raise NotFound("object_not_found", key=key)
    if stored.size != blob.size or stored.sha256 not in ("", blob.sha256):
        raise Invalid("request_invalid", why="size or sha256 of the blob is not that of the stored file.")


async def drop_unused(ports: Ports, who: Principal, document_id: UUID) -> None:
    """Remove the stored bytes of the document's own folder that no document or asset of the tenant names any more."""
    store = objects(ports, who.tenant)
    keys = [key async for key, _, _ in ports.store.list(store.prefix + _folder(document_id))]
    for start in range(0, len(keys), URIS_AT_ONCE):
        uris = {store.uri(key.removeprefix(store.prefix)): key for key in keys[start : start + URIS_AT_ONCE]}
        used = await ports.documents.used(who.tenant, list(uris))
        for uri, key in uris.items():
            if uri not in used:
                await ports.store.delete(key)


async def _decoded(text: str) -> bytes:
    if len(text) < BIG:
        return pybase64.b64decode(text, validate=True)
    return await asyncio.to_thread(pybase64.b64decode, text, validate=True)


def _check_tenant(who: Principal, tenant_id: str) -> None:
    """The tenant comes from the credential; a body that names another one is refused, not corrected."""
    if tenant_id != who.tenant:
        raise Forbidden("forbidden")


def _folder(document_id: UUID) -> str:
    return f"documents/{document_id}/"


def _described(thing: NormalizedDocument | Asset) -> tuple[str, str]:
    """Media type and file name. An asset knows its type; a document has the extension of its title or of its file."""
    if isinstance(thing, Asset):
        return thing.media_type, f"{thing.ref.asset_id}{guess_extension(thing.media_type) or ''}"
    title = thing.meta.title or str(thing.ref.document_id)
    if guess_type(title)[0] is None and isinstance(thing.blob, FileBlob):
        title += PurePosixPath(thing.blob.uri).suffix
    return guess_type(title)[0] or UNKNOWN_TYPE, title
