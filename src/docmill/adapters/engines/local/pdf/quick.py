"""liteparse's pages as blocks: its order and paragraphs, our tables, and headings that can be headings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from . import ruled
from .blocks import Block, Cell
from .ruled import Grid, Rect

WINDOW = 32
CAPTION = re.compile(
    r"(?:table|tab\.|figure|fig\.|chart|diagram|abbildung|abb\.|tabelle|图|表|source|quelle)\s*(?:\d|[a-z]\b|:)",
    re.IGNORECASE,
)
NUMBERED = re.compile(r"\d{1,2}(?:\.\d{1,3})*\.?\s")
ENUMERATED = re.compile(r"^\(?[a-z]{1,3}[.)]\s")
REAL_WORD = re.compile(r"[^\W\d_]{3,}|[\u3040-\u9fff\uac00-\ud7af]")
MARKS = re.compile(r"[*_`\\]")
LONGEST_HEADING = 24
SHORT_CELL = 40
PICTURE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
NUMBER = re.compile(r"\d{1,9}[.)]$")


def pages(source: Path, *, tagged: bool) -> Iterator[dict[int, Any]]:
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
        extract_links=True,
        extract_structure_tree=tagged,
        extract_text_metadata=tagged,
        extract_vector_graphics=True,
        emit_word_boxes=True,
        keep_headers_footers=True,
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


def rect(box: Any) -> Rect | None:
    return (box.x, box.y, box.x + box.width, box.y + box.height) if box is not None else None


def read(page: Any) -> tuple[list[Block], list[Grid], bool]:
    """The page's blocks, the ruled tables among them, and whether a table was only guessed."""
    grids = ruled.grids(page)
    waiting = list(grids)
    blocks: list[Block] = []
    guessed = False
    for found in page.blocks or ():
        box = rect(found.bbox)
        home = next((grid for grid in grids if box is not None and mostly_inside(box, grid.box)), None)
        if home is not None:
            guessed = guessed or (found.kind == "table" and reaches_beyond(box, home.box))
            if home in waiting:
                waiting.remove(home)
                blocks.append(table_block(home, page))
            continue
        if found.kind == "grid_fallback" or (found.kind == "table" and not is_regular(found)):
            guessed = True
        if (block := as_block(found, page)) is not None:
            blocks.append(block)
    guessed = guessed or any(has_empty_row(grid) for grid in grids) or any(map(follows, grids, grids[1:]))
    for grid in waiting:
        guessed = True
        blocks.append(table_block(grid, page))
    return blocks, grids, guessed


def is_regular(table: Any) -> bool:
    """A table without lines is believed when its cells are short and full."""
    rows = [row for row in [table.header or [], *(table.rows or [])] if row]
    if len(rows) < 3 or len(rows[0]) < 3:
        return False
    full = [sum(bool(cell.text.strip()) for cell in row) / len(row) for row in rows]
    short = all(len(cell.text) <= SHORT_CELL for row in rows for cell in row)
    return short and full[0] == 1 and (min(full) == 1 or (len(rows) > 4 and min(full) >= 0.5))


def reaches_beyond(box: Rect | None, grid: Rect) -> bool:
    """The table has rows that its lines do not enclose."""
    return box is not None and (box[1] < grid[1] - 8 or box[3] > grid[3] + 8)


def has_empty_row(grid: Grid) -> bool:
    return any(row and not any(cell.text for cell in row) for row in grid.rows)


def follows(one: Grid, other: Grid) -> bool:
    """Two grids of the same width one under the other are often one table whose middle has no lines."""
    upper, lower = sorted((one.box, other.box), key=lambda box: box[1])
    same = abs(upper[0] - lower[0]) < 5 and abs(upper[2] - lower[2]) < 5
    return same and lower[1] - upper[3] < 30


def table_block(grid: Grid, page: Any) -> Block:
    return Block("table", rows=grid.rows, box=share(grid.box, page))


def share(box: Rect, page: Any) -> Rect:
    """Points as parts of the page."""
    width, height = page.width or 1, page.height or 1
    return box[0] / width, box[1] / height, box[2] / width, box[3] / height


