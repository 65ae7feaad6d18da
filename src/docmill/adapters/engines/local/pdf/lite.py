"""liteparse, the one door to it. Its own classes copy every field of every word; we copy what is looked at."""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any

from .survey import Source

WINDOW = 32


def pages(source: Source, indices: range, total: int, *, tagged: bool) -> dict[int, Page]:
    """The pages of a window by index; nothing if it cannot read them."""
    reader = parser(tagged) if len(indices) == total else make(tagged, f"{indices.start + 1}-{indices.stop}")
    try:
        read = reader.parse_bytes(source) if isinstance(source, bytes) else reader.parse(str(source))
        return {page.page_num - 1: Page(page, source) for page in read.pages}
    except MemoryError:
        raise
    except BaseException as error:
        # Its errors are plain ones, and a bug in Rust is not even an Exception and has no name to import.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        return {}


@cache
def parser(tagged: bool) -> Any:
    """A parser holds nothing of a document; making one for each costs as much as a short page."""
    return make(tagged)


def make(tagged: bool, targets: str | None = None) -> Any:
    """A parser of the pages that *targets* names, or of all. What it opens of a document it closes again."""
    from liteparse import LiteParse

    made = LiteParse(
        ocr_enabled=False,
        output_format="markdown",
        extract_blocks=True,
        extract_form_fields=True,
        extract_links=True,
        extract_structure_tree=tagged,
        extract_text_metadata=tagged,
        extract_vector_graphics=True,
        emit_word_boxes=True,
        keep_headers_footers=True,
        continue_on_page_error=True,
        max_pages=1_000_000,
        target_pages=targets,
        quiet=True,
        num_workers=1,
    )
    return made._native


def count_columns(source: Source, number: int) -> int:
    """How many columns of text a page has; 0 if that is not known. For each page it would take a tenth of all time."""
    from liteparse import LiteParse, ParseError

    counter = LiteParse(
        ocr_enabled=False, keep_headers_footers=True, target_pages=str(number), quiet=True, num_workers=1
    )
    try:
        found = counter.is_complex(source)
    except (ParseError, FileNotFoundError):
        return 0
    return found[0].layout.column_count if found and found[0].layout is not None else 0


class Page:
    """One page; what nobody asks for stays on the other side."""

    def __init__(self, native: Any, source: Source) -> None:
        self._native = native
        self._source = source
        self.page_num: int = native.page_num
        self.width: float = native.width
        self.height: float = native.height

    @cached_property
    def text_items(self) -> list[Item]:
        return [Item(item) for item in self._native.text_items]

    @cached_property
    def blocks(self) -> list[Any]:
        return self._native.blocks or []

    @cached_property
    def vector_graphics(self) -> Graphics | None:
        found = self._native.vector_graphics
        return Graphics(found) if found is not None else None

    @cached_property
    def columns(self) -> int:
        return count_columns(self._source, self.page_num)

    @property
    def form_fields(self) -> list[Any]:
        return self._native.form_fields or []

    @cached_property
    def roots(self) -> list[Element]:
        """Where its structure tree begins."""
        tree = self._native.structure_tree
        return [Element(root) for root in tree.roots] if tree is not None else []


class Item:
    """A piece of a line in one font."""

    __slots__ = ("_native", "_words", "height", "mcid", "rotation", "text", "width", "x", "y")

    def __init__(self, native: Any) -> None:
        self._native = native
        self._words: list[WordBox] | None = None
        self.text: str = native.text
        self.x: float = native.x
        self.y: float = native.y
        self.width: float = native.width
        self.height: float = native.height
        self.rotation: float = native.rotation or 0.0
        self.mcid: int | None = native.mcid

    @property
    def words(self) -> list[WordBox]:
        if self._words is None:
            self._words = [(word.text, word.x, word.y, word.width, word.height) for word in self._native.words]
        return self._words


WordBox = tuple[str, float, float, float, float]
"""Text, x, y, width, height."""


class Graphics:
    """What is drawn: shapes by their box, and lines."""

    __slots__ = ("lines", "shapes")

    def __init__(self, native: Any) -> None:
        self.shapes = [Shape(shape) for shape in native.shapes]
        self.lines = native.lines


class Shape:
    __slots__ = ("bbox", "has_curve", "shown")

    def __init__(self, native: Any) -> None:
        box = native.bbox
        self.bbox: tuple[float, float, float, float] = (box.x, box.y, box.width, box.height)
        self.has_curve: bool = native.has_curve
        self.shown: bool = native.stroke or native.fill


class Element:
    """An element of the structure tree."""

    __slots__ = ("_native", "actual_text", "children", "marked_content_ids", "type")

    def __init__(self, native: Any) -> None:
        self._native = native
        self.type: str = native.element_type
        self.actual_text: str | None = native.actual_text
        self.marked_content_ids: list[int] = native.marked_content_ids
        self.children: list[Element] = [Element(child) for child in native.children]

    def number(self, name: str) -> float | None:
        """An attribute that is a number."""
        return next((each.number_value for each in self._native.attributes if each.name == name), None)
