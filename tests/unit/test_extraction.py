"""How a document is cut for a model, and how its answer is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docmill.core.extraction import LONG, Unreadable, pieces, read_answer, strategy_for


@given(st.text(alphabet="ab #.\n。", max_size=400), st.integers(1, 60))
def test_no_character_is_lost_and_no_piece_too_long(text: str, size: int) -> None:
    cut = pieces(text, size)

    assert text == "".join(cut)
    assert all(0 < len(piece) <= size for piece in cut)


def test_pieces_begin_at_headings_else_at_paragraphs() -> None:
    chapters = "".join(f"# Chapter {number}\n\n{'word ' * 30}\n\n" for number in range(20))
    paragraphs = "".join(f"{'word ' * 30}\n\n" for _ in range(20))

    assert all(piece.startswith("# Chapter") for piece in pieces(chapters, 600))
    assert all(piece.startswith("word") and piece.endswith("\n\n") for piece in pieces(paragraphs, 600))


def test_only_a_long_document_is_cut() -> None:
    assert "direct-json" == strategy_for("chunked-summarize", "x" * LONG)
    assert "chunked-summarize" == strategy_for("chunked-summarize", "x" * (LONG + 1))
    assert "chunked-summarize" == strategy_for(None, "x" * (LONG + 1))
    assert "direct-json" == strategy_for("direct-json", "x" * (LONG + 1))


@pytest.mark.parametrize(
    "answer",
    [
        '{"a": 1}',
        '  {"a": 1}\n',
        '```json\n{"a": 1}\n```',
        'Here it is:\n```\n{"a": 1}\n```\nAnything else?',
        'The value is {"a": 1}.',
        '<think>{"a": 2}? no</think>{"a": 1}',
    ],
)
def test_the_json_of_an_answer(answer: str) -> None:
    assert {"a": 1} == read_answer(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "   ",
        "no idea",
        '{"a": 1',
        '{"a": NaN}',
        "[" * 100_000,
        '{"a": "\\u0000"}',
        '{"a": "\\ud800"}',
        "}{",
        "<think>",
    ],
)
def test_what_is_no_json_says_why(answer: str) -> None:
    with pytest.raises(Unreadable, match="it "):
        read_answer(answer)
