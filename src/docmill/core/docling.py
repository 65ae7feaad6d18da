"""A parse result as a DoclingDocument, for programs that speak docling-serve's language.

Markdown is read block by block into items; the items become docling's JSON (schema 1.x: `body` refers to `texts`,
`tables`, `pictures` and `groups`) or plain text. Page sizes are not known here, so each page measures 1 by 1 and boxes
are parts of it, from the top left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from typing import Any, Final, Literal
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

from docmill.core.parsed import Box, Page, Parsed

SCHEMA: Final = "1.3.0"
"""The oldest version that has all we write: every reader of 1.x takes it."""
WHOLE: Final[Box] = (0.0, 0.0, 1.0, 1.0)
ASSETS: Final = "assets/"
MOST_SPAN: Final = 1_000

Kind = Literal["title", "section_header", "text", "code", "list", "list_item", "table", "picture"]


@dataclass(slots=True)
class Cell:
    text: str = ""
    rows: int = 1
    columns: int = 1
    is_header: bool = False


@dataclass(slots=True)
class Item:
    """A block of a page. A list has its entries as children, an entry its inner lists."""

    kind: Kind
    page: int
    text: str = ""
    level: int = 1
    is_numbered: bool = False
    marker: str = ""
    rows: list[list[Cell]] = field(default_factory=list)
    asset: str = ""
    children: list[Item] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Picture:
    """An image of the document, ready to be embedded."""

    uri: str
    media_type: str
    width: int
    height: int


def items_of(pages: Sequence[Page]) -> list[Item]:
    return [item for page in pages for item in _Reader(page.index + 1).read(page.markdown)]


def plain_text(items: Sequence[Item]) -> str:
    """What is written, without marks."""
    return "\n\n".join(text for item in items if (text := _plain(item)))


def docling_document(
    name: str, parsed: Parsed, pages: Sequence[Page], items: Sequence[Item], pictures: Mapping[str, Picture]
) -> dict[str, Any]:
    """The document as docling's JSON. Images that are not in *pictures* are told without their bytes."""
    boxes = {figure.name: figure.bbox for figure in parsed.figures}
    return _Writer(boxes, pictures).write(name, pages, items)


# Reading


class _Reader:
    def __init__(self, page: int) -> None:
        self.page = page
        self.found: list[Item] = []
        self.lists: list[Item] = []
        self.entry: Item | None = None

    def read(self, markdown: str) -> list[Item]:
        tokens = iter(_parser().parse(markdown))
        for token in tokens:
            self._take(token, tokens)
        return self.found

    def _take(self, token: Token, tokens: Iterator[Token]) -> None:
        match token.type:
            case "heading_open":
                level = int(token.tag[1])
                text, images = _inline(next(tokens))
                self._add(Item("title" if level == 1 else "section_header", self.page, text, max(1, level - 1)))
                self._show(images)
            case "paragraph_open":
                self._paragraph(*_inline(next(tokens)))
            case "bullet_list_open" | "ordered_list_open":
                opened = Item("list", self.page, is_numbered=token.type.startswith("ordered"))
                self._add(opened)
                self.lists.append(opened)
            case "bullet_list_close" | "ordered_list_close":
                self.lists.pop()
                self.entry = None
            case "list_item_open":
                marker = f"{token.info}{token.markup}" if self.lists[-1].is_numbered else token.markup
                self.entry = Item("list_item", self.page, is_numbered=self.lists[-1].is_numbered, marker=marker)
                self.lists[-1].children.append(self.entry)
            case "fence" | "code_block":
                self._add(Item("code", self.page, token.content.rstrip("\n")))
            case "table_open":
                self._add(Item("table", self.page, rows=_pipes(tokens)))
            case "html_block":
                self._html(token.content)

    def _paragraph(self, text: str, images: list[str]) -> None:
        if self.entry is not None and not self.entry.text and not self.entry.children:
            self.entry.text = text
        elif text:
            self._add(Item("text", self.page, text))
        self._show(images)

    def _show(self, images: list[str]) -> None:
        for name in images:
            self._add(Item("picture", self.page, asset=name))

    def _html(self, html: str) -> None:
        reader = _Html()
        reader.feed(html)
        reader.close()
        if rows := [row for row in reader.rows if row]:
            for row in rows:
                for cell in row:
                    cell.text = " ".join(cell.text.split())
            self._add(Item("table", self.page, rows=rows))
        elif text := " ".join("".join(reader.loose).split()):
            self._add(Item("text", self.page, text))
        self._show(reader.images)

    def _add(self, item: Item) -> None:
        if self.entry is not None:
            self.entry.children.append(item)
        elif self.lists:
            self.lists[-1].children.append(item)
        else:
            self.found.append(item)


