"""PDF: the text layer where there is one, OCR where there is none, in windows that keep memory flat.

Each window of pages is surveyed with pypdfium2 (bare text, sizes, pictures) and read by liteparse, which is fast.
Pages that liteparse calls complex go through docvortex. Whatever came out is checked against the bare text:
structure is worth nothing if words got lost.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from docmill.core.errors import DocumentError
from docmill.core.parsed import Box

from . import ocr, vortex
from .image import as_png
from .job import Job, clamp
from .markdown import ENOUGH, coverage, disarm, html_table, image_link, tidy

if TYPE_CHECKING:
    from PIL.Image import Image

WINDOW = 32
SCAN_COVER = 0.5
FEW_LETTERS = 20
STAMP_LETTERS = 120
OCR_DPI = 200
SHOW_DPI = 150
LONGEST_SIDE = 3500
MOST_OBJECTS = 2000
SENSIBLE_SIDE = (1, 100_000)
"""Points. PDF once ended at 14,400; liteparse's memory grows with the area."""
ERROR_PASSWORD = 4


@dataclass(slots=True)
class Survey:
    """What pypdfium2 knows of a page before anybody parses it."""

    text: str = ""
    letters: int = 0
    garbled: bool = False
    picture_cover: float = 0.0
    paths: int = 0
    damage: str | None = None
    is_odd: bool = False
    """Its size makes no sense: the text is all that is taken from it."""

    @property
    def is_blank(self) -> bool:
        return not self.letters and not self.picture_cover and not self.paths

    @property
    def needs_ocr(self) -> bool:
        """Scans, pages whose letters are drawings, and text layers full of nonsense."""
        if self.garbled:
            return True
        if self.picture_cover >= SCAN_COVER and self.letters < STAMP_LETTERS:
            return True
        return self.letters < FEW_LETTERS and (self.picture_cover > 0.02 or self.paths > 50)


def read(job: Job) -> None:
    with opened(job.source) as document:
        total = len(document)
        job.check_pages(total)
        if not total:
            raise DocumentError("document_broken", why="it has no pages")
        job.title = telling(document.get_metadata_dict().get("Title", "").strip())
        fast = fast_pages(job.source) if has_sensible_pages(document) else iter(())
        for start in range(0, total, WINDOW):
            read_window(job, document, range(start, min(start + WINDOW, total)), next(fast, {}), total)


def has_sensible_pages(document: Any) -> bool:
    return all(is_sensible(page_size(document, index)) for index in range(len(document)))


def page_size(document: Any, index: int) -> tuple[float, float]:
    try:
        width, height = document.get_page_size(index)
        return width, height
    except pdfium.PdfiumError:  # such a page is found to be damaged later, and liteparse gets along with it
        return SENSIBLE_SIDE


def is_sensible(size: tuple[float, float]) -> bool:
    return all(SENSIBLE_SIDE[0] <= side <= SENSIBLE_SIDE[1] for side in size)


def is_drawable(size: tuple[float, float]) -> bool:
    return all(0 < side < math.inf for side in size)


def telling(title: str) -> str | None:
    """Many programs write a file name, or nothing at all, into the title."""
    useless = title.lower() in ("untitled", "unknown", "document") or re.search(r"\.\w{2,4}$", title)
    return None if len(title) < 4 or useless else title


@contextlib.contextmanager
def opened(source: Path) -> Iterator[Any]:
    try:
        document = pdfium.PdfDocument(source)
    except pdfium.PdfiumError as error:
        if getattr(error, "err_code", None) == ERROR_PASSWORD or "password" in str(error).lower():
            raise DocumentError("document_encrypted") from error
        raise DocumentError("document_broken", why="it cannot be opened as a PDF") from error
    try:
        yield document
    finally:
        document.close()


def fast_pages(source: Path) -> Iterator[dict[int, Any]]:
    """liteparse's pages by index, a window at a time; nothing if it cannot read the file."""
    from liteparse import LiteParse, ParseError

    # It goes by the name's ending, and our file has none.
    named = Path("input.pdf")
    named.unlink(missing_ok=True)
    named.symlink_to(source)
    parser = LiteParse(
        ocr_enabled=False,
        output_format="markdown",
        include_complexity=True,
        extract_blocks=True,
        extract_form_fields=True,
        continue_on_page_error=True,
        max_pages=1_000_000,
        quiet=True,
        num_workers=1,
    )
    try:
        for batch in parser.parse_batches(named, WINDOW):
            yield {page.page_num - 1: page for page in batch.result.pages}
    except (ParseError, FileNotFoundError):
        return
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # a bug in Rust is not an Exception, and has no name to import
            raise


