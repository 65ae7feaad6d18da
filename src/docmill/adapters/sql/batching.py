"""Batching: calls that arrive while a transaction is on its way share the next one.

This is the group commit of decisions. A call that the batch had to leave out, and every call of a batch that failed,
gets a transaction of its own, so that each caller has the result that it would have had alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from docmill.core.errors import StorageFull, Unavailable

MAX_BATCH: Final = 128
"""Calls in one transaction."""


@dataclass(frozen=True, slots=True)
class Result:
    """Of one call: a value, or the error that its caller gets."""

    value: Any = None
    error: Exception | None = None


class Run(Protocol):
    async def __call__(self, items: Sequence[Any], *, alone: bool, tenant: str | None) -> Sequence[Result | None]:
        """Run one transaction, with one result for each item; nothing is written for one that failed.

        None: the item needs a transaction of its own. *alone*: it has one, and gets a result.
        """
        ...


class _Call:
    __slots__ = ("ended", "future", "item")

    def __init__(self, item: Any) -> None:
        self.item = item
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[None] | None = None
        """Set while its transaction runs; done when that has ended, committed or not."""

    def resolve(self, result: Result) -> None:
        if self.future.done():
            return
        if result.error is not None:
            self.future.set_exception(result.error)
        else:
            self.future.set_result(result.value)


class Batcher:
    """Runs calls in batches, one batch at a time. It belongs to one event loop."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._waiting: deque[_Call] = deque()
        self._is_running = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, item: Any, *, tenant: str | None = None) -> Any:
        """The result, once it is committed. In a tenant's scope a call has a transaction of its own.

        A caller that is cancelled while its transaction runs is released when that has ended: afterwards nothing of it
        is on the way.
        """
        call = _Call(item)
        if tenant is not None:
            self._start(self._run_alone(call, tenant))
        else:
            self._waiting.append(call)
            if not self._is_running:
                self._is_running = True
                self._start(self._run_waiting())
        try:
            return await call.future
        except asyncio.CancelledError:
            if call.ended is not None:
                await asyncio.wait([call.ended])
            raise

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_waiting(self) -> None:
        try:
            while self._waiting:
                if batch := self._next_batch():
                    await self._run_batch(batch)
        finally:
            self._is_running = False

    def _next_batch(self) -> list[_Call]:
        batch: list[_Call] = []
        while self._waiting and len(batch) < MAX_BATCH:
            call = self._waiting.popleft()
            if not call.future.done():  # a cancelled caller
                batch.append(call)
        return batch

    async def _run_batch(self, batch: Sequence[_Call]) -> None:
        results: Sequence[Result | None]
        with _Running(batch):
            try:
                results = await self._run([call.item for call in batch], alone=False, tenant=None)
            except Exception as error:
                # It was rolled back, because of one of them or of a lock: each tries alone.
                results = [Result(error=error) if _is_for_all(error) else None] * len(batch)
            for call, result in zip(batch, results, strict=True):
                if result is not None:
                    call.resolve(result)
                elif not call.future.done():
                    self._start(self._run_alone(call))

    async def _run_alone(self, call: _Call, tenant: str | None = None) -> None:
        with _Running([call]):
            try:
                [result] = await self._run([call.item], alone=True, tenant=tenant)
            except Exception as error:
                result = Result(error=error)
            call.resolve(result or Result(error=Unavailable("database_busy")))


class _Running:
    """Marks calls whose transaction runs. If the running task itself is cancelled, so are its callers."""

    def __init__(self, calls: Sequence[_Call]) -> None:
        self._calls = calls
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __enter__(self) -> None:
        for call in self._calls:
            call.ended = self._ended

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._ended.set_result(None)
        if error is not None:
            for call in self._calls:
                call.future.cancel()


def _is_for_all(error: Exception) -> bool:
    """The database is away, perhaps in the middle of the commit: trying again is the callers' decision."""
    return isinstance(error, StorageFull) or (isinstance(error, Unavailable) and error.code == "database_unavailable")
