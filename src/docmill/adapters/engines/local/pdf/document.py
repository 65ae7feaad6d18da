"""PDF, page by page: the text layer where there is one, OCR where there is none, in windows that keep memory flat.

Each window is surveyed with PDFium (bare text, sizes, pictures) and read by liteparse, which is fast. A tagged page is
read by its tags. Pages whose structure is doubtful go through docvortex, which is slow. Whatever came out is checked
against the bare text: structure is worth nothing if words got lost.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import pypdfium2 as pdfium

from docmill.core.errors import DocumentError

from ...markdown import ENOUGH, coverage, disarm, image_link, tidy
from .. import ocr, vortex
from ..image import as_png
from ..job import Job
from . import careful, figures, lite, pixels, quick, streams, tagged
from .blocks import Block, joined, markdown, pieces, stretch, together, written
from .figures import Cutter, FindPixels
from .lite import WINDOW
from .running import Edges, Remembered, Running, edges
from .survey import (
    LONGEST_SIDE,
    OpenPages,
    Source,
    Survey,
    is_sensible,
    is_tagged,
    page_size,
    rendered,
    survey,
    taken,
    told,
)

if TYPE_CHECKING:
    from PIL.Image import Image

OCR_DPI = 200
SHOW_DPI = 150
LONG = 2 * WINDOW
"""Pages. A document with more is divided, if somebody can do that."""
SOME_COVER = 0.02
"""So much of a page is a picture that it must not get lost."""
WELL = 0.9
"""So much of the words is usual; with less, the next reader may try."""
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
    with opened(job) as (pages, found):
        document = pages.document
        total = len(document)
        job.check_pages(total)
        if not total:
            raise DocumentError("document_broken", why="it has no pages")
        job.title = telling(document.get_metadata_value("Title").strip())
        if job.divisible and total > LONG:
            job.divided = total
            return
        reader, before = Reader(job, pages, found, total), Remembered()
        for start in range(0, total, WINDOW):
            if start:
                pages.renew()
            reader.window(range(start, min(start + WINDOW, total)), before)
    conclude(job, pages.source)


def read_part(
    job: Job, indices: range, total: int, before: BeforeWindow, *, wanted: int, is_called: Callable[[], bool]
) -> int:
    """A window of a long document: its pages from *wanted* on, until called. Gives the page after the last."""
    with opened(job) as (pages, found):
        return Reader(job, pages, found, total).window(indices, before, wanted=wanted, is_called=is_called)


def conclude(job: Job, source: Source | None = None) -> None:
    """What is looked at when all pages are read."""
    # A page may be blank because its picture is not shown any more.
    images = bool(job.facts.get("ocr_pages") or job.facts.get("blank_pages"))
    if hurt := streams.hurt(source or job.source, images=images):
        job.warn(f"the file is damaged ({hurt} streams cannot be decoded): words may be missing")


@contextlib.contextmanager
def opened(job: Job) -> Iterator[tuple[OpenPages, FindPixels]]:
    with contextlib.closing(OpenPages(taken(job.source))) as pages, contextlib.ExitStack() as later:
        yield pages, cache(lambda: later.enter_context(pixels.opened(job.source)))


def telling(title: str) -> str | None:
    """Many programs write a file name, or nothing at all, into the title."""
    useless = title.lower() in ("untitled", "unknown", "document") or re.search(r"\.\w{2,4}$", title)
    return None if len(title) < 4 or useless else title


class Reader:
    """One document on its way: what its pages have in common, and each page in turn."""

    def __init__(self, job: Job, pages: OpenPages, found: FindPixels, total: int) -> None:
        self.tagged = is_tagged(pages.document)
        self._job = job
        self._pages = pages
        self._pixels = found
        self._total = total

    @cached_property
    def _levels(self) -> dict[str, int]:
        return bookmark_levels(self._pages.document)

    def window(
        self, indices: range, before: BeforeWindow, *, wanted: int = 0, is_called: Callable[[], bool] = lambda: False
    ) -> int:
        """Look at the pages together, then write one after the other, from *wanted* on and until called."""
        job = self._job
        fast = self._fast(indices)
        surveys = {index: self._survey(index, fast.get(index)) for index in indices}
        scans = {index for index in indices if wants_ocr(job, surveys[index])}
        pages = {index: self._structure(surveys[index], fast.get(index)) for index in indices if index not in scans}
        doubtful = [index for index, (_, doubt) in pages.items() if doubt]
        for index, (quickly, doubt) in pages.items():
            if surveys[index].is_told and (quickly is None or doubt):
                surveys[index] = survey(self._pages, index)
        slow = careful_pages(self._pages.document, doubtful, job)
        blocks = {
            index: self._choose(index, surveys[index], fast.get(index), quickly, slow.get(index))
            for index, (quickly, _) in pages.items()
        }
        own = [edges(found) for found in blocks.values() if found is not None]
        running = Running(before(own) + own)
        for index in indices:
            if index < wanted:
                continue
            if job.options.get("page_images") is True and surveys[index].damage is None:
                with contextlib.suppress(pdfium.PdfiumError):
                    job.add_page_image(as_png(rendered(self._pages.document, index, SHOW_DPI), LONGEST_SIDE), index)
            if index in scans:
                read_scan(job, self._pages.document, index, surveys[index])
            else:
                found = blocks[index]
                self._write(index, surveys[index], fast.get(index), found and running.without(found))
            job.progress(index + 1, self._total)
            if is_called():
                return index + 1
        return indices.stop

    def _fast(self, indices: range) -> dict[int, lite.Page]:
        """liteparse's pages, unless one of them would take all memory."""
        if not all(is_sensible(page_size(self._pages.document, index)) for index in indices):
            return {}
        return lite.pages(self._pages.source, indices, self._total, tagged=self.tagged)

    @cached_property
    def _needs_check(self) -> bool:
        return self._job.ocr == "always" or streams.may_hide_letters(self._pages.source)

    def _survey(self, index: int, fast: Any) -> Survey:
        """PDFium's text, to check against, where liteparse's may lack words."""
        page = told(fast) if fast is not None and not self._needs_check else None
        return page or survey(self._pages, index)

    def _structure(self, page: Survey, fast: Any) -> tuple[list[Block] | None, bool]:
        """The quick reading of a page, and whether it is in doubt."""
        if page.damage is not None or page.is_odd or page.is_blank:
            return None, False
        if fast is None:
            return None, True
        if self.tagged and (found := tagged.read(fast)) is not None:
            return with_figures(found, fast), False
        if (turn := quick.turned(fast)) is not None:
            text = Block("text", joined(quick.straight_lines(fast, turn)))
            found = with_figures([text], fast)
            text.box = quick.around(fast)  # only now: what stands above it on the page is not read before it
            return found, False
        try:
            found, _, guessed = quick.read(fast)
            return found, page.hides_text or quick.is_doubtful(fast, found, guessed)
        except (MemoryError, RecursionError):
            raise
        except Exception as error:  # no page is so odd that a rule about tables may cost the document
            self._job.warn(f"page {fast.page_num}: structure in doubt ({type(error).__name__})")
            return None, True

    def _choose(
        self, index: int, page: Survey, fast: Any, quickly: list[Block] | None, slow: tuple[Any, Any] | None
    ) -> list[Block] | None:
        """The best reading that keeps the words."""
        choices: list[list[Block]] = []
        if slow is not None:
            items, size = (fast.text_items, (fast.width, fast.height)) if fast is not None else ([], (1.0, 1.0))
            choices.append(careful.read(*slow, items, size))
        if quickly is not None:
            choices.append(quickly)
        if not choices:
            return None
        written_out = [markdown(choice) for choice in choices]
        scores = [coverage(page.text, text) for text in written_out]
        if page.is_told and min(scores) < WELL:
            page = survey(self._pages, index)
            scores = [coverage(page.text, text) for text in written_out]
        for choice, score in zip(choices, scores, strict=True):
            if score >= WELL or score >= max(scores) - 0.02 > ENOUGH:
                return choice
        best = max(range(len(choices)), key=scores.__getitem__)
        if scores[best] >= ENOUGH or not page.letters:
            return choices[best]
        self._job.warn(f"page {index + 1}: structure dropped to keep the text")
        pictures = [block for block in choices[0] if block.kind == "figure"]
        return [Block("text", bare(page.text)), *pictures]

    def _write(self, index: int, page: Survey, fast: Any, blocks: list[Block] | None) -> None:
        job = self._job
        if page.damage is not None or blocks is None:
            if page.letters and page.damage is None:
                job.warn(f"page {index + 1}: structure lost")
            job.add_page(index, bare(page.text), damage=page.damage)
            return
        for block in blocks:
            if block.kind == "heading" and (level := self._levels.get(letters(block.text))):
                block.level = level
        figures.keep(job, Cutter(self._pages, self._pixels, index, fast), index, blocks)
        texts = [written(block) for block in blocks]
        text = settled(together(blocks, texts))
        if not text and page.picture_cover > SOME_COVER:
            with contextlib.suppress(pdfium.PdfiumError):
                text = whole_page(job, rendered(self._pages.document, index, OCR_DPI), index)
        whole = "\n\n".join(filter(None, [text, filled_in(fast, text)]))
        stretch(blocks, fast)
        job.add_page(index, whole, pieces=pieces(blocks, texts), settled=settled)


