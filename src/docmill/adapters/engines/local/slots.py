"""Places for children. Documents wait for one in turn; what nobody waits for is spare."""

from __future__ import annotations

import asyncio
from collections import deque


class Slots:
    def __init__(self, number: int) -> None:
        self._free = number
        self._line: deque[asyncio.Future[None]] = deque()

    @property
    def wanted(self) -> bool:
        """Whether a document waits."""
        return any(not turn.done() for turn in self._line)

    def take_spare(self) -> bool:
        """A place, if there is one that nobody waits for."""
        if not self._free or self.wanted:
            return False
        self._free -= 1
        return True

    async def take(self) -> None:
        if self.take_spare():
            return
        turn = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it became ours in the moment in which we left
                self.free()
            raise

    def free(self) -> None:
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
