"""Pages as pictures: drawn when somebody looks, kept beside the document's other bytes, gone with them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from uuid import UUID, uuid4

from docmill.contracts import FileBlob
from docmill.core.access import Principal
from docmill.core.errors import NotFound
from docmill.ports import Ports
from docmill.work.documents import get_document
from docmill.work.objects import objects

KEPT_STEP = 100
"""Only widths that this divides are kept: a store must not fill up because somebody counts through all widths."""


@dataclass(frozen=True, slots=True)
class PageImage:
    png: bytes
    etag: str


async def page_image(
    ports: Ports, who: Principal, document_id: UUID, page: int, *, width: int, version: str | None = None
) -> PageImage:
    """Page *page*, counted from 1, of a document whose bytes docmill keeps itself."""
    document = await get_document(ports, who, document_id, version)
    store = objects(ports, who.tenant)
    source = store.key_of(document.blob.uri) if isinstance(document.blob, FileBlob) else None
    if source is None:
        raise NotFound("blob_not_found")
    etag = f"{document.checksum}-{page}-{width}"
    key = f"documents/{document_id}/pages/{etag}.png"
    if width % KEPT_STEP == 0 and await store.stat(key) is not None:
        return PageImage(await store.read(key), etag)
    png = await _drawn(ports, who, source, page - 1, width)
    if width % KEPT_STEP == 0:
        await store.put_bytes(key, png)
    return PageImage(png, etag)


async def _drawn(ports: Ports, who: Principal, source: str, index: int, width: int) -> bytes:
    folder = ports.scratch / f"page-{uuid4()}"
    folder.mkdir(parents=True)
    try:
        try:
            await objects(ports, who.tenant).fetch(source, folder / "source")
        except NotFound as error:
            raise NotFound("blob_not_found") from error
        return await ports.renderer.draw(folder / "source", index, width=width, tenant=who.tenant)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
