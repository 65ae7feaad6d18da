"""A second opinion for every format: words that an independent, simple reader finds must be in the result.

A reader whose result lacks too many of them is followed by the next reader of the format; if none is good enough, the
plain text is taken. What is missing in the end is said in a warning.
"""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from docmill.core.errors import DocmillError, DocumentError

from .. import sniff
from ..markdown import escape, words
from . import xml
from .job import SAMPLE, Job, OutputTooLarge
from .sheets import hidden_sheets

MIN_COVERAGE_RATIO = 0.95
"""Of the words. Below it, what is missing is added at the end, and that is said."""
MIN_FIRST_RATIO = 0.8
"""The first reader knows most of the structure: with so many of the words it is not replaced."""
MIN_GAIN_RATIO = 0.1
"""What another reader must have more, to be taken instead."""
MIN_LOST_RATIO = 0.6
"""Of a line's words, to count as missing."""
MIN_KEPT_RATIO = 0.5
"""Below it the plain text is better than what has structure."""
MIN_WORDS = 5
"""With fewer words a share says nothing, but none at all is still too few."""
MAX_EXAMPLES = 5
TEXT_MB = 64
"""Of plain text; the rest is not compared."""
NO_PLAIN_TEXT = "structure dropped to keep the text"

T = TypeVar("T")
Reader = Callable[[Job], None]


def read_whole(job: Job, first: Reader) -> None:
    """Let the best reader of the format read the document."""
    if job.media_type not in WITNESSES:
        with_panics_caught(job, first)
        return
    seen = (attempt(lambda: WITNESSES[job.media_type](job)) or "")[: TEXT_MB << 20]
    wanted = wanted_words(seen, job.media_type)
    best, share = best_draft(job, (first, *OTHERS.get(job.media_type, ())), wanted)
    if share < MIN_KEPT_RATIO and (wanted.total() >= MIN_WORDS or is_empty(best)):
        best = plain(job, seen)
    elif share < MIN_COVERAGE_RATIO and wanted.total() >= MIN_WORDS:
        if append_missing(best, seen, wanted):
            best.warn(f"text_unplaced: {round(100 * (1 - share))} % of the words had no place: most stand at the end")
        if (share := share_of(wanted, best)) < MIN_COVERAGE_RATIO:
            best.warn(f"text_lost: {round(100 * (1 - share))} % of the words, such as {missing(wanted, best)}")
    job.adopt(best)
    job.progress(best.pages, best.pages)


def best_draft(job: Job, readers: tuple[Reader, ...], wanted: Counter[str]) -> tuple[Job, float]:
    """The first reader's result, unless it lost much that another one has."""
    best, best_share = job.draft(), -1.0
    failed: DocumentError | None = None
    for reader in readers:
        draft = job.draft()
        try:
            with_panics_caught(draft, reader)
        except DocumentError as error:
            if error.code != "document_broken":
                raise
            failed = failed or error
            continue
        share = share_of(wanted, draft)
        if share > best_share + MIN_GAIN_RATIO:
            best, best_share = draft, share
        if best_share >= MIN_FIRST_RATIO:
            break
    if best_share < 0 and not wanted:
        raise failed or DocumentError("document_broken", why="no reader understands it")
    return best, best_share


def append_missing(draft: Job, seen: str, wanted: Counter[str]) -> bool:
    """Lines that are mostly missing stand below the last page: charts and shapes have no place in the text."""
    lost = wanted - found_words(draft)
    lines: list[str] = []
    for line in seen.splitlines():
        own = words(line)
        absent = sum(min(count, max(lost[word], 0)) for word, count in own.items())
        if own and absent >= MIN_LOST_RATIO * own.total():
            lost.subtract(own)
            lines.append(escape(line))
    is_added = bool(lines and draft.kept)
    if is_added:
        page, figures = draft.kept[-1]
        markdown = "\n\n".join([page.markdown.rstrip(), *lines])
        draft.kept[-1] = (replace(page, markdown=markdown.strip()), figures)
        draft.sample = draft.sample or markdown[:SAMPLE]
    return is_added


