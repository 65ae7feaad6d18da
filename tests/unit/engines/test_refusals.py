"""Documents that are refused, and with which words."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from docmill.adapters.engines.local import pdf
from docmill.adapters.engines.local.web import bare_text
from docmill.core.errors import DocumentError, StageFailed
from support import documents
from support.measuring import costs_at_most
from unit.engines.conftest import Bench


def refusal(bench: Bench, path: Path, name: str | None = None, **options: object) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        bench.parse(path, name, **options)
    return caught.value


def outcome(bench: Bench, path: Path) -> str:
    try:
        bench.parse(path)
    except (DocumentError, StageFailed) as error:
        return error.code
    return "read"


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda path: documents.png_bomb(path), "document_too_many_pixels"),
        (lambda path: documents.zip_bomb_docx(path), "document_bomb"),
        (lambda path: documents.overlapping_docx(path), "document_bomb"),
        (lambda path: documents.xml_bomb_docx(path), "document_bomb"),
        (lambda path: documents.encrypted_office(path), "document_encrypted"),
        (lambda path: documents.pdf(path, encrypt="secret"), "document_encrypted"),
        (lambda path: documents.pdf_with_many_pages(path), "document_too_many_pages"),
        (lambda path: path.write_bytes(b""), "document_empty"),
        (lambda path: path.write_bytes(bytes(range(256)) * 20), "document_unsupported"),
        (lambda path: path.write_bytes(b"%PDF-1.7\nnothing more"), "document_broken"),
        (lambda path: path.write_bytes(documents.picture_bytes()[:2000]), "document_broken"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_documents_are_refused_at_once(
    bench: Bench, tmp_path: Path, make: Callable[[Path], object], code: str
) -> None:
    make(tmp_path / "bad")
    started = time.monotonic()

    error = refusal(bench, tmp_path / "bad")

    assert code == error.code
    assert not error.retryable
    assert time.monotonic() - started < 30


def test_the_bytes_decide_not_the_name(bench: Bench, tmp_path: Path) -> None:
    path = documents.image(tmp_path / "really-a.pdf", ["Not a PDF"], "PNG")

    parsed = bench.parse(path)

    assert "image/png" == parsed.media_type
    assert "Not a PDF" in parsed.markdown


def test_a_name_that_promises_what_the_bytes_do_not_hold(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\x7fELF" + bytes(range(256)) * 20)

    error = refusal(bench, tmp_path / "x", "letter.pdf")

    assert ("document_mislabelled", "application/pdf") == (error.code, error.facts["claimed"])


@pytest.mark.parametrize("kind", ["docx", "pptx", "xlsx"])
def test_cut_off_office_documents_are_broken(bench: Bench, tmp_path: Path, kind: str) -> None:
    path = getattr(documents, kind)(tmp_path / f"a.{kind}")
    path.write_bytes(path.read_bytes()[:-2000])

    assert "document_broken" == refusal(bench, path).code


@pytest.mark.parametrize(
    ("data", "code", "name"),
    [
        (b"7z\xbc\xaf\x27\x1c" + bytes(40), "document_unsupported", "7-Zip archive"),
        (b"AT&TFORM\x00\x00\x01\x00DJVM" + bytes(40), "document_needs_program", "DjVu"),
        (b"\x00\x00\x00\x18ftypisom\x00\x00\x00\x00isommp42" + bytes(40), "document_unsupported", "Video"),
        (b"-----BEGIN PRIVATE KEY-----\nabc\n", "document_unsupported", "Key or certificate"),
        (b"%!PS-Adobe-3.0\n%%Title: x\n", "document_needs_program", "PostScript"),
    ],
)
def test_a_type_that_is_not_read_is_named_with_advice(
    bench: Bench, tmp_path: Path, data: bytes, code: str, name: str
) -> None:
    (tmp_path / "a").write_bytes(data)

    error = refusal(bench, tmp_path / "a")

    assert (code, name) == (error.code, error.facts["type"])
    assert str(error.facts["advice"]) in error.message


def test_a_pixel_bomb_inside_an_office_document(bench: Bench, tmp_path: Path) -> None:
    path = documents.docx(tmp_path / "a.docx")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("word/media/evil.png", documents.png_bomb(tmp_path / "evil").read_bytes())

    assert "document_too_many_pixels" == refusal(bench, path).code


def test_more_pages_than_asked_for_is_an_error_not_a_silent_cut(bench: Bench, tmp_path: Path) -> None:
    error = refusal(bench, documents.pdf(tmp_path / "a.pdf", 5), max_pages=3)

    assert ("document_too_many_pages", 5, 3) == (error.code, error.facts["pages"], error.facts["limit"])


def test_a_form_that_draws_itself_does_not_take_the_engine_with_it(bench: Bench, tmp_path: Path) -> None:
    form = b"<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /F 4 0 R >> >> /Length 5 >>"
    content = b"<< /Length 5 >>\nstream\n/F Do\nendstream"
    page = b"<< /Type /Page /MediaBox [0 0 9 9] /Contents 5 0 R /Resources << /XObject << /F 4 0 R >> >> >>"
    tree = [b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Count 1 /Kids [3 0 R] >>", page]
    (tmp_path / "loop.pdf").write_bytes(
        documents.assemble_pdf([*tree, form + b"\nstream\n/F Do\nendstream", content]),
    )

    code = outcome(bench, tmp_path / "loop.pdf")

    assert code in ("read", "parse_crashed", "document_broken")
    (tmp_path / "note.txt").write_text("still here")
    assert "still here\n" == bench.parse(tmp_path / "note.txt").markdown


@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_text_is_not_lost_however_deep_it_lies(bench: Bench, tmp_path: Path, depth: int) -> None:
    shallow = "<h1>Harbour</h1>" + "<p>Many words that are no deeper than usual</p>" * 50
    markup = f"<style>p {{}}</style>{shallow}{'<div>' * depth}the <b>co</b>re &lt;i&gt;{'</div>' * depth}<p>end</p>"
    (tmp_path / "deep.html").write_text(f"<!doctype html><html><body>{markup}</body></html>")

    parsed = bench.parse(tmp_path / "deep.html")

    assert parsed.markdown.startswith("Harbour\n\nMany words")
    assert parsed.markdown.endswith("the core \\<i>\n\nend\n")
    assert ["structure dropped to keep the text"] == parsed.facts["warnings"]


@pytest.mark.parametrize("piece", ["<", "<a ", "<!--", "<![", "<?", '<a "', "<script ", "</", "&"])
def test_odd_markup_takes_no_longer_than_other(piece: str) -> None:
    with costs_at_most(3):
        bare_text(piece * 200_000)


@pytest.mark.parametrize(
    ("box", "has_structure"),
    [
        (b"0 0 300 300", True),
        (b"300 300 0 0", True),
        (b"0 0 0 0", True),
        (b"0 0 nan nan", True),
        (b"0 0 0.0001 0.0001", False),
        (b"0 0 9999999 9999999", False),
        (b"0 0 9999999 1", False),
        (b"0 0 " + b"9" * 45 + b".5 " + b"9" * 45 + b".5", False),
    ],
)
def test_the_text_of_a_page_is_read_whatever_its_size(
    bench: Bench, tmp_path: Path, box: bytes, has_structure: bool
) -> None:
    (tmp_path / "a.pdf").write_bytes(sheet(box, b"BT /F 12 Tf 20 20 Td (Harbour report) Tj ET 0 0 m 99 99 l S"))

    parsed = bench.parse(tmp_path / "a.pdf", page_images=True)

    assert "Harbour report\n" == parsed.markdown
    assert has_structure == ("warnings" not in parsed.facts)
    assert not parsed.pages[0].damage


def test_a_page_without_size_or_text_is_damaged(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(sheet(b"0 0 " + b"9" * 45 + b".5 9", b"0 0 m 99 99 l S"))

    assert "document_broken" == refusal(bench, tmp_path / "a.pdf", ocr="always").code


@pytest.mark.parametrize("size", [(9_999_999, 1), (9_999_999, 9_999_999)])
def test_a_page_is_never_rendered_larger_than_a_picture_may_be(tmp_path: Path, size: tuple[int, int]) -> None:
    (tmp_path / "a.pdf").write_bytes(sheet(b"0 0 %d %d" % size, b"0 0 m 99 99 l S"))

    with pdf.opened(tmp_path / "a.pdf") as document:
        assert max(pdf.rendered(document, 0, 200).size) <= pdf.LONGEST_SIDE + 1


def test_a_strip_too_thin_for_the_recogniser(bench: Bench, tmp_path: Path) -> None:
    Image.new("RGB", (3000, 2), "white").save(tmp_path / "thin.png")

    assert "![](assets/p001_img01.png)\n" == bench.parse(tmp_path / "thin.png").markdown


def sheet(box: bytes, content: bytes) -> bytes:
    font = b"/Resources << /Font << /F << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>"
    return documents.assemble_pdf(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
            b"<< /Type /Page /Parent 2 0 R /MediaBox [%s] /Contents 4 0 R %s >>" % (box, font),
            b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        ]
    )
