"""liteparse's pages as blocks: its order and paragraphs, our tables, and headings that can be headings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from docmill.core import links

from ...markdown import CJK
from . import aligned, regions, ruled, sections
from .blocks import Block, Cell, joined
from .charts import has_axis
from .ruled import PROSE, Grid, Rect, Word

CAPTION = re.compile(
    r"(?:table|tab\.|figure|fig\.|chart|diagram|abbildung|abb\.|tabelle|图|表|source|quelle)\s*(?:\d|[a-z]\b|:)",
    re.IGNORECASE,
)
NUMBERED = re.compile(r"\d{1,2}(?:\.\d{1,3})*\.?\s")
ENUMERATED = re.compile(r"^\(?[a-z]{1,3}[.)]\s")
REAL_WORD = re.compile(r"[^\W\d_]{3,}|[\u3040-\u9fff\uac00-\ud7af]")
CJK_LETTER = re.compile(f"[{CJK}]")
MARKS = re.compile(r"[*_`\\]")
AUTHORS = re.compile(r"\w[∗†‡§]+(?:,|\s|$)")
RUN_IN = re.compile(r"[a-z]{2}\.\s+[A-Z]")
"""A heading that shares its line with the paragraph that follows."""
NOTE = re.compile(r"[\W_]*(?:\d{1,3}\W*\s*[^\W\d]|[*∗†‡§¶])")
WIDE, LOW = 0.4, 20.0
"""Of the page, and points: two columns that were taken for one are wider and higher."""
ABSTRACT = re.compile(r"\W*(?:abstract|summary|zusammenfassung|kurzfassung|摘\s*要)\W*", re.IGNORECASE)
SAME_LINE = 0.004
FEW_LETTERS = 12
LONGEST_HEADING = 24
LONGEST_TITLE = 18
TITLE = 1.3
"""Times the usual size of letters."""
SHORT_CELL = 40
NEAR = 2.0
"""Points. Words so near to a table are its own."""
PICTURE = links.IMAGE
FIGURE = re.compile(r"(?<!\S)[^\s\w]?\d[\d.,%]*(?!\S)")
LETTERS = re.compile(r"[^\W\d_]{2}")
NUMBER = re.compile(r"\d{1,9}[.)]$")
QUIET = 0.1
"""Of the words. When no more of them were taken for headings, the rest of the page is in no doubt."""
TITLE_PAGE = 50
"""Words. With fewer, large letters are usual."""


def rect(box: Any) -> Rect | None:
    return (box.x, box.y, box.x + box.width, box.y + box.height) if box is not None else None


def read(page: Any) -> tuple[list[Block], list[Grid], bool]:
    """The page's blocks, the tables among them, and whether columns of text were mixed up in a table."""
    level, upright, words = ruled.drawn(page)
    grids = ruled.grids(page, level, upright, words)
    found = [(block, rect(block.bbox)) for block in page.blocks]
    tabular = [box for block, box in found if box is not None and is_uncertain(block)]
    tables = [box for block, box in found if box is not None and block.kind == "table"]
    shaky = [grid for grid in grids if is_shaky(grid, grids, tables, words)]
    sure = [grid for grid in grids if grid not in shaky]
    page_box = (0.0, 0.0, page.width, page.height)
    guessed = False
    hints = [*tabular, *(grid.box for grid in shaky)]
    for box in regions.united([*hints, *regions.stacks(level, words)]):
        if any(mostly_inside(box, grid.box) or mostly_inside(grid.box, box) for grid in sure):
            continue
        region = regions.grown(box, words, upright, page_box)
        known = [grid for grid in shaky if mostly_inside(grid.box, region)]
        hinted = any(mostly_inside(hint, region) for hint in hints)
        drawn = [grid for grid in known if not has_stacked_numbers(grid)]
        grid = aligned.build(region, words, level, upright, drawn, frame=hinted)
        if grid is not None and any(is_better(block, own, grid) for block, own in found):
            continue
        if grid is not None:
            sure.append(grid)
        else:
            sure += known
            guessed = guessed or (hinted and aligned.is_mixed(box, words))
    if len(sure) > 1:
        sure = sections.put_together(sure, words, level, upright)
    return notes_last(without_names(in_order(placed(found, sure, page, words))), page), sure, guessed


