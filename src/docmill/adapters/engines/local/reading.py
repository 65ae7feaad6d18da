"""From bytes to pages: find the type, refuse bombs, call the format's reader, say what language it is in."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from docmill.core.errors import DocumentError

from .. import sniff
from . import guards
from .job import Job
from .language import guess_language

READERS = {one.media_type: one.reader for one in sniff.FORMATS if one.reader}
"""The module of each type that is read."""


def read(job: Job) -> None:
    job.media_type = sniff.sniff(job.source, job.filename)
    guards.check_type(job.source, job.filename, job.media_type, READERS)
    if job.media_type in sniff.ZIPPED:
        guards.check_zip(job.source, job.limits, may_declare_type=job.media_type not in sniff.OOXML)
    if job.media_type == sniff.PDF:
        reader(job.media_type)(job)
    else:
        from .coverage import read_whole

        read_whole(job, reader(job.media_type))
    if not job.divided:
        conclude(job)


def conclude(job: Job) -> None:
    """What is said of a document when all of its pages are read."""
    if job.pages and job.damaged == job.pages:
        raise DocumentError("document_broken", why="none of its pages could be read")
    settle(job)


def reader(media_type: str) -> Callable[[Job], None]:
    found: Callable[[Job], None] = import_module(f"{__package__}.{READERS[media_type]}").read
    return found


def settle(job: Job) -> None:
    """Title and language, when the format did not tell, and a word on documents without text."""
    text = job.sample.strip()
    if not any(letter.isalnum() for letter in text):
        job.facts["no_text"] = True
    job.title = (job.title or "").strip()[:300] or (job.first_heading or "").strip()[:300] or None
    asked = job.options.get("language")
    job.language = (asked if isinstance(asked, str) and asked else job.language) or guess_language(text)
    if job.language:
        job.language = job.language.replace("_", "-").split("-")[0].lower()[:3]
