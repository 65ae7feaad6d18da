"""Everything out into one archive, and from an archive everything in that is not here yet.

Export reads record by record beside a running service: each is consistent in itself, and objects come after the
records that name them. Import reads the archive twice: once to check it whole, and only then to take it, objects before
the records that name them. It can be cut off anywhere and run again: what is here already is left as it is.
"""

from __future__ import annotations

import asyncio
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from hashlib import sha256
from typing import IO, BinaryIO

import msgspec

from docmill.core.errors import DocmillError, Invalid, NotFound
from docmill.core.moving import (
    FORMAT,
    KINDS,
    MAX_LINE,
    MAX_MANIFEST,
    NUMBERED,
    OBJECTS,
    KeyRecord,
    Listed,
    Manifest,
    Moves,
    ObjectRecord,
    Record,
    RuleRecord,
    TableRecord,
    TaskRecord,
    check_record,
    damaged,
    read_manifest,
    task_of_key,
)
from docmill.ports import Inventory, Store

CHUNK = 1 << 20
MANIFEST = "manifest.json"
BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError)
"""What the standard library says of an archive that is not whole."""


@dataclass(slots=True)
class Exported:
    counts: dict[str, int]
    object_bytes: int = 0
    left_out: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Imported:
    taken: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    """Here already; left as it is."""
    renumbered: dict[str, dict[int, int]] = field(default_factory=dict)
    """By kind: the old number and the new one, or 0 where nothing was written yet."""
    left_out: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    """What could not be taken, and why. Everything else was."""


# --- out


