"""docvortex, the one door to it. Its own page cropping starts processes; we crop ourselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from .grids import Grid, grid_of

DETAILS = re.compile(r"<details>\s*<summary>[^<]*</summary>\s*(.*?)\s*</details>", re.DOTALL)

ONE_LINE = b"""%PDF-1.4
1 0 obj <</Type/Catalog/Pages 2 0 R>> endobj
2 0 obj <</Type/Pages/Kids[3 0 R]/Count 1>> endobj
3 0 obj <</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Contents 5 0 R/Resources<</Font<</F 4 0 R>>>>>> endobj
4 0 obj <</Type/Font/Subtype/Type1/BaseFont/Helvetica>> endobj
5 0 obj <</Length 46>> stream
BT /F 12 Tf 20 100 Td (The first page) Tj ET
endstream endobj
trailer <</Root 1 0 R>>
"""


@cache
def settle_fonts() -> None:
    """docvortex lends PDFium a font for what a file does not bring itself. PDFium must have it before it opens a
    document: otherwise the same page comes out differently in a process that has not used docvortex yet."""
    from docvortex.document.pdf.pdfium import initialize_pdfium_runtime

    initialize_pdfium_runtime()


def get_warm() -> None:
    """Much of it is imported and compiled with the first page, which takes a tenth of a second."""
    middle = analyse(ONE_LINE)
    for page in middle.pages:
        render(middle, page)


def analyse(data: bytes) -> Any:
    """The pages of a PDF as docvortex sees them; figures are boxes without pictures."""
    from docvortex.analyzers.native import models
    from docvortex.api import postprocess
    from docvortex.document.pdf._document import PDFDocument
    from docvortex.document.pdf.visuals import _prepare_page_visual_blocks
    from docvortex.schema import DocumentMetadata, ModelJson, Producer

    document = PDFDocument(data)
    try:
        pages = models.PdfModel().predict(document)
        for page in pages:
            _prepare_page_visual_blocks(page)
    finally:
        document.close()
    metadata = DocumentMetadata(file_suffix="pdf", producer=Producer(name="docmill", version="1"))
    return postprocess(ModelJson(pages=pages, page_index_map=[], metadata=metadata)).middle_json


def render(middle: Any, page: Any, image: Callable[[Any], str] | None = None) -> str:
    """One page's Markdown. Text that the parser hid inside pictures stays visible."""
    short, grids = _shortened(page)
    markdown: str | None = _rendered(middle, short, image)
    for grid in grids:
        markdown = grid.put_into(markdown) if markdown is not None else None
    return markdown if markdown is not None else _rendered(middle, page, image)


def _shortened(page: Any) -> tuple[Any, list[Grid]]:
    """The page without the cells of its long tables that need no parser."""
    grids: list[Grid] = []

    def short(child: Any) -> Any:
        grid = grid_of(child.content) if child.type == "table_body" else None
        if grid is None:
            return child
        grids.append(grid)
        return child.model_copy(update={"content": grid.html})

    blocks = [
        block.model_copy(update={"content": [short(child) for child in block.content]})
        if block.type == "table"
        else block
        for block in page.blocks
    ]
    return (page.model_copy(update={"blocks": blocks}) if grids else page), grids


def _rendered(middle: Any, page: Any, image: Callable[[Any], str] | None) -> str:
    from docvortex.render.api import render as render_document
    from docvortex.render.contracts import MarkdownRenderOptions, RenderFormat

    alone = middle.model_copy(update={"pages": [page], "is_full_document": False})
    options = MarkdownRenderOptions(image_renderer=image)
    markdown: str = render_document(alone, RenderFormat.MARKDOWN, options=options)
    return DETAILS.sub(r"\1", markdown)


def show_numbers(displayed: Callable[[Any, str], str]) -> None:
    """Cells of a spreadsheet as it displays them: the parser itself writes the bare values."""
    from docvortex.analyzers.native.office.spreadsheet.projector import SpreadsheetProjector

    bare = SpreadsheetProjector._cell_value_to_html
    if getattr(bare, "displayed", None) is displayed:
        return

    def shown(self: Any, cell: Any) -> tuple[str, bool]:
        text, is_html = bare(self, cell)
        pattern = getattr(cell, "number_format", None)
        if is_html or text != str(cell.value) or not isinstance(pattern, str):
            return text, is_html
        return displayed(cell.value, pattern), False

    shown.displayed = displayed  # type: ignore[attr-defined]
    SpreadsheetProjector._cell_value_to_html = shown


def keep_lists() -> None:
    """The parser takes every list of several levels that text interrupts for numbered headings. A heading says so by
    its style or outline level; a number alone is none."""
    from docvortex.analyzers.native.office.docx.docx_converter import DocxConverter

    DocxConverter._detect_heading_list_numids = lambda _self: set()


def tables(page: Any) -> Iterator[tuple[Any, str]]:
    """The page's tables with their HTML."""
    for block in page.blocks:
        if block.type == "table":
            for child in block.content:
                if child.type == "table_body" and child.content.strip():
                    yield block, child.content


def table_markdown(middle: Any, page: Any, block: Any) -> str:
    """The table alone."""
    return render(middle, page.model_copy(update={"blocks": [block]}))


def caption(block: Any) -> str:
    """What stands under the figure."""
    for child in block.content if isinstance(block.content, list) else ():
        if str(child.type).endswith("caption") and isinstance(child.content, list):
            return " ".join(str(getattr(span, "content", "")) for span in child.content)
    return ""
