"""Pictures: every frame is a page."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator

from PIL import Image, ImageOps

from docmill.core.errors import DocumentError

from .. import sniff
from ..markdown import html_table, image_link, table
from . import ocr
from .damage import is_corrupt
from .guards import UNDECODABLE, check_pixels
from .job import Job

PAGE_IMAGE_SIDE = 1800
warnings.simplefilter("ignore", Image.DecompressionBombWarning)
Image.MAX_IMAGE_PIXELS = None  # guards.check_pixels is stricter, and says so with its own code
MAX_CHECKED_BYTES = 64 << 20
"""Bytes. A larger file, which is all read into memory for it, is not looked at."""


def read(job: Job) -> None:
    if job.media_type == sniff.HEIC:
        register_heic()
    try:
        with Image.open(job.source) as image:
            total = count_frames(image, job)
            check_data(job)
            for index, frame in frames(image, total):
                read_frame(job, index, frame)
                job.progress(index + 1, total)
    except UNDECODABLE as error:
        raise DocumentError("document_broken", why="the picture cannot be decoded") from error


def register_heic() -> None:
    """Pillow reads HEIC with an optional package."""
    try:
        from pi_heif import register_heif_opener
    except ImportError:
        raise DocumentError(
            "document_needs_program",
            media_type=sniff.HEIC,
            type=sniff.name_of(sniff.HEIC),
            program="the package pi-heif",
            advice="Install docmill[heic], or save the picture as JPEG.",
        ) from None
    register_heif_opener()


def check_data(job: Job) -> None:
    """What is left of a corrupt picture is read all the same: most of its words may be in it."""
    if job.source.stat().st_size <= MAX_CHECKED_BYTES and is_corrupt(job.media_type, job.source.read_bytes()):
        job.warn("the picture is damaged (part of its data cannot be decoded): words may be missing")


def count_frames(image: Image.Image, job: Job) -> int:
    """Every frame's header is checked before the first one is decoded. Animations count as their first frame."""
    check_pixels(image.size, job.limits)
    if image.format != "TIFF":
        return 1
    total = 0
    try:
        while True:
            image.seek(total)
            check_pixels(image.size, job.limits)
            total += 1
            job.check_pages(total)
    except EOFError:
        return total
    except UNDECODABLE:
        if not total:
            raise
        return total + 1  # it says that there is one more, and that one will be found to be damaged


def frames(image: Image.Image, total: int) -> Iterator[tuple[int, Image.Image | None]]:
    for index in range(total):
        try:
            image.seek(index)
            yield index, flatten(ImageOps.exif_transpose(image))
        except UNDECODABLE:
            yield index, None


def flatten(image: Image.Image) -> Image.Image:
    """On white: what is transparent is paper."""
    if image.mode.startswith("I;16"):
        image = image.point(lambda value: value / 256).convert("L")
    if "A" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        paper = Image.new("RGBA", image.size, "white")
        paper.alpha_composite(image)
        image = paper
    return image.convert("RGB")


def read_frame(job: Job, index: int, frame: Image.Image | None) -> None:
    if frame is None:
        job.add_page(index, "", damage="the picture cannot be decoded")
        return
    if job.options.get("page_images") is True:
        job.add_page_image(as_png(frame, PAGE_IMAGE_SIDE), index)
    reading = ocr.Reading()
    if job.ocr != "never":
        reading = ocr.read(frame)
        for cells, box in reading.tables:
            job.add_table(html_table(cells), index, box, anchor=table(cells).split("\n", 1)[0])
        job.facts["ocr_pages"] = job.facts.get("ocr_pages", 0) + 1
    markdown = reading.markdown
    if not markdown:
        name = job.add_image(as_png(frame, PAGE_IMAGE_SIDE), index, (0.0, 0.0, 1.0, 1.0))
        markdown = image_link(name) if name else ""
    job.add_page(index, markdown, pieces=reading.pieces)


def as_png(image: Image.Image, longest_side: int) -> bytes:
    shown = image.copy()
    shown.thumbnail((longest_side, longest_side))
    out = io.BytesIO()
    shown.save(out, "PNG", compress_level=3)  # half the time of the default for a few per cent more bytes
    return out.getvalue()
