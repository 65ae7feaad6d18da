"""A disk that forgets what nobody synced: what docmill's data folder may look like after a power cut.

In the process that will become docmill, every sync is watched. What a file holds when it is synced, and which names a
folder holds when it is synced, is written down before the sync returns: that much the disk owes. All else it may have
or not, in any mixture: of what was not synced some pages, some names.

It is strict where real file systems are kind: that a file is synced says nothing of its name, only a sync of its folder
does. SQLite's files are watched through SQLite's own interface to the file system; it syncs the folder itself when it
syncs a new log, which is out of our sight, and counted.
"""

from __future__ import annotations

import json
import os
import random
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = 4096


class Disk:
    """Writes down what is synced below *data*, in the folder *image*: by inode, since names come and go."""

    def __init__(self, data: Path, image: Path) -> None:
        self._data, self._image = data, image
        self._guard = threading.RLock()
        self._held: dict[int, int] = {}
        """What is written down stays open: its number is not given to another file."""

    def install(self) -> None:
        """What is there at the start is on the disk."""
        self._image.mkdir(exist_ok=True)
        for folder, _, names in os.walk(self._data):
            self._with(Path(folder), os.O_DIRECTORY)
            for name in names:
                self._with(Path(folder, name), os.O_NOFOLLOW)
        self._watch_files()
        self._watch_sqlite()

    def _with(self, path: Path, flags: int) -> None:
        fd = os.open(path, os.O_RDONLY | flags)
        try:
            self.sync(fd, lambda: None)
        finally:
            os.close(fd)

    def sync(self, fd: int, really: Callable[[], None]) -> None:
        """What is there before a sync is on the disk after it; what comes meanwhile may not be."""
        with self._guard:
            facts = os.fstat(fd)
            if stat.S_ISDIR(facts.st_mode):
                kept, fresh = json.dumps(self._names(fd)).encode(), f"{facts.st_ino}.names"
            else:
                kept, fresh = _contents(fd), f"{facts.st_ino}.bytes"
                self._hold(facts.st_ino, f"/proc/self/fd/{fd}")
            really()
            self._keep(fresh, kept, facts.st_mode, _attributes(fd))

    def sync_sqlite(self, file: Any, path: str, really: Callable[[], None]) -> None:
        """Through SQLite's own handle: to open and close the file beside it would drop its locks."""
        with self._guard:
            kept, facts = file.xRead(file.xFileSize(), 0), Path(path).stat()
            self._hold(facts.st_ino, path)
            really()
            self._keep(f"{facts.st_ino}.bytes", kept, facts.st_mode, {})

    def sync_folder_of(self, path: str) -> None:
        self._with(Path(path).parent, os.O_DIRECTORY)

    def _names(self, fd: int) -> dict[str, int]:
        found = {}
        for name in os.listdir(fd):
            with suppress(FileNotFoundError):
                found[name] = number = os.stat(name, dir_fd=fd, follow_symlinks=False).st_ino
                self._hold(number, name, fd)
        return found

    def _hold(self, number: int, path: str, folder: int | None = None) -> None:
        if number not in self._held:
            flags = os.O_PATH | (os.O_NOFOLLOW if folder is not None else 0)
            self._held[number] = os.open(path, flags, dir_fd=folder)

    def _keep(self, name: str, data: bytes, mode: int, attributes: dict[str, bytes]) -> None:
        """Whole or not at all, since we may be killed."""
        fresh = self._image / f"{name}.new"
        fresh.write_bytes(data)
        fresh.chmod(stat.S_IMODE(mode) | 0o600)
        for attribute, value in attributes.items():
            os.setxattr(fresh, attribute, value)
        fresh.rename(self._image / name)

    def _watch_files(self) -> None:
        real = os.fsync

        def fsync(fd: Any) -> None:
            number = fd if isinstance(fd, int) else fd.fileno()
            self.sync(number, lambda: real(number))

        os.fsync = os.fdatasync = fsync

    def _watch_sqlite(self) -> None:
        import apsw

        disk = self

        class File(apsw.VFSFile):
            def __init__(self, name: Any, flags: list[int]) -> None:
                self._path = name.filename() if isinstance(name, apsw.URIFilename) else name
                self._is_new_log = bool(flags[0] & (apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL))
                super().__init__("unix", name, flags)

            def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
                disk.sync_sqlite(self, self._path, lambda: super(File, self).xSync(flags))
                if self._is_new_log:
                    self._is_new_log = False
                    disk.sync_folder_of(self._path)

        class Watched(apsw.VFS):
            def __init__(self) -> None:
                super().__init__("watched", "unix", makedefault=True)

            def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
                return File(name, flags) if name else apsw.VFSFile("unix", name, flags)

            def xDelete(self, name: str, syncdir: bool) -> None:  # noqa: N802 - SQLite's name
                super().xDelete(name, syncdir)
                if syncdir:
                    disk.sync_folder_of(name)

        self._vfs = Watched()


