"""A folder that is watched: its files, each once they are written.

The kernel tells what changes (a look every minute finds what it did not tell). A file counts as written when size and
time stay the same for a while; one that changes again comes again.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from pathlib import Path, PurePath
from time import monotonic

import watchfiles

DATABASE = "docmill.db"
LOOK_AGAIN_S = 60.0
MOST_AT_ONCE = 100_000
"""Files that wait to be seen as written; the others are found by a later look."""

Stamp = tuple[int, int, int]
"""Inode, size, time of change."""
Twins = Callable[[Path], Awaitable[Collection[str]]]
"""Names in a folder that are twins, not documents."""


class Inbox:
    def __init__(self, folder: Path, is_wanted: Callable[[PurePath], bool], twins: Twins, *, settle_s: float) -> None:
        self.folder = folder.resolve()
        self._is_wanted, self._twins, self._settle_s = is_wanted, twins, settle_s
        self._waiting: dict[Path, tuple[Stamp, float]] = {}
        """With when they were first seen as they are."""
        self._given: dict[Path, Stamp] = {}

    async def files(self, *, once: bool = False) -> AsyncIterator[Path]:
        """Files as they are written, those that were there first. *once*: only what is there now."""
        await self._look()
        if once:
            while self._waiting:
                await asyncio.sleep(min(self._settle_s, 0.2))
                for path in await self._written():
                    yield path
            return
        looked = monotonic()
        tick_ms = max(50, int(self._settle_s * 500))
        async for changes in watchfiles.awatch(self.folder, yield_on_timeout=True, rust_timeout=tick_ms, debounce=200):
            for _, name in changes:
                await asyncio.to_thread(self._note, Path(name))
            if monotonic() - looked > LOOK_AGAIN_S:
                await self._look()
                looked = monotonic()
            for path in await self._written():
                yield path

    def forget(self, path: Path) -> None:
        """Whoever got the file could not take it: it comes again with the next look."""
        self._given.pop(path, None)

    async def _look(self) -> None:
        await asyncio.to_thread(self._note, self.folder)
        for gone in [path for path in self._given if not path.exists()]:
            del self._given[gone]

    def _note(self, path: Path) -> None:
        if any(_is_data_folder(one) for one in path.parents if one.is_relative_to(self.folder)):
            return
        for file in _files(path):
            if len(self._waiting) >= MOST_AT_ONCE:
                return
            stamp = _stamp(file)
            known = self._waiting.get(file, (self._given.get(file), 0.0))[0]
            if stamp and stamp != known and self._is_wanted(file.relative_to(self.folder)):
                self._waiting[file] = (stamp, monotonic())

    async def _written(self) -> list[Path]:
        now = monotonic()
        found: list[Path] = []
        for path, (stamp, since) in list(self._waiting.items()):
            current = _stamp(path)
            if current is None:
                del self._waiting[path]
            elif current != stamp:
                self._waiting[path] = (current, now)
            elif now - since >= self._settle_s and current[1]:
                del self._waiting[path]
                self._given[path] = stamp
                if not await self._is_twin(path):
                    found.append(path)
            elif now - since >= self._settle_s:
                # Empty: somebody has only made a name yet. The kernel tells when there is more.
                del self._waiting[path]
        return found

    async def _is_twin(self, path: Path) -> bool:
        parts = path.relative_to(self.folder).parts
        folder = self.folder
        for part in parts:
            if part in await self._twins(folder):
                return True
            folder /= part
        return False


def _is_data_folder(folder: Path) -> bool:
    """Whether docmill keeps its own data there, which are no documents."""
    return (folder / DATABASE).exists()


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path):
        if DATABASE in names:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(names))


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None
