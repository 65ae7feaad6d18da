"""PDF: structure from tags and lines, running headers, figures in the displayed frame, pages that stream."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image, ImageChops

from docmill.adapters.engines.local.job import Job
from docmill.adapters.engines.local.limits import Limits
from docmill.adapters.engines.local.pdf import blocks, document, headings, layout, rendered, survey
from docmill.adapters.engines.local.pdf.blocks import Block, Cell
from docmill.adapters.engines.local.pdf.running import Running, edges
from support import documents
from support.long_pdf import numbered_pdf


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Parses in this process, so that the reader's steps can be watched."""
    monkeypatch.chdir(tmp_path)

    def run(path: Path, **options):
        pages, figures = [], []

        def done(page, found):
            pages.append(page)
            figures.extend(found)

        job = Job(path, path.name, tmp_path, options, Limits(), "application/pdf", done, lambda _done, _total: None)
        document.read(job)
        return pages, figures

    return run


def test_tags_tell_headings_lists_and_tables_and_what_is_no_content(read, tmp_path):
    pages, figures = read(documents.pdf_tagged(tmp_path / "a.pdf"))

    assert (
        "# About the harbour\n\nThe cranes are maintained by the city.\n\n- First quay\n- Second quay\n\n"
        "| Port | Ships |\n| --- | --- |\n| Kiel | 35 |"
    ) == pages[0].markdown
    assert ["table"] == [figure.kind for figure in figures]


def test_lines_tell_the_cells_of_a_table_and_those_that_span(read, tmp_path):
    pages, figures = read(documents.pdf_spanning(tmp_path / "a.pdf"))

    assert '<tr><td rowspan="2">Port</td><td colspan="2">Traffic</td></tr>' in pages[0].markdown
    assert "<td>Hamburg (free port)</td><td>120</td><td>4500</td>" in pages[0].markdown
    (table,) = figures
    assert "Kiel" in (tmp_path / "assets" / table.name).read_text()
    assert "harbour grew" in table.context_before
    assert table.bbox == pytest.approx((72 / 595, 0.33, (72 + 330) / 595, 0.43), abs=0.01)


def test_running_headers_and_page_numbers_go_and_chapters_stay(read, tmp_path):
    pages, _ = read(documents.pdf_with_headers(tmp_path / "a.pdf"))
    whole = "\n".join(page.markdown for page in pages)

    assert "Annual report" not in whole
    assert "of 5" not in whole
    assert [f"# Chapter {n}" for n in range(1, 6)] == [line for line in whole.split("\n") if line.startswith("#")]


def test_a_single_page_keeps_its_edges(read, tmp_path):
    pages, _ = read(documents.pdf_with_headers(tmp_path / "a.pdf", pages=1))

    assert "Annual report of the harbour office" in pages[0].markdown
    assert "Page 1 of 1" in pages[0].markdown


@pytest.mark.parametrize("crop", [None, (60, 200, 500, 800)])
@pytest.mark.parametrize("angle", [0, 90, 180, 270])
def test_a_figure_is_cut_from_where_it_is_displayed(read, tmp_path, angle, crop):
    path = documents.pdf_turned(tmp_path / "a.pdf", angle, crop)

    pages, (figure,) = read(path)

    with survey.opened(path) as opened:
        page = rendered(opened, 0, 72)
    wide, high = page.size
    x0, y0, x1, y1 = figure.bbox
    inside = page.crop((round(x0 * wide), round(y0 * high), round(x1 * wide), round(y1 * high)))
    orange = Image.new("RGB", page.size, "orange")
    everywhere, within = (count_near(picture, orange.crop((0, 0, *picture.size))) for picture in (page, inside))
    assert everywhere
    assert within >= 0.97 * everywhere
    assert within >= 0.5 * inside.width * inside.height
    kept = Image.open(io.BytesIO((tmp_path / "assets" / figure.name).read_bytes()))
    assert kept.width / kept.height == pytest.approx(inside.width / inside.height, rel=0.05)
    assert f"assets/{figure.name}" in pages[0].markdown
    text = pages[0].markdown
    assert text.index("ye 0") < text.index("ye 5") < text.index("ye 13")


def count_near(picture, colour):
    difference = ImageChops.difference(picture, colour).convert("L")
    return sum(difference.histogram()[:12])


def test_the_first_page_leaves_before_the_last_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = documents.pdf(tmp_path / "long.pdf", pages=2 * document.WINDOW + 5)
    windows, when = [], []
    window = document.Reader.window

    def watched(reader, indices, before):
        windows.append(len(indices))
        return window(reader, indices, before)

    monkeypatch.setattr(document.Reader, "window", watched)
    job = Job(path, "long.pdf", tmp_path, {}, Limits(), "", lambda _p, _f: when.append(len(windows)), lambda *_: None)
    document.read(job)

    assert 1 == when[0]
    assert [document.WINDOW, document.WINDOW, 5] == windows
    assert 2 * document.WINDOW + 5 == len(when)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["The main-", "tenance crew"], "The maintenance crew"),
        (["Nord-", "Ostsee-Kanal"], "Nord-Ostsee-Kanal"),
        (["服务账号的工作", "原理"], "服务账号的工作原理"),
        (["see app.kubernetes.io/", "instance"], "see app.kubernetes.io/instance"),
        (["one", "", "two"], "one two"),
    ],
)
def test_lines_are_joined_as_they_were_written(lines, expected):
    assert expected == blocks.joined(lines)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("Table of Contents", True),
        ("3. Perspective of supply and demand balance of wood pellets and cost structure in Japan", True),
        ("Table 3: Exports by year", False),
        ("Zπ p", False),
        ("Kim, Park, Kim, Lee, Song and Ahn", False),
        ("Start by searching for information on platforms where authors share their materials freely, ensuring", False),
        ("使用场景", True),
    ],
)
def test_large_letters_alone_make_no_heading(text, is_one):
    assert is_one == headings.is_heading(text)


