"""A process is stopped in the middle of a transaction, with its connection open: nobody waits long for what it holds.

A connection that says nothing more is what PostgreSQL sees of such a process.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from docmill.adapters.sql import postgres
from docmill.adapters.sql.ledger import SqlLedger
from docmill.adapters.sql.migrate import LOCK, migrate
from docmill.adapters.sql.postgres import PostgresDatabase
from docmill.adapters.sql.statement import Op, Statement
from docmill.core.task import Status
from docmill.work import sweep
from support.ledgers import claimed, opened, ports_on


@pytest.fixture
async def database(postgres_copy: str) -> AsyncIterator[PostgresDatabase]:
    database = PostgresDatabase(postgres_copy)
    try:
        await migrate(database)
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def frozen(url: str, statement: str) -> AsyncIterator[int]:
    """Another docmill that took its locks and never came to its COMMIT. The number of its session."""
    pool = await PostgresDatabase(url)._ready()
    try:
        connection = await pool.acquire()
        await connection.execute("BEGIN")
        await connection.fetch(statement)
        yield connection.get_server_pid()
    finally:
        pool.terminate()


async def is_there(database: PostgresDatabase, session: int) -> bool:
    def look() -> Op[bool]:
        return bool((yield Statement("SELECT 1 FROM pg_stat_activity WHERE pid = :session")(session=session)))

    return await database.read(look())


async def test_a_row_that_a_frozen_process_holds_keeps_no_other_task_from_being_recovered(
    database: PostgresDatabase, postgres_copy: str
) -> None:
    ports, ledger = ports_on(database), SqlLedger(database)
    tasks = [await claimed(ledger, await opened(ledger), lease_ms=-1000) for _ in range(3)]
    first = (await ledger.lapsed(limit=10))[0][0].task_id
    async with frozen(postgres_copy, f"SELECT 1 FROM tasks WHERE id = {first} FOR UPDATE") as session:
        sweeping = asyncio.ensure_future(sweep.sweep(ports))
        async with asyncio.timeout(20):
            while len(await ledger.due(limit=10)) < 2:
                await asyncio.sleep(0.01)
            assert await is_there(database, session), "it still holds the third one"
            assert not sweeping.done()
            # Then the database takes from it what it holds.
            await sweeping
            # It lets go of its locks first, and is gone a moment later.
            while await is_there(database, session):
                await asyncio.sleep(0.01)

    assert 3 == len(await ledger.due(limit=10))
    found = [await ledger.get(task.id) for task, _ in tasks]
    assert [Status.PENDING] * 3 == [task.status for task in found if task]


async def test_a_count_that_a_frozen_process_holds_is_free_again_soon(
    database: PostgresDatabase, postgres_copy: str
) -> None:
    """All tasks of an owner share it: whoever holds it holds all of them up."""
    ledger = SqlLedger(database)
    task = await opened(ledger)
    async with frozen(postgres_copy, "SELECT 1 FROM task_counts FOR UPDATE"):
        # Sooner than anybody who waits for a row gives up, so that nobody is told that the database is busy.
        assert postgres.IDLE_MS < postgres.LOCK_MS / 2
        assert await asyncio.wait_for(claimed(ledger, task), 20)


async def test_a_process_that_is_frozen_with_the_lock_of_the_migrations_keeps_nobody_from_starting(
    database: PostgresDatabase, postgres_copy: str
) -> None:
    other = await asyncpg.connect(postgres_copy)
    try:
        async with other.transaction():
            await other.fetch(LOCK.postgres)
            assert [] == await asyncio.wait_for(migrate(database), 1.5)
    finally:
        await other.close()
