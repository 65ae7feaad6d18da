"""What would keep docmill from working, and what to do about it: the looks that need no command line."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Literal
from uuid import uuid4

from docmill import __version__
from docmill.core.errors import DocmillError
from docmill.core.keys import task_of_artifact, tenant_prefix
from docmill.ports import (
    Captioner,
    Engine,
    ExternalWorker,
    Extractor,
    Pointer,
    Pointers,
    Ports,
    ProviderEngine,
    Store,
    Work,
)
from docmill.work.objects import TenantStore

GB = 1024**3
ENOUGH = 2 * GB
LEAST = GB // 4
PATIENCE_S = 30
SAMPLED_ROWS = 100
SAMPLED_FILES = 1000
STATS_AT_ONCE = 16
MAX_NAMED = 5
PACKAGES = ("apsw", "docvortex", "fastapi", "pypdfium2", "rapidocr", "uvicorn")
OPTIONAL = ("asyncpg",)
FONTS = (Path("/usr/share/fonts"), Path("/usr/local/share/fonts"), Path("~/.local/share/fonts").expanduser())


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    next_step: str = ""


async def examine(ports: Ports) -> AsyncIterator[Finding]:
    """A running service looks at itself."""
    yield python()
    yield packages()
    yield await database(ports)
    yield await room(ports)
    yield webhook_secrets(await ports.webhooks.unreadable())
    if ports.pointers:
        yield await _asked("objects", "", "storage_unavailable", stored_files(ports.pointers, ports.store))
    for one in ports.engines.values():
        if one.name == "local":
            async for finding in engine(one):
                yield finding
    yield models()
    yield fonts()
    providers = [one for one in ports.engines.values() if isinstance(one, ProviderEngine)]
    async for finding in outside(
        providers, ports.workers.values(), {"llm": ports.extractor, "captions": ports.captioner}
    ):
        yield finding


async def outside(
    providers: Iterable[ProviderEngine],
    workers: Iterable[ExternalWorker],
    minds: Mapping[str, Extractor | Captioner | None],
) -> AsyncIterator[Finding]:
    """Who else is configured, and who of them answers: all are asked at once, for who is away is slow to say so."""
    looks = [
        *(_asked("provider", one.name, "provider_unreachable", provider(one)) for one in providers),
        *(_asked("worker", one.name, "worker_unreachable", worker(one)) for one in workers),
        *(_asked(name, "", "llm_unreachable", language_model(name, one)) for name, one in minds.items() if one),
    ]
    for finding in await asyncio.gather(*looks):
        yield finding


async def provider(engine: ProviderEngine) -> Finding:
    """Who is it? Where it is stays in the settings."""
    label, reach = await engine.describe(), await engine.reach()
    return Finding("provider", "ok", f"{engine.name}: {label}, up to {reach.pages} pages at once")


async def worker(external: ExternalWorker) -> Finding:
    await external.check()
    return Finding("worker", "ok", f"{external.name}: a {external.dialect} answers")


async def language_model(name: str, mind: Extractor | Captioner) -> Finding:
    """Does the server answer, and does it have the model?"""
    offered = await mind.offered()
    if offered and mind.model not in offered:
        return Finding(name, "warn", f"the server does not list {mind.model}", "Check the model's name.")
    return Finding(name, "ok", f"{mind.model} is there")


async def _asked(kind: str, name: str, silent: str, look: Awaitable[Finding]) -> Finding:
    """What it finds, or why nothing; *silent* is the code for who says nothing at all."""
    who = f"{name}: " if name else ""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await look
    except DocmillError as error:
        return Finding(kind, "fail", f"{who}{error.code}: {error.message}", f"docmill explain {error.code}")
    except TimeoutError:
        return Finding(kind, "fail", f"{who}{silent}: no answer in {PATIENCE_S} s", f"docmill explain {silent}")


async def database(ports: Ports) -> Finding:
    try:
        async with asyncio.timeout(10):
            await ports.ledger.ping()
    except DocmillError as error:
        return Finding("database", "fail", f"{error.code}: {error.message}", f"docmill explain {error.code}")
    except TimeoutError:
        return Finding("database", "fail", "no answer in 10 s", "Is it overloaded, or the network down?")
    return Finding("database", "ok", "answers")


async def room(ports: Ports) -> Finding:
    free = await ports.store.free_bytes()
    if free is None:
        return Finding("store", "ok", "answers")
    told = f"{free / GB:.1f} GB free"
    if free < LEAST:
        return Finding("store", "fail", told, "Make room: nothing more can be stored.")
    return Finding("store", "warn" if free < ENOUGH else "ok", told, "Make room soon." if free < ENOUGH else "")


def webhook_secrets(unreadable: int) -> Finding:
    """Whether the deployment's secret is still the one that encrypted them."""
    if unreadable:
        step = "Restore DOCMILL_SECRET or the file 'secret' of the data folder, or: docmill webhooks rotate ID"
        return Finding("secrets", "fail", f"the secrets of {unreadable} webhooks cannot be decrypted", step)
    return Finding("secrets", "ok", "the secrets of all webhooks can be decrypted")


