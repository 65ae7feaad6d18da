"""A page's words as blocks: direction, tables, columns, paragraphs, and what each of them is."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from . import columns, tables
from .blocks import Block
from .content import PageContent, Path, Rect, Word, turn_box, turn_word
from .drawings import find_drawings
from .headings import Profile, is_caption, is_heading, is_styled_heading, without_entries, without_names
from .inline import NOTHING, Plain, render, render_lines
from .lines import Line, find_lines
from .paragraphs import BULLET, DASH, ENDS_SENTENCE, NUMBER, Paragraph, find_paragraphs
from .ruled import Grid

MAX_SHADES = 300
MAX_FIGURES = 40
MAX_INLINE_DRAWN = 5_000
MAX_INLINE_HEIGHT = 40.0
"""Points. What is higher than three lines stands for itself."""
MIN_FIGURE = 0.03
"""Of the page. Bullets, rules and icons are no figures."""
DIGITS = re.compile(r"(\d{1,9})[.)]\s+")
NOTE_NUMBER = re.compile(r"\(?(\d{1,3}|[*†‡§¶])[.)]?")
CODE_LETTER = 0.6
"""Em: the width of a letter in most fonts of fixed pitch."""
MAX_INDENT = 80
LETTERED = re.compile(r"\(?([a-zA-Z])[.)]\s")
LETTERED_REACH = 4
"""Parts from one letter to the next: an item may have paragraphs and figures of its own."""
MAX_FORMULA_ROWS = 6
MATH_SHARE = 0.35
"""Of the letters of a formula: symbols, or variables in italics."""
OPERATOR = re.compile(r"[=≈≠≤≥<>∑∏∫√±×÷∂∇∞∈⊂→⇒+−]")
REAL_WORD = re.compile(r"[^\W\d_]{4,}[.,;:]?")
MAX_BETWEEN = 3
"""Parts that may stand between a paragraph and the rest of it in the next column."""


@dataclass(slots=True)
class Fixed:
    """A table or a figure: it keeps its place among the lines."""

    block: Block
    box: Rect
    extra: list[Block] = field(default_factory=list)

    @property
    def x0(self) -> float:
        return self.box[0]

    @property
    def y0(self) -> float:
        return self.box[1]

    @property
    def x1(self) -> float:
        return self.box[2]

    @property
    def y1(self) -> float:
        return self.box[3]


@dataclass(slots=True)
class Layout:
    """A page on its way: what was found on it so far."""

    content: PageContent
    profile: Profile
    turn: int = 0
    plain: Plain = NOTHING
    notes: frozenset[str] = frozenset()
    is_rtl: bool = False

    @property
    def middle(self) -> float:
        """Half of the page's height, as its text runs."""
        _, y0, _, y1 = turn_box((0.0, 0.0, self.content.width, self.content.height), self.turn)
        return (y0 + y1) / 2

    def place(self, box: Rect) -> Rect:
        """A box as parts of the displayed page."""
        x0, y0, x1, y1 = turn_box(box, -self.turn % 4)
        width, height = self.content.width or 1, self.content.height or 1
        return x0 / width, y0 / height, x1 / width, y1 / height


