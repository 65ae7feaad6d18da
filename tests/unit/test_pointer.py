"""JSON Pointers name one value inside another (RFC 6901)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docmill.core.errors import Invalid, NotFound
from docmill.core.pointer import MAX_LENGTH, parse, render, resolve

TOKENS = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8), max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)

RFC = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "c%d": 2,
    "e^f": 3,
    "g|h": 4,
    "i\\j": 5,
    'k"l': 6,
    " ": 7,
    "m~n": 8,
}


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("", RFC),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/e^f", 3),
        ("/g|h", 4),
        ("/i\\j", 5),
        ('/k"l', 6),
        ("/ ", 7),
        ("/m~0n", 8),
    ],
)
def test_the_examples_of_the_rfc(pointer: str, value: Any) -> None:
    assert value == resolve(RFC, parse(pointer))


@pytest.mark.parametrize(
    "text", ["foo", "#/foo", "/~", "/~2", "/a~", "/\0", "/\ud800", "/" * (MAX_LENGTH + 1), " /foo", "/a\n/~x"]
)
def test_what_is_no_pointer_is_refused_with_a_message_that_can_be_sent(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse(text)

    assert "pointer_invalid" == caught.value.code
    assert len(caught.value.message.encode()) < 1000


@pytest.mark.parametrize(
    "pointer",
    [
        "/bar",
        "/foo/2",
        "/foo/-",
        "/foo/01",
        "/foo/-1",
        "/foo/+1",
        "/foo/ 1",
        "/foo/１",
        "/foo/0/0",
        "//0",
        "/foo/" + "9" * 4000,
    ],
)
def test_what_is_not_there_is_not_found(pointer: str) -> None:
    with pytest.raises(NotFound, match="nothing at") as caught:
        resolve(RFC, parse(pointer))

    assert "pointer_not_found" == caught.value.code


@given(TOKENS)
def test_rendering_and_parsing_are_inverse(tokens: list[str]) -> None:
    assert tuple(tokens) == parse(render(tokens))


@given(st.text(alphabet="/~01ab", max_size=12))
def test_a_pointer_is_spelled_in_one_way_only(text: str) -> None:
    try:
        tokens = parse(text)
    except Invalid:
        return
    assert text == render(tokens)


@given(JSON)
def test_every_value_inside_is_reachable(value: Any) -> None:
    for tokens, inner in _walk(value, ()):
        if "\0" not in "".join(tokens):
            assert inner is resolve(value, parse(render(tokens)))


def _walk(value: Any, tokens: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(tokens, value)] + [found for step, child in children for found in _walk(child, (*tokens, str(step)))]
