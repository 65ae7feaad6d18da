"""Languages are told as py3langid tells them, from less of its model."""

from pathlib import Path

import pytest
from py3langid import langid

from docmill.adapters.engines.local.language import LIKELY, classifier, guess_language

TEXTS = [
    "",
    "x",
    "The harbour office counts the ships that come in, and those that leave.",
    "Die Behörde zählt die Schiffe, die in den Hafen einlaufen und ihn verlassen.",
    "港务局统计进出港口的船只数量，并在年度报告中公布。",
    "Le bureau du port compte les navires qui entrent et ceux qui sortent.",
    "ЛУЧКА УПРАВА БРОЈИ БРОДОВЕ \u0301 half a pair: \ud800",
    Path(__file__).read_text(encoding="utf-8"),
]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_languages_have_the_order_and_the_likelihood_that_the_package_gives_them(text: str) -> None:
    whole = langid._load_identifier(langs=LIKELY.split())
    assert whole.rank(text) == classifier()(text)


def test_a_text_that_says_little_has_no_language() -> None:
    assert guess_language("Nr. 12 / 34") is None
    assert ["en", "de", "zh"] == [guess_language(text) for text in TEXTS[2:5]]
