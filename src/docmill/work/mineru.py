"""A task's result in MinerU's formats, and the batches of its cloud API.

A batch is kept in the object store until its files have become tasks, and for a while after, so that their results can
be asked for by the id of the batch:

    mineru/<tenant>/<user>/<batch>/batch.json      the files that were announced
    mineru/<tenant>/<user>/<batch>/<file>-<task>   a file that was uploaded, and its task
"""

from __future__ import annotations

import asyncio
import re
import time
import zipfile
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryFile
from typing import IO, Any
from uuid import UUID, uuid4

import msgspec

from docmill.core.access import Principal
from docmill.core.errors import BadRequest, NotFound
from docmill.core.keys import extension, user_segment
from docmill.core.mineru import content_list
from docmill.core.parsed import Page, Parsed
from docmill.core.task import Task, Wishes
from docmill.core.twin import relink
from docmill.ports import Once, Ports, Stored
from docmill.work import intake, query
from docmill.work.intake import Submission
from docmill.work.objects import objects
from docmill.work.stages.parse import load, scratch
from docmill.work.stages.publish import asset_key

PROJECT_ID = 0
BATCH_KEEP_S = 30 * 24 * 3600
"""How long the results of a batch can be asked for by its id: as in the cloud."""
MAX_EMBEDDED_BYTES = 64 * 1024**2
"""Of all images in one JSON answer. More come as a ZIP file, which is built on disk."""
BATCHES = "mineru/"

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

Select = Callable[[Sequence[Page]], list[Page]]


# Results


@dataclass(frozen=True, slots=True)
class Image:
    path: str
    """In the archive; the Markdown and the content list refer to it."""
    key: str
    media_type: str
    size: int

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name


@dataclass(frozen=True, slots=True)
class Rendered:
    markdown: str
    content_list: list[Any]
    images: tuple[Image, ...]

    def content_list_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self.content_list), indent=4)


async def render(ports: Ports, task: Task, select: Select) -> Rendered:
    """The selected pages of a completed task. What takes long runs beside the event loop."""
    parsed = await load(ports, task.tenant, task.artifacts.parsed_key or "")
    return await asyncio.to_thread(_render, task, parsed, select)


def _render(task: Task, parsed: Parsed, select: Select) -> Rendered:
    pages = select(parsed.pages)
    indexes = {page.index for page in pages}
    figures = [
        figure
        for figure in parsed.figures
        if figure.media_type.startswith("image/") and (figure.page_index is None or figure.page_index in indexes)
    ]
    images = {
        figure.name: Image(
            _image_path(number, figure.name),
            asset_key(task, figure.name),
            figure.media_type,
            figure.size,
        )
        for number, figure in enumerate(figures, 1)
    }
    paths = {name: image.path for name, image in images.items()}
    texts = [page.markdown.strip() for page in pages if page.markdown.strip()]
    return Rendered(
        markdown=relink("\n\n".join(texts), paths),
        content_list=content_list(pages, paths, {figure.name: figure.bbox for figure in figures}),
        images=tuple(images.values()),
    )


def _image_path(number: int, name: str) -> str:
    """Figures of our own engines have plain names; others may have any."""
    if _PLAIN.fullmatch(name):
        return f"images/{name}"
    return f"images/_{number:04}{extension(PurePosixPath(name).suffix)}"


async def read_images(ports: Ports, tenant: str, images: Sequence[Image], *, left: int) -> dict[str, bytes]:
    """The bytes of the images by their names, if they have at most *left* bytes."""
    if sum(image.size for image in images) > left:
        why = f"the images have more than {MAX_EMBEDDED_BYTES} bytes; ask with response_format_zip=true."
        raise BadRequest("request_invalid", why=why)
    store = objects(ports, tenant)
    return {image.name: await store.read(image.key, limit=image.size) for image in images}


class Archive:
    """A ZIP file under construction. It lies on disk without a name, so that nothing is left of it."""

    def __init__(self, ports: Ports, folder: Path, file: IO[bytes]) -> None:
        self._ports, self._folder, self._file = ports, folder, file
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED)

    async def add(self, path: str, data: bytes) -> None:
        await asyncio.to_thread(self._zip.writestr, path, data)

    async def add_object(self, path: str, tenant: str, key: str, *, is_packed: bool = False) -> None:
        """Add an object of the store. *is_packed*: it does not shrink any more, as images do not."""
        local = self._folder / "object"
        await objects(self._ports, tenant).fetch(key, local)
        method = zipfile.ZIP_STORED if is_packed else zipfile.ZIP_DEFLATED
        await asyncio.to_thread(self._zip.write, local, path, method)

    async def close(self) -> None:
        await asyncio.to_thread(self._zip.close)


