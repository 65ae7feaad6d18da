"""Where on a page tables may lie: between lines of one width, and what evidently belongs to a part already found."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from .aligned import TextLine, column_of, columns, text_lines
from .content import Rect, Word
from .ruled import PROSE, Line, Words, inside

NEAR = 2.3
"""Times the usual distance of lines: what stands farther off is no part of the table."""
SHORTEST_RULE, FARTHEST_RULE = 60.0, 300.0
MARGIN, TOUCHING = 90.0, 4.0
"""Points."""


def grown(box: Rect, words: Sequence[Word], upright: Sequence[Line], page: Rect) -> Rect:
    """The region with what evidently belongs to it: along drawn walls, beside its lines, above and below."""
    x0, y0, x1, y1 = box
    for line in upright:
        if (
            x0 - 3 <= line.at <= x1 + 3
            and line.start < y1
            and line.end > y0
            and line.end - line.start < 3 * (y1 - y0) + 60
        ):
            y0, y1 = min(y0, line.start), max(y1, line.end)
    x0, x1 = sideways((x0, y0, x1, y1), words, page)
    return upwards_and_down((x0, y0, x1, y1), words, page)


def sideways(box: Rect, words: Sequence[Word], page: Rect) -> tuple[float, float]:
    """A column that stands beside nearly every line of the region is part of it."""
    x0, y0, x1, y1 = box
    lines = text_lines(inside(words, (page[0], y0, page[2], y1)))
    left, right = [], []
    for line in lines:
        own = [number for number, chunk in enumerate(line.chunks) if chunk.x1 > x0 and chunk.x0 < x1]
        if not own:
            continue
        before, after = line.chunks[: own[0]], line.chunks[own[-1] + 1 :]
        left.append(before if all(len(chunk.words) < PROSE for chunk in before) else None)
        right.append(after if all(len(chunk.words) < PROSE for chunk in after) else None)
    for side in (left, right):
        if side and None not in side and sum(bool(part) for part in side) >= 0.7 * len(side):
            chunks = [chunk for part in side for chunk in part or ()]
            x0 = min([x0, *(chunk.x0 - 1 for chunk in chunks)])
            x1 = max([x1, *(chunk.x1 + 1 for chunk in chunks)])
    return x0, x1


def upwards_and_down(box: Rect, words: Sequence[Word], page: Rect) -> Rect:
    """Lines next to the region that have cells in its columns, such as a head that was left out."""
    x0, y0, x1, y1 = box
    own = text_lines(inside(words, box))
    found, borders = columns(own, (), box)
    if len(own) < 2 or len(found) < 2:
        return box
    pitch = median(after.middle - before.middle for before, after in pairwise(own))
    around = text_lines(inside(words, (x0 - MARGIN, page[1], x1 + MARGIN, page[3])))
    above = [line for line in around if line.middle < own[0].middle - 1]
    below = [line for line in around if line.middle > own[-1].middle + 1]
    edge = own[0].middle
    for line in reversed(above[-4:]):
        if not joins(line, edge, pitch, borders):
            break
        x0, x1 = min(x0, line.chunks[0].x0 - 1), max(x1, line.chunks[-1].x1 + 1)
        y0, edge = min(y0, line.y0 - 1), line.middle
    edge = own[-1].middle
    for line in below[:40]:
        if not joins(line, edge, pitch, borders):
            break
        y1, edge = max(y1, line.y1 + 1), line.middle
    return x0, y0, x1, y1


def joins(line: TextLine, edge: float, pitch: float, borders: list[float]) -> bool:
    """As many cells as there are columns, or at least two, each in a column of its own."""
    if abs(line.middle - edge) > NEAR * pitch or any(len(chunk.words) > PROSE for chunk in line.chunks):
        return False
    if len(line.chunks) == len(borders) + 1 > 2:
        return True
    places = [column_of(chunk, borders) for chunk in line.chunks]
    firsts = {first for first, _ in places}
    return len(firsts) >= 2 and len(firsts) == len(places) and all(first == last for first, last in places)


def stacks(level: Sequence[Line], words: Sequence[Word]) -> list[Rect]:
    """Lines of one width, one under the other, without running text between them: the rules of a table."""
    groups: list[list[Line]] = []
    for line in sorted(level, key=lambda line: line.at):
        if line.end - line.start < SHORTEST_RULE:
            continue
        for group in groups:
            last = group[-1]
            if abs(last.start - line.start) < 6 and abs(last.end - line.end) < 6 and line.at - last.at < FARTHEST_RULE:
                group.append(line)
                break
        else:
            groups.append([line])
    # Most lines have no others of their width: only the rest are held against the words.
    likely = ([line for line in group if not hugs_words(line, words)] for group in groups if len(group) >= 3)
    return [box for group in likely if len(group) >= 3 for box in cut_at_prose(group, words)]


def hugs_words(line: Line, words: Sequence[Word]) -> bool:
    """An underline, or an edge of the paper colour behind a line of text: as long as the words, which have no gap as
    wide as between cells."""
    at, left, right = line.at, line.start - 2, line.end + 2
    if isinstance(words, Words):
        words = words.between(at - words.tallest, at + words.tallest)
    above = [w for w in words if abs(at - w.y1) < 0.4 * (w.y1 - w.y0) and left <= w.x0 and w.x1 <= right]
    below = [w for w in words if abs(at - w.y0) < 0.4 * (w.y1 - w.y0) and left <= w.x0 and w.x1 <= right]
    for near in (above, below):
        if len(near) < 2 or len(text_lines(near)[-1].chunks) > 1:
            continue
        if min(word.x0 for word in near) < line.start + 3 and max(word.x1 for word in near) > line.end - 3:
            return True
    return False


def cut_at_prose(group: list[Line], words: Sequence[Word]) -> list[Rect]:
    left, right = min(line.start for line in group), max(line.end for line in group)
    parts = [[group[0]]]
    for above, below in pairwise(group):
        between = text_lines(inside(words, (left - 2, above.at, right + 2, below.at)))
        if any(is_prose(line, right - left) for line in between):
            parts.append([])
        parts[-1].append(below)
    return [
        (left, part[0].at, right, part[-1].at) for part in parts if len(part) >= 2 and part[-1].at - part[0].at > 15
    ]


def is_prose(line: TextLine, width: float) -> bool:
    return any(len(chunk.words) >= PROSE and chunk.x1 - chunk.x0 > 0.6 * width for chunk in line.chunks)


def united(boxes: Sequence[Rect]) -> list[Rect]:
    """Boxes that overlap become one."""
    result: list[Rect] = []
    for box in sorted(boxes, key=lambda box: box[1]):
        for number, other in enumerate(result):
            if min(box[2], other[2]) - max(box[0], other[0]) > 0.5 * min(box[2] - box[0], other[2] - other[0]) and (
                box[1] < other[3] + TOUCHING
            ):
                result[number] = (
                    min(box[0], other[0]),
                    min(box[1], other[1]),
                    max(box[2], other[2]),
                    max(box[3], other[3]),
                )
                break
        else:
            result.append(box)
    return result
