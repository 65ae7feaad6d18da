"""PDF, page by page: the text layer where there is one, OCR where there is none, in windows that keep memory flat.

Each page is read once with PDFium: words, drawings, pictures, tags. A tagged page is read by its tags, any other by its
layout. Whatever came out is checked against the words: structure is worth nothing if words got lost.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pypdfium2 as pdfium

from docmill.core.errors import DocumentError

from ...markdown import ENOUGH, coverage, disarm, image_link, tidy
from .. import ocr
from ..image import as_png
from ..job import Job
from . import figures, layout, streams, tagged
from .blocks import Block, join, markdown, pieces, together, written
from .content import PageContent
from .figures import Cutter
from .headings import Profile, ladder_of, letters, profile_of, set_levels
from .ruled import laid_out
from .running import Edges, Remembered, Running, edges
from .survey import LONGEST_SIDE, OpenPages, Source, Survey, is_tagged, open_pages, rendered, survey

if TYPE_CHECKING:
    from PIL.Image import Image

WINDOW = 32
"""Pages that are looked at together."""
OCR_DPI = 200
SHOW_DPI = 150
LONG = 2 * WINDOW
"""Pages. A document with more is divided, if somebody can do that."""
SAMPLE_PAGES = 10
"""Of a long document, from which every window learns what is usual in it."""
SAME_EDGE = 0.02
"""Of the page's width."""
OPEN_END = re.compile(r"[^\W_][*_`,-]*$")
SMALL_START = re.compile(r"[*_`]*[a-zß-öø-ÿа-яё]")
MIN_OPEN_LETTERS = 40
LOW_END, HIGH_START = 0.7, 0.3
"""Of the page's height."""
SOME_COVER = 0.02
"""So much of a page is a picture that it must not get lost."""
BeforeWindow = Callable[[list[Edges]], list[Edges]]
"""Is told what stands at the edges of a window's pages; tells what stood at those of the pages before."""
LIGATURES = str.maketrans(
    {
        "ﬀ": "ff",
        "ﬁ": "fi",
        "ﬂ": "fl",
        "ﬃ": "ffi",
        "ﬄ": "ffl",
        "ﬅ": "st",
        "ﬆ": "st",
        "\u00a0": " ",
        "\u00ad": None,
        "\ufffe": None,
    }
)
LIGATURE = re.compile(f"[{''.join(map(chr, LIGATURES))}]")


def read(job: Job) -> None:
    with open_pages(job.source) as pages:
        document = pages.document
        total = len(document)
        job.check_pages(total)
        if not total:
            raise DocumentError("document_broken", why="it has no pages")
        job.title = meaningful(document.get_metadata_value("Title").strip())
        if job.divisible and total > LONG:
            job.divided = total
            return
        reader, before = Reader(job, pages, total), Remembered()
        for start in range(0, total, WINDOW):
            if start:
                pages.renew()
            reader.window(range(start, min(start + WINDOW, total)), before)
    conclude(job, pages.source)


def read_part(
    job: Job, indices: range, total: int, before: BeforeWindow, *, wanted: int, is_called: Callable[[], bool]
) -> int:
    """A window of a long document: its pages from *wanted* on, until called. Gives the page after the last."""
    with open_pages(job.source) as pages:
        return Reader(job, pages, total).window(indices, before, wanted=wanted, is_called=is_called)


def conclude(job: Job, source: Source | None = None) -> None:
    """What is looked at when all pages are read."""
    # A page may be blank because its picture is not shown any more.
    images = bool(job.facts.get("ocr_pages") or job.facts.get("blank_pages"))
    if corrupt := streams.count_corrupt(source or job.source, images=images):
        job.warn(f"the file is damaged ({corrupt} streams cannot be decoded): words may be missing")


def meaningful(title: str) -> str | None:
    """Many programs write a file name, or nothing at all, into the title."""
    useless = title.lower() in ("untitled", "unknown", "document") or re.search(r"\.\w{2,4}$", title)
    return None if len(title) < 4 or useless else title


