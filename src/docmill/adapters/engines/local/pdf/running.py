"""Headers, footers and page numbers: what comes again on page after page at the same edge."""

from __future__ import annotations

import re
from collections import Counter, deque

from .blocks import Block

EDGE = 0.1
REMEMBERED = 64
"""Pages. Who gathers the windows of a long document remembers as many."""
DIGITS = re.compile(r"\d+|\b[ivxlc]+\b", re.IGNORECASE)
PAGE_NUMBER = re.compile(
    r"(?:page|seite|第)? ?[-–|]? ?(?:\d{1,5}|[ivxlc]{1,6}) ?[-–|页]?(?: ?(?:of|von|/) ?\d{1,5})?", re.IGNORECASE
)


Edges = list[str]
"""What stands at the edges of one page."""


class Remembered:
    """The edges of the last pages, for who reads the windows of a document one after the other."""

    def __init__(self) -> None:
        self._seen: deque[Edges] = deque(maxlen=REMEMBERED)

    def __call__(self, window: list[Edges]) -> list[Edges]:
        """What stood before the window, which is remembered, too."""
        before = list(self._seen)
        self._seen.extend(window)
        return before


class Running:
    """What runs in a window, seen from its pages and those before. A document of one page has nothing that runs."""

    def __init__(self, seen: list[Edges]) -> None:
        seen = seen[-REMEMBERED:]
        self._often = Counter(key for page in seen for key in page)
        self._enough = 2 if len(seen) < 6 else max(3, len(seen) // 4)

    def without(self, blocks: list[Block]) -> list[Block]:
        """The blocks without what runs. A page that has nothing else keeps it: it is what the page says."""
        kept = [block for block in blocks if not (key := key_of(block)) or self._often[key] < self._enough]
        return kept or blocks


def edges(blocks: list[Block]) -> Edges:
    return sorted({key for block in blocks if (key := key_of(block))})


def key_of(block: Block) -> str:
    """Edge and words, or nothing when the block cannot be a running one."""
    if block.box is None or block.kind not in ("text", "heading", "caption") or len(block.text) > 150:
        return ""
    side = "top" if block.box[3] <= EDGE else "foot" if block.box[1] >= 1 - EDGE else ""
    if not side:
        return ""
    text = " ".join(block.text.strip("*_# ").split())
    if PAGE_NUMBER.fullmatch(text):
        return f"{side} number"
    # "Chapter 7" in large letters begins a chapter; only small print may differ by its number and still run.
    return f"{side} {text if block.kind == 'heading' else DIGITS.sub('#', text)}"
