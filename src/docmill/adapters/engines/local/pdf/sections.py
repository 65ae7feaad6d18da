"""Tables that titles part into sections: what was found in pieces is put together again."""

from __future__ import annotations

from collections.abc import Sequence

from . import aligned
from .content import Rect, Word
from .ruled import PROSE, Grid, Line, inside

FARTHEST = 40.0
INDENT = 20.0
"""Points: between the pieces, and from the table's left edge to a title."""
MOST_TITLES = 2


def put_together(
    grids: Sequence[Grid], words: Sequence[Word], level: Sequence[Line], upright: Sequence[Line]
) -> list[Grid]:
    """Pieces of as many columns one under the other, with nothing but titles between them, if their words agree."""
    result: list[Grid] = []
    for grid in sorted(grids, key=lambda grid: grid.box[1]):
        number = next((n for n, other in enumerate(result) if is_next(other, grid, words)), None)
        whole = rebuilt(result[number], grid, words, level, upright) if number is not None else None
        if number is None or whole is None:
            result.append(grid)
        else:
            result[number] = whole
    return result


def is_next(upper: Grid, lower: Grid, words: Sequence[Word]) -> bool:
    (left, _, right, bottom), (x0, top, x1, _) = upper.box, lower.box
    shared = min(right, x1) - max(left, x0)
    if upper.width != lower.width or shared < 0.8 * max(right - left, x1 - x0):
        return False
    if not -1 <= top - bottom <= FARTHEST or upper.below or lower.above:
        return False
    edge = min(left, x0)
    between = aligned.text_lines(inside(words, (edge - INDENT, bottom + 1, max(right, x1), top - 1)))
    return 0 < len(between) <= MOST_TITLES and all(is_title(line, edge) for line in between)


def is_title(line: aligned.TextLine, edge: float) -> bool:
    return len(line.chunks) == 1 and len(line.words) < PROSE and line.chunks[0].x0 < edge + INDENT


def rebuilt(
    upper: Grid, lower: Grid, words: Sequence[Word], level: Sequence[Line], upright: Sequence[Line]
) -> Grid | None:
    box = around(upper.box, lower.box, words)
    whole = aligned.build(box, words, level, upright, [], frame=False)
    if whole is None or whole.width != upper.width or len(whole.rows) <= len(upper.rows) + len(lower.rows):
        return None
    return whole


def around(upper: Rect, lower: Rect, words: Sequence[Word]) -> Rect:
    left, right = min(upper[0], lower[0]), max(upper[2], lower[2])
    titles = inside(words, (left - INDENT, upper[3], right, lower[1]))
    return min([left, *(word.x0 - 1 for word in titles)]), upper[1], right, lower[3]
