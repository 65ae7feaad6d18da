"""One pass over a page with PDFium: words with their style, links, drawings, pictures, form fields, structure tree.

PDFium counts from the bottom left and ignores the page's own rotation. Everything here is in points from the top left
of the page as it is displayed. Words keep the direction in which they run as quarter turns; `turn_word` lays a word out
as if the page were turned that way.
"""

from __future__ import annotations

import ctypes
import math
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import pypdfium2.raw as raw

Rect = tuple[float, float, float, float]
"""x0, y0, x1, y1 in points from the page's top left."""
Matrix = tuple[float, float, float, float, float, float]

HYPHEN = "\ufffe\x02"
"""PDFium marks a hyphen at a line's end so, and writes no line break after it."""
TOKEN = re.compile(f"[^\\s\\x00{HYPHEN}]+[{HYPHEN}]?|[{HYPHEN}]")
SURROGATE = re.compile("[\ud800-\udfff]")
RTL = re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]")
PRESENTATION_FORM = re.compile(r"[\ufb1d-\ufdff\ufe70-\ufefc]")
LATIN_RUN = re.compile(r"[0-9A-Za-z\u00c0-\u024f](?:[^\u0590-\u08ff]*[0-9A-Za-z\u00c0-\u024f])?")
IDEOGRAPH = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]")
BOLD_NAME = re.compile(
    r"bold|black|heavy|semib|demi(?!ni)|extrab|[-,]bd|cmbx|cmssbx|\bsfbx|-b(?:i|o)?$|[-,]medi(?!um)", re.IGNORECASE
)
ITALIC_NAME = re.compile(r"ital|obliq|slant|[-,]it\b|-(?:b|bold)?it?$|cmti|cmsl|\bsfti|kursiv", re.IGNORECASE)
MONO_NAME = re.compile(
    r"mono|courier|consol|menlo|typewriter|inconsol|hack|cmtt|sftt|lmtt|txtt|luximono|lucida ?console|-tt\b|code\b",
    re.IGNORECASE,
)
MATH_NAME = re.compile(r"^(?:cmmi|cmsy|cmex|msam|msbm|lmmathi|lmmathsy|mtmi|mtsy|eufm|rmtmi)|math", re.IGNORECASE)
FIXED_PITCH, ITALIC_FLAG = 1, 64
FILL_AND_STROKE = 2
PAGE_SLACK = 2.0
"""Points. A word whose middle lies farther outside the page box is not shown."""
MAX_PATHS = 20_000
MAX_SEGMENTS = 40_000
MAX_FORM_DEPTH = 6
MAX_LINKS = 5_000
MAX_TREE_DEPTH = 60
MAX_ELEMENTS = 50_000
MAX_FIELDS = 2_000
LABEL_WIDTH, LABEL_HEIGHT = 200.0, 22.0
"""Points left of a field and above it in which its label stands."""
ASCENT, DESCENT = 0.74, 0.24
"""Em. The usual reach of letters over and under the baseline: the boxes that fonts claim differ widely."""
WHITE = 0xFFFFFF
NEARLY_WHITE = 250


class Word:
    """A word with its box, baseline and style. `x` and `y` are the middle of its box.

    `turn` counts quarter turns: 0 runs to the right, 1 upwards, 2 is upside down, 3 runs downwards.
    """

    __slots__ = (
        "base",
        "bold",
        "glued",
        "hyphen",
        "italic",
        "mark",
        "math",
        "mono",
        "script",
        "size",
        "spaced",
        "text",
        "turn",
        "uri",
        "x",
        "x0",
        "x1",
        "y",
        "y0",
        "y1",
    )

    def __init__(
        self,
        text: str,
        x0: float,
        y0: float,
        x1: float,
        y1: float,
        *,
        base: float | None = None,
        size: float = 0.0,
        bold: bool = False,
        italic: bool = False,
        mono: bool = False,
        math: bool = False,
        turn: int = 0,
        mark: int = -1,
        glued: bool = False,
        hyphen: bool = False,
    ) -> None:
        self.text = text
        self.x0, self.y0, self.x1, self.y1 = x0, y0, x1, y1
        self.x = (x0 + x1) / 2
        self.y = (y0 + y1) / 2
        self.base = y1 if base is None else base
        self.size = size or y1 - y0
        self.bold, self.italic, self.mono, self.math = bold, italic, mono, math
        self.turn = turn
        self.mark = mark
        """Its marked-content id, by which the structure tree names it, or -1."""
        self.glued = glued
        """No blank stands before it."""
        self.hyphen = hyphen
        """The line ends inside it; the hyphen is not part of its text."""
        self.spaced = False
        """One blank that the file itself wrote stands before it, however wide it is stretched."""
        self.uri = ""
        self.script = 0
        """1 for a superscript, -1 for a subscript."""

    def __repr__(self) -> str:
        return f"Word({self.text!r}, {self.x0:.0f}, {self.y0:.0f}, {self.x1:.0f}, {self.y1:.0f})"

    @property
    def box(self) -> Rect:
        return self.x0, self.y0, self.x1, self.y1


