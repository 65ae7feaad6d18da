"""Chinese words, for letters that a recogniser is not sure of.

A worn print turns 目 into 日 and 户 into 广. The recogniser thinks of the right one, too, and cannot tell which of them
makes a word. What it is sure of stays: a word that is a thousand times as frequent outweighs a letter that was seen a
dozen times as clearly, and no more than that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

from .chinese import is_ideograph

WEIGHT = 0.4
"""How much the frequency of words counts beside what was seen."""
LONGEST = 4
RARE, RARE_LETTER = 10, 100
"""What is less frequent in the list decides nothing. Of letters that are most of the traditional ones."""
MARKS = {
    "，": 3_600_000,
    "。": 2_100_000,
    "、": 700_000,
    "：": 350_000,
    "—": 300_000,
    "；": 120_000,
    "？": 60_000,
    "！": 60_000,
}
"""How often they would stand among the words of the list."""
OTHER = math.log(0.001)
"""Of what is neither a word nor a mark: Latin letters, digits, narrow marks."""

Place = Sequence[tuple[str, float]]
"""What may stand at one place of a line, each with the logarithm of its likelihood."""


@cache
def frequencies() -> dict[str, float]:
    """The logarithm of each word's share."""
    # Only the list is needed, and reading it here costs less than the package's own index of it.
    path = Path(str(distribution("jieba-pyfast").locate_file("jieba_pyfast/dict.txt")))
    counts = dict(MARKS)
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            word, count, *_ = line.split(" ")
            if len(word) <= LONGEST and int(count) >= (RARE if len(word) > 1 else RARE_LETTER):
                counts[word] = int(count)
    total = math.log(sum(counts.values()))
    return {word: math.log(count) - total for word, count in counts.items()}


def likeliest(places: Sequence[Place]) -> str:
    """The likeliest reading: of each place what was seen there, weighed against the words that it makes."""
    known = frequencies()
    unknown = min(known.values())
    best: list[tuple[float, str] | None] = [(0.0, ""), *[None] * len(places)]

    def reach(place: int, score: float, text: str) -> None:
        before = best[place]
        if before is None or score > before[0]:
            best[place] = score, text

    for start in range(len(places)):
        found = best[start]
        if found is None:
            continue
        score, text = found
        begun = [("", 0.0, start)]
        while begun:
            word, seen, place = begun.pop()
            if len(word) == 1 and (start == 0 or place == len(places)):
                # At the ends of a line a letter may be half of a word, whose other half is not here.
                reach(place, score + seen + WEIGHT * OTHER, text + word)
            elif word and (word in known or len(word) == 1):
                reach(place, score + seen + WEIGHT * known.get(word, unknown), text + word)
            for letter, chance in places[place] if place < len(places) else ():
                if not is_ideograph(letter):
                    if not word:
                        reach(place + 1, score + chance + WEIGHT * known.get(letter, OTHER), text + letter)
                elif len(word) < LONGEST:
                    begun.append((word + letter, seen + chance, place + 1))
    reached = best[-1]
    return reached[1] if reached else ""
