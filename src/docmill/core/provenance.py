"""Where an extracted value stands in the document. Judged by code, for a model may say anything.

verbatim     the value stands there, character for character
normalised   it stands there in another spelling: white space, case, marks of Markdown, numbers, dates
not_found    it does not: it was derived, or invented
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from html import unescape
from itertools import pairwise
from math import isfinite
from typing import Any, Final, Literal
from unicodedata import normalize

from docmill.core.parsed import Page
from docmill.core.pointer import render

Verdict = Literal["verbatim", "normalised", "not_found"]

MAX_VALUES: Final = 10_000
MAX_DIGITS: Final = 40
IDEOGRAPHS: Final = 0x2E80
"""From here on scripts write words without spaces between them."""

_NUMBER = re.compile(r"\d{1,3}(?:[ \u00a0\u2009\u202f'’.,]\d{3})+(?:[.,]\d+)?(?!\d)|\d+(?:[.,]\d+)*")
_AMOUNT = re.compile(rf"(?:[A-Z]{{3}}|[€$£¥])?\s*([-−]?)({_NUMBER.pattern})\s*(?:[A-Z]{{3}}|[€$£¥%])?")
_MARKS = re.compile(r"\\(?=[^a-zA-Z0-9\s])|[*_`~\u00ad\u200b-\u200d\u2060\ufeff]")
_BORDERS = re.compile(r"[#|]|</?(?:br|td|th|tr|b|i|sup|sub)\b[^>]{0,200}>")
_BROKEN = re.compile(r"(?<=\w)-\n\s*(?=\w)")
_DASHES = dict.fromkeys(map(ord, "‐‑‒–—―−"), "-")
_QUOTES = dict.fromkeys(map(ord, "“”„‟«»"), '"') | dict.fromkeys(map(ord, "‘’‚‛"), "'")
_SPELLING = _DASHES | _QUOTES

_YEAR_FIRST = re.compile(r"(?<!\d)(\d{4})\s?[-/.年]\s?(\d{1,2})\s?[-/.月]\s?(\d{1,2})(?!\d)")
_DAY_FIRST = re.compile(r"(?<!\d)(\d{1,2})[./-]\s?(\d{1,2})[./-]\s?(\d{4}|\d{2})(?!\d)")
_DAY_MONTH = re.compile(r"(?<!\d)(\d{1,2})(?:st|nd|rd|th)?\.?\s+(?:of\s+)?([^\W\d]{3,9})\.?,?\s+(\d{4})(?!\d)")
_MONTH_DAY = re.compile(r"([^\W\d]{3,9})\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})(?!\d)")
_MONTHS: Final = (
    ("january", "januar", "jänner"),
    ("february", "februar"),
    ("march", "märz", "maerz"),
    ("april",),
    ("may", "mai"),
    ("june", "juni"),
    ("july", "juli"),
    ("august",),
    ("september",),
    ("october", "oktober"),
    ("november",),
    ("december", "dezember"),
)


@dataclass(frozen=True, slots=True)
class Source:
    """Where one value comes from."""

    pointer: str
    """JSON Pointer to the value within the output."""
    found: Verdict
    page: int | None = None
    """The first page that has it, counted from 1."""
    text: str | None = None
    """The document's own spelling, where it is another."""


@dataclass(frozen=True, slots=True)
class _Sheet:
    """A page, prepared once for all questions."""

    number: int
    raw: str
    plain: str
    numbers: dict[Decimal, str] = field(default_factory=dict)
    tokens: frozenset[str] = frozenset()
    dates: dict[date, str] = field(default_factory=dict)


def trace(value: Any, pages: Sequence[Page]) -> tuple[Source, ...]:
    """The source of every string, number and boolean in *value*. What is null or empty was not extracted."""
    sheets = [_sheet(page) for page in pages]
    found: list[Source] = []
    for pointer, leaf in _leaves(value):
        if len(found) == MAX_VALUES:
            break
        found.append(_source(render(pointer), leaf, sheets))
    return tuple(found)


