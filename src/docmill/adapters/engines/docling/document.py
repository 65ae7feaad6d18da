"""A DoclingDocument as blocks of pages.

Items stand in lists by kind and are put in order by references from `body`. Pages count from 1; boxes are in units of
the page, from the bottom left unless they say otherwise. Pictures come embedded as data addresses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pybase64

from docmill.adapters.engines.assembling import Block
from docmill.adapters.engines.tables import Cell, as_html, as_markdown
from docmill.core.archive import EXTENSIONS, Unpacked, image_type
from docmill.core.parsed import Box, clamp

MOST_PAGES: Final = 100_000
DEEPEST: Final = 64
LISTS: Final = (
    "texts",
    "pictures",
    "tables",
    "groups",
    "key_value_items",
    "form_items",
    "field_items",
    "field_regions",
)
CHECKBOXES: Final = frozenset({"checkbox_selected", "checkbox_unselected"})
ASIDE: Final = frozenset({"page_header", "page_footer"})


class Document:
    """Read once, from top to bottom. Whatever has another shape than promised raises a LookupError or the like."""

    def __init__(self, raw: dict[str, Any], assets: Path) -> None:
        self._raw = raw
        self._assets = assets
        self._seen: set[str] = set()
        self._page = 0
        self.images: dict[str, Unpacked] = {}
        self._sizes = {
            int(number): (float(page["size"]["width"]), float(page["size"]["height"]))
            for number, page in (raw.get("pages") or {}).items()
            if page.get("size")
        }
        if any(not 0 < number <= MOST_PAGES for number in self._sizes):
            raise ValueError("a page's number")

    @property
    def page_count(self) -> int:
        return max(self._sizes, default=1)

    @property
    def title(self) -> str | None:
        """Its first title, if it has one."""
        found = (str(item.get("text") or "") for item in self._raw.get("texts") or () if item.get("label") == "title")
        return next((" ".join(text.split())[:500] for text in found if text.strip()), None)

    def blocks(self) -> Iterator[Block]:
        yield from self._children(self._raw["body"], 0, 0)

    def _children(self, item: dict[str, Any], depth: int, indent: int) -> Iterator[Block]:
        if depth > DEEPEST:
            raise ValueError("too deep")
        for child in item.get("children") or ():
            yield from self._one(str(child["$ref"]), depth + 1, indent)

    def _one(self, ref: str, depth: int, indent: int) -> Iterator[Block]:
        if ref in self._seen:
            return
        self._seen.add(ref)
        kind, item = self._find(ref)
        if item.get("content_layer", "body") != "body" or item.get("label") in ASIDE:
            return
        self._turn_to(item)
        if kind == "pictures":
            yield self._picture(ref, item)
        elif kind == "tables":
            yield self._table(item)
        elif kind == "texts":
            yield Block(self._page, self._text(item, indent), self._box(item))
            yield from self._children(item, depth, indent + (item.get("label") == "list_item"))
        else:
            yield from self._children(item, depth, indent)

    def _find(self, ref: str) -> tuple[str, dict[str, Any]]:
        hash_mark, kind, index = ref.split("/")
        if hash_mark != "#" or kind not in LISTS:
            raise ValueError("a reference")
        item = self._raw[kind][int(index)]
        if not isinstance(item, dict):
            raise TypeError("an item")
        return kind, item

    def _turn_to(self, item: dict[str, Any]) -> None:
        """What has no place of its own stands where the item before it stood."""
        for prov in (item.get("prov") or ())[:1]:
            number = int(prov["page_no"])
            if not 0 < number <= MOST_PAGES:
                raise ValueError("a page's number")
            self._page = number - 1

    def _text(self, item: dict[str, Any], indent: int) -> str:
        text, label = str(item.get("text") or ""), item.get("label")
        line = " ".join(text.split())
        if not line and label not in CHECKBOXES:
            return ""
        match label:
            case "title":
                return f"# {line}"
            case "section_header":
                level = item.get("level")
                return f"{'#' * min((level if isinstance(level, int) and level > 0 else 1) + 1, 6)} {line}"
            case "list_item":
                mark = str(item.get("marker") or "-") if item.get("enumerated") else "-"
                return f"{'  ' * min(indent, 8)}{mark} {line}"
            case "code":
                return f"```\n{text}\n```"
            case "formula":
                return f"$$\n{text}\n$$"
            case "checkbox_selected":
                return f"- [x] {line}"
            case "checkbox_unselected":
                return f"- [ ] {line}"
        return text

    def _captions(self, item: dict[str, Any]) -> str:
        said = []
        for caption in item.get("captions") or ():
            ref = str(caption["$ref"])
            self._seen.add(ref)
            said.append(" ".join(str(self._find(ref)[1].get("text") or "").split()))
        return "\n\n".join(one for one in said if one)

    def _picture(self, ref: str, item: dict[str, Any]) -> Block:
        caption = self._captions(item)
        for child in item.get("children") or ():
            self._seen.add(str(child["$ref"]))  # words inside the picture are the picture's
        name = self._keep(ref, (item.get("image") or {}).get("uri"))
        return Block(self._page, caption, self._box(item), image=name)

    def _keep(self, ref: str, uri: object) -> str:
        if not isinstance(uri, str) or not uri.startswith("data:image/") or ";base64," not in uri[:64]:
            return ""
        data = pybase64.b64decode(uri.split(",", 1)[1], validate=True)
        media_type = image_type(data[:64])
        if media_type not in EXTENSIONS:
            return ""
        digest = hashlib.sha256(data).hexdigest()
        safe = f"{len(self.images):05}-{digest[:12]}{EXTENSIONS[media_type]}"
        (self._assets / safe).write_bytes(data)
        name = ref.replace("#/", "").replace("/", "-")
        self.images[name] = Unpacked(name, safe, media_type, digest, len(data))
        return name

    def _table(self, item: dict[str, Any]) -> Block:
        caption = self._captions(item)
        by_row: dict[int, list[tuple[int, Cell]]] = {}
        for cell in item["data"]["table_cells"]:
            top, left = int(cell["start_row_offset_idx"]), int(cell["start_col_offset_idx"])
            text = " ".join(str(cell.get("text") or "").split())
            placed = Cell(text, _span(cell.get("row_span")), _span(cell.get("col_span")))
            by_row.setdefault(top, []).append((left, placed))
        rows = [[cell for _, cell in sorted(by_row[top], key=lambda one: one[0])] for top in sorted(by_row)]
        parts = [part for part in (caption, as_markdown(rows)) if part]
        return Block(self._page, "\n\n".join(parts), self._box(item), html=as_html(rows) if rows else "")

    def _box(self, item: dict[str, Any]) -> Box | None:
        prov = next(iter(item.get("prov") or ()), None)
        size = self._sizes.get(self._page + 1)
        if prov is None or size is None or not prov.get("bbox"):
            return None
        box, (width, height) = prov["bbox"], size
        left, right = box["l"] / width, box["r"] / width
        top, bottom = box["t"] / height, box["b"] / height
        if box.get("coord_origin", "BOTTOMLEFT") == "BOTTOMLEFT":
            top, bottom = 1 - top, 1 - bottom
        return clamp(left, min(top, bottom), right, max(top, bottom))


def _span(value: object) -> int:
    return min(value, 1000) if isinstance(value, int) and value > 1 else 1
