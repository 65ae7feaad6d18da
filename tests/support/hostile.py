"""Files that nobody should have to open, as bytes. What `documents` can already make is taken from there."""

from __future__ import annotations

import io
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from support import documents
from support.documents import assemble_pdf

MiB = 1024**2


def built(make: Callable[[Path], Path], name: str = "made") -> bytes:
    """What a builder of `documents` writes."""
    with TemporaryDirectory() as folder:
        return make(Path(folder) / name).read_bytes()


# Slow, but honest


@cache
def scans(pages: int) -> bytes:
    """A PDF that keeps a parser busy: every page is a picture of text and needs OCR."""
    from reportlab.lib.utils import ImageReader
    from reportlab.pdfgen.canvas import Canvas

    lines = [f"The harbour report of the year {1990 + n} tells what it cost" for n in range(12)]
    picture = ImageReader(io.BytesIO(documents.text_image(lines)))
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=(420, 390))
    for _ in range(pages):
        canvas.drawImage(picture, 0, 0, 420, 390)
        canvas.showPage()
    canvas.save()
    return out.getvalue()


@cache
def pages(count: int, text: str = documents.ENGLISH) -> bytes:
    return built(lambda path: documents.pdf(path, count, text=text))


# Broken


def truncated(data: bytes, share: float = 0.5) -> bytes:
    return data[: int(len(data) * share)]


def noise(size: int = 20_000, seed: int = 7) -> bytes:
    return random.Random(seed).randbytes(size)


def empty() -> bytes:
    return b""


def encrypted_pdf() -> bytes:
    return built(lambda path: documents.pdf(path, 1, encrypt="secret"))


# Bombs


def zip_bomb() -> bytes:
    return built(documents.zip_bomb_docx)


def xml_bomb() -> bytes:
    return built(documents.xml_bomb_docx)


def overlapping_zip() -> bytes:
    return built(documents.overlapping_docx)


def lying_zip() -> bytes:
    """A DOCX whose table of contents says that an entry of 64 MB has ten bytes."""
    data = bytearray(built(documents.docx))
    out = io.BytesIO(bytes(data))
    with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/padding.bin", b"\0" * (64 * MiB))
    data = bytearray(out.getvalue())
    real, said = struct.pack("<I", 64 * MiB), struct.pack("<I", 10)
    return bytes(data.replace(real, said))


def zip_of_many(entries: int = 60_000) -> bytes:
    """A DOCX with more entries than any document has."""
    out = io.BytesIO(built(documents.docx))
    with zipfile.ZipFile(out, "a") as archive:
        for number in range(entries):
            archive.writestr(f"word/{number}", b"")
    return out.getvalue()


def million_pages() -> bytes:
    return built(documents.pdf_with_many_pages)


def huge_png(side: int = 50_000) -> bytes:
    return built(lambda path: documents.png_bomb(path, side))


def html_bomb() -> bytes:
    """Entities that would grow a billionfold, were HTML to know them."""
    entities = '<!ENTITY a0 "ha">' + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    return f"<!DOCTYPE html [{entities}]><html><body><h1>Harbour</h1><p>&a9;</p></body></html>".encode()


def nested_html(depth: int = 100_000) -> bytes:
    return b"<!doctype html><html><body>" + b"<div>" * depth + b"deep" + b"</div>" * depth + b"</body></html>"


def wide_csv(columns: int = 1_000_000) -> bytes:
    head = b";".join(b"c%d" % number for number in range(columns))
    row = b";".join([b"1"] * columns)
    return b"\n".join([head, row, row, b""])


def one_line(size: int = 100 * MiB) -> bytes:
    return b"harbour " * (size // 8)


# PDF that bites


def self_drawing_form() -> bytes:
    return assemble_pdf(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            _page(b"/Resources << /XObject << /F 5 0 R >> >>"),
            _stream(b"/F Do"),
            _stream(
                b"/F Do", b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /F 5 0 R >> >>"
            ),
        ]
    )


def recursive_form() -> bytes:
    """Two forms that draw themselves and each other: the ways through them double at every step."""
    return assemble_pdf(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            _page(b"/Resources << /XObject << /F 5 0 R >> >>"),
            _stream(b"/F Do"),
            _stream(
                b"/F Do /G Do",
                b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /F 5 0 R /G 6 0 R >> >>",
            ),
            _stream(
                b"/F Do", b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /F 5 0 R >> >>"
            ),
        ]
    )


def circular_pages() -> bytes:
    """A tree of pages that is its own child."""
    return assemble_pdf([b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>"])


def inflating_pdf(megabytes: int = 512) -> bytes:
    """A page whose content is packed a thousandfold."""
    packer = zlib.compressobj(9)
    block = b"0 0 m 1 1 l S\n" * (MiB // 14)
    packed = b"".join(packer.compress(block) for _ in range(megabytes)) + packer.flush()
    return assemble_pdf(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            _page(),
            _stream(packed, b"/Filter /FlateDecode"),
        ]
    )


def endless_page() -> bytes:
    """A sheet as large as a town."""
    return assemble_pdf(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            _page(b"/Resources << /Font << /F << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>", 9_999_999),
            _stream(b"0 0 m 99 99 l S BT /F 12 Tf 20 20 Td (Harbour) Tj ET"),
        ]
    )


def polyglot() -> bytes:
    """A PDF to whoever looks at its head, a ZIP with a program to whoever looks at its end."""
    out = io.BytesIO(pages(1))
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr("run.exe", b"MZ" + b"\0" * 100)
    return out.getvalue()


def _page(more: bytes = b"", side: int = 300) -> bytes:
    return b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %d %d] /Contents 4 0 R %s >>" % (side, side, more)


def _stream(data: bytes, entries: bytes = b"") -> bytes:
    return b"<< %s /Length %d >>\nstream\n%s\nendstream" % (entries, len(data), data)


def size_of_input(parser: Path) -> int:
    """The size of the document that is being read in the folder of a parser. OSError: it reads none."""
    (parser / "started").stat()
    return (parser / "in" / "input.pdf").stat().st_size
