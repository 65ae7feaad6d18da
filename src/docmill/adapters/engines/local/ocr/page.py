"""One picture from pixels to Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...markdown import table
from ...places import Piece
from . import grids, layout, models, upright, writing
from .chinese import Habits
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
    pieces: tuple[Piece, ...] = ()
    """What the Markdown is made of, in its order, each where it stands on the picture as it was given."""


def read(image: Image) -> Reading:
    import numpy
    from PIL import ImageOps

    picture = image.convert("RGB")
    picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    rim = THINNEST // 2 if min(picture.size) < THINNEST else 0
    picture = ImageOps.expand(picture, rim, "white") if rim else picture
    quarters, degrees = 0, 0.0
    if min(picture.size) >= PAGE_SIDE:
        quarters = upright.turns(picture)
        picture = picture.rotate(90 * quarters, expand=True) if quarters else picture
        degrees = upright.skew(picture)
        picture = upright.straightened(picture, degrees)
    pixels = numpy.ascontiguousarray(numpy.asarray(picture)[:, :, ::-1])
    lines = models.find_lines(pixels, fax=is_fax(image))
    if not lines:
        return Reading()
    return assemble(pixels, lines, upright.Pose(picture.width, picture.height, quarters, degrees, rim))


def is_fax(image: Image) -> bool:
    """A page in black and white, with hardly any grey."""
    if min(image.size) < PAGE_SIDE:
        return False
    return sum(image.convert("L").histogram()[GREYS]) <= FEW_GREYS * image.width * image.height


def assemble(pixels: object, lines: list[Line], pose: upright.Pose) -> Reading:
    habits = Habits.of(line.text for line in lines)
    head, body, foot = layout.apart(lines, pose.height)
    framed, rest = grids.ruled(pixels, body)
    parts: list[str] = []
    tables: list[tuple[list[list[str]], Box | None]] = []
    pieces: list[Piece] = []

    def add(rows: list[Row]) -> None:
        markdown, found, made = writing.write(rows, habits)
        parts.append(markdown)
        tables.extend((cells, pose.box(frame)) for cells, frame in found)
        pieces.extend((kind, text, pose.boxes(frames)) for kind, text, frames in made)

    rows = layout.order(rest)
    for grid in framed:
        before = [row for row in rows if row.middle < grid.frame[1] or row.right < grid.frame[0]]
        add(before)
        rows = [row for row in rows if row not in before]
        cells = habits.cells(grid.cells)
        parts.append(table(cells))
        tables.append((cells, pose.box(grid.frame)))
        pieces.append(("table", parts[-1], pose.boxes([grid.frame])))
    add(rows)
    for edge in (head, foot):
        add(layout.rows(edge) if edge else [])
    markdown = "\n\n".join(filter(None, parts))
    return Reading(markdown, tuple(tables), 90 * pose.quarters, pose.degrees, tuple(pieces))
