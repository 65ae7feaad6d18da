"""The order in which people read: column by column, heads and feet of the page last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from .lines import Line

NARROW = 0.6
MARGIN = 0.075
FEWEST_LINES = 8
SHORT_HEAD = 90
APART = 2.5
MOST_HEADS = 4


@dataclass(frozen=True, slots=True)
class Row:
    """Pieces on the same height of one column, from left to right; and where the column begins and ends."""

    pieces: tuple[Line, ...]
    left: float
    right: float

    @property
    def text(self) -> str:
        return " ".join(piece.text for piece in self.pieces)

    @property
    def x0(self) -> float:
        return self.pieces[0].x0

    @property
    def x1(self) -> float:
        return self.pieces[-1].x1

    @property
    def middle(self) -> float:
        return sum(piece.middle for piece in self.pieces) / len(self.pieces)

    @property
    def height(self) -> float:
        return median(piece.height for piece in self.pieces)


def apart(lines: Sequence[Line], height: float) -> tuple[list[Line], list[Line], list[Line]]:
    """Head, body and foot. What stands well apart in the margin belongs to the page, not to its text: it comes last,
    so that it does not cut a sentence that goes on from the page before."""
    ordered = sorted(lines, key=lambda line: line.middle)
    if len(ordered) < FEWEST_LINES:
        return [], ordered, []
    usual = median(line.height for line in ordered)
    head = edge(ordered, usual, lambda line: line.y1 < MARGIN * height, lambda before, line: line.y0 - before.y1, APART)
    rest = ordered[len(head) :]
    foot = edge(
        rest[::-1], usual, lambda line: line.y0 > (1 - MARGIN) * height, lambda before, line: before.y0 - line.y1, 1.0
    )
    return head, rest[: len(rest) - len(foot)], foot[::-1]


def edge(
    lines: Sequence[Line],
    usual: float,
    in_margin: Callable[[Line], bool],
    gap: Callable[[Line, Line], float],
    least: float,
) -> list[Line]:
    """The first lines, if they lie in the margin and a gap of *least* lines parts them from the rest."""
    found = 0
    for number, (line, after) in enumerate(pairwise(lines), 1):
        if number > MOST_HEADS or not in_margin(line) or line.height > 1.25 * usual or len(line.text) > SHORT_HEAD:
            break
        if gap(line, after) >= least * usual:
            found = number
    return list(lines[:found])


def order(lines: Sequence[Line]) -> list[Row]:
    """Rows in reading order: columns one after the other, lines across them cut the page into bands."""
    if not lines:
        return []
    gap = column_gap(lines)
    if gap is None:
        return rows(lines)
    result: list[Row] = []
    band: list[Line] = []
    for line in [*sorted(lines, key=lambda line: line.middle), None]:
        if line is not None and not line.x0 < gap < line.x1:
            band.append(line)
            continue
        result += order([piece for piece in band if piece.x1 <= gap])
        result += order([piece for piece in band if piece.x0 >= gap])
        band = []
        if line is not None:
            result.append(Row((line,), line.x0, line.x1))
    return result


def column_gap(lines: Sequence[Line]) -> float | None:
    """Where to cut into columns of running text; cells of a table are too short for that."""
    if len(lines) < FEWEST_LINES:
        return None
    left, right = min(line.x0 for line in lines), max(line.x1 for line in lines)
    narrow = [line for line in lines if line.width < NARROW * (right - left)]
    best: tuple[int, float] | None = None
    for step in range(20, 81):
        x = left + (right - left) * step / 100
        crossing = sum(line.x0 < x < line.x1 for line in narrow)
        before = [line for line in narrow if line.x1 <= x]
        after = [line for line in narrow if line.x0 >= x]
        if crossing * 20 > len(narrow) or min(len(before), len(after)) < FEWEST_LINES // 2:
            continue
        if is_column(before) and is_column(after) and (best is None or crossing < best[0]):
            best = (crossing, x)
    return best[1] if best else None


def is_column(lines: Sequence[Line]) -> bool:
    """Running text fills most of its column's width."""
    extent = max(line.x1 for line in lines) - min(line.x0 for line in lines)
    return median(line.width for line in lines) > extent / 2


def rows(lines: Sequence[Line]) -> list[Row]:
    """Pieces on the same height form a row."""
    left, right = min(line.x0 for line in lines), max(line.x1 for line in lines)
    found: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: line.middle):
        last = found[-1][-1] if found else None
        if last is not None and min(line.y1, last.y1) - max(line.y0, last.y0) > 0.5 * min(line.height, last.height):
            found[-1].append(line)
        else:
            found.append([line])
    return [Row(tuple(sorted(pieces, key=lambda line: line.x0)), left, right) for pieces in found]
