"""Measures the contracts against msgspec, a classic Pydantic model and SHA-256, side by side in one run.

Every candidate is timed in short slices, in turn, in processor time, and its best slice counts: a busy machine should
disturb all alike.
The typical document has 20 assets and about 25 KiB; others are shown beside it. A check gives the value, so that is
timed, too.
`--quick` takes fewer slices.
"""

import argparse
import json
import os
import sys
import time
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated, Any, Literal
from uuid import UUID, uuid5

import msgspec
import pybase64
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from docmill.contracts import check

SPACE = UUID("c7f8b4f4-1b7b-4ad2-9da6-0f8df1d96c90")
DIGEST = sha256(b"docmill").hexdigest()
SENTENCES = {
    "ascii": ("Revenue by region grew in the third quarter. ", "Region  Q1  Q2  Q3  Q4  total in EUR\n"),
    "non-ascii": ("Größe 收入 nach Region: ein Plus im 3. Quartal. ", "Bezirk  Q1  Q2  Q3  Q4  Summe in € 总计\n"),
}


# The peer that only decodes: the same types, no rule.
class _Struct(msgspec.Struct, forbid_unknown_fields=True): ...


class BareRef(_Struct):
    tenant_id: str
    workflow_id: str
    document_id: UUID
    collection_id: UUID | None = None
    version: str | None = None


class BareMeta(_Struct):
    tenant_id: str
    workflow_id: str
    title: str | None = None
    language: str | None = None
    tags: list[str] = []
    origin_uri: str | None = None
    crawl_timestamp: datetime | None = None
    external_ref: dict[str, str] = {}


class BareFile(_Struct, tag="file", tag_field="type"):
    uri: str
    sha256: str
    size: int


class BareInline(_Struct, tag="inline", tag_field="type"):
    media_type: str
    base64: str
    sha256: str
    size: int


class BareExternal(_Struct, tag="external", tag_field="type"):
    kind: Literal["http", "https", "s3", "gcs"]
    uri: str
    sha256: str | None = None


class BareAssetRef(_Struct):
    tenant_id: str
    workflow_id: str
    asset_id: UUID
    document_id: UUID
    collection_id: UUID | None = None


class BareAsset(_Struct):
    ref: BareAssetRef
    media_type: str
    blob: BareFile | BareInline | BareExternal
    caption_method: Literal["vlm_caption", "ocr_only", "manual", "none"]
    created_at: datetime
    checksum: str
    origin_uri: str | None = None
    page_index: int | None = None
    bbox: list[float] | None = None
    context_before: str | None = None
    context_after: str | None = None
    ocr_text: str | None = None
    text_description: str | None = None
    caption_model: str | None = None
    caption_confidence: float | None = None


class BareDocument(_Struct):
    ref: BareRef
    meta: BareMeta
    blob: BareFile | BareInline | BareExternal
    checksum: str
    created_at: datetime
    source: Literal["upload", "crawler", "integration", "other"] | None = None
    assets: list[BareAsset] = []


# The peer that most code bases have: function validators which look at every character.
def _normal(text: str) -> str:
    while True:
        composed = unicodedata.normalize("NFKC", text)
        visible = "".join(char for char in composed if unicodedata.category(char) not in ("Cf", "Cc", "Cs")).strip()
        if visible == text:
            return text
        text = visible


def _readable(text: str) -> str:
    kept = "".join(char for char in text if char in "\n\t\r" or unicodedata.category(char) not in ("Cf", "Cc", "Cs"))
    while len(kept.encode()) > 8192:
        kept = kept[:-1]
    return kept


def _name(text: str) -> str:
    text = _normal(text)
    if not text or len(text) > 128 or not all(char.isascii() and (char.isalnum() or char in "._-") for char in text):
        raise ValueError("name_invalid")
    return text


def _hex(text: str) -> str:
    if len(text) != 64 or not all(char in "0123456789abcdef" for char in text):
        raise ValueError("sha256_invalid")
    return text


