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
import threading
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, islice
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote, unquote
from uuid import uuid4

from docmill.adapters.stores.folders import make_folder
from docmill.core.errors import BadRequest, DocmillError, NotFound, StageFailed, StorageFull, TooLarge
from docmill.core.keys import check_key
from docmill.ports import Stored

T = TypeVar("T")

THREADS: Final = 16
WRITERS: Final = 4
BATCH: Final = 32
MOVES: Final = 10
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
        make_folder(root)
        self._root = root.resolve()
        self._temporary = self._root / TEMPORARY
        for digit in "0123456789abcdef":
            # Several folders, because files are created in one folder only one after the other.
            (self._temporary / digit).mkdir(parents=True, exist_ok=True)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="objects")
        self._waiting: deque[tuple[_Draft, asyncio.Future[Stored]]] = deque()
        self._writers: set[asyncio.Task[None]] = set()
        self._grown: dict[tuple[str, ...], int] = {}
        """Folders that got new folders since they were last synced, and how often."""
        self._growing = threading.Lock()
        collect_leftovers(self._temporary)

    async def put(self, key: str, chunks: AsyncIterable[bytes], *, limit: int | None = None) -> Stored:
        draft = _Draft(key, self._temporary)
        size = 0
        try:
            async for chunk in chunks:
                size += len(chunk)
                if limit is not None and size > limit:
                    raise TooLarge("upload_too_large", limit=limit)
                draft.add(chunk)
                if draft.waiting >= CHUNK:
                    await self._run(draft.write)
            return await self._store(draft)
        finally:
            if draft.is_open:
                await self._run(draft.close)

    async def put_bytes(self, key: str, data: bytes) -> Stored:
        draft = _Draft(key, self._temporary)
        draft.add(data)
        return await self._store(draft)

    async def put_file(self, key: str, path: Path) -> Stored:
        return await self._run(self._copy_in, _Draft(key, self._temporary), path)

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
            await _ended(future)
            raise

    async def _store(self, draft: _Draft) -> Stored:
        """Store it with whatever else waits: syncing several files together costs little more than syncing one."""
        done: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        self._waiting.append((draft, done))
        if len(self._writers) < WRITERS:
            writer = asyncio.create_task(self._store_waiting())
            self._writers.add(writer)
            writer.add_done_callback(self._writers.discard)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            await _ended(done)
            raise

    async def _store_waiting(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            outcomes = await self._run(self._finish, [draft for draft, _ in batch])
            for (_, done), outcome in zip(batch, outcomes, strict=True):
                if isinstance(outcome, Stored):
                    done.set_result(outcome)
                else:
                    done.set_exception(outcome)

    def _copy_in(self, draft: _Draft, source: Path) -> Stored:
        with source.open("rb") as file, contextlib.closing(draft):
            while chunk := file.read(CHUNK):
                draft.add(chunk)
                draft.write()
            outcome = self._finish([draft])[0]
        if isinstance(outcome, Stored):
            return outcome
        raise outcome

    def _finish(self, drafts: Sequence[_Draft]) -> Sequence[Stored | Exception]:
        """Write all, sync all, move all, in this order: one journal commit serves many. Each has its own outcome."""
        with contextlib.ExitStack() as stack:
            for draft in drafts:
                stack.callback(draft.close)
            for step in (_Draft.write, _Draft.seal):
                for draft in drafts:
                    draft.attempt(step, draft)
            folders = groupby(sorted(drafts, key=_folders), key=_folders)
            for names, neighbours in folders:
                self._move_into_place(names, list(neighbours))
            return [draft.outcome() for draft in drafts]

    def _move_into_place(self, folders: tuple[str, ...], drafts: Sequence[_Draft]) -> None:
        """Drafts of one folder: one walk to it and one sync of it serve them all."""
        for _ in range(MOVES):
            left = [draft for draft in drafts if not (draft.is_moved or draft.error)]
            if not left:
                return
            try:
                _guarded(self._move_all, folders, left)
            except Exception as error:
                for draft in left:
                    draft.error = draft.error or error
        for draft in drafts:
            if not (draft.is_moved or draft.error):
                draft.error = StageFailed("storage_failed", why=os.strerror(errno.EBUSY))

    def _move_all(self, folders: tuple[str, ...], drafts: Sequence[_Draft]) -> None:
        """Who is not moved and has no error shall try again: a delete took the folder away because it was empty."""
        try:
            with self._path(folders, create=True) as path:
                for draft in drafts:
                    draft.attempt(draft.move, path[-1])
                if any(draft.is_moved for draft in drafts):
                    self._sync(folders, path)
        except FileNotFoundError:
            return
        except NotADirectoryError as error:
            raise in_the_way() from error

    def _sync(self, folders: tuple[str, ...], path: Sequence[int]) -> None:
        """From the inside out: most file systems then have little left to do for the folders around it."""
        for depth in range(len(folders), -1, -1):
            names = folders[:depth]
            seen = self._grown.get(names, 0)
            if names == folders or seen:
                os.fsync(path[depth])
            if seen:
                with self._growing:
                    if self._grown.get(names) == seen:
                        del self._grown[names]

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
            if error.errno in _ABSENT | {errno.EISDIR}:
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
    def _folder(self, names: tuple[str, ...]) -> Iterator[int]:
        with self._path(names) as path:
            yield path[-1]

    @contextlib.contextmanager
    def _path(self, names: tuple[str, ...], *, create: bool = False) -> Iterator[Sequence[int]]:
        """The folders from the root to the innermost, open."""
        path = [os.open(self._root, _FOLDER)]
        try:
            for depth, name in enumerate(names):
                path.append(
                    self._made(names[: depth + 1], path[-1]) if create else os.open(name, _FOLDER, dir_fd=path[-1])
                )
            yield path
        finally:
            for fd in path:
                os.close(fd)

    def _made(self, names: tuple[str, ...], parent: int) -> int:
        """Enter the folder, after making it if need be; its parent is to be synced then, by whoever stores below it."""
        with contextlib.suppress(FileNotFoundError):
            return os.open(names[-1], _FOLDER, dir_fd=parent)
        with self._growing:
            self._grown[names[:-1]] = self._grown.get(names[:-1], 0) + 1
        with contextlib.suppress(FileExistsError):
            os.mkdir(names[-1], 0o700, dir_fd=parent)
        return os.open(names[-1], _FOLDER, dir_fd=parent)

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
    """Bytes on their way to a key: a temporary file, made by the first write, that knows its size and digest."""

    def __init__(self, key: str, folder: Path) -> None:
        self.key = key
        self.place = place_of(key)
        name = uuid4().hex
        self.path = folder / name[0] / name
        self.size = 0
        self.waiting = 0
        self.error: Exception | None = None
        self.is_moved = False
        self._chunks: list[bytes] = []
        self._digest = hashlib.sha256()
        self._fd = -1

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def add(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self.waiting += len(chunk)

    def write(self) -> None:
        """Write what was added."""
        if not self.is_open:
            self._fd = os.open(self.path, _CREATE, 0o600)
        data = b"".join(self._chunks)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]
        self._digest.update(data)
        self.size += len(data)
        self._chunks, self.waiting = [], 0

    def seal(self) -> None:
        with contextlib.suppress(OSError, AttributeError):  # without attributes, stat does not know the digest
            os.setxattr(self._fd, DIGEST_ATTRIBUTE, self._digest.hexdigest().encode())
        os.fsync(self._fd)

    def move(self, folder: int) -> None:
        try:
            with contextlib.suppress(FileNotFoundError):  # the folder was deleted meanwhile
                os.rename(self.path, self.place.name, dst_dir_fd=folder)
                self.is_moved = True
        except IsADirectoryError as error:
            raise in_the_way() from error

    def attempt(self, function: Callable[..., None], *args: object) -> None:
        """Call it, unless something failed before; a fault is this draft's own."""
        if not self.error:
            try:
                _guarded(function, *args)
            except Exception as error:
                self.error = error

    def outcome(self) -> Stored | Exception:
        if self.error:
            return self.error
        return Stored(self.key, self.size, self._digest.hexdigest(), _describe(self.key, self._fd).etag)

    def close(self) -> None:
        """Close it. If it was not moved into place, it is gone."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
            if not self.is_moved:
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


def _folders(draft: _Draft) -> tuple[str, ...]:
    return draft.place.folders


async def _ended(future: asyncio.Future[T]) -> None:
    """Wait for it, come what may, and forget what came of it."""
    while not future.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([future])
    future.exception()


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
    for path in folder.glob("*/*"):
        with contextlib.suppress(FileNotFoundError):
            if path.lstat().st_mtime < time.time() - age:
                path.unlink()
                removed += 1
    return removed


def _describe(key: str, fd: int) -> Stored:
    facts = os.fstat(fd)
    try:
        digest = os.getxattr(fd, DIGEST_ATTRIBUTE).decode("ascii", "replace")
    except (OSError, AttributeError):
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
    folder = os.open(name, _FOLDER, dir_fd=parent)
    try:
        for names, facts in _files_below(folder):
            yield (name, *names), facts
    finally:
        os.close(folder)


def in_the_way() -> BadRequest:
    return BadRequest("key_invalid", why="it and another object's key are in each other's way")


def _guarded(function: Callable[..., T], *args: object) -> T:
    try:
        return function(*args)
    except DocmillError:
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull("storage_full") from error
        raise StageFailed("storage_failed", why=error.strerror or type(error).__name__) from error
