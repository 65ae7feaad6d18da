"""Tagged PDFs say themselves what is a heading, a list or a table: their structure is better than any guess.

Tags give blocks and their order; the words that they name give bold, italic, code and links, as on any other page.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from .blocks import Block, Cell
from .content import Element, PageContent, Rect, Word
from .inline import Plain, render_lines
from .layout import around, code_text, nest, usual_style
from .lines import Line, find_lines, in_logical_order, set_gaps
from .paragraphs import BULLET, DASH, Paragraph

HEADING = re.compile(r"H([1-6])?$")
GROUPS = {"Document", "Part", "Art", "Sect", "Div", "NonStruct", "Private", "BlockQuote", "TOC", "TOCI", "Aside"}
GROUPS |= {"Index", "StructTreeRoot", "Form", "THead", "TBody", "TFoot", "DocumentFragment"}
INLINE = {"Span", "Link", "Quote", "Reference", "Em", "Strong", "Sub", "Lbl", "Note", "FENote", "BibEntry", "Annot"}
INLINE |= {"Code", "Ruby", "RB", "RT", "RP", "Warichu", "WT", "WP", "Formula"}
WRAPPERS = {"NonStruct", "Div", "Private"}
NUMBERED = re.compile(r"(?:\d{1,3}|[a-zA-Z]|[ivxlc]{1,6})[.)]$")
MIN_TAGGED = 0.8
"""Of the letters: with less named by the tree, the page is read without it."""


class Tree:
    """One page's structure with the words that its elements name."""

    def __init__(self, page: PageContent, *, is_typed: bool) -> None:
        self._words: dict[int, list[Word]] = defaultdict(list)
        for word in page.words:
            if word.mark >= 0:
                self._words[word.mark].append(word)
        self._page = page
        self._plain = usual_style(page.words, is_typed=is_typed)
        self.named: set[int] = set()

    def blocks(self) -> list[Block]:
        return [block for root in self._page.roots for block in self._block(root, 0)]

    def _block(self, element: Element, nesting: int) -> Iterator[Block]:
        kind = element.kind
        if found := HEADING.match(kind):
            yield self._heading(element, int(found[1] or 1))
        elif kind == "Title":
            yield self._heading(element, 1)
        elif kind == "L":
            yield from self._list(element, nesting)
        elif kind == "Table":
            words = self._take(element)
            rows = [row for row in self._rows(element) if row]
            yield Block("table", rows=rows, box=self._box(words))
        elif kind == "Caption":
            yield self._text(self._take(element), element, "caption")
        elif kind == "Code" and self._is_block(element):
            yield self._code(element)
        elif self._holds_blocks(element):
            yield from self._mixed(element, nesting)
        else:
            words = self._take(element)
            if words and is_code(words, self._plain):
                yield self._code_of(words)
            else:
                yield self._text(words, element, "text")

    def _mixed(self, element: Element, nesting: int) -> Iterator[Block]:
        """Blocks among words of its own: each stretch of words is a paragraph."""
        waiting: list[Word] = []
        for child in element.children:
            if isinstance(child, int):
                waiting += self._name(child)
            elif child.kind in INLINE and not self._holds_blocks(child):
                waiting += self._take(child)
            else:
                if waiting:
                    yield self._loose(waiting)
                    waiting = []
                yield from self._block(child, nesting)
        if waiting:
            yield self._loose(waiting)

    def _loose(self, words: list[Word]) -> Block:
        return self._code_of(words) if is_code(words, self._plain) else self._text(words, None, "text")

    def _holds_blocks(self, element: Element) -> bool:
        """Groups, and whatever a program nests paragraphs in; what only holds words is a paragraph itself."""
        for child in element.elements:
            is_wrapper = child.kind in WRAPPERS and element.kind not in GROUPS
            if not (child.kind in INLINE or is_wrapper) or self._holds_blocks(child):
                return True
        return False

    def _is_block(self, element: Element) -> bool:
        words = [word for mark in marks_of(element) for word in self._words.get(mark, ())]
        return len(find_lines(words)) > 1 if words else False

    def _heading(self, element: Element, level: int) -> Block:
        words = self._take(element)
        lines = lines_of(words)
        italic = all(word.italic for word in words)
        plain = Plain(True, italic or self._plain.italic, self._plain.mono)
        return Block("heading", spoken(element) or render_lines(lines, plain), level, box=self._box(words))

    def _list(self, element: Element, nesting: int) -> Iterator[Block]:
        for entry in element.elements:
            if entry.kind == "L":
                yield from self._list(entry, nesting + 1)
            elif entry.kind == "Caption":
                yield from self._block(entry, nesting)
            else:
                yield from self._item(entry, nesting)

    def _item(self, entry: Element, nesting: int) -> Iterator[Block]:
        """`LI` with or without `Lbl` and `LBody`: the first words are the item's, what follows stands under it."""
        label: list[Word] = []
        text: list[Word] = []
        inner: list[Block] = []

        def walk(element: Element) -> None:
            for child in element.children:
                if isinstance(child, int):
                    (text if not inner else late).extend(self._name(child))
                elif child.kind == "Lbl":
                    label.extend(self._take(child))
                elif child.kind in ("LBody", "NonStruct", "Div", "P", "Private") and not self._holds_code(child):
                    if child.kind == "P" and text:
                        inner.extend(self._block(child, nesting + 1))
                    else:
                        walk(child)
                elif child.kind in INLINE and not self._holds_blocks(child):
                    (text if not inner else late).extend(self._take(child))
                else:
                    if late:
                        inner.append(self._loose(list(late)))
                        late.clear()
                    inner.extend(self._block(child, nesting + 1))

        late: list[Word] = []
        walk(entry)
        if late:
            inner.append(self._loose(late))
        mark = "".join(word.text for word in label).strip()
        if not mark and text and (BULLET.match(text[0].text) or DASH.fullmatch(text[0].text)):
            text = text[1:]
        if not mark and text and NUMBERED.fullmatch(text[0].text):
            mark, text = text[0].text, text[1:]
        marker = f"{mark[:-1]}." if mark[:-1].isdigit() and NUMBERED.match(mark) else "-"
        body = render_lines(lines_of(text), self._plain)
        if mark and marker == "-" and NUMBERED.match(mark):
            body = f"{mark} {body}"
        if text or not inner:
            yield Block("item", body, nesting, marker, box=self._box([*label, *text]))
        yield from inner

    def _holds_code(self, element: Element) -> bool:
        words = [word for mark in marks_of(element) for word in self._words.get(mark, ())]
        return is_code(words, self._plain) if words else False

    def _rows(self, element: Element) -> Iterator[list[Cell]]:
        for child in element.elements:
            if child.kind == "TR":
                cells = [part for part in child.elements if part.kind in ("TD", "TH")]
                yield [Cell(self._cell_text(part), part.rows, part.columns) for part in cells]
            elif child.kind != "Caption":
                yield from self._rows(child)

    def _cell_text(self, element: Element) -> str:
        bold = element.kind == "TH"
        plain = Plain(bold or self._plain.bold, self._plain.italic, self._plain.mono)
        return spoken(element) or render_lines(lines_of(self._take(element)), plain)

    def _code(self, element: Element) -> Block:
        return self._code_of(self._take(element))

    def _code_of(self, words: list[Word]) -> Block:
        lines = find_lines(words)
        return Block("code", code_text(Paragraph([[line] for line in lines])) if lines else "", box=self._box(words))

    def _text(self, words: list[Word], element: Element | None, kind: str) -> Block:
        text = (spoken(element) if element is not None else "") or render_lines(lines_of(words), self._plain)
        return Block("caption" if kind == "caption" else "text", text, box=self._box(words))

    def _name(self, mark: int) -> list[Word]:
        self.named.add(mark)
        return self._words.get(mark, [])

    def _take(self, element: Element) -> list[Word]:
        return [word for mark in marks_of(element) for word in self._name(mark)]

    def _box(self, words: Sequence[Word]) -> Rect | None:
        if not words:
            return None
        width, height = self._page.width or 1, self._page.height or 1
        return (
            min(word.x0 for word in words) / width,
            min(word.y0 for word in words) / height,
            max(word.x1 for word in words) / width,
            max(word.y1 for word in words) / height,
        )