@dataclass(frozen=True)
class Luck:
    """Whether what was not synced is there all the same."""

    chance: random.Random
    share: float = 0.5
    """0: nothing of it."""

    def has(self) -> bool:
        return self.chance.random() < self.share


def after_a_cut(data: Path, image: Path, target: Path, luck: Luck) -> None:
    """Lay out in *target* what the disk may hold, now that the process that wrote to *data* is gone."""
    now = {os.lstat(path).st_ino: path for path in (data, *data.rglob("*"))}
    _lay_folder(os.lstat(data).st_ino, target, image, now, luck)


def _lay_folder(number: int, target: Path, image: Path, now: dict[int, Path], luck: Luck) -> None:
    target.mkdir(mode=0o700)
    synced: dict[str, int] = {}
    with suppress(FileNotFoundError):
        synced = json.loads((image / f"{number}.names").read_text())
    seen = {path.name: inode for inode, path in now.items() if now.get(number) == path.parent}
    for name in sorted(synced.keys() | seen.keys()):
        inode = (seen if luck.has() else synced).get(name)
        if inode is None:
            continue
        if (image / f"{inode}.names").exists() or (inode in now and now[inode].is_dir()):
            _lay_folder(inode, target / name, image, now, luck)
        else:
            _lay_file(inode, target / name, image, now, luck)


def _lay_file(number: int, target: Path, image: Path, now: dict[int, Path], luck: Luck) -> None:
    kept, path = image / f"{number}.bytes", now.get(number)
    synced = kept.read_bytes() if kept.exists() else b""
    seen = path.read_bytes() if path else synced
    target.write_bytes(synced if synced == seen else b"".join(_mixed(synced, seen, luck)))
    if kept.exists():
        target.chmod(stat.S_IMODE(kept.stat().st_mode))
        for attribute, value in _attributes(kept).items():
            os.setxattr(target, attribute, value)


def _mixed(synced: bytes, seen: bytes, luck: Luck) -> Iterator[bytes]:
    """Nothing of what was not synced, or some pages of it; never less than what was."""
    has_grown = luck.has()
    for start in range(0, max(len(synced), len(seen)), PAGE):
        old, new = synced[start : start + PAGE], seen[start : start + PAGE]
        if len(old) < len(new) and not has_grown:
            yield old
        elif new and luck.has():
            yield new + old[len(new) :]
        else:
            yield old or bytes(len(new))  # a hole: the size is there, the page is not


def _contents(fd: int) -> bytes:
    with Path(f"/proc/self/fd/{fd}").open("rb") as file:  # it may be open for writing only
        return file.read()


def _attributes(what: int | Path) -> dict[str, bytes]:
    with suppress(OSError):
        return {name: os.getxattr(what, name) for name in os.listxattr(what) if name.startswith("user.")}
    return {}
