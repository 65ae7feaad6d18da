import asyncio
from collections.abc import Iterator
from urllib.parse import urlsplit

import asyncpg
import pytest

from support.servers import Postgres, PostgresAddress


async def test_a_transaction_holds_what_was_committed_and_nothing_else(postgres_database: str) -> None:
    connection = await asyncpg.connect(postgres_database)
    try:
        await connection.execute("CREATE TABLE notes (line text)")
        async with connection.transaction():
            await connection.execute("INSERT INTO notes VALUES ('kept')")
        with pytest.raises(ZeroDivisionError):
            async with connection.transaction():
                await connection.execute("INSERT INTO notes VALUES ('rolled back')")
                raise ZeroDivisionError

        assert ["kept"] == [row["line"] for row in await connection.fetch("SELECT line FROM notes")]
    finally:
        await connection.close()


async def test_a_database_is_empty_and_gone_afterwards_even_if_someone_stays_connected(
    postgres: PostgresAddress,
) -> None:
    with postgres.database() as url:
        forgotten = await asyncpg.connect(url)
        assert 0 == await forgotten.fetchval("SELECT count(*) FROM pg_stat_user_tables")

    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(postgres.url, database=urlsplit(url).path.strip("/"))
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(url)
    forgotten.terminate()


@pytest.fixture(scope="module")
def private() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


async def test_the_password_is_asked_for(private: Postgres) -> None:
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(private.url, password="wrong")


async def test_a_private_server_that_was_killed_starts_again_with_what_was_committed(private: Postgres) -> None:
    url = private.url
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE notes AS SELECT 'kept' AS line")
    busy = await asyncpg.connect(url)
    sleeping = asyncio.create_task(busy.execute("SELECT pg_sleep(60)"))
    while not await connection.fetchval("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"):
        pass

    private.kill()
    with pytest.raises((asyncpg.PostgresConnectionError, OSError)):
        await sleeping
    private.start()

    assert private.url == url
    again = await asyncpg.connect(url)
    assert "kept" == await again.fetchval("SELECT line FROM notes")
    await again.close()
    connection.terminate()
    busy.terminate()
