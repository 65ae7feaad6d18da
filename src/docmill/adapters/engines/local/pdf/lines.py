"""From words to lines: what stands on one baseline without a gap as wide as between columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from statistics import median

from .content import RTL, Rect, Word

GAP_EM = 1.2
"""A wider gap parts two pieces of a line that the file wrote one after the other."""
STRETCHED_GAP_EM = 3.0
"""The same where the file wrote a blank, which justified text stretches."""
APART_GAP_EM = 0.7
"""The same for pieces that it wrote apart: nothing but their place says that they belong together."""
SCRIPT = 0.85
"""Times the size of the line: smaller words may stand above or below its baseline."""
CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f]")
LEADING_MARKS = re.compile(r"[.,!?:;،؛؟]+(?=[^\W_])")
MERGE_WINDOW = 8
"""Pieces before the current one, from top to bottom, that may be of its line."""


class Line:
    """Words of one line. `start` and `end` go in reading direction, whatever that is."""

    __slots__ = ("base", "bold", "boxed", "is_rtl", "italic", "mono", "size", "words", "x0", "x1", "y0", "y1")

    def __init__(self, words: list[Word]) -> None:
        self.words = words
        self.boxed = -1
        """The shaded box that it stands in, by number."""
        self.settle()

    def settle(self) -> None:
        """Work out size, baseline and style, after its words changed."""
        words = self.words
        sizes: dict[float, int] = {}
        letters = bold = mono = italic = 0
        for word in words:
            length = len(word.text)
            size = round(word.size, 1)
            sizes[size] = sizes.get(size, 0) + length
            letters += length
            bold += length if word.bold else 0
            mono += length if word.mono else 0
            italic += length if word.italic else 0
        self.size = max(sizes, key=lambda size: (sizes[size], size)) or 1.0
        main = [word for word in words if abs(word.size - self.size) <= 0.15 * self.size] or words
        self.base = median(word.base for word in main)
        self.x0, self.x1 = min(word.x0 for word in words), max(word.x1 for word in words)
        self.y0, self.y1 = min(word.y0 for word in main), max(word.y1 for word in main)
        self.bold, self.mono, self.italic = bold > 0.7 * letters, mono > 0.8 * letters, italic > 0.8 * letters
        self.is_rtl = any(RTL.search(word.text) for word in words) and 3 * sum(
            len(word.text) for word in words if RTL.search(word.text)
        ) > sum(len(word.text) for word in words if any(map(str.isalpha, word.text)))
        for word in words:
            word.script = 0
            if word.size < SCRIPT * self.size and len(word.text) <= 8:
                rise = self.base - word.base
                word.script = 1 if rise > 0.12 * self.size else -1 if rise < -0.08 * self.size else 0

    @property
    def text(self) -> str:
        return text_of(self.words)

    @property
    def start(self) -> float:
        return -self.x1 if self.is_rtl else self.x0

    @property
    def end(self) -> float:
        return -self.x0 if self.is_rtl else self.x1

    @property
    def box(self) -> Rect:
        return self.x0, self.y0, self.x1, self.y1

    def __repr__(self) -> str:
        return f"Line({self.text!r}, {self.x0:.0f}-{self.x1:.0f}, {self.base:.0f}, {self.size})"


def text_of(words: Sequence[Word]) -> str:
    text = ""
    last: Word | None = None
    for word in words:
        text += word.text if last is None or word.glued or last.hyphen else f" {word.text}"
        last = word
    return text


def find_lines(words: Sequence[Word]) -> list[Line]:
    """Pieces of lines from top to bottom. The order inside a piece is the file's, unless it runs from right to left."""
    rtl = sum(RTL.search(word.text) is not None for word in words)
    if 3 * rtl < len(words) or not rtl:
        return merge_pieces(cut_pieces(words))
    lines = merge_pieces(cut_pieces(from_right(words)))
    for line in lines:
        if line.is_rtl:
            line.words = in_logical_order(line.words)
        else:
            line.words.sort(key=lambda word: word.x0)
        set_gaps(line.words)
    return lines


