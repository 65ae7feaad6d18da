"""What office files show beside their plain text: numbers as displayed, notes, nested lists, cells that span."""

from __future__ import annotations

import datetime
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from docmill.adapters.engines.local import Limits
from docmill.adapters.engines.local.job import Job
from docmill.adapters.engines.local.numbers import displayed
from tests.support import documents

if TYPE_CHECKING:
    from .conftest import Bench


NOON = datetime.datetime.fromisoformat("2026-05-01 12:00")


@pytest.mark.parametrize(
    ("value", "pattern", "expected"),
    [
        (0.1234, "0.0%", "12.3%"),
        (1234.5, '#,##0.00 "€"', "1,234.50 €"),
        (1234.5, "[$€-407] #,##0.00", "€ 1,234.50"),
        (-1234.5, "#,##0.00;[Red](#,##0.00)", "(1,234.50)"),
        (-1234.5, "#,##0", "-1,235"),
        (-0.001, "0.00", "0.00"),
        (1234567, "#,##0,", "1,235"),
        (1234567, '0.0,,"M"', "1.2M"),
        (7, "0000", "0007"),
        (0, "0.00;-0.00;-", "-"),
        (0, "#", "0"),
        (0.5, "#.##", ".5"),
        (2.5, "0", "3"),
        (1.5e-7, "0.00E+00", "1.50E-07"),
        (-15000, "0.0E+00", "-1.5E+04"),
        (1 / 3, "General", "0.333333333333333"),
        (3.0, "General", "3"),
        (0.5, "# ?/?", "0.5"),
        (5, '"Nr. "0', "Nr. 5"),
        (5, '0 "a;b"', "5 a;b"),
        (1e300, "0.00", "1e+300"),
        (float("inf"), "0.00", "inf"),
        (1, "0" * 10_000, "1"),
        (True, "0.00", "TRUE"),
        ("12", "0.00", "12"),
        (NOON.replace(minute=45), "m/d/yy h:mm", "2026-05-01 12:45"),
        (NOON.replace(minute=45, second=7), "h:mm:ss", "2026-05-01 12:45:07"),
        (datetime.time(7, 30), "hh:mm", "07:30"),
        (datetime.timedelta(hours=36), "[h]:mm", "36:00"),
        (datetime.timedelta(seconds=90), "[h]:mm:ss", "0:01:30"),
    ],
)
def test_a_number_is_shown_as_its_sheet_displays_it(value: Any, pattern: str, expected: str) -> None:
    assert expected == displayed(value, pattern)


def test_a_sheet_shows_per_cent_money_and_cells_that_span(bench: Bench, tmp_path: Path) -> None:
    from openpyxl import Workbook

    book = Workbook()
    sheet = book.active
    sheet.append(["Port", "Share", "Income"])
    sheet.append(["Kiel", 0.125, 1234.5])
    sheet["B2"].number_format, sheet["C2"].number_format = "0.0%", '#,##0.00 "€"'
    other = book.create_sheet("Wide")
    other.append(["North", None, "South"])
    other.append(["Kiel", "Emden", "Ulm"])
    other.merge_cells("A1:B1")
    book.save(tmp_path / "book.xlsx")

    first, second = bench.parse(tmp_path / "book.xlsx").pages

    assert "| Kiel | 12.5% | 1,234.50 € |" in first.markdown
    assert "| North |  | South |\n| --- | --- | --- |\n| Kiel | Emden | Ulm |" in second.markdown
    assert any('colspan="2"' in table.read_text() for table in (bench.folder / "assets").glob("p002*.html"))


def test_notes_stand_below_the_page_and_their_marks_in_the_text(bench: Bench, tmp_path: Path) -> None:
    parsed = bench.parse(documents.docx_with_notes(tmp_path / "notes.docx"))

    text = parsed.markdown
    assert "The harbour grew[^1] last year." in text
    assert "Kiel[^2]" in text
    assert "\n\n[^1]: By two \\*new\\* basins \\<b>. More.\n\n[^2]: Counted by hand. More." in text
    assert "line" not in text
    (table,) = (bench.folder / "assets").glob("*.html")
    assert "Kiel[^2]" in table.read_text()


