"""Plain text, Markdown and CSV."""

from __future__ import annotations

import csv
import io

from docmill.core.errors import DocumentError

from .. import sniff
from ..markdown import html_table, table
from .job import Job

CSV_ROWS_PER_PAGE = 1000
CSV_CELLS = 200_000
"""Larger tables still come as Markdown, but not once more as an HTML asset."""


def read(job: Job) -> None:
    text = decode(job.source.read_bytes())
    if job.media_type == sniff.CSV:
        read_csv(job, text)
    else:
        job.add_page(0, text.strip("\n"))
        job.progress(1, 1)


def decode(data: bytes) -> str:
    encoding = sniff.charset(data) or "cp1252"
    try:
        return data.decode(encoding).lstrip("\ufeff")
    except UnicodeDecodeError:
        return data.decode(encoding, "replace").lstrip("\ufeff")


def read_csv(job: Job, text: str) -> None:
    """One table; a long one goes on, with its head repeated, on further pages."""
    csv.field_size_limit(16 * 1024 * 1024)
    lines = text.splitlines()
    mark = sniff.delimiter(lines[:200]) or max(",;\t|", key=lambda mark: "\n".join(lines[:20]).count(mark))
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=mark) if any(map(str.strip, row))]
    except csv.Error as error:
        raise DocumentError("document_broken", why=f"not readable as CSV: {error}") from error
    if not rows:
        job.add_page(0, "")
        return
    head, body = rows[0], rows[1:]
    parts = [body[start : start + CSV_ROWS_PER_PAGE] for start in range(0, len(body), CSV_ROWS_PER_PAGE)] or [[]]
    job.check_pages(len(parts))
    for index, part in enumerate(parts):
        shown = [head, *part]
        if len(rows) * len(head) <= CSV_CELLS:
            job.add_table(html_table(shown), index)
        job.add_page(index, table(shown))
        job.progress(index + 1, len(parts))
