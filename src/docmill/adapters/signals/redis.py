"""Signals between processes: published on Redis, heard by all, and told to whoever waits here.

Within the process a signal needs no Redis. What is said while Redis is gone is not heard elsewhere; whoever waits there
looks again by itself.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final
from uuid import uuid4

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from docmill.adapters.signals.local import LocalSignals, LocalSubscription

log = structlog.get_logger(__name__)

CHANNEL: Final = "docmill:changed"
AGAIN_S: Final = 0.5
LISTEN_S: Final = 1.0
MOST: Final = 500
PAUSE_S: Final = 0.01
"""Between two messages. The first one goes at once; what changes while many do shares the next."""


class RedisSignals:
    may_miss = True

    def __init__(self, redis: Redis) -> None:
        self._redis: Any = redis
        self._here = LocalSignals()
        # Publish and subscribe know no databases; two deployments on one server use two.
        database = redis.connection_pool.connection_kwargs.get("db") or 0
        self._channel = f"{CHANNEL}:{database}"
        self._me = uuid4().hex[:12]
        self._unsaid: dict[int, None] = {}
        self._saying: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self.is_listening = asyncio.Event()

    def changed(self, task_id: int) -> None:
        self._here.changed(task_id)
        self._unsaid[task_id] = None
        if self._saying is None:
            self._saying = asyncio.create_task(self._say())

    def subscribe(self, task_id: int | None = None) -> LocalSubscription:
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())
        return self._here.subscribe(task_id)

    async def close(self) -> None:
        for task in (self._saying, self._listening):
            while task and not task.done():
                task.cancel()
                # Redis' client may take a cancel for its own time-out, and the loop goes on: then the next one ends it.
                await asyncio.wait([task], timeout=1)

    async def _say(self) -> None:
        """Whatever changed in the same moment goes out in one message."""
        while self._unsaid:
            ids = list(self._unsaid)[:MOST]
            for task_id in ids:
                del self._unsaid[task_id]
            try:
                await self._redis.publish(self._channel, f"{self._me}:{','.join(map(str, ids))}")
            except (RedisError, OSError, TimeoutError) as error:
                log.debug("signal_unsaid", error=type(error).__name__)
            await asyncio.sleep(PAUSE_S)
        self._saying = None

    async def _listen(self) -> None:
        while True:
            try:
                async with self._redis.pubsub(ignore_subscribe_messages=True) as heard:
                    await heard.subscribe(self._channel)
                    self.is_listening.set()
                    while True:
                        message = await heard.get_message(timeout=LISTEN_S)
                        if message is not None:
                            self._hear(message["data"])
            except (RedisError, OSError, TimeoutError) as error:
                log.debug("signals_away", error=type(error).__name__)
            except Exception:
                log.exception("signals_fault")
            self.is_listening.clear()
            await asyncio.sleep(AGAIN_S)

    def _hear(self, data: bytes) -> None:
        who, _, ids = data.decode("ascii", "replace").partition(":")
        if who != self._me:
            for task_id in ids.split(","):
                if task_id.isdecimal():
                    self._here.changed(int(task_id))
