"""MinerU's formats: content lists, task ids, page ranges and the error codes of its cloud.

A content list is a flat list of blocks in reading order. `bbox` is in thousandths of the page, `page_idx` counts the
pages of the result from 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any, Final, Literal

from markdown_it import MarkdownIt

from docmill.core.docling import Item, items_of
from docmill.core.output import stem_of
from docmill.core.parsed import Box, Page

LAST_PAGE_ID: Final = 99_999
"""MinerU's default of `end_page_id`: to the end of the document."""
MAX_PAGE_ID: Final = 999_999_999
MAX_RANGES: Final = 1_000
BBOX_UNITS: Final = 1_000

ParseMethod = Literal["auto", "txt", "ocr"]
OCR_BY_METHOD: Final[Mapping[str, str]] = {"txt": "never", "ocr": "always"}
BACKEND: Final = r"(?:pipeline|(?:vlm|hybrid)-[a-z-]{1,32})"
"""Every name that a 2.x or 3.x server knows. They choose among MinerU's models, so here they change nothing."""

Code = int | str

CODE_BAD_CREDENTIAL: Final = "A0202"
CODE_INTERNAL: Final = -10001
CODE_BAD_REQUEST: Final = -10002
CODE_UPLOAD_FAILED: Final = -60001
CODE_FILE_TOO_LARGE: Final = -60005
CODE_BUSY: Final = -60009
CODE_PARSE_FAILED: Final = -60010
CODE_FILE_MISSING: Final = -60011
CODE_TASK_MISSING: Final = -60012
CODE_FORBIDDEN: Final = -60013

_CODE_BY_ERROR: Final[Mapping[str, Code]] = {
    "document_unsupported": -60002,
    "document_mislabelled": -60002,
    "document_broken": -60003,
    "document_encrypted": -60003,
    "document_bomb": -60003,
    "document_empty": -60004,
    "upload_too_large": CODE_FILE_TOO_LARGE,
    "body_too_large": CODE_BAD_REQUEST,
    "upload_incomplete": CODE_FILE_MISSING,
    "upload_failed": CODE_UPLOAD_FAILED,
    "document_too_many_pages": -60006,
    "task_not_found": CODE_TASK_MISSING,
    "task_expired": CODE_TASK_MISSING,
    "link_invalid": CODE_FORBIDDEN,
}
_CODE_BY_STATUS: Final[Mapping[int, Code]] = {
    400: CODE_BAD_REQUEST,
    401: CODE_BAD_CREDENTIAL,
    403: CODE_FORBIDDEN,
    404: CODE_TASK_MISSING,
    422: CODE_BAD_REQUEST,
    429: CODE_BUSY,
    503: CODE_BUSY,
}


def cloud_code(error: str, status: int | None = None) -> Code:
    """The cloud's code for an error of a request; without *status*, for the fault of a task."""
    if error in _CODE_BY_ERROR:
        return _CODE_BY_ERROR[error]
    return CODE_PARSE_FAILED if status is None else _CODE_BY_STATUS.get(status, CODE_INTERNAL)


# Task ids


@dataclass(frozen=True, slots=True)
class Outputs:
    """Which outputs a request asked for."""

    md: bool = True
    content_list: bool = False
    images: bool = False
    middle_json: bool = False
    model_output: bool = False
    original_file: bool = False
    is_zip: bool = False


_FLAGS: Final = {
    "m": "md",
    "c": "content_list",
    "i": "images",
    "j": "middle_json",
    "r": "model_output",
    "o": "original_file",
    "z": "is_zip",
}
NO_FLAGS: Final = "n"
MAX_TASKS: Final = 100
PARSE_ID: Final = r"[0-9][0-9-]{0,2000}[.][a-z]{1,7}[.][0-9]{1,9}-[0-9]{1,9}[.][a-z]{3,4}[.][a-z-]{1,40}"
"""How the ids in addresses look; no other address below /tasks does."""
_PARSE_ID = re.compile(
    rf"([0-9]{{1,19}}(?:-[0-9]{{1,19}}){{0,{MAX_TASKS - 1}}})[.](n|[mcijroz]{{1,7}})"
    rf"[.]([0-9]{{1,9}})-([0-9]{{1,9}})[.](auto|txt|ocr)[.]({BACKEND})"
)


