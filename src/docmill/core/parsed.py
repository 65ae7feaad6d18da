"""What every engine gives: pages of Markdown in reading order, and the assets found on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Box = tuple[float, float, float, float]
"""x0, y0, x1, y1 in 0-1 of the displayed page, origin top left."""
BlockKind = Literal["heading", "text", "item", "code", "table", "figure", "caption"]


class Block(NamedTuple):
    """Some lines of a page's Markdown, and where they stand on the page. In JSON a list: a page has many."""

    kind: BlockKind
    first: int
    """The line of the page's Markdown with which it begins, counted from 0."""
    end: int
    """The line after its last one."""
    bbox: Box | None = None


@dataclass(frozen=True, slots=True)
class Page:
    index: int
    markdown: str
    damage: str | None = None
    """Why the page could not be read, or None. A damaged page's Markdown holds what could be saved."""
    blocks: tuple[Block, ...] = ()
    """In the order of the Markdown. Lines whose place the engine does not know are in none, or in one without a box."""


@dataclass(frozen=True, slots=True)
class Figure:
    """An image or table of a page. Its bytes are a file of its own; Markdown links to it as `assets/<name>`."""

    name: str
    kind: Literal["image", "table"]
    media_type: str
    sha256: str
    size: int
    page_index: int | None = None
    bbox: Box | None = None
    context_before: str = ""
    context_after: str = ""
    ocr_text: str = ""


@dataclass(frozen=True, slots=True)
class Parsed:
    engine: str
    media_type: str
    pages: tuple[Page, ...]
    figures: tuple[Figure, ...] = ()
    title: str | None = None
    language: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    """What else the engine wants to tell (versions, OCR pages, warnings): small JSON values."""

    @property
    def markdown(self) -> str:
        return "\n\n".join(page.markdown.strip() for page in self.pages if page.markdown.strip()) + "\n"

    @property
    def damaged_pages(self) -> tuple[int, ...]:
        return tuple(page.index for page in self.pages if page.damage)


def clamp(x0: float, y0: float, x1: float, y1: float) -> Box | None:
    """A box inside the page, or None when nothing of it is."""
    if not (x0 >= 0.0 and y0 >= 0.0 and x1 <= 1.0 and y1 <= 1.0):
        x0, y0, x1, y1 = (min(1.0, max(0.0, value)) for value in (x0, y0, x1, y1))
    x0, y0, x1, y1 = round(x0, 4), round(y0, 4), round(x1, 4), round(y1, 4)
    return (x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None