def test_a_number_alone_at_the_foot_runs_only_over_several_pages():
    body = Block("text", "The harbour grew.", box=(0.1, 0.3, 0.9, 0.5))
    foot = [[body, Block("text", str(number), box=(0.5, 0.96, 0.52, 0.98))] for number in (7, 8)]
    pages = [edges(blocks) for blocks in foot]

    assert [body] == Running(pages).without(foot[0])
    assert foot[0][1:] == Running(pages).without(foot[0][1:]), "there is nothing else on the page"
    assert foot[0] == Running(pages[:1]).without(foot[0])


def test_pipes_in_cells_do_not_break_the_table():
    rows = [[Cell("a|b"), Cell("c")], [Cell("d")]]

    assert "| a\\|b | c |\n| --- | --- |\n| d |  |" == blocks.table(rows)


def test_a_page_that_breaks_the_rules_for_tables_keeps_its_words(read, tmp_path, monkeypatch):
    def broken(_content, _profile):
        raise ValueError("a page that nobody thought of")

    monkeypatch.setattr(layout, "read_page", broken)

    pages, _ = read(documents.pdf_spanning(tmp_path / "a.pdf"))

    assert "Hamburg" in pages[0].markdown


def test_a_long_document_is_opened_anew_and_loses_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = numbered_pdf(tmp_path / "long.pdf", 2 * document.WINDOW + 5)
    found, opened_at = [], []
    renew = survey.OpenPages.renew

    def counted(pages):
        opened_at.append(len(found))
        renew(pages)

    monkeypatch.setattr(survey.OpenPages, "renew", counted)
    job = Job(
        path, "long.pdf", tmp_path, {}, Limits(), "", lambda page, _f: found.append(page.markdown), lambda *_: None
    )
    document.read(job)

    assert [document.WINDOW, 2 * document.WINDOW] == opened_at
    assert [f"P{number:05d} of the long report" for number in range(1, 2 * document.WINDOW + 6)] == found


def test_between_authors_and_abstract_there_are_no_headings():
    kinds = ("heading", "text", "heading", "heading", "heading")
    texts = ("On harbours", "A. Kran∗, B. Kai†", "Kiel University", "Abstract", "1 Ships")
    paper = [blocks.Block(kind, text) for kind, text in zip(kinds, texts, strict=True)]

    assert ["heading", "text", "text", "heading", "heading"] == [each.kind for each in headings.without_names(paper)]
    plain = [blocks.Block("heading", text) for text in ("On harbours", "1 Ships")]
    assert ["heading", "heading"] == [each.kind for each in headings.without_names(plain)]


def table(top: float, bottom: float, *rows: tuple[str, ...]) -> Block:
    return Block("table", rows=[[Cell(text) for text in row] for row in rows], box=(0.1, top, 0.9, bottom))


def test_a_table_that_goes_on_at_the_top_of_the_next_page_is_one():
    head = ("Port", "Ships")
    first = [Block("text", "Ships of the year"), table(0.5, 0.9, head, ("Kiel", "35"))]
    second = [table(0.08, 0.3, head, ("Emden", "12")), Block("text", "Counted by hand")]
    third = [table(0.08, 0.3, ("Port", "Ships", "Tons"), ("Kiel", "35", "900"))]
    pages = {0: first, 1: second, 2: third, 3: None}

    document.join_pages(pages)

    assert [["Port", "Ships"], ["Kiel", "35"], ["Emden", "12"]] == [[c.text for c in row] for row in first[1].rows]
    assert ["Counted by hand"] == [block.text for block in second]
    assert 1 == len(third), "it has other columns"


@pytest.mark.parametrize(
    ("end", "start", "is_one"),
    [
        ("The harbour grew in this year, and more ships came", "than ever did before.", True),
        ("The harbour grew in this year, and more ships main-", "tained their route.", True),
        ("The harbour grew in this year, and more ships came.", "than ever did before.", False),
        ("The harbour grew in this year, and more ships came", "Ships of the year", False),
        ("Page 7", "than ever did before.", False),
    ],
)
def test_a_paragraph_goes_on_at_the_top_of_the_next_page(end: str, start: str, is_one: bool) -> None:
    first, second = [Block("text", end)], [Block("text", start), Block("text", "Counted by hand")]

    document.join_pages({0: first, 1: second})

    assert is_one == (len(second) == 1)
    assert not is_one or first[0].text.endswith(start[5:])
