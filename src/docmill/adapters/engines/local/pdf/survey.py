"""Open documents, what a page holds, whether its picture must be read, and pictures of pages."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from docmill.core.errors import DocumentError
from docmill.core.parsed import Box

from .. import vortex
from .content import PageContent, read_content

if TYPE_CHECKING:
    from PIL.Image import Image

SCAN_COVER = 0.5
FEW_LETTERS = 20
STAMP_LETTERS = 120
SHORT = 240
"""Letters. Pages with fewer are looked at more closely."""
EMPTY_UTF16 = 2
LONGEST_SIDE = 3500
MAX_OBJECTS = 2000
SENSIBLE_SIDE = (1, 100_000)
"""Points. PDF once ended at 14,400."""
ERROR_PASSWORD = 4
KEPT_OPEN = 2
SMALL = 4 << 20
"""Bytes. A smaller file is read once for all who look at it: PDFium takes a file in small pieces, each a call to the
system."""
Source = Path | bytes
"""Where a file is, or all of it."""
ODD = re.compile("[\\ue000-\\uf8ff\\ufffd\\x00-\\x08\\x0e-\\x1b]")


@dataclass(slots=True)
class Survey:
    """A page as PDFium sees it, and what follows for how it is read."""

    content: PageContent = field(default_factory=lambda: PageContent(1.0, 1.0))
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

    @property
    def is_blank(self) -> bool:
        return not self.letters and not self.picture_cover and not self.paths

    @property
    def needs_ocr(self) -> bool:
        """Scans, pages whose letters are drawings, and text layers full of nonsense."""
        if self.garbled or self.hides_text:
            return True
        if self.picture_cover >= SCAN_COVER and self.letters < STAMP_LETTERS:
            return True
        return self.letters < FEW_LETTERS and (self.picture_cover > 0.02 or self.paths > 50)


def load(source: Path) -> Source:
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


def is_sensible(size: tuple[float, float]) -> bool:
    return all(SENSIBLE_SIDE[0] <= side <= SENSIBLE_SIDE[1] for side in size)


def is_drawable(size: tuple[float, float]) -> bool:
    return all(0 < side < math.inf for side in size)


class OpenPages:
    """Pages to look at. A page that is closed takes its fonts along, so the last ones stay open for the next."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._open: dict[int, Any] = {}
        self._load()

    def _load(self) -> None:
        self.document = open_document(self.source)
        if self.document.get_formtype() != pdfium_c.FORMTYPE_NONE:
            with contextlib.suppress(pdfium.PdfiumError):
                self.document.init_forms()

    @property
    def form(self) -> Any:
        """By which the values of form fields are read, or None."""
        environment = self.document.formenv
        return environment.raw if environment is not None else None

    def __getitem__(self, index: int) -> Any:
        if index not in self._open:
            self._open[index] = self.document[index]
            if len(self._open) > KEPT_OPEN:
                self._open.pop(next(iter(self._open))).close()
        return self._open[index]

    def renew(self) -> None:
        """PDFium keeps what it has read of a document; a long one is opened again now and then."""
        self.close()
        self._load()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()
        self.document.close()


@contextlib.contextmanager
def open_pages(source: Path) -> Iterator[OpenPages]:
    with contextlib.closing(OpenPages(load(source))) as pages:
        yield pages


def survey(pages: OpenPages, index: int, *, tagged: bool) -> Survey:
    try:
        page = pages[index]
    except pdfium.PdfiumError:
        return Survey(damage="the page cannot be loaded")
    try:
        size = page.get_size()
        content = read_content(page, tagged=tagged, form=pages.form, bounded=is_sensible(size))
        text = content.text
        letters = content.letters
        hides_text = letters <= SHORT and has_silent_text(page)
        garbled = is_garbled(text, letters) or (letters > FEW_LETTERS and 2 * content.unmapped > content.characters)
        cover = picture_cover(content) if is_drawable(size) else 0.0
    except pdfium.PdfiumError:
        return Survey(damage="the page's content cannot be read")
    damage = None if letters or is_drawable(size) else "the page has no size"
    paths = len(content.paths) if is_drawable(size) else 0
    return Survey(content, text, letters, garbled, cover, paths, damage, not is_sensible(size), hides_text)


def has_silent_text(page: Any) -> bool:
    """PDFium takes a line for the shadow of an equal one when the font has no height, and leaves it out."""
    silent = spoken = 0
    textpage = page.get_textpage()
    try:
        for number, item in enumerate(page.get_objects(filter=[pdfium_c.FPDF_PAGEOBJ_TEXT], max_depth=1)):
            if number >= MAX_OBJECTS:
                break
            left, _, right, _ = item.get_bounds()
            if right - left > 20:
                is_silent = pdfium_c.FPDFTextObj_GetText(item.raw, textpage.raw, None, 0) <= EMPTY_UTF16
                silent, spoken = silent + is_silent, spoken + (not is_silent)
    finally:
        textpage.close()
    return silent > 0.3 * (silent + spoken)


def picture_cover(content: PageContent) -> float:
    """Which part of the page pictures cover."""
    width, height = content.width, content.height
    area = max(1.0, width * height)
    cover = sum(
        max(0.0, min(x1, width) - max(x0, 0.0)) * max(0.0, min(y1, height) - max(y0, 0.0)) / area
        for x0, y0, x1, y1 in content.pictures
    )
    return min(1.0, cover)


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
