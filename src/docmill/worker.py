"""The worker: takes attempt ids from the queue, runs them, sweeps on a timer, stops gracefully."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from itertools import zip_longest
from typing import Any
from uuid import UUID

import structlog

from docmill.core import machine
from docmill.core.errors import DocmillError
from docmill.core.machine import Change, Verdict
from docmill.core.reports import GivenBack
from docmill.core.task import Attempt, State, Task
from docmill.core.turns import Lane
from docmill.ports import Ports
from docmill.work import mineru, notify, retention, sweep
from docmill.work.heart import Heart
from docmill.work.isolation import IsolationGate
from docmill.work.places import Place, Places
from docmill.work.receive import receive, tell
from docmill.work.run import Claimed, run_attempt

log = structlog.get_logger(__name__)

AFTER_FAULT_S = 1.0
SETTLE_S = 0.05
COLLECT_EVERY_S = 60.0
PURGE_EVERY_S = 3600.0


class Worker:
    def __init__(self, ports: Ports, heart: Heart, places: Places, *, name: str) -> None:
        self._ports = ports
        self._heart = heart
        self._places = places
        self.name = name
        self._gate = IsolationGate()
        self._running: dict[UUID, tuple[int, asyncio.Task[Claimed | None]]] = {}
        self._walks: dict[asyncio.Task[None], None] = {}
        """In the order of their start, so that a stop takes the same course each time."""
        self._loops: list[asyncio.Task[None]] = []
        self._stopping = False

    @property
    def busy(self) -> int:
        return len(self._running)

    @property
    def is_alive(self) -> bool:
        return bool(self._loops) and not self._stopping and not any(loop.done() for loop in self._loops)

    def start(self) -> None:
        self._heart.start()
        self._loops = [asyncio.create_task(self._consume(lane)) for lane in Lane]
        self._loops += [asyncio.create_task(loop()) for loop in (self._sweep, self._watch, self._expire)]
        self._loops.append(asyncio.create_task(notify.Notifier(self._ports).run()))

    async def stop(self) -> None:
        """Take nothing new, give back what is unfinished. It costs no attempt."""
        self._stopping = True
        for _, running in self._running.values():
            running.cancel()
        ending = [*self._loops, *self._walks]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await self._give_back_kept()
        await asyncio.to_thread(self._heart.stop)

    async def _consume(self, lane: Lane) -> None:
        """Take ids as there are places for them: until then an attempt waits in the queue, and its task is pending."""
        while True:
            places = [await self._places.at(lane), *await self._places.more(lane)]
            attempt_ids = await self._next(lane, len(places))
            for attempt_id, place in zip_longest(attempt_ids, places):
                if attempt_id is None:
                    place.free()
                else:
                    self._start(self._walk(attempt_id, place))

    def _start(self, walk: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(walk)
        self._walks[task] = None
        task.add_done_callback(self._walks.pop)

    async def _next(self, lane: Lane, most: int) -> list[UUID]:
        while True:
            try:
                return await self._ports.queue.take(lane, most)
            except Exception:
                log.exception("queue_fault", lane=lane)
                await asyncio.sleep(AFTER_FAULT_S)

    async def _walk(self, attempt_id: UUID, place: Place) -> None:
        """Run an attempt, and the stages after it as far as they stay with us."""
        try:
            limits = self._ports.limits
            claimed = await self._ports.ledger.claim(attempt_id, worker=self.name, lease_ms=limits.lease_ms)
            if claimed is not None:
                tell(self._ports, claimed[0])
            while claimed is not None:
                claimed = await self._run(*claimed, place)
        except DocmillError as error:
            # The database is away. The ledger still has the attempt, so the sweeper rings again.
            log.warning("worker_waits", code=error.code)
            await asyncio.sleep(AFTER_FAULT_S)
        except Exception:
            log.exception("worker_fault")
            await asyncio.sleep(AFTER_FAULT_S)
        finally:
            place.free()

    async def _run(self, task: Task, attempt: Attempt, place: Place) -> Claimed | None:
        """Run an attempt of ours; the next one if we go on with it."""
        loop = asyncio.get_running_loop()
        running = asyncio.create_task(self._run_gated(task, attempt, place))
        self._running[attempt.id] = (task.id, running)
        self._heart.hold(attempt.id, lambda: loop.call_soon_threadsafe(self._lose, attempt.id, running))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            if self._stopping:
                await self._give_back(task, attempt)
                raise
            log.info("attempt_dropped", task=task.id, attempt=attempt.number)
            return None
        finally:
            self._heart.release(attempt.id)
            self._running.pop(attempt.id, None)

    async def _run_gated(self, task: Task, attempt: Attempt, place: Place) -> Claimed | None:
        """Beside others; or alone, if workers keep dying on this task."""
        if not machine.is_suspect(task):
            async with self._gate.together():
                return await run_attempt(self._ports, task, attempt, place, worker=self.name)
        async with self._gate.alone():
            change = await self._ports.ledger.decide(task.id, _isolate, attempt_id=attempt.id)
            if change.verdict is not Verdict.APPLIED:
                return None
            tell(self._ports, change.task)
            return await run_attempt(self._ports, change.task, attempt, place, worker=self.name)

    def _lose(self, attempt_id: UUID, running: asyncio.Task[Claimed | None]) -> None:
        self._start(self._stop_unless_done(attempt_id, running))

    async def _stop_unless_done(self, attempt_id: UUID, running: asyncio.Task[Claimed | None]) -> None:
        """The heart holds it no longer: it was dropped, or it is done this very moment and we go on with the next."""
        with suppress(DocmillError):
            found = await self._ports.ledger.find(attempt_id)
            if found is not None and found[1].state is State.SUCCEEDED:
                return
        running.cancel()

    async def _give_back(self, task: Task, attempt: Attempt) -> None:
        with suppress(DocmillError):
            await receive(self._ports, task.id, attempt.id, GivenBack())

    async def _give_back_kept(self) -> None:
        """A stage that ended in the very moment of the stop has opened the next one for us."""
        with suppress(DocmillError):
            for attempt in await self._ports.ledger.held(limit=1000, owner=self.name):
                await receive(self._ports, attempt.task_id, attempt.id, GivenBack())

    async def _sweep(self) -> None:
        collected = 0.0
        while True:
            try:
                await sweep.sweep(self._ports, spared=self._running if self._heart.is_beating else ())
                if time.monotonic() - collected > COLLECT_EVERY_S:
                    await sweep.collect(self._ports)
                    await notify.prune(self._ports)
                    collected = time.monotonic()
            except DocmillError as error:
                log.warning("sweep_failed", code=error.code)
            except Exception:
                log.exception("sweep_fault")
            await asyncio.sleep(self._ports.limits.sweep_s)

    async def _expire(self) -> None:
        """Beside the sweeper: a store that is slow to remove must not keep it from those who wait."""
        after, purge_at = 0, time.monotonic()
        while True:
            try:
                after = await retention.expire(self._ports, after=after)
                if time.monotonic() >= purge_at:
                    purge_at = time.monotonic() + PURGE_EVERY_S
                    await mineru.purge_batches(self._ports)
            except DocmillError as error:
                log.warning("expire_failed", code=error.code)
            except Exception:
                log.exception("expire_fault")
            await asyncio.sleep(self._ports.limits.sweep_s if after else COLLECT_EVERY_S)

    async def _watch(self) -> None:
        """A task that we run was changed: if that dropped our attempt (a cancel, a retry), stop it now."""
        with self._ports.signals.subscribe() as subscription:
            while True:
                changed = {await subscription.wait(60)}
                # Most changes are our own, at the end of an attempt: a moment later there is nothing to look up.
                await asyncio.sleep(SETTLE_S)
                while (other := await subscription.wait(0)) is not None:
                    changed.add(other)
                ours = {
                    attempt_id: running
                    for attempt_id, (task_id, running) in self._running.items()
                    if task_id in changed
                }
                for attempt_id in await self._dropped(list(ours)):
                    ours[attempt_id].cancel()

    async def _dropped(self, attempt_ids: list[UUID]) -> set[UUID]:
        if not attempt_ids:
            return set()
        try:
            return await self._ports.ledger.dropped(attempt_ids)
        except DocmillError:
            return set()  # the heartbeat will tell


def _isolate(task: Task, attempt: Attempt | None) -> Change:
    return Change(Verdict.SUPERSEDED, task) if attempt is None else machine.isolate(task, attempt)