class Path(NamedTuple):
    """What is drawn: its box, whether it has curves, is filled, is stroked."""

    box: Rect
    curved: bool
    filled: bool
    stroked: bool
    colour: int = -1
    """Of the filling."""


@dataclass(slots=True)
class Element:
    """An element of the structure tree."""

    kind: str
    actual_text: str = ""
    children: list[Element | int] = field(default_factory=list)
    """Elements and marked-content ids, in their order."""
    rows: int = 1
    columns: int = 1

    @property
    def elements(self) -> list[Element]:
        return [child for child in self.children if isinstance(child, Element)]


@dataclass(slots=True)
class PageContent:
    width: float
    height: float
    words: list[Word] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    pictures: list[Rect] = field(default_factory=list)
    roots: list[Element] = field(default_factory=list)
    """Where its structure tree begins; empty without one."""
    characters: int = 0
    unmapped: int = 0
    """Characters for which the font has no way back to Unicode."""
    damage: str | None = None

    @property
    def letters(self) -> int:
        return sum(len(word.text) for word in self.words)

    @property
    def text(self) -> str:
        """The bare text in PDFium's order, a line for each baseline."""
        lines: list[str] = []
        last: Word | None = None
        for word in self.words:
            if last is None or (abs(word.base - last.base) > 0.5 * last.size and not last.hyphen and not word.glued):
                lines.append(word.text)
            else:
                lines[-1] += ("" if word.glued or last.hyphen else " ") + word.text
            last = word
        return "\n".join(lines)


def read_content(page: Any, *, tagged: bool, form: Any = None, bounded: bool = True) -> PageContent:
    """Everything that is looked at of a page. *page* is pypdfium2's. *bounded* leaves out what lies outside its box."""
    width, height = page.get_size()
    content = PageContent(width, height)
    frame = Frame(page, bounded=bounded)
    reader = _WordReader(page, frame)
    content.words = reader.words
    content.characters, content.unmapped = reader.characters, reader.unmapped
    content.paths, content.pictures = read_drawings(page, frame)
    add_links(page, frame, content.words)
    if form is not None:
        content.words += read_fields(page, frame, form, WordIndex(content.words))
    if tagged:
        content.roots = read_tree(page)
    return content


class Frame:
    """From PDFium's user space to the page as it is displayed."""

    def __init__(self, page: Any, *, bounded: bool = True) -> None:
        self._bounded = bounded
        box: Rect = page.get_bbox()
        self.left, self.bottom, self.right, self.top = box
        self.turn = page.get_rotation() // 90 % 4
        """Quarter turns clockwise."""

    def box(self, x0: float, y0: float, x1: float, y1: float) -> Rect:
        match self.turn:
            case 0:
                return x0 - self.left, self.top - y1, x1 - self.left, self.top - y0
            case 1:
                return y0 - self.bottom, x0 - self.left, y1 - self.bottom, x1 - self.left
            case 2:
                return self.right - x1, y0 - self.bottom, self.right - x0, y1 - self.bottom
            case _:
                return self.top - y1, self.right - x1, self.top - y0, self.right - x0

    def point(self, x: float, y: float) -> tuple[float, float]:
        x0, y0, _, _ = self.box(x, y, x, y)
        return x0, y0

    def shows(self, x: float, y: float) -> bool:
        if not self._bounded:
            return True
        is_beside = x < self.left - PAGE_SLACK or x > self.right + PAGE_SLACK
        return not (is_beside or y < self.bottom - PAGE_SLACK or y > self.top + PAGE_SLACK)


