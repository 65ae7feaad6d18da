"""Which tables a page has: drawn ones first, then words that stand under one another, where there is evidence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median

from . import aligned, regions, ruled, sections
from .columns import rows_of, steps_of
from .content import Path, Rect, Word
from .lines import Line
from .paragraphs import BULLET, DASH, NUMBER
from .ruled import PROSE, Grid, Words

FIGURE = re.compile(r"(?<!\S)[^\s\w]?\d[\d.,%]*(?!\S)")
NUMERIC = re.compile(r"[-–+(€$£¥~<>≤≥]*\d[\d.,:/%)\s*†‡-]*[a-zA-Z%]{0,2}\)?|[-–—*†.…]+|n/?a\.?", re.IGNORECASE)
TYPED_RULE = re.compile(r"[-_=–—─━]{8,}")
"""A line that was typed."""
LETTERS = re.compile(r"[^\W\d_]{2}")
FARTHEST_EM = 3.2
"""From row to row of one table, between baselines."""
TIGHT_EM = 1.6
"""A line nearer than this belongs to the row above it, also when it is bold like a title."""
MIN_ROWS = 3


def find_tables(words: Sequence[Word], paths: Sequence[Path], page: Rect, hints: Sequence[Rect] = ()) -> list[Grid]:
    """*hints* are parts of the page where pieces of lines stand under one another."""
    level, upright = ruled.drawn(paths)
    typed = [word for word in words if TYPED_RULE.fullmatch(word.text)]
    if typed:
        level = ruled.merged([*level, *(ruled.Line(word.y, word.x0, word.x1) for word in typed)])
        words = [word for word in words if not TYPED_RULE.fullmatch(word.text)]
    own = Words(words)
    hints = [between_rules(hint, level, own) for hint in hints]
    area = (page[2] - page[0]) * (page[3] - page[1])
    grids = ruled.grids(area, level, upright, own)
    shaky = [grid for grid in grids if is_shaky(grid, grids, hints, own)]
    sure = [grid for grid in grids if grid not in shaky]
    wanted = [*hints, *(grid.box for grid in shaky)]
    for box in regions.united([*wanted, *regions.stacks(level, own)]):
        if any(mostly_inside(box, grid.box) or mostly_inside(grid.box, box) for grid in sure):
            continue
        region = regions.grown(box, own, upright, page)
        known = [grid for grid in shaky if mostly_inside(grid.box, region)]
        hinted = any(mostly_inside(hint, region) for hint in wanted)
        drawn = [grid for grid in known if not has_stacked_numbers(grid)]
        grid = aligned.build(region, own, level, upright, drawn, frame=hinted)
        if grid is not None:
            sure.append(grid)
        else:
            sure += known
    return sections.put_together(sure, own, level, upright) if len(sure) > 1 else sure


def between_rules(hint: Rect, level: Sequence[ruled.Line], words: Sequence[Word]) -> Rect:
    """The whole table, where a rule above and one of the same reach below enclose the part, and no running text."""
    x0, y0, x1, y1 = hint
    wide = [line for line in level if line.start <= x0 + 6 and line.end >= x1 - 6]
    above = max((line for line in wide if line.at <= y0 + 2), key=lambda line: line.at, default=None)
    below = min((line for line in wide if line.at >= y1 - 2), key=lambda line: line.at, default=None)
    if above is None or below is None or below.at - above.at > 3 * (y1 - y0) + 60:
        return hint
    if abs(above.start - below.start) > 6 or abs(above.end - below.end) > 6:
        return hint
    return next(iter(regions.cut_at_prose([above, below], words)), hint)


def find_hints(lines: Sequence[Line], *, is_column: bool) -> list[Rect]:
    """Runs of rows that are cut into several short pieces.

    Over the whole page a row needs three pieces, or numbers: two pieces may be two columns of text. Inside a column
    two are enough.
    """
    hints: list[Rect] = []
    run: list[list[Line]] = []
    for row in rows_of(lines):
        last = run[-1][0] if run else None
        is_near = last is not None and row[0].base - last.base < FARTHEST_EM * max(last.size, row[0].size)
        is_tight = last is not None and row[0].base - last.base < TIGHT_EM * max(last.size, row[0].size)
        kind = row_kind(row, is_column=is_column, is_tight=is_tight)
        if kind and (is_near or not run):
            run.append(row)
            continue
        hints += [box for part in split_at_titles(run) for box in close_run(part, is_column=is_column)]
        run = [row] if kind > 1 else []
    hints += [box for part in split_at_titles(run) for box in close_run(part, is_column=is_column)]
    return hints


def split_at_titles(run: list[list[Line]]) -> list[list[list[Line]]]:
    """A line alone after a wider gap than between rows begins another table."""
    pitch = median(gap) if (gap := steps_of(run)) else 0.0
    parts: list[list[list[Line]]] = [[]]
    for number, row in enumerate(run):
        if number and len(row) == 1 and row[0].base - run[number - 1][0].base > 1.7 * pitch:
            parts.append([])
        parts[-1].append(row)
    return parts


def row_kind(row: Sequence[Line], *, is_column: bool, is_tight: bool) -> int:
    """2 for a row of cells, 1 for what may be a rest of one, 0 for running text."""
    if any(sum(map(is_lettered, line.words)) >= PROSE for line in row):
        return 0
    if len(row) == 1:
        line = row[0]
        return int(len(line.words) < PROSE - 3 and not BULLET.match(line.text) and (is_tight or not line.bold))
    first = row[0].text
    if len(row) == 2 and (BULLET.match(first) or DASH.match(first) or NUMBER.match(first)) and len(first) < 6:
        return 0
    numbers = sum(NUMERIC.fullmatch(line.text) is not None for line in row)
    if len(row) >= 3 or numbers or is_column or are_numbers(row[-1]):
        return 2
    return int(is_tight and all(len(line.words) < 5 for line in row))


def is_lettered(word: Word) -> bool:
    return any(map(str.isalpha, word.text))


def are_numbers(line: Line) -> bool:
    """Several of them, which stand closer together than words."""
    return len(line.words) > 2 and all(NUMERIC.fullmatch(word.text) for word in line.words)


def close_run(run: list[list[Line]], *, is_column: bool) -> list[Rect]:
    """The box of the run, without single pieces at its ends."""
    several = sum(row_kind(row, is_column=is_column, is_tight=False) > 1 for row in run)
    while run and len(run[-1]) == 1:
        run.pop()
    while run and len(run[0]) == 1:
        run.pop(0)
    widest = max((len(row) for row in run), default=0)
    if several < (MIN_ROWS if widest < 4 else 2) or 2 * several < len(run):
        return []
    lines = [line for row in run for line in row]
    return [
        (
            min(line.x0 for line in lines) - 1,
            min(line.y0 for line in lines) - 1,
            max(line.x1 for line in lines) + 1,
            max(line.y1 for line in lines) + 1,
        )
    ]


def is_shaky(grid: Grid, grids: list[Grid], hints: Sequence[Rect], words: Sequence[Word]) -> bool:
    """Its lines do not tell the whole table."""
    if has_empty_row(grid) or has_stacked_numbers(grid):
        return True
    if any(other is not grid and follows(grid, other) for other in grids):
        return True
    return any(mostly_inside(grid.box, box) and reaches_beyond(box, grid.box, words) for box in hints)


def reaches_beyond(box: Rect, grid: Rect, words: Sequence[Word]) -> bool:
    """The table has rows that its lines do not enclose; a paragraph above or below it is no row."""
    if box[1] >= grid[1] - 8 and box[3] <= grid[3] + 8:
        return False
    above, below = (box[0], box[1], box[2], grid[1]), (box[0], grid[3], box[2], box[3])
    lines = [line for part in (above, below) for line in aligned.text_lines(ruled.inside(words, part))]
    return any(len(line.chunks) > 1 for line in lines)


def has_empty_row(grid: Grid) -> bool:
    return any(row and not any(cell.text for cell in row) for row in grid.rows)


def has_stacked_numbers(grid: Grid) -> bool:
    """Only the head is drawn: what should be rows stands in one cell, number under number."""
    for row in grid.rows:
        full = [cell for cell in row if cell.text]
        stacked = sum(len(FIGURE.findall(cell.text)) >= 3 and not LETTERS.search(cell.text) for cell in full)
        if len(full) >= 2 and 2 * stacked > len(full):
            return True
    return False


def follows(one: Grid, other: Grid) -> bool:
    """Two grids of the same width one under the other are often one table whose middle has no lines."""
    upper, lower = sorted((one.box, other.box), key=lambda box: box[1])
    same = abs(upper[0] - lower[0]) < 5 and abs(upper[2] - lower[2]) < 5
    return same and lower[1] - upper[3] < 30


def mostly_inside(inner: Rect, outer: Rect) -> bool:
    width = min(inner[2], outer[2]) - max(inner[0], outer[0])
    height = min(inner[3], outer[3]) - max(inner[1], outer[1])
    return width > 0 and height > 0 and width * height > 0.6 * ruled.size(inner)