def read_page(content: PageContent, profile: Profile) -> list[Block]:
    """The page's blocks in reading order."""
    layout = Layout(content, profile)
    layout.turn = main_turn(content.words)
    words, paths, pictures = content.words, content.paths, content.pictures
    if layout.turn:
        for word in words:
            turn_word(word, layout.turn)
        paths = [path._replace(box=turn_box(path.box, layout.turn)) for path in paths]
        pictures = [turn_box(box, layout.turn) for box in pictures]
    page = turn_box((0.0, 0.0, content.width, content.height), layout.turn)
    level = [word for word in words if word.turn == 0]
    turned = turned_lines([word for word in words if word.turn])
    lines = bridge_drawn(find_lines(level), pictures, paths)
    mark_drawn_bullets(lines, paths)
    layout.is_rtl = 2 * sum(line.is_rtl for line in lines) > len(lines)
    layout.plain = usual_style(level, is_typed=profile.is_typed)
    if layout.plain.mono:
        clear_mono(lines)
    shades = find_shades(paths, page)
    set_shades(lines, shades)
    candidates = [line for line in lines if not (line.mono and not layout.plain.mono)]
    hints = tables.find_hints(candidates, is_column=False)
    grids = tables.find_tables([*level, *turned], paths, page, hints)
    fixed = [fixed_table(grid, layout) for grid in grids]
    fixed += [fixed_figure(box, layout) for box in find_figures(pictures, page, grids)]
    if grids:
        level = outside(level, grids)
        turned = outside(turned, grids)
        lines = bridge_drawn(find_lines(level), pictures, paths)
        if layout.plain.mono:
            clear_mono(lines)
        mark_drawn_bullets(lines, paths)
        set_shades(lines, shades)
    lines, drawn = take_drawings(lines, paths, [thing.box for thing in fixed], page, layout)
    fixed += drawn
    groups = columns.order([*lines, *fixed], is_rtl=layout.is_rtl)
    parts = [part for group in groups for part in read_group(group, layout, paths, page)]
    blocks = without_entries(without_names(write_parts(join_over(parts), layout)))
    blocks += [
        Block("text", render([word], layout.plain), box=layout.place(word.box)) for word in turned if word.text.strip()
    ]
    return blocks


def clear_mono(lines: Sequence[Line]) -> None:
    """Where everything is typed, no line is code."""
    for line in lines:
        line.mono = False


def main_turn(words: Sequence[Word]) -> int:
    letters: Counter[int] = Counter()
    for word in words:
        letters[word.turn] += len(word.text)
    return letters.most_common(1)[0][0] if letters else 0


def turned_lines(words: Sequence[Word]) -> list[Word]:
    """Text that runs across the rest, such as the head of a narrow column: each line as one word."""
    found: list[Word] = []
    for turn in {word.turn for word in words}:
        own = [word for word in words if word.turn == turn]
        for word in own:
            turn_word(word, turn)
        for line in find_lines(own):
            box = turn_box(line.box, -turn % 4)
            found.append(Word(line.text, *box, size=line.size))
    return found


def outside(words: list[Word], grids: Sequence[Grid]) -> list[Word]:
    boxes = [grid.box for grid in grids]
    return [word for word in words if not any(holds(box, word.x, word.y) for box in boxes)]


def holds(box: Rect, x: float, y: float, slack: float = 0.0) -> bool:
    return box[0] - slack <= x <= box[2] + slack and box[1] - slack <= y <= box[3] + slack


def usual_style(words: Sequence[Word], *, is_typed: bool) -> Plain:
    """What most of the page is set in says nothing. A page may well be all code, but not a document."""
    letters = sum(len(word.text) for word in words) or 1
    bold = sum(len(word.text) for word in words if word.bold) > 0.6 * letters
    italic = sum(len(word.text) for word in words if word.italic) > 0.6 * letters
    return Plain(bold, italic, is_typed)


def bridge_drawn(lines: list[Line], pictures: Sequence[Rect], paths: Sequence[Path]) -> list[Line]:
    """A small picture or drawn letters between two pieces of a line, such as a formula, are part of the line."""
    drawn = [path.box for path in paths if path.curved and path.filled]
    small = [box for box in [*pictures, *drawn] if box[3] - box[1] < MAX_INLINE_HEIGHT]
    if not small or len(small) > MAX_INLINE_DRAWN:
        return lines
    small.sort(key=lambda box: box[1] + box[3])
    middles = [(box[1] + box[3]) / 2 for box in small]
    gone: set[int] = set()
    for row in columns.rows_of(lines):
        for at in range(len(row) - 1, 0, -1):
            one, other = row[at - 1], row[at]
            first, last = bisect_left(middles, one.y0 - 2), bisect_left(middles, one.y1 + 2)
            inside = [box for box in small[first:last] if box[0] > one.x1 - one.size and box[2] < other.x0 + one.size]
            filled = sum(box[2] - box[0] for box in inside)
            if inside and filled > 0.4 * (other.x0 - one.x1) and not (one.is_rtl or other.is_rtl):
                one.words = one.words + other.words
                one.settle()
                gone.add(id(other))
    return [line for line in lines if id(line) not in gone] if gone else lines