def placed(found: list[tuple[Any, Rect | None]], grids: list[Grid], page: Any, words: Sequence[Word]) -> list[Block]:
    """The blocks in their order, each table where its first words stand."""
    waiting = list(grids)
    blocks: list[Block] = []
    beside: list[Block] = []
    for block, box in found:
        if box is not None and block.kind == "table" and (held := held_by(box, grids)):
            # What was built anew is sure: the other words of the parser's table are no part of it.
            blocks += left_over(box, held, page, words, above=True)
            for grid in held:
                if grid in waiting:
                    waiting.remove(grid)
                    blocks += table_blocks(grid, page)
            blocks += left_over(box, held, page, words, above=False)
            continue
        home = next((grid for grid in grids if box is not None and mostly_inside(box, grid.box)), None)
        columns = taken_apart(block, box, page, words) if home is None and box is not None else None
        if columns is not None:
            blocks.append(columns[0])
            beside.append(columns[1])
            continue
        blocks += beside
        beside.clear()
        if home is not None:
            if home in waiting:
                waiting.remove(home)
                blocks += table_blocks(home, page)
        elif (made := as_block(block, page)) is not None:
            blocks.append(made)
    blocks += beside
    for grid in waiting:
        tables = table_blocks(grid, page)
        at = place(blocks, tables[0].box)
        blocks[at:at] = tables
    return blocks


def held_by(box: Rect, grids: list[Grid]) -> list[Grid]:
    """The tables that the parser's table is about, from top to bottom."""
    held = (grid for grid in grids if mostly_inside(grid.box, box) or mostly_inside(box, grid.box))
    return sorted(held, key=lambda grid: grid.box[1])


def left_over(box: Rect, grids: list[Grid], page: Any, words: Sequence[Word], *, above: bool) -> list[Block]:
    """The words in the box that stand in none of its tables, above the first of them or farther down."""
    edge = grids[0].box[1]
    own = [word for word in ruled.inside(words, box) if (word.y < edge) is above]
    own = [word for word in own if not any(ruled.inside([word], grown_by(grid.box, NEAR)) for grid in grids)]
    return [Block("text", ruled.text_of(own), box=share(ruled.around(own), page))] if own else []


def grown_by(box: Rect, points: float) -> Rect:
    return box[0] - points, box[1] - points, box[2] + points, box[3] + points


def taken_apart(block: Any, box: Rect, page: Any, words: Sequence[Word]) -> tuple[Block, Block] | None:
    """Two columns, if the paragraph goes through both line by line."""
    if box[2] - box[0] < WIDE * page.width or box[3] - box[1] < LOW or block.kind != "paragraph":
        return None
    middle = (box[0] + box[2]) / 2
    own = [item for item in page.text_items if box[1] <= item.y <= box[3] and box[0] - 1 <= item.x <= box[2]]
    across = sum(len(item.text) for item in own if item.x < middle < item.x + item.width)
    if 5 * across > sum(len(item.text) for item in own) or (halves := aligned.halves(box, words)) is None:
        return None
    left, right = (Block("text", ruled.text_of(half), box=share(ruled.around(half), page)) for half in halves)
    return left, right


def place(blocks: list[Block], box: Rect | None) -> int:
    """Before the first block that stands below in the same column."""
    for number, other in enumerate(blocks):
        if other.box is None or box is None or other.box[1] < box[1] - 0.005:
            continue
        if other.box[0] < box[2] and box[0] < other.box[2]:
            return number
    return len(blocks)


