"""How near a result is to the truth, 0-1: text in order (NID), tables (TEDS), headings (MHS); and error rates."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from xml.etree import ElementTree

from apted import APTED, Config
from rapidfuzz.distance import Indel, Levenshtein

from . import markup
from .markup import Cell, Table

LARGEST_TREE = 1500
"""Nodes. The edit distance takes minutes beyond it; such tables are compared row by row."""


@dataclass(slots=True)
class Node:
    kind: str
    text: str = ""
    span: tuple[int, int] = (1, 1)
    children: list[Node] = field(default_factory=list)

    def size(self) -> int:
        return 1 + sum(child.size() for child in self.children)


class Costs(Config):
    """A change of kind or span costs one, a change of text as much as of it changed."""

    def rename(self, one: Node, other: Node) -> float:
        if one.kind != other.kind or one.span != other.span:
            return 1.0
        return Levenshtein.normalized_distance(one.text, other.text) if one.text or other.text else 0.0

    def children(self, node: Node) -> list[Node]:
        return node.children


def similarity(one: Node, other: Node) -> float:
    sizes = one.size(), other.size()
    distance = APTED(one, other, Costs()).compute_edit_distance()
    return max(0.0, 1.0 - distance / max(sizes))


def nid(truth: str, found: str) -> float | None:
    wanted = markup.ordered(truth)
    return Indel.normalized_similarity(wanted, markup.ordered(found)) if wanted else None


def plain_nid(truth: str, found: str) -> float:
    """The same for formats whose truth was written by other rules than the result: no marks on either side."""
    return float(Indel.normalized_similarity(markup.plain(truth), markup.plain(found)))


def table_node(table: Table) -> Node:
    rows = [Node("tr", children=[Node("td", cell.text, (cell.rows, cell.columns)) for cell in row]) for row in table]
    return Node("table", children=rows)


def teds(truth: list[Table], found: list[Table]) -> float | None:
    """All tables of a document as one tree, so that a missing or an invented one costs."""
    if not truth:
        return None
    if not found:
        return 0.0
    wanted, got = ([table_node(table) for table in side] for side in (truth, found))
    if len(wanted) == len(got) == 1:
        pair = wanted[0], got[0]
    else:
        pair = Node("tables", children=wanted), Node("tables", children=got)
    if max(side.size() for side in pair) > LARGEST_TREE:
        return rowwise(*pair)
    return similarity(*pair)


def rowwise(one: Node, other: Node) -> float:
    """For trees too large to compare whole: the rows as one text each, aligned."""

    def lines(node: Node) -> list[str]:
        if node.kind == "tr":
            return ["\t".join(cell.text for cell in node.children)]
        return [line for child in node.children for line in lines(child)]

    return float(Indel.normalized_similarity("\n".join(lines(one)), "\n".join(lines(other))))


def mhs(truth: str, found: str) -> float | None:
    """Headings and the text under them as a tree; levels count alike, as in opendataloader-bench."""
    wanted, got = markup.sections(truth), markup.sections(found)
    if not any(title is not None for title, _ in wanted):
        return None
    if not any(title is not None for title, _ in got):
        return 0.0
    return similarity(section_tree(wanted), section_tree(got))


def section_tree(sections: list[tuple[str | None, str]]) -> Node:
    root = Node("document")
    for title, text in sections:
        if title is not None:
            root.children.append(Node("heading", title))
        if text:
            root.children.append(Node("content", text))
    return root


def document(truth: str, found: str) -> dict[str, float]:
    """Every score that applies, and their mean."""
    scores = {"nid": nid(truth, found), "teds": teds(markup.tables(truth), markup.tables(found))}
    scores["mhs"] = mhs(truth, found)
    known = {name: score for name, score in scores.items() if score is not None}
    return known | ({"overall": fmean(known.values())} if known else {})


def tables_of_xml(path: Path, *, shifted: bool = False) -> list[Table]:
    """The ICDAR truth: one table per region, empty places filled so that rows are whole.

    A third of the files count rows and columns from one, not from nought; taken as they are, their tables get an empty
    first row and column that no page shows. With *shifted*, each table begins with its first cell.
    """
    found = []
    for region in ElementTree.parse(path).getroot().iter("region"):
        cells: dict[tuple[int, int], Cell] = {}
        for cell in region.iter("cell"):
            row, column = int(cell.get("start-row", 0)), int(cell.get("start-col", 0))
            rows = int(cell.get("end-row", row)) - row + 1
            columns = int(cell.get("end-col", column)) - column + 1
            cells[row, column] = Cell(markup.folded(cell.findtext("content") or ""), rows, columns)
        top, left = (min((place[side] for place in cells), default=0) if shifted else 0 for side in (0, 1))
        found.append(whole_rows({(row - top, column - left): cell for (row, column), cell in cells.items()}))
    return [table for table in found if table]


def whole_rows(cells: dict[tuple[int, int], Cell]) -> Table:
    taken = {
        (row + down, column + right)
        for (row, column), cell in cells.items()
        for down in range(cell.rows)
        for right in range(cell.columns)
    }
    if not taken:
        return []
    height, width = (max(place[side] for place in taken) + 1 for side in (0, 1))
    return [
        [
            cells.get((row, column), Cell(""))
            for column in range(width)
            if (row, column) in cells or (row, column) not in taken
        ]
        for row in range(height)
    ]


def adjacency(truth: list[Table], found: list[Table]) -> float:
    """F1 of "stands beside" and "stands above" between cells that are not empty."""
    wanted, got = relations(truth), relations(found)
    right = (wanted & got).total()
    return 2 * right / (wanted.total() + got.total()) if wanted and got else 0.0


def relations(tables: list[Table]) -> Counter[tuple[str, str, str]]:
    found: Counter[tuple[str, str, str]] = Counter()
    for table in tables:
        grid = grid_of(table)
        height, width = (max((place[side] for place in grid), default=-1) + 1 for side in (0, 1))
        lines = [[grid.get((row, column)) for column in range(width)] for row in range(height)]
        for side, runs in (("right", lines), ("below", [list(line) for line in zip(*lines, strict=True)])):
            seen: set[tuple[int, int]] = set()
            for run in runs:
                texts = [cell for cell in run if cell is not None and cell.text]
                for one, other in pairwise(texts):
                    if one is not other and (id(one), id(other)) not in seen:
                        seen.add((id(one), id(other)))
                        found[squeezed(one.text), squeezed(other.text), side] += 1
    return found


def grid_of(table: Table) -> dict[tuple[int, int], Cell]:
    grid: dict[tuple[int, int], Cell] = {}
    for row, cells in enumerate(table):
        column = 0
        for cell in cells:
            while (row, column) in grid:
                column += 1
            cell = Cell(cell.text, cell.rows, cell.columns)
            grid |= {
                (row + y, column + x): cell for y in range(min(cell.rows, 500)) for x in range(min(cell.columns, 100))
            }
    return grid


def squeezed(text: str) -> str:
    return "".join(letter for letter in text.casefold() if letter.isalnum())


CJK_GAP = re.compile(r"(?<=[\u3000-\u9fff\uff00-\uffef]) (?=[\u3000-\u9fff\uff00-\uffef])")


def cer(truth: str, found: str, *, joined: bool = False, bare: bool = False) -> tuple[float, float]:
    """Errors per character in reading order, and of the words regardless of their order.

    The truth is what the page shows, not Markdown: a line of code that begins with # is no heading. It has the page's
    line ends, which become blanks; Chinese is written without. With *joined*, blanks between two Chinese characters
    count on neither side. With *bare*, no blanks count at all, and wide and narrow marks are the same: only so do plain
    readings of an OCR come out at the rates that the corpus gives for them.
    """
    wanted, got = markup.printed(truth), markup.shown(found)
    if bare:
        wanted, got = ("".join(unicodedata.normalize("NFKC", text).split()) for text in (wanted, got))
    if joined:
        wanted, got = CJK_GAP.sub("", wanted), CJK_GAP.sub("", got)
    ordered = Levenshtein.distance(wanted, got) / max(1, len(wanted))
    return ordered, bag_distance(wanted, got) / max(1, len(wanted))


def bag_distance(wanted: str, got: str) -> int:
    """Characters that are missing or too many, whichever is more; where they stand does not matter."""
    one, other = Counter(wanted), Counter(got)
    return max((one - other).total(), (other - one).total())