def mark_drawn_bullets(lines: Sequence[Line], paths: Sequence[Path]) -> None:
    """Small dots that are drawn before lines are bullets, if there is more than one at the same distance."""
    dots = [path.box for path in paths if is_dot(path.box)]
    if not 1 < len(dots) < 2000:
        return
    at = Counter(round(box[0] / 2) for box in dots)
    dots = sorted((box for box in dots if at[round(box[0] / 2)] > 1), key=lambda box: box[1])
    for line in lines if dots else ():
        box = dot_before(dots, line)
        if box is not None and not BULLET.match(line.text):
            bullet = Word("•", box[0], line.y0, box[2], line.y1, base=line.base, size=line.size)
            line.words[0].glued = False
            line.words.insert(0, bullet)
            line.settle()


def is_dot(box: Rect) -> bool:
    width, height = box[2] - box[0], box[3] - box[1]
    return 1.5 <= width <= 8 and 1.5 <= height <= 8 and 0.7 < width / height < 1.4


def dot_before(dots: Sequence[Rect], line: Line) -> Rect | None:
    first = bisect_left(dots, line.y0 - 1, key=lambda box: box[1])
    for box in dots[first : first + 12]:
        if box[1] > line.y1:
            return None
        gap = box[0] - line.x1 if line.is_rtl else line.x0 - box[2]
        if box[3] <= line.y1 + 1 and 0.2 * line.size < gap < 2.5 * line.size:
            return box
    return None


def find_shades(paths: Sequence[Path], page: Rect) -> list[Rect]:
    """Filled boxes behind text, the smallest first."""
    area = (page[2] - page[0]) * (page[3] - page[1])
    found = {
        path.box
        for path in paths
        if path.filled
        and path.box[2] - path.box[0] > 60
        and path.box[3] - path.box[1] > 9
        and size(path.box) < 0.7 * area
    }
    return sorted(found, key=size)[:MAX_SHADES]


def size(box: Rect) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def set_shades(lines: Sequence[Line], shades: Sequence[Rect]) -> None:
    for line in lines if shades else ():
        middle = (line.y0 + line.y1) / 2
        line.boxed = next(
            (
                number
                for number, box in enumerate(shades)
                if box[1] <= middle <= box[3] and box[0] - 2 <= line.x0 and line.x1 <= box[2] + 2
            ),
            -1,
        )


def fixed_table(grid: Grid, layout: Layout) -> Fixed:
    """The table, and the running text above and below that was found in its frame."""
    where = layout.place(grid.box)
    texts = [Block("text", " ".join(lines), box=where) for lines in (grid.above, grid.below)]
    rows = [row[::-1] for row in grid.rows] if layout.is_rtl else grid.rows
    table = Block("table", rows=rows, box=where)
    blocks = [block for block in (texts[0], table, texts[1]) if block.text or block.rows]
    return Fixed(blocks[0], grid.box, blocks[1:])


def fixed_figure(box: Rect, layout: Layout) -> Fixed:
    return Fixed(Block("figure", box=layout.place(box)), box)


def find_figures(pictures: Sequence[Rect], page: Rect, grids: Sequence[Grid]) -> list[Rect]:
    """Pictures of some size; pieces of one picture count once."""
    width, height = page[2] - page[0], page[3] - page[1]
    boxes: list[Rect] = []
    for box in sorted(pictures, key=lambda box: (box[1], box[0]))[:2000]:
        for number, other in enumerate(boxes[-60:], max(0, len(boxes) - 60)):
            if touches(box, other):
                boxes[number] = around(box, other)
                break
        else:
            boxes.append(box)
    found = [
        box
        for box in boxes
        if box[2] - box[0] >= MIN_FIGURE * width
        and box[3] - box[1] >= MIN_FIGURE * height
        and size(box) < 0.95 * width * height
        and not any(holds(grid.box, (box[0] + box[2]) / 2, (box[1] + box[3]) / 2) for grid in grids)
    ]
    return found[:MAX_FIGURES]


