from __future__ import annotations

import time
from pathlib import Path

import pytest

from docmill.adapters.engines import sniff

OBJECTS = b"".join(b"%d 0 obj\n<< /Type /Font /Name (F%d) >>\nendobj\n" % (n, n) for n in range(1, 9))
XREF = b"xref\n0 9\n" + b"0000000123 00000 n \n" * 9 + b"trailer\n<< /Root 1 0 R >>\nstartxref\n400\n%%EOF\n"
PROSE = b"An object has a number, a generation and a value, and ends with the word endobj on a line of its own.\n"
MAIL = b"From: a@example.org\r\nTo: b@example.org\r\nSubject: x\r\n\r\nbody"


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        (b"junk before\n%PDF-1.4\n", "x", sniff.PDF),
        (b"%PDF)1.3\n1 0 obj", "x", sniff.PDF),
        (b"\x89PNG\r\n\x1a\nrest", "x.pdf", sniff.PNG),
        (b"\xff\xd8\xff\xe0rest", "", sniff.JPEG),
        (b"II*\x00rest", "", sniff.TIFF),
        (b"RIFF\x00\x00\x00\x00WEBPrest", "", sniff.WEBP),
        (b"<!DOCTYPE html><p>x", "x.txt", sniff.HTML),
        (b"<?xml version='1.0'?><!-- c --><html>", "", sniff.HTML),
        (b"<p>only <b>tags</b></p>", "x.html", sniff.HTML),
        (b"<svg xmlns='x'></svg>", "x.png", sniff.SVG),
        (MAIL, "", sniff.EML),
        (b"Note: this\nText: that\n\nbody", "", sniff.TEXT),
        (b"a,b,c\n1,2,3\n4,5,6\n", "", sniff.CSV),
        (b"a;b\n", "x.csv", sniff.CSV),
        (b"a,b,c\n1,2,3\n4,5,6\n", "x.txt", sniff.TEXT),
        (b"# Title\n\n- a\n- b\n\n[l](http://x)\n", "", sniff.MARKDOWN),
        (b"just words", "x.md", sniff.MARKDOWN),
        ("grüße aus köln".encode("cp1252"), "", sniff.TEXT),
        ("这是中文文本这是中文文本".encode("gb18030"), "", sniff.TEXT),
        ("text".encode("utf-16"), "", sniff.TEXT),
        (b"\x00\x01\x02\x03" * 50, "x.txt", sniff.UNKNOWN),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "x.doc", sniff.OLE),
        (b"PK\x03\x04broken", "x.docx", sniff.ZIP),
        (b"", "x.pdf", sniff.EMPTY),
    ],
)
def test_the_type_is_read_from_the_bytes(tmp_path: Path, data: bytes, name: str, expected: str) -> None:
    (tmp_path / "file").write_bytes(data)

    assert expected == sniff.sniff(tmp_path / "file", name)


@pytest.mark.parametrize(
    "data",
    [
        b"%PDF)1.3\n" + OBJECTS + XREF,
        b"%pDF-1.3\n" + OBJECTS + XREF,
        b"\xef\xbb\xbf\n%PDF-1.3\n",
        OBJECTS + XREF,
        OBJECTS + XREF + b"\n" * 50,
        OBJECTS + XREF.replace(b"%%EOF", b"%%EMF"),
        (b"%\xd0DF-1.3\n" + OBJECTS + XREF).replace(b"\n", b"\r"),
        b"%\xd0DF-1.3\n1 0 obj\n<< >>\nstream\n" + b"\xe4 words " * 40_000 + b"\nendstream\nendobj\n" + OBJECTS + XREF,
        b"some text before" + b"%PDF-1.3\n" + OBJECTS,
    ],
)
def test_a_pdf_is_one_although_its_head_is_hurt(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)

    assert {sniff.PDF} == {sniff.sniff(tmp_path / "file", name) for name in ("x.pdf", "", "x.txt")}


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        (b"A file begins with %PDF-1.7 and ends with %%EOF.\n" + PROSE, "", sniff.TEXT),
        (b"A file begins with\n%PDF-1.7\nand ends with\n%%EOF\n" + PROSE, "x.txt", sniff.TEXT),
        (b"# Files\n\n- one\n\n```\n%PDF-1.7\n" + OBJECTS + XREF + b"```\n", "", sniff.MARKDOWN),
        (b"# Files\n\n    %PDF-1.7\n" + OBJECTS.replace(b"\n", b"\n    ") + XREF, "x.md", sniff.MARKDOWN),
        ((PROSE + OBJECTS[:48]) * 9 + XREF, "", sniff.TEXT),
        (PROSE * 9 + OBJECTS[:96] + XREF, "x.txt", sniff.TEXT),
        (OBJECTS, "x.txt", sniff.TEXT),
        (b"%PDF output of this paper\n\\documentclass{article}\n", "", sniff.LATEX),
        (b"type,begins with\npdf,%PDF-1.7\npng,PNG\ngif,GIF\n", "", sniff.CSV),
        (b"<!DOCTYPE html><p>It begins with %PDF-1.7</p>", "", sniff.HTML),
        (MAIL.replace(b"body", b"It begins with\r\n%PDF-1.7"), "x.eml", sniff.EML),
    ],
)
def test_a_text_about_pdfs_is_text(tmp_path: Path, data: bytes, name: str, expected: str) -> None:
    (tmp_path / "file").write_bytes(data)

    assert expected == sniff.sniff(tmp_path / "file", name)


@pytest.mark.parametrize("name", ["x", "x.html"])
@pytest.mark.parametrize(
    "part", ["<!---->", "<!-- x --> ", "\n", "[", "[a](", "<p ", "|---", " ", "* ", "- \n", "%PDF", "1 0 obj endobj "]
)
def test_a_hostile_beginning_is_told_in_no_time(tmp_path: Path, part: str, name: str) -> None:
    """With patterns that try every way to part a text, some of these took minutes, and the first one for ever."""
    path = tmp_path / "file"
    path.write_text(part * (sniff.HEAD // len(part)))
    began = time.process_time()

    sniff.sniff(path, name)

    assert time.process_time() - began < 5


def test_the_page_of_formats_is_written_from_the_table() -> None:
    from docmill.adapters.engines.formats_page import render

    page = Path(__file__).parents[3] / "docs/reference/formats.md"

    assert render() == page.read_text(encoding="utf-8")


def test_every_format_has_a_reader_or_advice_and_no_ending_has_two() -> None:
    endings = [ending for one in sniff.FORMATS for ending in one.endings]

    assert sorted(endings) == sorted(set(endings))
    assert all(bool(one.reader) != bool(one.advice) for one in sniff.FORMATS)
    assert len(sniff.FORMATS) == len(sniff.BY_TYPE)


def test_a_refusal_names_the_type_and_what_would_help() -> None:
    for one in sniff.FORMATS:
        if not one.reader:
            error = sniff.refuse(one.media_type)
            assert one.name in error.message
            assert one.advice in error.message
            assert one.program in error.message
