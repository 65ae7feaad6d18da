"""SQLite through apsw: one writer thread that commits in groups, readers beside it.

Durable means durable: WAL with `synchronous=FULL`, and an answer only after COMMIT. Operations that arrive while the
disk is syncing share the next commit; each but the first has a savepoint, so that one that fails takes none with it.

What need not be durable goes first and is not synced. The next commit that is syncs it as well: the log has an order.

A brief operation runs where its caller stands, if the writer has nothing to do, and leaves the writer its commit: the
event loop goes on while the disk is syncing, instead of both waiting for each other's turn at the interpreter.

What an operation put off is done before any other one sees the database, in a transaction that changes it anyway or
in one of its own, and soon in any case.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import apsw

from docmill.adapters.sql.database import Later, Shared
from docmill.adapters.sql.statement import Op, Query, Statement, Together
from docmill.core.errors import DocmillError, StorageFull, Unavailable

T = TypeVar("T")

GROUP = 256
GROUP_S = 0.02
"""Who comes to a long group waits for this much of it, not for all."""
READERS = 4
BUSY_MS = 10_000
CHECKPOINT_PAGES = 4_000
"""Rows that change often are copied back from the log once for many changes."""

PUT_OFF_S = 0.25
"""How long work waits that was put off, if nobody asks for it."""

CATCH_UP_S = 1.0
"""How long a reader waits for that, if somebody else keeps the file."""

_Job = tuple[Op[Any] | None, "asyncio.Future[Any]", Later | None]
_Ended = tuple["asyncio.Future[Any]", Any, BaseException | None]


class SqliteDatabase:
    dialect = "sqlite"
    puts_off = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._durable: deque[_Job] = deque()
        self._soft: deque[_Job] = deque()
        self._asked: SimpleQueue[bool] = SimpleQueue()
        self._turn = threading.Lock()
        """Held by whoever uses the writing connection."""
        self._begun: list[_Ended] = []
        """What ran where its caller stands and waits for its commit. The turn went to the writer with it."""
        self._later: Later | None = None
        """What was put off and is not done yet. It is set before its commit and cleared after that of the work."""
        self._left: Later | None = None
        """The same as the transaction that is on its way will leave it."""
        self._reminder: asyncio.TimerHandle | None = None
        self._closed = False
        self._local = threading.local()
        self._opened: list[apsw.Connection] = []
        self._opening = threading.Lock()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="sqlite-read")
        self._keeper = ThreadPoolExecutor(1, thread_name_prefix="sqlite-keep")
        self._copying: Future[None] | None = None
        _create_private(path)
        self._connection = self._connect()
        self._connection.pragma("journal_mode", "wal")
        # Zero what is deleted, as far as that needs no more writing: an old secret must not stay in a free page.
        self._connection.pragma("secure_delete", "fast")
        self._connection.pragma("synchronous", "full")
        self._synchronous = "full"
        self._log_pages = 0
        self._connection.set_wal_hook(self._measure_log)
        self._writer = threading.Thread(target=self._work, name="sqlite-write", daemon=True)
        self._writer.start()

    # One process, one wall: scopes and patience are for databases that many share.
    async def write(
        self,
        op: Op[T],
        *,
        tenant: str | None = None,  # noqa: ARG002
        patience_s: float | None = None,  # noqa: ARG002
        durable: bool = True,
        brief: bool = False,
        later: Later | None = None,
    ) -> T:
        if self._closed:
            raise Unavailable("shutting_down")
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        job = op, done, later
        if not (brief and durable and self._begin_here(job)):
            (self._durable if durable else self._soft).append(job)
        self._asked.put(True)
        if later is not None:
            self._remind()
        return await done

    async def share(self, item: Any, op: Shared, *, tenant: str | None = None, durable: bool = True) -> Any:
        # The writer has a commit for all who come, and a savepoint for each.
        writing = asyncio.ensure_future(self.write(op([item], patient=True), tenant=tenant, durable=durable))
        try:
            [answer] = await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing])
            raise
        if answer is None:
            raise Unavailable("database_busy")
        return answer.get()

    async def read(self, op: Op[T], *, tenant: str | None = None) -> T:  # noqa: ARG002
        if self._closed:
            raise Unavailable("shutting_down")
        await self._catch_up()
        return await asyncio.wrap_future(self._readers.submit(self._read, op))

    async def glance(self, op: Op[T], *, tenant: str | None = None) -> T:  # noqa: ARG002
        return await self.read(op)

    async def peek(self, op: Op[T], *, tenant: str | None = None) -> T:  # noqa: ARG002
        # A reader does not wait for the writer, and a row that somebody watches was just written: it is in memory.
        if self._closed:
            raise Unavailable("shutting_down")
        await self._catch_up()
        return self._read(op)

    async def script(self, text: str) -> None:
        def run() -> Op[None]:
            for part in text.split(";\n"):
                yield Query(Statement(part), {})

        await self.write(run())

    async def truncate_log(self) -> None:
        """Copy all of the log into the database and empty its file, if nobody else reads it."""

        def run() -> None:
            with suppress(apsw.Error):
                self._own_connection().wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

        await asyncio.wrap_future(self._keeper.submit(run))

    async def close(self) -> None:
        if self._closed:
            return
        await self._catch_up()  # else it is done when the file is opened again
        self._closed = True
        if self._reminder:
            self._reminder.cancel()
        self._asked.put(False)
        await asyncio.to_thread(self._writer.join)
        await asyncio.to_thread(self._readers.shutdown)
        await asyncio.to_thread(self._keeper.shutdown)
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

    async def _catch_up(self) -> None:
        """What was put off is done, if that is possible: where nothing can be written, one can still look."""
        if self._later is None:
            return
        with suppress(DocmillError, TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                await self._line_up()

    def _line_up(self) -> asyncio.Future[None]:
        """Whoever comes without an operation finds done what was put off before."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._soft.append((None, done, None))
        self._asked.put(True)
        return done

    def _remind(self) -> None:
        if self._reminder is None:
            self._reminder = asyncio.get_running_loop().call_later(PUT_OFF_S, self._do_what_was_put_off)

    def _do_what_was_put_off(self) -> None:
        self._reminder = None
        if self._later is not None and not self._closed:
            self._remind()  # it may fail
            self._line_up().add_done_callback(lambda done: done.cancelled() or done.exception())

    def _begin_here(self, job: _Job) -> bool:
        """Run it in a transaction that the writer will commit. False: the writer is busy, and will do it all."""
        if self._durable or not self._turn.acquire(blocking=False):
            return False
        _, done, _ = job
        try:
            with _translated():
                self._begin_at_once()
                ended = self._run_next(job, is_first=True)
        except BaseException as error:
            self._give_up()
            self._turn.release()
            if isinstance(error.__cause__, apsw.BusyError):  # another process writes: the writer can wait, we cannot
                return False
            _settle([(done, None, error)])
            return True
        # From here on the connection is the writer's.
        self._begun.append((done, *ended))
        return True

    def _begin_at_once(self) -> None:
        self._connection.set_busy_timeout(0)
        try:
            self._begin("full")
        finally:
            self._connection.set_busy_timeout(BUSY_MS)

    def _work(self) -> None:
        while self._asked.get():
            # Whoever has the turn without having begun is about to begin, and rings again.
            if not self._begun and not self._turn.acquire(blocking=False):
                continue
            try:
                if self._begun:
                    self._commit(self._durable, "full")
                if self._soft:
                    self._commit(self._soft, "normal")
                if self._durable:
                    self._commit(self._durable, "full")
            finally:
                self._turn.release()

    def _commit(self, jobs: deque[_Job], synchronous: str) -> None:
        """The jobs that wait, and those that come meanwhile. Whoever is left has rung, too."""
        connection = self._connection
        results, self._begun = self._begun, []
        asked = [done for done, *_ in results]
        until = time.monotonic() + GROUP_S
        try:
            with _translated():
                if not asked:
                    self._begin(synchronous)
                while jobs and len(asked) < GROUP and (not asked or time.monotonic() < until):
                    job = jobs.popleft()
                    asked.append(job[1])
                    results.append((job[1], *self._run_next(job, is_first=not results)))
                connection.execute("COMMIT")
        except BaseException as error:
            self._give_up()
            _tell([(done, None, error) for done in asked or [jobs.popleft()[1] for _ in range(len(jobs))]])
            return
        self._later = self._left
        _tell(results)
        self._tidy()

    def _measure_log(self, _: apsw.Connection, __: str, pages: int) -> int:
        self._log_pages = pages
        return apsw.SQLITE_OK

    def _tidy(self) -> None:
        """A long log is copied back beside the commits. What they add meanwhile the writer copies itself, for a log
        begins anew only when there is nothing left of it."""
        if self._log_pages < CHECKPOINT_PAGES:
            self._copying = None
        elif self._copying is None:
            try:
                self._copying = self._keeper.submit(lambda: self._copy_back(self._own_connection()))
            except RuntimeError:  # there is no thread to be had: the writer must not end with that
                self._copy_back(self._connection)
        elif self._copying.done():
            self._copying = None
            self._copy_back(self._connection)

    def _copy_back(self, connection: apsw.Connection) -> None:
        """If it fails the log grows, and a later commit tries again."""
        with suppress(apsw.Error):
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _begin(self, synchronous: str) -> None:
        if synchronous != self._synchronous:
            self._connection.pragma("synchronous", synchronous)
            self._synchronous = synchronous
        self._connection.execute("BEGIN IMMEDIATE")

    def _give_up(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _run_next(self, job: _Job, *, is_first: bool) -> tuple[Any, BaseException | None]:
        """After what was put off, unless it puts off the same."""
        op, _, later = job
        if is_first:
            self._left = self._later
        if later is not None:
            self._left = self._later = later
        elif self._left is not None:
            _, error = self._run_one(self._left(), is_first=is_first)
            if error:
                raise error
            self._left = None
            is_first = False
        return self._run_one(op, is_first=is_first) if op else (None, None)

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


def _tell(ended: list[_Ended]) -> None:
    """Wakes each event loop once. There are two: the heart has its own."""
    told: dict[asyncio.AbstractEventLoop, list[_Ended]] = {}
    for one in ended:
        told.setdefault(one[0].get_loop(), []).append(one)
    for loop, its in told.items():
        with suppress(RuntimeError):  # it is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, its)


def _settle(ended: list[_Ended]) -> None:
    for done, value, error in ended:
        if done.done():  # who waited was cancelled
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