def _aware(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("naive")
    return moment.astimezone(UTC)


def _box(corners: list[float]) -> list[float]:
    if len(corners) != 4 or not all(0 <= corner <= 1 for corner in corners) or corners[2] <= corners[0]:
        raise ValueError("bbox_invalid")
    return corners


Normal = Annotated[str, AfterValidator(_normal)]
Readable = Annotated[str, AfterValidator(_readable)]
Name = Annotated[str, AfterValidator(_name)]
Hex = Annotated[str, AfterValidator(_hex)]
Moment = Annotated[datetime, AfterValidator(_aware)]


class _Classic(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ClassicRef(_Classic):
    tenant_id: Normal
    workflow_id: Name
    document_id: UUID
    collection_id: UUID | None = None
    version: Name | None = None


class ClassicMeta(_Classic):
    tenant_id: Normal
    workflow_id: Name
    title: Normal | None = None
    language: Name | None = None
    tags: list[Name] = []
    origin_uri: Normal | None = None
    crawl_timestamp: Moment | None = None
    external_ref: dict[Normal, Normal] = {}


class ClassicFile(_Classic):
    type: Literal["file"]
    uri: Normal
    sha256: Hex
    size: int = Field(ge=0)


class ClassicAssetRef(_Classic):
    tenant_id: Normal
    workflow_id: Name
    asset_id: UUID
    document_id: UUID
    collection_id: UUID | None = None


class ClassicAsset(_Classic):
    ref: ClassicAssetRef
    media_type: Normal
    blob: ClassicFile
    origin_uri: Normal | None = None
    page_index: int | None = Field(None, ge=0)
    bbox: Annotated[list[float], AfterValidator(_box)] | None = None
    context_before: Readable | None = None
    context_after: Readable | None = None
    ocr_text: Readable | None = None
    text_description: Readable | None = None
    caption_method: Literal["vlm_caption", "ocr_only", "manual", "none"]
    caption_model: Normal | None = None
    caption_confidence: float | None = Field(None, ge=0, le=1)
    created_at: Moment
    checksum: Hex


class ClassicDocument(_Classic):
    ref: ClassicRef
    meta: ClassicMeta
    blob: ClassicFile
    checksum: Hex
    created_at: Moment
    source: Literal["upload", "crawler", "integration", "other"] | None = None
    assets: list[ClassicAsset] = []

    @model_validator(mode="after")
    def _belong(self) -> "ClassicDocument":
        if any(asset.ref.tenant_id != self.ref.tenant_id for asset in self.assets):
            raise ValueError("asset_tenant_mismatch")
        return self


def document(language: str, context: int, ocr: int) -> bytes:
    """A document with 20 assets: *context* bytes before, after and in the description, *ocr* bytes of read text."""
    prose, table = SENTENCES[language]
    owner = {"tenant_id": "acme", "workflow_id": "ingest-2024"}
    blob = {"type": "file", "uri": "memory://blob-42", "sha256": DIGEST, "size": 2048}
    moment = "2024-05-02T10:15:00+00:00"

    def asset(index: int) -> dict[str, Any]:
        return {
            "ref": {**owner, "asset_id": str(uuid5(SPACE, str(index))), "document_id": str(SPACE)},
            "media_type": "image/png",
            "blob": {**blob, "uri": f"memory://asset-{index}"},
            "origin_uri": f"https://source.example/reports/2024-03#{index}",
            "page_index": index,
            "bbox": [0.05, 0.1, 0.45, 0.6],
            "context_before": _filled(prose, context),
            "context_after": _filled(prose, context),
            "ocr_text": _filled(table, ocr),
            "text_description": _filled(prose, context),
            "caption_method": "vlm_caption",
            "caption_model": "stub-v1",
            "caption_confidence": 0.82,
            "created_at": moment,
            "checksum": DIGEST,
        }

    value = {
        "ref": {**owner, "document_id": str(SPACE), "version": "v2.1"},
        "meta": {
            **owner,
            "title": prose.strip(),
            "language": "en-US",
            "tags": ["finance", "q1"],
            "origin_uri": "https://source.example/reports/2024-03",
            "external_ref": {"provider": "confluence", "id": "PAGE-12345"},
        },
        "blob": blob,
        "checksum": DIGEST,
        "created_at": moment,
        "source": "upload",
        "assets": [asset(index) for index in range(20)],
    }
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _filled(sentence: str, size: int) -> str:
    return (sentence * (size // len(sentence.encode()) + 1)).encode()[:size].decode("utf-8", "ignore")


Row = tuple[str, float, float | None]


def best(candidates: dict[str, Callable[[], object]], slices: int, rounds: int) -> dict[str, float]:
    """The seconds of one call of each candidate, from its best slice."""
    seconds = dict.fromkeys(candidates, float("inf"))
    for _ in range(slices):
        for name, run in candidates.items():
            begin = time.thread_time()
            for _ in range(rounds):
                run()
            seconds[name] = min(seconds[name], (time.thread_time() - begin) / rounds)
    return seconds


# Bytes of context and of read text. The first size is the typical one and is judged by the goals.
SIZES = {"typical": (150, 200), "no texts": (1, 1), "texts at a quarter": (512, 2048), "texts at half": (1024, 4096)}


def documents(language: str, goal: float, slices: int) -> list[Row]:
    bare = msgspec.json.Decoder(BareDocument)
    texts = {name: document(language, *size) for name, size in SIZES.items()}
    rows: list[Row] = []
    for name, data in texts.items():
        assert check("document", data, strict=True).valid
        took = best(
            {
                "check": lambda data=data: check("document", data),
                "strict": lambda data=data: check("document", data, strict=True),
                "msgspec": lambda data=data: bare.decode(data),
            },
            slices,
            5,
        )
        what = f"document, {language}, {name}, {len(data) / 1024:.0f} KiB"
        gated = name == "typical"
        rows += [
            (f"{what}: x msgspec's bare decode", took["msgspec"] / took["check"], goal if gated else None),
            (f"{what}, strict: x the same", took["msgspec"] / took["strict"], None),
        ]
    data = texts["typical"]
    beside = best(
        {"check": lambda: check("document", data), "classic": lambda: ClassicDocument.model_validate_json(data)},
        max(5, slices // 10),
        2,
    )
    return [*rows, (f"document, {language}, typical: x classic Pydantic", beside["classic"] / beside["check"], 5)]


def blobs(mebibytes: int, goal: float | None, slices: int) -> list[Row]:
    """An inline blob as JSON: parsed, decoded, measured, and in strict mode hashed."""
    payload = os.urandom(mebibytes << 20)
    blob = {
        "type": "inline",
        "media_type": "application/pdf",
        "base64": pybase64.b64encode(payload).decode(),
        "sha256": sha256(payload).hexdigest(),
        "size": len(payload),
    }
    data = json.dumps(blob).encode()
    assert check("blob", data, strict=True).valid
    took = best(
        {
            "check": lambda: check("blob", data),
            "strict": lambda: check("blob", data, strict=True),
            "sha256": lambda: sha256(payload).digest(),
        },
        slices,
        1,
    )
    what = f"inline blob, {mebibytes} MiB"
    return [
        (f"{what}: x SHA-256 alone", took["sha256"] / took["check"], goal),
        (f"{what}, strict (hashed, too): x the same", took["sha256"] / took["strict"], None),
    ]


def explaining(slices: int) -> list[Row]:
    """What is wrong with a broken value: seconds for a megabyte, and microseconds for an asset."""
    hostile = b'{"assets":[' + b",".join([b"{}"] * 333_000) + b"]}"
    broken = b'{"assets":[' + b",".join([b"{}"] * 1000) + b"]}"
    took = best({"hostile": lambda: check("document", hostile), "broken": lambda: check("document", broken)}, slices, 1)
    return [
        (f"1 MB of broken assets in {took['hostile']:.2f} s: x 1 s", 1 / took["hostile"], 1),
        (f"a broken asset in {took['broken'] * 1e3:.0f} us: x 200 us", 0.2e-3 / (took["broken"] / 1000), 5),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer slices")
    slices = 60 if parser.parse_args().quick else 200
    few = max(5, slices // 15)
    rows = [
        *documents("ascii", 0.25, slices),
        *documents("non-ascii", 0.25, slices),
        *blobs(1, None, few),
        *blobs(16, 0.5, few),
        *blobs(32, 0.5, few),
        *explaining(few),
    ]
    missed = 0
    for name, ratio, goal in rows:
        verdict = "" if goal is None else "ok" if ratio >= goal else "MISSED"
        missed += verdict == "MISSED"
        print(f"{name:80} {ratio:8.2f}  {'' if goal is None else f'goal {goal:5.2f}'}  {verdict}".rstrip())
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
