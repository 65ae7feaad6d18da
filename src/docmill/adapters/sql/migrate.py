"""Numbered SQL files, applied once each, in order, under a lock, with their checksums kept.

A running deployment goes on meanwhile: each file is a transaction of its own, and on PostgreSQL it waits only shortly
for a table, because whoever waits for an exclusive lock makes everybody else wait behind; then it steps back and tries
again. Two docmills that start at once take turns.

A file named `*.postgres.sql` or `*.sqlite.sql` is for that database; on the other it counts as applied.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.statement import Op, Query, Statement, fill
from docmill.core.errors import Conflict, Unavailable

CREATE = Statement(
    "CREATE TABLE IF NOT EXISTS migrations"
    " (number BIGINT PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_ms BIGINT NOT NULL)"
)
APPLIED = Statement("SELECT number, name, checksum FROM migrations ORDER BY number")
RECORD = Statement(
    "INSERT INTO migrations (number, name, checksum, applied_ms) VALUES (:number, :name, :checksum, {now})"
)
IS_THERE = Statement("SELECT to_regclass('migrations') IS NOT NULL")
LOCK = Statement("SELECT pg_advisory_xact_lock(7201318)")
MODEST = (
    Statement("SET LOCAL lock_timeout = '2s'"),
    Statement("SET LOCAL statement_timeout = 0"),
)
TRIES = 60
PAUSE_S = 0.5
STATEMENT_S = 3600.0
"""Limit of one statement: an index on a large table takes its time."""


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return sha256(self.text.encode()).hexdigest()

    def is_for(self, dialect: str) -> bool:
        _, *only, _ = self.name.split(".")
        return not only or dialect in only


def known() -> list[Migration]:
    folder = files("docmill.adapters.sql") / "migrations"
    found = sorted(
        (entry.name, entry.read_text(encoding="utf-8")) for entry in folder.iterdir() if entry.name.endswith(".sql")
    )
    return [Migration(int(name.partition("_")[0]), name, text) for name, text in found]


async def migrate(database: Database) -> list[str]:
    """Bring the database to the newest schema; the names of what was applied."""
    applied = []
    while name := await _next(database):
        applied.append(name)
    return applied


async def _next(database: Database) -> str | None:
    for attempt in range(TRIES):
        try:
            return await database.write(_apply_first(database.dialect, known()), statement_s=STATEMENT_S)
        except Unavailable as error:
            if error.code != "database_busy" or attempt == TRIES - 1:
                raise
        # Not all at once again.
        await asyncio.sleep(PAUSE_S * random.uniform(0.5, 1.5))
    raise Unavailable("database_busy")


async def pending(database: Database) -> list[str]:
    """What `migrate` would apply. Raises if the database is newer than this docmill, or was changed by hand."""
    return [migration.name for migration in await database.write(_missing(database.dialect, known()))]


def _missing(dialect: str, migrations: list[Migration]) -> Op[list[Migration]]:
    if dialect == "postgres":
        # Nearly always nothing is missing. Then nobody is waited for, not even one that was frozen with the lock.
        [[is_there]] = yield IS_THERE()
        if is_there and not (yield from _not_applied(migrations)):
            return []
        for modesty in MODEST:
            yield modesty()
        yield LOCK()
    yield CREATE()
    return (yield from _not_applied(migrations))


def _not_applied(migrations: list[Migration]) -> Op[list[Migration]]:
    rows = yield APPLIED()
    applied = {row[0]: (row[1], row[2]) for row in rows}
    newest = max((migration.number for migration in migrations), default=0)
    if applied and max(applied) > newest:
        raise Unavailable("database_newer", found=max(applied), known=newest)
    for migration in migrations:
        name, checksum = applied.get(migration.number, (None, None))
        if checksum not in (None, migration.checksum):
            raise Conflict("migration_changed", name=name)
    return [migration for migration in migrations if migration.number not in applied]


def _apply_first(dialect: str, migrations: list[Migration]) -> Op[str | None]:
    missing = yield from _missing(dialect, migrations)
    if not missing:
        return None
    migration = missing[0]
    for sql in fill(migration.text, dialect).split(";\n") if migration.is_for(dialect) else ():
        if sql.strip():
            yield Query(Statement(sql), {})
    yield RECORD(number=migration.number, name=migration.name, checksum=migration.checksum)
    return migration.name
