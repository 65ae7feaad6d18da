"""A DOCX before the parser sees it: marks for notes, comments and deletions, levels of lists that styles give, check
boxes as signs, and no styles that trip the parser."""

from __future__ import annotations

import io
import re
import zipfile
from html import unescape
from xml.etree import ElementTree

from ..markdown import escape
from .job import Job
from .notes import PARTS, Notes, W, remark

BODY = "word/document.xml"
STYLES = "word/styles.xml"
BULLET = re.compile(r"List Bullet(?: ([2-5]))?")
"""Word's own names of these styles, in every language."""
BARE_STYLE = re.compile(rb"<w:style\s*>(?:(?!</w:style>|<w:style[\s>]).){0,20000}</w:style>", re.DOTALL)
CHECK_BOX = re.compile(
    rb"<w:r(?:\s[^<>]{0,500})?>(?:(?!</w:r>|<w:r[\s>]).){0,1000}<w:checkBox>(?:(?!</w:r>).){0,2000}</w:r>", re.DOTALL
)
CHECKED = re.compile(
    rb"""<w:(?:checked|default)(?:\s+w:val=["'](?:1|true|on)["'])?\s*/>(?!.{0,200}<w:checked\s+w:val=["']0)"""
)
DELETION = re.compile(rb"<w:del\s([^<>]{0,1000})>(?:(?!</w:del>|<w:del\s).){0,100000}</w:del>", re.DOTALL)
DELETED_TEXT = re.compile(rb"<w:delText[^<>]{0,100}>([^<]*)</w:delText>")
ATTRIBUTE = re.compile(rb"""w:(author|date)\s*=\s*["']([^"'<>]{0,300})["']""")
STYLED = re.compile(rb"""<w:pPr>\s*<w:pStyle\s+w:val=["']([^"']+)["']\s*/>(.{0,2000}?)</w:pPr>""", re.DOTALL)


def prepared(job: Job, notes: Notes) -> bytes:
    """The file with its repairs; as it is, if it needs none."""
    data = job.source.read_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = set(archive.namelist())
        if BODY not in names:
            return data
        before = archive.read(BODY)
        styles = archive.read(STYLES) if STYLES in names else b""
        body = notes.marked(before, {kind: archive.read(part) for kind, part in PARTS.items() if part in names})
        body = with_changes(with_check_boxes(nested(body, styles)), notes)
        changed = {BODY: body} if body != before else {}
        if (named := without_bare_styles(styles)) != styles:
            changed[STYLES] = named
            job.warn("repaired: styles without a name were dropped")
        return _repacked(archive, changed) if changed else data


def without_bare_styles(styles: bytes) -> bytes:
    """A style without an id makes the parser drop whole tables."""
    return BARE_STYLE.sub(b"", styles) if b"<w:style" in styles else styles


def with_check_boxes(body: bytes) -> bytes:
    """Check boxes of old forms are fields without text."""
    if b"<w:checkBox" not in body:
        return body

    def shown(found: re.Match[bytes]) -> bytes:
        is_checked = CHECKED.search(found[0]) is not None
        box = "\u2611" if is_checked else "\u2610"
        return f"<w:r><w:t>{box}</w:t></w:r>".encode() + found[0]

    return CHECK_BOX.sub(shown, body)


def with_changes(body: bytes, notes: Notes) -> bytes:
    """What was deleted with change tracking on is a note at its place; what was inserted is text."""
    if b"<w:delText" not in body:
        return body

    def noted(found: re.Match[bytes]) -> bytes:
        text = "".join(unescape(piece.decode("utf-8", "replace")) for piece in DELETED_TEXT.findall(found[0]))
        if not text.strip():
            return found[0]
        said = {name.decode(): value.decode("utf-8", "replace") for name, value in ATTRIBUTE.findall(found[1])}
        element = ElementTree.Element("del", {f"{W}{name}": unescape(value) for name, value in said.items()})
        mark = notes.add(f"{remark('Deleted', element)}: {escape(text)}")
        return found[0] + f"<w:r><w:t>{mark}</w:t></w:r>".encode()

    return DELETION.sub(noted, body)


def nested(body: bytes, styles: bytes) -> bytes:
    """The parser knows the level of an item if the paragraph says it, not if its style is "List Bullet 2"."""
    numbering = _numbering(styles)

    def numbered(found: re.Match[bytes]) -> bytes:
        said = numbering.get(found[1].decode("utf-8", "replace"))
        if said is None or b"<w:numPr" in found[2]:
            return found[0]
        return found[0].removesuffix(b"</w:pPr>") + said + b"</w:pPr>"

    return STYLED.sub(numbered, body) if numbering else body


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


def _repacked(archive: zipfile.ZipFile, changed: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as new:
        for entry in archive.infolist():
            new.writestr(entry.filename, changed.get(entry.filename) or archive.read(entry))
    return out.getvalue()