class _Style(NamedTuple):
    size: float
    bold: bool
    italic: bool
    mono: bool
    is_named_mono: bool
    math: bool
    turn: int
    mark: int


class _WordReader:
    """Cuts PDFium's text into words. Style is looked up once for each text object, not for each character."""

    def __init__(self, page: Any, frame: Frame) -> None:
        self._frame = frame
        self._styles: dict[int, _Style] = {}
        self._fonts: dict[int, tuple[bool, bool, bool, bool, bool]] = {}
        self._rect = raw.FS_RECTF()
        self._matrix = raw.FS_MATRIX()
        self._x, self._y = ctypes.c_double(), ctypes.c_double()
        self.words: list[Word] = []
        self.characters = self.unmapped = 0
        textpage = page.get_textpage()
        try:
            self._text = textpage.raw
            self._read()
        finally:
            textpage.close()

    def _read(self) -> None:
        count = raw.FPDFText_CountChars(self._text)
        if count <= 0:
            return
        self.characters = count
        buffer = (ctypes.c_ushort * (count + 1))()
        written = raw.FPDFText_GetText(self._text, 0, count, buffer)
        if written == count + 1:
            text = "".join(map(chr, buffer[: written - 1]))
        else:  # it leaves characters out whose box is empty: indices would not fit any more
            text = "".join(chr(min(raw.FPDFText_GetUnicode(self._text, at), 0xFFFF)) for at in range(count))
        self._count_unmapped(count)
        has_rtl = RTL.search(text) is not None
        is_glued, last = False, 0
        for token in TOKEN.finditer(text):
            start, end = token.span()
            glued = is_glued
            count = len(self.words)
            is_spaced = text[last:start] == " " and raw.FPDFText_IsGenerated(self._text, start - 1) == 0
            for number, (first, stop, style) in enumerate(self._parts(start, end)):
                self._add(text[first:stop], first, stop, style, glued or number > 0, has_rtl)
            if is_spaced and len(self.words) > count:
                # Typed tables are made of blanks, of which PDFium gives one.
                self.words[count].spaced = not self.words[count].mono
            is_glued = text[end - 1] in HYPHEN
            last = end

    def _count_unmapped(self, count: int) -> None:
        """Of a sample: a garbled font is garbled throughout."""
        step = max(1, count // 300)
        seen = range(0, count, step)
        wrong = sum(raw.FPDFText_HasUnicodeMapError(self._text, at) == 1 for at in seen)
        self.unmapped = wrong * step

    def _parts(self, start: int, end: int) -> Iterator[tuple[int, int, _Style]]:
        """A token in pieces of one style. Only where its ends differ is each character looked at."""
        first = self._style(start)
        if end - start > 1 and self._pointer(start) != self._pointer(end - 1):
            begun = start
            for at in range(start + 1, end):
                style = self._style(at) or first
                if style != first:
                    if first is not None:
                        yield begun, at, first
                    begun, first = at, style
            start = begun
        if first is not None:
            yield start, end, first

    def _pointer(self, at: int) -> int | None:
        return ctypes.cast(raw.FPDFText_GetTextObject(self._text, at), ctypes.c_void_p).value

    def _style(self, at: int) -> _Style | None:
        thing = raw.FPDFText_GetTextObject(self._text, at)
        pointer = ctypes.cast(thing, ctypes.c_void_p).value
        if pointer is None:
            return None
        known = self._styles.get(pointer)
        if known is None:
            known = self._styles[pointer] = self._read_style(thing, at)
        return known

    def _read_style(self, thing: Any, at: int) -> _Style:
        matrix = self._matrix
        raw.FPDFText_GetMatrix(self._text, at, matrix)
        a, b, c, d = matrix.a, matrix.b, matrix.c, matrix.d
        size = raw.FPDFText_GetFontSize(self._text, at) * math.hypot(c, d)
        angle = math.degrees(math.atan2(b, a)) if a or b else 0.0
        turn = (round(angle / 90) - self._frame.turn) % 4
        bold, italic, mono, is_named, is_math = self._font(raw.FPDFTextObj_GetFont(thing))
        bold = bold or raw.FPDFTextObj_GetTextRenderMode(thing) == FILL_AND_STROKE
        # Slanted by the matrix: (c, d) leans away from the upright of (a, b).
        lean = (a * c + b * d) / ((a * d - b * c) or 1.0)
        italic = italic or 0.1 < lean < 0.5
        return _Style(size, bold, italic, mono, is_named, is_math, turn, raw.FPDFPageObj_GetMarkedContentID(thing))

    def _font(self, font: Any) -> tuple[bool, bool, bool, bool, bool]:
        """By name: the weight that PDFium gives is guessed from the stem, and wrong for a third of the fonts."""
        pointer = ctypes.cast(font, ctypes.c_void_p).value
        if pointer is None:
            return False, False, False, False, False
        known = self._fonts.get(pointer)
        if known is None:
            name = _string(lambda buffer, size: raw.FPDFFont_GetBaseFontName(font, buffer, size), "utf-8")
            name = name.partition("+")[2] or name
            flags = raw.FPDFFont_GetFlags(font)
            is_math = MATH_NAME.search(name) is not None
            known = (
                BOLD_NAME.search(name) is not None,
                not is_math and (ITALIC_NAME.search(name) is not None or (flags > 0 and bool(flags & ITALIC_FLAG))),
                MONO_NAME.search(name) is not None or (flags > 0 and bool(flags & FIXED_PITCH)),
                MONO_NAME.search(name) is not None,
                is_math,
            )
            self._fonts[pointer] = known
        return known

    def _add(self, text: str, start: int, end: int, style: _Style, glued: bool, has_rtl: bool) -> None:
        hyphen = text[-1] in HYPHEN
        text = text.rstrip(HYPHEN)
        if not text:
            if hyphen and self.words:
                self.words[-1].hyphen = True
            return
        rect = self._rect
        raw.FPDFText_GetLooseCharBox(self._text, start, rect)
        left, bottom, right, top = rect.left, rect.bottom, rect.right, rect.top
        if end - start > 1:
            raw.FPDFText_GetLooseCharBox(self._text, end - 1, rect)
            left, bottom = min(left, rect.left), min(bottom, rect.bottom)
            right, top = max(right, rect.right), max(top, rect.top)
        if has_rtl and len(text) > 1 and style.turn == 0:
            text, left, right = self._in_reading_order(text, start)
        if not self._frame.shows((left + right) / 2, (bottom + top) / 2):
            return
        raw.FPDFText_GetCharOrigin(self._text, start, self._x, self._y)
        x, y = self._frame.point(self._x.value, self._y.value)
        box = self._frame.box(left, bottom, right, top)
        if SURROGATE.search(text):
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        turned = turn_box(box, style.turn)
        size = sensible_size(style.size, turned, len(text))
        base = turn_point(x, y, style.turn)[1]
        # The box a font claims may reach over the next line, or have no height at all.
        upright = (turned[0], base - ASCENT * size, turned[2], base + DESCENT * size)
        x0, y0, x1, y1 = turn_box(upright, -style.turn % 4)
        word = Word(
            text,
            x0,
            y0,
            x1,
            y1,
            base=y if style.turn == 0 else y1,
            size=size,
            bold=style.bold,
            italic=style.italic,
            # Chinese letters are all of one width, which says nothing.
            mono=style.mono and (style.is_named_mono or IDEOGRAPH.search(text) is None),
            math=style.math,
            turn=style.turn,
            mark=style.mark,
            glued=glued,
            hyphen=hyphen,
        )
        self.words.append(word)

    def _in_reading_order(self, text: str, start: int) -> tuple[str, float, float]:
        """Letters by their place: PDFium turns some stretches of a right-to-left line and leaves others as they were.

        Letters of one ligature share a box. PDFium turned them along with the line if it turned the line.
        """
        is_rtl = RTL.search(text) is not None
        letters: list[tuple[str, tuple[float, float]]] = []
        for at, letter in enumerate(text, start):
            raw.FPDFText_GetLooseCharBox(self._text, at, self._rect)
            letters.append((letter, (self._rect.left, self._rect.right)))
        middles = [sum(place) for letter, place in letters if not unicodedata.combining(letter)]
        if is_rtl and 2 * sum(one < other for one, other in pairwise(middles)) >= len(middles):
            letters.reverse()  # it was left as it stands on the page; marks now follow their letters
        groups: list[list[str]] = []
        places: list[tuple[float, float]] = []
        for letter, place in letters:
            if groups and unicodedata.combining(letter):
                groups[-1].append(letter)
            elif groups and places[-1] == place and RTL.match(letter):
                groups[-1].insert(0, letter)
            else:
                groups.append([letter])
                places.append(place)
        middles = [sum(place) for place in places]
        order = sorted(range(len(groups)), key=lambda at: -middles[at] if is_rtl else middles[at])
        whole = "".join("".join(groups[at]) for at in order)
        if is_rtl:
            whole = LATIN_RUN.sub(lambda found: found[0][::-1], whole)
        whole = unicodedata.normalize("NFKC", whole) if PRESENTATION_FORM.search(whole) else whole
        return whole, min(left for left, _ in places), max(right for _, right in places)


def sensible_size(size: float, box: Rect, letters: int) -> float:
    """A drawn font (Type 3) has a matrix of its own, so that its size may say nothing; then the box tells.

    The height that a font claims may be wrong, too, so the size is believed if the letters are as wide as letters are.
    """
    width, height = (box[2] - box[0]) / max(1, letters), box[3] - box[1]
    if height > 0 and not 0.4 * height <= size <= 2.5 * height and not 0.2 * size <= width <= 1.3 * size:
        return height
    return size or height or 1.0


def turn_box(box: Rect, turn: int) -> Rect:
    """The box as somebody sees it who reads text that runs in this direction. `turn_box(_, -turn % 4)` undoes it."""
    x0, y0, x1, y1 = box
    match turn:
        case 0:
            return box
        case 1:
            return -y1, x0, -y0, x1
        case 2:
            return -x1, -y1, -x0, -y0
        case _:
            return y0, -x1, y1, -x0


def turn_point(x: float, y: float, turn: int) -> tuple[float, float]:
    x0, y0, _, _ = turn_box((x, y, x, y), turn)
    return x0, y0


def turn_word(word: Word, turn: int) -> None:
    """Lay the word out in the frame of text that runs in this direction."""
    if turn == 0:
        return
    word.x0, word.y0, word.x1, word.y1 = turn_box(word.box, turn)
    word.x, word.y = (word.x0 + word.x1) / 2, (word.y0 + word.y1) / 2
    word.turn = (word.turn - turn) % 4
    word.base = word.y1 - DESCENT * word.size if word.turn == 0 else word.y1


def _string(read: Callable[[Any, int], int], encoding: str) -> str:
    """A text that PDFium writes into a buffer of the size that it asks for, with a nought at its end."""
    size = read(None, 0)
    if size <= 0 or size > 1 << 20:
        return ""
    buffer = ctypes.create_string_buffer(size)
    read(buffer, size)
    return buffer.raw[:size].decode(encoding, "replace").rstrip("\x00")


def _wide(read: Callable[[Any, int], int]) -> str:
    """The same for texts in UTF-16, which have a type of their own."""
    return _string(lambda buffer, size: read(ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)), size), "utf-16-le")


