"""Office documents, books and OFD: slides, sheets and chapters are pages, a text document is one."""

from __future__ import annotations

import io
import re
import zipfile
from html import unescape
from typing import Any

from docmill.core.errors import DocumentError
from docmill.core.links import LABEL

from .. import sniff
from ..markdown import disarm, escape, tidy
from . import numbers, sheets, vortex, xml
from .compact import compact_tables, lean
from .job import Job
from .notes import Notes, shown
from .remarks import remarks_of
from .word import prepared

SHEET = re.compile(r"<(?:\w+:)?sheet\s[^>]*>")
SHEET_NAME = re.compile(r"""\sname\s*=\s*(?:"([^"]*)"|'([^']*)')""")
SHEET_HIDDEN = re.compile(r"""\sstate\s*=\s*["'](?:hidden|veryHidden)["']""")
MIDNIGHT = re.compile(r"(?<=[|>] )(\d{4}-\d\d-\d\d) 00:00(?::00)?(?= [|<])|(?<=>)(\d{4}-\d\d-\d\d) 00:00(?::00)?(?=<)")
SPOKEN = re.compile(r'<small><span class="docvortex-page-footnote"[^>]*>(.*?)</span></small>', re.DOTALL)
"""What a speaker notes under a slide."""
TARGET = re.compile(r'<a id="epub-[0-9a-f]{1,64}"></a>\n?')
"""Where a link inside a book leads; its pages are apart here."""
INNER_LINK = re.compile(rf"\[({LABEL})\]\(#epub-[0-9a-f]{{1,64}}\)")
DOCTYPE = re.compile(rb"<!DOCTYPE[^<>\[\]]{0,1000}>")
SUFFIX = {
    sniff.DOCX: "docx",
    sniff.PPTX: "pptx",
    sniff.XLSX: "xlsx",
    sniff.DOC: "doc",
    sniff.PPT: "ppt",
    sniff.XLS: "xls",
    sniff.RTF: "rtf",
    sniff.ODT: "odt",
    sniff.ODS: "ods",
    sniff.ODP: "odp",
    sniff.EPUB: "epub",
    sniff.OFD: "ofd",
}
SHEETS = frozenset({sniff.XLSX, sniff.XLS, sniff.ODS})


def read(job: Job) -> None:
    if job.media_type == sniff.XLSX and sheets.is_huge(job.source):
        sheets.read_xlsx(job)
        return
    check_readable(job)
    notes = Notes()
    result = parse(job, notes)
    properties = result.middle_json.metadata.document
    if properties is not None:
        job.title = properties.title
        job.language = properties.languages[0] if properties.languages else None
    pages = result.middle_json.pages
    job.check_pages(len(pages))
    names = sheet_names(job) if job.media_type in SHEETS else []
    remarks = remarks_of(job)
    for done, page in enumerate(pages, 1):
        index = page.page_idx
        for block, html in vortex.tables(page):
            line = (
                compact_tables(shown(vortex.table_markdown(result.middle_json, page, block))).strip().split("\n", 1)[0]
            )
            job.add_table(lean(shown(html)), index, anchor=line)
        markdown = notes.below(compact_tables(vortex.render(result.middle_json, page)))
        markdown = SPOKEN.sub(as_quote, markdown)
        if index < len(names) == len(pages):
            markdown = under_its_name(names[index], MIDNIGHT.sub(r"\1\2", markdown))
        if job.media_type == sniff.EPUB:
            markdown = INNER_LINK.sub(r"\1", TARGET.sub("", markdown))
        if index in remarks:
            markdown = f"{markdown.rstrip()}\n\n{remarks[index]}"
        job.add_page(index, place_images(job, index, markdown, result.assets))
        job.progress(done, len(pages))


