"""Tables drawn with lines: the lines are the truth about their cells, and the words fall into them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from statistics import median
from typing import overload

from .blocks import Cell, joined
from .charts import has_axis
from .content import RTL, Path, Rect, Word

THIN = 2.5
SLACK = 3.0
COVERED = 0.7
MOST_LINES = 3000
RECENT_PATHS = 8
"""Fillings before a path that may lie under it: programs write those of one cell one after the other."""
SMALLEST = 4.0
FEWEST_LISTED = 4
"""Cells of a table of one column."""
OPEN_EDGE = 12.0
"""Points by which lines stick out."""
DOUBLE = 8.0
"""Points. Two lines nearer than this with no word between them are one border."""
MOST_CELLS = 4000
PROSE = 9
"""Words. A cell of the first line of a paragraph has more."""


BY_HEIGHT = attrgetter("y")
FROM_LEFT = attrgetter("x0")


def FROM_RIGHT(word: Word) -> float:  # noqa: N802  # a key like its neighbours
    return -word.x1


class Words(Sequence[Word]):
    """A page's words from top to bottom, to find those of a part without looking at all."""

    def __init__(self, words: Sequence[Word]) -> None:
        self._words = words

    @cached_property
    def _all(self) -> list[Word]:
        return sorted(self._words, key=BY_HEIGHT)

    @cached_property
    def _heights(self) -> list[float]:
        return [word.y for word in self._all]

    @cached_property
    def tallest(self) -> float:
        return max((word.y1 - word.y0 for word in self._all), default=0.0)

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, at: int) -> Word: ...

    @overload
    def __getitem__(self, at: slice) -> list[Word]: ...

    def __getitem__(self, at: int | slice) -> Word | list[Word]:
        return self._all[at]

    def between(self, top: float, bottom: float) -> list[Word]:
        """Those whose middle lies there."""
        return self._all[bisect_left(self._heights, top) : bisect_right(self._heights, bottom)]


@dataclass(slots=True)
class Line:
    """A level or upright stroke: `at` is where it lies, `start` and `end` how far it reaches."""

    at: float
    start: float
    end: float


@dataclass(slots=True)
class Grid:
    box: Rect
    rows: list[list[Cell]]
    words: int = 0
    above: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)
    """Lines of running text in the box that are no part of the table."""

    @property
    def width(self) -> int:
        """How many columns it has."""
        return max((at + cell.columns for row in laid_out(self.rows) for at, cell in row), default=0)


def inside(words: Sequence[Word], box: Rect) -> list[Word]:
    x0, y0, x1, y1 = box
    near = words.between(y0, y1) if isinstance(words, Words) else words
    return [word for word in near if x0 <= word.x <= x1 and y0 <= word.y <= y1]


def around(words: Sequence[Word]) -> Rect:
    """The box that holds the words."""
    return (
        min(word.x0 for word in words),
        min(word.y0 for word in words),
        max(word.x1 for word in words),
        max(word.y1 for word in words),
    )


def strokes(paths: Sequence[Path]) -> tuple[list[Line], list[Line]]:
    """Level and upright lines, whether they were drawn as lines or as thin boxes; frames give four."""
    level: list[Line] = []
    upright: list[Line] = []

    def add(x0: float, y0: float, x1: float, y1: float) -> None:
        if y1 - y0 <= THIN and x1 - x0 > SMALLEST:
            level.append(Line((y0 + y1) / 2, x0, x1))
        elif x1 - x0 <= THIN and y1 - y0 > SMALLEST:
            upright.append(Line((x0 + x1) / 2, y0, y1))

    painted: list[Path] = []
    for path in paths:
        if path.curved or any(covers(other, path) for other in painted[-RECENT_PATHS:]):
            continue
        if path.filled:
            painted.append(path)
        x0, y0, x1, y1 = path.box
        if min(x1 - x0, y1 - y0) <= THIN:
            add(x0, y0, x1, y1)
        else:
            for edge in ((x0, y0, x1, y0), (x0, y1, x1, y1), (x0, y0, x0, y1), (x1, y0, x1, y1)):
                add(*edge)
    return merged(level), merged(upright)


def covers(under: Path, path: Path) -> bool:
    """Whether a filling is not seen because it lies on a larger one of its colour, as words in a shaded cell have."""
    if path.stroked or path.colour != under.colour:
        return False
    (x0, y0, x1, y1), (a0, b0, a1, b1) = under.box, path.box
    return x0 <= a0 + 0.1 and y0 <= b0 + 0.1 and a1 <= x1 + 0.1 and b1 <= y1 + 0.1


