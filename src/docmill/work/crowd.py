"""Those who come together again and again: one commit for all of them costs less than two for half of them."""

from __future__ import annotations

import asyncio

LINGER_S = 0.000_15
"""How long is waited for each of those who came together before: about what it takes them to come back."""


class Crowd:
    """How many came together of late. Who writes for them waits a moment until they are back; for one alone never.

    As long as some of them come, the others are waited for: on a slow machine a crowd that is parted stays parted, and
    each part costs a commit.
    """

    def __init__(self, *, most: int, most_s: float) -> None:
        self._most = most
        self._most_s = most_s
        self.size = 1
        self._here = 0
        self._complete: asyncio.Future[None] | None = None

    def now(self, count: int) -> None:
        """Somebody came: so many wait now."""
        self._here = count
        if self._complete and count >= self.size:
            _end(self._complete)

    async def gather(self, count: int) -> None:
        """Until those who were just answered are back, besides the *count* who are here."""
        if count >= self.size:
            return
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._most_s
        while count < self.size and (left_s := ends - loop.time()) > 0:
            self._complete = loop.create_future()
            timer = loop.call_later(min(LINGER_S * self.size, left_s), _end, self._complete)
            await self._complete
            timer.cancel()
            before, count = count, self._here
            if count <= before:
                break
        self._complete = None

    def went(self, count: int) -> None:
        """So many went together."""
        self.size = min(self._most, max(count, self.size * 3 // 4))


def _end(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
