"""A file that somebody laid into the inbox becomes a task, once for each content."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

from docmill.core.access import Principal
from docmill.core.errors import Invalid
from docmill.core.inbox import content_key
from docmill.core.task import Task, Wishes
from docmill.ports import Once, Ports
from docmill.work import intake
from docmill.work.intake import Submission
from docmill.work.objects import objects

CHUNK = 1 << 20


async def take(ports: Ports, who: Principal, path: Path, *, project_id: int, wishes: Wishes) -> Task | None:
    """The new task; None if this content had one before."""
    digest = await asyncio.to_thread(digest_of, path)
    stored = await intake.upload(ports, who, project_id, path.name, _chunks(path))
    is_new = False
    try:
        wanted = Submission(stored.key, project_id, path.name, None, wishes)
        # The content alone decides: the same bytes under another name are no other document.
        task, is_new = await intake.submit(ports, who, wanted, once=Once(content_key(digest), digest))
        return task if is_new else None
    except Invalid as error:
        if error.code == "idempotency_mismatch":
            return None
        raise
    finally:
        if not is_new:
            store = objects(ports, who.tenant)
            await store.inner.delete(store.prefix + stored.key)


def digest_of(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as stream:
        while chunk := await asyncio.to_thread(stream.read, CHUNK):
            yield chunk
