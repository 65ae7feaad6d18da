"""docvortex's pages as blocks: its structure, with the words as the text layer spells them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

from docmill.core.parsed import Box, clamp

from .. import vortex
from .blocks import Block, Cell, join
from .quick import REAL_WORD

TITLES = ("doc_title", "paragraph_title", "title")
RUNNING = ("header", "footer", "page_number", "aside_text", "page_footnote")
PICTURES = ("image", "chart")
LONGEST_TITLE = 30
SPACE = re.compile(r"\s+")
LETTERS = re.compile(r"[\s\u00ad\u2010-]+")


def read(middle: Any, page: Any, items: list[Any], size: tuple[float, float]) -> list[Block]:
    """Blocks in docvortex's order; lines of the text layer that it left out are put where they stand."""
    lines = Lines(items, size)
    blocks: list[Block] = []
    for found in page.blocks:
        box = clamp(*found.bbox) if found.bbox else None
        blocks += [
            block
            for block in made(middle, page, found, box, lines)
            if block.text or block.rows or block.kind == "figure"
        ]
    return filled(blocks, lines)


def made(middle: Any, page: Any, found: Any, box: Box | None, lines: Lines) -> Iterator[Block]:
    kind = str(getattr(found.type, "value", found.type))
    if kind == "table":
        yield from tables(found, box, lines)
    elif kind in PICTURES:
        yield Block("figure", box=box)
        inside = lines.inside(box)
        captions = [child for child in found.content if str(child.type).endswith(("caption", "footnote"))]
        noted = " ".join(spoken(child) for child in captions)
        body = "\n".join(line.text for line in inside if SPACE.sub("", line.text) not in SPACE.sub("", noted))
        if body.strip():
            yield Block("text", body.strip(), box=box, own=around(inside))
        for child in captions:
            own = clamp(*child.bbox) if child.bbox else None
            yield Block("caption", lines.spelled(spoken(child), own or box), box=box, own=own)
    elif kind in (*TITLES, *RUNNING, "text", "abstract", "reference", "footnote"):
        plain = spoken(found)
        text = lines.spelled(plain, box)
        if kind in TITLES and REAL_WORD.search(plain) and len(plain.split()) <= LONGEST_TITLE:
            yield Block("heading", text, level_of(found, kind), box=box)
        else:
            yield Block("text", text, box=box)
    else:
        alone = vortex.render(middle, page.model_copy(update={"blocks": [found]}))
        lines.inside(box)
        yield Block("text", alone.strip(), box=box)


def level_of(found: Any, kind: str) -> int:
    level = getattr(found, "level", None)
    return level if isinstance(level, int) and 1 <= level <= 6 else 1 if kind == "doc_title" else 2


def tables(found: Any, box: Box | None, lines: Lines) -> Iterator[Block]:
    for child in found.content:
        kind = str(getattr(child.type, "value", child.type))
        where = clamp(*child.bbox) if child.bbox else box
        if kind == "table_body":
            rows = cells(child.content)
            lines.inside(where)
            yield Block("table", rows=rows, box=where)
        else:
            yield Block("caption", lines.spelled(spoken(child), where), box=where)


def spoken(block: Any) -> str:
    content = block.content
    if isinstance(content, str):
        return content
    text = ""
    for span in content or ():
        piece = getattr(span, "content", "")
        if isinstance(piece, list):
            piece = spoken(span)
        text += f" ${piece}$ " if str(getattr(span, "type", "")).endswith("equation_inline") else str(piece)
    return text.strip()


class Lines:
    """The text layer's pieces, each to be used once."""

    def __init__(self, items: list[Any], size: tuple[float, float]) -> None:
        width, height = (side or 1 for side in size)
        self.left = [Piece(item, width, height) for item in items if item.text.strip()]

    def inside(self, box: Box | None) -> list[Piece]:
        """Takes the pieces whose middle lies in the box."""
        if box is None:
            return []
        found = [piece for piece in self.left if piece.lies_in(box)]
        self.left = [piece for piece in self.left if not piece.lies_in(box)]
        return found

    def spelled(self, text: str, box: Box | None) -> str:
        """The same letters with the blanks of the text layer; the parser glues words at line ends."""
        pieces = self.inside(box)
        own = put_together(pieces)
        return own if LETTERS.sub("", own) == LETTERS.sub("", text) else text


class Piece:
    __slots__ = ("bottom", "left", "right", "text", "top")

    def __init__(self, item: Any, width: float, height: float) -> None:
        self.text: str = item.text.strip()
        self.left: float = item.x / width
        self.right: float = (item.x + item.width) / width
        self.top: float = item.y / height
        self.bottom: float = (item.y + item.height) / height

    def lies_in(self, box: Box) -> bool:
        x, y = (self.left + self.right) / 2, (self.top + self.bottom) / 2
        return box[0] - 0.004 <= x <= box[2] + 0.004 and box[1] - 0.004 <= y <= box[3] + 0.004

    def beside(self, other: Piece) -> bool:
        overlap = min(self.bottom, other.bottom) - max(self.top, other.top)
        return overlap > 0.5 * min(self.bottom - self.top, other.bottom - other.top)


def put_together(pieces: list[Piece]) -> str:
    text = ""
    last: Piece | None = None
    for piece in pieces:
        if last is not None and last.beside(piece):
            gap = piece.left - last.right
            text += (" " if gap > 0.002 else "") + piece.text
        else:
            text = join(text, piece.text)
        last = piece
    return text


def filled(blocks: list[Block], lines: Lines) -> list[Block]:
    """What no block holds, before the first block that stands below it in its column."""
    rest = lines.left
    rows: list[list[Piece]] = []
    for piece in rest:
        if rows and rows[-1][-1].beside(piece):
            rows[-1].append(piece)
        else:
            rows.append([piece])
    for row in rows:
        box = (row[0].left, min(p.top for p in row), max(p.right for p in row), max(p.bottom for p in row))
        block = Block("text", put_together(row), box=clamp(*box))
        blocks.insert(place(blocks, box), block)
    return blocks


def around(pieces: list[Piece]) -> Box | None:
    if not pieces:
        return None
    left, top = min(piece.left for piece in pieces), min(piece.top for piece in pieces)
    return clamp(left, top, max(piece.right for piece in pieces), max(piece.bottom for piece in pieces))


def place(blocks: list[Block], box: Box) -> int:
    for number, other in enumerate(blocks):
        if other.box is None:
            continue
        same_column = other.box[0] < box[2] and box[0] < other.box[2]
        if other.box[1] >= box[1] and (same_column or box[1] < 0.08):
            return number
    return len(blocks)


def cells(html: str) -> list[list[Cell]]:
    reader = TableReader()
    reader.feed(html)
    reader.close()
    return [row for row in reader.rows if row]


class TableReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[list[Cell]] = []
        self._open = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            if not self.rows:
                self.rows.append([])
            given = dict(attrs)
            down, right = (span(given.get(name)) for name in ("rowspan", "colspan"))
            self.rows[-1].append(Cell("", down, right))
            self._open = True
        elif tag == "br" and self._open:
            self.rows[-1][-1].text += " "

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._open = False
            if self.rows and self.rows[-1]:
                self.rows[-1][-1].text = " ".join(self.rows[-1][-1].text.split())

    def handle_data(self, data: str) -> None:
        if self._open:
            self.rows[-1][-1].text += data


def span(text: str | None) -> int:
    return min(1000, max(1, int(text))) if text and text.isdigit() else 1