def marks_of(element: Element) -> Iterator[int]:
    for child in element.children:
        if isinstance(child, int):
            yield child
        else:
            yield from marks_of(child)


def spoken(element: Element) -> str:
    """What the author says that the element reads, where that is said of all of it."""
    return element.actual_text.strip() if element.actual_text and not element.elements else ""


def is_code(words: Sequence[Word], plain: Plain) -> bool:
    """All in a font of fixed pitch, where the text is not."""
    return bool(words) and not plain.mono and all(word.mono for word in words)


def lines_of(words: Sequence[Word]) -> list[list[Word]]:
    """The words as lines, in the order of the tags, so that hyphens are undone only where a line ends."""
    lines: list[list[Word]] = []
    for word in words:
        last = lines[-1][-1] if lines else None
        if last is None or last.hyphen or not is_beside(last, word):
            lines.append([word])
        else:
            lines[-1].append(word)
    return [settled(line) for line in lines]


def is_beside(last: Word, word: Word) -> bool:
    em = max(last.size, word.size)
    return abs(last.base - word.base) < 0.6 * em and not (word.x1 < last.x0 - em and word.base > last.base + 0.3 * em)


def settled(words: list[Word]) -> list[Word]:
    """The line with its scripts marked, in the order in which it is read."""
    line = Line(words)
    if line.is_rtl:
        words = in_logical_order(words)
        set_gaps(words)
    return words


