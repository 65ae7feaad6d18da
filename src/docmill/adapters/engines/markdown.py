"""Small things that every format needs to write Markdown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from docmill.core.links import LINE_LABEL

CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f"
BETWEEN_CJK = re.compile(f"(?<=[{CJK}]) +(?=[{CJK}])")
BULLET = re.compile(r"^([ \t]*)[•▪◦‣●∙·]\s+", re.MULTILINE)
WORD = re.compile(rf"[{CJK}]|[^\W_{CJK}]+")
BLANKED = str.maketrans({code: " " for code in range(128) if not chr(code).isalnum()})
"""For ASCII, which has no other letters: many times as quick as to look for words."""
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")
BAD_LINK = re.compile(
    rf"\[({LINE_LABEL})\]\(\s*+<?\s*+(?:javascript|vbscript|data|file):(?:[^()\n]++|\([^()\n]*+\))*+\)", re.IGNORECASE
)
PIPE_TABLE = re.compile(r"^\|.*\|[ \t]*\n\|[ :|-]+\|[ \t]*(?:\n\|.*\|[ \t]*)*$", re.MULTILINE)
BOLD_HEADING = re.compile(r"^(#{1,6} +)\*\*(.+?)\*\*$", re.MULTILINE)
BLANKS = re.compile(r"\n{3,}")
ENOUGH = 0.7
"""Less of the words than this, and the bare text is better than what has structure."""


def clean(text: str) -> str:
    """Text that every store takes: no control characters, no halves of surrogates, line ends as \\n."""
    text = CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return text if text.isascii() else text.encode("utf-8", "ignore").decode()


def tidy(markdown: str) -> str:
    """Real list marks, no gaps inside Chinese lines, at most one empty line."""
    # Most texts have little to mend, and to see that takes less time than to go through them.
    if "**" in markdown:
        markdown = BOLD_HEADING.sub(r"\1\2", markdown)
    if not markdown.isascii():
        markdown = BETWEEN_CJK.sub("", BULLET.sub(r"\1- ", markdown))
    if "\n\n\n" in markdown:
        markdown = BLANKS.sub("\n\n", markdown)
    return markdown.strip()


def disarm(markdown: str) -> str:
    """Links that would run something keep their text only."""
    return BAD_LINK.sub(r"\1", markdown) if "](" in markdown else markdown


def words(text: str) -> Counter[str]:
    text = text.casefold()
    return Counter(text.translate(BLANKED).split() if text.isascii() else WORD.findall(text))


def coverage(text: str, markdown: str) -> float:
    """How much of the text's words the Markdown has, 0-1."""
    wanted, found = words(text), words(markdown)
    total = wanted.total()
    return sum(map(min, wanted.values(), map(found.__getitem__, wanted))) / total if total else 1.0


def escape(text: str) -> str:
    """A line of plain text in which nothing is taken for markup."""
    return re.sub(r"([\\`*_\[\]<])", r"\\\1", " ".join(text.split()))


def alt(caption: str) -> str:
    return re.sub(r"[\[\]\s]+", " ", caption).strip()[:200]


def image_link(name: str, caption: str = "") -> str:
    return f"![{alt(caption)}](assets/{name})"


def cell(value: str) -> str:
    return value.replace("\\", "\\\\").replace("|", "\\|").replace("\n", "<br>").strip()


def table(rows: Sequence[Sequence[str]]) -> str:
    """A pipe table; the first row is its head."""
    width = max((len(row) for row in rows), default=0)
    if not width:
        return ""

    def line(row: Iterable[str]) -> str:
        cells = [cell(value) for value in row]
        return "| " + " | ".join(cells + [""] * (width - len(cells))) + " |"

    return "\n".join([line(rows[0]), "| " + " | ".join(["---"] * width) + " |", *(line(row) for row in rows[1:])])


def pipe_tables(markdown: str) -> Iterator[tuple[str, list[list[str]]]]:
    """Every pipe table: its first line, and its cells."""
    for found in PIPE_TABLE.finditer(markdown):
        lines = found[0].split("\n")
        cells = [re.split(r"(?<!\\)\|", line.strip().strip("|")) for line in [lines[0], *lines[2:]]]
        yield lines[0], [[value.strip().replace("\\|", "|") for value in row] for row in cells]


def html_table(rows: Sequence[Sequence[str]]) -> str:
    from html import escape

    def line(row: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(value)}</{tag}>" for value in row) + "</tr>"

    body = [line(rows[0], "th")] + [line(row, "td") for row in rows[1:]] if rows else []
    return "<table>\n" + "\n".join(body) + "\n</table>\n"
