"""Where text stands: boxes lie on their ink, and lines of Markdown that cannot be placed are placed nowhere."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from PIL import Image, ImageDraw

from docmill.adapters.engines.local.ocr import layout, writing
from docmill.adapters.engines.local.ocr.lines import Line
from docmill.adapters.engines.local.ocr.upright import Pose, straightened
from docmill.adapters.engines.local.pdf import blocks
from docmill.adapters.engines.markdown import tidy
from docmill.adapters.engines.places import FARTHEST, MOST, blocks_of
from docmill.core.parsed import Block, Box, Page
from support import documents
from unit.engines.conftest import Bench

BOX = (0.1, 0.2, 0.5, 0.3)
LEADING = 6
"""Points: so much higher than its letters a line may be."""
CROP = (40, 60, 520, 800)


def lines_of(page: Page, block: Block) -> str:
    return "\n".join(page.markdown.split("\n")[block.first : block.end])


def coloured(picture: Image.Image, colour: str) -> Image.Image:
    """Where the picture has ink of this colour."""
    bands = dict(zip(["red", "green", "blue"], picture.split(), strict=True))
    ink = Image.new("L", picture.size, 255)
    for name, band in bands.items():
        wanted = band.point(lambda value: 255 if value > 150 else 0 if value < 110 else 60)
        ink.paste(0, mask=wanted.point(lambda value: 255 - value) if name == colour else wanted)
    return ink


def share_inside(ink: Image.Image, box: Box, slack: int = 2) -> float:
    x0, y0, x1, y1 = (round(part * side) for part, side in zip(box, 2 * ink.size, strict=True))
    whole = ink.histogram()[255]
    return ink.crop((x0 - slack, y0 - slack, x1 + slack, y1 + slack)).histogram()[255] / whole


@pytest.mark.parametrize("crop", [None, CROP])
@pytest.mark.parametrize("angle", [0, 90, 180, 270])
def test_the_box_of_every_block_lies_on_its_ink(bench: Bench, tmp_path: Path, angle: int, crop: Box | None) -> None:
    path = documents.pdf_coloured(tmp_path / "a.pdf", angle, crop)

    (page,) = bench.parse(path).pages

    with documents.opened(path.read_bytes()) as document:
        picture = document[0].render(scale=2).to_pil().convert("RGB")
    for colour in ("red", "green", "blue"):
        (block,) = [one for one in page.blocks if f"{colour} " in lines_of(page, one).lower()]
        assert block.bbox is not None
        ink = coloured(picture, colour)
        assert share_inside(ink, block.bbox) > 0.98, f"{colour} is at {ink.getbbox()} of {ink.size}"
        edges = [part * side for part, side in zip(block.bbox, 2 * ink.size, strict=True)]
        assert edges == pytest.approx(ink.getbbox(), abs=2 * LEADING), "and hardly any paper around it"


def test_text_that_lies_on_its_side_has_a_place_too(bench: Bench, tmp_path: Path) -> None:
    (page,) = bench.parse(documents.pdf_turned(tmp_path / "a.pdf", 90)).pages

    text, figure, caption = page.blocks
    assert ("text", "figure", "caption") == (text.kind, figure.kind, caption.kind)
    assert text.bbox == pytest.approx((540 / 842, 90 / 595, 750 / 842, 0.76), abs=0.03)


def test_blocks_are_the_lines_of_the_markdown_in_their_order(bench: Bench, tmp_path: Path) -> None:
    page, columns, _ = bench.parse(documents.pdf_rich(tmp_path / "a.pdf")).pages

    assert ["heading", "text", "figure", "caption", "table"] == [block.kind for block in page.blocks]
    assert lines_of(page, page.blocks[2]).startswith("![Figure 1")
    assert "| Kiel | 35 | 900 |" == lines_of(page, page.blocks[-1]).split("\n")[-1]
    assert page.markdown.count("\n") + 1 == page.blocks[-1].end
    left, right = [block.bbox for block in columns.blocks]
    assert left
    assert right
    assert left[2] < 0.5 < right[0]


def test_words_that_stand_in_a_figure_or_beside_a_table_do_not_borrow_its_box() -> None:
    found = [
        blocks.Block("text", "above", box=BOX),
        blocks.Block("table", rows=[[blocks.Cell("a")]], box=BOX),
        blocks.Block("caption", "Table 1", box=(0.1, 0.4, 0.5, 0.5)),
    ]

    assert [(), (BOX,), ((0.1, 0.4, 0.5, 0.5),)] == [
        where for _, _, where in blocks.pieces(found, ["above", "| a |", "Table 1"])
    ]


def test_pieces_are_found_again_after_what_was_done_to_the_whole_page() -> None:
    text = "# One\n\n- a\n  - b\n\nOne\ntwo\n\nOne"
    pieces = [("heading", "# One"), ("item", "- a"), ("item", "  - b\x07"), ("text", "One\ntwo"), ("text", "One")]

    found = blocks_of(text, [(kind, piece, [BOX]) for kind, piece in pieces])

    assert [(0, 1), (2, 3), (3, 4), (5, 7), (8, 9)] == [(one.first, one.end) for one in found]
    assert [kind for kind, _ in pieces] == [one.kind for one in found]


@pytest.mark.parametrize(
    ("text", "pieces", "lines"),
    [
        ("", ["a"], []),
        ("a", [], []),
        ("a", ["", " ", "a"], [(0, 1)]),
        ("ab\n\nc", ["a", "c"], [(2, 3)]),  # no block ends in the middle of a line
        ("a\n\nb\n\nc", ["a", "lost", "c"], [(0, 1), (4, 5)]),
        ("a\n\nb", ["b", "a"], [(2, 3)]),  # and none stands before the one that it follows
        ("x " * FARTHEST + "\n\nfar", ["lost", "far"], []),
        ("a\n\na\n\na", ["a", "a", "a"], [(0, 1), (2, 3), (4, 5)]),
    ],
)
def test_what_cannot_be_found_is_left_out(text: str, pieces: list[str], lines: list[tuple[int, int]]) -> None:
    found = blocks_of(tidy(text), [("text", piece, [BOX]) for piece in pieces])

    assert lines == [(one.first, one.end) for one in found]


@pytest.mark.parametrize(
    ("box", "kept"),
    [
        (None, None),
        ((-0.2, 0.5, 0.5, 1.7), (0.0, 0.5, 0.5, 1.0)),
        ((0.5, 0.5, 0.5, 0.6), None),
        ((1.2, 0.1, 1.4, 0.2), None),
        ((0.123456, 0.1, 0.2, 0.2), (0.1235, 0.1, 0.2, 0.2)),
    ],
)
def test_a_box_is_inside_the_page_or_not_there(box: Box | None, kept: Box | None) -> None:
    assert [kept] == [one.bbox for one in blocks_of("a", [("text", "a", [box] if box else [])])]


def test_a_page_has_so_many_blocks_and_no_more() -> None:
    found = blocks_of("\n\n".join("a" * (2 * MOST)), [("text", "a", [BOX])] * (2 * MOST))

    assert (MOST, 2 * MOST - 1) == (len(found), found[-1].end)


def test_a_piece_is_settled_as_the_page_was() -> None:
    found = blocks_of("one\n\ntwo", [("text", "ONE", [BOX]), ("text", "two", [BOX])], str.casefold)

    assert [0, 2] == [one.first for one in found]


def test_pages_that_were_kept_before_have_no_blocks_and_new_ones_keep_them_short() -> None:
    page = Page(0, "a", None, (Block("text", 0, 1, BOX), Block("item", 2, 3)))

    assert () == msgspec.json.decode(b'{"index": 0, "markdown": "a", "damage": null}', type=Page).blocks
    kept = msgspec.json.encode(page)
    assert b'"blocks":[["text",0,1,[0.1,0.2,0.5,0.3]],["item",2,3,null]]' in kept
    assert page == msgspec.json.decode(kept, type=Page)


@pytest.mark.parametrize("degrees", [0.0, 2.0, -3.4])
@pytest.mark.parametrize("quarters", [0, 1, 2, 3])
def test_what_was_read_turned_and_straightened_is_found_on_the_scan(quarters: int, degrees: float) -> None:
    scan = Image.new("RGB", (600, 400), "white")
    ImageDraw.Draw(scan).rectangle((120, 60, 180, 90), fill="black")
    read = straightened(scan.rotate(90 * quarters, expand=True), degrees)
    frame = read.convert("L").point(lambda value: 255 if value < 128 else 0).getbbox()
    assert frame

    box = Pose(read.width, read.height, quarters, degrees).box(frame)

    assert box == pytest.approx((120 / 600, 60 / 400, 180 / 600, 90 / 400), abs=0.015)


def test_a_rim_that_was_put_around_a_thin_picture_is_taken_off() -> None:
    assert (0.0, 0.0, 1.0, 1.0) == Pose(232, 52, rim=16).box((16, 16, 216, 36))


def test_lines_of_a_scan_are_blocks_with_the_words_as_the_whole_page_spells_them() -> None:
    pieces = [
        Line("标题 A", 0, 0, 200, 40),
        Line("服务账号的 API 密钥可以在这里创建和使用", 0, 60, 400, 80),
        Line("相关限制(见API文档)", 0, 85, 300, 105),
        Line("• 第一项", 0, 180, 200, 200),
        Line("• 第二项", 0, 205, 200, 225),
    ]

    text, _, made = writing.write(layout.order(pieces))

    assert ["heading", "text", "item", "item"] == [kind for kind, _, _ in made]
    assert [(0, 60, 400, 105)] == made[1][2]
    found = blocks_of(text, [(kind, piece, [BOX]) for kind, piece, _ in made])
    assert [(0, 1), (2, 3), (4, 5), (5, 6)] == [(one.first, one.end) for one in found], text


def test_a_paragraph_that_goes_on_in_the_next_column_stands_in_two_places() -> None:
    column = [f"words of a line that is as long as its column {n}" for n in range(4)]
    lines = [Line(text, 0, 30 * n, 400, 30 * n + 20) for n, text in enumerate(column)]
    lines += [Line(text, 500, 30 * n, 900, 30 * n + 20) for n, text in enumerate(column)]

    text, _, made = writing.write(layout.order(lines))
    (piece,) = made
    found = blocks_of(text, [("text", piece[1], Pose(1000, 200).boxes(piece[2]))])

    assert [("text", 0, 1, (0.0, 0.0, 0.4, 0.55)), ("text", 0, 1, (0.5, 0.0, 0.9, 0.55))] == list(found)


def test_a_scan_says_where_its_lines_stand(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "scan.png"
    path.write_bytes(documents.text_image(["Quarterly report of the harbour", "- What the bridge did cost"]))

    (page,) = bench.parse(path).pages

    ink = Image.open(path).convert("L").point(lambda value: 255 if value < 128 else 0)
    assert 2 == len(page.blocks), page.markdown
    boxes = [block.bbox for block in page.blocks if block.bbox]
    assert 0.98 < sum(share_inside(ink, box) for box in boxes) < 1.02
    assert all(0.3 < share_inside(ink, box) for box in boxes)
