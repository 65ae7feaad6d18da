"""Which pages PDFium is asked about, besides liteparse: those on which words may have been left out."""

from __future__ import annotations

import string
from dataclasses import dataclass
from pathlib import Path

import pytest

from docmill.adapters.engines.local.job import Job
from docmill.adapters.engines.local.limits import Limits
from docmill.adapters.engines.local.pdf import document, streams, survey
from docmill.adapters.engines.local.pdf.ruled import Words, inside, words_of
from support.documents import assemble_pdf

SENTENCE = "the cranes of the harbour are maintained by the city while the ships wait"
DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
GLYPHS = {ord(" "): "space", **dict(zip(range(48, 58), DIGITS, strict=True))}
GLYPHS |= {ord(letter): letter for letter in string.ascii_letters}
HELVETICA = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"


def lines(font: str, name: str, top: int, count: int = 12) -> bytes:
    shown = " T* ".join(f"({name} {number} {SENTENCE}) Tj" for number in range(count))
    return f"BT /{font} 10 Tf 1 0 0 1 60 {top} Tm 14 TL {shown} ET\n".encode()


def one_page(path: Path, content: bytes, *more: bytes) -> Path:
    """Fonts F, and D if more objects are given: the font, and what it needs."""
    fonts = b"/F 5 0 R /D 6 0 R" if more else b"/F 5 0 R"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources << /Font << %s >> >> >>"
        % fonts,
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        HELVETICA,
        *more,
    ]
    path.write_bytes(assemble_pdf(objects))
    return path


def flat_font() -> tuple[bytes, bytes]:
    """A font of drawings that say nothing of their height."""
    drawings = " ".join(f"/{name} 7 0 R" for name in GLYPHS.values())
    names = " ".join(f"{code} /{name}" for code, name in sorted(GLYPHS.items()))
    font = (
        "<< /Type /Font /Subtype /Type3 /FontBBox [0 0 0 0] /FontMatrix [0.001 0 0 0.001 0 0] /Resources << >> "
        f"/CharProcs << {drawings} >> /Encoding << /Type /Encoding /Differences [{names}] >> "
        f"/FirstChar 32 /LastChar 122 /Widths [{'500 ' * 91}] >>"
    )
    return font.encode(), b"<< /Length 8 >>\nstream\n500 0 d0\nendstream"


@pytest.fixture
def read(tmp_path, monkeypatch):
    """The page's Markdown, and how often PDFium was asked."""
    monkeypatch.chdir(tmp_path)
    asked = []
    monkeypatch.setattr(document, "survey", lambda pages, index: asked.append(index) or survey.survey(pages, index))

    def run(path: Path, **options):
        pages = []
        job = Job(path, path.name, tmp_path, options, Limits(), "", lambda page, _: pages.append(page), lambda *_: None)
        document.read(job)
        return pages[0].markdown, len(asked)

    return run


def test_a_plain_page_is_opened_once(read, tmp_path):
    markdown, asked = read(one_page(tmp_path / "a.pdf", lines("F", "plain", 780)))

    assert 0 == asked
    assert all(f"plain {number} {SENTENCE}" in " ".join(markdown.split()) for number in range(12))


def test_letters_without_height_do_not_get_lost(read, tmp_path):
    content = lines("F", "plain", 780) + lines("D", "drawn", 500)

    markdown, asked = read(one_page(tmp_path / "a.pdf", content, *flat_font()))

    assert 1 == asked
    assert all(f"drawn {number} the cranes" in markdown for number in range(12))


def test_a_short_page_is_asked_about(read, tmp_path):
    markdown, asked = read(one_page(tmp_path / "a.pdf", lines("F", "plain", 780, 2)))

    assert 1 == asked
    assert "plain 1 the cranes" in markdown


def test_what_structure_lost_is_found_by_asking(read, tmp_path, monkeypatch):
    monkeypatch.setattr(document.quick, "read", lambda _page: ([document.Block("text", "plain")], [], False))

    markdown, asked = read(one_page(tmp_path / "a.pdf", lines("F", "plain", 780)))

    assert 1 == asked
    assert f"plain 11 {SENTENCE}" in markdown


def test_a_large_file_says_the_same(read, tmp_path, monkeypatch):
    path = one_page(tmp_path / "a.pdf", lines("F", "plain", 780))
    small = read(path)

    monkeypatch.setattr(survey, "SMALL", 10)

    assert isinstance(survey.taken(path), Path)
    assert small == read(path)


@dataclass
class Item:
    text: str
    width: float = 300.0
    height: float = 10.0
    rotation: float = 0.0
    x: float = 50.0
    y: float = 50.0
    words: tuple = ()


@dataclass
class Page:
    text_items: list[Item]


@pytest.mark.parametrize(
    ("odd", "is_told"),
    [
        (Item(SENTENCE), True),
        (Item(SENTENCE, rotation=90), False),
        (Item(SENTENCE, height=25), False),
        (Item("I", width=1, height=25), True),
        (Item("\ue000" * 200, width=1000), False),
    ],
)
def test_what_may_be_left_out_is_not_believed(odd, is_told):
    page = Page([Item(SENTENCE)] * 6 + [odd])

    assert is_told == (survey.told(page) is not None)


def test_no_words_tell_nothing():
    assert survey.told(Page([])) is None


def test_words_of_a_part_are_those_inside_it():
    page = Page([Item(f"w{n}", 10, 8, x=37 * n % 90, y=53 * n % 200) for n in range(60)] + [Item("side", rotation=90)])
    box = (20.0, 40.0, 70.0, 120.0)

    found = inside(Words(page), box)

    assert found
    assert {word.text for word in inside(words_of(page), box)} == {word.text for word in found}
    assert sorted(word.y for word in found) == [word.y for word in found]


def test_a_page_without_words_has_none_anywhere():
    assert [] == inside(Words(Page([])), (0.0, 0.0, 9.0, 9.0))
    assert 0.0 == Words(Page([])).tallest


def test_a_file_that_is_no_pdf_hides_nothing(tmp_path):
    empty = tmp_path / "empty"
    empty.touch()

    assert not streams.may_hide_letters(b"nothing")
    assert streams.may_hide_letters(empty), "of which nothing is known"
