"""Footnotes, endnotes and comments of a DOCX, which the parser leaves out: marks in the text, the notes below it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree import ElementTree

from ..markdown import escape

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
PARTS = {"footnote": "word/footnotes.xml", "endnote": "word/endnotes.xml", "comment": "word/comments.xml"}
REFERENCE = re.compile(rb"""<w:(footnote|endnote|comment)Reference\b[^>]*?\bw:id=["'](-?\d+)["'][^>]*?/>""")
OPEN, CLOSE = "\ue0d0", "\ue0d1"
"""No text has these; a mark between them comes through the parser as it is."""
MARK = re.compile(f" ?(?:<sup>{OPEN}([0-9]+){CLOSE}</sup>|{OPEN}([0-9]+){CLOSE})")


class Notes:
    """What the notes of a document say, in the order in which its text refers to them."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def marked(self, body: bytes, parts: Mapping[str, bytes]) -> bytes:
        """The document's text with a mark at the place of each note."""
        known = {(kind, note): text for kind, part in parts.items() for note, text in read(part, kind).items()}
        return REFERENCE.sub(lambda found: self._mark(found, known), body) if known else body

    def _mark(self, found: re.Match[bytes], known: dict[tuple[str, str], str]) -> bytes:
        text = known.get((found[1].decode(), found[2].decode()))
        if not text:
            return found[0]
        return f"<w:t>{self.add(text)}</w:t>".encode()

    def add(self, text: str) -> str:
        """Keep a note; gives the mark for its place."""
        self._texts.append(text)
        return f"{OPEN}{len(self._texts)}{CLOSE}"

    def below(self, markdown: str) -> str:
        """The page with marks as Markdown writes them, and the notes that it refers to."""
        asked = dict.fromkeys(int(found[1] or found[2]) for found in MARK.finditer(markdown))
        said = [f"[^{number}]: {self._texts[number - 1]}" for number in asked if 0 < number <= len(self._texts)]
        return "\n\n".join([shown(markdown), *said])


def shown(text: str) -> str:
    """Text with its marks as Markdown writes them."""
    return MARK.sub(lambda found: f"[^{found[1] or found[2]}]", text)


def read(part: bytes, kind: str) -> dict[str, str]:
    """The notes by their number; the lines that separate notes from the text are none."""
    try:
        root = ElementTree.fromstring(part)  # noqa: S314  # guards.check_zip has refused entities
    except ElementTree.ParseError:
        return {}
    found = {}
    for note in root.iter(f"{W}{kind}"):
        if note.get(f"{W}type") in (None, "normal"):
            lines = ("".join(said(paragraph)) for paragraph in note.iter(f"{W}p"))
            text = escape(" ".join(lines))
            if kind == "comment":
                text = f"{remark('Comment', note)}: {text}" if text else ""
            found[note.get(f"{W}id", "")] = text
    return found


def remark(what: str, element: ElementTree.Element) -> str:
    """Who said it, and when."""
    who, when = escape(element.get(f"{W}author", "")), element.get(f"{W}date", "")[:10]
    by = ", ".join(part for part in (f"by {who}" if who else "", when) if part)
    return f"{what} {by}".rstrip()


def said(paragraph: ElementTree.Element) -> list[str]:
    blank = {f"{W}tab": " ", f"{W}br": " "}
    return [each.text or "" if each.tag == f"{W}t" else blank.get(each.tag, "") for each in paragraph.iter()]
