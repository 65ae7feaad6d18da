"""How an image gets its description: from a vision model that is sure enough, else from the text read in it."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Final, Literal

from docmill.core.parsed import Figure

CONTEXT_BYTES: Final = 512
MAX_IMAGE_BYTES: Final = 8 * 1024**2
MEDIA_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
"""What vision models take."""


@dataclass(frozen=True, slots=True)
class Caption:
    """What a vision model says about an image, and how sure it is (0-1)."""

    text: str
    model: str
    confidence: float


@dataclass(frozen=True, slots=True)
class Described:
    method: Literal["vlm_caption", "ocr_only", "none"]
    text: str | None = None
    model: str | None = None
    confidence: float | None = None


def wanted(figure: Figure) -> bool:
    return figure.kind == "image" and figure.media_type in MEDIA_TYPES and 0 < figure.size <= MAX_IMAGE_BYTES


def describe(figure: Figure, caption: Caption | None, *, least: float) -> Described:
    if caption and caption.text.strip() and isfinite(caption.confidence) and least <= caption.confidence <= 1:
        return Described("vlm_caption", caption.text.strip(), caption.model, caption.confidence)
    if not figure.ocr_text.strip():
        return Described("none")
    # The contract cuts both texts at their own limits; the description is the shorter one.
    return Described("ocr_only", figure.ocr_text.strip())


def nearest(text: str, *, end: bool) -> str:
    """The *end* of what stands before an image, or the beginning of what follows: at most 512 bytes of UTF-8."""
    data = text.strip().encode("utf-8", "replace")
    cut = data[-CONTEXT_BYTES:] if end else data[:CONTEXT_BYTES]
    return cut.decode("utf-8", "ignore").strip()
