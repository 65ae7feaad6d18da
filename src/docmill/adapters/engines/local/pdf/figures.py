"""Figures are cut out of the page as it is displayed; tables are kept with their cells."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pypdfium2 as pdfium

from docmill.core.parsed import Box

from ..job import Job, clamp
from ..markdown import image_link
from .blocks import Block, html, written
from .quick import CAPTION
from .survey import rendered

if TYPE_CHECKING:
    from PIL.Image import Image

SHOW_DPI = 130
DRAWING_COLOURS = 2048
SMALLEST_SIDE = 0.03
"""Of the page. Bullets, rules and icons are no figures."""
WHOLE_PAGE = 0.95
MOST = 40
"""Figures of one page: a drawing that falls to pieces must not fill the store."""


def keep(job: Job, document: Any, index: int, blocks: list[Block]) -> None:
    """Give every figure its picture and link, every table its asset."""
    pictures = 0
    for number, block in enumerate(blocks):
        if block.kind == "figure":
            pictures += 1
            block.text = "" if pictures > MOST else picture(job, document, index, block, caption_of(blocks, number))
        elif block.kind == "table" and block.rows:
            anchor = written(block).partition("\n")[0]
            if anchor.startswith("<table"):
                anchor = written(block)[:400]
            job.add_table(html(block.rows) + "\n", index, block.box and clamp(*block.box), anchor=anchor)


def picture(job: Job, document: Any, index: int, block: Block, caption: str) -> str:
    box = block.box and clamp(*block.box)
    if not box or not is_figure(box):
        return ""
    try:
        image = rendered(document, index, SHOW_DPI, box)
    except (pdfium.PdfiumError, ValueError):
        return ""
    if is_one_colour(image):
        return ""
    name = job.add_image(encoded(image), index, box, ocr_text=block.text)
    return image_link(name, caption) if name else ""


def encoded(image: Image) -> bytes:
    """Drawings keep their sharp edges; photographs would take long, and much room, as PNG."""
    out = io.BytesIO()
    if image.getcolors(DRAWING_COLOURS) is not None:
        image.save(out, "PNG", compress_level=4)
    else:
        image.save(out, "JPEG", quality=88)
    return out.getvalue()


def is_one_colour(image: Image) -> bool:
    """A background, not a figure."""
    return image.getcolors(1) is not None


def is_figure(box: Box) -> bool:
    width, height = box[2] - box[0], box[3] - box[1]
    return min(width, height) >= SMALLEST_SIDE and width * height < WHOLE_PAGE


def caption_of(blocks: list[Block], number: int) -> str:
    """The words beside a figure that begin like a caption."""
    for near in (number + 1, number + 2, number - 1):
        if 0 <= near < len(blocks):
            block = blocks[near]
            if block.kind == "caption" or (
                block.kind in ("text", "heading") and CAPTION.match(block.text.lstrip("*_ "))
            ):
                return block.text.strip("*_ ")[:200]
    return ""
