"""From bytes to pages: find the type, refuse bombs, call the format's reader, say what language it is in."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module

from docmill.core.errors import DocumentError

from .. import sniff
from . import guards
from .job import Job

READERS = {
    sniff.PDF: "pdf",
    sniff.PNG: "image",
    sniff.JPEG: "image",
    sniff.TIFF: "image",
    sniff.WEBP: "image",
    sniff.GIF: "image",
    sniff.BMP: "image",
    sniff.DOCX: "office",
    sniff.PPTX: "office",
    sniff.XLSX: "office",
    sniff.HTML: "web",
    sniff.EML: "mail",
    sniff.CSV: "text",
    sniff.MARKDOWN: "text",
    sniff.TEXT: "text",
}

TELLING = 1500
"""Letters. More of them tell no more of the language."""
FEWEST = 24
"""Letters; Chinese ones say three times as much."""
GLANCES = (80, 200)
"""Letters of the beginning and of the middle."""
SURE = 40.0
"""How far the first language must be ahead of the second in a glance, or more of the letters are read."""
LIKELY = """
ar bg bn ca cs da de el en es et fa fi fr he hi hr hu id is it ja ko lt lv ms nl nn no pl pt ro ru sk sl sr sv
sw ta th tr uk ur vi zh
"""


def read(job: Job) -> None:
    job.media_type = sniff.sniff(job.source, job.filename)
    guards.check_type(job.source, job.filename, job.media_type, READERS)
    if job.media_type in sniff.OOXML:
        guards.check_zip(job.source, job.limits)
    reader(job.media_type)(job)
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


def guess_language(text: str) -> str | None:
    """Short texts say little, and rare languages are mostly wrong guesses."""
    if not says_enough(text[:TELLING]):
        return None
    middle = len(text) // 2
    for glance in GLANCES:
        first, second = classifier()(text[:glance] + text[max(glance, middle) : middle + glance])[:2]
        if first[1] - second[1] >= SURE:
            return first[0]
    return classifier()(text[:TELLING])[0][0]


def says_enough(text: str) -> bool:
    if sum(map(str.isalpha, text[: 3 * FEWEST])) >= FEWEST or sum(map(str.isalpha, text)) >= FEWEST:
        return True
    return sum(3 if letter > "\u2e80" else 1 for letter in text if letter.isalpha()) >= FEWEST


@cache
def classifier() -> Callable[[str], list[tuple[str, float]]]:
    """Gives the languages in the order of their likelihood."""
    from py3langid import langid

    identifier = langid._get_identifier()
    identifier.set_languages(LIKELY.split())
    # It keeps all languages for who asks for them later. Nobody does, and they take 28 MB.
    identifier._full_model = (identifier.nb_ptc, identifier.nb_pc, identifier.nb_classes)
    found: Callable[[str], list[tuple[str, float]]] = identifier.rank
    return found
