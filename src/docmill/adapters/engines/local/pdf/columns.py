"""Reading order: columns side by side, cut into bands by what goes across them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from statistics import median
from typing import Protocol

from .lines import Line

BIN = 2.0
"""Points of the page's width that are counted together."""
MAX_DEPTH = 8
MAX_LINES = 1500
"""More is a map or a plan, which has no columns."""
MAX_CROSSING = 0.34
"""Of the lines: so many may go across a gutter, such as titles and wide tables."""
MAX_VALLEYS = 8
MIN_GUTTER_EM = 0.7
MIN_SIDE_LINES = 3
PROSE_LETTERS = 18
"""A column of text has lines of at least this length; a table's have less."""
SHORTEST_LETTERS = 10


class Placed(Protocol):
    """What has a place on the page: a line, a table, a figure."""

    @property
    def x0(self) -> float: ...
    @property
    def y0(self) -> float: ...
    @property
    def x1(self) -> float: ...
    @property
    def y1(self) -> float: ...


def order(things: Sequence[Placed], *, is_rtl: bool = False, depth: int = 0) -> list[list[Placed]]:
    """Groups of things, each of one column, in the order in which they are read."""
    if not things:
        return []
    if len(things) < 6 or depth > MAX_DEPTH:
        return [from_top(things)]
    gutter = find_gutter(things)
    if gutter is None:
        return split_at_gap(things, is_rtl=is_rtl, depth=depth)
    em = usual_size(things)
    slack = 0.3 * em
    groups: list[list[Placed]] = []
    band: list[Placed] = []
    wide: list[Placed] = []

    def flush() -> None:
        left = [thing for thing in band if thing.x1 <= gutter + slack]
        right = [thing for thing in band if thing.x1 > gutter + slack]
        for side in (right, left) if is_rtl else (left, right):
            groups.extend(order(side, is_rtl=is_rtl, depth=depth + 1))
        band.clear()

    placed = from_top(things)
    for number, thing in enumerate(placed):
        if thing.x0 < gutter - slack and thing.x1 > gutter + slack:
            flush()
            wide.append(thing)
        elif wide and not band and is_rest(wide[-1], thing, placed[number + 1 : number + 2]):
            wide.append(thing)
        else:
            if wide:
                groups.append(list(wide))
                wide.clear()
            band.append(thing)
    if wide:
        groups.append(list(wide))
    flush()
    return groups


def is_rest(last: Placed, thing: Placed, beside: Sequence[Placed]) -> bool:
    """The short last line of a paragraph that goes across does not reach the gutter, and is no column yet."""
    if not isinstance(last, Line) or not isinstance(thing, Line) or abs(last.size - thing.size) > 0.08 * last.size:
        return False
    if any(isinstance(other, Line) and is_level(thing, other) for other in beside):
        return False
    return 0 < thing.base - last.base < 1.7 * thing.size and abs(thing.start - last.start) < 3 * thing.size


def from_top(things: Sequence[Placed]) -> list[Placed]:
    return sorted(things, key=lambda thing: (thing.y0, thing.x0))


def usual_size(things: Sequence[Placed]) -> float:
    sizes = [thing.size for thing in things if isinstance(thing, Line)]
    return median(sizes) if sizes else 10.0


def split_at_gap(things: Sequence[Placed], *, is_rtl: bool, depth: int) -> list[list[Placed]]:
    """No gutter goes through all of it: perhaps one goes through the part above or below the widest gap."""
    placed = from_top(things)
    bottom, widest, at = placed[0].y1, 0.0, 0
    for number, thing in enumerate(placed[1:], 1):
        if thing.y0 - bottom > widest:
            widest, at = thing.y0 - bottom, number
        bottom = max(bottom, thing.y1)
    if widest > 0.6 * usual_size(things) and depth < MAX_DEPTH - 2:
        parts = [order(part, is_rtl=is_rtl, depth=depth + 1) for part in (placed[:at], placed[at:])]
        if any(len(part) > 1 for part in parts):
            return parts[0] + parts[1]
    return [placed]


