"""Objects as files below one folder.

A key's segments become folders and a file name. Bytes go to a temporary file, which is synced and renamed into place,
and then the folder is synced. Paths are walked from folder to folder without following links, so that a planted link
leads nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import stat
import threading
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, islice
from pathlib import Path
from typing import Final, TypeVar
from uuid import uuid4

from docmill.adapters.stores.drafts import Draft, collect_leftovers, describe, guarded, in_the_way
from docmill.adapters.stores.folders import make_folder
from docmill.adapters.stores.names import Place, key_of, names_of, place_of
from docmill.core.errors import NotFound, StageFailed, TooLarge
from docmill.ports import Stored

T = TypeVar("T")

THREADS: Final = 16
WRITERS: Final = 4
BATCH: Final = 32
MOVES: Final = 10
CHUNK: Final = 1 << 20
TEMPORARY: Final = ".tmp"

_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


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
        self._waiting: deque[tuple[Draft, asyncio.Future[Stored]]] = deque()
        self._writers: set[asyncio.Task[None]] = set()
        self._grown: dict[tuple[str, ...], int] = {}
        """Folders that got new folders since they were last synced, and how often."""
        self._growing = threading.Lock()
        collect_leftovers(self._temporary)

    async def put(
        self, key: str, chunks: AsyncIterable[bytes], *, limit: int | None = None, filename: str = ""
    ) -> Stored:
        draft = Draft(key, self._temporary, filename)
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
        draft = Draft(key, self._temporary)
        draft.add(data)
        return await self._store(draft)

    async def put_file(self, key: str, path: Path) -> Stored:
        return await self._run(self._copy_in, Draft(key, self._temporary), path)

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
        future = asyncio.get_running_loop().run_in_executor(self._pool, guarded, function, *args)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await _ended(future)
            raise

    async def _store(self, draft: Draft) -> Stored:
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

    def _copy_in(self, draft: Draft, source: Path) -> Stored:
        with source.open("rb") as file, contextlib.closing(draft):
            while chunk := file.read(CHUNK):
                draft.add(chunk)
                draft.write()
            outcome = self._finish([draft])[0]
        if isinstance(outcome, Stored):
            return outcome
        raise outcome

    def _finish(self, drafts: Sequence[Draft]) -> Sequence[Stored | Exception]:
        """Write all, sync all, move all, in this order: one journal commit serves many. Each has its own outcome."""
        with contextlib.ExitStack() as stack:
            for draft in drafts:
                stack.callback(draft.close)
            for step in (Draft.write, Draft.seal):
                for draft in drafts:
                    draft.attempt(step, draft)
            folders = groupby(sorted(drafts, key=_folders), key=_folders)
            for names, neighbours in folders:
                self._move_into_place(names, list(neighbours))
            return [draft.outcome() for draft in drafts]

    def _move_into_place(self, folders: tuple[str, ...], drafts: Sequence[Draft]) -> None:
        """Drafts of one folder: one walk to it and one sync of it serve them all."""
        for _ in range(MOVES):
            left = [draft for draft in drafts if not (draft.is_moved or draft.error)]
            if not left:
                return
            try:
                guarded(self._move_all, folders, left)
            except Exception as error:
                for draft in left:
                    draft.error = draft.error or error
        for draft in drafts:
            if not (draft.is_moved or draft.error):
                draft.error = StageFailed("storage_failed", why=os.strerror(errno.EBUSY))

    def _move_all(self, folders: tuple[str, ...], drafts: Sequence[Draft]) -> None:
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
            return describe(key, fd)
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
            return Stored(key, size, digest.hexdigest(), describe(key, file.fileno()).etag)

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
        folders = names_of(known) if known else ()
        try:
            with self._folder(folders) as folder:
                for names, facts in _files_below(folder):
                    key = key_of((*folders, *names))
                    if key.startswith(prefix):
                        yield key, facts.st_size, facts.st_mtime
        except OSError as error:
            if error.errno not in _ABSENT:
                raise


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


def _folders(draft: Draft) -> tuple[str, ...]:
    return draft.place.folders


async def _ended(future: asyncio.Future[T]) -> None:
    """Wait for it, come what may, and forget what came of it."""
    while not future.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([future])
    future.exception()


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
