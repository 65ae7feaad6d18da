"""Schemas as they are typed, and Markdown that nobody trusts."""

import json
import re

import pytest

from docmill.console.markdown import rendered
from docmill.console.schema_text import form_of, place_of, read
from docmill.core.catalogue import best_language
from docmill.core.parsed import Block

SCHEMA = """{
  "type": "object",
  "properties": {
    "a": {"type": "strin"},
    "b": [1, {"minLength": -1}]
  }
}"""


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ([], (1, 1)),
        (["type"], (2, 11)),
        (["properties", "a", "type"], (4, 19)),
        (["properties", "b", 1, "minLength"], (5, 28)),
        (["properties", "missing", "x"], (3, 17)),
        (["type", "deeper"], (2, 11)),
    ],
)
def test_a_value_has_a_line_and_a_column(path, place):
    assert place == place_of(SCHEMA, path)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('{"type": "object"}', []),
        ('{\n "type": "object",\n}', [2, 3]),
        ("[]", [1]),
        ('{\n "type":\n "objct"}', [3]),
        ('{"properties": {\n"a": {"minLength": -1},\n"b": {"type": 3}}}', [2, 3]),
        ('{"$schema": "https://example.org/own"}', [1]),
        ('{"$ref": "https://example.org/x"}', [1]),
        ("[" * 100_000, [1]),
        ('{"pattern": "("}', [1]),
    ],
)
def test_flaws_name_their_line(text, lines):
    schema, flaws = read(text)

    assert (schema is None) == bool(lines)
    if lines:
        assert {flaw.line for flaw in flaws} <= set(lines)


def test_a_form_shows_what_a_schema_asks_for():
    schema = {
        "$defs": {"money": {"type": "number", "title": "Money"}},
        "properties": {
            "total": {"$ref": "#/$defs/money"},
            "kind": {"enum": ["a", "b"]},
            "paid": {"type": ["null", "boolean"]},
            "lines": {"type": "array", "items": {"properties": {"text": {}}}},
            "loop": {"$ref": "#/properties/loop"},
        },
        "required": ["total"],
    }

    fields = {field.name: field for field in form_of(schema)}

    assert ("Money", "number", True) == (fields["total"].label, fields["total"].kind, fields["total"].required)
    assert ["a", "b"] == fields["kind"].choices
    assert "checkbox" == fields["paid"].kind
    assert ["text"] == [one.name for one in fields["lines"].fields]
    assert [] == form_of(json.loads('{"properties": 3}'))


@pytest.mark.parametrize(
    "hostile",
    [
        "<script>alert(1)</script>",
        '<img src=x onerror="alert(1)">',
        '<a href="javascript:alert(1)">x</a>',
        "[x](javascript:alert(1))",
        "![x](https://evil.example/pixel.png)",
        '<form action="/tasks/1/cancel"><button>x</button></form>',
        '<div class="notice bad" id="main" style="position:fixed">x</div>',
        '<iframe src="/"></iframe><svg onload=alert(1)>',
        '<table><tr><td onclick="x()">1</td></tr></table>',
        "<style>body{display:none}</style>",
        '<meta http-equiv="refresh" content="0;url=//evil.example">',
    ],
)
def test_what_a_document_says_is_shown_and_never_done(hostile):
    html = rendered(hostile, {}, ())

    for forbidden in ("<script", "onerror", 'javascript:alert(1)"', "evil.example", "<form", "class=", "id=", "style"):
        assert forbidden not in html
    for forbidden in ("<iframe", "<svg", "onclick", "<meta", "<button"):
        assert forbidden not in html


def test_images_and_tables_know_their_assets():
    text = "# Title\n\n![Figure](assets/p1.png)\n\n| a |\n|---|\n| 1 |\n\n<table><tr><td colspan=2>x</td></tr></table>"

    html = rendered(text, {"p1.png": "id-1"}, ["id-2", "id-3"])

    assert '<img src="/api/v1/assets/id-1/blob" alt="Figure">' in html
    assert '<div data-asset="id-2"><table>' in html
    assert '<div data-asset="id-3"><table><tbody><tr><td colspan="2">x</td>' in html
    assert "<h2>Title</h2>" in html


def numbers(html):
    """Which elements show which blocks."""
    return re.findall(r'<(\w+)[^>]*data-block="([\d ]+)"', html)


def test_elements_know_the_blocks_that_they_show():
    text = (
        "# Title\n\nfirst\nsecond\n\n- a\n  - b\n- c\n\n```\ncode\n```\n\n| x |\n|---|\n| 1 |\n\n"
        "<table><tr><td>y</td></tr></table>\n\n> said"
    )
    places = [(0, 1), (2, 3), (3, 4), (5, 6), (6, 7), (7, 8), (9, 12), (13, 16), (17, 18), (19, 20)]
    blocks = {number: Block("text", *place) for number, place in enumerate(places, 1)}

    html = rendered(text, {}, ["id-1"], blocks)

    shown = [("h2", "1"), ("p", "2 3"), ("li", "4"), ("li", "5"), ("li", "6"), ("code", "7"), ("div", "8")]
    assert [*shown, ("div", "9"), ("p", "10")] == numbers(html)
    assert '<div data-block="8" id="block-8" data-asset="id-1"><table>' in html
    assert 9 == len(set(re.findall(r' id="(block-\d+)"', html)))


def test_a_block_of_many_elements_is_shown_by_all_of_them():
    html = rendered("one\n\n1. two\n2. three\n\n# four", {}, (), {7: Block("text", 0, 4)})

    assert [("p", "7"), ("li", "7"), ("li", "7")] == numbers(html)
    assert 1 == html.count("id=")


@pytest.mark.parametrize("block", [Block("text", 5, 9), Block("text", 1, 1), Block("text", 1, 2), Block("text", 9, 2)])
def test_a_block_that_is_not_there_is_shown_by_nothing(block):
    assert [] == numbers(rendered("one\n\ntwo", {}, (), {1: block}))


def test_a_document_cannot_pass_its_text_off_as_a_block():
    hostile = '<p id="block-1" data-block="1">I stand elsewhere</p>\n\nthe text'

    assert [("p", "1")] == numbers(rendered(hostile, {}, (), {1: Block("text", 2, 3)}))


@pytest.mark.parametrize(
    ("accept", "language"),
    [("", "en"), ("de-CH, en;q=0.9", "de"), ("en;q=0.3, zh-CN;q=0.8", "zh"), ("fr", "en"), ("de;q=x, zh", "zh")],
)
def test_the_best_language_is_the_browsers_first_that_we_speak(accept, language):
    assert language == best_language(accept)
