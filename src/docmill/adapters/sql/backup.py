"""All rows of the database: read from one snapshot, inserted in one transaction.

Every column is a text or an integer, so the same rows fit into SQLite and PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.documents import digest_of, join_document
from docmill.adapters.sql.migrate import migrate, newest_known
from docmill.adapters.sql.statement import Op, Query, Row, Statement
from docmill.core.backup import Value, damaged, move_uri
from docmill.core.errors import Conflict, Invalid

TABLES: Mapping[str, tuple[str, ...]] = {
    "rules": ("id",),
    "tasks": ("id",),
    "task_counts": ("tenant", "owner", "project_id", "status"),
    "attempts": ("id",),
    "events": ("task_id", "seq"),
    "results": ("task_id",),
    "parses": ("tenant", "fingerprint"),
    "loans": ("task_id", "parsed_key"),
    "idempotency": ("tenant", "owner", "key"),
    "deliveries": ("id",),
    "tombstones": ("task_id",),
    "json_tables": ("id",),
    "mounts": ("table_id", "pointer", "entry"),
    "documents": ("tenant", "document_id", "version"),
    "assets": ("tenant", "asset_id"),
    "document_assets": ("tenant", "document_id", "version", "asset_id"),
    "api_keys": ("id",),
    "access_control": ("one",),
    "webhooks": ("id",),
    "notices": ("id",),
    "notice_tries": ("notice_id", "number"),
}
"""Each table with its primary key, referenced tables before those that refer to them."""
LEFT_OUT = frozenset({"migrations", "sessions"})
"""Browsers sign in again; migrations are recorded where the rows arrive."""
NUMBERED = ("rules", "tasks", "json_tables", "deliveries", "notices")
MUST_BE_EMPTY = ("tasks", "tombstones", "json_tables", "documents", "api_keys", "webhooks")
PAGE_ROWS = 200
LARGE_PAGE_ROWS = 4
LARGE = frozenset({"json_tables"})
"""One row may have many megabytes."""

COLUMNS = {
    "sqlite": Statement("SELECT name FROM pragma_table_xinfo(:table_name) WHERE hidden = 0 ORDER BY cid"),
    "postgres": Statement(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema()"
        " AND table_name = :table_name AND is_generated = 'NEVER' ORDER BY ordinal_position"
    ),
}
SCHEMA = Statement("SELECT max(number) FROM migrations")
OWN_RULES = Statement("SELECT 1 FROM rules WHERE is_default = 0 LIMIT 1")
ASSET_BODIES = Statement(
    "SELECT body FROM document_assets WHERE tenant = :tenant AND document_id = :document_id AND version = :version"
    " AND deleted_ms IS NULL ORDER BY position"
)
SET_DIGEST = Statement(
    "UPDATE documents SET digest = :digest WHERE tenant = :tenant AND document_id = :document_id AND version = :version"
)
SEQUENCE_LAST = {
    "sqlite": "SELECT seq FROM sqlite_sequence WHERE name = '{table}'",
    "postgres": "SELECT pg_sequence_last_value(CAST(pg_get_serial_sequence('{table}', 'id') AS regclass))",
}
SEQUENCE_SET = {
    "sqlite": "UPDATE sqlite_sequence SET seq = :number WHERE name = '{table}'",
    "postgres": "SELECT setval(pg_get_serial_sequence('{table}', 'id'), CAST(:number AS BIGINT))",
}
SEQUENCE_START = Statement("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :number)")


class SqlBackup:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read_rows(self, sink: Callable[[str, Sequence[str], Sequence[Row]], None]) -> tuple[int, dict[str, int]]:
        return await self._database.read(_read_all(self._database.dialect, sink), snapshot=True)

    async def prepare_restore(self, schema: int, columns: Mapping[str, Sequence[str]]) -> None:
        if schema > newest_known():
            raise Invalid("backup_unknown", why="it was written by a newer docmill")
        if unknown := set(columns) - set(TABLES):
            raise damaged(f"there is no table {min(unknown)[:100]}")
        await migrate(self._database, until=schema)
        await self._database.read(_check_target(self._database.dialect, schema, columns), snapshot=True)

    async def insert_rows(
        self,
        columns: Mapping[str, Sequence[str]],
        rows: Callable[[str], Iterator[list[Value]]],
        sequences: Mapping[str, int],
        *,
        buckets: tuple[str, str],
    ) -> None:
        dialect = self._database.dialect
        await self._database.write(_insert_all(dialect, columns, rows, sequences, buckets))
        await migrate(self._database)


def _read_all(
    dialect: str, sink: Callable[[str, Sequence[str], Sequence[Row]], None]
) -> Op[tuple[int, dict[str, int]]]:
    for table in TABLES:
        columns = yield from _columns(dialect, table)
        if not columns:
            continue  # A later migration creates it.
        page: Sequence[Row] | None = None
        while page is None or page:
            page = yield _page(table, columns, page[-1] if page else None)
            sink(table, columns, page)
    [[schema]] = yield SCHEMA()
    sequences = {}
    for table in NUMBERED:
        found = yield Query(Statement(SEQUENCE_LAST[dialect].format(table=table)), {})
        sequences[table] = int(found[0][0] or 0) if found else 0
    return int(schema), sequences


def _columns(dialect: str, table: str) -> Op[list[str]]:
    return [name for (name,) in (yield COLUMNS[dialect](table_name=table))]


def _page(table: str, columns: Sequence[str], last: Row | None) -> Query:
    """The next rows by primary key. The last row of the page before says where they begin."""
    key = TABLES[table]
    limit = LARGE_PAGE_ROWS if table in LARGE else PAGE_ROWS
    where, params = "", {}
    if last is not None:
        values = {name: last[columns.index(name)] for name in key}
        places = ", ".join(f"CAST(:{name} AS {'BIGINT' if isinstance(values[name], int) else 'TEXT'})" for name in key)
        where, params = f"WHERE ({', '.join(key)}) > ({places})", values
    text = f"SELECT {', '.join(columns)} FROM {table} {where} ORDER BY {', '.join(key)} LIMIT {limit}"
    return Query(Statement(text), params)


def _check_target(dialect: str, schema: int, columns: Mapping[str, Sequence[str]]) -> Op[None]:
    [[found]] = yield SCHEMA()
    if found != schema:
        raise Invalid(
            "backup_unknown", why=f"it has schema {schema} and the database {found}: restore into a new database"
        )
    yield from _check_empty()
    for table, names in columns.items():
        if sorted(names) != sorted((yield from _columns(dialect, table))):
            raise damaged(f"the columns of {table} are not those of schema {schema}")


def _check_empty() -> Op[None]:
    for table in MUST_BE_EMPTY:
        if (yield Query(Statement(f"SELECT 1 FROM {table} LIMIT 1"), {})):
            raise Conflict("restore_not_empty", table=table)
    if (yield OWN_RULES()):
        raise Conflict("restore_not_empty", table="rules")


def _insert_all(
    dialect: str,
    columns: Mapping[str, Sequence[str]],
    rows: Callable[[str], Iterator[list[Value]]],
    sequences: Mapping[str, int],
    buckets: tuple[str, str],
) -> Op[None]:
    yield from _check_empty()
    # What is left is the default rule, which every start creates, and what belongs to no task any more.
    tables = [table for table in TABLES if table in columns]
    for table in reversed(tables):
        yield Query(Statement(f"DELETE FROM {table}"), {})
    for table in tables:
        yield from _insert_table(table, columns[table], rows(table), buckets)
    if buckets[0] != buckets[1]:
        yield from _renew_digests()
    for table, number in sequences.items():
        if table in NUMBERED and number > 0:
            yield from _set_sequence(dialect, table, number)


def _insert_table(
    table: str, columns: Sequence[str], rows: Iterable[list[Value]], buckets: tuple[str, str]
) -> Op[None]:
    names = ", ".join(columns)
    insert = Statement(f"INSERT INTO {table} ({names}) VALUES ({', '.join(f':{name}' for name in columns)})")
    limit = LARGE_PAGE_ROWS if table in LARGE else PAGE_ROWS
    source = iter(rows)
    while page := list(islice(source, limit)):
        if table in ("documents", "document_assets") and buckets[0] != buckets[1]:
            at = list(columns).index("body")
            for row in page:
                row[at] = move_uri(str(row[at]), *buckets)
        try:
            yield insert.many(page)
        except Exception as error:
            if _is_constraint_error(error):
                raise damaged(f"rows of {table} do not fit together: {error}") from error
            raise


def _is_constraint_error(error: Exception) -> bool:
    """apsw has a class for them, and PostgreSQL the SQLSTATE classes 22 (bad values) and 23 (constraints)."""
    sqlstate = str(getattr(error, "sqlstate", None) or "")
    return type(error).__name__ in ("ConstraintError", "DataError") or sqlstate.startswith(("22", "23"))


def _renew_digests() -> Op[None]:
    """A document's digest covers the addresses of its blobs, which changed."""
    columns = (*TABLES["documents"], "body")
    page: Sequence[Row] | None = None
    while page is None or page:
        page = yield _page("documents", columns, page[-1] if page else None)
        for *values, body in page:
            key = dict(zip(TABLES["documents"], values, strict=True))
            assets = yield ASSET_BODIES(**key)
            yield SET_DIGEST(**key, digest=digest_of(join_document(body, [text for (text,) in assets])))


def _set_sequence(dialect: str, table: str, number: int) -> Op[None]:
    if dialect == "sqlite" and not (yield Query(Statement(SEQUENCE_LAST[dialect].format(table=table)), {})):
        yield SEQUENCE_START(name=table, number=number)
        return
    yield Query(Statement(SEQUENCE_SET[dialect].format(table=table)), {"number": number})