def merged(lines: list[Line]) -> list[Line]:
    """Pieces of one stroke put together again."""
    result: list[Line] = []
    for line in sorted(lines, key=lambda line: (round(line.at / 2), line.start)):
        last = result[-1] if result else None
        if last is not None and abs(last.at - line.at) < 2 and line.start <= last.end + SLACK:
            last.end = max(last.end, line.end)
        else:
            result.append(Line(line.at, line.start, line.end))
    return result


def drawn(paths: Sequence[Path]) -> tuple[list[Line], list[Line]]:
    """Level and upright lines; a page full of drawing has no lines that mean a table."""
    return strokes(paths) if len(paths) <= MOST_LINES else ([], [])


def grids(area: float, level: list[Line], upright: list[Line], words: Sequence[Word]) -> list[Grid]:
    if len(level) < 2 or len(upright) < 2 or len(level) * len(upright) > 40_000:
        return []
    found = [grid for part in connected(level, upright) if (grid := build(*part, words)) is not None]
    return outermost(found, area)


def connected(level: list[Line], upright: list[Line]) -> list[tuple[list[Line], list[Line]]]:
    """Groups of lines that touch one another."""
    parent = list(range(len(level) + len(upright)))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for one, flat in enumerate(level):
        for two, tall in enumerate(upright):
            if flat.start - SLACK <= tall.at <= flat.end + SLACK and tall.start - SLACK <= flat.at <= tall.end + SLACK:
                parent[root(one)] = root(len(level) + two)
    groups: dict[int, tuple[list[Line], list[Line]]] = defaultdict(lambda: ([], []))
    for number, line in enumerate(level):
        groups[root(number)][0].append(line)
    for number, line in enumerate(upright):
        groups[root(len(level) + number)][1].append(line)
    return [group for group in groups.values() if len(group[0]) >= 2 and len(group[1]) >= 2]


@dataclass(frozen=True, slots=True)
class Edge:
    """Where cells end: one line, or two close ones with nothing between them."""

    low: float
    high: float


def edges(lines: Sequence[Line], middles: list[float], double: float) -> list[Edge]:
    """The lines' places; double lines count once."""
    found: list[Edge] = []
    middles = sorted(middles)
    for at in sorted(line.at for line in lines):
        last = found[-1] if found else None
        if last is not None and (
            at - last.high <= SLACK
            or (at - last.high <= double and at - last.low <= 2 * double and not any_between(middles, last.high, at))
        ):
            found[-1] = Edge(last.low, at)
        else:
            found.append(Edge(at, at))
    return found


def any_between(values: list[float], low: float, high: float) -> bool:
    at = bisect_left(values, low)
    return at < len(values) and values[at] <= high


def with_open_edges(level: list[Line], upright: list[Line], words: Sequence[Word]) -> tuple[list[Line], list[Line]]:
    """Lines that stick out of the grid bound outer cells that have no line at their far side."""
    left, right = min(line.at for line in upright), max(line.at for line in upright)
    top, bottom = min(line.at for line in level), max(line.at for line in level)
    x0, x1 = median(line.start for line in level), median(line.end for line in level)
    y0, y1 = median(line.start for line in upright), median(line.end for line in upright)
    upright, level = list(upright), list(level)
    if left - x0 > OPEN_EDGE and inside(words, (x0, top, left, bottom)):
        upright.append(Line(x0, top, bottom))
    if x1 - right > OPEN_EDGE and inside(words, (right, top, x1, bottom)):
        upright.append(Line(x1, top, bottom))
    left, right = min(line.at for line in upright), max(line.at for line in upright)
    if top - y0 > OPEN_EDGE and inside(words, (left, y0, right, top)):
        level.append(Line(y0, left, right))
    if y1 - bottom > OPEN_EDGE and inside(words, (left, bottom, right, y1)):
        level.append(Line(y1, left, right))
    return level, upright


def build(level: list[Line], upright: list[Line], words: Sequence[Word]) -> Grid | None:
    level, upright = with_open_edges(level, upright, words)
    box = (
        min(line.at for line in upright),
        min(line.at for line in level),
        max(line.at for line in upright),
        max(line.at for line in level),
    )
    own = inside(words, box)
    if are_crossed(own, upright):
        return None
    xs = edges(upright, [word.x for word in own], DOUBLE)
    ys = edges(level, [word.y for word in own], DOUBLE)
    rows, columns = len(ys) - 1, len(xs) - 1
    if rows < 1 or columns < 1 or rows * columns > MOST_CELLS:
        return None
    held: dict[tuple[int, int], list[Word]] = defaultdict(list)
    for word in own:
        held[slot(ys, word.y), slot(xs, word.x)].append(word)
    taken = spans(xs, ys, level, upright)
    split_bands(taken, held, xs)
    table: list[list[Cell]] = []
    for row in range(rows):
        cells = []
        for column in range(columns):
            if (place := taken.get((row, column))) is None:
                continue
            down, right = place
            mine = [w for r in range(row, row + down) for c in range(column, column + right) for w in held[r, c]]
            cells.append(Cell(text_of(mine), down, right))
        table.append(cells)
    table = squeezed(table)
    if not is_table(table):
        return None
    above, table, below = without_titles(table)
    return Grid(box, table, len(own), above, below)


