"""From the lines of one column to paragraphs: where one ends, and lines that are kept because they were set so."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from .columns import rows_of
from .content import Rect
from .lines import CJK, Line

ENDS_SENTENCE = re.compile(
    r"[.!?:;…。！？：；؟۔][\"'”’»)\]*]*$"
    r"|(?<=[^\W\d])[.!?][\"'”’»)\]]*\d{1,3}$"  # the number of a note; 02.03.2026 ends none
)
BULLET = re.compile(r"^[•‣▪■●○◦·∙➢➤►✓✔❑❖➔→□◆◇★\uf0a7\uf0b7\uf0d8\uf076\uf0fc](?:\s|$)|^[•‣▪■●○◦∙➢]\S")
DASH = re.compile(r"^[-–—*](?:\s|$)")
NUMBER = re.compile(
    r"^(?:\(?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,5})[.)]|\d{1,2}(?:\.\d{1,2}){1,3}\.?|\[\d{1,3}\])(?:\s|$)|^[①-⑳]"
)
MAX_MARK_LETTERS = 6
MAX_GUESSED_STEP_EM = 1.45
"""Of two lines nobody knows whether they are as far apart as lines or as paragraphs; few texts are set wider."""


@dataclass(slots=True)
class Paragraph:
    """Rows of one paragraph; a row of several pieces stands side by side on the page."""

    rows: list[list[Line]] = field(default_factory=list)
    breaks: set[int] = field(default_factory=set)
    """Rows after which the line ends although the next word would have fitted."""

    @property
    def first(self) -> Line:
        return self.rows[0][0]

    @property
    def lines(self) -> list[Line]:
        return [line for row in self.rows for line in row]

    @property
    def text(self) -> str:
        return " ".join(line.text for line in self.lines)

    @property
    def is_parted(self) -> bool:
        return any(len(row) > 1 for row in self.rows)

    @property
    def box(self) -> Rect:
        return around(self.lines)

    @property
    def boxes(self) -> list[Rect]:
        """One for each column that it goes through."""
        parts: list[list[Line]] = [[]]
        for row in self.rows:
            if parts[-1] and row[0].base < parts[-1][-1].base - row[0].size:
                parts.append([])
            parts[-1] += row
        return [around(part) for part in parts]


def around(lines: Sequence[Line]) -> Rect:
    return (
        min(line.x0 for line in lines),
        min(line.y0 for line in lines),
        max(line.x1 for line in lines),
        max(line.y1 for line in lines),
    )


def is_item(text: str) -> bool:
    return bool(BULLET.match(text) or DASH.match(text) or NUMBER.match(text))


def find_paragraphs(lines: Sequence[Line]) -> list[Paragraph]:
    rows = join_rows(rows_of(lines))
    column = Column(rows)
    found: list[Paragraph] = []
    for number, row in enumerate(rows):
        following = rows[number + 1] if number + 1 < len(rows) else None
        if not found or starts_new(found[-1], row, following, column):
            found.append(Paragraph([row]))
        else:
            paragraph = found[-1]
            if column.ends_early(paragraph.rows[-1], row):
                paragraph.breaks.add(len(paragraph.rows) - 1)
            paragraph.rows.append(row)
    return found


class Column:
    """What is usual in a column: where its lines end, and how far they are apart."""

    def __init__(self, rows: Sequence[Sequence[Line]]) -> None:
        single = [row[0] for row in rows if len(row) == 1]
        ends = sorted(line.end for line in single)
        starts = sorted(line.start for line in single)
        self.end = ends[int(0.9 * (len(ends) - 1))] if ends else 0.0
        self.start = starts[int(0.1 * (len(starts) - 1))] if starts else 0.0
        steps: dict[int, Counter[float]] = defaultdict(Counter)
        for above, below in pairwise(rows):
            if len(above) == len(below) == 1:
                one, other = above[0], below[0]
                step = other.base - one.base
                if abs(one.size - other.size) < 0.08 * other.size and 0.8 * other.size < step < 2.6 * other.size:
                    steps[round(other.size)][round(step * 2) / 2] += 1
        self._steps = {
            size: max(found, key=lambda step: (found[step], -step))
            if found.total() > 2
            else min(*found, MAX_GUESSED_STEP_EM * size)
            for size, found in steps.items()
        }

    def step(self, size: float) -> float:
        """The usual distance of baselines at this size."""
        return min(max(self._steps.get(round(size), 1.25 * size), 1.1 * size), 1.9 * size)

    def fits(self, line: Line, below: Line) -> bool:
        """Whether the first word of the line below would have fitted at the end of this one."""
        return self.room(line) > first_width(below) + 0.65 * below.size

    def room(self, line: Line) -> float:
        return self.end - line.end

    def ends_early(self, row: Sequence[Line], below: Sequence[Line]) -> bool:
        """By far: no typesetter breaks a line so early. It was ended on purpose."""
        if len(row) != 1 or len(below) != 1:
            return True
        line, other = row[0], below[0]
        if abs(line.end - other.end) < 1.5 and abs(line.start - other.start) > 5 * other.size:
            return True  # lines that end at one edge and begin anywhere
        width = self.end - self.start
        return self.room(line) > max(0.3 * width, first_width(other) + 4 * other.size)


def first_width(line: Line) -> float:
    """Of the first word; Chinese lines may break after any letter."""
    word = line.words[0]
    return line.size if CJK.match(word.text) else word.x1 - word.x0


def starts_new(paragraph: Paragraph, row: list[Line], following: list[Line] | None, column: Column) -> bool:
    """Whether a row begins a new paragraph. Each rule names what a reader sees."""
    above = paragraph.rows[-1]
    if len(above) > 1 or len(row) > 1:
        if len(above) > 1 and len(row) > 1:
            return row[0].base - above[0].base > 2.2 * row[0].size
        return True
    last, line = above[0], row[0]
    em = line.size
    gap = line.base - last.base
    is_short = len(paragraph.rows) == 1
    step = column.step(em) if is_short else paragraph.rows[1][0].base - paragraph.rows[0][0].base
    largest = max(last.size, em)
    if last.boxed != line.boxed:
        return True
    if gap < 0.3 * em or abs(last.size - em) > 0.1 * largest:
        return True
    if last.words[-1].hyphen and gap < 1.6 * step:
        return False
    if last.mono and line.mono:
        return gap > 3.2 * em if last.boxed < 0 else False
    if gap > 1.25 * step + 0.3:
        return True
    text, before = line.text, last.text
    is_ended = bool(ENDS_SENTENCE.search(before))
    is_small = text[:1].islower()
    fits = column.fits(last, line)
    if last.bold and line.bold and is_short and not is_item(text):
        return False  # a title of two lines
    if last.bold != line.bold and not is_small and (is_ended or fits):
        return True
    if last.mono != line.mono and not is_small and (is_ended or fits):
        return True
    in_item = is_item(paragraph.first.text)
    if is_item(text) and not starts_wrapped(paragraph, line, is_ended=is_ended, fits=fits, in_item=in_item):
        return True
    edge = paragraph.first.start if is_short else paragraph.rows[1][0].start
    indent = line.start - edge
    below = following[0] if following is not None and len(following) == 1 else None
    is_set_in = 0.7 * em < indent < 6 * em and not (in_item and is_short) and (is_ended or not is_small)
    # The first line of a paragraph is set in, and the next goes back.
    if is_set_in and (below is None or below.start < line.start - 0.5 * em or (is_ended and fits)):
        return True
    if in_item and fits and not is_small and line.start < paragraph.first.start + 0.7 * em:
        return True  # back at the mark, after a line that had room left
    if in_item and not is_short and indent < -0.7 * em and (is_ended or not is_small):
        return True
    if in_item and is_short and line.start < paragraph.first.start - 0.7 * em and (is_ended or not is_small):
        return True
    return fits and is_ended and column.room(last) > 1.5 * em


def starts_wrapped(paragraph: Paragraph, line: Line, *, is_ended: bool, fits: bool, in_item: bool) -> bool:
    """A number or a dash at the start of a line may be the middle of a sentence."""
    text = line.text
    if BULLET.match(text):
        return False
    if is_ended or fits:
        return False
    if in_item:
        return line.start > paragraph.first.start + 0.5 * line.size
    return True


def join_rows(rows: list[list[Line]]) -> list[list[Line]]:
    """A gap that the rows above and below do not share is just a wide blank, and a mark belongs to its item."""
    for number, row in enumerate(rows):
        at = 0
        while at + 1 < len(row):
            one, other = row[at], row[at + 1]
            em = max(one.size, other.size)
            gap = other.x0 - one.x1
            near = [
                line
                for beside in (number - 1, number + 1)
                if 0 <= beside < len(rows) and abs(rows[beside][0].base - one.base) < 3.2 * em
                for line in rows[beside]
            ]
            is_blank = any(line.x0 < one.x1 - 0.2 * em and line.x1 > other.x0 + 0.2 * em for line in near)
            if gap < 4 * em and (is_blank or (at == 0 and is_mark(one, other))):
                words = (other.words + one.words) if one.is_rtl or other.is_rtl else (one.words + other.words)
                boxed = one.boxed
                row[at : at + 2] = [Line(words)]
                row[at].boxed = boxed
            else:
                at += 1
    return rows


def is_mark(one: Line, other: Line) -> bool:
    """A bullet or a number before its text, on either side for right-to-left text."""
    for mark, text in ((one, other), (other, one)):
        if text is one and not (one.is_rtl or other.is_rtl):
            continue
        letters = mark.text
        if len(letters) <= MAX_MARK_LETTERS and is_item(letters):
            return True
        if letters.isdigit() and len(letters) <= 3 and not re.match(r"[\d(]", text.text):
            return True
    return False
