"""A dispatcher's brief: where the source comes from and where the result goes. Fetched, obeyed, checked."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from .delivery import Patience, check_url
from .wire import pieces

T = TypeVar("T")

MAX_BRIEF = 1024 * 1024
VERSION = 1
TRIES = 15
"""About a minute: a service that is being replaced comes back."""
PATIENCE = Patience(first_s=0.3, most_s=5.0)
TIMEOUT = httpx2.Timeout(60.0, connect=10.0, pool=None)
_SHA256 = re.compile(r"[0-9a-f]{64}")


class JobFault(Exception):
    """The job cannot go on. *code* is stable."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(message)


class _Hiccup(Exception):
    """Worth another try."""


@dataclass(frozen=True, slots=True)
class Brief:
    task_id: str
    filename: str
    sha256: str
    size: int
    download_url: str = field(repr=False)
    options: dict[str, Any]
    result_key: str
    upload_url: str = field(repr=False)

    @classmethod
    def of(cls, raw: bytes, task_id: str) -> Brief:
        try:
            value = json.loads(raw)
            source, result, options = value["source"], value["result"], value.get("options") or {}
            brief = cls(
                task_id=str(value["task_id"]),
                filename=str(source["filename"]),
                sha256=str(source["sha256"]),
                size=int(source["size"]),
                download_url=check_url(source["download_url"]),
                options=dict(options),
                result_key=str(result["key"]),
                upload_url=check_url(result["upload_url"]),
            )
            version = value.get("version")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise JobFault("brief_invalid", f"the brief is not readable: {type(error).__name__}: {error}") from None
        if version != VERSION:
            raise JobFault("brief_invalid", f"the brief has version {version!r}, this worker reads {VERSION}")
        if brief.task_id.lower() != task_id.lower():
            raise JobFault("brief_invalid", "the brief is for another task")
        if not _SHA256.fullmatch(brief.sha256) or brief.size < 0:
            raise JobFault("brief_invalid", "the brief has no usable sha256 and size")
        return brief


async def fetch(client: httpx2.AsyncClient, url: str, task_id: str) -> Brief:
    async def once() -> Brief:
        raw = bytearray()
        async with client.stream("GET", url, timeout=TIMEOUT) as response:
            _check(response, "brief_unavailable", "the brief")
            async for piece in response.aiter_bytes():
                raw += piece
                if len(raw) > MAX_BRIEF:
                    raise JobFault("brief_invalid", f"the brief is larger than {MAX_BRIEF} bytes")
        return Brief.of(bytes(raw), task_id)

    return await _stubbornly(once, "brief_unavailable", "the brief")


async def download(client: httpx2.AsyncClient, brief: Brief, path: Path) -> None:
    """The source as a file, which appears only when it is whole and the one that was promised."""
    part = path.with_suffix(".part")

    async def once() -> None:
        digest, size = hashlib.sha256(), 0
        with part.open("wb") as out:
            async with client.stream("GET", brief.download_url, timeout=TIMEOUT) as response:
                _check(response, "source_unavailable", "the source")
                async for piece in response.aiter_bytes(1 << 20):
                    size += len(piece)
                    if size > brief.size:
                        raise JobFault("source_mismatch", f"the source is larger than {brief.size} bytes")
                    digest.update(piece)
                    await asyncio.to_thread(out.write, piece)
            out.flush()
            await asyncio.to_thread(os.fsync, out.fileno())
        if size != brief.size or digest.hexdigest() != brief.sha256:
            raise JobFault("source_mismatch", f"the source has {size} bytes, or another hash than the brief says")
        part.rename(path)

    try:
        await _stubbornly(once, "source_unavailable", "the source")
    finally:
        part.unlink(missing_ok=True)


async def upload(client: httpx2.AsyncClient, brief: Brief, archive: Path) -> None:
    size = (await asyncio.to_thread(archive.stat)).st_size
    # Without a length the body would be sent in chunks, which signed upload addresses do not take.
    headers = {"Content-Type": "application/zip", "Content-Length": str(size)}

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces(archive):
            yield piece

    async def once() -> None:
        async with client.stream("PUT", brief.upload_url, content=body(), headers=headers, timeout=TIMEOUT) as answer:
            _check(answer, "result_refused", "the result")

    await _stubbornly(once, "result_refused", "the result")


def _check(response: httpx2.Response, code: str, what: str) -> None:
    if response.status_code >= 500 or response.status_code in (408, 425, 429):
        raise _Hiccup(str(response.status_code))
    if not response.is_success:
        raise JobFault(code, f"{what}: the store answered {response.status_code}")


async def _stubbornly(once: Callable[[], Awaitable[T]], code: str, what: str) -> T:
    """Try a few times. Addresses are signed, so no error text shows one."""
    why = ""
    for tries in range(TRIES):
        if tries:
            await asyncio.sleep(PATIENCE.pause(tries, None))
        try:
            return await once()
        except _Hiccup as hiccup:
            why = f"the store answered {hiccup}"
        except httpx2.RequestError as error:
            why = type(error).__name__
    raise JobFault(code, f"{what}: {why}, {TRIES} times")
