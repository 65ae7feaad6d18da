"""The shapes of the contracts for a typed JSON decoder: names, types, and the limits it can judge by itself.

What is absent stays UNSET, so that a model knows which of its fields were given. A test holds these shapes and the
models together.
"""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from .fields import MAX_INT, MAX_LANGUAGE, MAX_MEDIA_TYPE, MAX_URI


class Shape(Struct, forbid_unknown_fields=True, gc=False):
    """Lives only between decoding and the models, and never refers to itself."""


Line = Annotated[str, Meta(min_length=1, max_length=MAX_URI)]
Name = Annotated[str, Meta(min_length=1, max_length=128)]
ShortName = Annotated[str, Meta(min_length=1, max_length=64)]
MediaType = Annotated[str, Meta(max_length=MAX_MEDIA_TYPE)]
Digest = Annotated[str, Meta(min_length=64, max_length=64)]
Count = Annotated[int, Meta(ge=0, le=MAX_INT)]
Unit = Annotated[float, Meta(ge=0, le=1)]
Moment = Annotated[datetime, Meta(tz=True)]


class DocumentRefShape(Shape):
    tenant_id: Name
    workflow_id: Name
    document_id: UUID
    collection_id: UUID | UnsetType | None = UNSET
    version: ShortName | UnsetType | None = UNSET


class DocumentMetaShape(Shape):
    tenant_id: Name
    workflow_id: Name
    title: Annotated[str, Meta(min_length=1, max_length=256)] | UnsetType | None = UNSET
    language: Annotated[str, Meta(min_length=1, max_length=MAX_LANGUAGE)] | UnsetType | None = UNSET
    tags: list[ShortName] | UnsetType = UNSET
    origin_uri: Line | UnsetType | None = UNSET
    crawl_timestamp: Moment | UnsetType | None = UNSET
    external_ref: (
        Annotated[dict[Name, Annotated[str, Meta(min_length=1, max_length=512)]], Meta(max_length=16)] | UnsetType
    ) = UNSET


class FileShape(Shape, tag_field="type", tag="file"):
    uri: Line
    sha256: Digest
    size: Count


class InlineShape(Shape, tag_field="type", tag="inline"):
    media_type: MediaType
    base64: str
    sha256: Digest
    size: Count


class ExternalShape(Shape, tag_field="type", tag="external"):
    kind: Literal["http", "https", "s3", "gcs"]
    uri: Line
    sha256: Digest | UnsetType | None = UNSET


BlobShape = FileShape | InlineShape | ExternalShape


class AssetRefShape(Shape):
    tenant_id: Name
    workflow_id: Name
    asset_id: UUID
    document_id: UUID
    collection_id: UUID | UnsetType | None = UNSET


class AssetShape(Shape, kw_only=True):
    ref: AssetRefShape
    media_type: MediaType
    blob: BlobShape
    origin_uri: Line | UnsetType | None = UNSET
    page_index: Count | UnsetType | None = UNSET
    bbox: Annotated[list[Unit], Meta(min_length=4, max_length=4)] | UnsetType | None = UNSET
    context_before: str | UnsetType | None = UNSET
    context_after: str | UnsetType | None = UNSET
    ocr_text: str | UnsetType | None = UNSET
    text_description: str | UnsetType | None = UNSET
    caption_method: Literal["vlm_caption", "ocr_only", "manual", "none"]
    caption_model: Line | UnsetType | None = UNSET
    caption_confidence: Unit | UnsetType | None = UNSET
    created_at: Moment
    checksum: Digest


class DocumentShape(Shape):
    ref: DocumentRefShape
    meta: DocumentMetaShape
    blob: BlobShape
    checksum: Digest
    created_at: Moment
    source: Literal["upload", "crawler", "integration", "other"] | UnsetType | None = UNSET
    assets: list[AssetShape] | UnsetType = UNSET
