"""An engine over the network that takes documents of any length: cut, parsed in parallel, merged in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from docmill.core.errors import DocmillError, StageFailed
from docmill.core.parsed import Parsed
from docmill.core.routing import PDF, Part, Policy, Slice, ban, merge, slices, stricter
from docmill.ports import Deferred, Work

if TYPE_CHECKING:
    from docmill.ports import PageReport, ProviderEngine

    from .cutting import Cutter

log = structlog.get_logger(__name__)

TRIES: Final = 3
PAUSE_S: Final = 1.0
FINAL: Final = frozenset({"provider_refused", "provider_quota"})
"""Every slice would hear the same."""
ABSENT: Final = frozenset({"provider_unreachable", "provider_busy"})
"""Nobody is there: the whole document is tried again later, rather than given up in part."""


Done = tuple[Part, Path]
"""What became of a slice, and the folder where its figures lie."""


class SlicedEngine:
    """Wraps an engine; the wrapped one sees no document that is too long for it."""

    def __init__(
        self,
        engine: ProviderEngine,
        cutter: Cutter,
        *,
        policy: Policy = Policy(),  # noqa: B008 - it never changes
        home: bool = False,
        parallel: int = 4,
        pause_s: float = PAUSE_S,
    ) -> None:
        self.name = engine.name
        self.version = engine.version
        self.media_types = engine.media_types
        self._engine = engine
        self._cutter = cutter
        self._policy = policy
        self._home = home
        self._parallel = parallel
        self._pause_s = pause_s

    async def start(self, work: Work, report: PageReport) -> Parsed:
        facts = await self._cutter.facts(work.source, work.filename)
        if why := ban(facts, stricter(self._policy, work.options), home=self._home):
            raise StageFailed("provider_forbidden", provider=self.name, why=why)
        pieces = (
            slices(facts, await self._engine.page_limit())
            if facts.media_type == PDF and facts.pages
            else (Slice(0, 0),)
        )
        if len(pieces) == 1:
            if facts.pages:
                report(0, facts.pages)
            return await self._whole(work, report)
        log.info("document_cut", provider=self.name, task=work.task_id, pages=facts.pages, slices=len(pieces))
        return await self._in_slices(work, report, pieces)

    async def _whole(self, work: Work, report: PageReport) -> Parsed:
        parsed = await self._engine.start(work, report)
        if isinstance(parsed, Deferred):
            raise StageFailed("stage_failed", why="a provider does not hand over")
        return parsed

    async def _in_slices(self, work: Work, report: PageReport, pieces: tuple[Slice, ...]) -> Parsed:
        folder = work.folder / "slices"
        folder.mkdir(exist_ok=True)
        files = await self._cutter.cut(work.source, folder, pieces)
        gate = asyncio.Semaphore(self._parallel)
        done = [0] * len(pieces)
        total = sum(piece.pages for piece in pieces)

        def progress(index: int, pages: int) -> None:
            done[index] = max(done[index], min(pages, pieces[index].pages))
            report(sum(done), total)

        async def one(index: int) -> Done:
            async with gate:
                ended = await self._patiently(work, index, pieces[index], files[index], progress)
                progress(index, pieces[index].pages)
                return ended

        try:
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(one(index)) for index in range(len(pieces))]
        except* DocmillError as errors:
            raise errors.exceptions[0] from None
        return await asyncio.to_thread(self._merged, work, [task.result() for task in running])

    async def _patiently(
        self, work: Work, index: int, piece: Slice, source: Path, progress: Callable[[int, int], None]
    ) -> Done:
        """A slice that failed is tried again by itself; what stays failed is missing from the result."""
        for number in range(1, TRIES + 1):
            folder = work.folder / "slices" / f"{index:05d}-{number}"
            (folder / "assets").mkdir(parents=True)
            sliced = replace(work, source=source, folder=folder, filename="slice.pdf")
            try:
                parsed = await self._whole(sliced, lambda pages, _total: progress(index, pages))
            except DocmillError as error:
                last = number == TRIES
                if error.code in FINAL or (last and error.code in ABSENT):
                    raise
                log.warning("slice_failed", provider=self.name, task=work.task_id, first=piece.first, code=error.code)
                if last or not isinstance(error, StageFailed):
                    return Part(piece, None, f"{error.code}: {error.message}"), folder
            else:
                return Part(piece, parsed), folder
            await asyncio.sleep(self._pause_s * number)
        raise AssertionError("unreachable")

    def _merged(self, work: Work, ended: list[Done]) -> Parsed:
        parts = [part for part, _ in ended]
        if not any(part.parsed for part in parts):
            raise StageFailed("provider_failed", provider=self.name, why="it could process none of the slices")
        merged = merge(self.name, parts)
        (work.folder / "assets").mkdir(exist_ok=True)
        for (index, old), new in merged.renamed.items():
            (ended[index][1] / "assets" / old).replace(work.folder / "assets" / new)
        return merged.parsed

    async def describe(self) -> str:
        return await self._engine.describe()

    async def page_limit(self) -> int:
        return await self._engine.page_limit()

    async def warm(self) -> None:
        await self._engine.warm()

    async def close(self) -> None:
        await self._engine.close()