def test_a_document_without_notes_is_read_as_it_is(tmp_path: Path) -> None:
    from docmill.adapters.engines.local.notes import Notes
    from docmill.adapters.engines.local.word import prepared

    path = documents.docx(tmp_path / "plain.docx")
    notes = Notes()

    assert path.read_bytes() == prepared(job_of(path), notes)
    assert "text" == notes.below("text")


def job_of(path: Path) -> Job:
    return Job(path, path.name, path.parent, {}, Limits(), "", lambda *_: None, lambda *_: None)


def test_bullets_are_as_deep_as_their_style_says(bench: Bench, tmp_path: Path) -> None:
    from docx import Document

    document = Document()
    for style, text in [
        ("List Bullet", "harbours"),
        ("List Bullet 2", "Kiel"),
        ("List Bullet 3", "the old one"),
        ("List Bullet", "towns"),
        ("Normal", "Between two lists."),
        ("List Bullet", "rivers"),
        ("List Bullet 2", "Elbe"),
        ("List Number", "first"),
        ("Normal", "Between two steps."),
        ("List Number", "second"),
    ]:
        document.add_paragraph(text, style=style)
    document.save(tmp_path / "lists.docx")

    text = bench.parse(tmp_path / "lists.docx").markdown

    assert (
        "- harbours\n    - Kiel\n        - the old one\n- towns\n\nBetween two lists.\n\n- rivers\n    - Elbe" in text
    )
    assert "1. first\n\nBetween two steps.\n\n2. second" in text
    assert "#" not in text


@pytest.mark.parametrize(("kind", "end"), [("bullet", ""), ("decimal", ""), ("decimal", ".")])
def test_numbered_lists_that_text_interrupts_are_no_headings(bench: Bench, tmp_path: Path, kind: str, end: str) -> None:
    from docx import Document
    from docx.oxml import parse_xml
    from docx.oxml.ns import nsdecls

    document = Document()
    numbering = document.part.numbering_part.element
    depths = "".join(f'<w:lvl w:ilvl="{n}"><w:start w:val="1"/><w:numFmt w:val="{kind}"/></w:lvl>' for n in range(2))
    numbering.insert(0, parse_xml(f'<w:abstractNum {nsdecls("w")} w:abstractNumId="77">{depths}</w:abstractNum>'))
    numbering.append(parse_xml(f'<w:num {nsdecls("w")} w:numId="77"><w:abstractNumId w:val="77"/></w:num>'))
    for level, text in [(0, "Ships"), (1, "Cogs"), (None, "They had one mast."), (0, "Crews"), (1, "Pilots")]:
        paragraph = document.add_paragraph(text + end)
        if level is not None:
            properties = paragraph._p.get_or_add_pPr().get_or_add_numPr()
            properties.get_or_add_ilvl().val, properties.get_or_add_numId().val = level, 77
    document.save(tmp_path / "levels.docx")

    text = bench.parse(tmp_path / "levels.docx").markdown

    assert "# " not in text
    if kind == "bullet":
        assert "- Ships\n    - Cogs\n\nThey had one mast.\n\n- Crews\n    - Pilots" in text
    elif end:
        assert "1. Ships.\n    1. Cogs.\n\nThey had one mast..\n\n2. Crews.\n    1. Pilots." in text


