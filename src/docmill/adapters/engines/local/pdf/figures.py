"""Figures are cut out of the page as it is displayed; tables are kept with their cells."""

from __future__ import annotations

import io
import itertools
from typing import TYPE_CHECKING, Any

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from docmill.core.parsed import Box, clamp

from ...markdown import image_link
from ..job import Job
from .blocks import Block, html, written
from .content import PageContent, Rect
from .headings import is_caption
from .survey import OpenPages, drawn

if TYPE_CHECKING:
    from PIL.Image import Image

SHOW_DPI = 130
DRAWING_COLOURS = 2048
SMALLEST_SIDE = 0.03
"""Of the page. Bullets, rules and icons are no figures."""
WHOLE_PAGE = 0.95
SAME_PLACE = 0.01
SMALLEST_JPEG, LARGEST_JPEG = 2_000, 2_000_000
"""Bytes. A smaller one may be a background of one colour; a larger one is drawn again at the size it is shown."""
MOST = 40
"""Figures of one page: a drawing that falls to pieces must not fill the store."""


def keep(job: Job, cutter: Cutter, index: int, blocks: list[Block]) -> None:
    """Give every figure its picture and link, every table its asset."""
    pictures = 0
    for number, block in enumerate(blocks):
        if block.kind == "figure":
            pictures += 1
            caption = caption_of(blocks, number)
            block.text = "" if pictures > MOST else picture(job, cutter, index, block, caption)
        elif block.kind == "table" and block.rows:
            anchor = written(block).partition("\n")[0]
            if anchor.startswith("<table"):
                anchor = written(block)[:400]
            job.add_table(html(block.rows) + "\n", index, block.box and clamp(*block.box), anchor=anchor)


def picture(job: Job, cutter: Cutter, index: int, block: Block, caption: str) -> str:
    box = block.box and clamp(*block.box)
    if not box or not (is_figure(box) or block.marker == "formula"):
        return ""
    try:
        data = cutter.cut(box)
    except (pdfium.PdfiumError, ValueError):
        return ""
    name = job.add_image(data, index, box, ocr_text=block.text) if data else None
    return image_link(name, caption) if name else ""


class Cutter:
    """Cuts figures out of one page, which is opened for the first of them only."""

    def __init__(self, pages: OpenPages, index: int, content: PageContent) -> None:
        self._pages, self._index, self._content = pages, index, content

    def cut(self, box: Box) -> bytes:
        """The figure as a file; nothing if it is a background."""
        page = self._pages[self._index]
        if (alone := self._alone(page, box)) is not None and (photograph := as_it_is(alone)) is not None:
            return photograph
        image = drawn(page, SHOW_DPI, box)
        return b"" if is_one_colour(image) else encoded(image)

    def _alone(self, page: Any, box: Box) -> Any:
        """The picture, as it lies in the document, that fills the box upright and has nothing drawn over it."""
        if page.get_rotation() or not is_bare(self._content, box):
            return None
        x0, y0, x1, y1 = page.get_cropbox()
        width, height = x1 - x0, y1 - y0
        kinds = [pdfium_c.FPDF_PAGEOBJ_IMAGE]
        for item in itertools.islice(page.get_objects(filter=kinds, max_depth=1), MOST):
            left, bottom, right, top = item.get_bounds()
            own = ((left - x0) / width, (y1 - top) / height, (right - x0) / width, (y1 - bottom) / height)
            if max(abs(one - other) for one, other in zip(own, box, strict=True)) < SAME_PLACE:
                return item if is_upright(item) else None
        return None


def is_upright(item: Any) -> bool:
    matrix = item.get_matrix()
    upright = matrix.a > 0 and matrix.d > 0 and abs(matrix.b) + abs(matrix.c) < 0.01
    return upright and not pdfium_c.FPDFPageObj_HasTransparency(item.raw)


def is_bare(content: PageContent, box: Box) -> bool:
    """Whether no words and no drawing lie over the box."""
    width, height = content.width, content.height
    x0, y0, x1, y1 = box[0] * width, box[1] * height, box[2] * width, box[3] * height

    def touches(other: Rect) -> bool:
        return other[0] < x1 - 1 and other[2] > x0 + 1 and other[1] < y1 - 1 and other[3] > y0 + 1

    return not any(touches(word.box) for word in content.words) and not any(touches(p.box) for p in content.paths)


def as_it_is(item: Any) -> bytes | None:
    """The bytes of a plain JPEG of sensible size."""
    from PIL import Image, UnidentifiedImageError

    if item.get_filters() != ["DCTDecode"]:
        return None
    data = bytes(item.get_data(decode_simple=False))
    try:
        with Image.open(io.BytesIO(data)) as image:
            plain = image.format == "JPEG" and image.mode in ("RGB", "L")
    except (UnidentifiedImageError, OSError, ValueError):
        return None
    return data if plain and SMALLEST_JPEG < len(data) < LARGEST_JPEG else None


def encoded(image: Image) -> bytes:
    """Drawings keep their sharp edges; photographs would take long, and much room, as PNG."""
    out = io.BytesIO()
    if image.getcolors(DRAWING_COLOURS) is not None:
        image.save(out, "PNG", compress_level=1)  # quicker than 4, and after PNG's own filters seldom larger
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
            if block.kind == "caption" or (block.kind in ("text", "heading") and is_caption(block.text.strip("*_ "))):
                return block.text.strip("*_ ")[:200]
    return ""
