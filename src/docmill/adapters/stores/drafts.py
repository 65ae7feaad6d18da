"""Bytes on their way to a key, and what the file system says of them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar
from uuid import uuid4

from docmill.adapters.stores.names import place_of
from docmill.core.errors import FULL_ERRNOS, BadRequest, DocmillError, StageFailed, StorageFull
from docmill.ports import Stored

T = TypeVar("T")

LEFTOVER_AGE: Final = 3600.0
DIGEST_ATTRIBUTE: Final = b"user.docmill.sha256"
FILENAME_ATTRIBUTE: Final = b"user.docmill.filename"

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Draft:
    """A temporary file, made by the first write, that knows its size and digest."""

    def __init__(self, key: str, folder: Path, filename: str = "") -> None:
        self.key = key
        self.filename = filename
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
        with contextlib.suppress(OSError, AttributeError):  # without attributes, stat knows neither digest nor name
            os.setxattr(self._fd, DIGEST_ATTRIBUTE, self._digest.hexdigest().encode())
            if self.filename:
                os.setxattr(self._fd, FILENAME_ATTRIBUTE, self.filename.encode())
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
                guarded(function, *args)
            except Exception as error:
                self.error = error

    def outcome(self) -> Stored | Exception:
        if self.error:
            return self.error
        etag = describe(self.key, self._fd).etag
        return Stored(self.key, self.size, self._digest.hexdigest(), etag, self.filename)

    def close(self) -> None:
        """Close it. If it was not moved into place, it is gone."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
            if not self.is_moved:
                self.path.unlink(missing_ok=True)


def collect_leftovers(folder: Path, age: float = LEFTOVER_AGE) -> int:
    """Remove temporary files that nobody has written to for *age* seconds."""
    removed = 0
    for path in folder.glob("*/*"):
        with contextlib.suppress(FileNotFoundError):
            if path.lstat().st_mtime < time.time() - age:
                path.unlink()
                removed += 1
    return removed


def describe(key: str, fd: int) -> Stored:
    facts = os.fstat(fd)
    digest = _read_attribute(fd, DIGEST_ATTRIBUTE)
    etag = digest or f"{facts.st_mtime_ns:x}-{facts.st_size:x}"
    return Stored(key, facts.st_size, digest, etag, _read_attribute(fd, FILENAME_ATTRIBUTE))


def _read_attribute(fd: int, name: bytes) -> str:
    try:
        return os.getxattr(fd, name).decode("utf-8", "replace")
    except (OSError, AttributeError):
        return ""


def in_the_way() -> BadRequest:
    return BadRequest("key_invalid", why="it and another object's key are in each other's way")


def guarded(function: Callable[..., T], *args: object) -> T:
    try:
        return function(*args)
    except DocmillError:
        raise
    except OSError as error:
        if error.errno in FULL_ERRNOS:
            raise StorageFull("storage_full") from error
        raise StageFailed("storage_failed", why=error.strerror or type(error).__name__) from error
