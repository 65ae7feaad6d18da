"""Rows become Markdown: paragraphs joined, lists and headings marked, tables kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from docmill.core.parsed import BlockKind

from ...markdown import CJK, table, tidy
from . import grids
from .chinese import Habits
from .layout import Row

HEADING = 1.3
LONGEST_HEADING = 100
SAME_LEVEL = 1.12
DEEPEST = 4
BULLET = re.compile(r"^[•·●∙▪■◦○‣](?:\s*)(?=\S)|^[-–*](?=\s+\S)\s+")
NUMBER = re.compile(r"^(\d{1,3})[.)、]\s*(?=\D)")
HYPHEN = re.compile(r"[a-zà-ÿ]-$")
ENDS_CJK = re.compile(f"[{CJK}]$")
STARTS_CJK = re.compile(f"^[{CJK}]")
MARKUP = re.compile(r"([\\`*_<])|^(#{1,6}(?:\s|$)|>|\+\s|-\s|~~~)", re.MULTILINE)


Frame = tuple[float, float, float, float]
Table = tuple[list[list[str]], Frame]
Made = tuple[BlockKind, str, list[Frame]]
"""A block, how it was written, and where it stands: a paragraph may go on in the next column."""


def write(rows: Sequence[Row], habits: Habits | None = None) -> tuple[str, list[Table], list[Made]]:
    """The Markdown of rows in reading order, the tables that were found in it, and the blocks it is made of.

    *habits* are those of the whole page; without them these rows are all that is known of it.
    """
    if not rows:
        return "", [], []
    habits = habits or Habits.of(row.text for row in rows)
    pitch = usual_pitch(rows)
    levels = heading_levels(rows)
    blocks: list[str] = []
    kinds: list[BlockKind] = []
    frames: list[list[Frame]] = []
    tables: list[Table] = []
    before: Row | None = None
    first: Row | None = None
    """The first row of the paragraph that the row before belongs to."""
    at = 0
    while at < len(rows):
        row = rows[at]
        found = grids.aligned(rows[at:])
        if found:
            frames.append([around(rows[at : at + found[0]])])
            at += found[0]
            cells = habits.cells(found[1])
            tables.append((cells, frames[-1][0]))
            blocks.append(table(cells))
            kinds.append("table")
            before = None
            continue
        at += 1
        level = levels.get(id(row))
        if level:
            blocks.append(f"{'#' * level} {escaped(row.text)}")
            kinds.append("heading")
            frames.append([around([row])])
            before = None
        elif before and first and continues(before, row, pitch) and not (is_item(blocks[-1]) and leaves(first, row)):
            blocks[-1] = join(blocks[-1], escaped(row.text))
            if row.middle < before.middle:
                frames[-1].append(around([row]))
            else:
                frames[-1][-1] = united(frames[-1][-1], around([row]))
            before = row
        else:
            blocks.append(marked(row.text))
            kinds.append("item" if is_item(blocks[-1]) else "text")
            frames.append([around([row])])
            before = first = row
    lines = "\n".join(parted(blocks)).split("\n")
    text = tidy(habits.applied("\n".join(lines)))
    settled = text.split("\n")
    if len(settled) == len(lines):
        # What was done to the page as a whole left every line in its place.
        blocks = ["\n".join(settled[first:end]) for first, end in stretches(blocks)]
    return text, tables, list(zip(kinds, blocks, frames, strict=True))


def around(rows: Sequence[Row]) -> Frame:
    pieces = [piece for row in rows for piece in row.pieces]
    return (
        min(piece.x0 for piece in pieces),
        min(piece.y0 for piece in pieces),
        max(piece.x1 for piece in pieces),
        max(piece.y1 for piece in pieces),
    )


def united(one: Frame, other: Frame) -> Frame:
    return min(one[0], other[0]), min(one[1], other[1]), max(one[2], other[2]), max(one[3], other[3])


def usual_pitch(rows: Sequence[Row]) -> float:
    """From line to line within a column."""
    steps = [after.middle - row.middle for row, after in pairwise(rows) if after.left == row.left]
    steps = [step for step in steps if step > 0]
    return median(steps) if steps else 2 * rows[0].height


def heading_levels(rows: Sequence[Row]) -> dict[int, int]:
    """Rows in larger letters than most; the largest are the first level."""
    letters = sorted((row.height, len(row.text)) for row in rows)
    half, seen, usual = sum(count for _, count in letters) / 2, 0, letters[0][0]
    for height, count in letters:
        seen += count
        usual = height
        if seen >= half:
            break
    large = [row for row in rows if is_large(row, usual)]
    levels: dict[int, int] = {}
    level, last = 0, 0.0
    for row in sorted(large, key=lambda row: -row.height):
        if not level or last > SAME_LEVEL * row.height:
            level, last = min(DEEPEST, level + 1), row.height
        levels[id(row)] = level
    return levels


def is_large(row: Row, usual: float) -> bool:
    return (
        row.height > HEADING * usual
        and len(row.pieces) <= 2
        and 1 < len(row.text) < LONGEST_HEADING
        and not BULLET.match(row.text)
        and any(letter.isalnum() for letter in row.text)
    )


def continues(before: Row, row: Row, pitch: float) -> bool:
    """A line goes on where the next one's first word would not have fitted in, and nothing new begins."""
    if len(before.pieces) > 1 or len(row.pieces) > 1 or BULLET.match(row.text) or NUMBER.match(row.text):
        return False
    step = row.middle - before.middle
    begins_column = step < 0 and row.left >= before.right
    if not begins_column and not 0 < step < 1.45 * pitch:
        return False
    if not 0.75 < row.height / before.height < 1.35:
        return False
    width = row.pieces[0].width / max(1, len(row.text))
    first = 1 if STARTS_CJK.match(row.text) else len(row.text.split()[0]) + 1
    return (first + 1) * width > before.right - before.x1 and row.x0 < row.left + 0.5 * (row.right - row.left)


def leaves(item: Row, row: Row) -> bool:
    """The lines of an item are indented to its text. One that goes back to the mark and begins with a capital letter
    begins something new."""
    return row.x0 < item.x0 + 0.5 * item.height and row.text[:1].isupper()


def join(first: str, second: str) -> str:
    if ENDS_CJK.search(first) and STARTS_CJK.search(second):
        return first + second
    if HYPHEN.search(first) and second[:1].islower():
        return first[:-1] + second
    return f"{first} {second}"


def marked(text: str) -> str:
    """A list item as Markdown knows it; anything else as it is."""
    if bullet := BULLET.match(text):
        return f"- {escaped(text[bullet.end() :].lstrip())}"
    if number := NUMBER.match(text):
        return f"{number[1]}. {escaped(text[number.end() :].lstrip())}"
    return escaped(text)


def escaped(text: str) -> str:
    """Letters that the page shows and Markdown would take for its own."""
    return MARKUP.sub(r"\\\g<0>", text)


def parted(blocks: Sequence[str]) -> list[str]:
    """An empty line between blocks; items of one list stand together."""
    lines: list[str] = []
    for before, block in pairwise(["", *blocks]):
        if before and not (is_item(before) and is_item(block)):
            lines.append("")
        lines.append(block)
    return lines


def stretches(blocks: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The lines of each block among those that `parted` gives: the first, and the one after the last."""
    end = 0
    for before, block in pairwise(["", *blocks]):
        first = end + bool(before and not (is_item(before) and is_item(block)))
        end = first + block.count("\n") + 1
        yield first, end


def is_item(block: str) -> bool:
    return bool(re.match(r"- |\d{1,3}\. ", block))