@dataclass(frozen=True, slots=True)
class ParseRequest:
    """The tasks of one request to a MinerU server, and how their result is wanted. All of it is in the id."""

    task_ids: tuple[int, ...]
    outputs: Outputs
    first_page_id: int = 0
    last_page_id: int = LAST_PAGE_ID
    method: str = "auto"
    backend: str = "pipeline"

    def to_id(self) -> str:
        ids = "-".join(str(one) for one in self.task_ids)
        flags = "".join(flag for flag, name in _FLAGS.items() if getattr(self.outputs, name))
        pages = f"{self.first_page_id}-{self.last_page_id}"
        return f"{ids}.{flags or NO_FLAGS}.{pages}.{self.method}.{self.backend}"

    @classmethod
    def of_id(cls, text: str) -> ParseRequest | None:
        """None: nobody gave out this id."""
        found = _PARSE_ID.fullmatch(text)
        if found is None:
            return None
        outputs = Outputs(**{name: flag in found[2] for flag, name in _FLAGS.items()})
        ids = tuple(int(one) for one in found[1].split("-"))
        return cls(ids, outputs, int(found[3]), int(found[4]), found[5], found[6])

    @property
    def folder(self) -> str:
        """The folder of a document's files in the archive."""
        if self.backend.startswith("vlm"):
            return "vlm"
        return f"hybrid_{self.method}" if self.backend.startswith("hybrid") else self.method

    def select(self, pages: Sequence[Page]) -> list[Page]:
        last = MAX_PAGE_ID if self.last_page_id == LAST_PAGE_ID else self.last_page_id
        return [page for page in pages if self.first_page_id <= page.index <= last]


_UNSAFE = re.compile(r'[\\/:*?"<>|\x00-\x1f]')


def unique_stems(filenames: Sequence[str]) -> list[str]:
    """The names under which results are listed: without extension, each once, safe as a folder."""
    taken: set[str] = set()
    stems = []
    for filename in filenames:
        base = stem = _UNSAFE.sub("_", stem_of(filename)).strip(". ") or "document"
        number = 2
        while stem in taken:
            stem, number = f"{base}_{number}", number + 1
        taken.add(stem)
        stems.append(stem)
    return stems


# Page ranges of the cloud

_RANGE = re.compile(r"(-?[0-9]{1,9})(?:-(-?[0-9]{1,9}))?")


def are_page_ranges(text: str) -> bool:
    parts = text.split(",", MAX_RANGES)
    return len(parts) <= MAX_RANGES and all(_RANGE.fullmatch(part.strip()) for part in parts)


def select_ranges(pages: Sequence[Page], text: str) -> list[Page]:
    """`2,4-6`: pages 2, 4, 5 and 6. `2--2`: from page 2 to the last but one. Empty: all pages."""
    if not text:
        return list(pages)
    total = max((page.index + 1 for page in pages), default=0)
    wanted: set[int] = set()
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found:
            first = _page_number(found[1], total)
            last = _page_number(found[2], total) if found[2] else first
            wanted.update(range(max(first, 1), min(last, total) + 1))
    return [page for page in pages if page.index + 1 in wanted]


def _page_number(text: str, total: int) -> int:
    number = int(text)
    return number if number >= 0 else total + 1 + number


# Content list


def content_list(pages: Sequence[Page], images: Mapping[str, str], boxes: Mapping[str, Box | None]) -> list[Any]:
    """*images*: where each image lies in the result, by its name; *boxes*: where it stands on its page."""
    return [
        entry | {"page_idx": number}
        for number, page in enumerate(pages)
        for entry in _page_entries(page, images, boxes)
    ]