def _times(one: Matrix, other: Matrix) -> Matrix:
    a, b, c, d, e, f = one
    g, h, i, j, k, m = other
    return a * g + b * i, a * h + b * j, c * g + d * i, c * h + d * j, e * g + f * i + k, e * h + f * j + m


def _apply(matrix: Matrix, x: float, y: float) -> tuple[float, float]:
    a, b, c, d, e, f = matrix
    return a * x + c * y + e, b * x + d * y + f


UNMOVED: Matrix = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)


class _DrawingReader:
    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._edges = [ctypes.c_float() for _ in range(4)]
        self._matrix = raw.FS_MATRIX()
        self._mode, self._stroke = ctypes.c_int(), ctypes.c_int()
        self._colour = [ctypes.c_uint() for _ in range(4)]
        self._x, self._y = ctypes.c_float(), ctypes.c_float()
        self._segments = 0
        self._filling = -1
        self.paths: list[Path] = []
        self.pictures: list[Rect] = []

    def read(self, count: int, get: Callable[[int], Any], matrix: Matrix, depth: int) -> None:
        for number in range(count):
            thing = get(number)
            kind = raw.FPDFPageObj_GetType(thing)
            if kind == raw.FPDF_PAGEOBJ_PATH:
                if len(self.paths) < MAX_PATHS:
                    self._path(thing, matrix)
            elif kind == raw.FPDF_PAGEOBJ_IMAGE:
                if (box := self._bounds(thing, matrix)) is not None:
                    self.pictures.append(box)
            elif kind == raw.FPDF_PAGEOBJ_FORM and depth < MAX_FORM_DEPTH:
                inner = _times(self._own_matrix(thing), matrix)
                self.read(
                    raw.FPDFFormObj_CountObjects(thing),
                    lambda at, form=thing: raw.FPDFFormObj_GetObject(form, at),  # type: ignore[misc]
                    inner,
                    depth + 1,
                )

    def _own_matrix(self, thing: Any) -> Matrix:
        m = self._matrix
        return (m.a, m.b, m.c, m.d, m.e, m.f) if raw.FPDFPageObj_GetMatrix(thing, m) else UNMOVED

    def _bounds(self, thing: Any, matrix: Matrix) -> Rect | None:
        left, bottom, right, top = self._edges
        if not raw.FPDFPageObj_GetBounds(thing, left, bottom, right, top):
            return None
        x0, y0, x1, y1 = left.value, bottom.value, right.value, top.value
        if matrix is not UNMOVED:
            corners = [_apply(matrix, x, y) for x in (x0, x1) for y in (y0, y1)]
            x0, x1 = min(x for x, _ in corners), max(x for x, _ in corners)
            y0, y1 = min(y for _, y in corners), max(y for _, y in corners)
        frame = self._frame
        # What the page box cuts off is not shown.
        x0, x1 = max(x0, frame.left - PAGE_SLACK), min(x1, frame.right + PAGE_SLACK)
        y0, y1 = max(y0, frame.bottom - PAGE_SLACK), min(y1, frame.top + PAGE_SLACK)
        return frame.box(x0, y0, x1, y1) if x0 <= x1 and y0 <= y1 else None

    def _path(self, thing: Any, matrix: Matrix) -> None:
        raw.FPDFPath_GetDrawMode(thing, self._mode, self._stroke)
        filled, stroked = bool(self._mode.value), bool(self._stroke.value)
        if not (filled or stroked):
            return
        self._filling = self._fill_colour(thing) if filled else -1
        if not stroked and self._filling == WHITE:
            return  # paper colour is not seen
        if (box := self._bounds(thing, matrix)) is None:
            return
        count = raw.FPDFPath_CountSegments(thing)
        thin = min(box[2] - box[0], box[3] - box[1]) <= 3.0
        if count <= 2 or thin or self._segments > MAX_SEGMENTS:
            self.paths.append(Path(box, False, filled, stroked, self._filling))
            return
        self._segments += count
        self._split(thing, count, _times(self._own_matrix(thing), matrix), filled, stroked)

    def _fill_colour(self, thing: Any) -> int:
        red, green, blue, alpha = self._colour
        if not raw.FPDFPageObj_GetFillColor(thing, red, green, blue, alpha):
            return -1
        if alpha.value == 0 or min(red.value, green.value, blue.value) >= NEARLY_WHITE:
            return WHITE
        return red.value << 16 | green.value << 8 | blue.value

    def _split(self, thing: Any, count: int, matrix: Matrix, filled: bool, stroked: bool) -> None:
        """A drawing program may write all lines of a table as one path: each subpath counts for itself."""
        points: list[tuple[float, float]] = []
        curved = False

        def flush() -> None:
            if len(points) > 1:
                xs, ys = [x for x, _ in points], [y for _, y in points]
                box = self._frame.box(min(xs), min(ys), max(xs), max(ys))
                is_open = not curved and not filled and 2 < len(points) and points[0] != points[-1]
                if is_open and len(points) != 4:
                    # A polyline: its strokes, not its box.
                    for (ax, ay), (bx, by) in pairwise(points):
                        one = self._frame.box(min(ax, bx), min(ay, by), max(ax, bx), max(ay, by))
                        slanted = abs(ax - bx) > 3 and abs(ay - by) > 3
                        self.paths.append(Path(one, slanted, filled, stroked, self._filling))
                else:
                    diagonal = len(points) == 2 and min(box[2] - box[0], box[3] - box[1]) > 3
                    many = len(set(points)) > 5
                    self.paths.append(Path(box, curved or diagonal or many, filled, stroked, self._filling))
            points.clear()

        for number in range(count):
            segment = raw.FPDFPath_GetPathSegment(thing, number)
            kind = raw.FPDFPathSegment_GetType(segment)
            if kind == raw.FPDF_SEGMENT_MOVETO:
                flush()
                curved = False
            elif kind == raw.FPDF_SEGMENT_BEZIERTO:
                curved = True
            raw.FPDFPathSegment_GetPoint(segment, self._x, self._y)
            points.append(_apply(matrix, self._x.value, self._y.value))
        flush()


