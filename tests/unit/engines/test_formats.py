"""Every format gives pages of sensible Markdown, and figures that are what they say."""

from __future__ import annotations

import hashlib
from datetime import date
from pathlib import Path

import pytest

from docmill.adapters.engines.local import parse_file
from docmill.core.parsed import Parsed
from support import documents
from unit.engines.conftest import Bench

MAGIC = {"image/png": b"\x89PNG", "image/jpeg": b"\xff\xd8\xff", "text/html": b"<table"}


def check_figures(bench: Bench, parsed: Parsed) -> None:
    """What holds for the figures of every format."""
    assert len({figure.name for figure in parsed.figures}) == len(parsed.figures)
    for figure in parsed.figures:
        data = (bench.folder / "assets" / figure.name).read_bytes()
        assert figure.size == len(data)
        assert figure.sha256 == hashlib.sha256(data).hexdigest()
        assert data.lstrip().startswith(MAGIC[figure.media_type])
        assert figure.page_index is not None
        page = next(page for page in parsed.pages if page.index == figure.page_index)
        if figure.kind == "image":
            assert f"](assets/{figure.name})" in page.markdown
        if figure.bbox is not None:
            x0, y0, x1, y1 = figure.bbox
            assert 0 <= x0 < x1 <= 1
            assert 0 <= y0 < y1 <= 1
        assert len(figure.context_before) <= 300
        assert len(figure.context_after) <= 300


def test_pdf_with_picture_table_columns_and_a_turned_page(bench: Bench, tmp_path: Path) -> None:
    parsed = bench.parse(documents.pdf_rich(tmp_path / "rich.pdf"))

    check_figures(bench, parsed)
    assert "application/pdf" == parsed.media_type
    assert [0, 1, 2] == [page.index for page in parsed.pages]
    first, columns, turned = (page.markdown for page in parsed.pages)
    assert "Ships and Ports" in first
    assert "| Hamburg | 120 | 4500 |" in first
    assert "![Figure 1: The harbour from above](assets/p001_img01.png)" in first
    assert columns.index("left29") < columns.index("right00")
    assert "turned line 5 of the page" in turned
    assert "en" == parsed.language
    assert [(1, 3), (2, 3), (3, 3)] == bench.reports


def test_boxes_lie_in_the_page_as_it_is_displayed(bench: Bench, tmp_path: Path) -> None:
    parsed = bench.parse(documents.pdf_rich(tmp_path / "rich.pdf"))

    upright = next(figure for figure in parsed.figures if figure.name == "p001_img01.png")
    turned = next(figure for figure in parsed.figures if figure.name == "p003_img01.png")
    table = next(figure for figure in parsed.figures if figure.kind == "table")
    assert upright.bbox == pytest.approx((72 / 595, 1 - 600 / 842, 272 / 595, 1 - 450 / 842), abs=0.01)
    assert turned.bbox == pytest.approx((60 / 595, 380 / 842, 260 / 595, 530 / 842), abs=0.01)
    assert table.bbox is not None
    assert table.bbox[1] > upright.bbox[3]  # type: ignore[index]
    assert "The quarterly report" in upright.context_before
    assert "Figure 1" in upright.context_after


def test_a_scanned_pdf_is_read_by_ocr(bench: Bench, tmp_path: Path) -> None:
    path = documents.pdf_scan(tmp_path / "scan.pdf", ["Invoice number 2026", "Total amount 417 Euro"])

    parsed = bench.parse(path)

    assert "Invoice number 2026" in parsed.markdown
    assert "417" in parsed.markdown
    assert 1 == parsed.facts["ocr_pages"]


def test_ocr_can_be_forbidden(bench: Bench, tmp_path: Path) -> None:
    parsed = bench.parse(documents.pdf_scan(tmp_path / "scan.pdf", ["Invoice"]), ocr="never")

    assert "Invoice" not in parsed.markdown
    assert "ocr_pages" not in parsed.facts


