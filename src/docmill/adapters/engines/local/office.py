"""DOCX, PPTX and XLSX: slides and sheets are pages, a text document is one."""

from __future__ import annotations

import re
import zipfile
from typing import Any

from docmill.core.errors import DocumentError

from . import sniff, vortex
from .job import Job
from .markdown import disarm, tidy

SUFFIX = {sniff.DOCX: "docx", sniff.PPTX: "pptx", sniff.XLSX: "xlsx"}


def read(job: Job) -> None:
    result = parse(job)
    properties = result.middle_json.metadata.document
    if properties is not None:
        job.title = properties.title
        job.language = properties.languages[0] if properties.languages else None
    pages = result.middle_json.pages
    job.check_pages(len(pages))
    for done, page in enumerate(pages, 1):
        index = page.page_idx
        for block, html in vortex.tables(page):
            job.add_table(html, index, anchor=vortex.table_anchor(result.middle_json, page, block))
        job.add_page(index, place_images(job, index, vortex.render(result.middle_json, page), result.assets))
        job.progress(done, len(pages))


def parse(job: Job) -> Any:
    import docvortex

    try:
        return docvortex.parse(job.source.read_bytes(), file_suffix=SUFFIX[job.media_type])
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
    return re.sub(rf"!\[([^\]]*)\]\({path}[^)]*\)|<img[^>]*{path}[^>]*>", lambda found: found[1] or "", markdown)
