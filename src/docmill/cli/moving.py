"""`docmill export` and `docmill import`: everything, straight from and into database and store."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

import click

from docmill.cli.database import load_settings
from docmill.cli.failure import EXIT_FAILED, Trouble, told, usable_database
from docmill.cli.keys import data_option, json_option
from docmill.cli.output import EXIT_READER_GONE, Out, complain, plural, printable, standard_output

if TYPE_CHECKING:
    from docmill.settings import Settings
    from docmill.work.moving import Exported, Imported

STANDARD = "-"
NOUNS = {
    "rules": "rule",
    "tasks": "task",
    "tables": "table",
    "documents": "document version",
    "keys": "API key",
    "webhooks": "webhook",
    "objects": "object",
}
LEFT_OUT = {
    "unfinished_tasks": "task that has not ended",
    "objects_of_unfinished_tasks": "object of tasks that have not ended",
    "objects_gone_meanwhile": "object that was deleted meanwhile",
    "keys": "API key (--keys takes them)",
}


@click.command("export", epilog="Exit codes: 0 written, 2 wrong usage, or database or store cannot be used.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path, allow_dash=True))
@data_option
@json_option
def export_all(file: Path, data: Path | None, as_json: bool) -> None:
    """Write everything of all tenants into one ZIP archive; '-' writes to standard output.

    The service may run meanwhile. Tasks that have not ended are left out; so are the secrets of webhooks. API keys are
    in it as hashes.
    """
    chosen = _settings(data, create=False)
    with _failing(), _writing(file) as stream:
        exported = asyncio.run(_export(chosen, stream))
    if str(file) == STANDARD:
        for line in _export_lines(exported):
            complain(line)
        return
    with standard_output() as out:
        if as_json:
            size = {"object_bytes": exported.object_bytes}
            out.json({"exported": exported.counts, **size, "left_out": exported.left_out})
        else:
            _write(out, _export_lines(exported))


@click.command(
    "import",
    epilog="Exit codes: 0 everything is here now, 1 something was refused, 2 the archive, database or store cannot be"
    " used.",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path, allow_dash=True))
@click.option("--dry-run", is_flag=True, help="Check the archive and say what would be done; change nothing.")
@click.option("--keys", is_flag=True, help="Also take the API keys: whoever holds one is let in here, too.")
@data_option
@json_option
def import_all(file: Path, dry_run: bool, keys: bool, data: Path | None, as_json: bool) -> None:
    """Take everything from an archive that is not here yet; '-' reads standard input.

    The archive is checked whole before anything is written. What is here already stays as it is, so that the same
    archive can be imported twice. Rules, tables and tasks whose number is taken get a new one.
    """
    chosen = _settings(data, create=not dry_run)
    with _failing(), _reading(file, chosen) as stream:
        done = asyncio.run(_import(chosen, stream, dry_run=dry_run, keys=keys))
    with standard_output() as out:
        if as_json:
            out.json(_import_json(done, dry_run=dry_run))
        else:
            _write(out, _import_lines(done, dry_run=dry_run))
    raise SystemExit(EXIT_FAILED if done.refused else 0)


async def _export(chosen: Settings, stream: BinaryIO) -> Exported:
    from docmill import __version__, compose
    from docmill.work import moving

    async with compose.moving(chosen) as (inventory, store):
        return await moving.export(inventory, store, stream, docmill=__version__)


async def _import(chosen: Settings, stream: IO[bytes], *, dry_run: bool, keys: bool) -> Imported:
    from docmill import compose
    from docmill.work import moving

    async with compose.moving(chosen) as (inventory, store):
        return await moving.load(inventory, store, stream, dry_run=dry_run, keys=keys)


def _settings(data: Path | None, *, create: bool) -> Settings:
    with told():
        return load_settings(data, create=create, with_objects=True)


@contextmanager
def _failing() -> Iterator[None]:
    with told(), usable_database():
        try:
            yield
        except BrokenPipeError:
            raise SystemExit(EXIT_READER_GONE) from None
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            raise Trouble(f"Reading or writing failed: {error.strerror or error}{where}.") from error


@contextmanager
def _writing(file: Path) -> Iterator[BinaryIO]:
    """A file appears when it is whole, and an older one of that name stays until then."""
    if str(file) == STANDARD:
        if sys.stdout.isatty():
            raise Trouble("An archive does not belong on a terminal: name a file, or send the output somewhere.")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        number, name = tempfile.mkstemp(dir=file.absolute().parent, prefix=f".{file.name}.")
    except OSError as error:
        raise Trouble(f"{file} cannot be written: {error.strerror}.") from error
    try:
        with os.fdopen(number, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).replace(file)
    finally:
        with suppress(FileNotFoundError):
            Path(name).unlink()


@contextmanager
def _reading(file: Path, chosen: Settings) -> Iterator[IO[bytes]]:
    """An archive is read twice, so what comes through a pipe waits in the data folder."""
    if str(file) != STANDARD:
        with file.open("rb") as stream:
            yield stream
        return
    chosen.data.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=chosen.data) as spooled:
        shutil.copyfileobj(sys.stdin.buffer, spooled, 1 << 20)
        spooled.seek(0)
        yield cast("IO[bytes]", spooled)


def _write(out: Out, lines: Iterator[str]) -> None:
    for line in lines:
        out.line(printable(line))


def _counted(counts: Mapping[str, int], nouns: Mapping[str, str] = NOUNS) -> str:
    return ", ".join(plural(counts[name], noun) for name, noun in nouns.items() if counts.get(name)) or "nothing"


def _export_lines(exported: Exported) -> Iterator[str]:
    yield f"Exported: {_counted(exported.counts)} ({exported.object_bytes} bytes)."
    if any(exported.left_out.values()):
        yield f"Left out: {_counted(exported.left_out, LEFT_OUT)}."


def _import_lines(done: Imported, *, dry_run: bool) -> Iterator[str]:
    yield f"{'Would import' if dry_run else 'Imported'}: {_counted(done.taken)}."
    if done.known.total():
        yield f"Here already: {_counted(done.known)}."
    if any(done.left_out.values()):
        yield f"Left out: {_counted(done.left_out, LEFT_OUT)}."
    for kind, numbers in done.renumbered.items():
        if numbers and not dry_run:
            told_of = ", ".join(f"{old} is {new}" for old, new in list(numbers.items())[:20])
            more = f" and {len(numbers) - 20} more (--json lists all)" if len(numbers) > 20 else ""
            yield f"New numbers of {kind}: {told_of}{more}."
        elif numbers:
            yield f"New numbers of {kind}: {len(numbers)}."
    for line in done.refused:
        yield f"Refused: {line}"


def _import_json(done: Imported, *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "imported": dict(done.taken),
        "known": dict(done.known),
        "left_out": dict(done.left_out),
        "renumbered": {kind: {str(old): new for old, new in one.items()} for kind, one in done.renumbered.items()},
        "refused": done.refused,
    }