def test_a_chinese_pdf(bench: Bench, tmp_path: Path) -> None:
    parsed = bench.parse(documents.pdf_chinese(tmp_path / "zh.pdf"))

    assert 6 == parsed.markdown.count(documents.CHINESE)
    assert "zh" == parsed.language


def test_what_was_filled_into_a_form_is_kept(bench: Bench, tmp_path: Path) -> None:
    parsed = bench.parse(documents.pdf_form(tmp_path / "form.pdf"))

    assert "the name of the ship" in parsed.markdown
    assert "Gorch Fock" in parsed.markdown


def test_markup_in_table_cells_is_text(bench: Bench, tmp_path: Path) -> None:
    """A table's HTML is an asset that somebody will open."""
    from openpyxl import Workbook

    book = Workbook()
    book.active.append(["a", "b"])
    book.active.append(["<script>steal()</script>", "<img src=x onerror=steal()>"])
    book.save(tmp_path / "evil.xlsx")

    parsed = bench.parse(tmp_path / "evil.xlsx")

    html = (bench.folder / "assets" / parsed.figures[0].name).read_text()
    assert "<script" not in html
    assert "<img" not in html


def test_no_page_of_a_long_pdf_is_lost(bench: Bench, tmp_path: Path) -> None:
    parsed = bench.parse(documents.pdf(tmp_path / "long.pdf", 70))

    assert list(range(70)) == [page.index for page in parsed.pages]
    assert all(f"({index + 1}.11)" in page.markdown for index, page in enumerate(parsed.pages))
    assert "Harbour report" == parsed.title
    assert (70, 70) == bench.reports[-1]


def test_a_blank_page_is_no_error(bench: Bench, tmp_path: Path) -> None:
    blank = [b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Count 1 /Kids [3 0 R] >>"]
    (tmp_path / "blank.pdf").write_bytes(documents.assemble_pdf([*blank, b"<< /Type /Page /MediaBox [0 0 99 99] >>"]))

    parsed = bench.parse(tmp_path / "blank.pdf")

    assert [""] == [page.markdown for page in parsed.pages]
    assert () == parsed.damaged_pages
    assert parsed.facts["no_text"] is True


def test_a_page_that_cannot_be_loaded_does_not_harm_the_others(bench: Bench, tmp_path: Path) -> None:
    from pypdf import PdfReader, PdfWriter
    from pypdf.generic import NullObject

    writer = PdfWriter(clone_from=PdfReader(documents.pdf(tmp_path / "good.pdf", 3)))
    writer.pages[1].get_object().clear()
    writer.root_object["/Pages"]["/Kids"][1] = NullObject()  # type: ignore[index]
    writer.write(tmp_path / "hole.pdf")

    parsed = bench.parse(tmp_path / "hole.pdf")

    assert (1,) == parsed.damaged_pages
    assert "(1.0)" in parsed.pages[0].markdown
    assert "(3.0)" in parsed.pages[2].markdown


def test_page_images_are_rendered_when_asked_for(bench: Bench, tmp_path: Path) -> None:
    parsed = bench.parse(documents.pdf(tmp_path / "a.pdf", 2), page_images=True)

    assert ["page_001.png", "page_002.png"] == parsed.facts["page_images"]
    assert (bench.folder / "assets" / "page_002.png").read_bytes().startswith(MAGIC["image/png"])


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "WEBP", "BMP", "GIF"])
def test_pictures(bench: Bench, tmp_path: Path, kind: str) -> None:
    parsed = bench.parse(documents.image(tmp_path / "picture", ["Harbour master office"], kind), name="")

    assert "Harbour master office" in parsed.markdown
    assert f"image/{kind.lower()}" == parsed.media_type


def test_german_umlauts_survive_ocr(bench: Bench, tmp_path: Path) -> None:
    path = documents.image(tmp_path / "de.png", ["Größere Häuser über der Straße"], "PNG")

    assert "Größere Häuser über der Straße" in bench.parse(path).markdown


def test_every_frame_of_a_tiff_is_a_page(bench: Bench, tmp_path: Path) -> None:
    parsed = bench.parse(documents.image(tmp_path / "fax.tiff", ["Fax message"], "TIFF", frames=3))

    assert 3 == len(parsed.pages)
    assert all("Fax message" in page.markdown for page in parsed.pages)


