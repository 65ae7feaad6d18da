"""Headers, footers and page numbers: what comes again on page after page at the same edge."""

from __future__ import annotations

import re
from collections import Counter, deque

from .blocks import Block

EDGE = 0.1
REMEMBERED = 64
DIGITS = re.compile(r"\d+|\b[ivxlc]+\b", re.IGNORECASE)
PAGE_NUMBER = re.compile(
    r"(?:page|seite|第)?\s*[-–|]?\s*(?:\d{1,5}|[ivxlc]{1,6})\s*[-–|页]?(?:\s*(?:of|von|/)\s*\d{1,5})?", re.IGNORECASE
)


class Running:
    """Remembers the edges of the last pages. A document of one page has nothing that runs."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._seen: deque[set[str]] = deque(maxlen=REMEMBERED)

    def learn(self, pages: list[list[Block]]) -> None:
        """Look at the coming pages before they are written."""
        for blocks in pages:
            self._seen.append({key for block in blocks if (key := self._key(block))})

    def without(self, blocks: list[Block]) -> list[Block]:
        if self._total < 2:
            return blocks
        often = Counter(key for page in self._seen for key in page)
        enough = 2 if len(self._seen) < 6 else max(3, len(self._seen) // 4)
        return [block for block in blocks if not (key := self._key(block)) or often[key] < enough]

    @staticmethod
    def _key(block: Block) -> str:
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
