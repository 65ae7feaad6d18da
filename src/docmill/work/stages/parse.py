"""Parse: bytes become pages of Markdown and figures, and both become artifacts."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import msgspec

from docmill.core.errors import NotFound, StageFailed
from docmill.core.keys import user_prefix
from docmill.core.machine import StageResult
from docmill.core.parsed import Parsed
from docmill.core.task import Artifacts
from docmill.ports import Deferred, Engine, Ports, Work
from docmill.work.objects import TenantStore, objects, read_json
from docmill.work.stages import dispatch
from docmill.work.stages.step import Step

PARSED = "parsed.json"
MARKDOWN = "mineru.md"
PUTS_AT_ONCE = 8
MOST_DAMAGE_TOLD = 100
TOLD = ("provider", "routed", "slices", "missing_pages")
"""What an engine says that belongs into the task's log."""


async def run(ports: Ports, step: Step) -> StageResult | Deferred:
    async with scratch(ports.scratch / str(step.attempt.id)) as folder:
        source = folder / "source"
        try:
            stored = await objects(ports, step.task.tenant).fetch(step.task.source_key, source)
        except NotFound as error:
            raise StageFailed("storage_failed", why="the source is no longer in the store") from error
        wanted = step.task.wishes.engine or "local"
        if wanted in ports.workers:
            return await dispatch.hand_over(ports, step, ports.workers[wanted], source, stored)
        engine = ports.engines[wanted]
        mark = fingerprint(stored.sha256, engine, step.task.wishes.parse)
        if not step.task.wishes.no_cache:
            reused = await _reused(ports, step, mark, folder)
            if reused:
                return _result(reused[1], reused[0], stored.sha256, cache_hit=True)
        work = Work(
            task_id=step.task.id,
            attempt_id=step.attempt.id,
            source=source,
            filename=step.task.filename,
            folder=folder,
            options=step.task.wishes.parse,
            is_suspect=step.task.crashes > 0 or step.task.lost_workers > 0,
            tenant=step.task.tenant,
            is_source_ours=True,
        )
        parsed = await engine.start(work, step.report)
        if isinstance(parsed, Deferred):
            return parsed
        await step.parsed()
        artifacts = await keep(ports, step, parsed, folder)
    return replace(_result(parsed, artifacts, stored.sha256, cache_hit=False), reuse_as=mark)


async def keep(ports: Ports, step: Step, parsed: Parsed, folder: Path) -> Artifacts:
    """Write the artifacts. The pointer to them follows with the transition, never before."""
    store = objects(ports, step.task.tenant)
    async with _putting() as group:
        _put_assets(group, store, step, _files(parsed), folder)
        markdown = group.create_task(store.put_bytes(step.key(MARKDOWN), parsed.markdown.encode()))
        whole = group.create_task(store.put_bytes(step.key(PARSED), msgspec.json.encode(parsed)))
    return Artifacts(markdown_key=markdown.result().key, parsed_key=whole.result().key)


async def keep_files(ports: Ports, step: Step, assets: Iterable[str], folder: Path) -> Artifacts:
    """The same for a parse that lies in the folder as files: `mineru.md`, `parsed.json` and `assets/`."""
    store = objects(ports, step.task.tenant)
    async with _putting() as group:
        _put_assets(group, store, step, assets, folder)
        markdown = group.create_task(store.put_file(step.key(MARKDOWN), folder / MARKDOWN))
        whole = group.create_task(store.put_file(step.key(PARSED), folder / PARSED))
    return Artifacts(markdown_key=markdown.result().key, parsed_key=whole.result().key)


@asynccontextmanager
async def _putting() -> AsyncIterator[asyncio.TaskGroup]:
    """Several puts at once; of their errors the first is raised, so that callers see what kind it is."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors


def _put_assets(group: asyncio.TaskGroup, store: TenantStore, step: Step, names: Iterable[str], folder: Path) -> None:
    gate = asyncio.Semaphore(PUTS_AT_ONCE)

    async def put(name: str) -> None:
        async with gate:
            await store.put_file(step.key(f"assets/{name}"), folder / "assets" / name)

    for name in names:
        group.create_task(put(name))


async def load(ports: Ports, tenant: str, key: str) -> Parsed:
    parsed: Parsed = await read_json(ports, tenant, key, Parsed)
    return parsed


def fingerprint(source_sha256: str, engine: Engine, options: dict[str, object]) -> str:
    """Same bytes, same engine, same options: the same parse."""
    parts = [source_sha256, engine.name, engine.version, msgspec.json.encode(options, order="sorted").decode()]
    return sha256("\n".join(parts).encode()).hexdigest()


async def _reused(ports: Ports, step: Step, mark: str, folder: Path) -> tuple[Artifacts, Parsed] | None:
    """An equal parse of this tenant. One of another user is copied: keys name their user, and go with their task."""
    keys = await ports.ledger.parse_of(step.task.tenant, mark)
    if keys is None:
        return None
    try:
        parsed = await load(ports, step.task.tenant, keys[1])
        if keys[1].startswith(user_prefix(step.task.owner)):
            return Artifacts(markdown_key=keys[0], parsed_key=keys[1]), parsed
        store = objects(ports, step.task.tenant)
        for name in _files(parsed):
            await store.fetch(beside(keys[1], name), folder / "assets" / name)
    except NotFound:
        return None
    return await keep(ports, step, parsed, folder), parsed


def beside(parsed_key: str, name: str) -> str:
    """Figures lie beside the parse that found them, which may be another task's if it was reused."""
    return f"{parsed_key.rpartition('/')[0]}/assets/{name}"


def _files(parsed: Parsed) -> list[str]:
    """Each file once: a page image may be a figure, too, and a page without an image has None in its place."""
    names = [figure.name for figure in parsed.figures] + list(parsed.facts.get("page_images", ()))
    return [name for name in dict.fromkeys(names) if name]


def _result(parsed: Parsed, artifacts: Artifacts, source_sha256: str, *, cache_hit: bool) -> StageResult:
    return StageResult(
        artifacts=artifacts,
        source_sha256=source_sha256,
        engine=parsed.engine,
        cache_hit=cache_hit,
        pages=len(parsed.pages),
        damaged_pages=parsed.damaged_pages,
        provider_task_id=parsed.facts.get("provider_task_id"),
        facts={name: parsed.facts[name] for name in TOLD if name in parsed.facts}
        | {
            "engine": parsed.engine,
            "pages": len(parsed.pages),
            "figures": len(parsed.figures),
            "cache_hit": cache_hit,
            **_damage(parsed),
        },
    )


def _damage(parsed: Parsed) -> dict[str, object]:
    """Which pages could not be read, and why: the log tells what the result cannot."""
    hurt = [{"page_index": page.index, "why": page.damage} for page in parsed.pages if page.damage]
    return {"damaged_pages": hurt[:MOST_DAMAGE_TOLD]} if hurt else {}


@asynccontextmanager
async def scratch(folder: Path) -> AsyncIterator[Path]:
    (folder / "assets").mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        # In a thread: a file system that is busy syncing lets whoever deletes wait, and the event loop must not.
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
