"""PostgreSQL's own wall between tenants, behind ours: row-level security, also for the tables' owner."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from docmill.adapters.sql.ledger import SqlLedger
from docmill.adapters.sql.migrate import known, migrate
from docmill.adapters.sql.postgres import PostgresDatabase
from docmill.adapters.sql.statement import Op, Row, Statement
from docmill.adapters.sql.tables import SqlTables
from docmill.core.errors import Unavailable
from support.databases import open_database
from support.ledgers import ANNA, CARL, a_task, claimed, complete, opened, succeed

UNWALLED = {"migrations"}


@pytest.fixture
async def walled(tmp_path: Path, postgres_copy: str) -> AsyncIterator[PostgresDatabase]:
    async with open_database("postgres", tmp_path, postgres_copy) as database:
        assert isinstance(database, PostgresDatabase)
        yield database


def run(text: str) -> Op[list[Row]]:
    rows = yield Statement(text)()
    return rows


async def tables_of(database: PostgresDatabase) -> set[str]:
    rows = await database.read(run("SELECT relname FROM pg_class WHERE relkind = 'r' AND relname !~ '^(pg|sql)_'"))
    return {row[0] for row in rows} - UNWALLED


async def filled(database: PostgresDatabase) -> None:
    """Two tenants with something in many tables."""
    ledger = SqlLedger(database)
    for who in (ANNA, CARL):
        task, attempt = await claimed(ledger, await opened(ledger, a_task(who)))
        change = await succeed(ledger, task.id, attempt.id, reuse_as=f"parse of {who.tenant}")
        await complete(ledger, change.task)
        await claimed(ledger, await opened(ledger, a_task(who)))
        table = await SqlTables(database).add(who, 1, "t", {})
        await SqlTables(database).edit(table.id, who, lambda data, _: ({"x": 1}, "", "x", 1))


async def test_every_table_is_behind_the_wall_for_its_owner_too(walled: PostgresDatabase) -> None:
    rows = await walled.read(run("SELECT relname FROM pg_class WHERE relrowsecurity AND relforcerowsecurity"))

    assert await tables_of(walled) == {row[0] for row in rows}


@pytest.mark.parametrize("way", ["read", "snapshot", "write"])
async def test_with_the_filter_removed_a_tenant_still_sees_only_its_own_rows(
    walled: PostgresDatabase, way: str
) -> None:
    await filled(walled)
    do = {"read": walled.read, "snapshot": partial(walled.read, snapshot=True), "write": walled.write}[way]
    seen = {}
    for table in await tables_of(walled):
        for tenant in (None, ANNA.tenant, CARL.tenant, "nobody", "*", "", "a'; SET docmill.scope = '*"):
            seen[table, tenant] = (await do(run(f"SELECT count(*) FROM {table}"), tenant=tenant))[0][0]

    for table in ("tasks", "attempts", "events", "task_counts", "parses", "json_tables", "mounts"):
        everything = seen[table, None]
        assert 0 < everything == seen[table, ANNA.tenant] + seen[table, CARL.tenant], table
        assert seen[table, ANNA.tenant] == seen[table, CARL.tenant], table
        assert [0, 0, 0, 0] == [seen[table, who] for who in ("nobody", "*", "", "a'; SET docmill.scope = '*")], table


async def test_no_tenant_writes_into_anothers_rows(walled: PostgresDatabase) -> None:
    await filled(walled)
    task = (await walled.read(run("SELECT id FROM tasks WHERE tenant = 'other' LIMIT 1")))[0][0]

    assert [] == await walled.write(
        run("UPDATE tasks SET progress = 1 WHERE tenant = 'other' RETURNING id"), tenant="acme"
    )
    assert [] == await walled.write(run(f"DELETE FROM attempts WHERE task_id = {task} RETURNING id"), tenant="acme")
    for forged in (
        f"INSERT INTO events (task_id, seq, kind, data, at_ms) VALUES ({task}, 99, 'x', '1', 1)",
        "UPDATE tasks SET tenant = 'other'",
        "INSERT INTO parses VALUES ('other', 'f', 1, 'm', 'p', 1)",
        "INSERT INTO rules (name, description, mode, created_ms, updated_ms) VALUES ('n', '', 'skip', 1, 1)",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await walled.write(run(forged), tenant="acme")
    assert [] == await walled.write(run("DELETE FROM rules WHERE is_default = 1 RETURNING id"), tenant="acme")


async def test_a_session_that_does_not_say_for_whom_it_works_sees_nothing(
    walled: PostgresDatabase, postgres_copy: str
) -> None:
    await filled(walled)
    stranger = await asyncpg.connect(postgres_copy)
    try:
        assert [0, 0] == [await stranger.fetchval(f"SELECT count(*) FROM {table}") for table in ("tasks", "events")]
    finally:
        await stranger.close()


async def test_tenants_that_take_turns_on_one_connection_are_never_mixed_up(postgres_copy: str) -> None:
    database = PostgresDatabase(postgres_copy, size=1)
    try:
        await migrate(database)
        await filled(database)
        owners = Statement("SELECT DISTINCT tenant FROM tasks ORDER BY tenant")

        def look() -> Op[list[str]]:
            rows = yield owners()
            return [row[0] for row in rows]

        async def seen(n: int) -> tuple[str | None, list[str]]:
            tenant = [None, "acme", "other"][n % 3]
            snapshot = partial(database.read, snapshot=True)
            way = [database.read, snapshot, database.write, database.read][n % 4]
            return tenant, await way(look(), tenant=tenant)

        for tenant, found in await asyncio.gather(*(seen(n) for n in range(120))):
            assert ([tenant] if tenant else ["acme", "other"]) == found
    finally:
        await database.close()


async def test_two_processes_migrate_at_once(postgres_database: str) -> None:
    databases = [PostgresDatabase(postgres_database) for _ in range(4)]
    try:
        applied = await asyncio.gather(*(migrate(database) for database in databases))
    finally:
        for database in databases:
            await database.close()

    assert [migration.name for migration in known()] == sorted(name for names in applied for name in names)


async def test_a_migration_steps_back_for_who_uses_the_table_and_lets_others_pass(
    walled: PostgresDatabase, postgres_copy: str
) -> None:
    """As if the walls were not there yet: whoever waits for an exclusive lock makes all others wait behind it."""
    tables = await tables_of(walled)
    for table in tables:
        await walled.script(f"DROP POLICY docmill_scope ON {table}")
    await walled.script("DROP POLICY docmill_default ON rules; DELETE FROM migrations WHERE number = 5")
    long_one = await asyncpg.connect(postgres_copy)
    ledger = SqlLedger(walled)
    try:
        busy = long_one.transaction()
        await busy.start()
        await long_one.execute("SELECT count(*) FROM tasks")
        upgrade = asyncio.create_task(migrate(walled))
        await asyncio.wait([upgrade], timeout=3)
        assert not upgrade.done()
        async with asyncio.timeout(10):
            await ledger.counts()
            assert await ledger.get(uuid4().int % 1000, ANNA) is None
        await busy.rollback()
        assert ["0005_walls.postgres.sql"] == await upgrade
    finally:
        await long_one.close()


async def test_a_lock_that_is_not_to_be_had_is_a_stable_answer(walled: PostgresDatabase) -> None:
    def blocked() -> Op[list[Row]]:
        yield Statement("SET LOCAL lock_timeout = '50ms'")()
        return (yield Statement("SELECT pg_advisory_xact_lock(1)")())

    def holding() -> Op[None]:
        yield Statement("SELECT pg_advisory_xact_lock(1)")()
        yield Statement("SELECT pg_sleep(1)")()

    held = asyncio.create_task(walled.write(holding()))
    asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    async with asyncio.timeout(30):
        while not (await walled.read(run(asleep)))[0][0]:
            await asyncio.sleep(0.01)
    with pytest.raises(Unavailable) as refused:
        await walled.write(blocked())
    await held

    assert ("database_busy", True) == (refused.value.code, refused.value.retryable)
