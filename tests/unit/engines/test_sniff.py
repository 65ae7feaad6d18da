from __future__ import annotations

from pathlib import Path

import pytest

from docmill.adapters.engines import sniff

MAIL = b"From: a@example.org\r\nTo: b@example.org\r\nSubject: x\r\n\r\nbody"


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        (b"junk before\n%PDF-1.4\n", "x", sniff.PDF),
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