def is_uncertain(block: Any) -> bool:
    return block.kind in ("grid_fallback", "table")


def is_shaky(grid: Grid, grids: list[Grid], tables: list[Rect], words: Sequence[Word]) -> bool:
    """Its lines do not tell the whole table."""
    if has_empty_row(grid) or has_stacked_numbers(grid):
        return True
    if any(other is not grid and follows(grid, other) for other in grids):
        return True
    return any(mostly_inside(box, grid.box) and reaches_beyond(box, grid.box, words) for box in tables)


def is_better(block: Any, box: Rect | None, grid: Grid) -> bool:
    """liteparse's table is believed when it is regular and has all of the words in other columns."""
    if block.kind != "table" or box is None or not mostly_inside(grid.box, box) or not is_regular(block):
        return False
    return len(block.header or block.rows[0]) != grid.width


def is_regular(table: Any) -> bool:
    """A table without lines is believed when its cells are short and full."""
    rows = [row for row in [table.header or [], *(table.rows or [])] if row]
    if len(rows) < 3 or len(rows[0]) < 3:
        return False
    full = [sum(bool(cell.text.strip()) for cell in row) / len(row) for row in rows]
    short = all(len(cell.text) <= SHORT_CELL for row in rows for cell in row)
    return short and full[0] == 1 and (min(full) == 1 or (len(rows) > 4 and min(full) >= 0.5))


def reaches_beyond(box: Rect, grid: Rect, words: Sequence[Word]) -> bool:
    """The table has rows that its lines do not enclose; a paragraph above or below it is no row."""
    if box[1] >= grid[1] - 8 and box[3] <= grid[3] + 8:
        return False
    above, below = (box[0], box[1], box[2], grid[1]), (box[0], grid[3], box[2], box[3])
    lines = [line for part in (above, below) for line in aligned.text_lines(ruled.inside(words, part))]
    return any(len(line.chunks) > 1 for line in lines)


def has_empty_row(grid: Grid) -> bool:
    return any(row and not any(cell.text for cell in row) for row in grid.rows)


def has_stacked_numbers(grid: Grid) -> bool:
    """Only the head is drawn: what should be rows stands in one cell, number under number."""
    for row in grid.rows:
        full = [cell for cell in row if cell.text]
        stacked = sum(len(FIGURE.findall(cell.text)) >= 3 and not LETTERS.search(cell.text) for cell in full)
        if len(full) >= 2 and 2 * stacked > len(full):
            return True
    return False


def follows(one: Grid, other: Grid) -> bool:
    """Two grids of the same width one under the other are often one table whose middle has no lines."""
    upper, lower = sorted((one.box, other.box), key=lambda box: box[1])
    same = abs(upper[0] - lower[0]) < 5 and abs(upper[2] - lower[2]) < 5
    return same and lower[1] - upper[3] < 30


def table_blocks(grid: Grid, page: Any) -> list[Block]:
    """The table, and the running text above and below that was found in its region."""
    where = share(grid.box, page)
    texts = [Block("text", joined(lines), box=where) for lines in (grid.above, grid.below)]
    table = Block("table", rows=grid.rows, box=where)
    return [block for block in (texts[0], table, texts[1]) if block.text or block.rows]


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
            if is_heading(text) or (box is not None and is_title(text) and is_large(box, page, TITLE)):
                return Block("heading", text, found.level or 1, box=where)
            return Block("text", text, box=where)
        case "list_item":
            marker = found.marker or ""
            mark = f"{marker[:-1]}." if found.ordered and NUMBER.match(marker) else "-"
            if found.ordered and mark == "-" and marker:
                text = f"{marker} {text}"
            return Block("item", text, found.level or 0, mark, box=where)
        case "code":
            lines = found.lines or ()
            if not is_cjk("".join(lines)):
                return Block("code", "\n".join(lines), box=where)
            text = joined(lines)
            tall = box is not None and is_heading(text) and is_large(box, page)
            return Block("heading" if tall else "text", text, 2, box=where)
        case "grid_fallback":
            return Block("text", "\n".join(line.strip() for line in found.lines or ()), box=where)
        case "table":
            rows = [[Cell(cell.text) for cell in row] for row in [found.header or [], *(found.rows or [])] if row]
            if len(rows) < 2 or is_wordy(rows) or has_axis(rows):
                return Block("text", joined(" ".join(cell.text for cell in row).strip() for row in rows), box=where)
            return Block("table", rows=rows, box=where)
        case "rule":
            return None
        case "figure":
            return Block("figure", box=where)
        case _:
            return Block("text", text, box=where)