async def stored_files(pointers: Pointers, store: Store) -> Finding:
    """Whether database and store belong together: sampled rows name files that are there, sampled files have rows."""
    named = await pointers.sample(limit=SAMPLED_ROWS)
    gate = asyncio.Semaphore(STATS_AT_ONCE)

    async def look(pointer: Pointer) -> str | None:
        async with gate:
            return await _missing(pointer, store)

    missing = [found for found in await asyncio.gather(*map(look, named)) if found]
    if missing:
        step = "Restore database and store from the same time, or retry the tasks that are named."
        return Finding("objects", "fail", f"of {len(named)} sampled files {_examples(missing, 'missing')}", step)
    total, orphans = await _orphans(pointers, store)
    if orphans:
        step = "The database is older than the store: restore a newer one. The files take room and do no other harm."
        return Finding("objects", "warn", f"of {total} sampled files {_examples(orphans, 'without a row')}", step)
    return Finding("objects", "ok", f"{len(named)} sampled files are there")


async def _missing(pointer: Pointer, store: Store) -> str | None:
    there = TenantStore(store, tenant_prefix(pointer.tenant))
    is_uri = pointer.place.startswith("docmill:")
    key = there.key_of(pointer.place) if is_uri else pointer.place
    found = await there.stat(key) if key else None
    if found is None:
        return f"{pointer.named_by} (tenant {pointer.tenant}): {key or pointer.place}: object_not_found"
    if pointer.size not in (None, found.size):
        return f"{pointer.named_by} (tenant {pointer.tenant}): {key}: object_damaged"
    return None


async def _orphans(pointers: Pointers, store: Store) -> tuple[int, list[str]]:
    """Of the first files in the store: how many were looked at, and those whose task or document there is not."""
    tasks: dict[int, str] = {}
    documents: dict[str, str] = {}
    total = 0
    async for key, _, _ in store.list("tenants/"):
        total += 1
        _, _, own = key.removeprefix("tenants/").partition("/")
        if (task_id := task_of_artifact(own)) is not None:
            tasks.setdefault(task_id, key)
        elif own.startswith("documents/"):
            documents.setdefault(own.split("/")[1], key)
        if total == SAMPLED_FILES:
            break
    known = await pointers.known_tasks(list(tasks)), await pointers.known_documents(list(documents))
    lost = [key for task_id, key in tasks.items() if task_id not in known[0]]
    return total, lost + [key for document_id, key in documents.items() if document_id not in known[1]]


def _examples(found: list[str], what: str) -> str:
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    return f"{len(found)} are {what}: {'; '.join(found[:MAX_NAMED])}{more}"


def python() -> Finding:
    return Finding("python", "ok", f"{sys.version.split()[0]} ({sys.executable})")


def packages() -> Finding:
    try:
        known = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    except PackageNotFoundError as missing:
        return Finding("packages", "fail", f"{missing.name} is not installed", "Install docmill again.")
    more = "".join(f", {name} {version(name)}" for name in OPTIONAL if find_spec(name))
    return Finding("packages", "ok", f"docmill {__version__}, {known}{more}")


async def engine(local: Engine) -> AsyncIterator[Finding]:
    """Parse a small text the way a document is parsed: in a confined child process."""
    began = perf_counter()
    try:
        with tempfile.TemporaryDirectory(prefix="docmill-doctor-") as scratch:
            source = Path(scratch) / "hello.txt"
            source.write_text("Hello from the doctor.\n", "utf-8")
            work = Work(0, uuid4(), source, source.name, Path(scratch), {})
            parsed = await local.start(work, lambda _done, _total: None)
        facts = getattr(parsed, "facts", {})
    except DocmillError as error:
        yield Finding("engine", "fail", f"{error.code}: {error.message}", f"docmill explain {error.code}")
        return
    yield Finding("engine", "ok", f"local, a text parsed in {perf_counter() - began:.1f} s")
    yield sandbox(facts.get("isolation", {}))


def sandbox(facts: Mapping[str, str]) -> Finding:
    """How the parser was confined that has just read a document."""
    level = facts.get("level", "unknown")
    layers = ", ".join(f"{name}: {value}" for name, value in sorted(facts.items()) if name != "level")
    if level in ("full", "jailed"):
        return Finding("isolation", "ok", f"parsers are confined: {level} ({layers})")
    step = "See docs/reference/sandbox.md: a kernel with Landlock, and a container profile that allows it."
    return Finding("isolation", "warn", f"parsers are confined in part only: {level} ({layers})", step)


def models() -> Finding:
    spec = find_spec("rapidocr")
    there = sorted(Path(spec.origin).parent.rglob("*.onnx")) if spec and spec.origin else []
    if not there:
        return Finding("ocr", "fail", "the models of rapidocr are missing", "Install rapidocr again.")
    return Finding("ocr", "ok", f"{len(there)} models installed")


def fonts() -> Finding:
    kinds = (".ttf", ".otf", ".ttc", ".pfb")
    some = next((file for root in FONTS if root.is_dir() for file in root.rglob("*") if file.suffix in kinds), None)
    if some is None:
        step = "Install some, for example the packages fonts-dejavu and fonts-noto-cjk."
        return Finding("fonts", "warn", "none installed: pages whose fonts are not embedded look poor as images", step)
    return Finding("fonts", "ok", "installed")