def take_drawings(
    lines: list[Line], paths: Sequence[Path], taken: Sequence[Rect], page: Rect, layout: Layout
) -> tuple[list[Line], list[Fixed]]:
    """Charts and drawn formulas as figures. What is written inside is no running text: it stays together under them."""
    rest, found = lines, []
    for drawing in find_drawings(paths, lines, taken, page):
        figure = fixed_figure(drawing.box, layout)
        figure.block.marker = "formula" if drawing.is_formula else ""
        inside = [line for line in rest if is_inside(line, drawing.box)]
        if inside and not drawing.is_formula:
            rest = [line for line in rest if not any(line is one for one in inside)]
            rows = (" ".join(render(line.words, layout.plain) for line in row) for row in columns.rows_of(inside))
            where = around_all([line.box for line in inside])
            figure.extra = [Block("text", "  \n".join(rows), box=layout.place(where))]
        found.append(figure)
    return rest, found


def is_inside(line: Line, box: Rect) -> bool:
    return holds(box, (line.x0 + line.x1) / 2, (line.y0 + line.y1) / 2, slack=2.0)


def around_all(boxes: Sequence[Rect]) -> Rect:
    whole = boxes[0]
    for box in boxes[1:]:
        whole = around(whole, box)
    return whole


def with_figures(blocks: list[Block], content: PageContent) -> list[Block]:
    """Tags seldom say where a figure lies; the page does."""
    page = (0.0, 0.0, content.width, content.height)
    place = Layout(content, Profile()).place
    for box in find_figures(content.pictures, page, []):
        where = place(box)
        at = next((number for number, other in enumerate(blocks) if other.box and is_below(other.box, where)), None)
        blocks.insert(len(blocks) if at is None else at, Block("figure", box=where))
    return blocks


def is_below(box: Rect, other: Rect) -> bool:
    return box[1] >= other[1] and box[0] < other[2] and other[0] < box[2]


def touches(one: Rect, other: Rect, slack: float = 1.0) -> bool:
    return (
        one[0] < other[2] + slack
        and other[0] < one[2] + slack
        and one[1] < other[3] + slack
        and other[1] < one[3] + slack
    )


def around(one: Rect, other: Rect) -> Rect:
    return min(one[0], other[0]), min(one[1], other[1]), max(one[2], other[2]), max(one[3], other[3])


Part = Paragraph | Fixed


def read_group(group: Sequence[columns.Placed], layout: Layout, paths: Sequence[Path], page: Rect) -> list[Part]:
    """The lines of one column, with tables that only show inside it."""
    lines = [thing for thing in group if isinstance(thing, Line)]
    fixed = [thing for thing in group if isinstance(thing, Fixed)]
    candidates = [line for line in lines if not (line.mono and not layout.plain.mono)]
    hints = tables.find_hints(candidates, is_column=True)
    if hints:
        own = [word for line in lines for word in line.words]
        level = [path for path in paths if not path.curved]
        grids = tables.find_tables(own, level, page, hints)
        grids = [grid for grid in grids if not any(touches(grid.box, other.box, -1.0) for other in fixed)]
        if grids:
            fixed += [fixed_table(grid, layout) for grid in grids]
            rest = outside(own, grids)
            boxed = {id(word): line.boxed for line in lines for word in line.words}
            lines = find_lines(rest)
            if layout.plain.mono:
                clear_mono(lines)
            mark_drawn_bullets(lines, paths)
            for line in lines:
                line.boxed = boxed.get(id(line.words[0]), -1)
    parts: list[Part] = []
    waiting = sorted(fixed, key=lambda thing: thing.y0)
    segment: list[Line] = []
    for line in sorted(lines, key=lambda line: line.y0):
        while waiting and waiting[0].y0 <= line.y0:
            parts += find_paragraphs(segment) if segment else []
            segment = []
            parts.append(waiting.pop(0))
        segment.append(line)
    parts += find_paragraphs(segment) if segment else []
    return parts + list(waiting)


