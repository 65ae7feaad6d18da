"""XPS and Visio drawings: pages with text at places, without structure."""

from __future__ import annotations

import posixpath
import re
import zipfile
from collections.abc import Iterator
from typing import Any

from docmill.core.errors import DocumentError

from .. import sniff
from ..markdown import escape
from . import xml
from .job import Job

NUMBER = re.compile(r"-?\d{1,9}(?:\.\d{1,9})?")
PAGE_NUMBER = re.compile(r"(\d{1,9})\.(?:fpage|xml)$")
SAME_LINE_RATIO = 0.5
"""Of the size of letters: a smaller step down is the same line."""
PARAGRAPH_RATIO = 1.8
"""Of the size of letters: a larger step down is a new paragraph."""
WORD_GAP_RATIO = 0.16
"""Of the size of letters, beyond the estimated end of a run: more is a space."""
NARROW, WIDE = frozenset("fijlrtI.,:;'|!()[] -"), frozenset("mwMW@%")


def read(job: Job) -> None:
    with zipfile.ZipFile(job.source) as archive:
        names = set(archive.namelist())
        parts = xps_pages(archive, names) if job.media_type == sniff.XPS else visio_pages(names)
        if not parts:
            raise DocumentError("document_broken", why="it has no pages")
        job.check_pages(len(parts))
        for index, part in enumerate(parts):
            root = xml.parse(archive.read(part))
            job.add_page(index, "\n\n".join(xps_text(root) if job.media_type == sniff.XPS else visio_text(root)))
            job.progress(index + 1, len(parts))


def xps_pages(archive: zipfile.ZipFile, names: set[str]) -> list[str]:
    """Pages in the order of the document; without one, by their numbers."""
    found: list[str] = []
    for part in sorted(name for name in names if name.endswith(".fdoc")):
        folder = posixpath.dirname(part)
        for one in xml.parse(archive.read(part)).iter():
            if xml.name_of(one) == "PageContent":
                source = one.get("Source", "")
                found.append(source.lstrip("/") if source.startswith("/") else posixpath.normpath(f"{folder}/{source}"))
    known = [name for name in dict.fromkeys(found) if name in names]
    return known or sorted((name for name in names if name.endswith(".fpage")), key=number_of)


def number_of(name: str) -> tuple[int, str]:
    found = PAGE_NUMBER.search(name)
    return (int(found[1]) if found else 0, name)


def xps_text(root: Any) -> Iterator[str]:
    """Glyphs by their place: lines from top to bottom, paragraphs where the gap is large."""
    glyphs = sorted(placed(root), key=lambda one: (round(one[0] / 2), one[1]))
    line: list[tuple[float, float, float, str]] = []
    lines: list[tuple[float, float, str]] = []
    for one in glyphs:
        if line and abs(one[0] - line[0][0]) > SAME_LINE_RATIO * max(line[0][2], 1):
            lines.append(joined(line))
            line = []
        line.append(one)
    if line:
        lines.append(joined(line))
    paragraph: list[str] = []
    before = 0.0
    for y, size, text in lines:
        if paragraph and y - before > PARAGRAPH_RATIO * max(size, 1):
            yield escape(" ".join(paragraph))
            paragraph = []
        paragraph.append(text)
        before = y
    if paragraph:
        yield escape(" ".join(paragraph))


def placed(root: Any) -> Iterator[tuple[float, float, float, str]]:
    """Top, left, size and text of every run. Moves of canvases are added up, turns are not followed."""
    stack: list[tuple[Any, float, float]] = [(root, 0.0, 0.0)]
    while stack:
        element, x, y = stack.pop()
        numbers = [float(one) for one in NUMBER.findall(element.get("RenderTransform") or "")[:6]]
        if len(numbers) == 6:
            x, y = x + numbers[4], y + numbers[5]
        if xml.name_of(element) == "Glyphs":
            text = (element.get("UnicodeString") or "").removeprefix("{}")
            if text.strip():
                yield (
                    y + first_number(element.get("OriginY")),
                    x + first_number(element.get("OriginX")),
                    first_number(element.get("FontRenderingEmSize")) or 10.0,
                    text,
                )
        stack.extend((child, x, y) for child in reversed(element))


def first_number(value: str | None) -> float:
    found = NUMBER.search(value or "")
    return float(found[0]) if found else 0.0


def joined(line: list[tuple[float, float, float, str]]) -> tuple[float, float, str]:
    """Runs of a line from left to right; a gap is a space."""
    ordered = sorted(line, key=lambda one: one[1])
    text, end = "", None
    for _, x, size, run in ordered:
        if end is not None and x - end > WORD_GAP_RATIO * size and not text.endswith(" "):
            text += " "
        text += run
        end = x + size * sum(map(width_of, run))
    return ordered[0][0], ordered[0][2], " ".join(text.split())


def width_of(letter: str) -> float:
    """About, as a share of the size: the fonts are not looked at."""
    if letter in NARROW:
        return 0.28
    if letter in WIDE:
        return 0.8
    return 1.0 if letter > "\u2e80" else 0.62 if letter.isupper() else 0.5


def visio_pages(names: set[str]) -> list[str]:
    return sorted((name for name in names if re.fullmatch(r"visio/pages/page\d{1,9}\.xml", name)), key=number_of)


def visio_text(root: Any) -> Iterator[str]:
    for one in root.iter():
        if xml.name_of(one) == "Text" and (text := " ".join("".join(one.itertext()).split())):
            yield escape(text)
