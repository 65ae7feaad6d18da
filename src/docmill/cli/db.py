"""`docmill db`: the schema of the database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from docmill.cli.database import load_settings
from docmill.cli.failure import EXIT_FAILED, told, usable_database
from docmill.cli.keys import data_option, json_option
from docmill.cli.output import plural, standard_output

if TYPE_CHECKING:
    from docmill.adapters.sql.database import Database


@click.group()
def db() -> None:
    """Check and upgrade the database.

    'docmill serve' upgrades by itself when it starts; these commands are for those who want to do it apart.
    """


@db.command(epilog="Exit codes: 0 the schema is the newest, 1 there is something to upgrade, 2 it cannot be used.")
@data_option
@json_option
def check(data: Path | None, as_json: bool) -> None:
    """Say whether the database has the newest schema. Nothing is changed."""
    from docmill.adapters.sql.migrate import pending

    missing = _with_database(data, pending, create=False)
    with standard_output() as out:
        if as_json:
            out.json({"pending": missing})
        elif missing:
            out.line(f"{plural(len(missing), 'migration')} to apply: {', '.join(missing)}. Run 'docmill db upgrade'.")
        else:
            out.line("The schema is the newest.")
    raise SystemExit(EXIT_FAILED if missing else 0)


@db.command(epilog="Exit codes: 0 the schema is the newest now, 2 it cannot be used.")
@data_option
@json_option
def upgrade(data: Path | None, as_json: bool) -> None:
    """Bring the database to the newest schema; an empty one is created."""
    from docmill.adapters.sql.migrate import migrate

    applied = _with_database(data, migrate, create=True)
    with standard_output() as out:
        if as_json:
            out.json({"applied": applied})
        else:
            out.line(f"Applied: {', '.join(applied)}." if applied else "The schema is the newest already.")


def _with_database(data: Path | None, work: Callable[[Database], Awaitable[list[str]]], *, create: bool) -> list[str]:
    from docmill import compose

    async def main() -> list[str]:
        database = compose.open_database(load_settings(data, create=create))
        try:
            return await work(database)
        finally:
            await database.close()

    with told(), usable_database():
        return asyncio.run(main())