def settled(text: str) -> str:
    # Few pages have one of them, and to look each letter up takes long.
    return tidy(disarm(text if LIGATURE.search(text) is None else text.translate(LIGATURES)))


def with_figures(blocks: list[Block], page: Any) -> list[Block]:
    """Tags seldom say where a figure lies; liteparse does."""
    for found in page.blocks:
        box = quick.rect(found.bbox)
        if found.kind == "figure" and box is not None:
            where = quick.share(box, page)
            blocks.insert(careful.place(blocks, where), Block("figure", box=where))
    return blocks


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


def letters(text: str) -> str:
    return "".join(letter for letter in text.casefold() if letter.isalnum())


def wants_ocr(job: Job, page: Survey) -> bool:
    if page.damage is not None or job.ocr == "never" or (page.is_odd and page.letters):
        return False
    return job.ocr == "always" or page.needs_ocr


def careful_pages(document: Any, indices: list[int], job: Job) -> dict[int, tuple[Any, Any]]:
    """docvortex's pages by index. If the window breaks it, page by page; a page that does is left to liteparse."""
    if not indices:
        return {}
    try:
        middle = vortex.analyse(excerpt(document, indices))
        return {indices[page.page_idx]: (middle, page) for page in middle.pages if page.page_idx < len(indices)}
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        if len(indices) == 1:
            job.warn(f"page {indices[0] + 1}: structure lost ({type(error).__name__})")
            return {}
    found: dict[int, tuple[Any, Any]] = {}
    for index in indices:
        found |= careful_pages(document, [index], job)
    return found