def join_over(parts: Iterable[Part]) -> list[Part]:
    """A paragraph goes on in the next column when no sentence ended and a small letter follows."""
    found: list[Part] = []
    for part in parts:
        last = open_paragraph(found, part) if isinstance(part, Paragraph) else None
        if last is not None and isinstance(part, Paragraph):
            last.rows += part.rows
        else:
            found.append(part)
    return found


def open_paragraph(found: Sequence[Part], part: Paragraph) -> Paragraph | None:
    """What the part continues: the last paragraph, or one before a note or a page number at the column's foot."""
    for back, last in enumerate(found[: -MAX_BETWEEN - 2 : -1]):
        if isinstance(last, Paragraph):
            if goes_on(last, part) and (not back or last.rows[-1][0].base > part.first.base):
                return last
            if len(last.text) > 40 and last.first.size >= 0.96 * part.first.size:
                return None
    return None


def goes_on(one: Paragraph, other: Paragraph) -> bool:
    if len(one.rows[-1]) > 1 or len(other.rows[0]) > 1:
        return False
    last, first = one.rows[-1][0], other.rows[0][0]
    if abs(last.size - first.size) > 0.08 * last.size or last.bold != first.bold or last.mono != first.mono:
        return False
    if last.base < first.base and first.base - last.base < 4 * first.size and not last.words[-1].hyphen:
        return False  # the next one below: it was parted with reason
    if last.words[-1].hyphen:
        return True
    text = last.text
    return not ENDS_SENTENCE.search(text) and first.text[:1].islower() and len(text) > 15


def write_parts(parts: Sequence[Part], layout: Layout) -> list[Block]:
    notes = find_notes(parts, layout)
    layout.notes = frozenset(filter(None, notes.values()))
    lettered = find_lettered(parts)
    blocks: list[Block] = []
    last_notes: list[Block] = []
    indents: list[float] = []
    for number, part in enumerate(parts):
        if isinstance(part, Fixed):
            blocks += [part.block, *part.extra]
            continue
        if name := notes.get(number, ""):
            last_notes.append(write_note(part, name, layout))
            continue
        block = write_paragraph(part, layout)
        if number in lettered and block.kind == "text":
            block.kind = "item"
        if len(boxes := part.boxes) > 1:
            block.places = tuple(layout.place(box) for box in boxes)
        if block.kind == "item":
            block.level = nest(indents, part.first.start, part.first.size)
        elif block.kind != "code" and part.first.start < (indents[-1] if indents else 0) + 0.5 * part.first.size:
            indents.clear()
        if number in notes:
            last_notes.append(block)
            continue
        last = blocks[-1] if blocks else None
        if last is not None and block.kind == last.kind == "code" and continues_code(parts[number - 1], part):
            gap = part.first.base - parts[number - 1].rows[-1][0].base  # type: ignore[union-attr]
            last.text += "\n" * min(4, max(1, round(gap / (1.25 * part.first.size)))) + block.text
            last.box = around(last.box, block.box) if last.box and block.box else last.box
        else:
            blocks.append(block)
    return blocks + last_notes


def find_lettered(parts: Sequence[Part]) -> set[int]:
    """Items a, b, c: a letter alone may be an initial, so that the next or the one before must be near."""
    letters = {
        number: label[1]
        for number, part in enumerate(parts)
        if isinstance(part, Paragraph) and (label := LETTERED.match(part.text))
    }
    found: set[int] = set()
    for number, letter in letters.items():
        for beside in range(number + 1, number + 1 + LETTERED_REACH):
            if letters.get(beside, "") == chr(ord(letter) + 1):
                found |= {number, beside}
    return found


def nest(indents: list[float], start: float, em: float) -> int:
    """How deep an item lies, by where its mark stands."""
    while indents and start < indents[-1] - 0.6 * em:
        indents.pop()
    if not indents or start > indents[-1] + 0.6 * em:
        indents.append(start)
    return len(indents) - 1


