"""For every code one input that reaches it: kind, JSON text, options of `check`. The CLI's tests use it, too."""

import json
from typing import Any

from .samples import (
    ASSET,
    ASSET_REF,
    ASSET_SHA,
    COLLECTION_ID,
    DOCUMENT_META,
    DOCUMENT_REF,
    EXTERNAL_BLOB,
    FILE_BLOB,
    INLINE_BLOB,
    SHA,
    WHOLE_DOCUMENT,
    changed,
    without,
)

Case = tuple[str, str, dict[str, Any]]
_INLINE_ASSET = {**ASSET, "blob": {**INLINE_BLOB, "media_type": "image/png"}}
_EXTERNAL_NAMELESS = without(EXTERNAL_BLOB, "sha256")


def _case(kind: str, value: object, **options: Any) -> Case:
    return kind, json.dumps(value, ensure_ascii=False), options


def _ref(**fields: object) -> Case:
    return _case("document-ref", {**DOCUMENT_REF, **fields})


def _meta(**fields: object) -> Case:
    return _case("document-meta", {**DOCUMENT_META, **fields})


def _asset(**fields: object) -> Case:
    return _case("asset", {**ASSET, **fields})


def _document(path: str, new: object, **options: Any) -> Case:
    return _case("document", changed(WHOLE_DOCUMENT, path, new), **options)


REACHING: dict[str, Case] = {
    "tenant_empty": _ref(tenant_id=" \u200b "),
    "tenant_too_long": _ref(tenant_id="x" * 129),
    "workflow_empty": _ref(workflow_id=""),
    "workflow_invalid_char": _ref(workflow_id="．．／"),
    "workflow_too_long": _ref(workflow_id="w" * 129),
    "uuid_empty": _ref(document_id="  "),
    "uuid_invalid": _ref(document_id="5c6a9f0e"),
    "uuid_type": _ref(collection_id=7),
    "version_too_long": _ref(version="v" * 65),
    "version_invalid": _ref(version="release 1"),
    "title_too_long": _meta(title="ﷺ" * 15),
    "language_invalid": _meta(language="--de"),
    "tags_type": _meta(tags="finance"),
    "tag_invalid": _meta(tags=["q 1"]),
    "tag_too_long": _meta(tags=["t" * 65]),
    "crawl_timestamp_naive": _meta(crawl_timestamp="2024-03-01T12:00:00"),
    "external_ref_too_many": _meta(external_ref={f"key-{i}": "x" for i in range(17)}),
    "external_ref_key_empty": _meta(external_ref={"": "value"}),
    "external_ref_key_too_long": _meta(external_ref={"k" * 129: "value"}),
    "external_ref_value_empty": _meta(external_ref={"id": "\u00ad"}),
    "external_ref_value_too_long": _meta(external_ref={"id": "v" * 513}),
    "uri_empty": _case("blob", {**FILE_BLOB, "uri": " "}),
    "sha256_invalid": _case("blob", {**FILE_BLOB, "sha256": "abcd"}),
    "size_negative": _case("blob", {**FILE_BLOB, "size": -1}),
    "media_type_empty": _case("blob", {**INLINE_BLOB, "media_type": ""}),
    "media_type_invalid": _case("blob", {**INLINE_BLOB, "media_type": "text/html; charset=utf-8"}),
    "base64_invalid": _case("blob", {**INLINE_BLOB, "base64": "SGVsbG8*"}),
    "inline_size_mismatch": _case("blob", {**INLINE_BLOB, "size": 6}),
    "inline_checksum_mismatch": _case("blob", {**INLINE_BLOB, "sha256": SHA}, strict=True),
    "checksum_invalid": _document("checksum", "0" * 63),
    "created_at_naive": _document("created_at", "2024-05-02T10:15:00"),
    "meta_tenant_mismatch": _document("meta.tenant_id", "other"),
    "meta_workflow_mismatch": _document("meta.workflow_id", "other"),
    "asset_tenant_mismatch": _document("assets.0.ref.tenant_id", "other"),
    "asset_document_mismatch": _document("assets.0.ref.document_id", COLLECTION_ID),
    "asset_collection_mismatch": _document("assets.0.ref.collection_id", COLLECTION_ID),
    "asset_workflow_mismatch": _document("assets.0.ref.workflow_id", "other"),
    "document_checksum_missing": _document("blob", _EXTERNAL_NAMELESS, strict=True),
    "document_checksum_mismatch": _document("checksum", ASSET_SHA, strict=True),
    "media_type_mismatch": _case("asset", changed(_INLINE_ASSET, "blob.media_type", "image/gif")),
    "media_type_guard": _case("asset", {**ASSET, "media_type": "text/plain"}, media_guard=("image/",)),
    "asset_checksum_missing": _case("asset", {**ASSET, "blob": _EXTERNAL_NAMELESS}, strict=True),
    "asset_checksum_mismatch": _case("asset", {**ASSET, "checksum": SHA}, strict=True),
    "page_index_negative": _asset(page_index=-1),
    "bbox_invalid": _asset(bbox=[0.4, 0.4, 0.2, 0.5]),
    "caption_model_required": _asset(caption_model=" "),
    "caption_confidence_required": _asset(caption_confidence=None),
    "caption_confidence_range": _asset(caption_confidence=1.01),
    # Ours, where the reference is silent.
    "external_ref_type": _meta(external_ref=["id"]),
    "external_ref_key_duplicate": _meta(external_ref={"id": "1", "ｉｄ": "2"}),
    "json_invalid": ("blob", '{"type": ', {}),
    "json_too_deep": ("blob", "[" * 65 + "]" * 65, {}),
    "json_duplicate_key": ("blob", '{"size": 1, ' + json.dumps(FILE_BLOB)[1:], {"strict": True}),
    "errors_truncated": ("document", json.dumps({"assets": [{}] * 5000}), {}),
    # Pydantic's names.
    "missing": _case("asset-ref", without(ASSET_REF, "asset_id")),
    "extra_forbidden": _ref(colour="red"),
    "literal_error": _document("source", "telex"),
    "union_tag_invalid": _case("blob", {**FILE_BLOB, "type": "ftp"}),
    "union_tag_not_found": _case("blob", without(FILE_BLOB, "type")),
    "model_type": _document("ref", "acme"),
    "string_type": _ref(tenant_id=5),
    "string_too_long": _case("blob", {**FILE_BLOB, "uri": "memory://" + "x" * 5000}),
    "int_type": _case("blob", {**FILE_BLOB, "size": True}),
    "less_than_equal": _case("blob", {**FILE_BLOB, "size": 2**63}),
    "float_type": _asset(caption_confidence="0.5"),
    "list_type": _document("assets", {}),
    "datetime_type": _asset(created_at=1714644900),
    "datetime_parsing": _asset(created_at="yesterday"),
}

