"""Tables without a full set of lines: words that stand under one another, helped by whatever lines there are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from statistics import median

from . import ruled
from .blocks import Cell
from .charts import has_axis
from .content import Rect, Word
from .ruled import BY_HEIGHT, FROM_LEFT, PROSE, Grid, Line, inside, text_of

APART = 0.75
"""Times a line's height: a wider gap parts two cells."""
TIGHT = 0.32
FIGURE = re.compile(r"[-–+(€$£]?\d[\d.,]*[%)]?")
LEADER = re.compile(r"\.{4}$|(?:\. ){3}\.$|…$")
"""Dots that lead the eye to the next cell."""
PAGE = re.compile(r"\d{1,4}|[ivxlc]{1,6}", re.IGNORECASE)
NARROWEST = 3.0
STRAY = 0.12
"""Of the lines. So many may cross a gap between columns: titles that span several."""
ENOUGH_LINES = 5
MOST_LINES = 400
MOST_COLUMNS = 40
SPARSEST = 0.4
"""Of the cells. Words strewn over a chart fill fewer."""
RUNNING = 3.2
"""Words of a cell, on the average."""


@dataclass(slots=True)
class Chunk:
    """Words of one line without a wide gap."""

    words: list[Word]

    @property
    def x0(self) -> float:
        return self.words[0].x0

    @property
    def x1(self) -> float:
        return self.words[-1].x1


@dataclass
class TextLine:
    """Its words are all there before anybody asks where it stands, which many do."""

    words: list[Word] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)

    @property
    def y0(self) -> float:
        return min(word.y0 for word in self.words)

    @property
    def y1(self) -> float:
        return max(word.y1 for word in self.words)

    @cached_property
    def middle(self) -> float:
        return median(word.y for word in self.words)

    @cached_property
    def height(self) -> float:
        return median(word.y1 - word.y0 for word in self.words)


def text_lines(words: Sequence[Word], walls: Sequence[Line] = ()) -> list[TextLine]:
    """Words at one height, each line cut where a gap or a wall parts its cells."""
    lines: list[TextLine] = []
    last: Word | None = None
    for word in sorted(words, key=BY_HEIGHT):
        if last is not None and word.y - last.y < 0.45 * min(word.y1 - word.y0, last.y1 - last.y0):
            lines[-1].words.append(word)
        else:
            lines.append(TextLine([word]))
        last = word
    for line in lines:
        line.words.sort(key=FROM_LEFT)
        line.chunks = chunks_of(line, walls)
    return lines


def chunks_of(line: TextLine, walls: Sequence[Line]) -> list[Chunk]:
    apart, tight = APART * line.height, TIGHT * line.height
    words = [line.words[0]]
    chunks = [Chunk(words)]
    for before, word in pairwise(line.words):
        gap = word.x0 - before.x1
        if (
            gap > apart
            or LEADER.search(before.text)
            or (gap > tight and are_two_numbers(before, word))
            or (walls and any(stands_between(wall, before, word) for wall in walls))
        ):
            words = [word]
            chunks.append(Chunk(words))
        else:
            words.append(word)
    return chunks


def are_two_numbers(one: Word, other: Word) -> bool:
    """Numbers stand closer together than words; three digits may be the rest of one number, as in 12 500."""
    both = FIGURE.fullmatch(one.text) and FIGURE.fullmatch(other.text)
    return bool(both) and not (len(other.text) == 3 and other.text.isdigit())


def stands_between(wall: Line, one: Word, other: Word) -> bool:
    here = wall.start - 1 <= one.y <= wall.end + 1
    return here and one.x < wall.at < other.x and one.x1 - 1 <= wall.at <= other.x0 + 1


def split_at(lines: Sequence[TextLine], found: Sequence[tuple[float, float]], borders: Sequence[float]) -> None:
    """Where a cell fills its column, no wide gap follows; what then begins or ends as its column does is a cell."""
    for line in lines:
        chunks: list[Chunk] = []
        for chunk in line.chunks:
            rest = [chunk.words[0]]
            for before, word in pairwise(chunk.words):
                number = next((n for n, at in enumerate(borders) if before.x < at < word.x), None)
                if number is not None and (
                    abs(word.x0 - found[number + 1][0]) < 2.5 or abs(chunk.x1 - found[number + 1][1]) < 2.5
                ):
                    chunks.append(Chunk(rest))
                    rest = [word]
                else:
                    rest.append(word)
            chunks.append(Chunk(rest))
        line.chunks = chunks


Span = tuple[float, float]


