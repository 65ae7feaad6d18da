"""Tagged PDFs say themselves what is a heading, a list or a table: their own structure is better than any guess."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from docmill.core.parsed import Box

from .blocks import Block, Cell, join

HEADING = re.compile(r"H([1-6])?$")
GROUPS = {"Document", "Part", "Art", "Sect", "Div", "NonStruct", "Private", "BlockQuote", "TOC", "Aside", "Index"}
INLINE = {"Span", "Link", "Quote", "Reference", "Em", "Strong", "Sub", "Lbl", "Note", "FENote", "BibEntry", "Annot"}
DEEPEST = 60
NUMBERED = re.compile(r"(?:\d{1,3}|[a-zA-Z]|[ivxlc]{1,6})[.)]$")


class Tree:
    """One page's structure with the text items that its elements name."""

    def __init__(self, page: Any) -> None:
        self._items: dict[int, list[Any]] = defaultdict(list)
        for item in page.text_items:
            if item.mcid is not None:
                self._items[item.mcid].append(item)
        self._roots = page.roots
        self._size = (page.width or 1, page.height or 1)
        self._fresh: list[int] = []
        self.named: set[int] = set()

    def blocks(self) -> list[Block]:
        found = []
        for root in self._roots:
            for block in self._block(root, 0, 0):
                block.box = self._box()
                found.append(block)
        return found

    def _box(self) -> Box | None:
        """Around what was read since the last block."""
        items = [item for mark in self._fresh for item in self._items.get(mark, ())]
        self._fresh.clear()
        if not items:
            return None
        width, height = self._size
        return (
            min(item.x for item in items) / width,
            min(item.y for item in items) / height,
            max(item.x + item.width for item in items) / width,
            max(item.y + item.height for item in items) / height,
        )

    def _block(self, element: Any, depth: int, nesting: int) -> Iterator[Block]:
        if depth > DEEPEST:
            return
        kind = element.type
        if found := HEADING.match(kind):
            yield Block("heading", self._text(element, depth), int(found[1] or 1))
        elif kind == "Title":
            yield Block("heading", self._text(element, depth), 1)
        elif kind == "L":
            yield from self._list(element, depth, nesting)
        elif kind == "Table":
            rows = [row for row in self._rows(element, depth) if row]
            yield Block("table", rows=rows)
        elif kind == "Code":
            yield Block("code", self._code(element))
        elif kind == "Figure":
            yield Block("text", self._text(element, depth))
        elif kind == "Caption":
            yield Block("caption", self._text(element, depth))
        elif kind in GROUPS or (kind not in INLINE and any(child.type not in INLINE for child in element.children)):
            if own := self._own(element):
                yield Block("text", own)
            for child in element.children:
                yield from self._block(child, depth + 1, nesting)
        else:
            yield Block("text", self._text(element, depth))

    def _list(self, element: Any, depth: int, nesting: int) -> Iterator[Block]:
        number = 0
        for entry in element.children:
            if entry.type == "L":
                yield from self._list(entry, depth + 1, nesting + 1)
                continue
            number += 1
            label, text, inner = "", self._own(entry), []
            for part in entry.children:
                if part.type == "Lbl":
                    label = self._text(part, depth)
                elif part.type in ("LBody", "P", "Div") or part.type in INLINE:
                    text = join(text, self._own(part))
                    for child in part.children:
                        if child.type in INLINE or (child.type == "P" and not text):
                            text = join(text, self._text(child, depth))
                        else:
                            inner += list(self._block(child, depth + 1, nesting + 1))
                else:
                    inner += list(self._block(part, depth + 1, nesting + 1))
            label = label.strip()
            marker = f"{label[:-1]}." if label[:-1].isdigit() and NUMBERED.match(label) else "-"
            if label and marker == "-" and NUMBERED.match(label):
                text = f"{label} {text}"
            if text or not inner:
                yield Block("item", text, nesting, marker)
            yield from inner

    def _rows(self, element: Any, depth: int) -> Iterator[list[Cell]]:
        for child in element.children:
            if child.type == "TR":
                yield [self._cell(part, depth) for part in child.children if part.type in ("TD", "TH")]
            elif depth < DEEPEST and child.type != "Caption":
                yield from self._rows(child, depth + 1)

    def _cell(self, element: Any, depth: int) -> Cell:
        spans = [element.number(name) for name in ("RowSpan", "ColSpan")]
        rows, columns = (int(span) if span is not None and 1 <= span <= 1000 else 1 for span in spans)
        return Cell(self._text(element, depth), rows, columns)

    def _name(self, marks: list[int]) -> None:
        self.named.update(marks)
        self._fresh += marks

    def _own(self, element: Any) -> str:
        """The text that belongs to the element itself, in the order of the content stream."""
        self._name(element.marked_content_ids)
        if element.actual_text and element.marked_content_ids:
            return str(element.actual_text).strip()
        return self._lines([item for mark in element.marked_content_ids for item in self._items.get(mark, ())])

    def _text(self, element: Any, depth: int) -> str:
        text = self._own(element)
        if depth > DEEPEST:
            return text
        ids = list(element.marked_content_ids)
        if element.children and not ids:
            for child in element.children:
                text = join(text, self._text(child, depth + 1))
            return text
        if not element.children:
            return text
        # Own marks and children's are mixed: their place on the page tells the order.
        everything = [*ids, *(mark for child in element.children for mark in self._marks(child, depth + 1))]
        return self._lines([item for mark in sorted(set(everything)) for item in self._items.get(mark, ())])

    def _marks(self, element: Any, depth: int) -> list[int]:
        self._name(element.marked_content_ids)
        deeper = (
            [] if depth > DEEPEST else [mark for child in element.children for mark in self._marks(child, depth + 1)]
        )
        return [*element.marked_content_ids, *deeper]

    def _code(self, element: Any) -> str:
        items = [item for mark in self._marks(element, 0) for item in self._items.get(mark, ())]
        if not items:
            return ""
        left = min(item.x for item in items)
        letters = sum(len(item.text) for item in items)
        width = sum(item.width for item in items) / max(1, letters)
        lines: list[tuple[float, str]] = []
        for item in items:
            column = round((item.x - left) / width) if width > 0 else 0
            if lines and abs(lines[-1][0] - item.y) < item.height / 2:
                lines[-1] = (lines[-1][0], lines[-1][1].ljust(column) + item.text)
            else:
                lines.append((item.y, " " * min(column, 80) + item.text))
        return "\n".join(text.rstrip() for _, text in lines)

    def _lines(self, items: list[Any]) -> str:
        """Items on one height belong together without a hyphen being undone."""
        text = ""
        last: Any = None
        for item in items:
            piece = item.text.strip()
            if last is not None and abs(last.y + last.height - item.y - item.height) < 0.35 * max(
                last.height, item.height
            ):
                gap = item.x - (last.x + last.width)
                blank = gap > 0.15 * item.height or last.text.endswith(" ") or item.text.startswith(" ")
                text = f"{text} {piece}" if blank else text + piece
            else:
                text = join(text, piece)
            last = item
        return text.strip()


def read(page: Any) -> list[Block] | None:
    """The page by its tags, or None when they do not tell enough."""
    if not page.roots:
        return None
    tree = Tree(page)
    blocks = [block for block in tree.blocks() if block.text.strip() or block.rows]
    tagged = sum(len(item.text) for item in page.text_items if item.mcid in tree.named)
    if tagged < 0.8 * sum(len(item.text) for item in page.text_items):
        return None
    return blocks
