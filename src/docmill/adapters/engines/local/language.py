"""What language a text is in: py3langid's model, of which a process keeps what it needs."""

from __future__ import annotations

import lzma
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from typing import Any

TELLING = 1500
"""Letters. More of them tell no more of the language."""
FEWEST = 24
"""Letters; Chinese ones say three times as much."""
GLANCES = (80, 200)
"""Letters of the beginning and of the middle."""
SURE = 40.0
"""How far the first language must be ahead of the second in a glance, or more of the letters are read."""
LIKELY = """
ar bg bn ca cs da de el en es et fa fi fr he hi hr hu id is it ja ko lt lv ms nl nn no pl pt ro ru sk sl sr sv
sw ta th tr uk ur vi zh
"""


def guess_language(text: str) -> str | None:
    """Short texts say little, and rare languages are mostly wrong guesses."""
    if not says_enough(text[:TELLING]):
        return None
    middle = len(text) // 2
    for glance in GLANCES:
        first, second = classifier()(text[:glance] + text[max(glance, middle) : middle + glance])[:2]
        if first[1] - second[1] >= SURE:
            return first[0]
    return classifier()(text[:TELLING])[0][0]


def says_enough(text: str) -> bool:
    if sum(map(str.isalpha, text[: 3 * FEWEST])) >= FEWEST or sum(map(str.isalpha, text)) >= FEWEST:
        return True
    return sum(3 if letter > "\u2e80" else 1 for letter in text if letter.isalpha()) >= FEWEST


@cache
def classifier() -> Callable[[str], list[tuple[str, float]]]:
    """Gives the languages in the order of their likelihood."""
    import numpy as np
    from py3langid import langid

    # Its own loader copies the largest part of the model and keeps all languages: half as much again, and at first
    # more than twice the room.
    with tempfile.TemporaryFile() as unpacked:
        with lzma.open(langid.MODEL_DIR / langid.MODEL_FILE) as packed:
            shutil.copyfileobj(packed, unpacked, 1 << 20)
        unpacked.seek(0)
        with np.load(unpacked, allow_pickle=False) as model:
            identifier = _identifier(langid.LanguageIdentifier, model)
    found: Callable[[str], list[tuple[str, float]]] = identifier.rank
    return found


def _identifier(make: Any, model: Any) -> Any:
    likely, names = set(LIKELY.split()), model["classes"].tolist()
    kept = [index for index, name in enumerate(names) if name in likely]
    chances = model["ptc"][:, kept]
    return make(
        chances,
        model["pc"][kept],
        [names[index] for index in kept],
        memoryview(model["nextmove"]),
        memoryview(model["out_feat"]),
        tk_row=memoryview(model["nextmove_row"]),
    )