class _Html(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[list[Cell]] = []
        self.loose: list[str] = []
        self.images: list[str] = []
        self._open: Cell | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self._open = Cell("", _span(given.get("rowspan")), _span(given.get("colspan")), tag == "th")
            if not self.rows:
                self.rows.append([])
            self.rows[-1].append(self._open)
        elif tag == "img" and (name := _asset(given.get("src") or "")):
            self.images.append(name)
        elif tag in ("br", "p", "div"):
            self.handle_data(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._open = None

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self._open.text += data
        else:
            self.loose.append(data)


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def _inline(token: Token) -> tuple[str, list[str]]:
    """Text and images of a line."""
    words: list[str] = []
    images: list[str] = []
    for child in token.children or ():
        if child.type in ("text", "code_inline"):
            words.append(child.content)
        elif child.type in ("softbreak", "hardbreak"):
            words.append(" ")
        elif child.type == "image" and (name := _asset(str(child.attrs.get("src", "")))):
            images.append(name)
    return "".join(words).strip(), images


def _pipes(tokens: Iterator[Token]) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for token in tokens:
        if token.type == "table_close":
            break
        if token.type == "tr_open":
            rows.append([])
        elif token.type in ("th_open", "td_open"):
            rows[-1].append(Cell(is_header=token.type == "th_open"))
        elif token.type == "inline":
            rows[-1][-1].text = _inline(token)[0]
    return rows


def _asset(src: str) -> str:
    return unquote(src.removeprefix(ASSETS)) if src.startswith(ASSETS) else ""


def _span(value: str | None) -> int:
    return min(max(int(value), 1), MOST_SPAN) if value and value.isdecimal() and len(value) < 9 else 1


# Writing


def _plain(item: Item, depth: int = 0) -> str:
    if item.kind == "table":
        return "\n".join("\t".join(cell.text for cell in row) for row in item.rows)
    inner = [_plain(child, depth + 1) for child in item.children]
    if item.kind == "list":
        return "\n".join(line for line in inner if line)
    lines = [f"{item.marker} {item.text}" if item.kind == "list_item" else item.text, *inner]
    return "\n".join(f"{'  ' if n else ''}{line}" for n, line in enumerate(lines) if line)


class _Writer:
    def __init__(self, boxes: Mapping[str, Box | None], pictures: Mapping[str, Picture]) -> None:
        self.boxes, self.pictures = boxes, pictures
        self.lists: dict[str, list[dict[str, Any]]] = {"texts": [], "tables": [], "pictures": [], "groups": []}

    def write(self, name: str, pages: Sequence[Page], items: Sequence[Item]) -> dict[str, Any]:
        children = [{"$ref": self._add(item, "#/body")} for item in items]
        return {
            "schema_name": "DoclingDocument",
            "version": SCHEMA,
            "name": name,
            "furniture": _root("#/furniture", "furniture", []),
            "body": _root("#/body", "body", children),
            **self.lists,
            "key_value_items": [],
            "form_items": [],
            "pages": {str(one.index + 1): _page(one.index + 1) for one in pages},
        }

    def _add(self, item: Item, parent: str) -> str:
        home = {"list": "groups", "table": "tables", "picture": "pictures"}.get(item.kind, "texts")
        ref = f"#/{home}/{len(self.lists[home])}"
        node: dict[str, Any] = {
            "self_ref": ref,
            "parent": {"$ref": parent},
            "children": [],
            "content_layer": "body",
            "label": item.kind,
        }
        self.lists[home].append(node)
        node["children"] = [{"$ref": self._add(child, ref)} for child in item.children]
        node |= {"name": "list"} if item.kind == "list" else {"prov": [self._place(item)]} | self._rest(item)
        return ref

    def _place(self, item: Item) -> dict[str, Any]:
        left, top, right, bottom = self.boxes.get(item.asset) or WHOLE
        box = {"l": left, "t": top, "r": right, "b": bottom, "coord_origin": "TOPLEFT"}
        return {"page_no": item.page, "bbox": box, "charspan": [0, len(item.text)]}

    def _rest(self, item: Item) -> dict[str, Any]:
        floating: dict[str, Any] = {"captions": [], "references": [], "footnotes": []}
        if item.kind == "table":
            return floating | {"data": _table(item.rows), "annotations": []}
        if item.kind == "picture":
            return floating | {"annotations": [], **self._image(item.asset)}
        text = {"orig": item.text, "text": item.text}
        if item.kind == "section_header":
            return text | {"level": item.level}
        if item.kind == "list_item":
            return text | {"enumerated": item.is_numbered, "marker": item.marker}
        return text | (floating | {"code_language": "unknown"} if item.kind == "code" else {})

    def _image(self, name: str) -> dict[str, Any]:
        picture = self.pictures.get(name)
        if picture is None:
            return {}
        size = {"width": picture.width, "height": picture.height}
        return {"image": {"mimetype": picture.media_type, "dpi": 72, "size": size, "uri": picture.uri}}


def _root(ref: str, layer: str, children: list[dict[str, str]]) -> dict[str, Any]:
    return {"self_ref": ref, "children": children, "content_layer": layer, "name": "_root_", "label": "unspecified"}


def _page(number: int) -> dict[str, Any]:
    return {"size": {"width": 1.0, "height": 1.0}, "page_no": number}


def _table(rows: list[list[Cell]]) -> dict[str, Any]:
    taken: set[tuple[int, int]] = set()
    cells: list[dict[str, Any]] = []
    width = 0
    for y, row in enumerate(rows):
        x = 0
        for cell in row:
            while (y, x) in taken:
                x += 1
            rows_down = min(cell.rows, len(rows) - y)
            taken.update((y + down, x + right) for down in range(rows_down) for right in range(cell.columns))
            cells.append(
                {
                    "text": cell.text,
                    "row_span": rows_down,
                    "col_span": cell.columns,
                    "start_row_offset_idx": y,
                    "end_row_offset_idx": y + rows_down,
                    "start_col_offset_idx": x,
                    "end_col_offset_idx": x + cell.columns,
                    "column_header": cell.is_header,
                    "row_header": False,
                    "row_section": False,
                }
            )
            x += cell.columns
            width = max(width, x)
    return {"table_cells": cells, "num_rows": len(rows), "num_cols": width}
