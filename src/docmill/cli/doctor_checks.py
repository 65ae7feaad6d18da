"""What `docmill doctor` looks at besides this machine: the settings in force, Redis and the object store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from docmill.core.errors import DocmillError
from docmill.work.doctor import Finding

if TYPE_CHECKING:
    from docmill.settings import Settings

CHECK_S = 10.0
PROBE_PREFIX = "health/"


def list_settings(chosen: Settings, flags: dict[str, Any]) -> list[dict[str, str]]:
    """Every setting in force with its origin; of a secret only that it is set."""
    from docmill import settings

    origins = settings.origins(**flags)
    return [
        {"name": name, "value": value, "origin": origins[name].kind, "place": origins[name].place}
        for name, value in chosen.shown().items()
    ]


def check_variables() -> Finding | None:
    """Variables with docmill's prefix that no setting reads."""
    from docmill import settings

    if unknown := settings.unknown_variables():
        step = "If they are meant for docmill, correct their names: docs/reference/settings.md lists all settings."
        return Finding("settings", "warn", f"no setting is named {', '.join(unknown)}", step)
    return None


async def check_shared(chosen: Settings) -> AsyncIterator[Finding]:
    if chosen.redis_url is not None:
        yield await check_redis(chosen)
    if chosen.objects_url is not None:
        yield await check_objects(chosen)


async def check_redis(chosen: Settings) -> Finding:
    from docmill import compose

    try:
        async with asyncio.timeout(CHECK_S), compose.sharing(chosen) as shared:
            is_there = shared.runstate is not None and await shared.runstate.is_there()
    except Exception as error:  # whatever a client library raises
        return Finding("redis", "fail", f"{type(error).__name__}: {error}", "Is REDIS_URL right, and Redis running?")
    if not is_there:
        return Finding("redis", "fail", "it does not answer", "Is REDIS_URL right, and Redis running?")
    return Finding("redis", "ok", "answers")


async def check_objects(chosen: Settings) -> Finding:
    from docmill import compose

    where = (chosen.objects_url or "").partition("?")[0]
    if where.startswith("file://"):
        return _check_folder(Path(unquote(urlsplit(where).path)))
    step = "Are OBJECTS_URL and the credentials of the store right, and does the bucket exist?"
    try:
        store = compose.open_store(chosen)
        try:
            # A request for one object does not tell a missing bucket from a missing object.
            async with asyncio.timeout(CHECK_S):
                await anext(store.list(PROBE_PREFIX), None)
        finally:
            await store.close()
    except DocmillError as error:
        return Finding("objects", "fail", f"{where}: {error.code}: {error.message}", step)
    except Exception as error:  # whatever a client library raises
        return Finding("objects", "fail", f"{where}: {type(error).__name__}: {error}", step)
    return Finding("objects", "ok", f"{where} answers")


def _check_folder(folder: Path) -> Finding:
    if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
        return Finding("objects", "fail", f"{folder} cannot be written", "Choose another folder in OBJECTS_URL.")
    return Finding("objects", "ok", f"{folder}" if folder.is_dir() else f"{folder} will be created")