def is_wordy(rows: list[list[Cell]]) -> bool:
    """Lines of a paragraph, cut at a gap that happens to lie under another."""
    return len(rows[0]) <= 3 and 2 * sum(any(len(c.text.split()) >= PROSE for c in row) for row in rows) > len(rows)


def is_cjk(text: str) -> bool:
    """Chinese letters are all of one width, which liteparse takes for the sign of code."""
    return 2 * len(CJK_LETTER.findall(text)) > sum(not letter.isspace() for letter in text)


def is_large(box: Rect, page: Any, times: float = 1.08) -> bool:
    """Whether the letters in the box are larger than those of most of the page."""
    return letter_size(page, box) > times * letter_size(page)


def letter_size(page: Any, box: Rect | None = None) -> float:
    """The usual size of the letters, of the page or in a part of it."""
    sizes: Counter[float] = Counter()
    for item in page.text_items:
        if box is None or mostly_inside((item.x, item.y, item.x + item.width, item.y + item.height), box):
            sizes[round(item.height, 1)] += len(item.text)  # the font's own size may be 1, and scaled
    return sizes.most_common(1)[0][0] if sizes else 0.0


def is_title(text: str) -> bool:
    """A long heading, too, when its words are written large as in titles."""
    words = MARKS.sub("", text).split()
    if not 0 < len(words) <= LONGEST_TITLE or words[-1][-1] in ".,;" or AUTHORS.search(text):
        return False
    return sum(word[0].isupper() for word in words) >= 0.6 * len(words)


def in_order(blocks: list[Block]) -> list[Block]:
    """What stands above another block of the same column is read before it."""
    for _ in range(3):
        result: list[Block] = []
        lowest, moved = 0.0, False
        for block in blocks:
            at = len(result)
            if block.box is not None and block.box[3] <= lowest + SAME_LINE:
                at = next((number for number, other in enumerate(result) if stands_above(block, other)), at)
                moved = moved or at < len(result)
            result.insert(at, block)
            lowest = max(lowest, block.box[1]) if block.box is not None else lowest
        if not moved:
            break
        blocks = result
    return blocks


def stands_above(block: Block, other: Block) -> bool:
    if block.box is None or other.box is None or block.kind == "figure" or other.kind == "figure":
        return False
    x0, _, x1, y1 = block.box
    shared = min(x1, other.box[2]) - max(x0, other.box[0])
    return y1 <= other.box[1] + SAME_LINE and shared > 0.3 * min(x1 - x0, other.box[2] - other.box[0])


def without_names(blocks: list[Block]) -> list[Block]:
    """Between a paper's authors and its abstract stand where they work and how to reach them, not headings."""
    first = next((number for number, block in enumerate(blocks) if AUTHORS.search(block.text)), len(blocks))
    last = next((number for number, block in enumerate(blocks) if ABSTRACT.fullmatch(block.text)), 0)
    for block in blocks[first:last]:
        if block.kind == "heading":
            block.kind = "text"
    return blocks


