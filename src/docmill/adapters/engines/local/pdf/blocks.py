"""What a page is made of, whoever found it, and how it is written as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from docmill.core.parsed import BlockKind, Box

from ...markdown import CJK, cell
from ...places import Piece

ENDS_CJK = re.compile(f"[{CJK}]$")
STARTS_CJK = re.compile(f"^[{CJK}]")
HYPHEN = re.compile(r"[^\W\d_][-\u2010\u00ad]$")


@dataclass(slots=True)
class Cell:
    text: str
    rows: int = 1
    columns: int = 1


@dataclass(slots=True)
class Block:
    kind: BlockKind
    text: str = ""
    level: int = 1
    """Of a heading 1-6, of a list item its depth from 0."""
    marker: str = "-"
    rows: list[list[Cell]] = field(default_factory=list)
    box: Box | None = None
    size: float = 0.0
    """Points, of a heading's letters: over the document its level comes from it."""
    bold: bool = False
    places: tuple[Box, ...] = ()
    """Where its words stand, when that is more than one place: a paragraph that goes on in the next column."""
    own: Box | None = None
    """Where its words stand, when `box` is that of the figure to which they belong, or lacks some of them."""


def join(first: str, second: str) -> str:
    """Two lines of one paragraph: hyphens undone, no blank between Chinese characters or inside an address."""
    if not first or not second:
        return first or second
    if ENDS_CJK.search(first) and STARTS_CJK.search(second):
        return first + second
    if HYPHEN.search(first) and second[0].islower():
        return first[:-1] + second
    if first[-1] in "-\u2010" and first[-2:-1].isalnum():
        return first + second
    if first.endswith("/") and not first.endswith(" /") and second[0].isalnum():
        return first + second
    return f"{first} {second}"


def joined(lines: Iterable[str]) -> str:
    text = ""
    for line in lines:
        text = join(text, line.strip())
    return text


def markdown(blocks: Sequence[Block]) -> str:
    return together(blocks, [written(block) for block in blocks])


def together(blocks: Sequence[Block], texts: Sequence[str]) -> str:
    """The Markdown of blocks that are written already."""
    parts: list[str] = []
    before: Block | None = None
    for block, text in zip(blocks, texts, strict=True):
        if not text:
            continue
        tight = before is not None and before.kind == block.kind == "item"
        parts.append(("\n" if tight else "\n\n") + text if parts else text)
        before = block
    return "".join(parts)


def pieces(blocks: Sequence[Block], texts: Sequence[str]) -> Iterator[Piece]:
    """What the Markdown is made of, each with its place. Words that only have the box of the table or figure beside
    them have none of their own."""
    lent = {block.box for block in blocks if block.kind in ("table", "figure")}
    for block, text in zip(blocks, texts, strict=True):
        box = block.own or block.box
        is_own = block.kind in ("table", "figure") or box not in lent
        yield block.kind, text, block.places or ((box,) if box and is_own else ())


def written(block: Block) -> str:
    text = block.text.strip()
    match block.kind:
        case "heading":
            return f"{'#' * min(6, max(1, block.level))} {' '.join(text.split())}" if text else ""
        case "item":
            indent = "  " * block.level if block.marker == "-" else "   " * block.level
            return f"{indent}{block.marker} {text}" if text else ""
        case "code":
            fence = "````" if "```" in text else "```"
            return f"{fence}\n{block.text.rstrip()}\n{fence}" if text else ""
        case "table":
            return table(block.rows)
        case _:
            return text


def table(rows: list[list[Cell]]) -> str:
    """Pipes where they can say it, HTML where a cell spans rows or columns."""
    rows = [row for row in rows if row]
    if not any(each.text.strip() for row in rows for each in row):
        return ""
    if any(each.rows > 1 or each.columns > 1 for row in rows for each in row):
        return html(rows)
    width = max(len(row) for row in rows)
    lines = ["| " + " | ".join([cell(each.text) for each in row] + [""] * (width - len(row))) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])


def html(rows: list[list[Cell]]) -> str:
    from html import escape

    def one(each: Cell) -> str:
        spans = "".join(f' {name}="{n}"' for name, n in (("rowspan", each.rows), ("colspan", each.columns)) if n > 1)
        return f"<td{spans}>{escape(each.text, quote=False)}</td>"

    body = "\n".join("<tr>" + "".join(map(one, row)) + "</tr>" for row in rows)
    return f"<table>\n{body}\n</table>"
