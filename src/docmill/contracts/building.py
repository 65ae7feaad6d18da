"""Makes the models of shapes that were judged: nothing is judged here, only put into its final form."""

from collections.abc import Callable, Mapping
from datetime import UTC
from typing import Any
from uuid import UUID

from msgspec import UNSET
from msgspec.structs import asdict

from .asset import Asset, AssetRef
from .base import maker
from .blob import Blob, ExternalBlob, FileBlob, InlineBlob
from .document import DocumentMeta, DocumentRef, NormalizedDocument
from .fields import TEXT_LIMITS
from .shapes import (
    AssetRefShape,
    AssetShape,
    BlobShape,
    DocumentMetaShape,
    DocumentRefShape,
    DocumentShape,
    ExternalShape,
    FileShape,
)
from .text import cut

Lifted = Mapping[str, memoryview]
"""Payloads that were taken out of a text before it was parsed, by the marks that stand for them in it."""

Parts = tuple[dict[str, Any], None, set[str]]
"""The fields of a model, no extra ones, and the names of the fields that were given."""

_CONTEXT, _OCR = TEXT_LIMITS["context_before"], TEXT_LIMITS["ocr_text"]
_SHORT = min(_CONTEXT, _OCR) // 4  # no character takes more than four bytes, so a short text need not be measured
_DEFAULTS: Mapping[str, Callable[[], object]] = {"tags": list, "external_ref": dict, "assets": list}  # else None
_ASSET_FIELDS = set(Asset.model_fields)


_document_ref, _document_meta, _document = maker(DocumentRef), maker(DocumentMeta), maker(NormalizedDocument)
_asset_ref, _asset = maker(AssetRef), maker(Asset)
_file, _inline, _external = maker(FileBlob), maker(InlineBlob), maker(ExternalBlob)


def _completed(fields: dict[str, Any]) -> Parts:
    """*fields* with defaults where they are UNSET."""
    given = {name for name, value in fields.items() if value is not UNSET}
    for name in fields.keys() - given:
        fields[name] = default() if (default := _DEFAULTS.get(name)) else None
    return fields, None, given


def document_ref(shape: DocumentRefShape, _lifted: Lifted) -> DocumentRef:
    return _document_ref(_completed(asdict(shape)))  # type: ignore[no-any-return]


def document_meta(shape: DocumentMetaShape, _lifted: Lifted) -> DocumentMeta:
    fields = asdict(shape)
    if tags := shape.tags:  # UNSET is false
        fields["tags"] = sorted(set(tags))
    if moment := shape.crawl_timestamp:
        fields["crawl_timestamp"] = moment.astimezone(UTC)
    return _document_meta(_completed(fields))  # type: ignore[no-any-return]


# Blobs, refs and assets are written out: they are most of a document, and loops over names take twice as long.


def blob(shape: BlobShape, lifted: Lifted) -> Blob:
    if isinstance(shape, FileShape):
        fields = {"type": "file", "uri": shape.uri, "sha256": shape.sha256, "size": shape.size}
        return _file((fields, None, {"type", "uri", "sha256", "size"}))  # type: ignore[no-any-return]
    fields = asdict(shape)
    if isinstance(shape, ExternalShape):
        return _external(_completed({"type": "external", **fields}))  # type: ignore[no-any-return]
    if payload := lifted.get(shape.base64):
        fields["base64"] = str(payload, "ascii")
    return _inline(_completed({"type": "inline", **fields}))  # type: ignore[no-any-return]


def asset_ref(shape: AssetRefShape, _lifted: Lifted, inherited: UUID | None = None) -> AssetRef:
    """A ref without a collection takes the document's."""
    given = {"tenant_id", "workflow_id", "asset_id", "document_id", "collection_id"}
    collection = shape.collection_id
    if not collection:
        if collection is UNSET and inherited is None:
            given.remove("collection_id")
        collection = inherited
    fields = {
        "tenant_id": shape.tenant_id,
        "workflow_id": shape.workflow_id,
        "asset_id": shape.asset_id,
        "document_id": shape.document_id,
        "collection_id": collection,
    }
    return _asset_ref((fields, None, given))  # type: ignore[no-any-return]


def asset(shape: AssetShape, lifted: Lifted, inherited: UUID | None = None) -> Asset:
    given = _ASSET_FIELDS.copy()
    if (origin := shape.origin_uri) is UNSET:
        origin = None
        given.remove("origin_uri")
    if (page := shape.page_index) is UNSET:
        page = None
        given.remove("page_index")
    if (bbox := shape.bbox) is UNSET:
        bbox = None
        given.remove("bbox")
    if (before := shape.context_before) is UNSET:
        before = None
        given.remove("context_before")
    elif before and (len(before) > _SHORT or "\0" in before):
        before = cut(before, _CONTEXT)
    if (after := shape.context_after) is UNSET:
        after = None
        given.remove("context_after")
    elif after and (len(after) > _SHORT or "\0" in after):
        after = cut(after, _CONTEXT)
    if (ocr := shape.ocr_text) is UNSET:
        ocr = None
        given.remove("ocr_text")
    elif ocr and (len(ocr) > _SHORT or "\0" in ocr):
        ocr = cut(ocr, _OCR)
    if (description := shape.text_description) is UNSET:
        description = None
        given.remove("text_description")
    elif description and (len(description) > _SHORT or "\0" in description):
        description = cut(description, _CONTEXT)
    if (model := shape.caption_model) is UNSET:
        model = None
        given.remove("caption_model")
    if (confidence := shape.caption_confidence) is UNSET:
        confidence = None
        given.remove("caption_confidence")
    moment = shape.created_at
    fields = {
        "ref": asset_ref(shape.ref, lifted, inherited),
        "media_type": shape.media_type,
        "blob": blob(shape.blob, lifted),
        "origin_uri": origin,
        "page_index": page,
        "bbox": bbox,
        "context_before": before,
        "context_after": after,
        "ocr_text": ocr,
        "text_description": description,
        "caption_method": shape.caption_method,
        "caption_model": model,
        "caption_confidence": confidence,
        "created_at": moment if moment.tzinfo is UTC else moment.astimezone(UTC),
        "checksum": shape.checksum,
    }
    return _asset((fields, None, given))  # type: ignore[no-any-return]


def document(shape: DocumentShape, lifted: Lifted) -> NormalizedDocument:
    fields = asdict(shape)
    collection = shape.ref.collection_id or None
    fields["ref"] = document_ref(shape.ref, lifted)
    fields["meta"] = document_meta(shape.meta, lifted)
    fields["blob"] = blob(shape.blob, lifted)
    fields["created_at"] = shape.created_at.astimezone(UTC)
    if shape.assets:
        fields["assets"] = [asset(part, lifted, collection) for part in shape.assets]
    return _document(_completed(fields))  # type: ignore[no-any-return]
