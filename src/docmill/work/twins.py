"""A task's twin as one archive, for clients whose disk the service cannot see."""

from __future__ import annotations

import asyncio
import zipfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from docmill.core.access import Principal
from docmill.core.errors import Conflict
from docmill.core.machine import wire_status
from docmill.core.task import Status
from docmill.core.twin import Layout, Twin, plan_twin
from docmill.ports import Ports
from docmill.work import query
from docmill.work.objects import objects
from docmill.work.stages.parse import load, scratch
from docmill.work.stages.publish import GENERATED_BY, asset_key, fetched

EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The first moment that a ZIP knows. One date for all files: packing twice gives equal bytes."""


@asynccontextmanager
async def packed(ports: Ports, who: Principal, task_id: int, layout: Layout) -> AsyncIterator[Path]:
    """The archive, as long as the caller reads it."""
    task = await query.task(ports, who, task_id)
    if task.status is not Status.COMPLETED:
        raise Conflict("twin_not_ready", task=task_id, status=wire_status(task))
    parsed = await load(ports, task.tenant, task.artifacts.parsed_key or "")
    twin = plan_twin(
        task.filename,
        parsed,
        layout=layout,
        source_sha256=task.source_sha256 or "",
        generated_by=GENERATED_BY,
        generated_at=datetime.fromtimestamp(task.created_ms / 1000, UTC),
    )
    names = [file.asset for file in twin.files if file.asset]
    async with scratch(ports.scratch / f"twin-{uuid4()}") as there:
        assets = await fetched(objects(ports, task.tenant), {name: asset_key(task, name) for name in names}, there)
        archive = there / "twin.zip"
        await asyncio.to_thread(_pack, archive, twin, assets)
        yield archive


def _pack(archive: Path, twin: Twin, assets: Mapping[str, Path]) -> None:
    hashes: dict[str, str] = {}
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:

        def add(path: str, data: bytes) -> None:
            info = zipfile.ZipInfo(path, EARLIEST)
            info.compress_type = zipfile.ZIP_STORED if path.endswith((".png", ".jpg", ".webp")) else packed.compression
            packed.writestr(info, data)

        for file in twin.files:
            data = (file.text or "").encode() if file.asset is None else assets[file.asset].read_bytes()
            hashes[file.path] = sha256(data).hexdigest()
            add(file.path, data)
        add(twin.manifest_path, twin.manifest_for(hashes).to_json().encode())