def test_a_photo_without_text_is_a_figure(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "photo.png").write_bytes(documents.png(300, 200))

    parsed = bench.parse(tmp_path / "photo.png")

    check_figures(bench, parsed)
    assert "![](assets/p001_img01.png)" == parsed.pages[0].markdown
    assert (0.0, 0.0, 1.0, 1.0) == parsed.figures[0].bbox


def test_docx(bench: Bench, tmp_path: Path) -> None:
    parsed = bench.parse(documents.docx(tmp_path / "minutes.docx"))

    check_figures(bench, parsed)
    assert "# Minutes" in parsed.markdown
    assert "- first point\n- second point" in parsed.markdown
    assert "| Hamburg | 120 | 4500 |" in parsed.markdown
    assert "Straßenbrücke" in parsed.markdown
    assert {"image", "table"} == {figure.kind for figure in parsed.figures}
    assert "Harbour minutes" == parsed.title


def test_slides_are_pages(bench: Bench, tmp_path: Path) -> None:
    parsed = bench.parse(documents.pptx(tmp_path / "deck.pptx"))

    check_figures(bench, parsed)
    assert ["Slide 1" in parsed.pages[0].markdown, "Slide 2" in parsed.pages[1].markdown] == [True, True]
    assert [1] == [figure.page_index for figure in parsed.figures]


def test_sheets_are_pages(bench: Bench, tmp_path: Path) -> None:
    parsed = bench.parse(documents.xlsx(tmp_path / "book.xlsx"))

    check_figures(bench, parsed)
    assert ["## Ports", "## People"] == [page.markdown.split("\n")[0] for page in parsed.pages]
    assert "| Kiel | 35 | 900 |" in parsed.pages[0].markdown
    assert "Kapitänin" in parsed.pages[1].markdown


def test_a_single_sheet_is_named_a_hidden_one_is_not_shown_and_days_have_no_hour(bench: Bench, tmp_path: Path) -> None:
    from openpyxl import Workbook

    book = Workbook()
    book.active.title = "Zahlen & Tage"
    book.active.append(["Tag", "Wert"])
    book.active.append([date(2026, 5, 1), 3])
    hidden = book.create_sheet("Geheim")
    hidden.append(["nicht", "zeigen"])
    hidden.sheet_state = "hidden"
    book.save(tmp_path / "book.xlsx")

    parsed = bench.parse(tmp_path / "book.xlsx")

    assert ["## Zahlen & Tage\n\n| Tag | Wert |\n| --- | --- |\n| 2026-05-01 | 3 |"] == [
        page.markdown for page in parsed.pages
    ]


def test_html(bench: Bench, tmp_path: Path) -> None:
    parsed = bench.parse(documents.html(tmp_path / "page.html"))

    check_figures(bench, parsed)
    assert "# Hafen" in parsed.markdown
    assert "- eins\n- zwei" in parsed.markdown
    assert "![Kai](assets/p001_img01.png)" in parsed.markdown
    assert "![fern](https://example.org/x.png)" in parsed.markdown
    assert "steal" not in parsed.markdown
    assert "color" not in parsed.markdown
    assert ("Der Hafen", "de") == (parsed.title, parsed.language)
    assert {"image", "table"} == {figure.kind for figure in parsed.figures}


def test_menus_and_footers_of_a_web_page_are_left_out_and_nothing_else(bench: Bench, tmp_path: Path) -> None:
    text = f"<p>{documents.GERMAN}</p>" * 5
    page = "<html><body><header><h1>Hafen</h1></header><nav>{nav}</nav>{text}<footer>Impressum</footer></body></html>"
    kinds = {
        "main": page.format(nav="Startseite", text=f"<main>{text}</main>"),
        "nav": page.format(nav="Startseite", text=text),
        "all": page.format(nav=text * 9, text="<main>kurz</main>"),
    }
    read = {}
    for name, html in kinds.items():
        (tmp_path / name).write_text(html)
        read[name] = bench.parse(tmp_path / name).markdown

    assert [True, True] == ["# Hafen" in read[name] for name in ("main", "nav")]
    assert [5, 5, 45] == [markdown.count("Straßenbrücke") for markdown in read.values()]
    assert [False, False, False] == ["Startseite" in markdown for markdown in read.values()]
    assert [False, True, True] == ["Impressum" in markdown for markdown in read.values()]


