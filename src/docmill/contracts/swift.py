"""The quick judgement: accepts values that are already normal and consistent, and has no opinion on others.

It must never accept what the contracts themselves would refuse or change; a property test holds both together.
"""

import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, SchemaValidator, ValidationError
from pydantic_core import core_schema as core

from .asset import Asset, AssetRef
from .base import Contract
from .blob import BLOBS, Blob, ByType, FileBlob, InlineBlob
from .document import DocumentMeta, DocumentRef, EachAsset, NormalizedDocument
from .fields import TEXT_LIMITS, Rule, is_digest
from .mode import Mode
from .payload import Broken, decoded_digest, decoded_size
from .text import cut

Lifted = Mapping[str, memoryview]
_LARGE = 1 << 20
_WORTH_LIFTING = 1 << 16


def _model(cls: type[Contract], **other: CoreSchema) -> CoreSchema:
    """Only already normal values of *cls*; fields in *other* are judged later and only typed here."""
    fields = {name: core.model_field(other.get(name) or _field(info)) for name, info in cls.model_fields.items()}
    return core.model_schema(cls, core.model_fields_schema(fields, extra_behavior="forbid"), frozen=True)


def _field(info: FieldInfo) -> CoreSchema:
    schema = next((found for marker in info.metadata if (found := _marked(marker))), None) or _typed(info.annotation)
    if info.is_required():
        return schema
    if info.default_factory:
        return core.with_default_schema(schema, default_factory=info.default_factory)
    return core.with_default_schema(schema, default=info.default)


def _marked(marker: object) -> CoreSchema | None:
    match marker:
        case Rule():
            return marker.fast
        case ByType():
            return _BLOB
        case EachAsset():
            # An asset's tenant and workflow must equal the document's, which are judged already.
            ref = _model(AssetRef, tenant_id=_TEXT, workflow_id=_TEXT)
            return core.list_schema(_model(Asset, ref=ref, blob=_ASSET_BLOB))
    return None


_TEXT = core.str_schema(strict=True)


def _typed(annotation: Any) -> CoreSchema:
    if get_origin(annotation) is Literal:
        return core.literal_schema(list(get_args(annotation)))
    return _model(annotation)


_BLOB: CoreSchema = core.tagged_union_schema({tag: _model(cls) for tag, cls in BLOBS.items()}, "type")
# The digest of an asset's blob is mostly its checksum, which is judged already.
_FILE = _model(FileBlob, sha256=_TEXT)
_ASSET_BLOB: CoreSchema = core.tagged_union_schema({**_BLOB["choices"], "file": _FILE}, "type")


def _validator(schema: CoreSchema) -> SchemaValidator:
    # Pydantic would put the models' own validators, which explain, back in place of ours.
    return SchemaValidator(schema, _use_prebuilt=False)


def _meta_holds(meta: DocumentMeta) -> bool:
    tags = meta.tags
    if len(tags) > 1:
        meta.__dict__["tags"] = sorted(set(tags))
    return True


def _blob_holds(blob: Blob, mode: Mode, lifted: Lifted) -> bool:
    if type(blob) is not InlineBlob:
        return True
    encoded = lifted.get(blob.base64, blob.base64)
    try:
        if mode.strict:
            if decoded_digest(encoded) != (blob.size, blob.sha256):
                return False
        elif decoded_size(encoded) != blob.size:
            return False
    except Broken:
        return False
    if isinstance(encoded, memoryview):
        blob.__dict__["base64"] = str(encoded, "ascii")
    return True


def _asset_holds(asset: Asset, mode: Mode, lifted: Lifted) -> bool:
    # This runs for every asset of every document: plain lookups in the instance are its whole cost.
    parts = asset.__dict__
    blob, bbox = parts["blob"], parts["bbox"]
    if type(blob) is InlineBlob:
        if blob.media_type != parts["media_type"] or not _blob_holds(blob, mode, lifted):
            return False
    elif mode.media_guard and not parts["media_type"].startswith(mode.media_guard):
        return False
    if bbox is not None and (bbox[2] <= bbox[0] or bbox[3] <= bbox[1]):
        return False
    if parts["caption_method"] == "vlm_caption" and (
        parts["caption_model"] is None or parts["caption_confidence"] is None
    ):
        return False
    for name, limit in _TEXTS:
        if (text := parts[name]) and not (text.isascii() and len(text) <= limit and "\0" not in text):
            parts[name] = cut(text, limit)
    digest = blob.sha256
    return digest == parts["checksum"] or not (mode.strict or (digest is not None and not is_digest(digest)))