def _page_entries(page: Page, images: Mapping[str, str], boxes: Mapping[str, Box | None]) -> Iterator[dict[str, Any]]:
    lines = page.markdown.split("\n")
    places = _Places(page)
    visual: dict[str, Any] | None = None
    for first, end in _elements(page.markdown):
        is_caption, box = places.find(first, end)
        text = "\n".join(lines[first:end])
        for item in items_of([Page(page.index, text)]):
            if visual is not None and is_caption and item.kind == "text":
                visual[f"{visual['type']}_caption"].append(item.text)
                visual = None
                continue
            for entry, own_box in _entries(item, images, boxes):
                where = own_box or box
                entry |= {"bbox": [round(one * BBOX_UNITS) for one in where]} if where else {}
                visual = entry if entry["type"] in ("image", "table") else None
                yield entry


def _elements(markdown: str) -> Iterator[tuple[int, int]]:
    """The lines of each block at the top level."""
    for token in _parser().parse(markdown):
        if token.level == 0 and token.nesting >= 0 and token.map:
            yield token.map[0], token.map[1]


class _Places:
    """Finds the blocks of a page for lines that are asked for in rising order."""

    def __init__(self, page: Page) -> None:
        self._blocks = sorted(page.blocks, key=lambda block: block.first)
        self._next = 0

    def find(self, first: int, end: int) -> tuple[bool, Box | None]:
        """Whether these lines are a caption, and the box around them, as far as the engine knows."""
        while self._next < len(self._blocks) and self._blocks[self._next].end <= first:
            self._next += 1
        here = []
        for index in range(self._next, len(self._blocks)):
            if self._blocks[index].first >= end:
                break
            here.append(self._blocks[index])
        found = [block.bbox for block in here if block.bbox]
        is_caption = bool(here) and all(block.kind == "caption" for block in here)
        if not found:
            return is_caption, None
        lefts, tops, rights, bottoms = zip(*found, strict=True)
        return is_caption, (min(lefts), min(tops), max(rights), max(bottoms))


def _entries(
    item: Item, images: Mapping[str, str], boxes: Mapping[str, Box | None]
) -> Iterator[tuple[dict[str, Any], Box | None]]:
    match item.kind:
        case "picture":
            if item.asset in images:
                entry = {"type": "image", "img_path": images[item.asset], "image_caption": [], "image_footnote": []}
                yield entry, boxes.get(item.asset)
        case "table":
            captions: dict[str, Any] = {"table_caption": [], "table_footnote": []}
            yield {"type": "table", "img_path": "", **captions, "table_body": _table(item)}, None
        case "code":
            yield {"type": "code", "sub_type": "code", "code_caption": [], "code_body": item.text}, None
        case "list":
            yield {"type": "list", "sub_type": "text", "list_items": list(_list_items(item))}, None
            for child in _visual_children(item):
                yield from _entries(child, images, boxes)
        case _:
            yield _text(item), None


def _text(item: Item) -> dict[str, Any]:
    if item.kind in ("title", "section_header"):
        return {"type": "text", "text": item.text, "text_level": 1 if item.kind == "title" else item.level + 1}
    if len(item.text) > 4 and item.text.startswith("$$") and item.text.endswith("$$"):
        return {"type": "equation", "text": item.text, "text_format": "latex"}
    return {"type": "text", "text": item.text}


def _list_items(item: Item) -> Iterator[str]:
    """The entries of a list and of the lists inside it, in their order."""
    if item.kind == "list_item":
        text = f"{item.marker} {item.text}" if item.is_numbered else item.text
        if text.strip():
            yield text
    elif item.kind in ("text", "code", "title", "section_header") and item.text:
        yield item.text
    for child in item.children:
        yield from _list_items(child)


def _visual_children(item: Item) -> Iterator[Item]:
    for child in item.children:
        if child.kind in ("table", "picture"):
            yield child
        else:
            yield from _visual_children(child)


def _table(item: Item) -> str:
    rows = []
    for row in item.rows:
        cells = []
        for cell in row:
            spans = (f' rowspan="{cell.rows}"' if cell.rows > 1 else "") + (
                f' colspan="{cell.columns}"' if cell.columns > 1 else ""
            )
            cells.append(f"<td{spans}>{escape(cell.text, quote=False)}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table>{''.join(rows)}</table>"


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
