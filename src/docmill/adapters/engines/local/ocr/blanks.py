"""Blanks between words, which recognisers lose more easily than letters, and hardly ever make up."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import Any

OPENING, CLOSING = "([{", ")]},;"
"""No blank stands after or before these; a recogniser that saw one was wrong."""
FRACTION = re.compile(r"(\d{1,4})/(\d{1,4})")
WIDE_GAP = 0.33
"""Of the height of a digit. The slash of a fraction stands closer than that, one between blanks farther off."""


def of_both(one: str, other: str) -> str:
    """The letters of *other* with the blanks of both, where both read the same on either side of a blank."""
    if " " not in one or not other:
        return other
    (letters, gaps), (wanted, kept) = parted(one), parted(other)
    alike = SequenceMatcher(None, letters, wanted, autojunk=False).get_matching_blocks()
    for here, there, size in alike:
        seen = (there + step for step in range(1, size) if here + step in gaps)
        kept |= {place for place in seen if wanted[place - 1] not in OPENING and wanted[place] not in CLOSING}
    return "".join(f" {letter}" if number in kept else letter for number, letter in enumerate(wanted))


def parted(text: str) -> tuple[str, set[int]]:
    """The letters alone, and before which of them a blank stands."""
    letters: list[str] = []
    gaps = set()
    for word in text.split():
        gaps.add(len(letters))
        letters += word
    return "".join(letters), gaps - {0}


def around_slash(text: str, pixels: Any) -> str:
    """`1/3` is `1 / 3`, as the pages of a document are numbered, when the picture shows the gaps."""
    found = FRACTION.fullmatch(text)
    return f"{found[1]} / {found[2]}" if found and wide_gaps(pixels) == 2 else text


def wide_gaps(pixels: Any) -> int:
    """How often the white between one letter and the next is wider than it would be within a word."""
    import cv2
    import numpy

    grey = cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY)
    _, ink = cv2.threshold(grey, 0, 255, cv2.THRESH_BINARY_INV + cv2.THRESH_OTSU)
    rows, columns = (numpy.nonzero(ink.any(axis=axis))[0] for axis in (1, 0))
    if not len(columns):
        return 0
    return int((numpy.diff(columns) > WIDE_GAP * (rows[-1] - rows[0] + 1)).sum())