REFERENCE = [
    "tenant_empty",
    "tenant_too_long",
    "workflow_empty",
    "workflow_invalid_char",
    "workflow_too_long",
    "uuid_empty",
    "uuid_invalid",
    "uuid_type",
    "version_too_long",
    "version_invalid",
    "title_too_long",
    "language_invalid",
    "tags_type",
    "tag_invalid",
    "tag_too_long",
    "crawl_timestamp_naive",
    "external_ref_too_many",
    "external_ref_key_empty",
    "external_ref_key_too_long",
    "external_ref_value_empty",
    "external_ref_value_too_long",
    "uri_empty",
    "sha256_invalid",
    "size_negative",
    "inline_size_mismatch",
    "inline_checksum_mismatch",
    "media_type_empty",
    "media_type_invalid",
    "base64_invalid",
    "literal_error",
    "meta_tenant_mismatch",
    "meta_workflow_mismatch",
    "asset_tenant_mismatch",
    "asset_document_mismatch",
    "asset_collection_mismatch",
    "asset_workflow_mismatch",
    "checksum_invalid",
    "document_checksum_missing",
    "document_checksum_mismatch",
    "created_at_naive",
    "media_type_mismatch",
    "media_type_guard",
    "asset_checksum_missing",
    "asset_checksum_mismatch",
    "page_index_negative",
    "bbox_invalid",
    "caption_model_required",
    "caption_confidence_required",
    "caption_confidence_range",
    "missing",
    "union_tag_invalid",
    "extra_forbidden",
]
"""Every code that the reference of the contracts and the names of Pydantic promise."""
