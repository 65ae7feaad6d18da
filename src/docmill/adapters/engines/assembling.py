"""What providers give, as the value that every engine gives: blocks become pages, their images figures of ours.

A block is a piece of one page in reading order. Image links in its Markdown name files of the provider's result; they
are turned into links to figures, and what cannot be found loses its link.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from docmill.core.archive import Unpacked
from docmill.core.errors import DocumentError
from docmill.core.links import LINE_LABEL, TARGET
from docmill.core.parsed import BlockKind, Box, Figure, Page, Parsed

from .markdown import alt, clean, disarm, tidy
from .places import Piece, blocks_of, in_context

IMAGE_LINK = re.compile(rf"!\[({LINE_LABEL})\]\(\s*+<?({TARGET})>?(?:\s++\"[^\"\n]*+\")?\s*+\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    page: int
    markdown: str
    bbox: Box | None = None
    image: str = ""
    """A file of the result that shows the block, for blocks whose Markdown does not link to it."""
    html: str = ""
    """Of a table."""


@dataclass(slots=True)
class Assembly:
    """Puts the pieces of one document together, in an attempt's folder."""

    engine: str
    media_type: str
    folder: Path
    images: Mapping[str, Unpacked] = field(default_factory=dict)
    """By the last part of the name that the provider gave, already lying in `folder/assets`."""
    _figures: list[Figure] = field(default_factory=list)
    _names: dict[tuple[int, str], str] = field(default_factory=dict)
    _counts: dict[tuple[int, str], int] = field(default_factory=dict)
    _anchors: dict[str, str] = field(default_factory=dict)
    """By which text a table's place in its page is found."""

    def build(
        self, blocks: Iterable[Block], page_count: int, *, title: str | None = None, facts: dict[str, object]
    ) -> Parsed:
        pieces: dict[int, list[Piece]] = {index: [] for index in range(page_count)}
        for block in blocks:
            text = self._place(block)
            where = (block.bbox,) if block.bbox else ()
            pieces.setdefault(block.page, []).append((_kind(block, text), text, where))
        pages = tuple(_page(index, pieces[index]) for index in sorted(pieces))
        if not any(page.markdown for page in pages):
            raise DocumentError("document_no_text")
        self._drop_unused()
        by_page = {page.index: page.markdown for page in pages}
        figures = tuple(self._in_context(figure, by_page) for figure in self._figures)
        found = next((match[1] for page in pages if (match := HEADING.search(page.markdown))), None)
        return Parsed(self.engine, self.media_type, pages, figures, title or found, None, dict(facts))

    def _place(self, block: Block) -> str:
        if block.html:
            name = self._keep(block.page, "table", ".html", "text/html", clean(block.html).encode(), block.bbox)
            self._anchors[name] = next((line for line in block.markdown.splitlines() if line.startswith("|")), "")
        markdown = block.markdown
        if block.image and not IMAGE_LINK.search(markdown):
            markdown = f"![]({block.image})\n\n{markdown}"
        return IMAGE_LINK.sub(lambda link: self._link(block, link[1], link[2]), markdown)

    def _link(self, block: Block, caption: str, target: str) -> str:
        image = self.images.get(PurePosixPath(target).name)
        if image is None:
            return caption
        key = (block.page, image.safe_name)
        if key not in self._names:
            data = (self.folder / "assets" / image.safe_name).read_bytes()
            suffix = PurePosixPath(image.safe_name).suffix
            self._names[key] = self._keep(block.page, "img", suffix, image.media_type, data, block.bbox)
        return f"![{alt(caption)}](assets/{self._names[key]})"

    def _keep(self, page: int, short: str, suffix: str, media_type: str, data: bytes, bbox: Box | None) -> str:
        number = self._counts[page, short] = self._counts.get((page, short), 0) + 1
        name = f"p{page + 1:03d}_{short}{number:02d}{suffix}"
        (self.folder / "assets").mkdir(exist_ok=True)
        (self.folder / "assets" / name).write_bytes(data)
        self._figures.append(
            Figure(
                name=name,
                kind="table" if short == "table" else "image",
                media_type=media_type,
                sha256=hashlib.sha256(data).hexdigest(),
                size=len(data),
                page_index=page,
                bbox=bbox,
            )
        )
        return name

    def _drop_unused(self) -> None:
        """Only what has a name of ours stays in the folder."""
        for image in self.images.values():
            (self.folder / "assets" / image.safe_name).unlink(missing_ok=True)

    def _in_context(self, figure: Figure, by_page: Mapping[int, str]) -> Figure:
        markdown = by_page.get(figure.page_index or 0, "")
        return in_context(figure, self._anchors.get(figure.name) or f"assets/{figure.name}", markdown)


def _page(index: int, pieces: Sequence[Piece]) -> Page:
    markdown = _settled("\n\n".join(text.strip() for _, text, _ in pieces if text.strip()))
    return Page(index, markdown, blocks=blocks_of(markdown, pieces, _settled))


def _settled(text: str) -> str:
    return tidy(disarm(clean(text)))


def _kind(block: Block, text: str) -> BlockKind:
    if block.html:
        return "table"
    if block.image:
        return "figure"
    return "heading" if HEADING.match(text) else "text"