def are_crossed(words: list[Word], upright: list[Line]) -> bool:
    """The lines of a chart go through its words; those of a table do not."""
    crossed = sum(
        any(word.x0 + 2 < line.at < word.x1 - 2 and line.start < word.y < line.end for line in upright)
        for word in words
    )
    return crossed > max(1, 0.05 * len(words))


def is_table(table: list[list[Cell]]) -> bool:
    """Charts have grids too, but few words in them; a shaded paragraph has lines, but no columns."""
    width = max(sum(cell.columns for cell in row) for row in table) if table else 0
    if width == 1:
        return is_list(table)
    if len(table) < 2 or width < 2 or has_axis(table) or 2 * sum(is_prose(row, width) for row in table) > len(table):
        return False
    if not any(letter.isalpha() for row in table for cell in row for letter in cell.text):
        return False
    filled = [sum(bool(cell.text) for cell in row) for row in table]
    spanning = sum(not row for row in table)
    some, full = sum(count > 0 for count in filled), sum(count >= 2 for count in filled)
    return some + spanning >= 0.7 * len(table) and (full >= 2 or (full == 1 and some == len(table)))


def is_list(table: list[list[Cell]]) -> bool:
    """One column of short texts, each with a line around it. Fewer are a box, or a heading with lines."""
    texts = [cell.text for row in table for cell in row]
    return len(texts) >= FEWEST_LISTED and all(texts) and all(len(text.split()) < PROSE for text in texts)


def is_prose(row: list[Cell], width: int) -> bool:
    """Running text from edge to edge."""
    return len(row) == 1 and row[0].columns == width and len(row[0].text.split()) >= PROSE


def without_titles(table: list[list[Cell]]) -> tuple[list[str], list[list[Cell]], list[str]]:
    """Running text in the frame above and below the cells: a title, and notes."""
    width = max(sum(cell.columns for cell in row) for row in table)
    prose = [is_prose(row, width) and row[0].rows == 1 for row in table]
    first, last = prose.index(False), len(prose) - prose[::-1].index(False)
    if last - first < 3:
        return [], table, []
    above, below = ([row[0].text for row in part] for part in (table[:first], table[last:]))
    return above, table[first:last], below


def slot(edges: list[Edge], at: float) -> int:
    return max(0, next((n for n, edge in enumerate(edges[1:]) if at <= edge.high), len(edges) - 2))


Spans = dict[tuple[int, int], tuple[int, int]]
"""The top left place of each cell, and how many rows and columns it takes."""


def spans(xs: list[Edge], ys: list[Edge], level: list[Line], upright: list[Line]) -> Spans:
    """A cell reaches as far as no line stops it."""
    rows, columns = len(ys) - 1, len(xs) - 1

    def crossed(lines: list[Line], at: Edge, start: float, end: float) -> bool:
        reach = sum(
            max(0.0, min(line.end, end) - max(line.start, start))
            for line in lines
            if at.low - SLACK <= line.at <= at.high + SLACK
        )
        return reach >= COVERED * (end - start)

    walls = [[crossed(upright, xs[c + 1], ys[r].high, ys[r + 1].low) for c in range(columns)] for r in range(rows)]
    floors = [[crossed(level, ys[r + 1], xs[c].high, xs[c + 1].low) for c in range(columns)] for r in range(rows)]
    result: Spans = {}
    used: set[tuple[int, int]] = set()
    for row in range(rows):
        for column in range(columns):
            if (row, column) in used:
                continue
            right = column
            while right + 1 < columns and not walls[row][right] and (row, right + 1) not in used:
                right += 1
            down = row
            while down + 1 < rows and not any(floors[down][c] for c in range(column, right + 1)):
                down += 1
            used |= {(r, c) for r in range(row, down + 1) for c in range(column, right + 1)}
            result[row, column] = (down - row + 1, right - column + 1)
    return result


