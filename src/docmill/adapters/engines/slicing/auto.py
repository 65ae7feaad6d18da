"""The best engine for each document: the local one if its result is good, else a provider that may have it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from docmill.core.errors import DocmillError, StageFailed
from docmill.core.parsed import Parsed
from docmill.core.routing import Offer, Policy, Reach, Route, route, stricter
from docmill.ports import Deferred

if TYPE_CHECKING:
    from docmill.ports import Engine, PageReport, ProviderEngine, Work

    from .cutting import Cutter

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Member:
    """A provider among those that the router may choose."""

    engine: ProviderEngine
    home: bool
    reach: Reach
    """What is assumed before anybody asked it."""


class AutoEngine:
    """Chooses. It starts no process and calls nobody itself: the engines are lent to it."""

    name = "auto"

    def __init__(self, local: Engine, members: Mapping[str, Member], cutter: Cutter, policy: Policy) -> None:
        self.version = "+".join([local.version, *(member.engine.version for member in members.values())])
        self._local = local
        self._members = members
        self._cutter = cutter
        self._policy = policy

    async def start(self, work: Work, report: PageReport) -> Parsed:
        plan = await self.plan(work.source, work.filename, work.options, may_link=work.is_source_ours)
        for refusal in plan.refusals:
            log.debug("engine_refused", task=work.task_id, engine=refusal.engine, why=refusal.why)
        return await self._best(work, report, plan)

    async def plan(self, source: Path, filename: str, options: Mapping[str, Any], *, may_link: bool = False) -> Route:
        facts = await self._cutter.facts(source, filename, may_link=may_link)
        return route(facts, self.offers(), stricter(self._policy, options))

    def offers(self) -> list[Offer]:
        return [
            Offer(name, member.engine.media_types, member.reach, home=member.home)
            for name, member in self._members.items()
        ]

    async def _best(self, work: Work, report: PageReport, plan: Route) -> Parsed:
        """The first good result; if none is good, the best of them; if there is none, the first error.

        One provider's word is enough: pages that are really empty shall not be paid for twice. An only engine's result
        is not judged, because nothing would follow from it.
        """
        if len(plan.engines) == 1:
            [name] = plan.engines
            parsed = await self._run(name, work, report)
            return replace(parsed, facts={**parsed.facts, "routed": [name]})
        results: list[tuple[float, Path, Parsed]] = []
        errors: list[DocmillError] = []
        tried: list[str] = []
        for name in plan.engines:
            if name != "local" and any(parsed.engine != "local" for _, _, parsed in results):
                continue
            tried.append(name)
            folder = work.folder / f"by-{len(tried)}"
            (folder / "assets").mkdir(parents=True)
            try:
                parsed = await self._run(name, replace(work, folder=folder), report)
                judged = await self._cutter.judge(parsed, folder)
            except DocmillError as error:
                log.info("engine_failed", task=work.task_id, engine=name, code=error.code)
                errors.append(error)
                continue
            results.append((judged.bad_share, folder, parsed))
            if not judged.is_poor:
                break
            log.info("result_poor", task=work.task_id, engine=name, bad=round(judged.bad_share, 3))
        if not results:
            raise errors[0]
        _, folder, parsed = min(results, key=lambda one: one[0])
        shutil.rmtree(work.folder / "assets", ignore_errors=True)
        (folder / "assets").rename(work.folder / "assets")
        return replace(parsed, facts={**parsed.facts, "routed": tried})

    async def _run(self, name: str, work: Work, report: PageReport) -> Parsed:
        engine = self._local if name == "local" else self._members[name].engine
        parsed = await engine.start(work, report)
        if isinstance(parsed, Deferred):
            raise StageFailed("stage_failed", why=f"the engine '{name}' hands over")
        return parsed

    async def warm(self) -> None:
        """The engines are others'."""

    async def close(self) -> None:
        """The engines are others'."""