def columns(lines: Sequence[TextLine], walls: Sequence[float], box: Rect) -> tuple[list[Span], list[float]]:
    """From where to where each column reaches, and the borders between: gaps that (nearly) no line crosses."""
    full = [line for line in lines if len(line.chunks) > 1]
    if not full:
        return [], []
    most = max(len(line.chunks) for line in full)
    body = list(lines) if walls else [line for line in full if 2 * len(line.chunks) >= most] if most > 3 else full
    low = int(box[0])
    size = int(box[2]) - low + 3
    covered = covering([(chunk.x0 - low, chunk.x1 - low) for line in body for chunk in line.chunks], size)
    inked = covering([(word.x0 - low, word.x1 - low) for line in body for word in line.words], size)
    stray = max(int(STRAY * len(body)), 1 if len(body) >= ENOUGH_LINES else 0)
    wide = APART * median(line.height for line in body)
    found: list[Span] = []
    borders: list[float] = []
    last = 0
    for x, count in enumerate(covered):
        if count <= stray:
            continue
        if not found:
            found.append((low + x, low + x + 1))
        else:
            drawn = [wall for wall in walls if low + last - 2 <= wall <= low + x + 2 and wall - found[-1][0] > 2]
            gap = covered[last + 1 : x]
            # A gap that some line crosses must be wide; one that none crosses may be narrow.
            if drawn or len(gap) >= (wide if any(gap) and min(gap) > 0 else NARROWEST):
                borders.append(drawn[0] if drawn else low + last + 1 + emptiest(inked[last + 1 : x]))
                found.append((low + x, low + x + 1))
            found[-1] = (found[-1][0], low + x + 1)
        last = x
    return found, borders


def covering(spans: list[Span], size: int) -> list[int]:
    """How many of the spans cover each point."""
    steps = [0] * (size + 1)
    for start, end in spans:
        steps[min(size, max(0, int(start)))] += 1
        steps[min(size, max(0, int(end) + 1))] -= 1
    return list(accumulate(steps))[:size]


def emptiest(gap: list[int]) -> float:
    """The middle of the widest stretch that the fewest lines cross."""
    least = min(gap)
    best = start = length = 0
    for x, count in enumerate([*gap, least + 1]):
        if count == least:
            length += 1
        else:
            if length > best:
                best, start = length, x - length
            length = 0
    return start + best / 2


def build(
    box: Rect,
    words: Sequence[Word],
    level: Sequence[Line],
    upright: Sequence[Line],
    known: Sequence[Grid],
    *,
    frame: bool,
) -> Grid | None:
    """The table in the box. *known* are parts of it that are drawn in full: their rows are taken as they are.

    With *frame*, lines that only lack the outer ones may make the cells.
    """
    own = inside(words, box)
    height = box[3] - box[1]
    inner = [line for line in upright if box[0] + 3 < line.at < box[2] - 3]
    walls = sorted(line.at for line in inner if min(line.end, box[3]) - max(line.start, box[1]) > 0.5 * height)
    lines = text_lines(own, inner)
    if len(lines) < 2 or len(lines) > MOST_LINES:
        return None
    above, lines, below = without_prose(lines, box[2] - box[0])
    found, borders = columns(lines, walls, box)
    if not 2 <= len(found) <= MOST_COLUMNS:
        return None
    split_at(lines, found, borders)
    floors = floors_of(box, level)
    groups = rows_of(lines, floors, borders)
    table = stitched(groups, found, borders, [grid for grid in known if grid.width == len(borders) + 1])
    lined = bool(walls or floors)
    good = is_table(table) and (lined or not is_running(table))
    good = good or (len(floors) >= 3 and is_form(table))
    made = Grid(box, table, len(own), above, below) if good else None
    framed = in_frame(box, own, level, upright) if frame and walls and floors else None
    if made is None or framed is None:
        return made or framed
    return framed if len(made.rows) <= 1.3 * len(framed.rows) and made.width <= framed.width else made


def in_frame(box: Rect, words: list[Word], level: Sequence[Line], upright: Sequence[Line]) -> Grid | None:
    """The cells that drawn lines make together with an outer frame."""
    grid = ruled.build(*framed_lines(box, level, upright), words)
    return grid if grid is not None and len(grid.rows) >= 3 and not is_sparse(grid.rows) else None


def framed_lines(box: Rect, level: Sequence[Line], upright: Sequence[Line]) -> tuple[list[Line], list[Line]]:
    """The lines of a table whose outer ones are not drawn, with those."""
    x0, y0, x1, y1 = box
    flat = [line for line in level if y0 - 3 <= line.at <= y1 + 3 and line.start < x1 and line.end > x0]
    tall = [line for line in upright if x0 - 3 <= line.at <= x1 + 3 and line.start < y1 and line.end > y0]
    return [Line(y0, x0, x1), *flat, Line(y1, x0, x1)], [Line(x0, y0, y1), *tall, Line(x1, y0, y1)]


