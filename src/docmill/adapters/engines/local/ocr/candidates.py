"""What a recogniser thought of at each place of a line, beside what it says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from . import words
from .chinese import is_ideograph
from .words import Place

THOUGHT_OF = 0.01
"""The least likelihood of a letter that may take another one's place."""
MOST = 5
"""Letters at one place."""


def with_words(recogniser: Any) -> None:
    """From now on *recogniser* (rapidocr's) chooses letters that make Chinese words, where it is not sure."""
    decode = recogniser.postprocess_op

    def decode_wordwise(seen: Any, *options: Any, **named: Any) -> Any:
        lines, boxes = decode(seen, *options, **named)
        chosen = [
            (reading(text, frames, decode.character), score) for (text, score), frames in zip(lines, seen, strict=True)
        ]
        return chosen, boxes

    recogniser.postprocess_op = decode_wordwise


def reading(text: str, frames: Any, letters: Sequence[str]) -> str:
    if not any(map(is_ideograph, text)):
        return text
    line = list(places(frames, letters))
    return words.likeliest(line) if any(len(place) > 1 for place in line) else text


def places(frames: Any, letters: Sequence[str]) -> Iterator[Place]:
    """Each of *frames*, from left to right, has the likelihood of every letter in its slice of the line; 0 is none."""
    import numpy

    best = frames.argmax(axis=1)
    borders = [0, *(numpy.nonzero(numpy.diff(best))[0] + 1).tolist(), len(best)]
    for start, end in pairwise(borders):
        if first := int(best[start]):
            chances = frames[start:end].max(axis=0)
            yield [(letters[first], math.log(chances[first])), *_others(first, chances, letters)]


def _others(first: int, chances: Any, letters: Sequence[str]) -> list[tuple[str, float]]:
    """Letters and marks of the list of words besides the *first*, the likeliest before the others."""
    found = [number for number in (chances >= THOUGHT_OF).nonzero()[0].tolist() if number not in (0, first)]
    known = words.frequencies() if found else {}
    if is_ideograph(letters[first]) and letters[first] not in known:
        return []  # traditional, Japanese, or in names alone: of these the list cannot tell
    fitting = [number for number in found if letters[number] in known]
    fitting.sort(key=lambda number: -chances[number])
    return [(letters[number], math.log(chances[number])) for number in fitting[:MOST]]