def test_mail(bench: Bench, tmp_path: Path) -> None:
    parsed = bench.parse(documents.eml(tmp_path / "mail.eml"))

    check_figures(bench, parsed)
    assert "# Der neue Kai" in parsed.markdown
    assert "Änne Müller" in parsed.markdown
    assert 1 == parsed.markdown.count("Straßenbrücke")
    assert "- **From:** Änne Müller \\<a@example.org>" in parsed.markdown
    assert "- **Date:** 2026-05-01 10:00+02:00" in parsed.markdown
    assert "- plan.pdf (PDF, 10 bytes): `document_broken`" in parsed.markdown
    assert "![Bild](assets/p001_img01.png)" in parsed.markdown


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv(bench: Bench, tmp_path: Path, delimiter: str) -> None:
    parsed = bench.parse(documents.csv_file(tmp_path / "ports.csv", delimiter=delimiter))

    check_figures(bench, parsed)
    assert "| Port | Ships | Tonnes |\n| --- | --- | --- |\n| Hamburg | 120 | 4500 |" in parsed.markdown


def test_a_long_csv_goes_on_with_its_head(bench: Bench, tmp_path: Path) -> None:
    rows = [["n", "a|b"], *([str(number), "x"] for number in range(2500))]

    parsed = bench.parse(documents.csv_file(tmp_path / "long.csv", rows))

    assert 3 == len(parsed.pages)
    assert all(page.markdown.startswith("| n | a\\|b |\n") for page in parsed.pages)
    assert 2500 == parsed.markdown.count("| x |")


def test_markdown_stays_as_it_is(bench: Bench, tmp_path: Path) -> None:
    text = "# Title\n\n* a  \n* b\n\n\n\n```py\nx = 1\n```"
    (tmp_path / "note.md").write_text(text)

    assert text == bench.parse(tmp_path / "note.md").pages[0].markdown


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"])
def test_text_in_many_encodings(bench: Bench, tmp_path: Path, encoding: str) -> None:
    (tmp_path / "note.txt").write_bytes(documents.GERMAN.encode(encoding))

    parsed = bench.parse(tmp_path / "note.txt")

    assert documents.GERMAN == parsed.pages[0].markdown
    assert ("text/plain", "de") == (parsed.media_type, parsed.language)


def test_text_that_no_store_takes_is_cleaned(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_bytes(b"one\x0b two\r\nthree\x7f" + b" filler" * 200)

    assert bench.parse(tmp_path / "note.txt").pages[0].markdown.startswith("one two\nthree filler")


def test_parse_file_is_enough_for_a_script(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text(documents.ENGLISH)

    assert documents.ENGLISH + "\n" == parse_file(tmp_path / "note.txt", tmp_path / "out").markdown


def test_merged_cells_of_a_page_are_a_grid_and_the_asset_has_the_spans(bench: Bench, tmp_path: Path) -> None:
    table = (
        "<table onclick='x()'><tr><th rowspan=2>Port</th><th colspan=2>Ships<script>steal()</script></th></tr>"
        "<tr><td>in</td><td>out</td></tr></table>"
    )
    (tmp_path / "a.html").write_text(f"<!doctype html><html><body><p>a</p>{table}<p>b</p></body></html>")

    parsed = bench.parse(tmp_path / "a.html")

    assert "|      | in    | out |" in parsed.markdown
    html = (bench.folder / "assets" / parsed.figures[0].name).read_text()
    assert '<th rowspan="2">Port</th><th colspan="2">Ships</th>' in html
    assert "steal" not in html
    assert "onclick" not in html
