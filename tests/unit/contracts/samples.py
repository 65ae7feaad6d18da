"""Valid values of every kind, and the examples of the reference, as it prints them and as it should have."""

import copy
from hashlib import sha256
from typing import Any

DOCUMENT_ID = "c7f8b4f4-1b7b-4ad2-9da6-0f8df1d96c90"
ASSET_ID = "54cc8d65-a74a-4ef0-bca9-0fdb45eb3a0f"
COLLECTION_ID = "00000000-0000-0000-0000-000000000123"
SHA = "0f343b0931126a20f133d67c2b018a3b6d91ef1ed97e1a6f760fd9e3c8f2b518"
ASSET_SHA = "b1946ac92492d2347c6235b4d2611184f23a0a0d6a688b8b0f2e64d5a458d7f8"
EXTERNAL_SHA = "d4735e3a265e16eee03f59718b9b5d03019c07d8b6c5d2dc5c2f932a6c2f1e3f"
HELLO_SHA = sha256(b"Hello").hexdigest()
OWNER = {"tenant_id": "acme", "workflow_id": "ingest-2024"}
MOMENT = "2024-05-02T10:15:00+00:00"

DOCUMENT_REF: dict[str, Any] = {
    **OWNER,
    "document_id": "5c6a9f0e-6d45-4f58-9a51-5c9045e40f6d",
    "collection_id": COLLECTION_ID,
    "version": "v2.1",
}
DOCUMENT_META: dict[str, Any] = {
    **OWNER,
    "title": "Monthly Revenue Report",
    "language": "en-US",
    "tags": ["finance", "q1"],
    "origin_uri": "https://source.example/reports/2024-03",
    "crawl_timestamp": "2024-03-01T12:00:00+00:00",
    "external_ref": {"provider": "confluence", "id": "PAGE-12345"},
}
FILE_BLOB: dict[str, Any] = {
    "type": "file",
    "uri": "memory://blob-001",
    "sha256": "4d186321c1a7f0f354b297e8914ab24083dc2c4c795c305a89602a3e0e4e0fef",
    "size": 14,
}
INLINE_BLOB: dict[str, Any] = {
    "type": "inline",
    "media_type": "text/plain",
    "base64": "SGVsbG8=",
    "sha256": HELLO_SHA,
    "size": 5,
}
EXTERNAL_BLOB: dict[str, Any] = {
    "type": "external",
    "kind": "https",
    "uri": "https://cdn.example/document.pdf",
    "sha256": EXTERNAL_SHA,
}
ASSET_REF: dict[str, Any] = {**OWNER, "asset_id": ASSET_ID, "document_id": DOCUMENT_ID}
ASSET: dict[str, Any] = {
    "ref": ASSET_REF,
    "media_type": "image/png",
    "blob": {"type": "file", "uri": "memory://asset-1", "sha256": ASSET_SHA, "size": 512},
    "bbox": [0.05, 0.10, 0.45, 0.60],
    "context_before": "Total revenue by region",
    "context_after": "Values in million EUR",
    "caption_method": "vlm_caption",
    "caption_model": "stub-v1",
    "caption_confidence": 0.82,
    "created_at": MOMENT,
    "checksum": ASSET_SHA,
}
DOCUMENT: dict[str, Any] = {
    "ref": {**OWNER, "document_id": DOCUMENT_ID},
    "meta": {**OWNER, "title": "Product Brochure", "language": "en", "tags": ["marketing"]},
    "blob": {"type": "file", "uri": "memory://blob-42", "sha256": SHA, "size": 2048},
    "checksum": SHA,
    "created_at": MOMENT,
    "source": "upload",
    "assets": [],
}
WHOLE_DOCUMENT: dict[str, Any] = {**DOCUMENT, "assets": [ASSET]}

VALID: list[tuple[str, dict[str, Any]]] = [
    ("document-ref", DOCUMENT_REF),
    ("document-meta", DOCUMENT_META),
    ("blob", FILE_BLOB),
    ("blob", INLINE_BLOB),
    ("blob", EXTERNAL_BLOB),
    ("asset-ref", ASSET_REF),
    ("asset", ASSET),
    ("document", DOCUMENT),
    ("document", WHOLE_DOCUMENT),
]

_PLAIN_ASSET = {
    "media_type": "image/png",
    "blob": {"type": "file", "uri": "memory://asset-1", "sha256": SHA, "size": 512},
    "caption_method": "none",
    "created_at": MOMENT,
    "checksum": SHA,
}
INVALID: list[tuple[str, dict[str, Any], set[str]]] = [
    (
        "document-ref",
        {**OWNER, "document_id": "5c6a9f0e-6d45-4f58-9a51-5c9045e40f6d", "version": "release 1"},
        {"version_invalid"},
    ),
    (
        "document-meta",
        {**OWNER, "language": "--de", "external_ref": {"": "value"}},
        {"language_invalid", "external_ref_key_empty"},
    ),
    ("blob", {"type": "file", "uri": "memory://blob-001", "sha256": "abcd", "size": 14}, {"sha256_invalid"}),
    # Printed with a digest of 56 digits.
    (
        "blob",
        {**INLINE_BLOB, "sha256": "64ec88ca00b268e5ba1b5316d212f4f366b247724e2e1cda5fb0b3af", "size": 6},
        {"inline_size_mismatch", "sha256_invalid"},
    ),
    ("blob", {**INLINE_BLOB, "size": 6}, {"inline_size_mismatch"}),
    ("blob", {**EXTERNAL_BLOB, "kind": "ftp", "uri": "ftp://legacy"}, {"literal_error"}),
    # Printed without workflow_id in ref and meta.
    (
        "document",
        {
            **DOCUMENT,
            "ref": {"tenant_id": "acme", "document_id": DOCUMENT_ID},
            "meta": {"tenant_id": "acme"},
            "assets": [{**_PLAIN_ASSET, "ref": {**ASSET_REF, "tenant_id": "other"}}],
        },
        {"asset_tenant_mismatch", "missing"},
    ),
    (
        "document",
        {**DOCUMENT, "assets": [{**_PLAIN_ASSET, "ref": {**ASSET_REF, "tenant_id": "other"}}]},
        {"asset_tenant_mismatch"},
    ),
    # Printed without workflow_id in ref.
    (
        "asset",
        {
            **ASSET,
            "ref": {"tenant_id": "acme", "asset_id": ASSET_ID, "document_id": DOCUMENT_ID},
            "bbox": [0.4, 0.4, 0.2, 0.5],
        },
        {"bbox_invalid", "missing"},
    ),
    ("asset", {**ASSET, "bbox": [0.4, 0.4, 0.2, 0.5]}, {"bbox_invalid"}),
]


def changed(value: dict[str, Any], path: str, new: object) -> dict[str, Any]:
    """A copy of *value* with *new* at the dotted *path*."""
    result = copy.deepcopy(value)
    *parents, last = path.split(".")
    target: Any = result
    for step in parents:
        target = target[int(step)] if isinstance(target, list) else target[step]
    target[last] = new
    return result


def without(value: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key != name}