def without_prose(lines: list[TextLine], width: float) -> tuple[list[str], list[TextLine], list[str]]:
    """The lines of running text before the first and after the last that may be a table's, and what lies between."""
    prose = [is_paragraph(line, width) for line in lines]
    if all(prose):
        return [], [], []
    first, last = prose.index(False), len(prose) - prose[::-1].index(False)
    texts = [[" ".join(word.text for word in line.words) for line in part] for part in (lines[:first], lines[last:])]
    return texts[0], lines[first:last], texts[1]


def is_paragraph(line: TextLine, width: float) -> bool:
    """Many words without a gap as wide as between cells."""
    words = line.words
    if len(words) < PROSE or words[-1].x1 - words[0].x0 < 0.6 * width:
        return False
    gaps = [after.x0 - before.x1 for before, after in pairwise(words)]
    lettered = sum(any(letter.isalpha() for letter in word.text) for word in words)
    return max(gaps) < 1.5 * line.height and lettered > 0.7 * len(words)


def stitched(
    groups: list[list[TextLine]], found: list[Span], borders: list[float], known: list[Grid]
) -> list[list[Cell]]:
    table: list[list[Cell]] = []
    waiting = list(known)
    loose: list[list[Cell]] = []
    for group in groups:
        middle = group[0].middle
        grid = next((grid for grid in known if grid.box[1] <= middle <= grid.box[3]), None)
        if grid is None:
            loose.append(cells_of(group, found, borders))
            table.append(loose[-1])
        elif grid in waiting:
            waiting.remove(grid)
            table += grid.rows
    if not known:
        heads_joined(table)
    return ruled.squeezed([row for row in table if not any(row is one for one in loose) or any(c.text for c in row)])


def heads_joined(table: list[list[Cell]]) -> None:
    """A head that stands aside of its column makes no column of its own."""
    if len(table) < 3 or any(cell.columns > 1 for row in table for cell in row):
        return
    for column in reversed(range(len(table[0]) - 1)):
        one, other = (bool(table[0][at].text) for at in (column, column + 1))
        first, second = ([bool(row[at].text) for row in table[1:]] for at in (column, column + 1))
        if (other and not one and not any(second)) or (one and not other and not any(first)):
            for row in table:
                row[column : column + 2] = [Cell(row[column].text or row[column + 1].text)]


def floors_of(box: Rect, level: Sequence[Line]) -> list[float]:
    """Heights of the lines that go through most of the table."""
    width = box[2] - box[0]
    reach: dict[int, float] = {}
    for line in level:
        if box[1] - 2 <= line.at <= box[3] + 2:
            share = max(0.0, min(line.end, box[2]) - max(line.start, box[0]))
            near = next((at for at in reach if abs(at - line.at) <= 2), round(line.at))
            reach[near] = reach.get(near, 0.0) + share
    return sorted(at for at, share in reach.items() if share > 0.6 * width)


def column_of(chunk: Chunk, borders: Sequence[float]) -> tuple[int, int]:
    """The first and the last column that the words reach well into."""
    slack = 0.4 * (chunk.words[0].y1 - chunk.words[0].y0)
    first = sum(border < chunk.x0 + slack for border in borders)
    last = sum(border < chunk.x1 - slack for border in borders)
    return first, max(first, last)


def rows_of(lines: list[TextLine], floors: list[float], borders: list[float]) -> list[list[TextLine]]:
    """Lines that make one row: all between two drawn lines, if every row is drawn; else by their distance."""
    bands: dict[int, list[TextLine]] = {}
    for line in lines:
        bands.setdefault(sum(floor < line.middle for floor in floors), []).append(line)
    if len(bands) >= 3 and all(is_one_row(band, borders) for band in bands.values()):
        return list(bands.values())
    result: list[list[TextLine]] = []
    pitch = tight_pitch(lines)
    for band in bands.values():
        if len(bands) >= 4 and is_one_row(band, borders):
            result.append(band)
            continue
        group = [band[0]]
        for before, line in pairwise(band):
            if goes_on(group, before, line, pitch, borders):
                group.append(line)
            else:
                result.append(group)
                group = [line]
        result.append(group)
    return result


def is_one_row(band: list[TextLine], borders: list[float]) -> bool:
    """In a row that wraps, hardly any line after the first fills all its cells."""
    if len(band) == 1:
        return True
    filled = [len({column_of(chunk, borders)[0] for chunk in line.chunks}) for line in band]
    most = 0.6 * (len(borders) + 1)
    return sum(count >= most for count in filled) <= 1 and (len(band) <= 3 or sum(filled) < 1.6 * len(band))


