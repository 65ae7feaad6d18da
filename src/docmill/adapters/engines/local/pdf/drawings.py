"""What is drawn with lines and curves instead of letters or pixels: charts, diagrams, formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .content import Path, Rect
from .lines import Line

NEAR = 8.0
"""Points between parts of one drawing."""
MAX_PATHS = 4_000
"""More is a map or a background."""
MAX_OPEN = 60
"""Drawings that are looked at for each part: the newest, from top to bottom."""
MIN_PARTS = 6
MIN_SIDE = 0.06
"""Of the page: the least width and height of a chart."""
MAX_AREA = 0.7
MIN_FORMULA_WIDTH, MAX_FORMULA_HEIGHT = 14.0, 70.0
PROSE_WORDS = 6
MAX_PROSE = 0.3
"""Of the words inside: with more, it is text with a frame."""


@dataclass(slots=True)
class Drawing:
    box: Rect
    parts: int = 1
    curved: int = 0
    is_formula: bool = False


def find_drawings(paths: Sequence[Path], lines: Sequence[Line], taken: Sequence[Rect], page: Rect) -> list[Drawing]:
    """*taken* are tables and pictures, whose lines belong to them."""
    if not MIN_PARTS - 3 <= len(paths) <= MAX_PATHS:
        return []
    width, height = page[2] - page[0], page[3] - page[1]
    own = [path for path in paths if is_part(path, width, height) and not any(covers(box, path.box) for box in taken)]
    found = []
    for drawing in cluster(own):
        x0, y0, x1, y1 = drawing.box
        inside = [line for line in lines if covers(grown(drawing.box), line.box)]
        is_large = x1 - x0 >= MIN_SIDE * width and y1 - y0 >= MIN_SIDE * height
        if (x1 - x0) * (y1 - y0) > MAX_AREA * width * height or holds_prose(inside):
            continue
        if is_large and drawing.parts >= MIN_PARTS:
            found.append(drawing)
        elif is_formula(drawing, lines):
            drawing.is_formula = True
            found.append(drawing)
    return found


def is_part(path: Path, width: float, height: float) -> bool:
    """Rules across the page and backgrounds are no part of a drawing."""
    x0, y0, x1, y1 = path.box
    is_rule = min(x1 - x0, y1 - y0) <= 3 and max((x1 - x0) / width, (y1 - y0) / height) > 0.5
    return not is_rule and (x1 - x0) * (y1 - y0) < 0.5 * width * height


def cluster(paths: Sequence[Path]) -> list[Drawing]:
    """Parts that touch or nearly touch one another."""
    found: list[Drawing] = []
    for path in sorted(paths, key=lambda path: path.box[1]):
        mine = Drawing(path.box, 1, int(path.curved))
        rest = []
        for other in found[-MAX_OPEN:]:
            if touches(mine.box, other.box):
                mine = Drawing(around(mine.box, other.box), mine.parts + other.parts, mine.curved + other.curved)
            else:
                rest.append(other)
        found[-MAX_OPEN:] = [*rest, mine]
    return found


def is_formula(drawing: Drawing, lines: Sequence[Line]) -> bool:
    """Drawn letters on lines of their own; the number of the formula may stand beside them."""
    x0, y0, x1, y1 = drawing.box
    if drawing.curved < 2 or x1 - x0 < MIN_FORMULA_WIDTH or not 6 <= y1 - y0 <= MAX_FORMULA_HEIGHT:
        return False
    beside = [line for line in lines if min(line.y1, y1) - max(line.y0, y0) > 0.3 * (line.y1 - line.y0)]
    return all(len(line.words) <= 2 for line in beside)


def holds_prose(lines: Sequence[Line]) -> bool:
    words = sum(len(line.words) for line in lines)
    return sum(len(line.words) for line in lines if len(line.words) >= PROSE_WORDS) > MAX_PROSE * words


def grown(box: Rect, by: float = 2.0) -> Rect:
    return box[0] - by, box[1] - by, box[2] + by, box[3] + by


def covers(outer: Rect, inner: Rect) -> bool:
    x, y = (inner[0] + inner[2]) / 2, (inner[1] + inner[3]) / 2
    return outer[0] <= x <= outer[2] and outer[1] <= y <= outer[3]


def touches(one: Rect, other: Rect) -> bool:
    return (
        one[0] < other[2] + NEAR and other[0] < one[2] + NEAR and one[1] < other[3] + NEAR and other[1] < one[3] + NEAR
    )


def around(one: Rect, other: Rect) -> Rect:
    return min(one[0], other[0]), min(one[1], other[1]), max(one[2], other[2]), max(one[3], other[3])