def sheet_names(job: Job) -> list[str]:
    """Of the sheets that are not hidden, in their order."""
    if job.media_type == sniff.ODS:
        return ods_names(job)
    if job.media_type == sniff.XLS:
        return xls_names(job)
    with zipfile.ZipFile(job.source) as archive:
        try:
            book = archive.read("xl/workbook.xml")
        except KeyError:
            return []
    names = [
        (SHEET_NAME.search(tag), SHEET_HIDDEN.search(tag)) for tag in SHEET.findall(book.decode("utf-8", "replace"))
    ]
    return [unescape(name[1] or name[2] or "") for name, hidden in names if name and not hidden]


def ods_names(job: Job) -> list[str]:
    with zipfile.ZipFile(job.source) as archive:
        root = xml.parse(archive.read("content.xml"))
    tables = (
        one for one in root.iter() if xml.name_of(one) == "table" and xml.name_of(one.getparent()) == "spreadsheet"
    )
    return [next((value for key, value in one.attrib.items() if key.endswith("}name")), "") for one in tables]


def xls_names(job: Job) -> list[str]:
    """The parser says the names itself, unless there is only one."""
    from .coverage import attempt, oxide_text

    text = attempt(lambda: oxide_text(job))
    return [text.split("\n", 1)[0]] if text else []


def under_its_name(name: str, markdown: str) -> str:
    """A sheet begins with its name; the parser leaves it out when there is only one."""
    title = f"## {escape(name)}"
    return markdown if not name or markdown.lstrip().startswith("## ") else f"{title}\n\n{markdown}".strip()


def as_quote(found: re.Match[str]) -> str:
    lines = (line.strip() for line in re.split(r"\n|<br ?/?>", found[1]))
    return "\n".join(f"> {line}".rstrip() for line in lines)


def check_readable(job: Job) -> None:
    """Refuse what is encrypted: the parser takes it for damaged."""
    if job.media_type not in sniff.ODF | {sniff.EPUB}:
        return
    with zipfile.ZipFile(job.source) as archive:
        names = set(archive.namelist())
        if job.media_type == sniff.EPUB:
            locks = xml.parse(archive.read("META-INF/encryption.xml")) if "META-INF/encryption.xml" in names else None
            hidden = (
                [one.get("URI", "") for one in locks.iter() if xml.name_of(one) == "CipherReference"]
                if locks is not None
                else []
            )
            if any(name.lower().endswith((".xhtml", ".html", ".htm", ".xml")) for name in hidden):
                raise DocumentError("document_encrypted")
        elif "META-INF/manifest.xml" in names and b"encryption-data" in archive.read("META-INF/manifest.xml"):
            raise DocumentError("document_encrypted")


def parse(job: Job, notes: Notes) -> Any:
    import docvortex

    vortex.show_numbers(numbers.displayed)
    vortex.keep_lists()
    try:
        return docvortex.parse(prepare(job, notes), file_suffix=SUFFIX[job.media_type])
    except (MemoryError, RecursionError, DocumentError):
        raise
    except Exception as error:
        if "Encrypted" in type(error).__name__:
            raise DocumentError("document_encrypted") from error
        raise DocumentError("document_broken", why=f"its content cannot be read ({type(error).__name__})") from error


def prepare(job: Job, notes: Notes) -> bytes:
    """The file as the parser understands it. Each repair has a name, and is noted in the result."""
    if job.media_type == sniff.DOCX:
        return prepared(job, notes)
    data = job.source.read_bytes()
    if job.media_type in sniff.ODF:
        return without_doctypes(data)
    return data


def without_doctypes(data: bytes) -> bytes:
    """Old OpenOffice writes a DOCTYPE that declares nothing, and the parser refuses any."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = [(entry, archive.read(entry)) for entry in archive.infolist()]
    if not any(b"<!DOCTYPE" in part for entry, part in entries if entry.filename.endswith(".xml")):
        return data
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as new:
        for entry, part in entries:
            new.writestr(entry.filename, DOCTYPE.sub(b"", part) if entry.filename.endswith(".xml") else part)
    return out.getvalue()


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