def split_bands(taken: Spans, held: dict[tuple[int, int], list[Word]], xs: list[Edge]) -> None:
    """Where only every other row is shaded, the plain rows lack walls; wide gaps at the walls' places betray them."""
    for (row, column), (down, right) in list(taken.items()):
        if right == 1:
            continue
        words = [word for r in range(row, row + down) for c in range(column, column + right) for word in held[r, c]]
        if not words:
            continue
        walls = [xs[c + 1] for c in range(column, column + right - 1)]
        height = max(word.y1 - word.y0 for word in words)
        # A white channel through several lines is no accident, however narrow.
        several = max(word.y for word in words) - min(word.y for word in words) > 0.6 * height
        channel = (0.25 if several else 0.8) * height
        sides = [
            (
                max((word.x1 for word in words if word.x <= wall.high), default=None),
                min((word.x0 for word in words if word.x > wall.high), default=None),
            )
            for wall in walls
        ]
        clear = [
            (left is None or left <= wall.high + 0.4 * height)
            and (other is None or other >= wall.low - 0.4 * height)
            and (left is None or other is None or other - left > channel)
            for wall, (left, other) in zip(walls, sides, strict=True)
        ]
        if all(clear) and sum(bool(held[row, c]) for c in range(column, column + right)) >= 2:
            for c in range(column, column + right):
                taken[row, c] = (down, 1)


def squeezed(table: list[list[Cell]]) -> list[list[Cell]]:
    """Without columns, and rows inside a tall cell, that are nothing but the space between two lines."""
    table = without_empty_rows(table)
    starts = laid_out(table)
    width = max((at + cell.columns for row in starts for at, cell in row), default=0)
    for column in reversed(range(width)):
        alone = [cell for row in starts for at, cell in row if at == column and cell.columns == 1]
        if any(cell.text for cell in alone):
            continue
        for row in starts:
            for at, cell in row:
                if at <= column < at + cell.columns and cell.columns > 1:
                    cell.columns -= 1
        gone = {id(cell) for cell in alone}
        starts = [[(at - (at > column), cell) for at, cell in row if id(cell) not in gone] for row in starts]
    return [[cell for _, cell in row] for row in starts]


def without_empty_rows(table: list[list[Cell]]) -> list[list[Cell]]:
    kept: list[list[Cell]] = []
    for row in table:
        tall = [cell for above, cells in enumerate(kept) for cell in cells if above + cell.rows > len(kept)]
        if row and tall and not any(cell.text or cell.rows > 1 for cell in row):
            for cell in tall:
                cell.rows -= 1
        else:
            kept.append(row)
    return kept


def laid_out(table: list[list[Cell]]) -> list[list[tuple[int, Cell]]]:
    """Each cell with the column it begins in."""
    taken: set[tuple[int, int]] = set()
    result = []
    for number, row in enumerate(table):
        column, placed = 0, []
        for cell in row:
            while (number, column) in taken:
                column += 1
            placed.append((column, cell))
            if cell.rows > 1:
                taken |= {
                    (r, c) for r in range(number, number + cell.rows) for c in range(column, column + cell.columns)
                }
            column += cell.columns
        result.append(placed)
    return result


def text_of(words: list[Word]) -> str:
    """The words of a cell, line by line."""
    lines: list[list[Word]] = []
    for word in sorted(words, key=BY_HEIGHT):
        last = lines[-1][-1] if lines else None
        if last is not None and word.y - last.y < 0.5 * min(word.y1 - word.y0, last.y1 - last.y0):
            lines[-1].append(word)
        else:
            lines.append([word])
    return joined(glued(line) for line in lines)


def glued(line: list[Word]) -> str:
    is_rtl = any(RTL.search(word.text) for word in line)
    text = ""
    for word in sorted(line, key=FROM_RIGHT if is_rtl else FROM_LEFT):
        text += ("" if word.glued or not text else " ") + word.text + ("-" if word.hyphen else "")
    return text


def outermost(found: list[Grid], area: float) -> list[Grid]:
    """A grid inside another is part of it; one that frames the whole page is no table."""
    found = [grid for grid in found if size(grid.box) < 0.95 * area]
    return [
        grid
        for grid in found
        if not any(
            other is not grid and within(grid.box, other.box) and size(other.box) > size(grid.box) for other in found
        )
    ]


def size(box: Rect) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def within(inner: Rect, outer: Rect) -> bool:
    return (
        outer[0] - SLACK <= inner[0]
        and inner[2] <= outer[2] + SLACK
        and outer[1] - SLACK <= inner[1]
        and inner[3] <= outer[3] + SLACK
    )