def from_right(words: Sequence[Word]) -> list[Word]:
    """From top to bottom, each line from the right."""
    rows: list[list[Word]] = []
    for word in sorted(words, key=lambda word: word.base):
        if rows and abs(rows[-1][0].base - word.base) < 0.4 * max(word.size, rows[-1][0].size):
            rows[-1].append(word)
        else:
            rows.append([word])
    found = [word for row in rows for word in sorted(row, key=lambda word: -word.x1)]
    for word in found:
        word.hyphen = False
    return found


def in_logical_order(words: Sequence[Word]) -> list[Word]:
    """From the right, but what runs to the right, such as a name in Latin letters, from the left."""
    found: list[Word] = []
    run: list[Word] = []
    for word in sorted(words, key=lambda word: -word.x1):
        is_ltr = RTL.search(word.text) is None and (run or any(map(str.isalnum, word.text)))
        if is_ltr:
            run.append(word)
            continue
        found += reversed_run(run)
        run = []
        found.append(word)
    return found + reversed_run(run)


def reversed_run(run: list[Word]) -> list[Word]:
    """Marks at its end belong to the line, not to the run."""
    rest = []
    while run and not any(map(str.isalnum, run[-1].text)):
        rest.append(run.pop())
    run.reverse()
    # A full stop after the run stands at its left end on the page.
    if run and (found := LEADING_MARKS.match(run[0].text)):
        run[0].text = run[0].text[found.end() :]
        run[-1].text += found[0][::-1]
    return run + rest[::-1]


def set_gaps(words: Sequence[Word]) -> None:
    """Which words touch the one before, after their order changed."""
    for number, word in enumerate(words):
        last = words[number - 1] if number else None
        gap = max(word.x0 - last.x1, last.x0 - word.x1) if last is not None else 1.0
        word.glued = last is not None and gap < 0.1 * word.size


def cut_pieces(words: Iterable[Word]) -> list[Line]:
    pieces: list[Line] = []
    current: list[Word] = []
    main: Word | None = None
    has_rtl = False
    for word in words:
        if main is not None and goes_on(current[-1], main, word, has_rtl):
            current.append(word)
            main = word if word.size > main.size else main
        else:
            if current:
                pieces.append(Line(current))
            current, main, has_rtl = [word], word, False
        has_rtl = has_rtl or RTL.search(word.text) is not None
    if current:
        pieces.append(Line(current))
    return pieces


def goes_on(last: Word, main: Word, word: Word, has_rtl: bool) -> bool:
    """Whether the word stands in the line of the last one. *main* is the line's largest word."""
    if last.hyphen:
        return False
    em = max(word.size, main.size)
    right, left = word.x0 - last.x1, last.x0 - word.x1
    if left > 0.3 * em and not has_rtl and RTL.search(word.text) is None:
        return False
    gap = max(right, left)
    if gap > (STRETCHED_GAP_EM if word.spaced else GAP_EM) * em:
        return False
    rise = main.base - word.base
    if abs(rise) < 0.25 * em:
        return True
    if gap > 0.5 * em:
        return False
    if word.size < SCRIPT * main.size:
        return -0.35 * em < rise < 0.6 * em
    return main.size < SCRIPT * word.size and -0.6 * em < rise < 0.35 * em


def merge_pieces(pieces: list[Line]) -> list[Line]:
    """Put together what the file wrote apart, such as a word in another colour."""
    found: list[Line] = []
    for piece in sorted(pieces, key=lambda line: (line.base, line.x0)):
        for other in found[-MERGE_WINDOW:]:
            em = max(piece.size, other.size)
            gap = max(piece.x0 - other.x1, other.x0 - piece.x1)
            is_level = abs(other.base - piece.base) < 0.3 * min(piece.size, other.size) or (
                min(piece.size, other.size) < SCRIPT * em and abs(other.base - piece.base) < 0.5 * em and gap < 0.2 * em
            )
            if is_level and -0.5 * em < gap < APART_GAP_EM * em:
                merge(other, piece)
                break
        else:
            found.append(piece)
    return found


def merge(line: Line, other: Line) -> None:
    """Take the other's words in, in reading direction."""
    is_rtl = line.is_rtl or other.is_rtl
    pair = sorted((line, other), key=lambda one: -one.x1 if is_rtl else one.x0)
    for word in pair[1].words[:1]:
        word.glued = word.glued and abs(pair[1].x0 - pair[0].x1) < 0.15 * word.size
    line.words = pair[0].words + pair[1].words
    line.settle()