class _Member:
    """A list in the archive that is being written."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        entry = zipfile.ZipInfo(name)
        entry.compress_type = zipfile.ZIP_DEFLATED
        self._stream = archive.open(entry, "w", force_zip64=True)
        self._hash = sha256()
        self.count = 0

    def add(self, record: Record) -> None:
        line = msgspec.json.encode(record) + b"\n"
        self._hash.update(line)
        self._stream.write(line)
        self.count += 1

    def close(self) -> Listed:
        self._stream.close()
        return Listed(self.count, self._hash.hexdigest())


async def export(inventory: Inventory, store: Store, out: BinaryIO, *, docmill: str) -> Exported:
    """Write the archive to *out*, which need not be seekable."""
    lists: dict[str, Listed] = {}
    exported = Exported({})
    unfinished = await inventory.unfinished()
    with zipfile.ZipFile(out, "w", allowZip64=True) as archive:
        tasks: set[int] = set()
        for kind in KINDS:
            lists[kind] = await _export_list(inventory, archive, kind, tasks)
        exported.left_out["unfinished_tasks"] = len(unfinished - tasks)
        newest = max(tasks | unfinished, default=0)
        # Of a task that is gone something may still be in use by others: it goes along.
        lists[OBJECTS] = await _export_objects(
            store, archive, exported, lambda task: task not in tasks and (task in unfinished or task > newest)
        )
        manifest = Manifest(
            format=FORMAT,
            docmill=docmill,
            origin=await inventory.identity(),
            bucket=store.bucket,
            created_ms=round(time.time() * 1000),
            lists=lists,
            left_out=exported.left_out,
        )
        archive.writestr(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2))
    exported.counts = {kind: one.count for kind, one in lists.items()}
    return exported


async def _export_list(inventory: Inventory, archive: zipfile.ZipFile, kind: str, tasks: set[int]) -> Listed:
    member = _Member(archive, f"{kind}.jsonl")
    async for record in inventory.records(kind):
        if isinstance(record, TaskRecord):
            tasks.add(record.id)
        await asyncio.to_thread(member.add, record)
    return member.close()


async def _export_objects(
    store: Store, archive: zipfile.ZipFile, exported: Exported, is_left_out: Callable[[int], bool]
) -> Listed:
    """Only one member can be written at a time, so the list of the objects waits in memory, without their bytes."""
    found: list[ObjectRecord] = []
    skipped = Counter({"objects_of_unfinished_tasks": 0, "objects_gone_meanwhile": 0})
    async for key, _, _ in store.list("tenants/"):
        task = task_of_key(key)
        if task is not None and is_left_out(task):
            skipped["objects_of_unfinished_tasks"] += 1
            continue
        record = await _export_object(store, archive, key, f"objects/{len(found) + 1:09d}")
        if record is None:
            skipped["objects_gone_meanwhile"] += 1
            continue
        found.append(record)
        exported.object_bytes += record.size
    exported.left_out |= skipped
    member = _Member(archive, f"{OBJECTS}.jsonl")
    for record in found:
        member.add(record)
    return member.close()


async def _export_object(store: Store, archive: zipfile.ZipFile, key: str, member: str) -> ObjectRecord | None:
    digest, size = sha256(), 0
    async with aclosing(_chunks(store, key)) as chunks:
        try:
            first = await anext(chunks, b"")
        except NotFound:
            return None
        with archive.open(zipfile.ZipInfo(member), "w", force_zip64=True) as stream:
            chunk = first
            while chunk:
                digest.update(chunk)
                size += len(chunk)
                await asyncio.to_thread(stream.write, chunk)
                chunk = await anext(chunks, b"")
    there = await store.stat(key) if "/raw/" in key else None
    filename = there.filename if there else ""
    return ObjectRecord(key=key, size=size, sha256=digest.hexdigest(), member=member, filename=filename)


async def _chunks(store: Store, key: str) -> AsyncGenerator[bytes, None]:
    async for chunk in store.stream(key):
        if chunk:
            yield chunk


# --- in


class Archive:
    """An archive of ours, or of somebody who says so. Nothing in it is ever unpacked to a path."""

    def __init__(self, file: IO[bytes]) -> None:
        try:
            self._zip = zipfile.ZipFile(file)
            entries = self._zip.infolist()
        except BROKEN as error:
            raise Invalid("backup_unknown", why=f"it is no ZIP archive, or was cut off ({error})") from error
        self._entries = {entry.filename: entry for entry in entries}
        if len(self._entries) < len(entries):
            raise damaged("two of its members have the same name")
        if MANIFEST not in self._entries:
            raise Invalid("backup_unknown", why=f"it has no {MANIFEST}")
        self.manifest = read_manifest(self._read(MANIFEST, MAX_MANIFEST))

    def _read(self, name: str, limit: int) -> bytes:
        with self._reading(name), self._zip.open(self._entries[name]) as stream:
            data = stream.read(limit + 1)
        if len(data) > limit:
            raise damaged(f"{name} is too long")
        return data

    def _reading(self, name: str) -> _Reading:
        if name not in self._entries:
            raise damaged(f"{name} is missing")
        return _Reading(name)

    def lines(self, kind: str) -> Iterator[bytes]:
        name = f"{kind}.jsonl"
        with self._reading(name), self._zip.open(self._entries[name]) as stream:
            while line := stream.readline(MAX_LINE + 1):
                if len(line) > MAX_LINE:
                    raise damaged(f"a line of {name} is too long")
                yield line

    def records(self, kind: str) -> Iterator[Record]:
        decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(ObjectRecord if kind == OBJECTS else KINDS[kind])
        for number, line in enumerate(self.lines(kind), 1):
            try:
                yield decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise damaged(f"line {number} of {kind}.jsonl: {error}") from error

    def bytes_of(self, record: ObjectRecord) -> Iterator[bytes]:
        with self._reading(record.member), self._zip.open(self._entries[record.member]) as stream:
            while chunk := stream.read(CHUNK):
                yield chunk

    def check(self, inventory: Inventory) -> dict[str, int]:
        """Read everything once; the highest number of each kind. Raises `backup_damaged` before anything is taken."""
        highest = dict.fromkeys(NUMBERED, 0)
        members = {MANIFEST, *(f"{kind}.jsonl" for kind in self.manifest.lists)}
        for kind, listed in self.manifest.lists.items():
            self._check_list(kind, listed)
            for record in self.records(kind):
                check_record(record)
                if isinstance(record, ObjectRecord):
                    self._check_object(record, members)
                    continue
                inventory.check(record)
                if isinstance(record, (RuleRecord, TableRecord, TaskRecord)):
                    highest[kind] = max(highest[kind], record.id)
        if unknown := set(self._entries) - members:
            raise damaged(f"it has a member that no list names: {min(unknown)[:100]}")
        return highest

    def _check_list(self, kind: str, listed: Listed) -> None:
        digest, count = sha256(), 0
        for line in self.lines(kind):
            digest.update(line)
            count += 1
        if (count, digest.hexdigest()) != (listed.count, listed.sha256):
            raise damaged(f"{kind}.jsonl is not the one that the manifest describes")

    def _check_object(self, record: ObjectRecord, members: set[str]) -> None:
        entry = self._entries.get(record.member)
        # What is not compressed cannot unpack to more than was sent.
        if entry is None or entry.compress_type != zipfile.ZIP_STORED or entry.file_size != record.size:
            raise damaged(f"{record.member[:100]} is missing, or not as its list says")
        if record.member in members:
            raise damaged(f"{record.member[:100]} is named twice")
        members.add(record.member)
        digest = sha256()
        for chunk in self.bytes_of(record):
            digest.update(chunk)
        if digest.hexdigest() != record.sha256:
            raise damaged(f"{record.member} has not the SHA-256 that its list says")


class _Reading:
    """Turns what the standard library says of broken archives into our word for it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, BROKEN) and not isinstance(error, DocmillError):
            raise damaged(f"{self._name[:100]}: {error}") from error