class Reader:
    """One document on its way: what its pages have in common, and each page in turn."""

    def __init__(self, job: Job, pages: OpenPages, total: int) -> None:
        self.tagged = is_tagged(pages.document)
        self._job = job
        self._pages = pages
        self._total = total

    @cached_property
    def _bookmarks(self) -> dict[str, int]:
        return bookmark_levels(self._pages.document)

    @cached_property
    def _sample(self) -> tuple[Profile, list[float]]:
        """What is usual in a long document, from a few of its pages: the same for every window."""
        step = self._total / SAMPLE_PAGES
        surveys = [survey(self._pages, int(number * step), tagged=False) for number in range(SAMPLE_PAGES)]
        contents = [page.content for page in surveys]
        profile = profile_of(contents)
        return profile, ladder_of(contents, profile)

    def window(
        self, indices: range, before: BeforeWindow, *, wanted: int = 0, is_called: Callable[[], bool] = lambda: False
    ) -> int:
        """Look at the pages together, then write one after the other, from *wanted* on and until called."""
        job = self._job
        surveys = {index: survey(self._pages, index, tagged=self.tagged) for index in indices}
        scans = {index for index in indices if wants_ocr(job, surveys[index])}
        contents = [surveys[index].content for index in indices if index not in scans]
        profile, ladder = self._sample if self._total > WINDOW else (profile_of(contents), None)
        blocks = {index: self._structure(index, surveys[index], profile) for index in indices if index not in scans}
        found = [page for page in blocks.values() if page is not None]
        set_levels(found, profile, self._bookmarks, ladder)
        own = [edges(page) for page in found]
        running = Running(before(own) + own)
        kept = {index: page and running.without(page) for index, page in blocks.items()}
        join_pages(kept)
        for index in indices:
            if index < wanted:
                continue
            if job.options.get("page_images") is True and surveys[index].damage is None:
                with contextlib.suppress(pdfium.PdfiumError):
                    job.add_page_image(as_png(rendered(self._pages.document, index, SHOW_DPI), LONGEST_SIDE), index)
            if index in scans:
                read_scan(job, self._pages.document, index, surveys[index])
            else:
                self._write(index, surveys[index], kept[index])
            job.progress(index + 1, self._total)
            if is_called():
                return index + 1
        return indices.stop

    def _structure(self, index: int, page: Survey, profile: Profile) -> list[Block] | None:
        """The page's blocks, or None where only its bare text is to be had."""
        if page.damage is not None or page.is_odd or page.is_blank:
            return None
        text = page.text  # before a page that lies on its side is turned
        try:
            found = self._read_blocks(page.content, profile)
        except (MemoryError, RecursionError):
            raise
        except Exception as error:  # no page is so odd that a rule about tables may cost the document
            self._job.warn(f"page {index + 1}: structure in doubt ({type(error).__name__})")
            return None
        if page.letters and coverage(text, markdown(found)) < ENOUGH:
            self._job.warn(f"page {index + 1}: structure dropped to keep the text")
            pictures = [block for block in found if block.kind == "figure"]
            return [Block("text", bare(text)), *pictures]
        return found

    def _read_blocks(self, content: PageContent, profile: Profile) -> list[Block]:
        if self.tagged and (found := tagged.read(content, is_typed=profile.is_typed)) is not None:
            return layout.with_figures(found, content)
        return layout.read_page(content, profile)

    def _write(self, index: int, page: Survey, blocks: list[Block] | None) -> None:
        job = self._job
        if page.damage is not None or blocks is None:
            if page.letters and page.damage is None:
                job.warn(f"page {index + 1}: structure lost")
            job.add_page(index, bare(page.text), damage=page.damage)
            return
        figures.keep(job, Cutter(self._pages, index, page.content), index, blocks)
        texts = [written(block) for block in blocks]
        text = finish(together(blocks, texts))
        if not text and page.picture_cover > SOME_COVER:
            with contextlib.suppress(pdfium.PdfiumError):
                text = whole_page(job, rendered(self._pages.document, index, OCR_DPI), index)
        job.add_page(index, text, pieces=pieces(blocks, texts), settled=finish)