def find_gutter(things: Sequence[Placed]) -> float | None:
    """Where two columns part: a valley of the projection that few lines cross, with running text on both sides."""
    if len(things) > MAX_LINES:
        return None
    em = usual_size(things)
    best: tuple[tuple[float, float], float] | None = None
    for middle in find_valleys(things):
        slack = 0.3 * em
        left = [thing for thing in things if thing.x1 <= middle + slack]
        right = [thing for thing in things if thing.x0 >= middle - slack]
        crossing = len(things) - len(left) - len(right)
        if min(len(left), len(right)) < MIN_SIDE_LINES or crossing > MAX_CROSSING * len(things):
            continue
        width = gap_between(left, right)
        if width < MIN_GUTTER_EM * em or not are_columns(left, right, em):
            continue
        score = (crossing, -width)
        if best is None or score < best[0]:
            best = (score, middle)
    return best[1] if best is not None else None


def gap_between(left: Sequence[Placed], right: Sequence[Placed]) -> float:
    """How wide the gutter is for most lines: one that reaches into it, such as the last below a box, does not count."""
    ends, starts = sorted(thing.x1 for thing in left), sorted(thing.x0 for thing in right)
    return starts[len(starts) // 10] - ends[len(ends) - 1 - len(ends) // 10]


def find_valleys(things: Sequence[Placed]) -> list[float]:
    """Places of the x axis that fewer things cover than their neighbours, the emptiest and widest first."""
    low, high = min(thing.x0 for thing in things), max(thing.x1 for thing in things)
    steps = [0] * (int((high - low) / BIN) + 3)
    for thing in things:
        steps[int((thing.x0 - low) / BIN)] += 1
        steps[int((thing.x1 - low) / BIN) + 1] -= 1
    cover = list(accumulate(steps))
    at, last = int(0.1 * len(cover)), int(0.9 * len(cover))
    valleys = []
    while at < last:
        end = at
        while end < last and cover[end] == cover[at]:
            end += 1
        around = cover[at - 1 : at] + cover[end : end + 1]
        if cover[at] <= MAX_CROSSING * len(things) and cover[at] <= min(around, default=0):
            valleys.append((cover[at], at - end, low + BIN * (at + end) / 2))
        at = end
    return [middle for _, _, middle in sorted(valleys)[:MAX_VALLEYS]]


def are_columns(left: Sequence[Placed], right: Sequence[Placed], em: float) -> bool:
    """Columns stand beside each other and hold running text; cells of a table share their baselines and are short."""
    top = max(min(thing.y0 for thing in left), min(thing.y0 for thing in right))
    bottom = min(max(thing.y1 for thing in left), max(thing.y1 for thing in right))
    if bottom - top < 2 * em:
        return False
    sides = [[thing for thing in side if isinstance(thing, Line)] for side in (left, right)]
    if not all(sides):
        return True
    letters = min(median(letters_of(line) for line in side) for side in sides)
    if letters < SHORTEST_LETTERS:
        return False
    if letters >= PROSE_LETTERS:
        return True
    return share_of_level(sides[0], sides[1], em) <= 0.4


def letters_of(line: Line) -> int:
    """Chinese characters say as much as two or three letters."""
    count = 0
    for word in line.words:
        count += len(word.text) + 1 + sum(letter > "\u2e7f" for letter in word.text)
    return count


def share_of_level(left: Sequence[Line], right: Sequence[Line], em: float) -> float:
    """How many lines of the right side have a line of the left at their height."""
    heights = sorted(line.base for line in left)
    level = 0
    for line in right:
        at = bisect_left(heights, line.base - 0.15 * em)
        level += at < len(heights) and heights[at] <= line.base + 0.15 * em
    return level / len(right)


def is_level(one: Line, other: Line) -> bool:
    return abs(one.base - other.base) < 0.4 * max(one.size, other.size)


def rows_of(lines: Sequence[Line]) -> list[list[Line]]:
    """Pieces at one height, from left to right."""
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: (line.base, line.x0)):
        if rows and is_level(rows[-1][0], line):
            rows[-1].append(line)
        else:
            rows.append([line])
    for row in rows:
        row.sort(key=lambda line: line.x0)
    return rows


def steps_of(rows: Sequence[Sequence[Line]]) -> list[float]:
    return [below[0].base - above[0].base for above, below in pairwise(rows)]
