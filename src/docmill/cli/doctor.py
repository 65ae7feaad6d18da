"""`docmill doctor`: look for what would keep docmill from working, and say what to do."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from docmill.cli.api import url_option
from docmill.cli.doctor_checks import check_shared, check_variables, list_settings
from docmill.cli.failure import EXIT_FAILED, log_to_stderr
from docmill.cli.keys import data_option, json_option
from docmill.cli.output import Out, printable, standard_output
from docmill.core.errors import DocmillError
from docmill.work.doctor import ENOUGH, GB, LEAST, Finding, fonts, models, packages, python

if TYPE_CHECKING:
    from docmill.settings import Settings

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command(epilog="Exit codes: 0 nothing fails (warnings may remain), 1 something fails.")
@data_option
@url_option
@json_option
def doctor(data: Path | None, url: str, as_json: bool) -> None:
    """Look for what would keep docmill from working, and say what to do about it."""
    log_to_stderr()
    with standard_output() as out:
        in_force = _settings(data)
        if not as_json:
            for one in in_force:
                out.line(f"set   {one['name']:<22} {printable(one['value'])}  ({one['place'] or one['origin']})")
        found = asyncio.run(_examine(data, url, out, as_json=as_json))
        if as_json:
            good = all(one.status != "fail" for one in found)
            out.json({"ok": good, "checks": [asdict(one) for one in found], "settings": in_force})
    raise SystemExit(EXIT_FAILED if any(one.status == "fail" for one in found) else 0)


def _settings(data: Path | None) -> list[dict[str, str]]:
    """Empty if they cannot be used: the checks say why."""
    from docmill import settings

    try:
        return list_settings(settings.load(data=data), {"data": data})
    except DocmillError:
        return []


async def _examine(data: Path | None, url: str, out: Out, *, as_json: bool) -> list[Finding]:
    found = []
    async for one in findings(data, url):
        found.append(one)
        if not as_json:
            word = out.style(f"{one.status:<4}", fg=COLOURS[one.status])
            out.line(f"{word}  {one.name:<9}  {printable(one.detail)}")
            if one.next_step:
                out.line(f"{'':<17}{printable(one.next_step)}")
            out.flush()
    return found


async def findings(data: Path | None, url: str) -> AsyncIterator[Finding]:
    from docmill import settings

    yield python()
    yield packages()
    try:
        chosen = settings.load(data=data)
    except DocmillError as error:
        yield Finding("settings", "fail", f"{error.code}: {error.message}", "Correct it and run this again.")
        return
    yield Finding("settings", "ok", f"data in {chosen.data}, {chosen.jobs} documents at once")
    if unknown := check_variables():
        yield unknown
    yield folder(chosen)
    yield await database(chosen)
    async for one in check_shared(chosen):
        yield one
    for one in await stored(chosen):
        yield one
    async for one in engine(chosen):
        yield one
    yield models()
    yield fonts()
    async for one in outside(chosen):
        yield one
    yield await service(url)


def folder(chosen: Settings) -> Finding:
    """Writable, and with room."""
    there = chosen.data.absolute()
    while not there.exists():
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Finding("data", "fail", f"{there} cannot be written", "Choose another folder with --data.")
    free = shutil.disk_usage(there).free
    told = f"{chosen.data}: {free / GB:.1f} GB free"
    if free < LEAST:
        return Finding("data", "fail", told, "Make room, or choose another folder with --data.")
    if free < ENOUGH:
        return Finding("data", "warn", told, "Make room soon: uploads and artifacts need it.")
    return Finding("data", "ok", told if chosen.data.exists() else f"{told}; the folder will be created")


async def database(chosen: Settings) -> Finding:
    from docmill import compose
    from docmill.adapters.sql.migrate import pending

    kind = "PostgreSQL" if chosen.database_url else "SQLite"
    if not chosen.database_url and not (chosen.data / "docmill.db").exists():
        return Finding("database", "ok", "SQLite; it will be created at the first start")
    try:
        opened = compose.open_database(chosen)
        try:
            async with asyncio.timeout(10):
                missing = await pending(opened)
        finally:
            await opened.close()
    except DocmillError as error:
        return Finding("database", "fail", f"{error.code}: {error.message}", f"docmill explain {error.code}")
    except Exception as error:
        return Finding("database", "fail", f"{kind}: {type(error).__name__}: {error}", "Is the address right?")
    if missing:
        return Finding("database", "warn", f"{kind}: {len(missing)} migrations to apply", "docmill db upgrade")
    return Finding("database", "ok", f"{kind}, newest schema")


async def stored(chosen: Settings) -> list[Finding]:
    """What the database and the store say about each other, once there is a database of the newest schema."""
    from docmill import compose
    from docmill.adapters.sql.migrate import pending
    from docmill.work import doctor as looks

    if not chosen.database_url and not (chosen.data / "docmill.db").exists():
        return []
    try:
        async with asyncio.timeout(looks.PATIENCE_S), AsyncExitStack() as stack:
            opened = compose.open_database(chosen)
            stack.push_async_callback(opened.close)
            if await pending(opened):
                return []
            store = compose.open_store(chosen)
            stack.push_async_callback(store.close)
            secrets = looks.webhook_secrets(await compose.webhooks(chosen, opened).unreadable())
            return [secrets, await looks.stored_files(compose.pointers(opened), store)]
    except DocmillError as error:
        return [Finding("objects", "fail", f"{error.code}: {error.message}", f"docmill explain {error.code}")]
    except Exception as error:  # the database itself was reported before
        return [Finding("objects", "warn", f"not checked: {type(error).__name__}", "Repair the database first.")]


async def engine(chosen: Settings) -> AsyncIterator[Finding]:
    from docmill import compose
    from docmill.work import doctor as looks

    local = compose.local_engine(chosen)
    try:
        async for one in looks.engine(local):
            yield one
    finally:
        await local.close()


async def outside(chosen: Settings) -> AsyncIterator[Finding]:
    """Providers, external workers and models: who is configured, and who answers."""
    from docmill import compose
    from docmill.work import doctor as looks

    providers = [compose.provider_engine(chosen, name) for name in chosen.providers]
    workers = compose.external_workers(chosen).values()
    minds = {"llm": compose.extractor(chosen), "captions": compose.captioner(chosen)}
    async with AsyncExitStack() as stack:
        for other in (*providers, *workers, *(mind for mind in minds.values() if mind)):
            stack.push_async_callback(other.close)
        async for one in looks.outside(providers, workers, minds):
            yield one


async def service(url: str) -> Finding:
    import httpx2

    try:
        async with httpx2.AsyncClient(timeout=5) as client:
            answer = await client.get(f"{url.rstrip('/')}/ready")
        word = str(answer.json().get("status"))
        failing = [f"{name}: {said}" for name, said in answer.json().get("checks", {}).items() if said != "ok"]
    except (httpx2.HTTPError, httpx2.InvalidURL):
        return Finding("service", "warn", f"none answers at {url}", "Start one with 'docmill serve' if you want one.")
    except (ValueError, AttributeError):
        return Finding("service", "warn", f"what answers at {url} is not docmill", "Say where it is with --url.")
    if failing:
        return Finding("service", "fail", f"{url}: {', '.join(failing)}", "Look into the log of the service.")
    return Finding("service", "ok", f"{url}: {word}")
