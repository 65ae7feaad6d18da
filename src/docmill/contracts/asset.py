"""A part of a document that stands for itself: an image, a table."""

from collections.abc import Iterable
from typing import Any

from pydantic import Field

from .base import Contract, Fault, fault, known
from .blob import BlobLocator, checksum_faults
from .codes import shown
from .fields import (
    BBox,
    CaptionMethod,
    CaptionModel,
    Checksum,
    Confidence,
    Context,
    CreatedAt,
    MediaType,
    OcrText,
    OptionalUri,
    OptionalUuid,
    PageIndex,
    TenantId,
    Uuid,
    WorkflowId,
)
from .mode import Mode


class AssetRef(Contract):
    """Names an asset and the document it belongs to."""

    tenant_id: TenantId
    workflow_id: WorkflowId
    asset_id: Uuid
    document_id: Uuid
    collection_id: OptionalUuid = Field(None, description="Taken over from the document when absent")


class Asset(Contract):
    """A part of a document, with its place, its surroundings and its caption."""

    ref: AssetRef
    media_type: MediaType
    blob: BlobLocator
    origin_uri: OptionalUri = None
    page_index: PageIndex = Field(None, description="The page, counted from 0")
    bbox: BBox = None
    context_before: Context = None
    context_after: Context = None
    ocr_text: OcrText = None
    text_description: Context = None
    caption_method: CaptionMethod
    caption_model: CaptionModel = None
    caption_confidence: Confidence = None
    created_at: CreatedAt
    checksum: Checksum

    @classmethod
    def relations(cls, view: Any, mode: Mode) -> Iterable[Fault]:
        yield from _media_faults(view, mode.media_guard)
        if view.caption_method == "vlm_caption":
            if view.caption_model is None:
                yield fault("caption_model_required", "caption_model")
            if view.caption_confidence is None:
                yield fault("caption_confidence_required", "caption_confidence")
        if mode.strict:
            yield from checksum_faults("asset", view)


def _media_faults(view: Any, guard: tuple[str, ...]) -> Iterable[Fault]:
    media_type, blob = view.media_type, view.blob
    if not known(media_type, blob):
        return
    if blob.type == "inline":
        if known(blob.media_type) and blob.media_type != media_type:
            context = {"media_type": shown(media_type), "blob_media_type": shown(blob.media_type)}
            yield fault("media_type_mismatch", "media_type", **context)
    elif guard and not media_type.startswith(guard):
        yield fault(
            "media_type_guard", "media_type", media_type=shown(media_type), allowed=", ".join(map(shown, guard))
        )
