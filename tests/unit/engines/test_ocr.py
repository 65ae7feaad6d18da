"""Scans: the rules of order and writing alone, and whole pages through the models."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy
import pytest
from PIL import Image, ImageDraw, ImageFont

from docmill.adapters.engines.local.ocr import blanks, grids, layout, models, page, reason_for_ocr, upright, writing
from docmill.adapters.engines.local.ocr.chinese import Habits
from docmill.adapters.engines.local.ocr.lines import Line
from support import documents


def line(text: str, x: float, y: float, width: float = 400, height: float = 20) -> Line:
    return Line(text, x, y, x + width, y + height)


def markdown(lines: list[Line]) -> str:
    return writing.write(layout.order(lines))[0]


def test_columns_are_read_one_after_the_other_and_lines_across_cut_them() -> None:
    pieces = [line("across the page", 0, 0, 900)]
    pieces += [line(f"left {n}", 0, 40 + 30 * n) for n in range(6)]
    pieces += [line(f"right {n}", 500, 40 + 30 * n) for n in range(6)]

    read = [row.text for row in layout.order(pieces)]

    assert ["across the page", *(f"left {n}" for n in range(6)), *(f"right {n}" for n in range(6))] == read


def test_lines_become_paragraphs_and_larger_ones_headings() -> None:
    pieces = [
        line("A heading", 0, 0, 200, 40),
        line("one sentence that is hyphen-", 0, 60),
        line("ated over two lines", 0, 85, 300),
        line("after a gap", 0, 180, 200),
        line("A smaller heading", 0, 220, 200, 30),
        line("and the rest of the page", 0, 260),
    ]

    assert [
        "# A heading",
        "one sentence that is hyphenated over two lines",
        "after a gap",
        "## A smaller heading",
        "and the rest of the page",
    ] == markdown(pieces).split("\n\n")


def test_a_line_that_had_room_for_the_next_word_ends_its_paragraph() -> None:
    full = [line("this line goes to the very end", 0, 0), line("and so it goes on", 0, 25, 230)]
    short = [*full, line("x", 0, 50, 14), line("this line is as wide as the column", 0, 75)]

    assert "this line goes to the very end and so it goes on\n\nx\n\nthis line is as wide as the column" == (
        markdown(short)
    )


def test_lists_stay_lists_whatever_their_bullet_looks_like() -> None:
    pieces = [line("·one", 0, 0), line("• two, which is", 0, 25), line("long", 15, 50, 50), line("2) three", 0, 75)]

    assert "- one\n- two, which is long\n2. three" == markdown(pieces)


def test_chinese_lines_join_without_a_gap_and_are_spaced_alike() -> None:
    pieces = [line("使用 heading短代", 0, 0), line("码将内容（Concept)添加到", 0, 25), line("页面Pod中", 0, 50)]

    assert "使用 heading 短代码将内容（Concept）添加到页面 Pod 中" == markdown(pieces)


def test_options_paths_and_brackets_in_chinese_are_written_as_it_writes_them() -> None:
    pieces = [line("指定了--skip和 i18n/<语言>参数 limits(限制)默认为/etc和/或者 OOM（内存)", 0, 0, width=900)]

    wanted = "指定了 --skip 和 i18n/\\<语言> 参数 limits（限制）默认为 /etc 和/或者 OOM（内存）"
    assert wanted == markdown(pieces)
    assert "limits (of both) and 3) more" == markdown([line("limits (of both) and 3) more", 0, 0)])


WIDE = Habits(blanks=True, wide=True)


@pytest.mark.parametrize(
    ("read", "printed"),
    [
        ("有序列表,可以调用", "有序列表，可以调用"),
        ("先看说明, 再调用;例如: sudo", "先看说明，再调用；例如： sudo"),
        ("加 --help,例如", "加 --help，例如"),
        ("参数（见上）.第二句. 完.", "参数（见上）。第二句。完。"),
        ('指定"whatsnext"字符串', '指定 "whatsnext" 字符串'),
        ("时间:10 点 1:3 目录:/etc 文件.txt name: 值", "时间:10 点 1:3 目录:/etc 文件.txt name: 值"),
    ],
)
def test_marks_in_chinese_are_wide_where_the_page_has_wide_ones(read: str, printed: str) -> None:
    assert printed == WIDE.applied(read)


def test_the_habits_of_a_page_are_those_of_most_of_its_lines() -> None:
    assert WIDE == Habits.of(["使用 Pod和容器，以及,还有。", "内核Linux特有"])
    assert Habits(blanks=False, wide=False) == Habits.of(["使用Pod和容器,以及:还有，", "内核Linux特有"])
    assert Habits() == Habits.of(["no Chinese, none."]) == Habits.of([])


def test_a_page_has_one_way_of_writing_whatever_a_table_cuts_it_into() -> None:
    paper = Image.new("RGB", (1000, 1000), "white")
    draw = ImageDraw.Draw(paper)
    for x in (100, 400, 800):
        draw.line((x, 200, x, 350), "black", 2)
    for y in (200, 250, 300, 350):
        draw.line((100, y, 800, y), "black", 2)
    cells = [
        line("类型" if row == 0 else f"巨页（仅限Linux{row})", 120 + 300 * column, 215 + 50 * row, 60)
        for row in range(3)
        for column in range(2)
    ]
    lines = [line("对于 Linux 工作负载", 100, 100), *cells, line("内核Linux特有的功能", 100, 500)]

    found = page.assemble(numpy.asarray(paper)[:, :, ::-1].copy(), lines, upright.Pose(1000, 1000))

    assert found.markdown.startswith("对于 Linux 工作负载\n\n| 类型 | 类型 |")
    assert "巨页（仅限 Linux1）" == found.tables[0][0][1][0]
    assert found.markdown.endswith("内核 Linux 特有的功能")


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("curl -L0 https", "curl-LO https", "curl -LO https"),
        ("使用 Pod和容器", "使用Pod 和容器", "使用 Pod 和容器"),
        ('{ "spec": [ 1 ] } # end', '{"spec":[1]}#end', '{"spec": [1]} # end'),
        ("a bc", "", ""),
        ("", "no blank seen", "no blank seen"),
        ("x y", "quite another", "quite another"),
        ("one two", "one  two ", "one two"),
    ],
)
def test_the_better_reading_keeps_blanks_that_the_first_has_seen(one: str, other: str, both: str) -> None:
    assert both == blanks.of_both(one, other)


def strokes(*places: int) -> Any:
    """Three letters, 3 pixels wide and 15 high, that begin at these places."""
    piece = Image.new("RGB", (60, 31), "white")
    for x in places:
        ImageDraw.Draw(piece).rectangle((x, 8, x + 2, 22), "black")
    return numpy.asarray(piece)[:, :, ::-1].copy()


def test_a_slash_has_blanks_around_it_where_the_picture_has() -> None:
    assert "1 / 3" == blanks.around_slash("1/3", strokes(8, 19, 30))
    assert "1/3" == blanks.around_slash("1/3", strokes(8, 13, 18))
    assert "1/3" == blanks.around_slash("1/3", strokes(8, 13, 30))
    assert "and/or" == blanks.around_slash("and/or", strokes(8, 19, 30))
    assert "1/3" == blanks.around_slash("1/3", strokes())


def test_a_fax_is_a_page_without_greys() -> None:
    fax = Image.new("L", (700, 900), 255)
    ImageDraw.Draw(fax).line((100, 100, 400, 100), 0)
    scan = fax.convert("RGB")
    ImageDraw.Draw(scan).rectangle((0, 800, 700, 900), "grey")

    assert [True, True, False, False] == [
        page.is_fax(each) for each in (fax, fax.convert("1"), scan, fax.crop((0, 0, 500, 500)))
    ]


@pytest.mark.parametrize("height", [12, 30, 90])
def test_shadows_bridge_the_broken_strokes_of_a_fax_at_any_size(height: int) -> None:
    piece = numpy.full((height, 10 * height, 3), 255, numpy.uint8)
    middle, gap = height // 2, max(1, height // 12)
    piece[middle : middle + gap, height : 9 * height] = 0
    piece[:, 5 * height : 5 * height + gap] = 255

    shaded = models.shaded(piece)

    assert (height, 10 * height + round(models.ROOM * height), 3) == shaded.shape
    assert 255 == shaded[:, 10 * height + height // 4 :].min(), "room behind the last letter"
    assert shaded[middle, 5 * height].max() < 235, "the gap is closed"
    assert 255 == shaded[0, height // 4].min(), "paper stays paper"


def test_what_the_page_shows_is_not_taken_for_markup() -> None:
    assert "\\##" == markdown([line("##", 0, 0)])
    assert "\\# not *a* heading \\<b>".replace("*", "\\*") == markdown([line("# not *a* heading <b>", 0, 0)])


def test_page_heads_well_apart_come_last_and_close_ones_stay() -> None:
    body = [line(f"line {n} of the text", 0, 200 + 30 * n) for n in range(9)]
    far, near, foot = line("Annual report", 0, 20), line("Annual report", 0, 170), line("1 / 3", 180, 2900, 40)

    assert ([far], body, [foot]) == layout.apart([far, *body, foot], 3000)
    assert ([], [near, *body], [foot]) == layout.apart([near, *body, foot], 3000)


def test_pieces_that_stand_one_under_the_other_are_a_table() -> None:
    rows = [("Port", "Ships"), ("Hamburg", "120"), ("Bremen", "80")]
    pieces = [line("Before it", 0, 0)]
    pieces += [line(text, 250 * x, 60 + 30 * y, 80) for y, row in enumerate(rows) for x, text in enumerate(row)]

    found = markdown([*pieces, line("after it", 0, 190)])

    assert "Before it\n\n| Port | Ships |\n| --- | --- |\n| Hamburg | 120 |\n| Bremen | 80 |\n\nafter it" == found


def test_lines_around_cells_make_a_table_and_text_outside_stays_outside() -> None:
    page = Image.new("RGB", (1000, 1000), "white")
    draw = ImageDraw.Draw(page)
    for x in (100, 400, 800):
        draw.line((x, 200, x, 350), "black", 2)
    for y in (200, 250, 300, 350):
        draw.line((100, y, 800, y), "black", 2)
    inside = [line(f"{column}{row}", 120 + 300 * column, 215 + 50 * row, 60) for row in range(3) for column in range(2)]
    outside = line("under the table", 100, 500)

    found, rest = grids.ruled(numpy.asarray(page)[:, :, ::-1].copy(), [*inside, outside])

    assert [[["00", "10"], ["01", "11"], ["02", "12"]]] == [grid.cells for grid in found]
    assert [outside] == rest


@pytest.mark.parametrize(
    ("text", "cover", "paths", "expected"),
    [
        ("", 0.0, 0, None),
        ("", 0.9, 0, "no text"),
        ("", 0.0, 400, "no text"),
        ("p. 7", 0.3, 0, "no text"),
        (documents.ENGLISH, 0.0, 0, None),
        (documents.ENGLISH, 1.0, 0, "scanned"),
        (documents.ENGLISH * 3, 1.0, 0, None),
        (documents.CHINESE * 9, 0.2, 9, None),
        ("\ue012\ue013\ue014 \ue015\ue016 " * 9, 0.0, 0, "garbled text"),
        ("(cid:12)(cid:7) " * 20, 0.0, 0, "garbled text"),
        ("Wkh txduwhuob uhsruw ghvfulehv krz wkh kduerxu juhz gxulqj wkh odvw bhdu " * 3, 0.0, 0, "garbled text"),
        ("Der Straßenbau größerer Brücken kostet weniger als gedacht. " * 4, 0.0, 0, None),
        ("Ελληνικό κείμενο χωρίς λατινικά γράμματα εδώ " * 5, 0.0, 0, None),
        ("NPSH HTML XML PDF TCP SSH RSYNC MTTF XKCD " * 9, 0.0, 0, None),
    ],
)
def test_when_the_picture_of_a_page_is_read(text: str, cover: float, paths: int, expected: str | None) -> None:
    assert expected == reason_for_ocr(text, picture_cover=cover, paths=paths)


@pytest.fixture(scope="module")
def two_columns() -> Image.Image:
    """A page of two columns; upright it reads `left 0 ... left 19 right 0 ... right 19`."""
    from reportlab.pdfgen.canvas import Canvas

    out = io.BytesIO()
    canvas = Canvas(out, pagesize=(595, 842))
    canvas.setFont("Helvetica", 11)
    for number in range(20):
        canvas.drawString(50, 760 - 30 * number, f"left column {number}, how the harbour grew")
        canvas.drawString(320, 760 - 30 * number, f"right column {number}, what the bridge cost")
    canvas.save()
    with documents.opened(out.getvalue()) as document:
        return document[0].render(scale=1.6).to_pil().convert("RGB")


@pytest.mark.parametrize(("turn", "skew"), [(0, 0.0), (0, 2.0), (0, -3.4), (90, 0.0), (180, 0.0), (270, 1.2)])
def test_pages_are_turned_and_straightened(two_columns: Image.Image, turn: int, skew: float) -> None:
    scanned = two_columns.rotate(skew, Image.Resampling.BICUBIC, fillcolor="white").rotate(turn, expand=True)

    quarters = upright.turns(scanned)
    found = upright.skew(scanned.rotate(90 * quarters, expand=True))

    assert turn == (360 - 90 * quarters) % 360
    assert -skew == pytest.approx(found, abs=0.15)


def test_an_empty_or_full_page_is_not_skewed() -> None:
    assert [0.0, 0.0] == [upright.skew(Image.new("RGB", (800, 1000), colour)) for colour in ("white", "black")]


def test_a_page_that_was_scanned_askew_and_on_its_side_is_read_in_order(
    bench: Any, two_columns: Image.Image, tmp_path: Path
) -> None:
    path = tmp_path / "scan.png"
    two_columns.rotate(2, Image.Resampling.BICUBIC, fillcolor="white").rotate(90, expand=True).save(path)

    page = bench.parse(path).pages[0]

    text = " ".join(page.markdown.split())
    places = [text.find(f"{side} column {number}") for side in ("left", "right") for number in range(20)]
    assert -1 not in places, text
    assert sorted(places) == places
    ink = Image.open(path).convert("L").point(lambda value: 255 if value < 128 else 0)
    outside, (wide, high) = ink.copy(), ink.size
    for block in page.blocks:
        assert block.bbox
        x0, y0, x1, y1 = block.bbox
        box = (round(x0 * wide), round(y0 * high), round(x1 * wide), round(y1 * high))
        assert ink.crop(box).getbbox(), "every box has letters in it"
        outside.paste(0, box)
    assert outside.histogram()[255] < 0.02 * ink.histogram()[255], "and hardly any letter is in none"
    assert not any(block.bbox[1] < 0.42 and 0.55 < block.bbox[3] for block in page.blocks if block.bbox), "two columns"


def test_text_on_a_flat_strip_has_its_place() -> None:
    strip = Image.new("RGB", (1000, 60), "white")
    ImageDraw.Draw(strip).text((20, 15), "harbour and bridge", fill="black", font=ImageFont.load_default(size=28))

    [(_, text, [(x0, y0, x1, y1)])] = page.read(strip).pieces

    assert "harbour and bridge" == text
    assert 0.0 <= x0 <= 0.02 < 0.2 < x1 < 0.4
    assert 0.0 <= y0 < 0.4 < 0.7 < y1 <= 1.0
