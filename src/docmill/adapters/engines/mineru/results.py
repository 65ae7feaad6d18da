"""The ZIP files of MinerU, as blocks of pages.

Today's server writes `structured_content.json`: pages of blocks with Markdown and boxes in 0-1; the tables' HTML stands
in `middle_json.json`. The 3.x server and the cloud write `*_content_list.json`: a flat list with boxes in thousandths
of the page; their `*_middle.json` (cloud: `layout.json`) counts the pages and has boxes in units of the page, which are
more exact. Files are found by how their names end: folders and stems differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from docmill.adapters.engines.assembling import Assembly, Block
from docmill.adapters.engines.polling import Origin, invalid
from docmill.adapters.engines.tables import as_html, as_markdown, rows_of
from docmill.core.archive import TextEntry, unpack_result
from docmill.core.errors import BadRequest
from docmill.core.parsed import Box, Parsed, clamp

STRUCTURED = "structured_content.json"
MIDDLE = "middle_json.json"
CONTENT = "content_list.json"
LAYOUTS = ("_middle.json", "layout.json")
ENDINGS = (STRUCTURED, MIDDLE, CONTENT, *LAYOUTS, ".md")
ASIDE = frozenset({"header", "footer", "page_number", "aside_text", "page_header", "page_footer", "page_aside_text"})
"""Repeats on every page, and no part of the text."""
VISUAL = ("image", "table", "chart", "code")
THOUSANDTHS = 1000.0


def read(archive: Path, folder: Path, origin: Origin) -> Parsed:
    """Unpack and read. An archive that is no good is an invalid answer, whatever is wrong with it."""
    assets = folder / "assets"
    assets.mkdir(exist_ok=True)
    try:
        texts, images = unpack_result(archive, assets, ENDINGS)
    except BadRequest as error:
        raise invalid(origin.provider, error.message) from error
    by_name = {PurePosixPath(image.name_in_zip).name: image for image in images}
    assembly = Assembly(origin.provider, origin.media_type, folder, by_name)
    try:
        blocks, pages, title = _blocks(texts)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError) as error:
        raise invalid(origin.provider, "its JSON has another shape") from error
    if blocks is None:
        raise invalid(origin.provider, "there is no text in its archive")
    return assembly.build(blocks, pages, title=title, facts=origin.facts)


def _blocks(texts: dict[str, TextEntry]) -> tuple[list[Block] | None, int, str | None]:
    if STRUCTURED in texts:
        structured = msgspec.json.decode(texts[STRUCTURED].text)
        middle = msgspec.json.decode(texts[MIDDLE].text) if MIDDLE in texts else {}
        return list(_structured(structured, middle)), len(structured["pages"]), _title(structured)
    if CONTENT in texts:
        layout: Any = next((msgspec.json.decode(texts[one].text) for one in LAYOUTS if one in texts), {})
        infos = layout.get("pdf_info", []) if isinstance(layout, dict) else []
        listed = msgspec.json.decode(texts[CONTENT].text)
        return list(_listed(listed, _boxes(infos))), len(infos), None
    if ".md" in texts:
        return [Block(0, texts[".md"].text)], 1, None
    return None, 0, None


# --- the server of today


def _structured(structured: dict[str, Any], middle: dict[str, Any]) -> Iterator[Block]:
    tables = _tables(middle)
    for page in structured["pages"]:
        number = _page(page["page_idx"])
        waiting = iter(tables.get(number, ()))
        for block in page["blocks"]:
            kind = str(block["type"])
            if kind in ASIDE:
                continue
            html = next(waiting, "") if kind == "table" else ""
            rows = rows_of(html) if html else []
            yield Block(
                number,
                _markdown(block, kind),
                _box(block.get("bbox"), 1.0, 1.0),
                image=str(block.get("image_source") or "") if kind in ("image", "chart") else "",
                html=as_html(rows) if rows else "",
            )


def _markdown(block: dict[str, Any], kind: str) -> str:
    content = str(block.get("content") or "")
    if kind in ("doc_title", "paragraph_title", "title"):
        level = block.get("level")
        return _heading(content, max(level, 1) if isinstance(level, int) else 1)
    if kind in ("interline_equation", "equation"):
        return content if content.startswith("$") or not content else f"$$\n{content}\n$$"
    if kind in VISUAL:
        said = [_said(one) for key in ("captions", "footnotes") for one in block.get(key) or ()]
        return "\n\n".join(part for part in (content, *said) if part)
    return content


def _heading(text: str, level: int) -> str:
    line = " ".join(text.split())
    return f"{'#' * min(level, 6)} {line}" if line else ""


def _said(annotation: object) -> str:
    return str(annotation.get("content") or "") if isinstance(annotation, dict) else str(annotation)


def _tables(middle: dict[str, Any]) -> dict[int, list[str]]:
    """The HTML of every page's tables, in order."""
    found: dict[int, list[str]] = {}
    for page in middle.get("pages", ()):
        for block in page.get("blocks", ()):
            if block.get("type") == "table":
                bodies = [one for one in block.get("content") or () if one.get("type") == "table_body"]
                html = str(bodies[0].get("content") or "") if bodies else ""
                found.setdefault(_page(page["page_idx"]), []).append(html)
    return found


