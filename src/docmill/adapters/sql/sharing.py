"""Callers that come at the same time share a transaction, where the database does not do that by itself.

Those who come while a transaction is on its way go together in the next one. Whoever comes alone is not kept waiting,
unless just after a crowd, which is given a few milliseconds to come back.
A transaction of many waits for no row that somebody else holds: such an item, and every item of a transaction that
failed, gets one of its own, so that each caller has the answer that it would have had alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final

from docmill.adapters.sql.database import Answer, Shared
from docmill.adapters.sql.statement import Op
from docmill.core.errors import StorageFull, Unavailable
from docmill.work.crowd import Crowd

MOST: Final = 64
"""Items in one transaction."""
MOST_LINGER_S: Final = 0.01

Write = Callable[[Op[list[Answer | None]], bool], Awaitable[list[Answer | None]]]
"""Runs the operation in a transaction, patient or not."""


class _Call:
    """An item, and who waits for its answer."""

    __slots__ = ("answer", "item", "over")

    def __init__(self, item: Any) -> None:
        self.item = item
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.over: asyncio.Future[None] | None = None
        """While it is being written: done when that has ended, in whatever way."""

    def settle(self, answer: Answer) -> None:
        if self.answer.done():
            return
        if answer.error is not None:
            self.answer.set_exception(answer.error)
        else:
            self.answer.set_result(answer.value)


class Sharing:
    """Of one operation."""

    def __init__(self, op: Shared, write: Write) -> None:
        self._op = op
        self._write = write
        self._waiting: deque[_Call] = deque()
        self._is_writing = False
        self._at_work: set[asyncio.Task[None]] = set()
        self._crowd = Crowd(most=MOST, most_s=MOST_LINGER_S)

    async def join(self, item: Any) -> Any:
        call = _Call(item)
        self._waiting.append(call)
        self._crowd.now(len(self._waiting))
        if not self._is_writing:
            self._is_writing = True
            self._start(self._write_waiting())
        try:
            return await call.answer
        except asyncio.CancelledError:
            if call.over is not None:
                # It may be in the middle of its commit. Who gives up must know that nothing comes after.
                await asyncio.wait([call.over])
            raise

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)

    async def _write_waiting(self) -> None:
        # By now everybody who came in the same moment is here.
        try:
            while self._waiting:
                await self._crowd.gather(len(self._waiting))
                batch = self._next()
                self._crowd.went(len(batch))
                if batch:
                    await self._write_batch(batch)
        finally:
            # In the same breath as the last look: whoever comes after it starts anew.
            self._is_writing = False

    def _next(self) -> list[_Call]:
        batch: list[_Call] = []
        while self._waiting and len(batch) < MOST:
            call = self._waiting.popleft()
            if not call.answer.done():
                batch.append(call)
        return batch

    async def _write_batch(self, batch: Sequence[_Call]) -> None:
        answers: Sequence[Answer | None]
        with _Writing(batch):
            try:
                answers = await self._write(self._op([call.item for call in batch], patient=False), False)
            except Exception as error:
                # Else it was rolled back, because of one of them or of somebody else: each tries for itself.
                answers = [Answer(error=error) if _is_for_all(error) else None] * len(batch)
            for call, answer in zip(batch, answers, strict=True):
                if answer is not None:
                    call.settle(answer)
                elif not call.answer.done():
                    self._start(self._write_alone(call))

    async def _write_alone(self, call: _Call) -> None:
        with _Writing([call]):
            try:
                [answer] = await self._write(self._op([call.item], patient=True), True)
            except Exception as error:
                answer = Answer(error=error)
            call.settle(answer or Answer(error=Unavailable("database_busy")))


class _Writing:
    """Who is told to end in the middle of it leaves nobody waiting."""

    def __init__(self, calls: Sequence[_Call]) -> None:
        self._calls = calls
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __enter__(self) -> None:
        for call in self._calls:
            call.over = self._over

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._over.set_result(None)
        if error is not None:
            for call in self._calls:
                call.answer.cancel()


def _is_for_all(error: Exception) -> bool:
    """The database is away, perhaps in the middle of the commit: nobody may try again by themselves."""
    return isinstance(error, StorageFull) or (isinstance(error, Unavailable) and error.code == "database_unavailable")
