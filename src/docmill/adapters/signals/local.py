"""Signals within one process, to each subscriber in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import defaultdict


class LocalSignals:
    may_miss = False

    def __init__(self) -> None:
        self._of_task: dict[int, dict[LocalSubscription, None]] = defaultdict(dict)
        self._of_all: dict[LocalSubscription, None] = {}

    def changed(self, task_id: int) -> None:
        for subscription in (*self._of_task.get(task_id, ()), *self._of_all):
            subscription.tell(task_id)

    def subscribe(self, task_id: int | None = None) -> LocalSubscription:
        return LocalSubscription(self, task_id)

    def add(self, subscription: LocalSubscription) -> None:
        if subscription.task_id is None:
            self._of_all[subscription] = None
        else:
            self._of_task[subscription.task_id][subscription] = None

    def remove(self, subscription: LocalSubscription) -> None:
        if subscription.task_id is None:
            self._of_all.pop(subscription, None)
            return
        others = self._of_task[subscription.task_id]
        others.pop(subscription, None)
        if not others:
            del self._of_task[subscription.task_id]


class LocalSubscription:
    def __init__(self, signals: LocalSignals, task_id: int | None) -> None:
        self.task_id = task_id
        self._signals = signals
        self._changed: dict[int, None] = {}
        self._event = asyncio.Event()

    def tell(self, task_id: int) -> None:
        self._changed[task_id] = None
        self._event.set()

    def __enter__(self) -> LocalSubscription:
        self._signals.add(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self._signals.remove(self)

    async def wait(self, seconds: float) -> int | None:
        if not self._changed:
            self._event.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._event.wait()
            except TimeoutError:
                return None
        task_id = next(iter(self._changed))
        del self._changed[task_id]
        return task_id
