"""`docmill check`: contracts on the command line."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import click
from pydantic_core import to_json

from docmill import contracts
from docmill.cli.output import (
    EXIT_USAGE,
    EXIT_VIOLATIONS,
    Out,
    complain,
    json_bytes,
    plural,
    printable,
    standard_output,
)
from docmill.contracts import KINDS, Asset, Checked, InlineBlob, NormalizedDocument

MAX_BYTES = 1 << 30
"""No value may be larger. It bounds memory; a real document with inline bytes stays far below."""

CHUNK = 1 << 20
BOM = b"\xef\xbb\xbf"


@click.command(
    epilog="Exit codes: 0 all values are valid, 3 some are not, 2 wrong usage or something could not be read."
)
@click.argument("kind", type=click.Choice(tuple(KINDS)), metavar="KIND")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--strict", is_flag=True, help="Also compare digests, and refuse a key that comes twice.")
@click.option(
    "--media-guard",
    "guard",
    multiple=True,
    metavar="PREFIX",
    help="Allow only these media types for assets that are not inline, for example image/. Repeatable.",
)
@click.option("--jsonl", is_flag=True, help="One value per line; blank lines are skipped.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per checked value.")
def check(kind: str, paths: tuple[str, ...], strict: bool, guard: tuple[str, ...], jsonl: bool, as_json: bool) -> None:
    """Check documents, assets and blobs against their contracts.

    KIND is document, document-ref, document-meta, blob, asset or asset-ref. A PATH is a JSON file; - is
    standard input.
    """
    if paths.count("-") > 1:
        raise click.UsageError("Standard input can be read only once: give - a single time.")
    tally = Tally()
    show = _show_json if as_json else _show
    with standard_output() as out:
        for path in paths:
            try:
                for line, data in _values(path, jsonl):
                    checked = contracts.check(kind, data, strict=strict, media_guard=guard)
                    del data  # it may be huge, and so may be what is printed next
                    tally.count(checked)
                    show(out, path, line, checked)
                    del checked
                    if path == "-":
                        out.flush()
            except Unreadable as problem:
                tally.unreadable += 1
                out.flush()
                complain(f"{click.format_filename(path)}: {problem}")
    if not as_json:
        _sum_up(tally)
    raise SystemExit(tally.exit_code)


@dataclass(slots=True)
class Tally:
    valid: int = 0
    invalid: int = 0
    unreadable: int = 0

    def count(self, checked: Checked) -> None:
        if checked.valid:
            self.valid += 1
        else:
            self.invalid += 1

    @property
    def exit_code(self) -> int:
        if self.unreadable:
            return EXIT_USAGE
        return EXIT_VIOLATIONS if self.invalid else 0


class Unreadable(Exception):
    """The input cannot be taken in at all. The message says why and what to do."""


def _values(path: str, jsonl: bool) -> Iterator[tuple[int | None, bytes]]:
    try:
        with _opened(path) as stream:
            if jsonl:
                yield from lines(stream)
            else:
                yield None, whole(stream)
    except OSError as problem:
        raise Unreadable(f"cannot be read: {problem.strerror or problem}.") from problem


def _opened(path: str) -> AbstractContextManager[BinaryIO]:
    if path == "-":
        return nullcontext(sys.stdin.buffer)
    if Path(path).is_dir():
        raise Unreadable("is a folder. Name the files in it, for example with a pattern such as *.json.")
    return Path(path).open("rb", buffering=CHUNK)


def whole(stream: BinaryIO, limit: int = MAX_BYTES) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while chunk := stream.read(CHUNK):
        chunks.append(chunk if chunks else chunk.removeprefix(BOM))
        size += len(chunk)
        if size > limit:
            raise Unreadable(f"is larger than {limit} bytes. One value per line can be read with --jsonl.")
    return b"".join(chunks)


def lines(stream: BinaryIO, limit: int = MAX_BYTES) -> Iterator[tuple[int, bytes]]:
    """Each line that is not blank, with its number. Never holds more than one."""
    number = 0
    while line := stream.readline(limit + 1):
        number += 1
        if len(line) > limit:
            raise Unreadable(f"line {number} is longer than {limit} bytes. The rest was not read.")
        held = [line.removeprefix(BOM)]
        del line
        if held[0] and not held[0].isspace():
            yield number, held.pop()  # popped, so that the line lives no longer than its reader wants


def _show_json(out: Out, path: str, line: int | None, checked: Checked) -> None:
    head = json_bytes(
        {
            "path": click.format_filename(path),
            "line": line,
            "valid": checked.valid,
            "errors": [error.as_dict() for error in checked.errors],
        }
    )
    out.write(head[:-1], b',"value":')
    for piece in dumped(checked.value):
        out.write(piece)
    out.write(b"}\n")


def dumped(value: Any) -> Iterator[bytes]:
    """*value* as JSON, in pieces: a payload of 100 MB is not copied as a whole, let alone twice."""
    payloads: dict[str, str] = {}
    text = to_json(_without_payloads(value, payloads))
    for mark, payload in payloads.items():
        before, text = text.split(mark.encode(), 1)
        yield before
        for start in range(0, len(payload), CHUNK):
            yield payload[start : start + CHUNK].encode()  # base64 needs no escape
    yield text


def _without_payloads(value: Any, payloads: dict[str, str]) -> Any:
    """*value* with a mark in place of each long payload; *payloads* takes them in the order of the marks."""
    if isinstance(value, InlineBlob) and len(value.base64) > CHUNK:
        mark = secrets.token_hex(16)
        payloads[mark] = value.base64
        return value.model_copy(update={"base64": mark})
    if not isinstance(value, NormalizedDocument | Asset):
        return value
    blob = _without_payloads(value.blob, payloads)
    changed = {} if blob is value.blob else {"blob": blob}
    if isinstance(value, NormalizedDocument):
        changed["assets"] = [_without_payloads(asset, payloads) for asset in value.assets]
    return value.model_copy(update=changed) if payloads else value


def _show(out: Out, path: str, line: int | None, checked: Checked) -> None:
    name = printable(click.format_filename(path))
    where = name if line is None else f"{name}:{line}"
    if checked.valid:
        out.line(f"{where}: {out.style('ok', fg='green')}")
    for error in checked.errors:
        pointer = printable(error.pointer) or "(root)"
        code = out.style(error.code, fg="red", bold=True)
        out.line(f"{where}: {pointer}: {code}: {printable(error.message)}")


def _sum_up(tally: Tally) -> None:
    values = tally.valid + tally.invalid
    if values != 1:
        complain(f"{plural(values, 'value')} checked: {tally.valid} valid, {tally.invalid} not.")
    if tally.invalid:
        complain("'docmill explain CODE' says what a code means and what to do next.")
