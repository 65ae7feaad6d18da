"""Pages, Numbers and Keynote: the PDF that the program kept as a preview, or the XML of files before 2013."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

from docmill.core.errors import DocumentError

from .. import sniff
from ..markdown import escape
from . import xml
from .job import Job

PREVIEW = "QuickLook/Preview.pdf"
OLD = ("index.xml", "index.apxl", "index.xml.gz", "index.apxl.gz")
MAX_XML_BYTES = 256 << 20


def read(job: Job) -> None:
    with zipfile.ZipFile(job.source) as archive:
        names = set(archive.namelist())
        if ".iwph" in names or "SharedStrings.plist.enc" in names:
            raise DocumentError("document_encrypted")
        preview = archive.read(PREVIEW) if PREVIEW in names else b""
        old = next((name for name in OLD if name in names), None)
        data = archive.read(old) if old else b""
    if preview.startswith(b"%PDF"):
        read_preview(job, preview)
    elif old:
        read_old(job, unpacked(data) if old.endswith(".gz") else data)
    else:
        facts = {"media_type": sniff.IWORK, "type": "Pages, Numbers or Keynote document without a preview"}
        raise DocumentError("document_unsupported", **facts, advice="Export it as PDF, or as DOCX, XLSX or PPTX.")


def read_preview(job: Job, data: bytes) -> None:
    from . import pdf

    source = job.folder / "preview.pdf"
    source.write_bytes(data)
    draft = job.draft(source=source, media_type=sniff.PDF)
    try:
        pdf.read(draft)
    finally:
        source.unlink(missing_ok=True)
    draft.warn("read from the preview that the program kept, not from the document itself")
    job.adopt(draft)


def unpacked(data: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            found = stream.read(MAX_XML_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DocumentError("document_broken", why="its packed data is damaged") from error
    if len(found) > MAX_XML_BYTES:
        raise DocumentError("document_bomb", why="its XML is too large")
    return found


def read_old(job: Job, data: bytes) -> None:
    """Paragraphs and cells of the body, without those of templates."""
    lines = list(dict.fromkeys(old_text(xml.parse(data))))
    if not lines:
        raise DocumentError("document_broken", why="it holds no text that can be read")
    job.warn("only the words of the document were read, without its layout")
    job.add_page(0, "\n\n".join(lines))


def old_text(root: Any) -> Iterator[str]:
    stack = [root]
    while stack:
        element = stack.pop()
        name = xml.name_of(element)
        if name in ("stylesheet", "theme-list", "metadata", "placeholder-style", "master-slides", "theme"):
            continue
        if name == "p":
            text = " ".join("".join(element.itertext()).split())
            if text:
                yield escape(text)
            continue
        if name == "ct":
            said = next((value for key, value in element.attrib.items() if key.endswith("}s")), "")
            if said.strip():
                yield escape(said)
        if name == "tabular-model":
            said = next((value for key, value in element.attrib.items() if key.endswith("}name")), "")
            if said.strip():
                yield escape(said)
        if name == "n":
            said = next((value for key, value in element.attrib.items() if key.endswith("}v")), "")
            if said.strip():
                yield escape(said)
        stack.extend(reversed(element))
