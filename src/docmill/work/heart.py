"""The heartbeat: a thread with an event loop and a ledger of its own, so that a busy loop never costs a lease."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from uuid import UUID

import structlog

from docmill.core.errors import DocmillError
from docmill.ports import Ledger

log = structlog.get_logger(__name__)


class Heart:
    def __init__(
        self,
        open_ledger: Callable[[], AbstractAsyncContextManager[Ledger]],
        *,
        worker: str,
        lease_ms: int,
        beat_s: float,
    ) -> None:
        self._open_ledger = open_ledger
        self._worker = worker
        self._lease_ms = lease_ms
        self._beat_s = beat_s
        self._held: dict[UUID, Callable[[], object]] = {}
        self._guard = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._beat_until_stopped, name="heart", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_beating(self) -> bool:
        return self._thread.is_alive() and not self._stopping.is_set()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=self._beat_s + 5)

    def hold(self, attempt_id: UUID, on_lost: Callable[[], object]) -> None:
        """Keep the lease of an attempt. *on_lost* is called, from this thread, once it is no longer ours."""
        with self._guard:
            self._held[attempt_id] = on_lost

    def release(self, attempt_id: UUID) -> None:
        with self._guard:
            self._held.pop(attempt_id, None)

    def _beat_until_stopped(self) -> None:
        asyncio.run(self._loop())

    async def _loop(self) -> None:
        async with self._open_ledger() as ledger:
            await self._beat(ledger)

    async def _beat(self, ledger: Ledger) -> None:
        while not self._stopping.wait(self._beat_s):
            with self._guard:
                ids = list(self._held)
            if not ids:
                continue
            try:
                alive = await ledger.beat(ids, worker=self._worker, lease_ms=self._lease_ms)
            except DocmillError as error:
                log.warning("heartbeat_failed", code=error.code)
                continue
            except Exception:
                # Whatever it was: a heart that stops costs every lease that it holds.
                log.exception("heart_fault")
                continue
            for attempt_id in ids:
                if attempt_id not in alive:
                    with self._guard:
                        on_lost = self._held.pop(attempt_id, None)
                    if on_lost:
                        on_lost()
