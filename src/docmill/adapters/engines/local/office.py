"""DOCX, PPTX and XLSX: slides and sheets are pages, a text document is one."""

from __future__ import annotations

import re
import zipfile
from html import unescape
from typing import Any

from docmill.core.errors import DocumentError
from docmill.core.links import LABEL

from .. import sniff
from ..markdown import disarm, escape, tidy
from . import numbers, vortex
from .job import Job
from .notes import Notes, shown
from .word import headings, prepared

SHEET = re.compile(r"<(?:\w+:)?sheet\s[^>]*>")
SHEET_NAME = re.compile(r"""\sname\s*=\s*(?:"([^"]*)"|'([^']*)')""")
SHEET_HIDDEN = re.compile(r"""\sstate\s*=\s*["'](?:hidden|veryHidden)["']""")
MIDNIGHT = re.compile(r"(?<=[|>] )(\d{4}-\d\d-\d\d) 00:00(?::00)?(?= [|<])|(?<=>)(\d{4}-\d\d-\d\d) 00:00(?::00)?(?=<)")
SPOKEN = re.compile(r'<small><span class="docvortex-page-footnote"[^>]*>(.*?)</span></small>', re.DOTALL)
"""What a speaker notes under a slide."""
SUFFIX = {sniff.DOCX: "docx", sniff.PPTX: "pptx", sniff.XLSX: "xlsx"}


def read(job: Job) -> None:
    notes = Notes()
    result = parse(job, notes)
    properties = result.middle_json.metadata.document
    if properties is not None:
        job.title = properties.title
        job.language = properties.languages[0] if properties.languages else None
    pages = result.middle_json.pages
    job.check_pages(len(pages))
    sheets = sheet_names(job) if job.media_type == sniff.XLSX else []
    for done, page in enumerate(pages, 1):
        index = page.page_idx
        for block, html in vortex.tables(page):
            job.add_table(shown(html), index, anchor=shown(vortex.table_anchor(result.middle_json, page, block)))
        markdown = notes.below(vortex.render(result.middle_json, page))
        markdown = SPOKEN.sub(as_quote, markdown)
        if index < len(sheets) == len(pages):
            markdown = under_its_name(sheets[index], MIDNIGHT.sub(r"\1\2", markdown))
        job.add_page(index, place_images(job, index, markdown, result.assets))
        job.progress(done, len(pages))


def sheet_names(job: Job) -> list[str]:
    """Of the sheets that are not hidden, in their order."""
    with zipfile.ZipFile(job.source) as archive:
        try:
            book = archive.read("xl/workbook.xml")
        except KeyError:
            return []
    names = [
        (SHEET_NAME.search(tag), SHEET_HIDDEN.search(tag)) for tag in SHEET.findall(book.decode("utf-8", "replace"))
    ]
    return [unescape(name[1] or name[2] or "") for name, hidden in names if name and not hidden]


def under_its_name(name: str, markdown: str) -> str:
    """A sheet begins with its name; the parser leaves it out when there is only one."""
    title = f"## {escape(name)}"
    return markdown if not name or markdown.lstrip().startswith("## ") else f"{title}\n\n{markdown}".strip()


def as_quote(found: re.Match[str]) -> str:
    lines = (line.strip() for line in re.split(r"\n|<br ?/?>", found[1]))
    return "\n".join(f"> {line}".rstrip() for line in lines)


def parse(job: Job, notes: Notes) -> Any:
    import docvortex

    vortex.show_numbers(numbers.displayed)
    vortex.choose_headings(headings)
    try:
        data = prepared(job.source, notes) if job.media_type == sniff.DOCX else job.source.read_bytes()
        return docvortex.parse(data, file_suffix=SUFFIX[job.media_type])
    except (MemoryError, RecursionError):
        raise
    except (Exception, zipfile.BadZipFile) as error:
        raise DocumentError("document_broken", why=f"its content cannot be read ({type(error).__name__})") from error


def place_images(job: Job, index: int, markdown: str, assets: Any) -> str:
    """The parser's own picture files become figures; links follow them."""
    for path in assets:
        if path in markdown:
            name = job.add_image(assets[path], index)
            markdown = markdown.replace(path, f"assets/{name}") if name else without_image(markdown, path)
    return tidy(disarm(markdown))


def without_image(markdown: str, path: str) -> str:
    """A picture that no browser shows leaves its description."""
    path = re.escape(path)
    return re.sub(rf"!\[({LABEL})\]\({path}[^()]*+\)|<img[^<>]*{path}[^<>]*>", lambda found: found[1] or "", markdown)