def notes_last(blocks: list[Block], page: Any) -> list[Block]:
    """Footnotes of the left column stand in the middle of what is read: all go to the page's end."""
    likely = [(number, block) for number, block in enumerate(blocks) if may_be_note(block)]
    if not any(is_next_column(other, block) for number, block in likely for other in blocks[number + 1 :]):
        return blocks
    body = letter_size(page)
    notes: list[Block] = []
    for _, block in likely:
        x0, y0, x1, y1 = block.box or (0.0, 0.0, 1.0, 1.0)
        where = (x0 * page.width, y0 * page.height, x1 * page.width, y1 * page.height)
        if letter_size(page, where) < 0.95 * body and not any(is_under(other, block) for other in blocks):
            notes.append(block)
    return [block for block in blocks if not any(block is note for note in notes)] + notes


def may_be_note(block: Block) -> bool:
    return block.kind == "text" and block.box is not None and block.box[1] > 0.5 and bool(NOTE.match(block.text))


def is_next_column(other: Block, block: Block) -> bool:
    """Whether what is read later begins higher up on the right."""
    if other.box is None or block.box is None:
        return False
    return other.box[0] >= block.box[2] - 0.01 and other.box[1] < block.box[1]


def is_under(other: Block, block: Block) -> bool:
    """Whether text of another kind stands below in the same column, above the page's edge."""
    if other is block or other.box is None or block.box is None or NOTE.match(other.text):
        return False
    beside = other.box[0] < block.box[2] and block.box[0] < other.box[2]
    return beside and block.box[3] - 0.01 < other.box[1] < 0.93


def is_heading(text: str) -> bool:
    """Large or bold letters alone do not make one: sentences, captions, formulas and lists of names are none."""
    plain = MARKS.sub("", text).strip()
    words = plain.split()
    if not REAL_WORD.search(plain) or len(words) > LONGEST_HEADING or CAPTION.match(plain) or plain.count(",") > 3:
        return False
    if AUTHORS.search(plain) or (RUN_IN.search(plain) and plain[-1].islower()):
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
        letters[round(item.rotation / 90) % 4 * 90] += len(item.text)
    most = letters.most_common(1)
    return most[0][0] if most and most[0][0] and most[0][1] * 2 > letters.total() else None


def around(page: Any) -> Rect:
    """Where the page's text is."""
    items = page.text_items
    right, bottom = max(item.x + item.width for item in items), max(item.y + item.height for item in items)
    return share((min(item.x for item in items), min(item.y for item in items), right, bottom), page)


def straight_lines(page: Any, turn: int) -> list[str]:
    """The lines in the order of somebody who turns the page."""

    def place(item: Any) -> tuple[float, float]:
        right, below = item.x + item.width, item.y + item.height
        down, along = {90: (-right, item.y), 180: (-below, -right), 270: (item.x, -below)}[turn]
        return round(down / 4), along

    return [item.text for item in sorted(page.text_items, key=place)]


def is_doubtful(page: Any, blocks: list[Block], guessed: bool) -> bool:
    """Whether a slower reader should look at the page: headings all over, columns in disorder."""
    if guessed:
        return True
    claimed = [found.text for found in page.blocks if found.kind == "heading" and not AUTHORS.search(found.text)]
    refused = len(claimed) - sum(block.kind == "heading" for block in blocks)
    words = sum(len(item.text.split()) for item in page.text_items) or 1
    loud = sum(len(text.split()) for text in claimed) / words
    if (refused > 2 and loud > QUIET) or (loud > 0.25 and words > TITLE_PAGE):
        return True
    return switches(blocks) > 2 and page.columns != 1


def switches(blocks: list[Block]) -> int:
    """How often the order jumps sideways: once for two columns read one after the other."""
    boxes = [
        block.box
        for block in blocks
        if block.box is not None
        and block.kind != "figure"
        and (block.rows or len(block.text) > FEW_LETTERS)
        and not (block.box[1] > 0.5 and NOTE.match(block.text))
    ]
    return sum(
        min(one[2], other[2]) - max(one[0], other[0]) <= 0.3 * min(one[2] - one[0], other[2] - other[0])
        for one, other in pairwise(boxes)
    )
