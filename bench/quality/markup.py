"""Markdown as the scores see it: plain text, tables as rows of cells, headings with what stands under them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html.parser import HTMLParser

EMPHASIS = re.compile(r"(\*{1,3}|~~|__|_)(\S(?:.*?\S)?)\1", re.DOTALL)
HTML_TABLE = re.compile(r"<table\b.*?</table>", re.IGNORECASE | re.DOTALL)
PIPE_TABLE = re.compile(r"^[ \t]*\|.*\|[ \t]*\n[ \t]*\|[ :|-]+\|[ \t]*(?:\n[ \t]*\|.*\|[ \t]*)*", re.MULTILINE)
IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
LINK = re.compile(r"\[([^\]]*)\]\([^)\s]*\)")
HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t]*#*$")
SETEXT = re.compile(r"^(.+)\n(=+|-{3,})[ \t]*$", re.MULTILINE)
MARKS = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+|>[ \t]?|```.*$|[-*+•▪◦‣●·][ \t]+)", re.MULTILINE)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
FRONT = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
TAG = re.compile(r"</?(?:br|b|i|em|strong|sup|sub|u|p|div|span|img|a|details|summary|figure)\b[^>]*>", re.IGNORECASE)
LIST_MARKS = re.compile(r"^[ \t]*[-*+•▪◦‣●·][ \t]+", re.MULTILINE)
HELD = 0xE000
"""Private letters stand in for those behind a backslash."""
ESCAPE = re.compile(r"\\([\\`*_{}\[\]()#+\-.!|<>~$&])")


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    rows: int = 1
    columns: int = 1


Table = list[list[Cell]]


def folded(text: str) -> str:
    return " ".join(text.split())


def without_emphasis(text: str) -> str:
    while (plain := EMPHASIS.sub(r"\2", text)) != text:
        text = plain
    return text


def plain(markdown: str) -> str:
    """The words in their order: no marks, tables as rows of text."""
    text = COMMENT.sub(" ", FRONT.sub("", markdown))
    text = LINK.sub(r"\1", IMAGE.sub(" ", text))
    text = HTML_TABLE.sub(lambda found: as_text(read_html(found[0])), text)
    text = PIPE_TABLE.sub(lambda found: as_text([read_pipes(found[0])]), text)
    text = MARKS.sub("", TAG.sub(" ", text))
    return folded(ESCAPE.sub(r"\1", without_emphasis(text)))


def shown(markdown: str) -> str:
    """What a reader of the Markdown sees: as `plain`, but a letter behind a backslash is no mark."""
    held = ESCAPE.sub(lambda found: chr(HELD + ord(found[1])), markdown)
    return "".join(chr(ord(letter) - HELD) if HELD <= ord(letter) < HELD + 128 else letter for letter in plain(held))


def printed(text: str) -> str:
    """A page's own text, in which only the marks of lists are none of it: Markdown writes them its own way."""
    return folded(LIST_MARKS.sub("", text))


def ordered(markdown: str) -> str:
    """What opendataloader-bench compares: emphasis and pictures gone, every table as bare HTML, other marks kept."""
    text = LINK.sub(r"\1", IMAGE.sub(" ", COMMENT.sub(" ", FRONT.sub("", markdown))))
    text = HTML_TABLE.sub(lambda found: "".join(map(as_html, read_html(found[0]))), text)
    text = PIPE_TABLE.sub(lambda found: as_html(read_pipes(found[0])), text)
    return folded(without_emphasis(text))


def as_html(table: Table) -> str:
    rows = ("".join(f"<td>{cell.text}</td>" for cell in row) for row in table)
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def as_text(tables: list[Table]) -> str:
    return "\n" + "\n".join(" ".join(cell.text for cell in row) for table in tables for row in table) + "\n"


def tables(markdown: str) -> list[Table]:
    """Every table in the order of the text, however it is written."""
    found: list[tuple[int, Table]] = []
    for match in HTML_TABLE.finditer(markdown):
        found += [(match.start(), table) for table in read_html(match[0])]
    outside = HTML_TABLE.sub(lambda match: " " * len(match[0]), markdown)
    found += [(match.start(), read_pipes(match[0])) for match in PIPE_TABLE.finditer(outside)]
    return [table for _, table in sorted(found, key=lambda pair: pair[0]) if table]


def read_pipes(text: str) -> Table:
    rows: Table = []
    for number, line in enumerate(text.strip().split("\n")):
        if number == 1:
            continue
        inner = line.strip().removeprefix("|").removesuffix("|")
        rows.append([Cell(cell_text(value)) for value in re.split(r"(?<!\\)\|", inner)])
    return rows


def cell_text(text: str) -> str:
    return folded(ESCAPE.sub(r"\1", without_emphasis(TAG.sub(" ", LINK.sub(r"\1", IMAGE.sub(" ", text))))))


class TableReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: list[Table] = []
        self._cell: list[str] | None = None
        self._span = (1, 1)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self._close()
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self._close()
            self.tables[-1].append([])
        elif tag in ("td", "th") and self.tables:
            self._close()
            given = dict(attrs)
            self._span = (number(given.get("rowspan")), number(given.get("colspan")))
            self._cell = []
        elif self._cell is not None:
            self._cell.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "tr", "table"):
            self._close()

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)

    def _close(self) -> None:
        if self._cell is not None:
            if not self.tables[-1]:
                self.tables[-1].append([])
            self.tables[-1][-1].append(Cell(cell_text("".join(self._cell)), *self._span))
        self._cell = None


def number(text: str | None) -> int:
    return max(1, int(text)) if text and text.isdigit() else 1


def read_html(text: str) -> list[Table]:
    reader = TableReader()
    reader.feed(text)
    reader.close()
    return [[row for row in table if row] for table in reader.tables]


def sections(markdown: str) -> list[tuple[str | None, str]]:
    """Headings with the text under them; the first has None when text comes before any heading."""
    # A cell may begin with a "#" that makes no heading: tables become one line each.
    text = HTML_TABLE.sub(lambda found: folded(found[0]), COMMENT.sub("", FRONT.sub("", markdown)))
    lines = SETEXT.sub(r"# \1", text).split("\n")
    found: list[tuple[str | None, list[str]]] = [(None, [])]
    for line in lines:
        match = HEADING.match(line.strip())
        if match:
            found.append((cell_text(match[1]), []))
        else:
            found[-1][1].append(line)
    return [(title, text) for title, body in found if (text := ordered("\n".join(body))) or title is not None]
