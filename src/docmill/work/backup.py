"""Back up a whole deployment into one archive, and restore an archive into an empty deployment.

The rows come from one snapshot of the database, and the objects after it, so every object that a row names is in the
archive. A restore checks the whole archive first, stores the objects next, and inserts all rows in one transaction at
the end: it can be interrupted anywhere and run again.
"""

from __future__ import annotations

import asyncio
import time
import zipfile
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import IO, BinaryIO

import msgspec

from docmill.core.backup import (
    FORMAT,
    MAX_LINE_BYTES,
    MAX_MANIFEST_BYTES,
    OBJECTS_PREFIX,
    Listing,
    Manifest,
    ObjectRecord,
    Row,
    TableListing,
    Value,
    check_object,
    damaged,
    read_manifest,
    read_row,
)
from docmill.core.errors import DocmillError, Invalid, NotFound
from docmill.ports import BackupDatabase, Store

CHUNK_BYTES = 1 << 20
MANIFEST = "manifest.json"
OBJECTS = "objects.jsonl"
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError)
"""What the standard library raises for an archive that is not whole."""


@dataclass(frozen=True, slots=True)
class BackupSummary:
    """What an archive holds."""

    rows: dict[str, int]
    """By table."""
    objects: int
    object_bytes: int


class _LinesMember:
    """A member of the archive that is being written line by line."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        entry = zipfile.ZipInfo(name)
        entry.compress_type = zipfile.ZIP_DEFLATED
        self._stream = archive.open(entry, "w", force_zip64=True)
        self._hash = sha256()
        self.count = 0

    def add(self, value: object) -> None:
        line = msgspec.json.encode(value) + b"\n"
        self._hash.update(line)
        self._stream.write(line)
        self.count += 1

    def close(self) -> str:
        self._stream.close()
        return self._hash.hexdigest()


@dataclass(slots=True)
class _TablesWriter:
    """Receives the pages of all tables, one table after the other."""

    archive: zipfile.ZipFile
    listings: dict[str, TableListing] = field(default_factory=dict)
    _table: str = ""
    _columns: Sequence[str] = ()
    _member: _LinesMember | None = None

    def add(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        if table != self._table:
            self.close()
            self._table, self._columns = table, columns
            self._member = _LinesMember(self.archive, _member_of(table))
        for row in rows:
            assert self._member  # noqa: S101 - opened above
            self._member.add(list(row))

    def close(self) -> None:
        if self._member:
            digest = self._member.close()
            self.listings[self._table] = TableListing(self._member.count, digest, list(self._columns))
            self._member = None


def _member_of(table: str) -> str:
    return f"tables/{table}.jsonl"


async def write_backup(database: BackupDatabase, store: Store, out: BinaryIO, *, docmill: str) -> BackupSummary:
    """Write the archive to *out*, which need not be seekable. The service may run meanwhile."""
    with zipfile.ZipFile(out, "w", allowZip64=True) as archive:
        tables = _TablesWriter(archive)
        schema, sequences = await database.read_rows(tables.add)
        tables.close()
        objects, object_bytes = await _write_objects(store, archive)
        manifest = Manifest(
            format=FORMAT,
            docmill=docmill,
            schema=schema,
            bucket=store.bucket,
            created_ms=round(time.time() * 1000),
            tables=tables.listings,
            objects=objects,
            sequences=sequences,
        )
        archive.writestr(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2))
    return BackupSummary({name: one.count for name, one in tables.listings.items()}, objects.count, object_bytes)


async def _write_objects(store: Store, archive: zipfile.ZipFile) -> tuple[Listing, int]:
    """A ZIP archive has one open member at a time, so the list of objects waits in memory, without their bytes."""
    records: list[ObjectRecord] = []
    async for key, _, _ in store.list(OBJECTS_PREFIX):
        record = await _write_object(store, archive, key, f"objects/{len(records) + 1:09d}")
        if record is not None:
            records.append(record)
    member = _LinesMember(archive, OBJECTS)
    for record in records:
        member.add(record)
    return Listing(member.count, member.close()), sum(record.size for record in records)


async def _write_object(store: Store, archive: zipfile.ZipFile, key: str, member: str) -> ObjectRecord | None:
    digest, size = sha256(), 0
    async with aclosing(_chunks(store, key)) as chunks:
        try:
            chunk = await anext(chunks, b"")
        except NotFound:
            return None  # Retention removed it since it was listed.
        with archive.open(zipfile.ZipInfo(member), "w", force_zip64=True) as stream:
            while chunk:
                digest.update(chunk)
                size += len(chunk)
                await asyncio.to_thread(stream.write, chunk)
                chunk = await anext(chunks, b"")
    stored = await store.stat(key)
    filename = stored.filename if stored else ""
    return ObjectRecord(key=key, size=size, sha256=digest.hexdigest(), member=member, filename=filename)


async def _chunks(store: Store, key: str) -> AsyncGenerator[bytes, None]:
    async for chunk in store.stream(key):
        if chunk:
            yield chunk


class Archive:
    """A backup that is being read. Nothing in it is ever unpacked to a path."""

    def __init__(self, file: IO[bytes]) -> None:
        try:
            self._zip = zipfile.ZipFile(file)
            entries = self._zip.infolist()
        except ZIP_ERRORS as error:
            raise Invalid("backup_unknown", why=f"it is no ZIP archive, or was cut off ({error})") from error
        self._entries = {entry.filename: entry for entry in entries}
        if len(self._entries) < len(entries):
            raise damaged("two of its members have the same name")
        if MANIFEST not in self._entries:
            raise Invalid("backup_unknown", why=f"it has no {MANIFEST}")
        with self._open(MANIFEST) as stream:
            head = stream.read(MAX_MANIFEST_BYTES + 1)
        if len(head) > MAX_MANIFEST_BYTES:
            raise damaged(f"{MANIFEST} is too long")
        self.manifest = read_manifest(head)

    @contextmanager
    def _open(self, name: str) -> Iterator[IO[bytes]]:
        if name not in self._entries:
            raise damaged(f"{name[:100]} is missing")
        try:
            with self._zip.open(self._entries[name]) as stream:
                yield stream
        except DocmillError:
            raise
        except ZIP_ERRORS as error:
            raise damaged(f"{name[:100]}: {error}") from error

    def _lines(self, name: str) -> Iterator[bytes]:
        with self._open(name) as stream:
            while line := stream.readline(MAX_LINE_BYTES + 1):
                if len(line) > MAX_LINE_BYTES:
                    raise damaged(f"a line of {name[:100]} is too long")
                yield line

    def rows(self, table: str) -> Iterator[list[Value]]:
        width = len(self.manifest.tables[table].columns)
        for number, line in enumerate(self._lines(_member_of(table)), 1):
            try:
                yield read_row(line, width)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise damaged(f"line {number} of {table[:100]}: {error}") from error

    def objects(self) -> Iterator[ObjectRecord]:
        decoder = msgspec.json.Decoder(ObjectRecord)
        for number, line in enumerate(self._lines(OBJECTS), 1):
            try:
                yield decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise damaged(f"line {number} of {OBJECTS}: {error}") from error

    def bytes_of(self, record: ObjectRecord) -> Iterator[bytes]:
        with self._open(record.member) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                yield chunk

    def check(self) -> BackupSummary:
        """Read everything once. Raises `backup_damaged` before anything is written."""
        members = {MANIFEST, OBJECTS}
        for table, listing in self.manifest.tables.items():
            members.add(_member_of(table))
            self._check_lines(_member_of(table), listing)
            for _ in self.rows(table):
                pass
        self._check_lines(OBJECTS, self.manifest.objects)
        object_bytes = 0
        for record in self.objects():
            self._check_object(record, members)
            object_bytes += record.size
        if unknown := set(self._entries) - members:
            raise damaged(f"it has a member that no list names: {min(unknown)[:100]}")
        rows = {table: listing.count for table, listing in self.manifest.tables.items()}
        return BackupSummary(rows, self.manifest.objects.count, object_bytes)

    def _check_lines(self, name: str, listing: Listing) -> None:
        digest, count = sha256(), 0
        for line in self._lines(name):
            digest.update(line)
            count += 1
        if (count, digest.hexdigest()) != (listing.count, listing.sha256):
            raise damaged(f"{name[:100]} is not the one that the manifest describes")

    def _check_object(self, record: ObjectRecord, members: set[str]) -> None:
        check_object(record)
        entry = self._entries.get(record.member)
        # A member that is not compressed cannot unpack to more than was sent.
        if entry is None or entry.compress_type != zipfile.ZIP_STORED or entry.file_size != record.size:
            raise damaged(f"{record.member[:100]} is missing, or differs from its list")
        if record.member in members:
            raise damaged(f"{record.member[:100]} is named twice")
        members.add(record.member)
        digest = sha256()
        for chunk in self.bytes_of(record):
            digest.update(chunk)
        if digest.hexdigest() != record.sha256:
            raise damaged(f"the SHA-256 of {record.member[:100]} differs from its list")


async def check_backup(file: IO[bytes]) -> BackupSummary:
    archive = await asyncio.to_thread(Archive, file)
    return await asyncio.to_thread(archive.check)


async def restore_backup(database: BackupDatabase, store: Store, file: IO[bytes]) -> BackupSummary:
    """Restore the archive into an empty deployment. Conflict("restore_not_empty") if there is anything in it."""
    archive = await asyncio.to_thread(Archive, file)
    summary = await asyncio.to_thread(archive.check)
    manifest = archive.manifest
    columns = {table: listing.columns for table, listing in manifest.tables.items()}
    await database.prepare_restore(manifest.schema, columns)
    for record in archive.objects():
        # An object never changes: what an interrupted restore stored is complete.
        if await store.stat(record.key) is None:
            await store.put(record.key, _object_chunks(archive, record), filename=record.filename)
    await database.insert_rows(columns, archive.rows, manifest.sequences, buckets=(manifest.bucket, store.bucket))
    return summary


async def _object_chunks(archive: Archive, record: ObjectRecord) -> AsyncIterator[bytes]:
    chunks = archive.bytes_of(record)
    while chunk := await asyncio.to_thread(next, chunks, b""):
        yield chunk
