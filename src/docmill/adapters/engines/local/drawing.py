"""One page as a picture, for whoever wants to look at it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from docmill.core.errors import DocumentError, NotFound

from .. import sniff
from . import guards, vortex
from .limits import Limits

if TYPE_CHECKING:
    from PIL.Image import Image

PICTURES = frozenset({sniff.PNG, sniff.JPEG, sniff.TIFF, sniff.WEBP, sniff.GIF, sniff.BMP, sniff.AVIF, sniff.JP2})
TALLEST = 8
"""A page higher than so many times its width gets a narrower picture."""


def draw_page(source: Path, index: int, width: int, limits: Limits) -> bytes:
    """PNG of the page. NotFound: there is no such page, or the format knows no pages that look like anything."""
    from .image import as_png

    media_type = sniff.sniff(source)
    if media_type == sniff.PDF:
        picture = of_pdf(source, index, width)
    elif media_type in PICTURES:
        picture = of_picture(source, index, limits)
    else:
        raise NotFound("page_images_unavailable", media_type=media_type)
    if picture.width != width:
        picture = resized(picture, width)
    return as_png(picture, max(picture.size))


def of_pdf(source: Path, index: int, width: int) -> Image:
    import pypdfium2 as pdfium

    vortex.settle_fonts()
    try:
        with pdfium.PdfDocument(source) as document:
            if not len(document):
                raise DocumentError("document_broken", why="it has no pages")
            if not index < len(document):
                raise NotFound("page_not_found", page=index + 1)
            page = document[index]
            size = page.get_size()
            if not all(0 < side < math.inf for side in size):
                raise DocumentError("document_broken", why=f"page {index + 1} has no size")
            scale = min(width / size[0], TALLEST * width / size[1])
            picture: Image = page.render(scale=scale).to_pil().convert("RGB")
            return picture
    except pdfium.PdfiumError as error:
        if "password" in str(error).lower():
            raise DocumentError("document_encrypted") from error
        raise DocumentError("document_broken", why=f"page {index + 1} cannot be drawn") from error


def of_picture(source: Path, index: int, limits: Limits) -> Image:
    from PIL import Image, ImageOps

    from .image import flatten

    try:
        with Image.open(source) as image:
            guards.check_pixels(image.size, limits)
            if index and image.format != "TIFF":  # animations count as their first frame
                raise NotFound("page_not_found", page=index + 1)
            try:
                image.seek(index)
            except EOFError:
                raise NotFound("page_not_found", page=index + 1) from None
            guards.check_pixels(image.size, limits)
            return flatten(ImageOps.exif_transpose(image))
    except guards.UNDECODABLE as error:
        raise DocumentError("document_broken", why="the picture cannot be decoded") from error


def resized(picture: Image, width: int) -> Image:
    height = min(TALLEST * width, max(1, round(picture.height * width / picture.width)))
    return picture.resize((max(1, round(picture.width * height / picture.height)), height))
