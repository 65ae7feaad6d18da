"""The queue of one process: a heap on the event loop. What it forgets in a crash, the sweeper finds in the ledger."""

from __future__ import annotations

import asyncio
from itertools import count
from uuid import UUID


class LocalQueue:
    def __init__(self) -> None:
        self._ready: asyncio.PriorityQueue[tuple[int, int, UUID]] = asyncio.PriorityQueue()
        self._waiting: set[UUID] = set()
        self._order = count()

    async def put(self, attempt_id: UUID, *, delay_ms: int = 0, priority: int = 0) -> None:
        if attempt_id in self._waiting:
            return
        self._waiting.add(attempt_id)
        entry = (-priority, next(self._order), attempt_id)
        if delay_ms:
            asyncio.get_running_loop().call_later(delay_ms / 1000, self._ready.put_nowait, entry)
        else:
            self._ready.put_nowait(entry)

    async def get(self) -> UUID:
        _, _, attempt_id = await self._ready.get()
        self._waiting.discard(attempt_id)
        return attempt_id
