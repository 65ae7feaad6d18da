"""Which lines of a page's Markdown stand where on the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from docmill.core.parsed import Block, BlockKind, Box, Figure, clamp

from .markdown import clean

Piece = tuple[BlockKind, str, Sequence[Box]]
"""A part of a page as it was written into its Markdown, and where it stands: nowhere that is known, in one place, or in
several, as a paragraph that goes on in the next column."""
CONTEXT = 300
"""Letters before and after a figure that tell what it is about."""
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


def in_context(figure: Figure, anchor: str, markdown: str) -> Figure:
    """The figure with the text that stands before and after its place."""
    at = markdown.find(anchor)
    if at < 0:
        return figure
    start = markdown.rfind("\n", 0, at) + 1
    end = markdown.find("\n\n", at)
    after = markdown[end : end + CONTEXT] if end >= 0 else ""
    return replace(
        figure, context_before=markdown[max(0, start - CONTEXT) : start].strip(), context_after=after.strip()
    )