async def load(
    inventory: Inventory, store: Store, file: IO[bytes], *, dry_run: bool = False, keys: bool = False
) -> Imported:
    """Take what is not here yet. *keys*: also the API keys, which let their holders in."""
    archive = await asyncio.to_thread(Archive, file)
    highest = await asyncio.to_thread(archive.check, inventory)
    loading = _Loading(inventory, store, archive, dry_run=dry_run)
    await loading.number(highest)
    await loading.objects()
    for kind in KINDS:
        if kind == "keys" and not keys:
            loading.done.left_out["keys"] = archive.manifest.lists["keys"].count
        else:
            await loading.records(kind)
    return loading.done


class _Loading:
    def __init__(self, inventory: Inventory, store: Store, archive: Archive, *, dry_run: bool) -> None:
        self._inventory = inventory
        self._store = store
        self._archive = archive
        self._dry_run = dry_run
        self._moves = Moves(archive.manifest.bucket, store.bucket)
        self.done = Imported(renumbered=self._moves.numbers)

    async def number(self, highest: dict[str, int]) -> None:
        """Give everything its number here before anything names it."""
        floors = await self._inventory.reserve(highest, keep=not self._dry_run)
        origin = self._archive.manifest.origin
        for kind in NUMBERED:
            for record in self._archive.records(kind):
                assert isinstance(record, (RuleRecord, TableRecord, TaskRecord))  # noqa: S101 - NUMBERED says so
                number = await self._inventory.number(origin, record, floor=floors[kind], keep=not self._dry_run)
                self._moves.add(record, kind, number or 0)

    async def objects(self) -> None:
        for record in self._archive.records(OBJECTS):
            assert isinstance(record, ObjectRecord)  # noqa: S101 - it is one
            self._moves.change(record)
            if await self._store.stat(record.key) is not None:
                self.done.known[OBJECTS] += 1
                continue
            if not self._dry_run:
                await self._store.put(record.key, self._stream(record), filename=record.filename)
            self.done.taken[OBJECTS] += 1

    async def records(self, kind: str) -> None:
        for record in self._archive.records(kind):
            self._moves.change(record)
            try:
                is_new = await self._take(record)
            except DocmillError as error:
                if error.retryable:
                    raise
                self.done.refused.append(f"{kind} {_label(record)}: {error.code}")
                continue
            (self.done.taken if is_new else self.done.known)[kind] += 1

    async def _take(self, record: Record) -> bool:
        if not self._dry_run:
            return await self._inventory.take(record)
        return getattr(record, "id", None) == 0 or not await self._inventory.has(record)

    async def _stream(self, record: ObjectRecord) -> AsyncIterator[bytes]:
        chunks = self._archive.bytes_of(record)
        while chunk := await asyncio.to_thread(next, chunks, b""):
            yield chunk


def _label(record: Record) -> str:
    if isinstance(record, KeyRecord):
        return record.name
    return str(getattr(record, "id", "") or getattr(record, "document_id", ""))
