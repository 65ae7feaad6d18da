"""The scores that the quality benchmark prints: each one can be told from the others."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def scores(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import quality.scores

    yield quality.scores
    for name in [name for name in sys.modules if name.startswith("quality")]:
        del sys.modules[name]


CELLS = "<table><tr><td>Port</td><td>Ships</td></tr><tr><td>Kiel</td><td>35</td></tr></table>"
TRUTH = f"# Harbour\n\nShips come and go.\n\n{CELLS}"
SAME = "## **Harbour**\n\nShips come\nand go.\n\n| Port | Ships |\n| --- | --- |\n| Kiel | 35 |"


def test_the_same_document_in_other_marks_is_perfect(scores):
    found = scores.document(TRUTH, SAME)

    assert found["teds"] == pytest.approx(1.0)
    assert found["mhs"] == pytest.approx(1.0)
    assert found["nid"] > 0.98


def test_a_wrong_cell_costs_less_than_a_missing_table(scores):
    wrong = scores.document(TRUTH, SAME.replace("35", "90"))
    missing = scores.document(TRUTH, SAME.partition("|")[0])

    assert 0.5 < wrong["teds"] < 1.0
    assert 0.0 == missing["teds"]


def test_a_heading_that_became_a_paragraph_costs(scores):
    assert 0.0 == scores.mhs(TRUTH, SAME.replace("## ", ""))
    assert scores.mhs("no heading here", SAME) is None


def test_relations_of_cells_know_neighbours(scores):
    tables = scores.markup.tables

    assert scores.adjacency(tables(TRUTH), tables(SAME)) == pytest.approx(1.0)
    assert scores.adjacency(tables(TRUTH), tables("| Port Ships |\n|---|\n| Kiel 35 |")) < 0.1


def test_columns_read_across_cost_only_where_order_counts(scores):
    ordered, loose = scores.cer("one two three four", "three four one two")

    assert ordered > 0.4
    assert 0.0 == loose


def test_a_cell_that_begins_with_a_hash_is_no_heading(scores):
    assert scores.mhs("text\n<table>\n<tr><td>\n # ships\n</td></tr>\n</table>", "text") is None


def test_line_ends_inside_chinese_can_be_left_out_of_account(scores):
    truth, found = "此命令初\n始化 Pod 节点", "此命令初始化 Pod 节点"

    assert scores.cer(truth, found)[0] > 0.0
    assert (0.0, 0.0) == scores.cer(truth, found, joined=True)
    assert scores.cer(truth, found.replace(" ", ""), joined=True)[0] > 0.0
    assert (0.0, 0.0) == scores.cer(truth, found.replace(" ", ""), bare=True)
    assert (0.0, 0.0) == scores.cer("一（二）：3", "一(二): 3", bare=True)
    assert scores.cer("一（二）", "一(三)", bare=True)[0] > 0.0


def test_the_truth_of_a_scan_is_no_markdown(scores):
    truth = "• list\n# a_b_c comment\n##\n<b> tag"

    assert (0.0, 0.0) == scores.cer(truth, "- list\n\n\\# a\\_b\\_c comment\n\n\\##\n\n\\<b> tag")
    assert scores.cer(truth, "- list\n\n# a\\_b\\_c comment\n\n\\##\n\n\\<b> tag")[0] > 0.0


def test_a_truth_that_counts_from_one_gets_no_empty_row_and_column(scores, tmp_path):
    cell = '<cell start-row="{0}" start-col="{1}"><content>{2}</content></cell>'
    cells = "".join(cell.format(*each) for each in ((1, 1, "Port"), (1, 2, "Ships"), (2, 1, "Kiel"), (2, 2, "35")))
    path = tmp_path / "truth.xml"
    path.write_text(f"<document><table><region>{cells}</region></table></document>")

    (shifted,) = scores.tables_of_xml(path, shifted=True)

    assert [["Port", "Ships"], ["Kiel", "35"]] == [[each.text for each in row] for row in shifted]
    assert ["", "", ""] == [each.text for each in scores.tables_of_xml(path)[0][0]]
