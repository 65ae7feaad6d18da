"""What is going on: a live display on a terminal, plain lines everywhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from docmill.cli.output import Out, printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Board(Protocol):
    def show(self, name: str, done: float, total: float | None, note: str = "") -> None:
        """Something is under way; *note* says how far."""
        ...

    def hide(self, name: str) -> None: ...

    def line(self, text: str) -> None:
        """A line that stays."""
        ...


@contextmanager
def board(out: Out, *, lines: bool = True) -> Iterator[Board]:
    """The display. Without *lines* only what moves is shown: standard output belongs to JSON then."""
    if not is_terminal():
        yield Plain(out, lines=lines)
        return
    # Only here, because most runs of the command have no use for it.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield Live(progress, out, lines=lines)


def is_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class Plain:
    def __init__(self, out: Out, *, lines: bool) -> None:
        self._out = out
        self._lines = lines

    def show(self, name: str, done: float, total: float | None, note: str = "") -> None:
        pass

    def hide(self, name: str) -> None:
        pass

    def line(self, text: str) -> None:
        if self._lines:
            self._out.line(text)
            self._out.flush()


class Live:
    def __init__(self, progress: Progress, out: Out, *, lines: bool) -> None:
        self._progress = progress
        self._out = out
        self._lines = lines
        self._shown: dict[str, TaskID] = {}

    def show(self, name: str, done: float, total: float | None, note: str = "") -> None:
        if name not in self._shown:
            self._shown[name] = self._progress.add_task(shortened(name), total=total, note=note)
        self._progress.update(self._shown[name], completed=done, total=total, note=note)

    def hide(self, name: str) -> None:
        if (shown := self._shown.pop(name, None)) is not None:
            self._progress.remove_task(shown)

    def line(self, text: str) -> None:
        if not self._lines:
            return
        if sys.stdout.isatty():
            self._progress.console.print(_ansi(text), soft_wrap=True)
        else:
            self._out.line(text)
            self._out.flush()


def shortened(name: str, width: int = 40) -> str:
    """The end of a long path tells more than its beginning."""
    name = printable(name)
    return name if len(name) <= width else "…" + name[1 - width :]


def _ansi(text: str) -> Any:
    from rich.text import Text

    return Text.from_ansi(text)