def tally(sources: Sequence[Source]) -> dict[str, int]:
    """How many values were found how."""
    return {
        verdict: sum(one.found == verdict for one in sources) for verdict in ("verbatim", "normalised", "not_found")
    }


def _leaves(value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    stack: list[tuple[tuple[str, ...], Any]] = [((), value)]
    while stack:
        way, one = stack.pop()
        if isinstance(one, dict):
            stack.extend(((*way, str(key)), child) for key, child in reversed(one.items()))
        elif isinstance(one, list):
            stack.extend(((*way, str(index)), one[index]) for index in reversed(range(len(one))))
        elif one is not None and one != "":
            yield way, one


def _source(pointer: str, leaf: Any, sheets: Sequence[_Sheet]) -> Source:
    if isinstance(leaf, bool):
        return Source(pointer, "not_found")
    if isinstance(leaf, int | float):
        return _number(pointer, leaf, sheets)
    return _text(pointer, str(leaf), sheets)


def _number(pointer: str, leaf: int | float, sheets: Sequence[_Sheet]) -> Source:
    if not isfinite(leaf) or abs(leaf) >= 10**MAX_DIGITS:
        return Source(pointer, "not_found")
    value = Decimal(repr(leaf)) if isinstance(leaf, float) else Decimal(leaf)
    forms = {repr(leaf), f"{value.normalize():f}"}
    for sheet in sheets:
        if forms & sheet.tokens:
            return Source(pointer, "verbatim", sheet.number)
    return _by_value(pointer, {value}, sheets) or Source(pointer, "not_found")


def _by_value(pointer: str, values: set[Decimal], sheets: Sequence[_Sheet]) -> Source | None:
    for sheet in sheets:
        for value in values:
            if value in sheet.numbers:
                return Source(pointer, "normalised", sheet.number, sheet.numbers[value])
    return None


def _text(pointer: str, leaf: str, sheets: Sequence[_Sheet]) -> Source:
    for sheet in sheets:
        if _stands(sheet.raw, leaf):
            return Source(pointer, "verbatim", sheet.number)
    if (plain := _plain(leaf)) and (page := _page_of(plain, sheets)):
        return Source(pointer, "normalised", page)
    for day in _dates(leaf.strip(), whole=True):
        for sheet in sheets:
            if day in sheet.dates:
                return Source(pointer, "normalised", sheet.number, sheet.dates[day])
    if amount := _AMOUNT.fullmatch(leaf.strip()):
        sign = -1 if amount[1] else 1
        if found := _by_value(pointer, {sign * one for one in _readings(amount[2])}, sheets):
            return found
    return Source(pointer, "not_found")


def _page_of(plain: str, sheets: Sequence[_Sheet]) -> int | None:
    for sheet in sheets:
        if _stands(sheet.plain, plain):
            return sheet.number
    # A sentence may begin on one page and end on the next.
    length = len(plain)
    for one, two in pairwise(sheets):
        if _stands(f"{one.plain[-length:]} {two.plain[:length]}", plain):
            return one.number
    return None


def _stands(text: str, wanted: str) -> bool:
    """Whether *wanted* stands in *text* as words of its own: the 12 of 2012 is another number."""
    at = text.find(wanted)
    while at >= 0:
        end = at + len(wanted)
        before = text[at - 1] if at else " "
        after = text[end] if end < len(text) else " "
        if not (_joins(before, wanted[0]) or _joins(wanted[-1], after)):
            return True
        at = text.find(wanted, at + 1)
    return False


def _joins(left: str, right: str) -> bool:
    return all(one.isalnum() and ord(one) < IDEOGRAPHS for one in (left, right))


def _sheet(page: Page) -> _Sheet:
    raw = page.markdown
    numbers, tokens = _numbers(raw)
    return _Sheet(page.index + 1, raw, _plain(raw), numbers, frozenset(tokens), _dates(raw))


def _plain(text: str) -> str:
    joined = _BROKEN.sub("", normalize("NFKC", unescape(text)))
    bare = _MARKS.sub("", _BORDERS.sub(" ", joined.translate(_SPELLING)))
    return " ".join(bare.casefold().split())


def _numbers(text: str) -> tuple[dict[Decimal, str], set[str]]:
    """Every number of a text by value, in all the ways that it can be read, and all spellings."""
    values: dict[Decimal, str] = {}
    tokens: set[str] = set()
    for match in _NUMBER.finditer(text):
        token = match[0]
        if len(token) > MAX_DIGITS:
            continue
        before, after = text[max(match.start() - 2, 0) : match.start()], text[match.end() : match.end() + 2]
        if before[-1:].isalpha() and ord(before[-1]) < IDEOGRAPHS:
            continue
        minus = before[-1:] in ("-", "−") and not before[:1].isalnum()
        tokens.update({token, f"-{token}"} if minus else {token})
        for part in {token, *token.split(" ")}:
            tokens.add(part)
            for value in _readings(part):
                values.setdefault(value, part)
                if minus:
                    values.setdefault(-value, f"-{part}")
                if after.lstrip().startswith("%"):
                    values.setdefault(value / 100, f"{part} %")
    return values, tokens


def _readings(token: str) -> set[Decimal]:
    """1.234 is a thousand in one country and a little more than one in another."""
    digits = re.sub(r"[ \u00a0\u2009\u202f'’]", "", token)
    marks = [char for char in digits if char in ".,"]
    if not marks:
        return {Decimal(digits)}
    if len(set(marks)) == 2:
        whole, _, rest = digits.rpartition(marks[-1])
        return {Decimal(f"{re.sub('[.,]', '', whole)}.{rest}")}
    whole = digits.replace(marks[0], "")
    if len(marks) > 1:
        return {Decimal(whole)}
    left, _, right = digits.partition(marks[0])
    read = {Decimal(f"{left}.{right}")}
    if len(right) == 3 and 1 <= len(left) <= 3 and left != "0":
        read.add(Decimal(whole))
    return read


def _dates(text: str, *, whole: bool = False) -> dict[date, str]:
    """Every date of a text. *whole*: only if the text is a date and nothing else, but for a time of day."""
    found: dict[date, str] = {}
    for pattern in (_YEAR_FIRST, _DAY_FIRST, _DAY_MONTH, _MONTH_DAY):
        for match in pattern.finditer(text):
            rest = text[: match.start()] + text[match.end() :]
            if whole and not re.fullmatch(r"日?(?:[T ][\d:.]{4,15}(?:Z|[+-]\d\d:?\d\d)?)?", rest):
                continue
            for day in _days(pattern, match.groups()):
                found.setdefault(day, match[0])
    return found


def _days(pattern: re.Pattern[str], parts: tuple[str, ...]) -> Iterator[date]:
    one, two, three = parts
    ways: list[tuple[int, int, int]] = []
    if pattern is _YEAR_FIRST:
        ways = [(int(one), int(two), int(three))]
    elif pattern is _DAY_FIRST:
        year = int(three) + (0 if len(three) == 4 else 2000)
        ways = [(year, int(two), int(one)), (year, int(one), int(two))]
    elif pattern is _DAY_MONTH:
        ways = [(int(three), _month(two), int(one))]
    else:
        ways = [(int(three), _month(one), int(two))]
    for way in ways:
        try:
            yield date(*way)
        except ValueError:
            continue


def _month(word: str) -> int:
    """1 to 12, or 0 for a word that names no month."""
    lowered = word.casefold()
    for number, names in enumerate(_MONTHS, 1):
        if any(name.startswith(lowered) for name in names):
            return number
    return 0