def find_notes(parts: Sequence[Part], layout: Layout) -> dict[int, str]:
    """Footnotes by the number of their part: small print below that begins with a number referred to above."""
    body = layout.profile.body
    likely: dict[int, str] = {}
    for number, part in enumerate(parts):
        is_low = isinstance(part, Paragraph) and part.first.y0 > layout.middle
        if isinstance(part, Paragraph) and is_low and part.first.size < 0.96 * body and not part.is_parted:
            word = part.first.words[0]
            found = NOTE_NUMBER.fullmatch(word.text)
            if found and (word.script == 1 or word.size < 0.85 * part.first.size or len(part.first.words) > 3):
                likely[number] = found[1]
    if not likely:
        return {}
    referred = set()
    for number, part in enumerate(parts):
        if isinstance(part, Paragraph) and number not in likely:
            for line in part.lines:
                for word in line.words:
                    if word.script == 1 and (found := NOTE_NUMBER.fullmatch(word.text)):
                        referred.add(found[1])
    return {number: name if name in referred else "" for number, name in likely.items()}


def write_note(part: Paragraph, name: str, layout: Layout) -> Block:
    lines = [line.words for line in part.lines]
    first = lines[0][1:]
    if first:
        first[0].glued = False
    text = render_lines([line for line in [first, *lines[1:]] if line], layout.plain)
    return Block("text", f"[^{name}]: {text}", box=layout.place(part.box))


def write_paragraph(part: Paragraph, layout: Layout) -> Block:
    where = layout.place(part.box)
    text = part.text
    plain = layout.plain
    if is_code(part, layout):
        return Block("code", code_text(part), box=where)
    if is_formula(part):
        return Block("text", formula_text(part), box=where)
    if part.is_parted:
        rows = [
            "  ".join(render(line.words, plain, layout.notes) for line in in_reading_order(row)) for row in part.rows
        ]
        return Block("text", "  \n".join(rows), box=where)
    body = layout.profile.body
    if (
        not BULLET.match(text)
        and is_styled_heading(part, body, plain)
        and is_heading(text, is_large=part.first.size > 1.2 * body)
    ):
        words = [line.words for line in part.lines]
        italic = all(line.italic for line in part.lines)
        title = render_lines(words, Plain(True, italic or plain.italic, plain.mono), layout.notes)
        return Block("heading", title.replace("\n", " "), box=where, size=part.first.size, bold=part.first.bold)
    if is_caption(text) and len(part.rows) <= 4:
        return Block("caption", render_lines([line.words for line in part.lines], plain, layout.notes), box=where)
    if (found := BULLET.match(text) or DASH.match(text)) is not None:
        return Block("item", render_item(part, len(found[0].rstrip()), layout), box=where)
    if (number := DIGITS.match(text)) is not None and NUMBER.match(text):
        return Block("item", render_item(part, len(number[0].rstrip()), layout), marker=f"{number[1]}.", box=where)
    if len(part.rows) > 1 and 2 * len(part.breaks) >= len(part.rows) - 1 and part.breaks:
        return Block("text", "  \n".join(kept_lines(part, layout)), box=where)
    return Block("text", render_lines([line.words for line in part.lines], plain, layout.notes), box=where)


def is_formula(part: Paragraph) -> bool:
    """Lines of symbols between paragraphs: a relation or a sum, letters of mathematical fonts, hardly a word."""
    lines = part.lines
    words = [word for line in lines for word in line.words]
    if len(part.rows) > MAX_FORMULA_ROWS or not any(OPERATOR.search(word.text) for word in words):
        return False
    letters = sum(len(word.text) for word in words)
    real = sum(len(word.text) for word in words if not word.math and REAL_WORD.fullmatch(word.text))
    symbols = sum(len(word.text) for word in words if word.math or word.italic or OPERATOR.search(word.text))
    return real < 0.25 * letters and symbols > MATH_SHARE * letters and any(word.math or word.italic for word in words)


def formula_text(part: Paragraph) -> str:
    """The formula as one, with its number as a tag, scripts as in TeX."""
    rows = [" ".join(scripted(line.words) for line in in_reading_order(row)) for row in part.rows]
    return f"$$ {' '.join(rows)} $$"


