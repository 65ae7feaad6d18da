"""A document on its way to a provider."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docmill.adapters.engines import sniff
from docmill.core.errors import DocumentError

if TYPE_CHECKING:
    from docmill.ports import Work


@dataclass(frozen=True, slots=True)
class Sending:
    """Its name there says its type and nothing else."""

    path: Path
    name: str
    media_type: str
    size: int
    sha256: str
    options: Mapping[str, Any] = field(default_factory=dict)


async def prepare(work: Work, extensions: Mapping[str, str], options: Mapping[str, Any] | None = None) -> Sending:
    """Know its type and size; what the provider does not read never leaves."""
    media_type = await asyncio.to_thread(sniff.sniff, work.source, work.filename)
    if media_type == sniff.EMPTY:
        raise DocumentError("document_empty")
    if media_type not in extensions:
        facts = {"media_type": media_type, "type": sniff.name_of(media_type)}
        raise DocumentError("document_unsupported", **facts, advice="The local engine may read it.")
    size, digest = await asyncio.to_thread(_measure, work.source)
    return Sending(work.source, f"document{extensions[media_type]}", media_type, size, digest, dict(options or {}))


async def in_any_case(work: Coroutine[Any, Any, None]) -> None:
    """Finish, though the task that waits is being cancelled, perhaps twice."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            continue
    task.result()


def _measure(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return path.stat().st_size, digest.hexdigest()