def read_window(job: Job, document: Any, indices: range, fast: dict[int, Any], total: int) -> None:
    surveys = {index: survey(document, index) for index in indices}
    scans = {index for index in indices if wants_ocr(job, surveys[index])}
    hard = [index for index in indices if index not in scans and is_hard(surveys[index], fast.get(index))]
    careful = careful_pages(document, hard, job)
    for index in indices:
        if job.options.get("page_images") is True and surveys[index].damage is None:
            with contextlib.suppress(pdfium.PdfiumError):
                picture = rendered(document, index, SHOW_DPI)
                job.add_page_image(as_png(picture, LONGEST_SIDE), index)
        if index in scans:
            read_scan(job, document, index, surveys[index])
        else:
            read_text(job, document, index, surveys[index], fast.get(index), careful.get(index))
        job.progress(index + 1, total)


def wants_ocr(job: Job, page: Survey) -> bool:
    if page.damage is not None or job.ocr == "never" or (page.is_odd and page.letters):
        return False
    return job.ocr == "always" or page.needs_ocr


def survey(document: Any, index: int) -> Survey:
    try:
        page = document[index]
    except pdfium.PdfiumError:
        return Survey(damage="the page cannot be loaded")
    try:
        size = page.get_size()
        textpage = page.get_textpage()
        text = str(textpage.get_text_range())
        textpage.close()
        cover, paths = pictures_and_paths(page) if is_drawable(size) else (0.0, 0)
    except pdfium.PdfiumError:
        return Survey(damage="the page's content cannot be read")
    finally:
        page.close()
    text = re.sub(r"[\ufffe\u00ad]\s*|\x02\s*", "", text).replace("\r\n", "\n")
    letters = sum(not letter.isspace() for letter in text)
    damage = None if letters or is_drawable(size) else "the page has no size"
    return Survey(text, letters, is_garbled(text, letters), cover, paths, damage, not is_sensible(size))


def pictures_and_paths(page: Any) -> tuple[float, int]:
    """Which part of the page pictures cover, and how many lines and curves it has."""
    x0, y0, x1, y1 = page.get_cropbox()
    area = max(1.0, (x1 - x0) * (y1 - y0))
    cover, paths = 0.0, 0
    kinds = [pdfium_c.FPDF_PAGEOBJ_IMAGE, pdfium_c.FPDF_PAGEOBJ_PATH]
    for number, item in enumerate(page.get_objects(filter=kinds, max_depth=2)):
        if number >= MOST_OBJECTS:
            break
        if item.type == pdfium_c.FPDF_PAGEOBJ_PATH:
            paths += 1
        else:
            left, bottom, right, top = item.get_bounds()
            cover += max(0.0, min(right, x1) - max(left, x0)) * max(0.0, min(top, y1) - max(bottom, y0)) / area
    return min(1.0, cover), paths


def is_garbled(text: str, letters: int) -> bool:
    """Fonts without a way back to Unicode leave private, replacement and control characters."""
    odd = sum(
        "\ue000" <= letter <= "\uf8ff" or letter == "\ufffd" or (letter < " " and not letter.isspace())
        for letter in text
    )
    return letters > FEW_LETTERS and odd * 4 > letters


