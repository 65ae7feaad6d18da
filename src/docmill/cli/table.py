"""Rows for people: aligned columns, without control characters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from unicodedata import east_asian_width

from docmill.cli.output import Out, printable


def write_table(out: Out, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(width, column)) for column in zip(head, *texts, strict=True)]
    out.line(out.style(_line(head, widths), bold=True))
    for row in texts:
        out.line(_line(row, widths))


def write_fields(out: Out, fields: dict[str, Any]) -> None:
    """One field per line; empty ones are left out."""
    shown = {name: _text(value) for name, value in fields.items() if value not in (None, "", [], {})}
    longest = max(map(len, shown), default=0)
    for name, value in shown.items():
        out.line(f"{out.style(f'{name:<{longest}}', bold=True)}  {value}")


def short_time(iso: str) -> str:
    """An ISO time as the reader's clock shows it."""
    return datetime.fromisoformat(iso).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def width(text: str) -> int:
    """Columns on a terminal: Chinese characters take two."""
    return len(text) if text.isascii() else sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def _text(cell: Any) -> str:
    return "-" if cell is None or cell == "" else printable(str(cell))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell + " " * (size - width(cell)) for cell, size in zip(cells, widths, strict=True))
    return "  ".join(padded).rstrip()
