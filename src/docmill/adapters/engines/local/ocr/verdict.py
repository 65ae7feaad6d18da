"""Whether the text layer of a page is worth reading, or its picture must be."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

Reason = Literal["no text", "garbled text", "scanned"]

FEW_LETTERS = 20
STAMP_LETTERS = 120
"""A scan may carry a line of text: the stamp of an archive, a file number."""
SCAN_COVER = 0.5
SOME_COVER = 0.02
MANY_PATHS = 50
CODES = re.compile(r"\(cid:\d+\)|/[gG]\d{1,4}\b|\\u[0-9a-f]{4}")
WORD = re.compile(r"[^\W\d_]{4,}")
COMMON = frozenset("etaoinrs")
FEW_COMMON = 0.42
"""Of the letters. English, German, French and Polish have 55 to 67 of 100 of these; chance would give 31."""


def reason_for_ocr(text: str, *, picture_cover: float, paths: int) -> Reason | None:
    """*text* is the page's text layer, *picture_cover* the share of the page under pictures, *paths* its drawings."""
    letters = sum(not letter.isspace() for letter in text)
    if letters < FEW_LETTERS:
        return "no text" if picture_cover > SOME_COVER or paths > MANY_PATHS else None
    if is_garbled(text):
        return "garbled text"
    return "scanned" if picture_cover >= SCAN_COVER and letters < STAMP_LETTERS else None


def is_garbled(text: str) -> bool:
    """Fonts without a way back to Unicode leave private characters, bare codes, or letters of a secret alphabet."""
    letters = [letter for letter in text if not letter.isspace()]
    if len(letters) < FEW_LETTERS:
        return False
    odd = sum(is_odd(letter) for letter in letters) + sum(len(code) for code in CODES.findall(text))
    return odd * 4 > len(letters) or not is_language(text)


def is_odd(letter: str) -> bool:
    """No text has this: private, unassigned, replacement and control characters."""
    return letter == "\ufffd" or ((letter > "~" or letter < " ") and unicodedata.category(letter) in ("Co", "Cn", "Cc"))


def is_language(text: str) -> bool:
    """Latin letters come as often as in any language; those of shifted codes do not. Other scripts are not judged."""
    found = [word for word in WORD.findall(text) if word.isascii() and not word.isupper()]
    if len(found) < FEW_LETTERS:
        return True
    letters = "".join(found).lower()
    return sum(letter in COMMON for letter in letters) > FEW_COMMON * len(letters)