async def build_archive(ports: Ports, fill: Callable[[Archive], Awaitable[None]]) -> IO[bytes]:
    """A ZIP file as *fill* makes it, open at its beginning. Whoever gets it closes it."""
    await asyncio.to_thread(ports.scratch.mkdir, parents=True, exist_ok=True)
    file: IO[bytes] = await asyncio.to_thread(TemporaryFile, dir=ports.scratch)
    try:
        async with scratch(ports.scratch / f"mineru-{uuid4()}") as folder:
            archive = Archive(ports, folder, file)
            await fill(archive)
            await archive.close()
        await asyncio.to_thread(file.seek, 0)
    except BaseException:
        file.close()
        raise
    return file


# Batches


class BatchFile(msgspec.Struct, frozen=True):
    name: str
    data_id: str | None = None
    is_ocr: bool = False
    page_ranges: str = ""


class Batch(msgspec.Struct, frozen=True):
    id: str
    tenant: str
    user: str
    files: tuple[BatchFile, ...]
    no_cache: bool = False

    @property
    def who(self) -> Principal:
        return Principal(self.user, self.tenant)

    @property
    def folder(self) -> str:
        return _folder(self.who, self.id)


def _folder(who: Principal, batch_id: str) -> str:
    return f"{BATCHES}{user_segment(who.tenant)}/{user_segment(who.user)}/{batch_id}/"


async def open_batch(ports: Ports, who: Principal, files: Sequence[BatchFile], *, no_cache: bool) -> Batch:
    batch = Batch(str(uuid4()), who.tenant, who.user, tuple(files), no_cache)
    await ports.store.put_bytes(f"{batch.folder}batch.json", msgspec.json.encode(batch))
    return batch


async def find_batch(ports: Ports, who: Principal, batch_id: str) -> Batch:
    """The caller's own batch; NotFound for any other."""
    try:
        if str(UUID(batch_id)) != batch_id:
            raise ValueError(batch_id)
        data = await ports.store.read(f"{_folder(who, batch_id)}batch.json")
    except (ValueError, NotFound):
        raise NotFound("task_not_found", task=batch_id[:64]) from None
    return msgspec.json.decode(data, type=Batch)


async def receive_file(ports: Ports, batch: Batch, index: int, chunks: AsyncIterable[bytes]) -> Stored:
    """Store a file of the batch and make it a task. A file that comes again stays the task that it is."""
    file = batch.files[index]
    stored = await intake.upload(ports, batch.who, PROJECT_ID, file.name, chunks)
    is_used = False
    try:
        wishes = Wishes(no_cache=batch.no_cache, parse={"ocr": "always"} if file.is_ocr else {})
        wanted = Submission(stored.key, PROJECT_ID, file.name, None, wishes)
        once = Once(f"mineru:{batch.id}:{index}", batch.id)
        task, is_used = await intake.submit(ports, batch.who, wanted, once=once)
        await ports.store.put_bytes(f"{batch.folder}{index}-{task.id}", b"{}")
    finally:
        if not is_used:
            store = objects(ports, batch.tenant)
            await store.inner.delete(store.prefix + stored.key)
    return stored


async def tasks_of(ports: Ports, batch: Batch) -> Mapping[int, Task | None]:
    """The tasks of the files that were uploaded, by the files' places; None: the task was removed after its time."""
    ids = {}
    async for key, _, _ in ports.store.list(batch.folder):
        index, _, task_id = key.removeprefix(batch.folder).partition("-")
        if index.isdecimal() and task_id.isdecimal():
            ids[int(index)] = int(task_id)
    found: dict[int, Task] = {}
    listed = sorted(ids.values())
    for start in range(0, len(listed), query.MAX_BATCH):
        tasks = await query.batch(ports, batch.who, listed[start : start + query.MAX_BATCH])
        found |= {task.id: task for task in tasks}
    return {index: found.get(task_id) for index, task_id in ids.items()}


async def purge_batches(ports: Ports) -> int:
    """Delete batches that were kept long enough; how many objects. Their tasks have a retention of their own."""
    oldest = time.time() - BATCH_KEEP_S
    old = [key async for key, _, written in ports.store.list(BATCHES) if written < oldest]
    for key in old:
        await ports.store.delete(key)
    return len(old)
