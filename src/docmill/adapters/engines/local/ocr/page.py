"""One picture from pixels to Markdown."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..markdown import table
from . import grids, layout, models, upright, writing
from .layout import Row
from .lines import Line

if TYPE_CHECKING:
    from PIL.Image import Image

    from docmill.core.parsed import Box

LONGEST_SIDE = 3000
THINNEST = 32
"""Pixels. The detector shrinks what is thinner to nothing, and fails."""
GREYS = slice(32, 224)
FEW_GREYS = 0.002
FAX_SCALE = 0.855
PAGE_SIDE = 600
"""Smaller pictures are no pages: they are neither turned nor straightened."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a picture says."""

    markdown: str = ""
    tables: tuple[tuple[list[list[str]], Box | None], ...] = ()
    """The cells of each table, and where it is, if that is known."""
    turned: int = 0
    """By how many degrees, against the clock, the picture was turned to read it."""
    skew: float = 0.0


def to_markdown(image: Image) -> str:
    return read(image).markdown


def read(image: Image) -> Reading:
    import numpy
    from PIL import ImageOps

    picture = smoothed(image).convert("RGB")
    picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    if min(picture.size) < THINNEST:
        picture = ImageOps.expand(picture, THINNEST // 2, "white")
    quarters, degrees = 0, 0.0
    if min(picture.size) >= PAGE_SIDE:
        quarters = upright.turns(picture)
        picture = picture.rotate(90 * quarters, expand=True) if quarters else picture
        degrees = upright.skew(picture)
        picture = upright.straightened(picture, degrees)
    pixels = numpy.ascontiguousarray(numpy.asarray(picture)[:, :, ::-1])
    lines = models.find_lines(pixels)
    if not lines:
        return Reading()
    return assemble(pixels, lines, quarters, degrees)


def smoothed(image: Image) -> Image:
    """A fax knows black and white only. Shrunk a little its letters get greys, and are read far better."""
    from PIL.Image import Resampling

    grey = image.convert("L")
    counts = grey.histogram()
    between = sum(counts[GREYS])
    if min(image.size) < PAGE_SIDE or between > FEW_GREYS * image.width * image.height:
        return image
    size = (round(FAX_SCALE * image.width), round(FAX_SCALE * image.height))
    return grey.resize(size, Resampling.BILINEAR, reducing_gap=None)


def assemble(pixels: object, lines: list[Line], quarters: int, degrees: float) -> Reading:
    height, width = pixels.shape[:2]  # type: ignore[attr-defined]
    head, body, foot = layout.apart(lines, height)
    framed, rest = grids.ruled(pixels, body)
    parts: list[str] = []
    tables: list[tuple[list[list[str]], Box | None]] = []

    def add(rows: list[Row]) -> None:
        markdown, found = writing.write(rows)
        parts.append(markdown)
        tables.extend((cells, None) for cells in found)

    rows = layout.order(rest)
    for grid in framed:
        before = [row for row in rows if row.middle < grid.frame[1] or row.right < grid.frame[0]]
        add(before)
        rows = [row for row in rows if row not in before]
        parts.append(table(grid.cells))
        x0, y0, x1, y1 = grid.frame
        is_straight = not quarters and math.isclose(degrees, 0.0)
        tables.append((grid.cells, (x0 / width, y0 / height, x1 / width, y1 / height) if is_straight else None))
    add(rows)
    for edge in (head, foot):
        add(layout.rows(edge) if edge else [])
    return Reading("\n\n".join(filter(None, parts)), tuple(tables), 90 * quarters, degrees)
