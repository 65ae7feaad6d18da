"""What PDFium knows of a page before anybody parses it, and pictures of pages."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from docmill.core.errors import DocumentError
from docmill.core.parsed import Box

from .. import vortex

if TYPE_CHECKING:
    from PIL.Image import Image

SCAN_COVER = 0.5
FEW_LETTERS = 20
STAMP_LETTERS = 120
SHORT = 240
"""Letters. Pages with fewer are looked at more closely."""
EMPTY_UTF16 = 2
LONGEST_SIDE = 3500
MOST_OBJECTS = 2000
SENSIBLE_SIDE = (1, 100_000)
"""Points. PDF once ended at 14,400; liteparse's memory grows with the area."""
ERROR_PASSWORD = 4
KEPT_OPEN = 2
NARROW, TELLING = 0.22, 12
"""Times its box's height: so wide is a letter on the average of so many, unless the box is twice as high as a line."""
SMALL = 4 << 20
"""Bytes. A smaller file is read once for all who look at it: PDFium takes a file in small pieces, each a call to the
system."""
Source = Path | bytes
"""Where a file is, or all of it."""
ODD = re.compile("[\\ue000-\\uf8ff\\ufffd\\x00-\\x08\\x0e-\\x1b]")


@dataclass(slots=True)
class Survey:
    text: str = ""
    letters: int = 0
    garbled: bool = False
    picture_cover: float = 0.0
    paths: int = 0
    damage: str | None = None
    is_odd: bool = False
    """Its size makes no sense: the text is all that is taken from it."""
    hides_text: bool = False
    """There is more text than PDFium gives."""
    is_told: bool = False
    """By liteparse: PDFium was not asked."""

    @property
    def is_blank(self) -> bool:
        return not self.letters and not self.picture_cover and not self.paths

    @property
    def needs_ocr(self) -> bool:
        """Scans, pages whose letters are drawings, and text layers full of nonsense."""
        if self.garbled:
            return True
        if self.picture_cover >= SCAN_COVER and self.letters < STAMP_LETTERS:
            return True
        return self.letters < FEW_LETTERS and (self.picture_cover > 0.02 or self.paths > 50)


def taken(source: Path) -> Source:
    """The file itself, if it is small."""
    return source.read_bytes() if 0 < source.stat().st_size <= SMALL else source


def open_document(source: Source) -> Any:
    vortex.settle_fonts()
    try:
        return pdfium.PdfDocument(source)
    except pdfium.PdfiumError as error:
        if getattr(error, "err_code", None) == ERROR_PASSWORD or "password" in str(error).lower():
            raise DocumentError("document_encrypted") from error
        raise DocumentError("document_broken", why="it cannot be opened as a PDF") from error


@contextlib.contextmanager
def opened(source: Path) -> Iterator[Any]:
    with contextlib.closing(open_document(source)) as document:
        yield document


def is_tagged(document: Any) -> bool:
    return bool(pdfium_c.FPDFCatalog_IsTagged(document))


def page_size(document: Any, index: int) -> tuple[float, float]:
    try:
        width, height = document.get_page_size(index)
        return width, height
    except pdfium.PdfiumError:  # such a page is found to be damaged later, and liteparse gets along with it
        return SENSIBLE_SIDE


def is_sensible(size: tuple[float, float]) -> bool:
    return all(SENSIBLE_SIDE[0] <= side <= SENSIBLE_SIDE[1] for side in size)


def is_drawable(size: tuple[float, float]) -> bool:
    return all(0 < side < math.inf for side in size)


