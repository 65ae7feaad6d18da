"""SQLite through apsw: one writer thread that commits in groups, readers beside it.

Durable means durable: WAL with `synchronous=FULL`, and an answer only after COMMIT. Operations that arrive while the
disk is syncing share the next commit; each but the first has a savepoint, so that one that fails undoes itself alone.

Operations that need not be durable go first and are not synced. The next durable commit syncs them as well: the log has
an order.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import apsw

from docmill.adapters.sql.statement import Op, Query, Statement, Together
from docmill.core.errors import DocmillError, StorageFull, Unavailable

T = TypeVar("T")

MAX_GROUP = 256
"""Operations in one commit."""
MAX_GROUP_S = 0.02
"""Operations that arrive during a long group wait for this much of it, not for all."""
READERS = 4
BUSY_MS = 10_000
CHECKPOINT_PAGES = 4_000
"""Rows that change often are copied from the log into the database once for many changes."""

_Job = tuple[Op[Any], "asyncio.Future[Any]"]
_Ended = tuple["asyncio.Future[Any]", Any, BaseException | None]


class SqliteDatabase:
    dialect = "sqlite"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._durable: deque[_Job] = deque()
        self._soft: deque[_Job] = deque()
        self._asked: SimpleQueue[bool] = SimpleQueue()
        self._closed = False
        self._local = threading.local()
        self._opened: list[apsw.Connection] = []
        self._opening = threading.Lock()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="sqlite-read")
        _create_private(path)
        self._connection = self._connect()
        self._connection.pragma("journal_mode", "wal")
        # Zero what is deleted, as far as that needs no more writing: an old secret must not stay in a free page.
        self._connection.pragma("secure_delete", "fast")
        self._connection.pragma("synchronous", "full")
        self._synchronous = "full"
        self._connection.wal_autocheckpoint(CHECKPOINT_PAGES)
        self._writer = threading.Thread(target=self._work, name="sqlite-write", daemon=True)
        self._writer.start()

    # One process, one file: scopes and lock limits are for databases that many share.
    async def write(
        self,
        op: Op[T],
        *,
        tenant: str | None = None,  # noqa: ARG002
        durable: bool = True,
        lock_s: float | None = None,  # noqa: ARG002
        statement_s: float | None = None,  # noqa: ARG002
    ) -> T:
        if self._closed:
            raise Unavailable("shutting_down")
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        (self._durable if durable else self._soft).append((op, done))
        self._asked.put(True)
        return await done

    async def read(self, op: Op[T], *, tenant: str | None = None, snapshot: bool = False) -> T:  # noqa: ARG002
        if self._closed:
            raise Unavailable("shutting_down")
        return await asyncio.wrap_future(self._readers.submit(self._read, op))

    async def script(self, text: str) -> None:
        def run() -> Op[None]:
            for part in text.split(";\n"):
                yield Query(Statement(part), {})

        await self.write(run())

    async def truncate_log(self) -> None:
        """Copy all of the log into the database and empty its file, unless another process reads it."""

        def run() -> None:
            with suppress(apsw.Error):
                self._own_connection().wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

        await asyncio.wrap_future(self._readers.submit(run))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._asked.put(False)
        await asyncio.to_thread(self._writer.join)
        await asyncio.to_thread(self._readers.shutdown)
        for connection in self._opened:
            connection.close()

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(str(self._path))
        connection.set_busy_timeout(BUSY_MS)
        connection.pragma("foreign_keys", True)
        connection.pragma("cache_size", -16_000)
        # Each operation has a savepoint, and what it would take to undo it needs no file.
        connection.pragma("temp_store", "memory")
        with self._opening:
            self._opened.append(connection)
        return connection

    def _own_connection(self) -> apsw.Connection:
        """This thread's, which changes no rows."""
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._connect()
            connection.pragma("query_only", True)
            self._local.connection = connection
        return connection

    def _read(self, op: Op[T]) -> T:
        connection = self._own_connection()
        with _translated():
            connection.execute("BEGIN")
            try:
                return _drive(connection, op)
            finally:
                connection.execute("COMMIT")

    def _work(self) -> None:
        while self._asked.get():
            if self._soft:
                self._commit(self._soft, "normal")
            if self._durable:
                self._commit(self._durable, "full")

    def _commit(self, jobs: deque[_Job], synchronous: str) -> None:
        """The operations that wait, and those that arrive meanwhile. Each of them has put its sign into the queue."""
        connection = self._connection
        asked: list[asyncio.Future[Any]] = []
        results: list[_Ended] = []
        until = time.monotonic() + MAX_GROUP_S
        try:
            with _translated():
                if synchronous != self._synchronous:
                    connection.pragma("synchronous", synchronous)
                    self._synchronous = synchronous
                connection.execute("BEGIN IMMEDIATE")
                while jobs and len(asked) < MAX_GROUP and (not asked or time.monotonic() < until):
                    op, done = jobs.popleft()
                    asked.append(done)
                    results.append((done, *self._run_one(op, is_first=not results)))
                connection.execute("COMMIT")
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            _resolve_all([(done, None, error) for done in asked or [jobs.popleft()[1] for _ in range(len(jobs))]])
            return
        _resolve_all(results)

    def _run_one(self, op: Any, *, is_first: bool) -> tuple[Any, BaseException | None]:
        """The first has the transaction to itself, so it needs no savepoint, for which each changed page is copied."""
        connection = self._connection
        if not is_first:
            connection.execute("SAVEPOINT op")
        try:
            value = _drive(connection, op)
        except (apsw.FullError, apsw.IOError):
            raise
        except BaseException as error:
            for undo in ("ROLLBACK", "BEGIN IMMEDIATE") if is_first else ("ROLLBACK TO op", "RELEASE op"):
                connection.execute(undo)
            return None, error
        if not is_first:
            connection.execute("RELEASE op")
        return value, None


def _create_private(path: Path) -> None:
    """A new file is its owner's alone; SQLite gives its log and index the same rights."""
    with suppress(FileExistsError, OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))


def _drive(connection: apsw.Connection, op: Op[T]) -> T:
    try:
        query = next(op)
        while True:
            try:
                if isinstance(query, Together):
                    rows, *_ = [_rows(connection, one) for one in query.queries]
                else:
                    rows = _rows(connection, query)
            except apsw.Error as error:
                query = op.throw(error)
            else:
                query = op.send(rows)
    except StopIteration as stop:
        value: T = stop.value
        return value


def _rows(connection: apsw.Connection, query: Query) -> list[Any]:
    if query.many is None:
        return connection.execute(query.statement.sqlite, query.params).fetchall()
    return connection.executemany(query.statement.sqlite, query.many).fetchall()


def _resolve_all(ended: list[_Ended]) -> None:
    """Wakes each event loop once. There are two: leases are renewed in a thread with a loop of its own."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Ended]] = {}
    for one in ended:
        by_loop.setdefault(one[0].get_loop(), []).append(one)
    for loop, its in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed: no caller waits
            loop.call_soon_threadsafe(_resolve, its)


def _resolve(ended: list[_Ended]) -> None:
    for done, value, error in ended:
        if done.done():  # the caller was cancelled
            continue
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)


class _translated:  # noqa: N801 - reads as a word in `with`
    """Turns the engine's faults into ours."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, DocmillError):
            return
        if isinstance(error, apsw.FullError):
            raise StorageFull("storage_full") from error
        if isinstance(error, (apsw.BusyError, apsw.LockedError, apsw.IOError, apsw.CantOpenError)):
            raise Unavailable("database_unavailable") from error