def tight_pitch(lines: list[TextLine]) -> float:
    """The distance of lines inside a cell, where it is clearly less than that of rows; else nothing."""
    gaps = sorted(after.middle - before.middle for before, after in pairwise(lines))
    height = median(line.height for line in lines)
    small = [gap for gap in gaps if gap <= 1.45 * height]
    large = [gap for gap in gaps if gap > 1.2 * (small[0] if small else height)]
    return 1.12 * small[0] if small and len(large) >= 0.4 * len(gaps) else 0.0


def goes_on(group: list[TextLine], before: TextLine, line: TextLine, pitch: float, borders: list[float]) -> bool:
    """Whether a line belongs to the row of the line before."""
    gap = line.middle - before.middle
    filled = {column_of(chunk, borders)[0] for chunk in line.chunks}
    above = {column_of(chunk, borders)[0] for one in group for chunk in one.chunks}
    if len(filled) == len(above) == len(borders) + 1:
        return False
    if pitch and gap <= pitch:
        return True
    if pitch or gap > 1.25 * max(before.height, line.height):
        return False
    # Lines as close as rows: only a rest of words under a fuller row, without the cell that names a row, goes on.
    numbers = any(any(letter.isdigit() for letter in word.text) for word in line.words)
    return 0 not in filled and not numbers and len(filled) <= 0.5 * (len(borders) + 1) and filled < above


def cells_of(group: list[TextLine], found: list[Span], borders: list[float]) -> list[Cell]:
    """Words that reach over a border make one cell of both columns."""
    parts: list[Part] = []
    for first, last, words in sorted(
        ((*column_of(chunk, borders), chunk.words) for line in group for chunk in line.chunks),
        key=lambda part: part[:2],
    ):
        if parts and first <= parts[-1][1]:
            parts[-1] = (parts[-1][0], max(last, parts[-1][1]), parts[-1][2] + words)
        else:
            parts.append((first, last, list(words)))
    row: list[Cell] = []
    for first, last, words in spread(parts, found):
        row += [Cell("") for _ in range(first - sum(cell.columns for cell in row))]
        row.append(Cell(text_of(words), 1, last - first + 1))
    return row + [Cell("") for _ in range(len(borders) + 1 - sum(cell.columns for cell in row))]


Part = tuple[int, int, list[Word]]
"""The first and the last column of a cell, and its words."""


def spread(parts: list[Part], found: list[Span]) -> list[Part]:
    """Words that reach over several columns stand in the middle of all that they are the title of."""
    if not parts or parts[0][0] == 0:
        return parts
    edges = [0, *(last for _, last, _ in parts), len(found)]
    starts = [first for first, _, _ in parts[1:]] + [len(found)]
    result = []
    for number, (first, last, words) in enumerate(parts):
        low = edges[number] + 1
        middle = (min(word.x0 for word in words) + max(word.x1 for word in words)) / 2
        slack = 0.8 * (words[0].y1 - words[0].y0)
        fitting = [
            (a, b)
            for a in range(low, first + 1)
            for b in range(last, starts[number])
            if last > first and abs((found[a][0] + found[b][1]) / 2 - middle) <= slack
        ]
        a, b = max(fitting, key=lambda span: span[1] - span[0], default=(first, last))
        edges[number + 1] = b
        result.append((a, b, words))
    return result


def is_table(table: list[list[Cell]]) -> bool:
    if len(table) < 2:
        return False
    filled = [sum(bool(cell.text) for cell in row) for row in table]
    if sum(count >= 2 for count in filled) < max(2, 0.5 * len(table)):
        return False
    if is_sparse(table) or has_axis(table):
        return False
    cells = [cell.text for row in table for cell in row if cell.text]
    if all(len(row) == 2 and PAGE.fullmatch(row[1].text) for row in table):
        return False  # titles and page numbers: a table of contents
    if not any(letter.isalpha() for text in cells for letter in text):
        return False  # the numbers of a chart
    return sum(len(text.split()) > PROSE for text in cells) <= 0.34 * len(cells)


def is_form(table: list[list[Cell]]) -> bool:
    """A head of several cells over rows of which only the first is filled: somebody is to write into the others."""
    if len(table) < 3 or not all(cell.text for cell in table[0]):
        return False
    return all(row[0].text and not any(cell.text for cell in row[1:]) for row in table[1:]) and all(
        len(row[0].text.split()) < PROSE for row in table
    )


def is_running(table: list[list[Cell]]) -> bool:
    """Columns of running text look like a table of few columns with much in every cell."""
    cells = [cell.text for row in table for cell in row if cell.text]
    return len(table[0]) <= 3 and sum(len(text.split()) for text in cells) > RUNNING * len(cells)


def is_sparse(table: list[list[Cell]]) -> bool:
    cells = [bool(cell.text) for row in table for cell in row]
    return sum(cells) < SPARSEST * len(cells)
