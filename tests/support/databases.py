"""Real, migrated databases for conformance tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.migrate import migrate
from docmill.adapters.sql.postgres import PostgresDatabase
from docmill.adapters.sql.sqlite import SqliteDatabase

KINDS = ("sqlite", "postgres")


@asynccontextmanager
async def open_database(kind: str, folder: Path, postgres_url: str | None = None) -> AsyncIterator[Database]:
    """A database of this kind with docmill's newest schema. Opening the same one twice gives two views of it."""
    database: Database
    if kind == "sqlite":
        database = SqliteDatabase(folder / "docmill.db")
    else:
        assert postgres_url, "ask for the fixture postgres_copy"
        database = PostgresDatabase(postgres_url)
    try:
        await migrate(database)
        yield database
    finally:
        await database.close()


async def migrated(postgres_url: str) -> None:
    database = PostgresDatabase(postgres_url)
    try:
        await migrate(database)
    finally:
        await database.close()


def url_of(kind: str, request: pytest.FixtureRequest) -> str | None:
    """PostgreSQL is started only for the tests that run on it."""
    return request.getfixturevalue("postgres_copy") if kind == "postgres" else None
