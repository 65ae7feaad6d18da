"""Long tables as Markdown. docvortex builds a tree of every cell, which takes minutes for a large sheet.

Cells of nothing but text are written here, by the same rules; only the others go through the tree, as a table of one
column. Who has spans or tables inside goes there as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from uuid import uuid4

LONG = 40
"""Rows from which on it pays."""

_TABLE = re.compile(r"\s*<table>(.*)</table>\s*", re.DOTALL)
_ROW = re.compile(r"<tr>(.*?)</tr>", re.DOTALL)
_CELL = re.compile(r"<(t[hd])>(.*?)</\1>", re.DOTALL)
_PLAIN = re.compile(r"<p>([^<]*)</p>|([^<]*)")
_BLANK = re.compile(r"[ \t\r\f\v]+")
_BREAK = re.compile(r" ?\n++ ?")


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of which the plain cells are done."""

    rows: list[list[str | None]]
    """None: a cell that is not plain."""
    header: int
    rest: list[str]
    """The other cells in their order, as HTML."""
    mark: str

    @property
    def html(self) -> str:
        """What is left for the tree."""
        rest = "".join(f"<tr><td>{cell}</td></tr>" for cell in self.rest)
        return f"<table><tr><th>{self.mark}</th></tr>{rest}</table>"

    def put_into(self, markdown: str) -> str | None:
        """The page's Markdown with the whole table. None: what was left is no list of cells, but HTML."""
        top = f"| {self.mark} |\n| --- |"
        before, found, after = markdown.partition(top)
        lines = after.split("\n", len(self.rest) + 1)
        cells = [line[2:-2] for line in lines[1 : len(self.rest) + 1] if line.startswith("| ") and line.endswith(" |")]
        if not found or lines[0] or len(cells) != len(self.rest):
            return None
        return "\n".join([before + self._written(iter(cells)), *lines[len(self.rest) + 1 :]])

    def _written(self, others: Iterator[str]) -> str:
        width = max(map(len, self.rows))
        rows = [[next(others) if cell is None else cell for cell in row] for row in self.rows]
        lines = [f"| {' | '.join(row + [''] * (width - len(row)))} |" for row in rows]
        header = lines.pop(self.header)
        return "\n".join([header, f"| {' | '.join(['---'] * width)} |", *lines])


def grid_of(html: str, *, long: int = LONG) -> Grid | None:
    """None: the table is short, or more than rows of cells."""
    found = _TABLE.fullmatch(html)
    if found is None or "<table" in found[1] or _ROW.sub("", found[1]).strip():
        return None
    texts = _ROW.findall(found[1])
    if len(texts) < long:
        return None
    rows: list[list[str | None]] = []
    rest: list[str] = []
    header = None
    for number, text in enumerate(texts):
        cells = _CELL.findall(text)
        if not cells or _CELL.sub("", text).strip():
            return None
        if header is None and all(kind == "th" for kind, _ in cells):
            header = number
        row = [_plain(cell) for _, cell in cells]
        rest += [cell for (_, cell), done in zip(cells, row, strict=True) if done is None]
        rows.append(row)
    return Grid(rows, header or 0, rest, f"grid{uuid4().hex}")


def _plain(cell: str) -> str | None:
    found = _PLAIN.fullmatch(cell)
    if found is None:
        return None
    text = unescape(found[1] or found[2] or "")
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("\\", "\\\\").replace("|", r"\|")
    return _BREAK.sub(" ", _BLANK.sub(" ", text)).strip()
