"""Tables of providers: HTML of strangers becomes plain rows, and these become HTML and Markdown of ours."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from html.parser import HTMLParser

MOST_SPAN = 1000


@dataclass(slots=True)
class Cell:
    text: str = ""
    rows: int = 1
    columns: int = 1


@dataclass(slots=True)
class _Reader(HTMLParser):
    rows: list[list[Cell]] = field(default_factory=list)
    _open: Cell | None = None
    _hidden: int = 0

    def __post_init__(self) -> None:
        HTMLParser.__init__(self, convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            given = dict(attrs)
            self._open = Cell("", _span(given.get("rowspan")), _span(given.get("colspan")))
            if not self.rows:
                self.rows.append([])
            self.rows[-1].append(self._open)
        elif tag in ("script", "style"):
            self._hidden += 1
        elif tag == "br" and self._open:
            self._open.text += " "

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._open = None
        elif tag in ("script", "style"):
            self._hidden = max(0, self._hidden - 1)

    def handle_data(self, data: str) -> None:
        if self._open is not None and not self._hidden:
            self._open.text += data


def rows_of(html: str) -> list[list[Cell]]:
    reader = _Reader()
    reader.feed(html)
    reader.close()
    for row in reader.rows:
        for cell in row:
            cell.text = " ".join(cell.text.split())
    return [row for row in reader.rows if row]


def as_html(rows: list[list[Cell]]) -> str:
    lines = "".join(f"<tr>{''.join(_html_cell(cell) for cell in row)}</tr>" for row in rows)
    return f"<table>{lines}</table>"


def as_markdown(rows: list[list[Cell]]) -> str:
    """A table of pipes; cells that span others keep their text in the first place."""
    if not rows:
        return ""
    grid = _grid(rows)
    width = max(len(row) for row in grid)
    lines = [_line([*row, *[""] * (width - len(row))]) for row in grid]
    return "\n".join([lines[0], _line(["---"] * width), *lines[1:]])


def _grid(rows: list[list[Cell]]) -> list[list[str]]:
    taken: dict[tuple[int, int], str] = {}
    for y, row in enumerate(rows):
        x = 0
        for cell in row:
            while (y, x) in taken:
                x += 1
            for down in range(min(cell.rows, len(rows) - y)):
                for right in range(cell.columns):
                    taken[y + down, x + right] = cell.text if not down and not right else ""
            x += cell.columns
    width = max((x for _, x in taken), default=-1) + 1
    return [[taken.get((y, x), "") for x in range(width)] for y in range(len(rows))]


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _html_cell(cell: Cell) -> str:
    rows = f' rowspan="{cell.rows}"' if cell.rows > 1 else ""
    columns = f' colspan="{cell.columns}"' if cell.columns > 1 else ""
    return f"<td{rows}{columns}>{escape(cell.text)}</td>"


def _span(value: str | None) -> int:
    return min(max(int(value), 1), MOST_SPAN) if value and value.isdecimal() and len(value) < 9 else 1
