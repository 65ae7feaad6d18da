"""Letters that a recogniser is not sure of, weighed against the words that they make."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from docmill.adapters.engines.local.ocr import candidates, words

LETTERS = ["blank", *"用户广可问以目日录一旦控中显示小框写入，。：:.的abcj國国の", " "]


def place(*seen: tuple[str, float]) -> list[tuple[str, float]]:
    return [(letter, math.log(chance)) for letter, chance in seen]


def line(*seen: str | tuple[tuple[str, float], ...]) -> list[list[tuple[str, float]]]:
    return [place((one, 1.0)) if isinstance(one, str) else place(*one) for one in seen]


@pytest.mark.parametrize(
    ("read", "meant"),
    [
        (line("用", (("广", 0.6), ("户", 0.2)), (("问", 0.5), ("可", 0.1)), "以"), "用户可以"),
        (line("的", (("日", 0.7), ("目", 0.2)), "录", "，"), "的目录，"),
        (line("用", (("广", 0.98), ("户", 0.001)), "的"), "用广的"),
        (line("写", "入", (("：", 0.36), ("。", 0.24)), "以"), "写入。以"),
        (line("写", "入", (("：", 0.9), ("。", 0.05)), "以"), "写入：以"),
        (line("a", (("b", 0.9), ("用", 0.02)), "c", " ", "可", "以"), "abc 可以"),
    ],
)
def test_letters_that_make_words_are_chosen_and_what_is_sure_stays(read: Any, meant: str) -> None:
    assert meant == words.likeliest(read)


@pytest.mark.parametrize("before", ["", "的"])
def test_half_a_word_at_the_end_of_a_line_is_left_as_it_was_seen(before: str) -> None:
    """显示 was parted: alone, 小 is the more frequent word of the two."""
    unsure = (("示", 0.6), ("小", 0.4))
    assert "示框" == words.likeliest(line(unsure, "框"))
    assert f"框{before}示" == words.likeliest(line("框", *before, unsure))


def frames(*slices: dict[str, float]) -> Any:
    made = numpy.zeros((len(slices), len(LETTERS)), numpy.float32)
    for number, seen in enumerate(slices):
        for letter, chance in seen.items():
            made[number, LETTERS.index(letter or "blank")] = chance
    return made


def test_a_line_is_read_from_the_slices_of_a_recogniser() -> None:
    seen = frames(
        {"用": 0.9}, {"用": 0.8, "广": 0.2}, {"": 1.0}, {"广": 0.5, "户": 0.3, "j": 0.2}, {"": 1.0},
        {"": 0.7, "可": 0.3}, {"以": 0.99}, {"": 0.8, "以": 0.2}, {"": 1.0}, {"以": 1.0},
    )  # fmt: skip
    assert [
        [("用", 0.9), ("广", 0.2)],
        [("广", 0.5), ("户", 0.3)],
        [("以", 0.99)],
        [("以", 1.0)],
    ] == [[(letter, round(math.exp(chance), 3)) for letter, chance in one] for one in candidates.places(seen, LETTERS)]
    assert "用户以以" == candidates.reading("用广以以", seen, LETTERS)
    assert "jj" == candidates.reading("jj", seen, LETTERS), "nothing Chinese was read: it stays"


@pytest.mark.parametrize("letter", ["國", "の"])
def test_what_the_list_does_not_know_is_not_exchanged(letter: str) -> None:
    """A page in traditional letters, or in Japanese, must not become simplified Chinese."""
    seen = frames({"中": 1.0}, {letter: 0.6, "国": 0.3, "的": 0.1}, {"可": 1.0}, {"以": 1.0})
    assert f"中{letter}可以" == candidates.reading(f"中{letter}可以", seen, LETTERS)
    other = frames({"中": 1.0}, {"国": 0.6, letter: 0.4}, {"可": 1.0}, {"以": 1.0})
    assert "中国可以" == candidates.reading("中国可以", other, LETTERS)


def test_a_recogniser_that_knows_words_keeps_its_scores() -> None:
    seen = frames({"用": 1.0}, {"广": 0.6, "户": 0.4}, {"": 1.0}, {"可": 1.0}, {"以": 1.0})[None]

    class Decoder:
        character = LETTERS

        def __call__(self, preds: Any, boxes: bool = False, **named: Any) -> Any:
            assert preds is seen
            return [("用广可以", 0.9)], [boxes, named]

    recogniser = SimpleNamespace(postprocess_op=Decoder())
    candidates.with_words(recogniser)
    assert ([("用户可以", 0.9)], [True, {"ratio": 1}]) == recogniser.postprocess_op(seen, True, ratio=1)


def test_a_picture_that_could_be_anything_takes_no_time() -> None:
    seen = numpy.full((400, len(LETTERS)), 1 / len(LETTERS), numpy.float32)
    seen[::2, 1] = seen[1::2, 2] = 0.1
    began = time.process_time()
    candidates.reading("用", seen, LETTERS)
    assert time.process_time() - began < 5
