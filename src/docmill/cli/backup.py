"""`docmill backup` and `docmill restore`: the whole deployment, straight from and into database and store."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, cast

import click

from docmill.cli.database import load_settings
from docmill.cli.failure import Trouble, told, usable_database
from docmill.cli.keys import data_option, json_option
from docmill.cli.output import EXIT_READER_GONE, complain, plural, standard_output

if TYPE_CHECKING:
    from docmill.settings import Settings
    from docmill.work.backup import BackupSummary

STANDARD = "-"
NOUNS = {
    "tasks": "task",
    "documents": "document version",
    "rules": "rule",
    "json_tables": "table",
    "api_keys": "API key",
    "webhooks": "webhook",
}
"""The tables that users know. `--json` lists all."""


@click.command("backup", epilog="Exit codes: 0 written, 2 wrong usage, or database or store cannot be used.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path, allow_dash=True))
@data_option
@json_option
def write_backup(file: Path, data: Path | None, as_json: bool) -> None:
    """Write everything of all tenants into one ZIP archive; '-' writes to standard output.

    The service may run meanwhile. API keys are in the archive as hashes, and the secrets of webhooks encrypted with
    the deployment's secret.
    """
    with told():
        chosen = load_settings(data, create=False, with_objects=True)
    with _report_io_errors(), _open_output(file) as stream:
        summary = asyncio.run(_write(chosen, stream))
    if str(file) == STANDARD:
        complain(f"Backed up: {_describe(summary)}.")
    else:
        _print(summary, "Backed up", as_json=as_json)


@click.command(
    "restore",
    epilog="Exit codes: 0 restored, 2 wrong usage, or the archive, database or store cannot be used.",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path, allow_dash=True))
@click.option("--dry-run", is_flag=True, help="Check the archive and list its contents; change nothing.")
@data_option
@json_option
def restore_backup(file: Path, dry_run: bool, data: Path | None, as_json: bool) -> None:
    """Restore an archive into an empty deployment; '-' reads standard input.

    The archive is checked whole before anything is written. All ids and numbers stay the same. A restore that was
    interrupted is finished by running it again.
    """
    with told():
        chosen = load_settings(data, create=True, with_objects=True)
    with _report_io_errors(), _open_input(file) as stream:
        summary = asyncio.run(_check(stream) if dry_run else _restore(chosen, stream))
    _print(summary, "The archive holds" if dry_run else "Restored", as_json=as_json)


async def _write(chosen: Settings, stream: BinaryIO) -> BackupSummary:
    from docmill import __version__, compose
    from docmill.work import backup

    async with compose.backup_ports(chosen) as (database, store):
        return await backup.write_backup(database, store, stream, docmill=__version__)


async def _check(stream: IO[bytes]) -> BackupSummary:
    from docmill.work import backup

    return await backup.check_backup(stream)


async def _restore(chosen: Settings, stream: IO[bytes]) -> BackupSummary:
    from docmill import compose
    from docmill.work import backup

    async with compose.backup_ports(chosen) as (database, store):
        return await backup.restore_backup(database, store, stream)


@contextmanager
def _report_io_errors() -> Iterator[None]:
    with told(), usable_database():
        try:
            yield
        except BrokenPipeError:
            raise SystemExit(EXIT_READER_GONE) from None
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            raise Trouble(f"Reading or writing failed: {error.strerror or error}{where}.") from error


@contextmanager
def _open_output(file: Path) -> Iterator[BinaryIO]:
    """The file appears when it is complete; an older one of that name stays until then."""
    if str(file) == STANDARD:
        if sys.stdout.isatty():
            raise Trouble("An archive cannot be written to a terminal: give a file name, or redirect the output.")
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
def _open_input(file: Path) -> Iterator[IO[bytes]]:
    """An archive is read twice, so standard input is spooled into a temporary file."""
    if str(file) != STANDARD:
        with file.open("rb") as stream:
            yield stream
        return
    with tempfile.TemporaryFile() as spooled:
        shutil.copyfileobj(sys.stdin.buffer, spooled, 1 << 20)
        spooled.seek(0)
        yield cast("IO[bytes]", spooled)


def _describe(summary: BackupSummary) -> str:
    counts = [plural(summary.rows[table], noun) for table, noun in NOUNS.items() if summary.rows.get(table)]
    return ", ".join([*counts, f"{plural(summary.objects, 'object')} ({summary.object_bytes} bytes)"])


def _print(summary: BackupSummary, verb: str, *, as_json: bool) -> None:
    with standard_output() as out:
        if as_json:
            out.json({"rows": summary.rows, "objects": summary.objects, "object_bytes": summary.object_bytes})
        else:
            out.line(f"{verb}: {_describe(summary)}.")
