"""PostgreSQL through asyncpg: a pool, a transaction an operation, and 503 while the server is away.

Row-level security is the second wall between tenants: an operation for a tenant runs in that tenant's scope, and the
database itself shows it no other rows, whatever the statement forgot to ask. The scope is a setting of the session,
`docmill.scope`: `*` for docmill's own work, `=` and the tenant for a tenant's. A session without it sees nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import asyncpg

from docmill.adapters.sql.statement import Op, Query, Together
from docmill.core.errors import StorageFull, Unavailable

T = TypeVar("T")

STATEMENT_MS = 15_000
LOCK_MS = 10_000
IDLE_MS = 2_000
"""In the middle of a transaction nobody thinks for longer than this: who does is frozen or cut off, and others wait for
what it has locked."""
CONNECT_S = 5.0
EVERYBODY = "*"
BY_INDEX = "; SET LOCAL enable_seqscan = off"
"""Rows by their keys. How a young table looks when the statement is planned must not make it a scan of an old one."""
SNAPSHOT = "ISOLATION LEVEL REPEATABLE READ READ ONLY"

_BUSY = (
    # Somebody else holds what we need, or two transactions are in each other's way: the loser's caller tries again.
    asyncpg.LockNotAvailableError,
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
)
_AWAY = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InsufficientResourcesError,
    asyncpg.QueryCanceledError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    # A standby, before or after a switch-over: the writable server is elsewhere for a moment.
    asyncpg.ReadOnlySQLTransactionError,
)


class Connection(asyncpg.Connection):  # type: ignore[misc]
    """Knows in which scope its session is, so that the same tenant's next read costs no extra round trip."""

    scope: str | None = EVERYBODY

    async def enter(self, scope: str) -> None:
        if self.scope != scope:
            self.scope = None  # if we are interrupted here, nobody knows
            await self.fetchval("SELECT set_config('docmill.scope', $1, false)", scope)
            self.scope = scope

    def begin(self, mode: str, scope: str) -> str:
        """The scope of a transaction is its own, and is set in the round trip that begins it."""
        begin = f"BEGIN {mode}"
        if self.scope == scope:
            return begin
        quoted = scope.replace("'", "''")
        return f"{begin}; SET LOCAL docmill.scope = '{quoted}'"


class PostgresDatabase:
    dialect = "postgres"

    def __init__(self, url: str, *, size: int = 10) -> None:
        self._url = url
        self._size = size
        self._pool: asyncpg.Pool | None = None
        self._opening = asyncio.Lock()

    async def write(
        self,
        op: Op[T],
        *,
        tenant: str | None = None,
        durable: bool = True,  # noqa: ARG002 - telling the server would cost more than it saves
        lock_s: float | None = None,
        statement_s: float | None = None,
    ) -> T:
        async with self._acquired() as connection:
            begin = connection.begin("", _scope(tenant)) + BY_INDEX
            if lock_s is not None:
                begin += f"; SET LOCAL lock_timeout = {round(lock_s * 1000)}"
            async with _transaction(connection, begin):
                return await _drive(connection, op, statement_s)

    async def read(self, op: Op[T], *, tenant: str | None = None, snapshot: bool = False) -> T:
        async with self._acquired() as connection:
            if snapshot:
                async with _transaction(connection, connection.begin(SNAPSHOT, _scope(tenant))):
                    return await _drive(connection, op)
            # Without BEGIN and COMMIT, which would cost twice the query.
            await connection.enter(_scope(tenant))
            return await _drive(connection, op)

    async def script(self, text: str) -> None:
        async with self._acquired() as connection, _transaction(connection, connection.begin("", EVERYBODY)):
            await connection.execute(text)

    async def close(self) -> None:
        if self._pool:
            pool, self._pool = self._pool, None
            try:
                async with asyncio.timeout(5):
                    await pool.close()
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
        except _BUSY as error:
            raise Unavailable("database_busy") from error
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
                        connection_class=Connection,
                        reset=_nothing_to_reset,
                        server_settings={
                            "statement_timeout": str(STATEMENT_MS),
                            "lock_timeout": str(LOCK_MS),
                            "idle_in_transaction_session_timeout": str(IDLE_MS),
                            "application_name": "docmill",
                            "docmill.scope": EVERYBODY,
                            "standard_conforming_strings": "on",
                            # Every statement has its index: planning anew each time costs more than it finds.
                            "plan_cache_mode": "force_generic_plan",
                        },
                    )
        return self._pool


def _scope(tenant: str | None) -> str:
    return EVERYBODY if tenant is None else f"={tenant}"


async def _nothing_to_reset(_: Any) -> None:
    """What outlives a transaction is the scope, which the connection remembers: it needs no round trip to be clean."""


@asynccontextmanager
async def _transaction(connection: Any, begin: str) -> AsyncIterator[None]:
    try:
        await connection.execute(begin)
        yield
    except BaseException:
        with suppress(*_AWAY, asyncpg.PostgresError):
            await connection.execute("ROLLBACK")
        raise
    if await connection.execute("COMMIT") != "COMMIT":
        # The server answers so when a statement failed and nobody said: nothing was written.
        raise Unavailable("database_unavailable")


async def _rows(connection: Any, query: Query | Together, limit: dict[str, float]) -> Any:
    if isinstance(query, Together):
        return await connection.fetch(query.postgres, *query.values, **limit)
    if query.many is None or query.is_bulk:
        return await connection.fetch(query.statement.postgres, *query.values, **limit)
    # One round trip for all of them.
    await connection.executemany(query.statement.postgres, query.many, **limit)
    return []


async def _drive(connection: Any, op: Op[T], statement_s: float | None = None) -> T:
    limit = {} if statement_s is None else {"timeout": statement_s}
    try:
        query = next(op)
        while True:
            try:
                rows = await _rows(connection, query, limit)
            except asyncpg.PostgresError as error:
                query = op.throw(error)
            else:
                query = op.send(rows)
    except StopIteration as stop:
        value: T = stop.value
        return value
