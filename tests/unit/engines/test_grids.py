"""Long tables: written without a tree of their cells, and the same as with one."""

import io
import random
from typing import Any

import docvortex
import openpyxl
import pytest
from openpyxl.styles import Font

from docmill.adapters.engines.local import vortex
from docmill.adapters.engines.local.grids import LONG, grid_of

TEXTS = [
    "a|b",
    "a & b",
    "<i>x</i>",
    "back\\slash",
    "two\nlines",
    "  much   room ",
    "&lt;",
    "**bold**",
    "",
    "Überschuß",
    "表格 一",
]


def sheet(rows: int, change: Any = None) -> tuple[Any, Any]:
    chance = random.Random(rows)
    book = openpyxl.Workbook()
    page = book.active
    page.append(["Name", "Number", "Text"])
    for n in range(rows - 1):
        page.append([f"row {n}", n * 1.5, chance.choice(TEXTS)])
    if change:
        change(page)
    out = io.BytesIO()
    book.save(out)
    middle = docvortex.parse(out.getvalue(), file_suffix="xlsx").middle_json
    return middle, middle.pages[0]


def bold(page: Any) -> None:
    for cell in page[1]:
        cell.font = Font(bold=True)
    page["A9"].font = Font(italic=True)


def linked(page: Any) -> None:
    page["C5"].hyperlink = "http://example.com/a(b)|c"
    page["C5"].value = "a | link"


def merged(page: Any) -> None:
    page.merge_cells("A7:B8")


@pytest.mark.parametrize("change", [None, bold, linked, merged], ids=["plain", "bold", "linked", "merged"])
def test_a_long_table_comes_out_as_from_the_tree(change: Any) -> None:
    middle, page = sheet(LONG + 20, change)

    assert vortex._rendered(middle, page, None) == vortex.render(middle, page)


def test_plain_cells_do_not_go_through_the_tree() -> None:
    _, page = sheet(LONG + 20, linked)
    [(_, html)] = vortex.tables(page)

    grid = grid_of(html)

    assert grid
    assert 1 == len(grid.rest)


@pytest.mark.parametrize(
    "html",
    [
        "no table",
        "<table><tr><td>a</td></tr></table><table><tr><td>b</td></tr></table>",
        "<table><tr><td><table><tr><td>in it</td></tr></table></td></tr></table>",
        '<table><tr><td colspan="2">a</td></tr></table>',
        "<table><thead><tr><th>a</th></tr></thead></table>",
        "<table><tr></tr></table>",
        "<table><tr><td>a</td>between</tr></table>",
        "<table>before<tr><td>a</td></tr></table>",
    ],
)
def test_what_is_more_than_rows_of_cells_is_left_to_the_tree(html: str) -> None:
    assert grid_of(html, long=0) is None


def test_what_the_tree_made_no_list_of_is_told() -> None:
    grid = grid_of("<table><tr><td>a</td><td><b>b</b></td></tr></table>", long=0)

    assert grid
    assert grid.put_into(f"before\n\n{grid.html}") is None
    assert grid.put_into(f"| {grid.mark} |\n| --- |") is None
    assert "before\n\n| a | **b** |\n| --- | --- |\n\nafter" == grid.put_into(
        f"before\n\n| {grid.mark} |\n| --- |\n| **b** |\n\nafter"
    )
