"""Printing for people and programs: colours on a terminal only, and no fuss when the reader goes away."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import click

EXIT_USAGE = 2
EXIT_VIOLATIONS = 3
EXIT_READER_GONE = 141  # what a shell reports for a program that SIGPIPE ended


class Out:
    """Standard output as bytes, so that a value of 100 MB is not decoded and encoded again."""

    def __init__(self, stream: BinaryIO, *, colour: bool) -> None:
        self._stream = stream
        self._colour = colour

    def line(self, text: str) -> None:
        self.write(text.encode("utf-8", "backslashreplace"), b"\n")

    def json(self, value: Any) -> None:
        self.write(json_bytes(value), b"\n")

    def write(self, *parts: bytes) -> None:
        for part in parts:
            self._stream.write(part)

    def flush(self) -> None:
        self._stream.flush()

    def style(self, text: str, **how: Any) -> str:
        return click.style(text, **how) if self._colour else text


@contextmanager
def standard_output() -> Iterator[Out]:
    stream = sys.stdout.buffer
    out = Out(stream, colour=stream.isatty() and not os.environ.get("NO_COLOR"))
    try:
        yield out
        out.flush()
    except OSError as problem:
        # What is still buffered has no reader; without this the interpreter complains about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(problem, BrokenPipeError):
            raise SystemExit(EXIT_READER_GONE) from None
        raise click.ClickException(f"The output cannot be written: {problem.strerror or problem}.") from problem


def json_bytes(value: Any) -> bytes:
    # A lone surrogate becomes \udXXX, which is how JSON writes it.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def printable(text: str) -> str:
    """*text* without control characters, which could drive the reader's terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def near(path: Path) -> str:
    """The path as seen from here, if it lies below."""
    here = Path.cwd().resolve()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def complain(text: str) -> None:
    """One line for a person on standard error."""
    click.echo(printable(text), err=True)