class OpenPages:
    """Pages to look at. A page that is closed takes its fonts along, so the last ones stay open for the next."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.document = open_document(source)
        self._open: dict[int, Any] = {}

    def __getitem__(self, index: int) -> Any:
        if index not in self._open:
            self._open[index] = self.document[index]
            if len(self._open) > KEPT_OPEN:
                self._open.pop(next(iter(self._open))).close()
        return self._open[index]

    def renew(self) -> None:
        """PDFium keeps what it has read of a document; a long one is opened anew now and then."""
        self.close()
        self.document = open_document(self.source)

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()
        self.document.close()


def told(fast: Any) -> Survey | None:
    """What liteparse's words tell of a page, without opening it a second time; nothing if they may not be all.

    It reads with PDFium, too, and leaves letters out of three kinds: without height, which only drawn ones are; what
    has other words over more than half of it, as lines have whose boxes are twice as high, up to the last of them,
    which tells; and what nobody sees.
    """
    items = fast.text_items
    text = "\n".join([item.text for item in items])
    letters = len(text) - sum(map(text.count, " \n\t"))
    if letters <= SHORT or is_garbled(text, letters):
        return None
    for item in items:
        length = len(item.text)
        if abs(item.rotation) > 1 or (length >= TELLING and item.width < NARROW * item.height * length):
            return None
    return Survey(text, letters, is_told=True)


def survey(pages: OpenPages, index: int) -> Survey:
    try:
        page = pages[index]
    except pdfium.PdfiumError:
        return Survey(damage="the page cannot be loaded")
    try:
        size = page.get_size()
        textpage = page.get_textpage()
        text = str(textpage.get_text_range())
        hides_text = len(text) <= SHORT and has_silent_text(page, textpage)
        textpage.close()
        text = re.sub(r"[\ufffe\u00ad]\s*|\x02\s*", "", text).replace("\r\n", "\n")
        letters = len(text) - sum(map(text.count, " \n\t"))
        garbled = is_garbled(text, letters)
        # Pictures tell whether there is enough text: where there is much, nobody asks.
        is_plain = letters >= STAMP_LETTERS and not garbled
        cover, paths = pictures_and_paths(page) if not is_plain and is_drawable(size) else (0.0, 0)
    except pdfium.PdfiumError:
        return Survey(damage="the page's content cannot be read")
    damage = None if letters or is_drawable(size) else "the page has no size"
    return Survey(text, letters, garbled, cover, paths, damage, not is_sensible(size), hides_text)


def has_silent_text(page: Any, textpage: Any) -> bool:
    """PDFium takes a line for the shadow of an equal one when the font has no height, and leaves it out."""
    silent = spoken = 0
    for number, item in enumerate(page.get_objects(filter=[pdfium_c.FPDF_PAGEOBJ_TEXT], max_depth=1)):
        if number >= MOST_OBJECTS:
            break
        left, _, right, _ = item.get_bounds()
        if right - left > 20:
            is_silent = pdfium_c.FPDFTextObj_GetText(item.raw, textpage.raw, None, 0) <= EMPTY_UTF16
            silent, spoken = silent + is_silent, spoken + (not is_silent)
    return silent > 0.3 * (silent + spoken)


def pictures_and_paths(page: Any) -> tuple[float, int]:
    """Which part of the page pictures cover, and how many lines and curves it has."""
    x0, y0, x1, y1 = page.get_cropbox()
    area = max(1.0, (x1 - x0) * (y1 - y0))
    cover, paths = 0.0, 0
    kinds = [pdfium_c.FPDF_PAGEOBJ_IMAGE, pdfium_c.FPDF_PAGEOBJ_PATH]
    for number, item in enumerate(page.get_objects(filter=kinds, max_depth=2)):
        if number >= MOST_OBJECTS:
            break
        if item.type == pdfium_c.FPDF_PAGEOBJ_PATH:
            paths += 1
        else:
            left, bottom, right, top = item.get_bounds()
            cover += max(0.0, min(right, x1) - max(left, x0)) * max(0.0, min(top, y1) - max(bottom, y0)) / area
    return min(1.0, cover), paths


def is_garbled(text: str, letters: int) -> bool:
    """Fonts without a way back to Unicode leave private, replacement and control characters."""
    if text.isascii() and text.isprintable():
        return False
    odd = len(ODD.findall(text))
    return letters > FEW_LETTERS and odd * 4 > letters


def rendered(document: Any, index: int, dpi: int) -> Image:
    """The page as it is displayed."""
    page = document[index]
    try:
        return drawn(page, dpi)
    finally:
        page.close()


def drawn(page: Any, dpi: int, part: Box | None = None) -> Image:
    """The page as it is displayed, or a part of it, never larger than LONGEST_SIDE whatever its MediaBox says."""
    width, height = page.get_size()
    if not is_drawable((width, height)):
        raise pdfium.PdfiumError("the page has no size")
    scale = min(dpi / 72, LONGEST_SIDE / max(width, height, 1))
    # PDFium crops from the displayed page's edges: left, bottom, right, top.
    crop = (part[0] * width, (1 - part[3]) * height, (1 - part[2]) * width, part[1] * height) if part else (0,) * 4
    picture: Image = page.render(scale=scale, crop=crop, may_draw_forms=False).to_pil().convert("RGB")
    return picture
