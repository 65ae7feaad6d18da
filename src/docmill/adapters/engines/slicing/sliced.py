"""An engine over the network that takes documents of any length: cut, parsed in parallel, merged in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from docmill.core.errors import DocmillError, DocumentError, StageFailed, StorageFull, unwrap
from docmill.core.parsed import Page, Parsed
from docmill.core.routing import PDF, Part, Policy, Reach, Slice, ban, fitted, halves, merge, slices, stricter
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


NOTHING: Final = "document_no_text"
"""A slice may be blank; only the whole may not."""
MOST_TURNS: Final = 32


@dataclass(frozen=True, slots=True)
class Cut:
    piece: Slice
    file: Path
    fits: bool
    """It is within the provider's reach."""


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
        facts = await self._cutter.facts(work.source, work.filename, may_link=work.is_source_ours)
        if why := ban(facts, stricter(self._policy, work.options), home=self._home):
            raise StageFailed("provider_forbidden", provider=self.name, why=why)
        if facts.media_type != PDF or not facts.pages:
            return await self._parsed(work, report)
        reach = await self._engine.reach()
        pieces = slices(facts, reach)
        if len(pieces) == 1:
            report(0, facts.pages)
            return await self._parsed(work, report, facts.pages)
        return await self._in_slices(work, report, await self._cut(work, pieces, reach))

    async def _parsed(self, work: Work, report: PageReport, pages: int | None = None) -> Parsed:
        parsed = await self._engine.start(work, report)
        if isinstance(parsed, Deferred):
            raise StageFailed("stage_failed", why="a provider does not hand over")
        fitting = parsed if pages is None else fitted(parsed, pages)
        if fitting is None:
            raise StageFailed("provider_answer_invalid", provider=self.name, why="it has pages that were not sent")
        return fitting

    async def _cut(self, work: Work, pieces: Sequence[Slice], reach: Reach) -> list[Cut]:
        """Pieces within the reach. One that came out too large is cut again, down to single pages."""
        found: list[Cut] = []
        for turn in range(MOST_TURNS):
            folder = work.folder / "slices" / f"cut-{turn}"
            folder.mkdir(parents=True)
            files = await self._cutter.cut(work.source, folder, pieces, may_link=work.is_source_ours)
            cuts = [
                Cut(piece, file, file.stat().st_size <= reach.bytes) for piece, file in zip(pieces, files, strict=True)
            ]
            found += [cut for cut in cuts if cut.fits or cut.piece.pages == 1]
            pieces = [half for cut in cuts if cut not in found for half in halves(cut.piece)]
            if not pieces:
                break
        found.sort(key=lambda cut: cut.piece.first)
        log.info("document_cut", provider=self.name, task=work.task_id, slices=len(found))
        return found

    async def _in_slices(self, work: Work, report: PageReport, cuts: Sequence[Cut]) -> Parsed:
        gate = asyncio.Semaphore(self._parallel)
        done = [0] * len(cuts)
        total = sum(cut.piece.pages for cut in cuts)

        def progress(index: int, pages: int) -> None:
            done[index] = max(done[index], min(pages, cuts[index].piece.pages))
            report(sum(done), total)

        async def one(index: int) -> Done:
            async with gate:
                ended = await self._patiently(work, index, cuts[index], progress)
                progress(index, cuts[index].piece.pages)
                return ended

        try:
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(one(index)) for index in range(len(cuts))]
        except* DocmillError as errors:
            raise errors.exceptions[0] from None
        return await asyncio.to_thread(self._merged, work, [task.result() for task in running])

    async def _patiently(self, work: Work, index: int, cut: Cut, progress: Callable[[int, int], None]) -> Done:
        """A slice that failed is tried again by itself; what stays failed is missing from the result."""
        if not cut.fits:
            return Part(cut.piece, None, "the page alone is too large for the provider"), work.folder
        for number in range(1, TRIES + 1):
            folder = work.folder / "slices" / f"{index:05d}-{number}"
            (folder / "assets").mkdir(parents=True)
            sliced = replace(work, source=cut.file, folder=folder, filename="slice.pdf")
            try:
                parsed = await self._parsed(sliced, lambda pages, _total: progress(index, pages), cut.piece.pages)
            except DocmillError as error:
                if isinstance(full := unwrap(error), StorageFull):
                    raise full from error  # no reason to give up pages: the whole document is tried again later
                last = number == TRIES
                if error.code in FINAL or (last and error.code in ABSENT):
                    raise
                if error.code == NOTHING:
                    return Part(cut.piece, self._blank(cut.piece)), folder
                log.warning(
                    "slice_failed", provider=self.name, task=work.task_id, first=cut.piece.first, code=error.code
                )
                if last or not isinstance(error, StageFailed):
                    return Part(cut.piece, None, f"{error.code}: {error.message}"), folder
            else:
                return Part(cut.piece, parsed), folder
            await asyncio.sleep(self._pause_s * number)
        raise AssertionError("unreachable")

    def _blank(self, piece: Slice) -> Parsed:
        return Parsed(self.name, PDF, tuple(Page(index, "") for index in range(piece.pages)))

    def _merged(self, work: Work, ended: list[Done]) -> Parsed:
        parts = [part for part, _ in ended]
        if not any(part.parsed for part in parts):
            raise StageFailed("provider_failed", provider=self.name, why="it could process none of the slices")
        merged = merge(self.name, parts)
        if not any(page.markdown or page.damage for page in merged.parsed.pages):
            raise DocumentError(NOTHING)
        (work.folder / "assets").mkdir(exist_ok=True)
        for (index, old), new in merged.renamed.items():
            (ended[index][1] / "assets" / old).replace(work.folder / "assets" / new)
        return merged.parsed

    async def describe(self) -> str:
        return await self._engine.describe()

    async def reach(self) -> Reach:
        return await self._engine.reach()

    async def warm(self) -> None:
        await self._engine.warm()

    async def close(self) -> None:
        await self._engine.close()
