"""Drawings: the text of an SVG from its XML; EMF and WMF drawn and read by OCR."""

from __future__ import annotations

import io
import re
from typing import Any

from docmill.core.errors import DocumentError

from .. import sniff
from ..markdown import escape, image_link
from . import xml
from .coverage import attempt
from .guards import check_pixels
from .job import Job

MAX_SIDE_PIXELS = 2000
SIZE = re.compile(r"\s*(\d{1,7}(?:\.\d{1,6})?)\s*(px|pt|mm|cm|in|pc)?\s*$")
UNITS = {"px": 1.0, "pt": 4 / 3, "pc": 16.0, "mm": 96 / 25.4, "cm": 96 / 2.54, "in": 96.0}
NUMBER = re.compile(r"-?\d{1,9}(?:\.\d{1,9})?")
SHOWN = frozenset(("title", "desc", "text"))


def read(job: Job) -> None:
    if job.media_type == sniff.SVG:
        read_svg(job)
    else:
        read_metafile(job)
    job.progress(1, 1)


def read_svg(job: Job) -> None:
    """Its words, and the picture, drawn no larger than a page."""
    root = xml.parse(job.source.read_bytes())
    if xml.name_of(root) != "svg":
        raise DocumentError("document_broken", why="not readable as SVG")
    lines = []
    for one in root.iter():
        name = xml.name_of(one)
        if name in SHOWN and (line := " ".join("".join(one.itertext()).split())):
            if name == "title" and job.title is None:
                job.title = line
            lines.append(escape(line))
    png = drawn(root)
    name_of_file = job.add_image(png, 0, (0.0, 0.0, 1.0, 1.0)) if png else None
    if png is None:
        job.warn("the drawing cannot be drawn: only its text was read")
    if not lines and name_of_file is None:
        raise DocumentError("document_broken", why="it has no text and cannot be drawn")
    job.add_page(0, "\n\n".join([*([image_link(name_of_file)] if name_of_file else []), *lines]))


def drawn(root: Any) -> bytes | None:
    """The drawing as PNG. It is drawn no larger than a page, whatever size the file asks for."""
    from lxml import etree

    width, height = pixels(root.get("width")), pixels(root.get("height"))
    if width and height:
        scale = min(1.0, MAX_SIDE_PIXELS / max(width, height))
        if root.get("viewBox") is None:
            root.set("viewBox", f"0 0 {width:g} {height:g}")
        root.set("width", f"{max(1, width * scale):g}")
        root.set("height", f"{max(1, height * scale):g}")

    def draw() -> bytes:
        import resvg_py

        return bytes(resvg_py.svg_to_bytes(svg_string=etree.tostring(root, encoding="unicode")))

    box = [float(one) for one in NUMBER.findall(root.get("viewBox") or "")[:4]]
    if not (width and height) and (len(box) < 4 or max(box[2:]) > MAX_SIDE_PIXELS or min(box[2:]) <= 0):
        return None
    return attempt(draw)


def pixels(value: str | None) -> float:
    """A length in pixels; 0 if it is none."""
    found = SIZE.match(value or "")
    return float(found[1]) * UNITS[found[2] or "px"] if found else 0.0


def read_metafile(job: Job) -> None:
    """The picture, and what OCR reads in it."""
    from PIL import Image

    from . import ocr

    def draw() -> bytes:
        from metafile_render import render_metafile

        return bytes(render_metafile(job.source.read_bytes(), output_format="png", dpi=150).data)

    png = attempt(draw)
    if not png:
        raise DocumentError("document_broken", why="the drawing cannot be drawn")
    with Image.open(io.BytesIO(png)) as image:
        check_pixels(image.size, job.limits)
        name = job.add_image(png, 0, (0.0, 0.0, 1.0, 1.0))
        text = ocr.read(image.convert("RGB")).markdown if job.ocr != "never" else ""
    job.facts["ocr_pages"] = int(job.ocr != "never")
    job.add_page(0, "\n\n".join(filter(None, [image_link(name) if name else "", text])))
