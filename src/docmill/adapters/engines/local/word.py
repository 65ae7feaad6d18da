"""A DOCX before the parser sees it: with marks where its notes are, and with the levels of lists that styles give."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from .notes import PARTS, Notes, W

BODY = "word/document.xml"
STYLES = "word/styles.xml"
LIST = re.compile(r"List (?:Bullet|Number)(?: [2-5])?")
BULLET = re.compile(r"List Bullet(?: ([2-5]))?")
"""Word's own names of these styles, in every language."""
LONGEST_TITLE = 120
MOSTLY = 0.75
ENDS = tuple(".,;:!。，；：！、")
"""Of sentences and of steps; a title may be a question."""
STYLED = re.compile(rb"""<w:pPr>\s*<w:pStyle\s+w:val=["']([^"']+)["']\s*/>(.{0,2000}?)</w:pPr>""", re.DOTALL)


def prepared(source: Path, notes: Notes) -> bytes:
    data = source.read_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = set(archive.namelist())
        if BODY not in names:
            return data
        before = archive.read(BODY)
        body = notes.marked(before, {kind: archive.read(part) for kind, part in PARTS.items() if part in names})
        body = nested(body, archive.read(STYLES) if STYLES in names else b"")
        return data if body == before else _repacked(archive, body)


def nested(body: bytes, styles: bytes) -> bytes:
    """The parser knows the level of an item if the paragraph says it, not if its style is "List Bullet 2"."""
    numbering = _numbering(styles)

    def numbered(found: re.Match[bytes]) -> bytes:
        said = numbering.get(found[1].decode("utf-8", "replace"))
        if said is None or b"<w:numPr" in found[2]:
            return found[0]
        return found[0].removesuffix(b"</w:pPr>") + said + b"</w:pPr>"

    return STYLED.sub(numbered, body) if numbering else body


def headings(document: Any, lists: dict[int, list[str]]) -> set[int]:
    """Which lists are numbered headings: most of their items are titles, and no style says that they are lists."""
    titled = {number for number, items in lists.items() if sum(map(_is_title, items)) >= len(items) * MOSTLY}
    for style in document.styles:
        numbering = getattr(style.element.pPr, "numPr", None) if LIST.fullmatch(style.name or "") else None
        if numbering is not None and numbering.numId is not None:
            titled.discard(int(numbering.numId.val))
    return titled


def _is_title(text: str) -> bool:
    return len(text) <= LONGEST_TITLE and not text.endswith(ENDS)


def _numbering(styles: bytes) -> dict[str, bytes]:
    """What a paragraph of each inner style would say for itself: its level of the outermost style's list.

    Numbers stay as they are: what they look like inside is for the list to say, and each of these styles has its own.
    """
    try:
        root = ElementTree.fromstring(styles)  # noqa: S314  # guards.check_zip has refused entities
    except ElementTree.ParseError:
        return {}
    levels: dict[str, int] = {}
    outermost = ""
    for style in root.iter(f"{W}style"):
        name, numbering = style.find(f"{W}name"), style.find(f"{W}pPr/{W}numPr")
        found = BULLET.fullmatch(name.get(f"{W}val", "")) if name is not None else None
        if found is None or numbering is None or numbering.find(f"{W}ilvl") is not None:
            continue
        number = numbering.find(f"{W}numId")
        if found[1]:
            levels[style.get(f"{W}styleId", "")] = int(found[1]) - 1
        elif number is not None:
            outermost = number.get(f"{W}val", "")
    if not outermost.isdigit():
        return {}
    return {
        style: f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{outermost}"/></w:numPr>'.encode()
        for style, level in levels.items()
    }


def _repacked(archive: zipfile.ZipFile, body: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as new:
        for entry in archive.infolist():
            new.writestr(entry.filename, body if entry.filename == BODY else archive.read(entry))
    return out.getvalue()
