"""Comments and text boxes beside the cells of a sheet and the shapes of a slide, which the parser drops."""

from __future__ import annotations

import posixpath
import zipfile
from collections.abc import Iterator
from typing import Any

from .. import sniff
from ..markdown import escape
from . import xml
from .job import Job

MAX_REMARKS = 2000
"""Of one document."""


def remarks_of(job: Job) -> dict[int, str]:
    """Markdown for the end of each page that has remarks, by the page's index."""
    if job.media_type == sniff.ODT:
        return odt_remarks(job)
    if job.media_type not in (sniff.XLSX, sniff.PPTX):
        return {}
    found = {}
    with zipfile.ZipFile(job.source) as archive:
        names = set(archive.namelist())
        read = sheet_remarks if job.media_type == sniff.XLSX else slide_remarks
        for index, part in enumerate(parts_of(archive, names, job.media_type)):
            lines = [line for line, _ in zip(read(archive, names, part), range(MAX_REMARKS), strict=False)]
            if lines:
                found[index] = "\n".join(lines)
    return found


def parts_of(archive: zipfile.ZipFile, names: set[str], media_type: str) -> list[str]:
    """The visible sheets or the slides, in their order."""
    main, element = ("xl/workbook.xml", "sheet") if media_type == sniff.XLSX else ("ppt/presentation.xml", "sldId")
    if main not in names:
        return []
    targets = related(archive, names, main)
    found = []
    for one in xml.parse(archive.read(main)).iter():
        if xml.name_of(one) == element and one.get("state") not in ("hidden", "veryHidden"):
            link = next((value for key, value in one.attrib.items() if key.endswith("}id")), "")
            found.append(targets.get(link, ("", ""))[1])
    return found


def related(archive: zipfile.ZipFile, names: set[str], part: str) -> dict[str, tuple[str, str]]:
    """The parts that a part refers to: kind and name by id."""
    folder, name = posixpath.split(part)
    rels = f"{folder}/_rels/{name}.rels"
    if rels not in names:
        return {}
    found = {}
    for one in xml.parse(archive.read(rels)):
        target = one.get("Target", "")
        path = target.lstrip("/") if target.startswith("/") else posixpath.normpath(posixpath.join(folder, target))
        found[one.get("Id", "")] = (one.get("Type", "").rpartition("/")[2], path)
    return found


def sheet_remarks(archive: zipfile.ZipFile, names: set[str], part: str) -> Iterator[str]:
    for kind, path in related(archive, names, part).values():
        if kind == "comments" and path in names:
            root = xml.parse(archive.read(path))
            authors = [plain(one) for one in root.iter() if xml.name_of(one) == "author"]
            for one in root.iter():
                if xml.name_of(one) == "comment" and (text := plain(one)):
                    who = one.get("authorId", "")
                    if who.isdecimal() and int(who) < len(authors) and authors[int(who)].startswith("tc="):
                        continue
                    by = escape(authors[int(who)]) if who.isdecimal() and int(who) < len(authors) else ""
                    yield f"- Comment on {one.get('ref', '')}{f' by {by}' if by else ''}: {escape(text)}"
        elif kind == "threadedComment" and path in names:
            yield from threads(archive, names, path)
        elif kind == "drawing" and path in names:
            for box in text_boxes(xml.parse(archive.read(path))):
                yield f"- Text box: {escape(box)}"


def threads(archive: zipfile.ZipFile, names: set[str], path: str) -> Iterator[str]:
    """Comments that may be answered; the older form beside them holds a notice only."""
    people = {
        one.get("id", ""): one.get("displayName", "")
        for part in sorted(name for name in names if name.startswith("xl/persons/"))
        for one in xml.parse(archive.read(part)).iter()
        if xml.name_of(one) == "person"
    }
    for one in xml.parse(archive.read(path)).iter():
        if xml.name_of(one) == "threadedComment":
            text = " ".join("".join(part.itertext()) for part in one if xml.name_of(part) == "text")
            by = escape(people.get(one.get("personId", ""), ""))
            yield f"- Comment on {one.get('ref', '')}{f' by {by}' if by else ''}: {escape(text)}"


def text_boxes(root: Any) -> Iterator[str]:
    for shape in root.iter():
        if xml.name_of(shape) == "txBody":
            paragraphs = (one for one in shape.iter() if xml.name_of(one) == "p")
            text = " ".join("".join(t.text or "" for t in one.iter() if xml.name_of(t) == "t") for one in paragraphs)
            if text.strip():
                yield text


def slide_remarks(archive: zipfile.ZipFile, names: set[str], part: str) -> Iterator[str]:
    authors = {
        one.get("id", ""): one.get("name", "")
        for name in ("ppt/commentAuthors.xml", "ppt/authors.xml")
        if name in names
        for one in xml.parse(archive.read(name)).iter()
    }
    for kind, path in related(archive, names, part).values():
        if kind == "comments" and path in names:
            for one in xml.parse(archive.read(path)).iter():
                if xml.name_of(one) in ("cm", "reply") and (text := comment_text(one)):
                    by = escape(authors.get(one.get("authorId", ""), ""))
                    yield f"- Comment{f' by {by}' if by else ''}: {escape(text)}"


def comment_text(comment: Any) -> str:
    own = (one for one in comment if xml.name_of(one) in ("text", "txBody"))
    return " ".join(" ".join(one.itertext()) for one in own).strip()


def plain(element: Any) -> str:
    """The text without readings of Japanese names."""
    texts = (one.text or "" for one in element.iter() if xml.name_of(one) in ("t", "author"))
    return " ".join("".join(texts).split())


def odt_remarks(job: Job) -> dict[int, str]:
    """A text document is one page."""
    with zipfile.ZipFile(job.source) as archive:
        root = xml.parse(archive.read("content.xml"))
    lines: list[str] = []
    for one in root.iter():
        name = xml.name_of(one)
        if name not in ("annotation", "deletion") or len(lines) >= MAX_REMARKS:
            continue
        if name == "annotation" and xml.name_of(one.getparent()) == "semantics":  # of a formula
            continue
        said = {xml.name_of(part): part.text or "" for part in one.iter() if xml.name_of(part) in ("creator", "date")}
        text = " ".join(" ".join(part.itertext()) for part in one.iter() if xml.name_of(part) in ("p", "h"))
        by = f" by {escape(said['creator'])}" if said.get("creator") else ""
        when = f", {said['date'][:10]}" if said.get("date") else ""
        lines.append(f"- {'Comment' if name == 'annotation' else 'Deleted'}{by}{when}: {escape(text)}")
    return {0: "\n".join(lines)} if lines else {}
