"""Many attempts run beside each other in one worker, or one runs alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class IsolationGate:
    """A shared lock for attempts that may run together, exclusive for one that must run alone.

    Whoever waits to be alone goes before those who come later, so that a busy worker does not starve it.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._together = 0
        self._is_exclusive = False
        self._exclusive_waiters = 0

    @asynccontextmanager
    async def together(self) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._is_exclusive and not self._exclusive_waiters)
            self._together += 1
        try:
            yield
        finally:
            self._together -= 1
            await self._notify()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        self._exclusive_waiters += 1
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._is_exclusive and not self._together)
                self._is_exclusive = True
        finally:
            self._exclusive_waiters -= 1
            if not self._is_exclusive:
                await self._notify()
        try:
            yield
        finally:
            self._is_exclusive = False
            await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()
