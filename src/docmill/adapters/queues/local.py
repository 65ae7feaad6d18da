"""The queue of one process, on its event loop. What it forgets in a crash, the sweeper finds in the ledger."""

from __future__ import annotations

import asyncio
import time
from uuid import UUID

from docmill.core.turns import Lane, Turns, Waiting


class LocalQueue:
    def __init__(self) -> None:
        self._turns = {lane: Turns() for lane in Lane}
        self._filled = {lane: asyncio.Event() for lane in Lane}
        self._known: dict[UUID, Waiting] = {}

    async def put(self, waiting: Waiting, *, delay_ms: int = 0) -> None:
        if waiting.attempt_id in self._known:
            return
        self._known[waiting.attempt_id] = waiting
        if delay_ms:
            asyncio.get_running_loop().call_later(delay_ms / 1000, self._add, waiting)
        else:
            self._add(waiting)

    async def take(self, lane: Lane, most: int = 1) -> list[UUID]:
        turns, filled = self._turns[lane], self._filled[lane]
        while not turns:
            filled.clear()
            await filled.wait()
        taken: list[UUID] = []
        while turns and len(taken) < most:
            taken.append(turns.take())
            del self._known[taken[-1]]
        return taken

    def waiting(self, lane: Lane) -> int:
        return len(self._turns[lane])

    def leftovers(self) -> list[Waiting]:
        """What nobody has taken yet."""
        return list(self._known.values())

    def _add(self, waiting: Waiting) -> None:
        self._turns[waiting.lane].add(waiting, now_ms=round(time.monotonic() * 1000))
        self._filled[waiting.lane].set()
