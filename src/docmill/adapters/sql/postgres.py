"""PostgreSQL through asyncpg: a pool, a transaction an operation, and 503 while the server is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import asyncpg

from docmill.adapters.sql.statement import Op
from docmill.core.errors import StorageFull, Unavailable

T = TypeVar("T")

STATEMENT_MS = 15_000
CONNECT_S = 5.0

_AWAY = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.QueryCanceledError,
    # Two transactions in each other's way: the loser's caller tries again, as after any short absence.
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
)


class PostgresDatabase:
    dialect = "postgres"

    def __init__(self, url: str, *, size: int = 10) -> None:
        self._url = url
        self._size = size
        self._pool: asyncpg.Pool | None = None
        self._opening = asyncio.Lock()

    async def write(self, op: Op[T]) -> T:
        async with self._acquired() as connection, connection.transaction():
            return await _drive(connection, op)

    async def read(self, op: Op[T]) -> T:
        async with self._acquired() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
            return await _drive(connection, op)

    async def glance(self, op: Op[T]) -> T:
        # Without BEGIN and COMMIT, which would cost twice the query.
        async with self._acquired() as connection:
            return await _drive(connection, op)

    async def script(self, text: str) -> None:
        async with self._acquired() as connection, connection.transaction():
            await connection.execute(text)

    async def close(self) -> None:
        if self._pool:
            pool, self._pool = self._pool, None
            try:
                await asyncio.wait_for(pool.close(), 5)
            except TimeoutError:
                pool.terminate()

    @asynccontextmanager
    async def _acquired(self) -> AsyncIterator[Any]:
        try:
            pool = await self._ready()
            async with pool.acquire(timeout=CONNECT_S) as connection:
                yield connection
        except asyncpg.DiskFullError as error:
            raise StorageFull("storage_full") from error
        except _AWAY as error:
            raise Unavailable("database_unavailable") from error

    async def _ready(self) -> Any:
        if self._pool is None:
            async with self._opening:
                if self._pool is None:
                    self._pool = await asyncpg.create_pool(
                        self._url,
                        min_size=1,
                        max_size=self._size,
                        timeout=CONNECT_S,
                        command_timeout=STATEMENT_MS / 1000,
                        reset=_nothing_to_reset,
                        server_settings={
                            "statement_timeout": str(STATEMENT_MS),
                            "idle_in_transaction_session_timeout": str(STATEMENT_MS),
                            "application_name": "docmill",
                            # Every statement has its index: planning anew each time costs more than it finds.
                            "plan_cache_mode": "force_generic_plan",
                        },
                    )
        return self._pool


async def _nothing_to_reset(_: Any) -> None:
    """We set nothing that outlives a transaction, so a returned connection needs no round trip to be clean."""


async def _drive(connection: Any, op: Op[T]) -> T:
    try:
        query = next(op)
        while True:
            try:
                rows = await connection.fetch(query.statement.postgres, *query.values)
            except asyncpg.PostgresError as error:
                query = op.throw(error)
            else:
                query = op.send(rows)
    except StopIteration as stop:
        value: T = stop.value
        return value