def scripted(words: Sequence[Word]) -> str:
    text = ""
    for word in words:
        mark = {1: "^", -1: "_"}.get(word.script, "")
        own = word.text.replace("$", "\\$")
        text += f"{mark}{{{own}}}" if mark and text else ("" if word.glued or not text else " ") + own
    return text


def in_reading_order(row: Sequence[Line]) -> list[Line]:
    return sorted(row, key=lambda line: -line.x1) if any(line.is_rtl for line in row) else list(row)


def kept_lines(part: Paragraph, layout: Layout) -> list[str]:
    """Lines that were ended on purpose stay lines: an address, a list of labels with their values."""
    lines: list[list[Line]] = [[]]
    for number, row in enumerate(part.rows):
        lines[-1] += row
        if number in part.breaks and number + 1 < len(part.rows):
            lines.append([])
    return [render_lines([line.words for line in group], layout.plain, layout.notes) for group in lines]


def render_item(part: Paragraph, letters: int, layout: Layout) -> str:
    """The item's text without its mark, which has so many letters."""
    words = list(part.first.words)
    while words and letters > 0:
        length = len(words[0].text)
        if length <= letters:
            words.pop(0)
        else:
            cut = words[0]
            rest = Word(cut.text[letters:], cut.x0, cut.y0, cut.x1, cut.y1, base=cut.base, size=cut.size)
            for name in ("bold", "italic", "mono", "math", "hyphen", "uri"):
                setattr(rest, name, getattr(cut, name))
            words[0] = rest
        letters -= length
    rest_lines = [line.words for line in part.lines[1:]]
    return render_lines([line for line in [words, *rest_lines] if line], layout.plain, layout.notes)


def is_code(part: Paragraph, layout: Layout) -> bool:
    if layout.plain.mono or not all(line.mono for line in part.lines):
        return False
    if part.first.boxed >= 0 or len(part.rows) > 1:
        return True
    return part.first.size <= 1.05 * layout.profile.body and len(part.text) > 3 and not is_heading_like(part)


def is_heading_like(part: Paragraph) -> bool:
    return part.first.bold and len(part.text) < 60


def continues_code(one: Part, other: Paragraph) -> bool:
    if not isinstance(one, Paragraph):
        return False
    last, first = one.rows[-1][-1], other.first
    if last.boxed >= 0 or first.boxed >= 0:
        return last.boxed == first.boxed
    return 0 < first.base - last.base < 3.2 * first.size


def code_text(part: Paragraph) -> str:
    """The lines with their indents and empty lines, by where they stand."""
    lines = sorted(part.lines, key=lambda line: (round(line.base), line.x0))
    left = min(line.x0 for line in lines)
    letter = letter_width(lines)
    step = min(
        (b.base - a.base for a, b in pairwise(lines) if b.base - a.base > 0.6 * a.size),
        default=1.3 * lines[0].size,
    )
    text = ""
    last: Line | None = None
    for line in lines:
        column = min(MAX_INDENT, max(0, round((line.x0 - left) / letter)))
        if last is None:
            text = " " * column
        elif line.base - last.base < 0.5 * line.size:
            text = text.ljust(text.rfind("\n") + 1 + column)
            if not text.endswith((" ", "\n")):
                text += " "
        else:
            text += "\n" * min(4, max(1, round((line.base - last.base) / step))) + " " * column
        text += spaced(line, letter)
        last = line
    return text


def letter_width(lines: Sequence[Line]) -> float:
    widths = [(word.x1 - word.x0) / len(word.text) for line in lines for word in line.words if len(word.text) > 2]
    return sorted(widths)[len(widths) // 2] if widths else CODE_LETTER * lines[0].size


def spaced(line: Line, letter: float) -> str:
    text = ""
    last: Word | None = None
    for word in line.words:
        if last is not None and not word.glued:
            text += " " * max(1, round((word.x0 - last.x1) / letter))
        text += word.text + ("-" if word.hyphen else "")
        last = word
    return text