def _title(structured: dict[str, Any]) -> str | None:
    title = structured.get("metadata", {}).get("document", {}).get("title")
    return title.strip()[:500] or None if isinstance(title, str) else None


# --- 3.x and the cloud


def _listed(listed: list[dict[str, Any]], boxes: dict[str, Box]) -> Iterator[Block]:
    for item in listed:
        kind = str(item["type"])
        if kind in ASIDE:
            continue
        image = str(item.get("img_path") or "")
        box = boxes.get(PurePosixPath(image).name) if image else None
        rows = rows_of(str(item["table_body"])) if kind == "table" and item.get("table_body") else []
        yield Block(
            _page(item["page_idx"]),
            _item(item, kind, as_markdown(rows)),
            box or _box(item.get("bbox"), THOUSANDTHS, THOUSANDTHS),
            image=image if kind in ("image", "chart") or (kind == "table" and not rows) else "",
            html=as_html(rows) if rows else "",
        )


def _item(item: dict[str, Any], kind: str, table: str) -> str:
    text = str(item.get("text") or "")
    if kind == "text" or kind == "page_footnote":
        level = item.get("text_level")
        return _heading(text, level) if isinstance(level, int) and level > 0 else text
    if kind == "list":
        return "\n".join(f"- {' '.join(str(one).split())}" for one in item.get("list_items") or ())
    if kind in VISUAL:
        body = table or str(item.get("code_body") or item.get("content") or "")
        said = [str(one) for key in ("caption", "footnote") for one in item.get(f"{kind}_{key}") or ()]
        return "\n\n".join(part for part in (body, *said) if part.strip())
    return text


def _boxes(infos: list[dict[str, Any]]) -> dict[str, Box]:
    """Boxes of the images by file name, from units of the page."""
    found: dict[str, Box] = {}
    for page in infos:
        width, height = page["page_size"]
        for block in page.get("para_blocks", ()):
            box = _box(block.get("bbox"), width, height)
            for name in _image_names(block):
                if box:
                    found[name] = box
    return found


def _image_names(block: dict[str, Any]) -> Iterator[str]:
    for part in (block, *(block.get("blocks") or ())):
        for line in part.get("lines") or ():
            for span in line.get("spans") or ():
                if span.get("image_path"):
                    yield PurePosixPath(str(span["image_path"])).name


def _box(bbox: object, width: float, height: float) -> Box | None:
    if not isinstance(bbox, list) or len(bbox) != 4 or not all(isinstance(one, int | float) for one in bbox):
        return None
    x0, y0, x1, y1 = bbox
    return clamp(x0 / width, y0 / height, x1 / width, y1 / height)


def _page(index: object) -> int:
    if not isinstance(index, int) or not 0 <= index < 100_000:
        raise ValueError("a page's number")
    return index