def test_lists_in_lists_keep_their_depth_and_numbers(bench: Bench, tmp_path: Path) -> None:
    from docx import Document
    from docx.oxml import OxmlElement, parse_xml
    from docx.oxml.ns import nsdecls, qn

    document = Document()
    numbering = document.part.numbering_part.element
    head = f'<w:abstractNum {nsdecls("w")} w:abstractNumId="77">'
    depths = (f'<w:lvl w:ilvl="{n}"><w:start w:val="1"/><w:numFmt w:val="decimal"/></w:lvl>' for n in range(2))
    numbering.insert(0, parse_xml(f"{head}{''.join(depths)}</w:abstractNum>"))
    numbering.append(parse_xml(f'<w:num {nsdecls("w")} w:numId="77"><w:abstractNumId w:val="77"/></w:num>'))
    for text, level in (("first", 0), ("inner one", 1), ("inner two", 1), ("second", 0)):
        wanted = OxmlElement("w:numPr")
        for name, value in (("w:ilvl", level), ("w:numId", 77)):
            child = OxmlElement(name)
            child.set(qn("w:val"), str(value))
            wanted.append(child)
        document.add_paragraph(text)._p.get_or_add_pPr().append(wanted)
    document.save(str(tmp_path / "list.docx"))

    text = bench.parse(tmp_path / "list.docx").markdown

    assert "1. first\n    1. inner one\n    2. inner two\n2. second" in text


def test_what_a_speaker_notes_is_a_quote_under_the_slide(bench: Bench, tmp_path: Path) -> None:
    from pptx import Presentation

    deck = Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "Harbour"
    slide.notes_slide.notes_text_frame.text = "Wait for questions.\nThen go on."
    deck.save(str(tmp_path / "deck.pptx"))

    text = bench.parse(tmp_path / "deck.pptx").markdown

    assert text.rstrip().endswith("> Wait for questions.\n\n> Then go on.")
    assert "<span" not in text


