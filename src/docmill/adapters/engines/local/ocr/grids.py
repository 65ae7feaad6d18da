"""Tables on scans: with lines drawn around their cells, or columns that only stand one under the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from .layout import Row
from .lines import Line

SHORTEST_RULE = 0.03
"""Of the page's longer side; what is shorter is a letter or a dash."""
FEWEST_ROWS = 3
MOST_CELLS = 4000
WIDEST_CELL = 60
"""Letters. Longer pieces beside each other are columns of text, not cells."""

Frame = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table and where it is."""

    cells: list[list[str]]
    frame: Frame


def ruled(pixels: Any, lines: Sequence[Line]) -> tuple[list[Grid], list[Line]]:
    """Tables whose cells have lines around them, and the text that stands in none."""
    grids, rest = [], list(lines)
    for xs, ys in lattices(pixels):
        inside = [line for line in rest if ys[0] < line.middle < ys[-1] and xs[0] < (line.x0 + line.x1) / 2 < xs[-1]]
        cells = fill(inside, xs, ys)
        if len(inside) >= FEWEST_ROWS and sum(any(row) for row in cells) >= 2:
            grids.append(Grid([row for row in cells if any(row)], (xs[0], ys[0], xs[-1], ys[-1])))
            rest = [line for line in rest if line not in inside]
    return grids, rest


def lattices(pixels: Any) -> list[tuple[list[int], list[int]]]:
    """Where lines cross: for each lattice the places of its vertical and of its horizontal lines."""
    import cv2
    import numpy

    grey = cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY)
    ink = cv2.adaptiveThreshold(grey, 255, cv2.ADAPTIVE_THRESH_MEAN_C, cv2.THRESH_BINARY_INV, 31, 15)
    least = max(20, round(SHORTEST_RULE * max(grey.shape)))
    across = cv2.morphologyEx(ink, cv2.MORPH_OPEN, numpy.ones((1, least), numpy.uint8))
    down = cv2.morphologyEx(ink, cv2.MORPH_OPEN, numpy.ones((least, 1), numpy.uint8))
    # A line that is a pixel off its neighbour still belongs to it.
    joined = cv2.dilate(cv2.bitwise_or(across, down), numpy.ones((5, 5), numpy.uint8))
    count, marks, boxes, _ = cv2.connectedComponentsWithStats(joined, connectivity=8)
    found = []
    for number in range(1, count):
        x, y, width, height, _ = (int(value) for value in boxes[number])
        if width < 3 * least or height < least // 2 or width * height < 0.005 * grey.size:
            continue
        part = marks[y : y + height, x : x + width] == number
        xs = places((down[y : y + height, x : x + width] > 0) & part, axis=0, enough=0.5 * height)
        ys = places((across[y : y + height, x : x + width] > 0) & part, axis=1, enough=0.5 * width)
        if len(xs) >= 3 and len(ys) >= 3 and len(xs) * len(ys) <= MOST_CELLS:
            found.append(([x + place for place in xs], [y + place for place in ys]))
    return sorted(found, key=lambda lattice: lattice[1][0])


def places(mask: Any, *, axis: int, enough: float) -> list[int]:
    """Where the mask has long lines, each as one place however thick it is."""
    import numpy

    long = numpy.nonzero(mask.sum(axis=axis) >= enough)[0]
    if not len(long):
        return []
    groups = numpy.split(long, numpy.nonzero(numpy.diff(long) > 6)[0] + 1)
    return [int(group.mean()) for group in groups]


def fill(lines: Sequence[Line], xs: Sequence[float], ys: Sequence[float]) -> list[list[str]]:
    cells: list[list[list[Line]]] = [[[] for _ in pairwise(xs)] for _ in pairwise(ys)]
    for line in sorted(lines, key=lambda line: (line.middle, line.x0)):
        row = next((n for n, (top, end) in enumerate(pairwise(ys)) if top <= line.middle < end), None)
        # A line that reaches over several columns begins in its own.
        begin = line.x0 + min(line.width / 2, line.height)
        column = next((n for n, (left, end) in enumerate(pairwise(xs)) if left <= begin < end), None)
        if row is not None and column is not None:
            cells[row][column].append(line)
    return [[" ".join(line.text for line in cell) for cell in row] for row in cells]


def aligned(rows: Sequence[Row]) -> tuple[int, list[list[str]]] | None:
    """How many of the first rows are a table without lines, and its cells."""
    count = 0
    for row in rows:
        far = count and row.middle - rows[count - 1].middle > 3.5 * row.height
        if len(row.pieces) < 2 or far or any(len(piece.text) > WIDEST_CELL for piece in row.pieces):
            break
        count += 1
    if count < FEWEST_ROWS:
        return None
    table = rows[:count]
    edges = columns(table)
    if len(edges) < 2 or sum(len(row.pieces) for row in table) < 0.6 * count * len(edges):
        return None
    cells = []
    for row in table:
        line = [""] * len(edges)
        for piece in row.pieces:
            at = next(number for number, (left, right) in enumerate(edges) if left <= piece.x0 <= right)
            line[at] = f"{line[at]} {piece.text}".strip()
        cells.append(line)
    return count, cells


def columns(rows: Sequence[Row]) -> list[tuple[float, float]]:
    """The stretches that pieces cover; between them runs white from top to bottom."""
    spans = sorted((piece.x0, piece.x1) for row in rows for piece in row.pieces)
    found: list[tuple[float, float]] = []
    for left, right in spans:
        if found and left <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], right))
        else:
            found.append((left, right))
    return found