def with_panics_caught(job: Job, reader: Reader) -> None:
    """Whatever a reader raises that is not meant becomes `document_broken`. Panics of Rust are no Exception."""
    try:
        reader(job)
    except (DocmillError, MemoryError, RecursionError, OutputTooLarge, OSError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise DocumentError("document_broken", why=f"its content cannot be read ({type(error).__name__})") from error


def attempt(read: Callable[[], T]) -> T | None:
    """The result, or None if the library gives up, in whatever way."""
    try:
        return read()
    except (MemoryError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        return None


def wanted_words(text: str, media_type: str) -> Counter[str]:
    found = words(text)
    if media_type in SHEETS:
        # Readers display numbers and dates differently.
        for word in [word for word in found if any(map(str.isdigit, word))]:
            del found[word]
    return found


def share_of(wanted: Counter[str], draft: Job) -> float:
    """How many of the words are in the pages, 0-1."""
    total = wanted.total()
    if not total:
        return 1.0
    found = found_words(draft)
    return sum(min(count, found[word]) for word, count in wanted.items()) / total


def found_words(draft: Job) -> Counter[str]:
    found: Counter[str] = Counter()
    for page, _ in draft.kept:
        found.update(words(ENTITY.sub(" ", page.markdown)))  # `+=` would look at all words for every page
    return found


ENTITY = re.compile(r"&(?:amp|lt|gt|quot|nbsp|#\d{1,6});|</?[a-z][a-z0-9]{0,10}/?>")


def is_empty(draft: Job) -> bool:
    return not any(any(map(str.isalnum, page.markdown)) or figures for page, figures in draft.kept)


def missing(wanted: Counter[str], draft: Job) -> str:
    lost = wanted - found_words(draft)
    return ", ".join(word[:30] for word, _ in lost.most_common(MAX_EXAMPLES))


def plain(job: Job, text: str) -> Job:
    """The text without structure."""
    draft = job.draft()
    paragraphs = (" ".join(line.split()) for line in text.splitlines())
    draft.add_page(0, "\n\n".join(line.replace("<", "\\<") for line in paragraphs if line))
    draft.warn(NO_PLAIN_TEXT)
    return draft


def oxide_text(job: Job) -> str:
    from office_oxide import Document

    text = str(Document.from_bytes(job.source.read_bytes(), OXIDE[job.media_type]).plain_text())
    text = OXIDE_LABEL.sub(lambda found: found[1] or "", text)
    return without_sheets(text, hidden_sheets(job)) if job.media_type in SHEETS else text


def without_sheets(text: str, hidden: set[str]) -> str:
    """A sheet begins with its name, after an empty line."""
    if not hidden:
        return text
    parts = re.split(r"\n\n", text)
    return "\n\n".join(part for part in parts if part.lstrip("\n").split("\n", 1)[0] not in hidden)


def oxide_markdown(job: Job) -> None:
    """The fallback of DOC: it reads Word 6 and 95, too, but invents headings."""
    from office_oxide import Document

    from ..markdown import disarm, tidy

    try:
        markdown = str(Document.from_bytes(job.source.read_bytes(), OXIDE[job.media_type]).to_markdown())
    except Exception as error:
        raise DocumentError("document_broken", why="its content cannot be read") from error
    job.add_page(0, tidy(disarm(markdown)))


def zip_text(*endings: str) -> Callable[[Job], str]:
    def read(job: Job) -> str:
        with zipfile.ZipFile(job.source) as archive:
            names = [name for name in archive.namelist() if name.endswith(endings)]
            return "\n".join(xml_texts(archive, names))

    return read


def xml_texts(archive: zipfile.ZipFile, names: list[str]) -> Iterator[str]:
    for name in names:
        root = attempt(lambda name=name: xml.parse(archive.read(name)))  # type: ignore[misc]
        if root is not None:
            yield xml.text_of(root)


def odf_text(job: Job) -> str:
    with zipfile.ZipFile(job.source) as archive:
        return xml.text_of(xml.parse(archive.read("content.xml")))


def xml_text(job: Job) -> str:
    return xml.text_of(xml.parse(job.source.read_bytes()))


def rtf_text(job: Job) -> str:
    from .rtf import plain_text

    return plain_text(job.source.read_bytes())


OXIDE_LABEL = re.compile(
    r"^(?:\[Notes\]|Categories: [^\n]*|Series \d+: [^\n]*|Title: [^\n]*|Comment \(([^\n()]{0,200})\):)", re.MULTILINE
)
"""Words that office-oxide adds: labels, and the data of charts once more."""
SHEETS = frozenset({sniff.XLS, sniff.XLSX, sniff.ODS, sniff.XLSB})
OXIDE: dict[str, Any] = {
    sniff.DOC: "doc",
    sniff.XLS: "xls",
    sniff.PPT: "ppt",
    sniff.DOCX: "docx",
    sniff.XLSX: "xlsx",
    sniff.PPTX: "pptx",
}
WITNESSES: dict[str, Callable[[Job], str]] = {
    **dict.fromkeys(OXIDE, oxide_text),
    **dict.fromkeys(sniff.ODF, odf_text),
    sniff.EPUB: zip_text(".xhtml", ".html", ".htm"),
    sniff.OFD: zip_text("Content.xml"),
    sniff.RTF: rtf_text,
    sniff.FB2: xml_text,
    sniff.DOCBOOK: xml_text,
    sniff.JATS: xml_text,
    sniff.XML: xml_text,
}
"""Independent readers that know words and no structure."""
OTHERS: dict[str, tuple[Reader, ...]] = {
    sniff.DOC: (oxide_markdown,),
    sniff.PPT: (oxide_markdown,),
    sniff.XLS: (oxide_markdown,),
    sniff.DOCX: (oxide_markdown,),
    sniff.PPTX: (oxide_markdown,),
}
"""Further readers with structure, in the order in which they are tried."""
