"""Text from pictures, in reading order."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import TYPE_CHECKING, Any

from .markdown import CJK, tidy

if TYPE_CHECKING:
    from PIL.Image import Image

LONGEST_SIDE = 3000
THINNEST = 32
"""Pixels. The detector shrinks what is thinner to nothing, and fails."""
SURE = 0.5
SKEW = math.radians(0.3)
NARROW = 0.6
HEADING = 1.4
ENDS_CJK = re.compile(f"[{CJK}]$")
STARTS_CJK = re.compile(f"^[{CJK}]")


@dataclass(frozen=True, slots=True)
class Line:
    """A piece of text as the recogniser found it, in pixels of the straightened picture."""

    text: str
    x0: float
    y0: float
    x1: float
    y1: float

    @property
    def height(self) -> float:
        return self.y1 - self.y0

    @property
    def width(self) -> float:
        return self.x1 - self.x0


@cache
def recogniser() -> Any:
    """The models that lie in the wheel: nothing is downloaded. The line classifier turns upright German lines: off."""
    from rapidocr import RapidOCR

    return RapidOCR(
        params={
            "Global.use_cls": False,
            "Global.log_level": "error",
            "Rec.rec_batch_num": 1,
            # The default enlarges until the *short* side has 736 pixels: a strip of text cost 4 s instead of 0.1.
            "Det.limit_type": "max",
            "Det.limit_side_len": 1600,
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        }
    )


def to_markdown(image: Image) -> str:
    return assemble(recognise(image))


def recognise(image: Image) -> list[Line]:
    import numpy
    from PIL import ImageOps

    picture = image.convert("RGB")
    picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    if min(picture.size) < THINNEST:
        picture = ImageOps.expand(picture, THINNEST // 2, "white")
    found = recogniser()(numpy.asarray(picture)[:, :, ::-1])
    if found.boxes is None or found.txts is None:
        return []
    pieces = [
        (text, box.tolist())
        for text, box, score in zip(found.txts, found.boxes, found.scores, strict=True)
        if score >= SURE and text.strip()
    ]
    return straighten(pieces)


def straighten(pieces: list[tuple[str, list[list[float]]]]) -> list[Line]:
    """Turn the boxes, not the picture: order needs level lines, recognition does not."""
    angles = [math.atan2(box[1][1] - box[0][1], box[1][0] - box[0][0]) for text, box in pieces if len(text) > 8]
    angle = median(angles) if angles else 0.0
    if abs(angle) < SKEW or abs(angle) > math.radians(20):
        angle = 0.0
    cos, sin = math.cos(-angle), math.sin(-angle)
    lines = []
    for text, box in pieces:
        corners = [(x * cos - y * sin, x * sin + y * cos) for x, y in box]
        xs, ys = [x for x, _ in corners], [y for _, y in corners]
        lines.append(Line(text.strip(), min(xs), min(ys), max(xs), max(ys)))
    return lines


def order(lines: list[Line]) -> list[list[Line]]:
    """Rows in reading order: columns one after the other, lines across them cut the page into bands."""
    gap = column_gap(lines)
    if gap is None:
        return rows(lines)
    result: list[list[Line]] = []
    band: list[Line] = []
    for line in [*sorted(lines, key=lambda line: (line.y0 + line.y1) / 2), None]:
        if line is not None and not line.x0 < gap < line.x1:
            band.append(line)
            continue
        result += order([piece for piece in band if piece.x1 <= gap])
        result += order([piece for piece in band if piece.x0 >= gap])
        band = []
        if line is not None:
            result.append([line])
    return result


def column_gap(lines: list[Line]) -> float | None:
    """Where to cut into columns of running text; cells of a table are too short for that."""
    if len(lines) < 8:
        return None
    left, right = min(line.x0 for line in lines), max(line.x1 for line in lines)
    narrow = [line for line in lines if line.width < NARROW * (right - left)]
    best: tuple[int, float] | None = None
    for step in range(20, 81):
        x = left + (right - left) * step / 100
        crossing = sum(line.x0 < x < line.x1 for line in narrow)
        before = [line for line in narrow if line.x1 <= x]
        after = [line for line in narrow if line.x0 >= x]
        if crossing * 20 > len(narrow) or min(len(before), len(after)) < 4:
            continue
        if is_column(before) and is_column(after) and (best is None or crossing < best[0]):
            best = (crossing, x)
    return best[1] if best else None


def is_column(lines: list[Line]) -> bool:
    extent = max(line.x1 for line in lines) - min(line.x0 for line in lines)
    return median(line.width for line in lines) > extent / 2


def rows(lines: list[Line]) -> list[list[Line]]:
    """Pieces on the same height form a row."""
    result: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: (line.y0 + line.y1) / 2):
        last = result[-1][-1] if result else None
        if last is not None and min(line.y1, last.y1) - max(line.y0, last.y0) > 0.5 * min(line.height, last.height):
            result[-1].append(line)
        else:
            result.append([line])
    return [sorted(row, key=lambda line: line.x0) for row in result]


def assemble(lines: list[Line]) -> str:
    """Rows to paragraphs: a gap, a short line before, or larger letters begin a new one."""
    if not lines:
        return ""
    usual = median(line.height for line in lines)
    paragraphs: list[str] = []
    before: list[Line] | None = None
    for row in order(lines):
        text = " ".join(line.text for line in row)
        if is_heading(row, usual):
            paragraphs.append(f"## {text}")
            before = None
        elif before is not None and continues(before, row, usual):
            paragraphs[-1] = join(paragraphs[-1], text)
            before = row
        else:
            paragraphs.append(text)
            before = row
    return tidy("\n\n".join(paragraphs))


def is_heading(row: list[Line], usual: float) -> bool:
    return len(row) == 1 and row[0].height > HEADING * usual and 2 < len(row[0].text) < 100


def continues(before: list[Line], row: list[Line], usual: float) -> bool:
    if len(before) > 1 or len(row) > 1 or re.match(r"[•·▪\-–]\s|\d{1,2}[.)]\s", row[0].text):
        return False
    gap = row[0].y0 - before[0].y1
    return -usual < gap < 0.9 * usual and before[0].x1 > row[0].x1 - 0.25 * row[0].width


def join(first: str, second: str) -> str:
    if ENDS_CJK.search(first) and STARTS_CJK.search(second):
        return first + second
    if re.search(r"[a-zäöüß]-$", first) and second[:1].islower():
        return first[:-1] + second
    return f"{first} {second}"
