"""Tables that Markdown cannot write as they are: a grid with each text once, if that says the same, else small HTML."""

from __future__ import annotations

import re
from typing import Any

from ..markdown import table

TAG = re.compile(r"<(/?)table\b[^<>]{0,2000}>", re.IGNORECASE)
GAPS = re.compile(r">\s+<")
ONE_PARAGRAPH = re.compile(
    r"(<t[dh]\b[^<>]{0,300}>)\s*<p>((?:(?!</?p>|</t[dh]>).){0,20000})</p>\s*(?=</t[dh]>)", re.DOTALL
)
EMPTY_PARAGRAPH = re.compile(r"(<t[dh]\b[^<>]{0,300}>)\s*<p>\s*</p>\s*(?=</t[dh]>)")
PARAGRAPHS = re.compile(r"</p>\s*<p>")
INLINE = {"strong": "**", "b": "**", "em": "*", "i": "*", "del": "~~", "s": "~~", "code": "`"}
PLAIN = frozenset({"p", "br", "span", "u", "sub", "sup", "a", "small", "mark", "font", "div", *INLINE})
"""Elements that a cell of a Markdown table can hold."""
MAX_GRID_CELLS = 500_000
MAX_SPAN = 1000


def compact_tables(markdown: str) -> str:
    """The page with its HTML tables made short."""
    if "<table" not in markdown:
        return markdown
    parts: list[str] = []
    end = 0
    for start, stop in outer_tables(markdown):
        parts += [markdown[end:start], as_grid(markdown[start:stop]) or lean(markdown[start:stop])]
        end = stop
    return "".join([*parts, markdown[end:]])


def outer_tables(text: str) -> list[tuple[int, int]]:
    """Where tables begin and end that are in no other table."""
    found: list[tuple[int, int]] = []
    depth = start = 0
    for tag in TAG.finditer(text):
        if not tag[1]:
            if not depth:
                start = tag.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                found.append((start, tag.end()))
    return found


def lean(html: str) -> str:
    """The same table without paragraphs around what is one line, and without space between its tags."""
    html = GAPS.sub("><", html)
    html = ONE_PARAGRAPH.sub(r"\1\2", EMPTY_PARAGRAPH.sub(r"\1", html))
    return (
        html
        if "<pre" in html
        else PARAGRAPHS.sub("<br>", html).replace("<td><p>", "<td>").replace("</p></td>", "</td>")
    )


def as_grid(html: str) -> str | None:
    """A pipe table; a text that spans cells stands in the first of them. None: it holds more than lines of text."""
    from lxml import html as parser

    root = parser.fragment_fromstring(html, create_parent="div").find("table")
    if root is None or any(
        str(one.tag) not in PLAIN for cell in root.iter("td", "th") for one in cell.iterdescendants()
    ):
        return None
    rows = [[one for one in row if one.tag in ("td", "th")] for row in root.iter("tr")]
    grid = laid_out(rows)
    if grid is None:
        return None
    grid = [row for row in grid if any(row)]
    used = [column for column in range(max(map(len, grid), default=0)) if any(row[column] for row in grid)]
    return "\n\n" + table([[row[column] for column in used] for row in grid]) + "\n\n" if grid else ""


def laid_out(rows: list[list[Any]]) -> list[list[str]] | None:
    taken: dict[tuple[int, int], str] = {}
    for y, row in enumerate(rows):
        x = 0
        for cell in row:
            while (y, x) in taken:
                x += 1
            down, right = span(cell.get("rowspan")), span(cell.get("colspan"))
            if len(taken) + down * right > MAX_GRID_CELLS:
                return None
            for y_more in range(min(down, len(rows) - y)):
                for x_more in range(right):
                    taken.setdefault((y + y_more, x + x_more), "")
            taken[y, x] = inline(cell)
            x += right
    width = max((x for _, x in taken), default=-1) + 1
    if width * len(rows) > MAX_GRID_CELLS:
        return None
    return [[taken.get((y, x), "") for x in range(width)] for y in range(len(rows))]


def span(value: str | None) -> int:
    return min(max(int(value), 1), MAX_SPAN) if value and value.isdecimal() and len(value) < 9 else 1


def inline(element: Any) -> str:
    """The cell's text as Markdown, its paragraphs as lines."""
    text = escape_text(element.text)
    for child in element:
        inner = inline(child)
        if child.tag == "br":
            inner = "\n"
        elif child.tag == "p":
            inner = f"\n{inner}\n"
        elif child.tag == "a" and child.get("href") and inner.strip():
            inner = f"[{inner.strip()}]({child.get('href')})"
        elif child.tag in INLINE and inner.strip():
            inner = f"{INLINE[child.tag]}{inner.strip()}{INLINE[child.tag]}"
        text += inner + escape_text(child.tail)
    lines = (" ".join(line.split()) for line in text.split("\n")) if element.tag in ("td", "th") else None
    return "\n".join(filter(None, lines)) if lines is not None else text


def escape_text(text: str | None) -> str:
    """Line ends in HTML are spaces."""
    return " ".join(re.split(r"[\r\n]+", text or "")).replace("&", "&amp;").replace("<", "&lt;")
