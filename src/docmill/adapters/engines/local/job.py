"""One document inside the child: formats put pages and figures in, frames go out."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from docmill.core.errors import DocumentError
from docmill.core.parsed import Box, Figure, Page

from ..markdown import clean
from ..places import Piece, blocks_of, in_context
from .guards import UNDECODABLE, check_pixels
from .limits import Limits

BLOCK_BYTES = 60
"""About so many a block takes in JSON."""
SAMPLE = 4000
MOST_WARNINGS = 50
IMAGE_TYPES = {"PNG": ("png", "image/png"), "JPEG": ("jpg", "image/jpeg"), "GIF": ("gif", "image/gif")}
IMAGE_TYPES["WEBP"] = ("webp", "image/webp")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)


class OutputTooLarge(Exception):
    """Markdown and figures together are more than the limit."""


@dataclass(slots=True)
class Tree:
    """What all documents inside one document have used of its limits."""

    members: int = 0
    unpacked: int = 0
    """Bytes."""


@dataclass(slots=True)
class Job:
    source: Path
    filename: str
    folder: Path
    options: dict[str, Any]
    limits: Limits
    media_type: str
    page_done: Callable[[Page, list[Figure]], None]
    progress: Callable[[int, int | None], None]
    title: str | None = None
    language: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    sample: str = ""
    """The beginning of the text, to tell its language from."""
    first_heading: str | None = None
    pages: int = 0
    damaged: int = 0
    written: int = 0
    """Bytes."""
    divisible: bool = False
    """Whether somebody has a long document's windows read one by one."""
    divided: int = 0
    """Pages of a document that was left to them."""
    first_page: int = 0
    """Pages that stand before this document in the result: it may be a member of another one."""
    depth: int = 0
    """How many documents this one is inside of."""
    tree: Tree = field(default_factory=Tree)
    kept: list[tuple[Page, list[Figure]]] = field(default_factory=list)
    """Pages of a draft."""
    _has_assets: bool = False
    _waiting: list[tuple[Figure, str]] = field(default_factory=list)
    _counts: dict[tuple[int, str], int] = field(default_factory=dict)

    @property
    def page_limit(self) -> int:
        asked = self.options.get("max_pages")
        return min(self.limits.pages, asked) if isinstance(asked, int) and asked > 0 else self.limits.pages

    @property
    def ocr(self) -> str:
        asked = self.options.get("ocr")
        return asked if asked in ("always", "never") else "auto"

    def check_pages(self, pages: int) -> None:
        if self.first_page + pages > self.page_limit:
            raise DocumentError("document_too_many_pages", pages=self.first_page + pages, limit=self.page_limit)

    def draft(self, **changes: Any) -> Job:
        """A job that keeps its pages back until they are adopted; until then nothing of it counts."""
        kept: list[tuple[Page, list[Figure]]] = []
        fresh: dict[str, Any] = {"facts": {}, "sample": "", "first_heading": None, "pages": 0, "damaged": 0}
        fresh |= {"title": None, "language": None, "divisible": False, "_waiting": [], "_counts": dict(self._counts)}
        own: dict[str, Any] = {
            "kept": kept,
            "page_done": lambda page, figures: kept.append((page, figures)),
        }
        return replace(self, **fresh | own | changes)

    def adopt(self, draft: Job, *, label: str = "") -> None:
        """The draft's pages and facts become this document's. *label* names the member that they come from."""
        self.title, self.language = self.title or draft.title, self.language or draft.language
        self.written = max(self.written, draft.written)
        self.pages += draft.pages
        self.damaged += draft.damaged
        self._has_assets |= draft._has_assets
        self._counts |= draft._counts
        self.sample = (self.sample + draft.sample)[:SAMPLE]
        self.first_heading = self.first_heading or draft.first_heading
        for name, value in draft.facts.items():
            if name == "warnings":
                for warning in value:
                    self.warn(f"{label}: {warning}" if label else warning)
            elif isinstance(value, list) or (isinstance(value, int) and not isinstance(value, bool)):
                self.facts[name] = self.facts[name] + value if name in self.facts else value
            elif not label:
                self.facts[name] = value
        for page, figures in draft.kept:
            self.page_done(page, figures)

    def add_page(
        self,
        index: int,
        markdown: str,
        damage: str | None = None,
        pieces: Iterable[Piece] = (),
        settled: Callable[[str], str] = clean,
    ) -> None:
        """A page is complete: it leaves the process together with the figures that were added for it.

        *pieces* is what the Markdown was made of, in its order, each with its place on the page; *settled* is what was
        done to the Markdown since.
        """
        markdown = clean(markdown)
        self._spend(len(markdown.encode()))
        figures = [in_context(figure, anchor, markdown) for figure, anchor in self._waiting]
        self._waiting.clear()
        self._remember(markdown)
        self.pages += 1
        self.damaged += damage is not None
        if not markdown.strip():
            self.facts["blank_pages"] = self.facts.get("blank_pages", 0) + 1
        blocks = blocks_of(markdown, pieces, settled)
        self._spend(BLOCK_BYTES * len(blocks))
        self.page_done(Page(self.first_page + index, markdown, damage, blocks), figures)

    def add_image(self, data: bytes, page: int, bbox: Box | None = None, *, ocr_text: str = "") -> str | None:
        """Keep an image of the page; gives its name, or None if it is none that a browser shows."""
        known = as_web_image(data, self.limits)
        if known is None:
            return None
        extension, media_type, data = known
        return self._keep(data, page, "image", extension, media_type, bbox, "", ocr_text)

    def add_table(self, html: str, page: int, bbox: Box | None = None, *, anchor: str = "") -> str:
        """Keep a table as HTML beside its Markdown. *anchor* is text by which its place in the page is found."""
        return self._keep(clean(html).encode(), page, "table", "html", "text/html", bbox, anchor, "")

    def add_page_image(self, png: bytes, page: int) -> None:
        name = f"page_{self.first_page + page + 1:03d}.png"
        self._write(name, png)
        self.facts.setdefault("page_images", []).append(name)

    def warn(self, what: str) -> None:
        warnings = self.facts.setdefault("warnings", [])
        if len(warnings) < MOST_WARNINGS:
            warnings.append(what[:200])

    def _keep(
        self,
        data: bytes,
        page: int,
        kind: str,
        extension: str,
        media_type: str,
        bbox: Box | None,
        anchor: str,
        ocr_text: str,
    ) -> str:
        page += self.first_page
        short = "img" if kind == "image" else "table"
        number = self._counts[page, short] = self._counts.get((page, short), 0) + 1
        name = f"p{page + 1:03d}_{short}{number:02d}.{extension}"
        self._write(name, data)
        figure = Figure(
            name=name,
            kind="image" if kind == "image" else "table",
            media_type=media_type,
            sha256=hashlib.sha256(data).hexdigest(),
            size=len(data),
            page_index=page,
            bbox=bbox,
            ocr_text=clean(ocr_text),
        )
        self._waiting.append((figure, anchor or f"assets/{name}"))
        return name

    def _write(self, name: str, data: bytes) -> None:
        self._spend(len(data))
        assets = self.folder / "assets"
        if not self._has_assets:
            assets.mkdir(exist_ok=True)
            self._has_assets = True
        (assets / name).write_bytes(data)

    def _spend(self, size: int) -> None:
        self.written += size
        if self.written > self.limits.output_mb * 1024 * 1024:
            raise OutputTooLarge

    def _remember(self, markdown: str) -> None:
        if len(self.sample) < SAMPLE:
            self.sample += markdown[: SAMPLE - len(self.sample)] + "\n"
        if self.first_heading is None and (found := HEADING.search(markdown)):
            self.first_heading = re.sub(r"[*`]|\\(?=\W)", "", found[1])


def as_web_image(data: bytes, limits: Limits) -> tuple[str, str, bytes] | None:
    """Extension, media type and bytes; formats that browsers do not show become PNG."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            check_pixels(image.size, limits)
            if image.format in IMAGE_TYPES:
                return *IMAGE_TYPES[image.format], data
            out = io.BytesIO()
            image.convert("RGBA" if "A" in image.getbands() else "RGB").save(out, "PNG")
            return "png", "image/png", out.getvalue()
    except UNDECODABLE:
        return None
