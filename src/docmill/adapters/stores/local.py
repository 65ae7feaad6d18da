"""Objects as files below one folder.

A key's segments become folders and a file name, escaped so that distinct keys have distinct paths and every path can
be read back as its key. Bytes go to a temporary file, which is synced and renamed into place, and then the folder is
synced. Paths are walked from folder to folder without following links, so that a planted link leads nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import re
import stat
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote, unquote
from uuid import uuid4

from docmill.core.errors import BadRequest, DocmillError, NotFound, StageFailed, StorageFull, TooLarge
from docmill.core.keys import check_key
from docmill.store_port import Stored

T = TypeVar("T")

THREADS: Final = 16
CHUNK: Final = 1 << 20
LEFTOVER_AGE: Final = 3600.0
TEMPORARY: Final = ".tmp"
LONGEST_NAME: Final = 200
DIGEST_ATTRIBUTE: Final = b"user.docmill.sha256"

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class LocalStore:
    """A `Store` on a local file system."""

    def __init__(self, root: Path, bucket: str = "docmill") -> None:
        """Make the folder if need be, and collect what writers that died more than an hour ago left behind."""
        self.bucket = bucket
        root.mkdir(parents=True, exist_ok=True)
        self._root = root.resolve()
        self._temporary = self._root / TEMPORARY
        self._temporary.mkdir(exist_ok=True)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="objects")
        collect_leftovers(self._temporary)

    async def put(self, key: str, chunks: AsyncIterable[bytes], *, limit: int | None = None) -> Stored:
        place = place_of(key)
        draft = _Draft(self._temporary)
        buffered: list[bytes] = []
        waiting = size = 0
        try:
            async for chunk in chunks:
                size += len(chunk)
                if limit is not None and size > limit:
                    raise TooLarge("upload_too_large", limit=limit)
                buffered.append(chunk)
                waiting += len(chunk)
                if waiting >= CHUNK:
                    await self._run(draft.write, b"".join(buffered))
                    buffered, waiting = [], 0
            return await self._run(self._finish, key, place, draft, b"".join(buffered))
        finally:
            if draft.is_open:
                await self._run(draft.close)

    async def put_bytes(self, key: str, data: bytes) -> Stored:
        return await self._run(self._finish, key, place_of(key), _Draft(self._temporary), data)

    async def put_file(self, key: str, path: Path) -> Stored:
        return await self._run(self._copy_in, key, place_of(key), path)

    async def stat(self, key: str) -> Stored | None:
        return await self._run(self._stat, key)

    async def read(self, key: str, *, limit: int | None = None) -> bytes:
        return await self._run(self._read, key, limit)

    async def stream(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        with contextlib.closing(_Reader(lambda: self._open(key))) as reader:
            while end is None or start < end:
                length = CHUNK if end is None else min(CHUNK, end - start)
                chunk = await self._run(reader.read, length, start)
                if not chunk:
                    return
                start += len(chunk)
                yield chunk

    async def fetch(self, key: str, path: Path) -> Stored:
        return await self._run(self._copy_out, key, path)

    async def delete(self, key: str) -> bool:
        return await self._run(self._delete, place_of(key))

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, int, float]]:
        found = self._walk(prefix)
        while batch := await self._run(lambda: tuple(islice(found, 500))):
            for item in batch:
                yield item

    async def free_bytes(self) -> int | None:
        facts = await self._run(os.statvfs, self._root)
        return facts.f_bavail * facts.f_frsize

    async def close(self) -> None:
        await asyncio.to_thread(self._pool.shutdown)

    async def _run(self, function: Callable[..., T], *args: object) -> T:
        """Call it in a thread. A cancelled caller still waits for the thread, so that nothing is closed under it."""
        future = asyncio.get_running_loop().run_in_executor(self._pool, _guarded, function, *args)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            while not future.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([future])
            future.exception()
            raise

    def _finish(self, key: str, place: Place, draft: _Draft, rest: bytes) -> Stored:
        with contextlib.closing(draft):
            draft.write(rest)
            draft.seal()
            self._move_into_place(draft.path, place)
            return draft.stored(key)

    def _copy_in(self, key: str, place: Place, source: Path) -> Stored:
        draft = _Draft(self._temporary)
        with source.open("rb") as file, contextlib.closing(draft):
            while chunk := file.read(CHUNK):
                draft.write(chunk)
            return self._finish(key, place, draft, b"")

    def _move_into_place(self, path: Path, place: Place) -> None:
        for _ in range(10):
            try:
                with self._folder(place.folders, create=True) as folder:
                    os.rename(path, place.name, dst_dir_fd=folder)
                    os.fsync(folder)
                return
            except FileNotFoundError:
                # A delete took the folder away because it was empty just then.
                continue
            except (NotADirectoryError, IsADirectoryError) as error:
                raise BadRequest(
                    "key_invalid", why="another object's key is a part of it, or it of another's"
                ) from error
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    def _stat(self, key: str) -> Stored | None:
        try:
            fd = self._open(key)
        except NotFound:
            return None
        try:
            return _describe(key, fd)
        finally:
            os.close(fd)

    def _read(self, key: str, limit: int | None) -> bytes:
        with os.fdopen(self._open(key), "rb") as file:
            if limit is None:
                return file.read()
            data = file.read(limit + 1)
            if len(data) > limit:
                raise TooLarge("upload_too_large", limit=limit)
            return data

    def _copy_out(self, key: str, path: Path) -> Stored:
        with os.fdopen(self._open(key), "rb") as file:
            digest, size = hashlib.sha256(), 0
            draft = path.with_name(f".{uuid4().hex}.part")
            try:
                with draft.open("xb") as copy:
                    while chunk := file.read(CHUNK):
                        copy.write(chunk)
                        digest.update(chunk)
                        size += len(chunk)
                draft.replace(path)
            except BaseException:
                draft.unlink(missing_ok=True)
                raise
            return Stored(key, size, digest.hexdigest(), _describe(key, file.fileno()).etag)

    def _delete(self, place: Place) -> bool:
        try:
            with self._folder(place.folders) as folder:
                os.unlink(place.name, dir_fd=folder)
                os.fsync(folder)
        except OSError as error:
            if error.errno in _ABSENT | {errno.EISDIR, errno.EPERM}:
                return False
            raise
        self._prune(place.folders)
        return True

    def _prune(self, folders: tuple[str, ...]) -> None:
        for depth in range(len(folders), 0, -1):
            try:
                with self._folder(folders[: depth - 1]) as parent:
                    os.rmdir(folders[depth - 1], dir_fd=parent)
            except OSError:
                return

    def _open(self, key: str) -> int:
        place = place_of(key)
        try:
            with self._folder(place.folders) as folder:
                fd = os.open(place.name, _READ, dir_fd=folder)
        except OSError as error:
            if error.errno in _ABSENT:
                raise NotFound("object_not_found", key=key) from error
            raise
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise NotFound("object_not_found", key=key)
        return fd

    @contextlib.contextmanager
    def _folder(self, names: tuple[str, ...], *, create: bool = False) -> Iterator[int]:
        fd = os.open(self._root, _FOLDER)
        try:
            for name in names:
                inner = _enter(name, fd, create=create)
                os.close(fd)
                fd = inner
            yield fd
        finally:
            os.close(fd)

    def _walk(self, prefix: str) -> Iterator[tuple[str, int, float]]:
        """Start at the deepest folder that the prefix names in full, and keep what begins with it."""
        known = prefix.rpartition("/")[0]
        folders = _names_of(known) if known else ()
        try:
            with self._folder(folders) as folder:
                for names, facts in _files_below(folder):
                    key = key_of((*folders, *names))
                    if key.startswith(prefix):
                        yield key, facts.st_size, facts.st_mtime
        except OSError as error:
            if error.errno not in _ABSENT:
                raise


class Place:
    """Where a key lies: names of folders below the root, and a file name."""

    __slots__ = ("folders", "name")

    def __init__(self, names: tuple[str, ...]) -> None:
        *folders, self.name = names
        self.folders = tuple(folders)


class _Draft:
    """A temporary file that knows its size and digest. It comes to be with the first write."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / uuid4().hex
        self.size = 0
        self._digest = hashlib.sha256()
        self._fd = -1

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def write(self, data: bytes) -> None:
        if not self.is_open:
            self._fd = os.open(self.path, _CREATE, 0o600)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]
        self.size += len(data)
        self._digest.update(data)

    def seal(self) -> None:
        with contextlib.suppress(OSError):  # without attributes, stat does not know the digest
            os.setxattr(self._fd, DIGEST_ATTRIBUTE, self._digest.hexdigest().encode())
        os.fsync(self._fd)

    def stored(self, key: str) -> Stored:
        return Stored(key, self.size, self._digest.hexdigest(), _describe(key, self._fd).etag)

    def close(self) -> None:
        """Close it. If it was not moved into place, it is gone."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
            self.path.unlink(missing_ok=True)


class _Reader:
    """A file that is opened by the first read, in the thread that reads."""

    def __init__(self, opener: Callable[[], int]) -> None:
        self._opener = opener
        self._fd = -1

    def read(self, length: int, start: int) -> bytes:
        if self._fd < 0:
            self._fd = self._opener()
        return os.pread(self._fd, length, start)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


def place_of(key: str) -> Place:
    return Place(_names_of(check_key(key)))


def _names_of(key: str) -> tuple[str, ...]:
    return tuple(name for segment in key.split("/") for name in _parts(segment))


def _parts(segment: str) -> Iterator[str]:
    """One name, or several if the segment is too long for one; all but the last then end in '~'."""
    escaped = quote(segment, safe="@+=, ()").replace("~", "%7E")
    if escaped.startswith("."):
        escaped = "%2E" + escaped[1:]
    while len(escaped) > LONGEST_NAME:
        yield escaped[:LONGEST_NAME] + "~"
        escaped = escaped[LONGEST_NAME:]
    yield escaped


def key_of(names: tuple[str, ...]) -> str:
    """The key whose path these names are."""
    return unquote(re.sub(r"~(/|$)", "", "/".join(names)))


def collect_leftovers(folder: Path, age: float = LEFTOVER_AGE) -> int:
    """Remove temporary files that nobody has written to for *age* seconds."""
    removed = 0
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):
            if entry.stat(follow_symlinks=False).st_mtime < time.time() - age:
                Path(entry.path).unlink()
                removed += 1
    return removed


def _enter(name: str, parent: int, *, create: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        if not create:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
        os.fsync(parent)
    return os.open(name, _FOLDER, dir_fd=parent)


def _describe(key: str, fd: int) -> Stored:
    facts = os.fstat(fd)
    try:
        digest = os.getxattr(fd, DIGEST_ATTRIBUTE).decode("ascii", "replace")
    except OSError:
        digest = ""
    return Stored(key, facts.st_size, digest, digest or f"{facts.st_mtime_ns:x}-{facts.st_size:x}")


def _files_below(folder: int) -> Iterator[tuple[tuple[str, ...], os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                if entry.is_file(follow_symlinks=False):
                    yield (entry.name,), entry.stat(follow_symlinks=False)
                elif entry.is_dir(follow_symlinks=False):
                    yield from _files_inside(entry.name, folder)


def _files_inside(name: str, parent: int) -> Iterator[tuple[tuple[str, ...], os.stat_result]]:
    folder = _enter(name, parent, create=False)
    try:
        for names, facts in _files_below(folder):
            yield (name, *names), facts
    finally:
        os.close(folder)


def _guarded(function: Callable[..., T], *args: object) -> T:
    try:
        return function(*args)
    except DocmillError:
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull("storage_full") from error
        raise StageFailed("storage_failed", why=error.strerror or type(error).__name__) from error