def is_hard(page: Survey, fast: Any) -> bool:
    """Columns, tables, figures: what liteparse itself calls complex, and every page with pictures."""
    if page.damage is not None or page.is_blank or page.is_odd:
        return False
    if fast is None or fast.complexity is None or fast.complexity.layout is None:
        return True
    shapes = {block.kind for block in fast.blocks or ()}
    return bool(
        fast.complexity.layout.is_complex or page.picture_cover > 0.005 or shapes & {"table", "grid_fallback", "figure"}
    )


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
    markdown = ocr.to_markdown(picture)
    job.facts["ocr_pages"] = job.facts.get("ocr_pages", 0) + 1
    if not markdown and page.picture_cover > 0.02:
        name = job.add_image(as_png(picture, LONGEST_SIDE // 2), index, (0.0, 0.0, 1.0, 1.0))
        markdown = image_link(name) if name else ""
    if page.letters and not page.garbled and coverage(page.text, markdown) < ENOUGH / 2:
        markdown = f"{markdown}\n\n{bare(page.text)}".strip()
    job.add_page(index, markdown)


def read_text(job: Job, document: Any, index: int, page: Survey, fast: Any, careful: tuple[Any, Any] | None) -> None:
    if page.damage is not None:
        job.add_page(index, tidy(page.text), damage=page.damage)
        return
    choices = []
    figures = Figures(job, document, index)
    if careful is not None:
        choices.append(tidy(disarm(vortex.render(*careful, figures.keep))))
    if fast is not None and page.letters:
        quick = tidy(disarm(re.sub(r"!\[[^\]]*\]\([^)]*\)", "", fast.markdown)))
        choices.append(quick)
    markdown = next((choice for choice in [*choices, ""] if coverage(page.text, choice) >= ENOUGH), None)
    if markdown is None:
        markdown = max([*choices, bare(page.text)], key=lambda choice: coverage(page.text, choice))
        if page.letters:
            job.warn(f"page {index + 1}: structure dropped to keep the text")
    missing = [link for name, link in figures.links.items() if f"assets/{name}" not in markdown]
    markdown = "\n\n".join(filter(None, [markdown, *missing, filled_in(fast, markdown)]))
    if careful is not None:
        for block, html in vortex.tables(careful[1]):
            job.add_table(html, index, box_of(block), anchor=vortex.table_anchor(*careful, block))
    elif fast is not None:
        add_fast_tables(job, index, fast)
    job.add_page(index, markdown)


def filled_in(fast: Any, markdown: str) -> str:
    """What somebody wrote into the page's form: it is not part of the text layer."""
    fields = [field for field in (fast.form_fields if fast is not None else None) or () if field.value]
    lines = [
        f"- {field.alternate_name or field.name or field.type}: {' '.join(field.value.split())}"
        for field in fields
        if field.type not in ("pushbutton", "signature") and field.value not in markdown
    ]
    return "\n".join(lines)


class Figures:
    """Cuts the page's figures out of one rendering of it."""

    def __init__(self, job: Job, document: Any, index: int) -> None:
        self.links: dict[str, str] = {}
        self._job = job
        self._document = document
        self._index = index
        self._page: Image | None = None

    def keep(self, block: Any) -> str:
        box = box_of(block)
        if box is None or block.type not in ("image", "chart"):
            return ""
        try:
            self._page = self._page or rendered(self._document, self._index, SHOW_DPI)
        except pdfium.PdfiumError:
            return ""
        width, height = self._page.size
        frame = (int(box[0] * width), int(box[1] * height), int(box[2] * width) + 1, int(box[3] * height) + 1)
        text = "\n".join(child.content for child in block.content if str(child.type).endswith("_body"))
        name = self._job.add_image(as_png(self._page.crop(frame), LONGEST_SIDE), self._index, box, ocr_text=text)
        if name is None:
            return ""
        self.links[name] = image_link(name, vortex.caption(block))
        return self.links[name]


def box_of(block: Any) -> Box | None:
    return clamp(*block.bbox) if block.bbox else None


def add_fast_tables(job: Job, index: int, page: Any) -> None:
    for block in page.blocks or ():
        if block.kind == "table" and block.rows:
            rows = [[cell.text for cell in row] for row in [block.header or [], *block.rows] if row]
            box = block.bbox
            inside = box and clamp(
                box.x / page.width,
                box.y / page.height,
                (box.x + box.width) / page.width,
                (box.y + box.height) / page.height,
            )
            job.add_table(html_table(rows), index, inside or None)


def bare(text: str) -> str:
    """The text layer as it is: an empty line between blocks, nothing lost."""
    return tidy(re.sub(r"[ \t]+\n", "\n", text))


def rendered(document: Any, index: int, dpi: int) -> Image:
    """The page as it is displayed, never larger than LONGEST_SIDE whatever its MediaBox says."""
    page = document[index]
    try:
        width, height = page.get_size()
        if not is_drawable((width, height)):
            raise pdfium.PdfiumError("the page has no size")
        scale = min(dpi / 72, LONGEST_SIDE / max(width, height, 1))
        picture: Image = page.render(scale=scale, may_draw_forms=False).to_pil().convert("RGB")
        return picture
    finally:
        page.close()