def excerpt(document: Any, indices: list[int]) -> bytes:
    """A PDF of these pages alone."""
    part = pdfium.PdfDocument.new()
    try:
        part.import_pages(document, indices)
        out = io.BytesIO()
        part.save(out)
        return out.getvalue()
    finally:
        part.close()


def read_scan(job: Job, document: Any, index: int, page: Survey) -> None:
    try:
        picture = rendered(document, index, OCR_DPI)
    except pdfium.PdfiumError:
        job.add_page(index, tidy(page.text), damage="the page cannot be rendered")
        return
    reading = ocr.read(picture)
    markdown = reading.markdown
    job.facts["ocr_pages"] = job.facts.get("ocr_pages", 0) + 1
    if not markdown and page.picture_cover > SOME_COVER:
        markdown = whole_page(job, picture, index)
    if page.letters and not page.garbled and coverage(page.text, markdown) < ENOUGH / 2:
        markdown = f"{markdown}\n\n{bare(page.text)}".strip()
    job.add_page(index, markdown, pieces=reading.pieces)


def whole_page(job: Job, picture: Image, index: int) -> str:
    """A picture in which nothing could be read, or was to be read, is shown as it is."""
    name = job.add_image(as_png(picture, LONGEST_SIDE // 2), index, (0.0, 0.0, 1.0, 1.0))
    return image_link(name) if name else ""


def filled_in(fast: Any, markdown: str) -> str:
    """What somebody wrote into the page's form: it is not part of the text layer."""
    fields = [field for field in (fast.form_fields if fast is not None else ()) if field.value]
    lines = [
        f"- {field.alternate_name or field.name or field.field_type}: {' '.join(field.value.split())}"
        for field in fields
        if field.field_type not in ("pushbutton", "signature") and field.value not in markdown
    ]
    return "\n".join(lines)


def bare(text: str) -> str:
    """The text layer as it is: an empty line between blocks, nothing lost."""
    return tidy(re.sub(r"(?<![ \t])[ \t]+\n", "\n", text))