def join_pages(pages: dict[int, list[Block] | None]) -> None:
    """A table or a paragraph that goes on at the top of the next page is one, on the page on which it begins."""
    for index in sorted(pages, reverse=True):
        upper, lower = pages.get(index - 1), pages[index]
        if not upper or not lower:
            continue
        if goes_on(upper[-1], lower[0]):
            rows = lower.pop(0).rows
            repeats = [cell.text for cell in rows[0]] == [cell.text for cell in upper[-1].rows[0]]
            upper[-1].rows += rows[1:] if repeats else rows
        elif (last := last_text(upper)) is not None and ends_open(last, lower[0]):
            last.text = join(last.text, lower.pop(0).text)


def last_text(blocks: list[Block]) -> Block | None:
    """The page's last paragraph, before its notes and figures."""
    for block in reversed(blocks):
        if block.kind in ("text", "item") and not block.text.startswith("[^"):
            return block
        if block.kind not in ("text", "figure", "caption"):
            return None
    return None


def ends_open(last: Block, first: Block) -> bool:
    """At the foot of a page and the head of the next, no sentence ended, and it goes on with a small letter."""
    end = (last.places or (last.box,))[-1]
    if (end is not None and end[3] < LOW_END) or (first.box is not None and first.box[1] > HIGH_START):
        return False
    if first.kind != "text" or not OPEN_END.search(last.text) or "\n" in last.text or last.text.startswith("$$"):
        return False
    return len(last.text) > MIN_OPEN_LETTERS and SMALL_START.match(first.text) is not None


def goes_on(upper: Block, lower: Block) -> bool:
    """Tables of one width and as many columns, at the foot of a page and at the head of the next."""
    if upper.kind != "table" or lower.kind != "table" or upper.box is None or lower.box is None:
        return False
    is_same_place = abs(upper.box[0] - lower.box[0]) < SAME_EDGE and abs(upper.box[2] - lower.box[2]) < SAME_EDGE
    return is_same_place and upper.box[3] > 0.6 and lower.box[1] < 0.25 and width_of(upper) == width_of(lower)


def width_of(table: Block) -> int:
    return max(at + cell.columns for row in laid_out(table.rows) for at, cell in row)


def finish(text: str) -> str:
    # Few pages have one of them, and to look each letter up takes long.
    return tidy(disarm(text if LIGATURE.search(text) is None else text.translate(LIGATURES)))


def bookmark_levels(document: Any) -> dict[str, int]:
    """The outline knows how deep a heading lies."""
    levels: dict[str, int] = {}
    with contextlib.suppress(pdfium.PdfiumError, UnicodeDecodeError, RecursionError):
        for number, mark in enumerate(document.get_toc(max_depth=6)):
            if number > 5000:
                break
            levels.setdefault(letters(mark.get_title()), min(6, mark.level + 1))
    levels.pop("", None)
    return levels


def wants_ocr(job: Job, page: Survey) -> bool:
    if page.damage is not None or job.ocr == "never" or (page.is_odd and page.letters):
        return False
    return job.ocr == "always" or page.needs_ocr


def read_scan(job: Job, document: Any, index: int, page: Survey) -> None:
    try:
        picture = rendered(document, index, OCR_DPI)
    except pdfium.PdfiumError:
        job.add_page(index, tidy(page.text), damage="the page cannot be rendered")
        return
    reading = ocr.read(picture)
    text = reading.markdown
    job.facts["ocr_pages"] = job.facts.get("ocr_pages", 0) + 1
    if not text and page.picture_cover > SOME_COVER:
        text = whole_page(job, picture, index)
    if page.letters and not page.garbled and coverage(page.text, text) < ENOUGH / 2:
        text = f"{text}\n\n{bare(page.text)}".strip()
    job.add_page(index, text, pieces=reading.pieces)


def whole_page(job: Job, picture: Image, index: int) -> str:
    """A picture in which nothing could be read, or was to be read, is shown as it is."""
    name = job.add_image(as_png(picture, LONGEST_SIDE // 2), index, (0.0, 0.0, 1.0, 1.0))
    return image_link(name) if name else ""


def bare(text: str) -> str:
    """The text layer as it is: an empty line between blocks, nothing lost."""
    return tidy(re.sub(r"(?<![ \t])[ \t]+\n", "\n", text))