def join_marks(blocks: list[Block], page: PageContent) -> list[Block]:
    """A mark that is tagged as a paragraph of its own makes an item of the paragraph beside it."""
    found: list[Block] = []
    indents: list[float] = []
    em = 10.0 / (page.width or 1)
    for block in blocks:
        last = found[-1] if found else None
        is_item = last is not None and is_mark(last) and block.kind == "text" and is_level(last, block)
        if is_item and last is not None and last.box is not None and block.box is not None:
            number = NUMBERED.fullmatch(last.text)
            marker = f"{last.text[:-1]}." if number and last.text[:-1].isdigit() else "-"
            text = block.text if marker != "-" or not number else f"{last.text} {block.text}"
            level = nest(indents, last.box[0], em)
            found[-1] = Block("item", text, level, marker, box=around(last.box, block.box))
        else:
            if block.kind == "heading" or (block.kind == "text" and not is_mark(block) and len(block.text) > 80):
                indents.clear()
            found.append(block)
    return found


def is_mark(block: Block) -> bool:
    text = block.text.strip()
    return block.kind == "text" and len(text) <= 4 and bool(BULLET.fullmatch(text) or NUMBERED.fullmatch(text))


def is_level(one: Block, other: Block) -> bool:
    if one.box is None or other.box is None:
        return False
    return abs(one.box[1] - other.box[1]) < one.box[3] - one.box[1]


def read(page: PageContent, *, is_typed: bool = False) -> list[Block] | None:
    """The page by its tags, or None when they do not tell enough."""
    if not page.roots:
        return None
    tree = Tree(page, is_typed=is_typed)
    blocks = join_marks([block for block in tree.blocks() if block.text.strip() or block.rows], page)
    letters = sum(len(word.text) for word in page.words)
    tagged = sum(len(word.text) for word in page.words if word.mark in tree.named)
    if tagged < MIN_TAGGED * letters:
        return None
    return blocks