def read_drawings(page: Any, frame: Frame) -> tuple[list[Path], list[Rect]]:
    reader = _DrawingReader(frame)
    handle = page.raw
    reader.read(
        raw.FPDFPage_CountObjects(handle), lambda number: raw.FPDFPage_GetObject(handle, number), UNMOVED, depth=0
    )
    return reader.paths, reader.pictures


class WordIndex:
    """Words from top to bottom, to find those inside a box without looking at all."""

    def __init__(self, words: list[Word]) -> None:
        self._words = sorted(words, key=lambda word: word.y)
        self._heights = [word.y for word in self._words]

    def inside(self, box: Rect, slack: float = 0.0) -> list[Word]:
        x0, y0, x1, y1 = box
        first = bisect_left(self._heights, y0 - slack)
        last = bisect_right(self._heights, y1 + slack)
        return [word for word in self._words[first:last] if x0 - slack <= word.x <= x1 + slack]

    @cached_property
    def is_empty(self) -> bool:
        return not self._words


def add_links(page: Any, frame: Frame, words: list[Word]) -> None:
    """Give the words under a link its address. A link inside the document has none."""
    found = list(read_links(page, frame))
    if not found or not words:
        return
    index = WordIndex(words)
    for uri, box in found:
        for word in index.inside(box, slack=1.0):
            word.uri = uri