def mostly_inside(inner: Rect, outer: Rect) -> bool:
    width = min(inner[2], outer[2]) - max(inner[0], outer[0])
    height = min(inner[3], outer[3]) - max(inner[1], outer[1])
    return width > 0 and height > 0 and width * height > 0.6 * ruled.size(inner)


def as_block(found: Any, page: Any) -> Block | None:
    box = rect(found.bbox)
    where = share(box, page) if box else None
    text = PICTURE.sub("", found.text or "").strip()
    match found.kind:
        case "heading":
            if is_heading(text):
                return Block("heading", text, found.level or 1, box=where)
            return Block("text", text, box=where)
        case "list_item":
            marker = found.marker or ""
            mark = f"{marker[:-1]}." if found.ordered and NUMBER.match(marker) else "-"
            if found.ordered and mark == "-" and marker:
                text = f"{marker} {text}"
            return Block("item", text, found.level or 0, mark, box=where)
        case "code":
            return Block("code", "\n".join(found.lines or ()), box=where)
        case "grid_fallback":
            return Block("text", "\n".join(line.strip() for line in found.lines or ()), box=where)
        case "table":
            rows = [[Cell(cell.text) for cell in row] for row in [found.header or [], *(found.rows or [])] if row]
            return Block("table", rows=rows, box=where)
        case "rule":
            return None
        case "figure":
            return Block("figure", box=where)
        case _:
            return Block("text", text, box=where)


def is_heading(text: str) -> bool:
    """Large or bold letters alone do not make one: sentences, captions, formulas and lists of names are none."""
    plain = MARKS.sub("", text).strip()
    words = plain.split()
    if not REAL_WORD.search(plain) or len(words) > LONGEST_HEADING or CAPTION.match(plain) or plain.count(",") > 3:
        return False
    if ENUMERATED.match(plain) and len(words) > 6:
        return False
    if NUMBERED.match(plain):
        return plain[-1] not in ",;" and (plain[-1] not in ".:" or len(words) <= 12)
    ends_open = plain[-1].islower() or plain[-1] in ",;"
    return not ((len(words) > 9 and ends_open) or (len(words) > 12 and plain[-1] == "."))


def turned(page: Any) -> int | None:
    """By how many degrees most of the text lies on its side or upside down as the page is displayed."""
    letters: Counter[int] = Counter()
    for item in page.text_items:
        letters[round((item.rotation or 0.0) / 90) % 4 * 90] += len(item.text)
    most = letters.most_common(1)
    return most[0][0] if most and most[0][0] and most[0][1] * 2 > letters.total() else None


def straight_lines(page: Any, turn: int) -> list[str]:
    """The lines in the order of somebody who turns the page."""

    def place(item: Any) -> tuple[float, float]:
        right, below = item.x + item.width, item.y + item.height
        down, along = {90: (-right, item.y), 180: (-below, -right), 270: (item.x, -below)}[turn]
        return round(down / 4), along

    return [item.text for item in sorted(page.text_items, key=place)]


def is_doubtful(page: Any, blocks: list[Block], guessed: bool) -> bool:
    """Whether a slower reader should look at the page: tables that are guesses, headings all over, columns."""
    layout = page.complexity.layout if page.complexity else None
    if guessed or layout is None:
        return True
    claimed = [found for found in page.blocks or () if found.kind == "heading"]
    refused = len(claimed) - sum(block.kind == "heading" for block in blocks)
    words = sum(len(item.text.split()) for item in page.text_items) or 1
    loud = sum(len(found.text.split()) for found in claimed) / words
    return refused > 2 or (loud > 0.25 and words > 25) or (layout.column_count > 1 and switches(page) > 1)


def switches(page: Any) -> int:
    """How often the order jumps sideways: once for two columns read one after the other."""
    boxes = [box for found in page.blocks or () if found.kind not in ("figure", "rule") and (box := rect(found.bbox))]
    return sum(
        min(one[2], other[2]) - max(one[0], other[0]) <= 0.3 * min(one[2] - one[0], other[2] - other[0])
        for one, other in pairwise(boxes)
    )
