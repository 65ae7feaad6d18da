"""Which lines of a page's Markdown stand where on the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from docmill.core.parsed import Block, BlockKind, Box

from .markdown import clean

Piece = tuple[BlockKind, str, Sequence[Box]]
"""A part of a page as it was written into its Markdown, and where it stands: nowhere that is known, in one place, or in
several, as a paragraph that goes on in the next column."""
MOST = 4000
"""Blocks of one page. Pages with more are made to hurt."""
FARTHEST = 20_000
"""Letters in which a piece is looked for when the one before it got lost: a page may have very many pieces."""


def blocks_of(markdown: str, pieces: Iterable[Piece], settled: Callable[[str], str] = clean) -> tuple[Block, ...]:
    """The lines of each piece, once for each of its places. One that cannot be found again in the Markdown is left out,
    never guessed.

    *settled* does to a piece what was done to the Markdown as a whole. Few pieces need it, so it is asked last.
    """
    found: list[Block] = []
    at = line = 0
    for kind, piece, boxes in pieces:
        text = piece.strip()
        if not text:
            continue
        start = after_blanks(markdown, at)
        if not fits(markdown, text, start):
            text = settled(piece).strip()
            start = place(markdown, text, start)
        if not text or start < 0:
            continue
        first = line + markdown.count("\n", at, start)
        at, line = start + len(text), first + text.count("\n")
        found += [Block(kind, first, line + 1, box and clamp(*box)) for box in boxes or (None,)]
        if len(found) >= MOST:
            break
    return tuple(found[:MOST])


def after_blanks(markdown: str, at: int) -> int:
    while at < len(markdown) and markdown[at].isspace():
        at += 1
    return at


def place(markdown: str, text: str, at: int) -> int:
    """Where the text begins that makes up whole lines, or -1."""
    if fits(markdown, text, at):
        return at
    further = markdown.find(f"\n{text}", at, at + FARTHEST) + 1
    return further if further and fits(markdown, text, further) else -1


def fits(markdown: str, text: str, start: int) -> bool:
    return markdown.startswith(text, start) and markdown[start + len(text) : start + len(text) + 1] in ("", "\n")


def clamp(x0: float, y0: float, x1: float, y1: float) -> Box | None:
    """A box inside the page, or None when nothing of it is."""
    if not (x0 >= 0.0 and y0 >= 0.0 and x1 <= 1.0 and y1 <= 1.0):
        x0, y0, x1, y1 = (min(1.0, max(0.0, value)) for value in (x0, y0, x1, y1))
    x0, y0, x1, y1 = round(x0, 4), round(y0, 4), round(x1, 4), round(y1, 4)
    return (x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None