def read_links(page: Any, frame: Frame) -> Iterator[tuple[str, Rect]]:
    position, link, rect = ctypes.c_int(0), raw.FPDF_LINK(), raw.FS_RECTF()
    document = page.pdf.raw
    for _ in range(MAX_LINKS):
        if not raw.FPDFLink_Enumerate(page.raw, position, link):
            return
        action = raw.FPDFLink_GetAction(link)
        if not action or not raw.FPDFLink_GetAnnotRect(link, rect):
            continue
        uri = _string(lambda b, n, a=action: raw.FPDFAction_GetURIPath(document, a, b, n), "utf-8").strip()  # type: ignore[misc]
        if uri and not re.search(r"[\s<>\x00-\x1f]", uri):
            x0, x1 = sorted((rect.left, rect.right))
            y0, y1 = sorted((rect.bottom, rect.top))
            yield uri, frame.box(x0, y0, x1, y1)


TEXT_FIELDS = (raw.FPDF_FORMFIELD_TEXTFIELD, raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX)
TICKED_FIELDS = (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON)


def read_fields(page: Any, frame: Frame, form: Any, printed: WordIndex) -> list[Word]:
    """What was filled in, as words where it stands: it is no part of the text layer. A field that has no printed label
    is named as the form names it."""
    words: list[Word] = []
    rect = raw.FS_RECTF()
    for number in range(min(MAX_FIELDS, raw.FPDFPage_GetAnnotCount(page.raw))):
        annotation = raw.FPDFPage_GetAnnot(page.raw, number)
        if not annotation:
            continue
        try:
            if raw.FPDFAnnot_GetSubtype(annotation) != raw.FPDF_ANNOT_WIDGET:
                continue
            if not raw.FPDFAnnot_GetRect(annotation, rect):
                continue
            kind = raw.FPDFAnnot_GetFormFieldType(form, annotation)
            x0, x1 = sorted((rect.left, rect.right))
            y0, y1 = sorted((rect.bottom, rect.top))
            if not frame.shows((x0 + x1) / 2, (y0 + y1) / 2):
                continue
            box = frame.box(x0, y0, x1, y1)
            if kind in TICKED_FIELDS:
                text = "☑" if raw.FPDFAnnot_IsChecked(form, annotation) else "☐"
            elif kind in TEXT_FIELDS:
                text = _wide(lambda b, n, a=annotation: raw.FPDFAnnot_GetFormFieldValue(form, a, b, n))  # type: ignore[misc]
                if text.strip() and not has_label(box, printed):
                    name = _wide(lambda b, n, a=annotation: raw.FPDFAnnot_GetFormFieldAlternateName(form, a, b, n))  # type: ignore[misc]
                    name = name or _wide(lambda b, n, a=annotation: raw.FPDFAnnot_GetFormFieldName(form, a, b, n))  # type: ignore[misc]
                    text = f"{name}: {text}" if name else text
            else:
                continue
            words += field_words(text, box)
        finally:
            raw.FPDFPage_CloseAnnot(annotation)
    return words