_TEXTS = tuple(TEXT_LIMITS.items())


def _document_holds(document: NormalizedDocument, mode: Mode, lifted: Lifted) -> bool:
    ref, meta = document.ref, document.meta
    tenant, workflow, number, collection = ref.tenant_id, ref.workflow_id, ref.document_id.int, ref.collection_id
    if meta.tenant_id != tenant or meta.workflow_id != workflow:
        return False
    if mode.strict and document.blob.sha256 != document.checksum:
        return False
    for asset in document.assets:
        parts = asset.__dict__["ref"].__dict__
        if parts["tenant_id"] != tenant or parts["workflow_id"] != workflow or parts["document_id"].int != number:
            return False
        if parts["collection_id"] != collection and parts["collection_id"] is not None:
            return False
        if not _asset_holds(asset, mode, lifted):
            return False
    if not _blob_holds(document.blob, mode, lifted):
        return False
    document.settled()
    return _meta_holds(meta)


Holds = Callable[[Any, Mode, Lifted], bool]
_SWIFT: dict[str, tuple[SchemaValidator, Holds]] = {
    "document-ref": (_validator(_model(DocumentRef)), lambda _value, _mode, _lifted: True),
    "document-meta": (_validator(_model(DocumentMeta)), lambda meta, _mode, _lifted: _meta_holds(meta)),
    "blob": (_validator(_BLOB), _blob_holds),
    "asset-ref": (_validator(_model(AssetRef)), lambda _value, _mode, _lifted: True),
    "asset": (_validator(_model(Asset, blob=_ASSET_BLOB)), _asset_holds),
    "document": (_validator(_model(NormalizedDocument)), _document_holds),
}


def accepted(kind: str, data: bytes, mode: Mode) -> Contract | None:
    """The value in the JSON text *data*, or None if it takes the explaining judgement to say."""
    validator, holds = _SWIFT[kind]
    text, lifted = _lift(data) if len(data) > _LARGE else (data, {})
    try:
        value: Contract = validator.validate_json(text)
    except ValidationError:
        return None
    if mode.strict and keys_written(text) != keys_kept(value):
        return None
    return value if holds(value, mode, lifted) else None


_before_payload = re.compile(rb'"base64"[ \t\r\n]*:[ \t\r\n]*"')


def _lift(data: bytes) -> tuple[bytes, Lifted]:
    """*data* with a short mark in place of each base64 payload, and the payloads by their marks.

    A JSON parser looks at every character and copies the string; nothing in a payload is worth that. A mark is
    random, so that no text in *data* can pass for one. A payload with an escape ends the search: it is rare.
    """
    parts: list[bytes] = []
    lifted: dict[str, memoryview] = {}
    view, done, start = memoryview(data), 0, 0
    while (start := data.find(b'"base64"', start)) >= 0:
        match = _before_payload.match(data, start)
        start = match.end() if match else start + 1
        if not match:
            continue
        end = data.find(b'"', start)
        if end < 0 or data.find(b"\\", start, end) >= 0:
            break
        if end - start < _WORTH_LIFTING:
            start = end
            continue
        mark = secrets.token_hex(16)
        lifted[mark] = view[start:end]
        parts += (data[done:start], mark.encode())
        start = done = end
    return b"".join((*parts, data[done:])), lifted


_blanks_before_colon = re.compile(rb'"[ \t\r\n]+:')


def keys_written(text: bytes) -> int:
    """At least as many keys as the valid JSON *text* has: a text that holds `":` counts, too.

    As many as were kept, and none came twice; more, and it takes a closer look.
    """
    return text.count(b'":') + sum(1 for _ in _blanks_before_colon.finditer(text))


def keys_kept(value: Any) -> int:
    kind = type(value)
    if kind in _CONTRACTS:
        count, inside = len(value.__pydantic_fields_set__), value.__dict__.values()
    elif kind is dict:
        count, inside = len(value), value.values()
    else:
        count, inside = 0, value if kind is list else ()
    return count + sum([keys_kept(part) for part in inside if type(part) in _NESTED])


_CONTRACTS = frozenset({DocumentRef, DocumentMeta, AssetRef, Asset, NormalizedDocument, *BLOBS.values()})
_NESTED = _CONTRACTS | {dict, list}