def changed_docx(path: Path, *, body: str = "", parts: dict[str, str] | None = None, styles: str = "") -> Path:
    """A document with more XML in its body, its styles and its package."""
    documents.docx(path)
    with zipfile.ZipFile(path) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    found["word/document.xml"] = found["word/document.xml"].replace(b"<w:sectPr", body.encode() + b"<w:sectPr", 1)
    found["word/styles.xml"] = found["word/styles.xml"].replace(b"</w:styles>", styles.encode() + b"</w:styles>")
    found |= {name: data.encode() for name, data in (parts or {}).items()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in found.items():
            archive.writestr(name, data)
    return path


def test_a_style_without_a_name_loses_no_table(bench: Bench, tmp_path: Path) -> None:
    nested = "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>Innermost pier</w:t></w:r></w:p></w:tc></w:tr></w:tbl>"
    outer = f"<w:tbl><w:tr><w:tc>{nested}<w:p><w:r><w:t>Outer pier</w:t></w:r></w:p></w:tc></w:tr></w:tbl><w:p/>"
    path = changed_docx(tmp_path / "a.docx", body=outer, styles="<w:style><w:name w:val='x'/></w:style>")

    parsed = bench.parse(path)

    assert "Innermost pier" in parsed.markdown
    assert "Outer pier" in parsed.markdown
    assert ["repaired: styles without a name were dropped"] == parsed.facts["warnings"]


def test_comments_deletions_and_check_boxes_are_kept(bench: Bench, tmp_path: Path) -> None:
    comment = (
        '<w:comments xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:comment w:id="7" '
        'w:author="Ada" w:date="2026-05-01T10:00:00Z"><w:p><w:r><w:t>Ask the pilot</w:t></w:r></w:p></w:comment>'
        "</w:comments>"
    )
    box = '<w:r><w:fldChar w:fldCharType="begin"><w:ffData><w:checkBox><w:default w:val="{}"/></w:checkBox></w:ffData>'
    box += '</w:fldChar></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r>'
    body = (
        '<w:p><w:r><w:t>The tide turns</w:t></w:r><w:r><w:commentReference w:id="7"/></w:r></w:p>'
        '<w:p><w:r><w:t>Kept words</w:t></w:r><w:del w:id="1" w:author="Bo" w:date="2026-05-02T10:00:00Z"><w:r>'
        "<w:delText>dropped words</w:delText></w:r></w:del></w:p>"
        f"<w:p>{box.format(1)}<w:r><w:t>open</w:t></w:r></w:p><w:p>{box.format(0)}<w:r><w:t>shut</w:t></w:r></w:p>"
    )
    path = changed_docx(tmp_path / "a.docx", body=body, parts={"word/comments.xml": comment})

    text = bench.parse(path).markdown

    assert "The tide turns[^1]" in text
    assert "[^1]: Comment by Ada, 2026-05-01: Ask the pilot" in text
    assert "[^2]: Deleted by Bo, 2026-05-02: dropped words" in text
    assert "☑open" in text.replace(" ", "")
    assert "☐shut" in text.replace(" ", "")


def test_comments_of_cells_stand_below_the_sheet(bench: Bench, tmp_path: Path) -> None:
    from openpyxl import Workbook
    from openpyxl.comments import Comment

    book = Workbook()
    book.active.append(["Port", "Ships"])
    book.active.append(["Kiel", 3])
    book.active["B2"].comment = Comment("Counted at noon", "Ada")
    book.save(tmp_path / "book.xlsx")

    assert "- Comment on B2 by Ada: Counted at noon" in bench.parse(tmp_path / "book.xlsx").markdown


def test_a_huge_sheet_is_read_row_by_row(bench: Bench, tmp_path: Path) -> None:
    from openpyxl import Workbook

    book = Workbook(write_only=True)
    sheet = book.create_sheet("Tides")
    sheet.append([f"column {number}" for number in range(10)])
    for row in range(6000):
        sheet.append([row + number / 4 for number in range(10)])
    book.save(tmp_path / "huge.xlsx")

    parsed = bench.parse(tmp_path / "huge.xlsx")

    assert 2 == len(parsed.pages)
    assert parsed.pages[0].markdown.startswith("## Tides\n\n| column 0 |")
    assert parsed.pages[1].markdown.startswith("| column 0 |")
    assert "| 5999 | 5999.25 |" in parsed.pages[1].markdown
    assert "warnings" not in parsed.facts


def test_words_that_the_reader_loses_are_added_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from docmill.adapters.engines import sniff
    from docmill.adapters.engines.local import coverage

    path = documents.docx(tmp_path / "a.docx")
    pages: list[str] = []
    job = job_of(path)
    job.media_type = sniff.DOCX
    job.page_done = lambda page, _figures: pages.append(page.markdown)
    monkeypatch.delitem(coverage.OTHERS, sniff.DOCX)
    seen = coverage.oxide_text(job)

    def careless(draft: Job) -> None:
        draft.add_page(0, "\n\n".join(line for line in seen.splitlines() if "Straßenbrücke" not in line))

    coverage.read_whole(job, careless)

    assert "Die Straßenbrücke über den Fluss" in pages[0]
    assert job.facts["warnings"][0].startswith("text_unplaced: ")


@pytest.mark.parametrize("text", ["", "other words only"])
def test_an_empty_result_of_a_full_document_is_replaced_by_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    from docmill.adapters.engines import sniff
    from docmill.adapters.engines.local import coverage

    pages: list[str] = []
    job = job_of(documents.docx(tmp_path / "a.docx"))
    job.media_type = sniff.DOCX
    job.page_done = lambda page, _figures: pages.append(page.markdown)
    monkeypatch.delitem(coverage.OTHERS, sniff.DOCX)

    coverage.read_whole(job, lambda draft: draft.add_page(0, text))

    assert "Straßenbrücke" in pages[0]
    assert ["structure dropped to keep the text"] == job.facts["warnings"]


def test_merged_cells_are_a_grid_and_what_is_nested_stays_html() -> None:
    from docmill.adapters.engines.local.compact import compact_tables, lean

    merged = (
        '<table><tr><th rowspan="2"><p>Port</p></th><th colspan="2"><p>Ships</p></th></tr>'
        "<tr><td><p>in</p></td><td><p>out</p></td></tr><tr><td><p></p></td><td><p></p></td><td><p></p></td></tr></table>"
    )

    assert "a\n\n| Port | Ships |  |\n| --- | --- | --- |\n|  | in | out |\n\nb" == compact_tables(f"a{merged}b")
    assert '<th colspan="2">Ships</th>' in lean(merged)
    assert "<p>" not in lean(merged)
    assert "<li>" in compact_tables("<table><tr><td><ul><li>x</li></ul></td></tr></table>")
