"""Gives up bodies that stop arriving, with one timer for all: a timer each would cost more than most bodies do."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import Message, Receive

from docmill.core.errors import BadRequest


class Patience:
    """Waits for messages, each for *seconds* or hardly longer."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[asyncio.Task[Any], float] = {}
        self._given_up: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def next(self, receive: Receive) -> Message:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a request is read by a task")
        self._since[task] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._seconds / 4, self._look, loop)
        try:
            return await receive()
        except asyncio.CancelledError:
            if task not in self._given_up:
                raise
            task.uncancel()
            raise BadRequest("request_invalid", why="the body stopped arriving.") from None
        finally:
            del self._since[task]
            self._given_up.discard(task)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        late = loop.time() - self._seconds
        for task, since in self._since.items():
            if since < late and task not in self._given_up:
                self._given_up.add(task)
                task.cancel()
        self._timer = loop.call_later(self._seconds / 4, self._look, loop) if self._since else None