def has_label(box: Rect, printed: WordIndex) -> bool:
    x0, y0, x1, y1 = box
    left, above = (x0 - LABEL_WIDTH, y0, x0, y1), (x0 - 5, y0 - LABEL_HEIGHT, x1, y0)
    return bool(printed.inside(left, slack=2.0) or printed.inside(above))


def field_words(text: str, box: Rect) -> list[Word]:
    """The value's words spread over the field, line by line."""
    lines = [line.split() for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    lines = [line for line in lines if line]
    if not lines:
        return []
    x0, y0, x1, y1 = box
    size = min(11.0, max(4.0, (y1 - y0) / len(lines) * 0.8))
    step = (y1 - y0) / len(lines)
    words = []
    for number, line in enumerate(lines):
        base = y0 + number * step + step / 2 + 0.3 * size
        letters = sum(map(len, line)) + len(line) - 1
        width = min(0.5 * size, (x1 - x0) / max(1, letters))
        at = x0
        for text in line:
            end = at + width * len(text)
            words.append(Word(text, at, base - ASCENT * size, end, base + DESCENT * size, base=base, size=size))
            at = end + width
    return words


def read_tree(page: Any) -> list[Element]:
    tree = raw.FPDF_StructTree_GetForPage(page.raw)
    if not tree:
        return []
    try:
        left = [MAX_ELEMENTS]
        count = raw.FPDF_StructTree_CountChildren(tree)
        roots = (raw.FPDF_StructTree_GetChildAtIndex(tree, number) for number in range(max(0, count)))
        return [_element(root, 0, left) for root in roots if root]
    finally:
        raw.FPDF_StructTree_Close(tree)


def _element(handle: Any, depth: int, left: list[int]) -> Element:
    left[0] -= 1
    kind = _wide_element(raw.FPDF_StructElement_GetType, handle)
    element = Element(kind)
    if kind in ("TD", "TH"):
        element.rows, element.columns = _spans(handle)
    if depth > MAX_TREE_DEPTH:
        return element
    element.actual_text = _wide_element(raw.FPDF_StructElement_GetActualText, handle)
    for number in range(max(0, raw.FPDF_StructElement_CountChildren(handle))):
        if left[0] <= 0:
            break
        child = raw.FPDF_StructElement_GetChildAtIndex(handle, number)
        if child:
            element.children.append(_element(child, depth + 1, left))
            continue
        mark = raw.FPDF_StructElement_GetChildMarkedContentID(handle, number)
        if mark >= 0:
            element.children.append(mark)
    return element


def _wide_element(read: Any, handle: Any) -> str:
    return _string(lambda buffer, size: read(handle, buffer, size), "utf-16-le")


def _spans(handle: Any) -> tuple[int, int]:
    spans = {"RowSpan": 1, "ColSpan": 1}
    value = ctypes.c_float()
    for number in range(max(0, raw.FPDF_StructElement_GetAttributeCount(handle))):
        attribute = raw.FPDF_StructElement_GetAttributeAtIndex(handle, number)
        for name in spans:
            found = raw.FPDF_StructElement_Attr_GetValue(attribute, name.encode())
            if found and raw.FPDF_StructElement_Attr_GetNumberValue(found, value) and 1 <= value.value <= 1000:
                spans[name] = int(value.value)
    return spans["RowSpan"], spans["ColSpan"]
