"""Terminal reports on disk, from before the first try until they are delivered.

A report is two files: `<name>.body`, the bytes to send, and `<name>.json`, where to send them. The second appears whole
and last, and goes first: without it there is no report. Both are for the owner's eyes only, for the token is in there.
Whoever delivers a report holds a lock on its body; a killed process loses it, and `resume` takes over.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import BinaryIO, cast
from uuid import uuid4

from .signing import Signing
from .wire import Dialect, pieces

WHERE = ".json"
BODY = ".body"
REFUSED = ".refused"
SWEEP_AFTER_S = 600.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where a report goes, and how."""

    url: str
    token: str = field(repr=False)
    job_id: str
    dialect: Dialect = "secretary"
    worker: str = "secretary"
    signing: Signing = "legacy"
    is_signed: bool = False
    message_id: str = field(default_factory=lambda: f"msg_{uuid4().hex}")
    created: float = field(default_factory=time.time)


class Held:
    """A report that we deliver, and nobody else meanwhile."""

    def __init__(self, address: Address, where: Path, body: Path, lock: BinaryIO, *, durable: bool) -> None:
        self.address = address
        self.body = body
        self.size = body.stat().st_size
        self._where = where
        self._lock = lock
        self._durable = durable

    def pieces(self) -> Iterator[bytes]:
        return pieces(self.body)

    def delivered(self) -> None:
        self._where.unlink(missing_ok=True)
        self.body.unlink(missing_ok=True)
        if self._durable:
            sync_folder(self._where.parent)

    def refused(self) -> None:
        """Keep it for a person to look at; `resume(refused=True)` tries it again."""
        with suppress(FileNotFoundError):
            self._where.rename(self._where.with_suffix(REFUSED))

    def release(self) -> None:
        self._lock.close()


class Spool:
    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self.folder = folder
        self._durable = durable
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @classmethod
    def temporary(cls) -> Spool:
        """For those who asked for no spool: a body still needs a file, but it is not kept."""
        return cls(Path(tempfile.mkdtemp(prefix="docmill-report-")), durable=False)

    def discard(self) -> None:
        if not self._durable:
            shutil.rmtree(self.folder, ignore_errors=True)

    def add(self, address: Address, write: Callable[[BinaryIO], None]) -> Held:
        """Write a report. When this returns, a crash no longer loses it."""
        name = f"{time.time_ns():020d}-{uuid4().hex[:8]}"
        body, where = self.folder / f"{name}{BODY}", self.folder / f"{name}{WHERE}"
        out = cast(BinaryIO, os.fdopen(os.open(body, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "r+b"))
        try:
            fcntl.flock(out, fcntl.LOCK_EX)
            write(out)
            out.flush()
            if self._durable:
                os.fsync(out.fileno())
            write_private(where, json.dumps(asdict(address)).encode(), durable=self._durable)
        except BaseException:
            out.close()
            body.unlink(missing_ok=True)
            raise
        return Held(address, where, body, out, durable=self._durable)

    def waiting(self) -> list[Path]:
        return sorted(self.folder.glob(f"*{WHERE}"))

    def urls(self) -> set[str]:
        """The addresses of all waiting reports."""
        return {address.url for path in self.waiting() if (address := _read(path))}

    def take(self, where: Path) -> Held | None:
        """Take over a report. None: somebody delivers it right now, or has done so."""
        body = where.with_suffix(BODY)
        try:
            lock = body.open("r+b")
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            address = _read(where)
        except BlockingIOError:
            address = None
        if address is None:
            lock.close()
            return None
        return Held(address, where, body, lock, durable=self._durable)

    def take_all(self, *, refused: bool = False) -> list[Held]:
        if refused:
            for path in self.folder.glob(f"*{REFUSED}"):
                path.rename(path.with_suffix(WHERE))
        self._sweep()
        return [held for path in self.waiting() if (held := self.take(path))]

    def forget_refused(self, older_than_s: float) -> None:
        for path in self.folder.glob(f"*{REFUSED}"):
            if time.time() - path.stat().st_mtime > older_than_s:
                path.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Bodies without an address, and halves of addresses: their writer was killed before the report was whole."""
        for body in filter(_is_old, self.folder.glob(f"*{BODY}")):
            with suppress(OSError), body.open("r+b") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not body.with_suffix(WHERE).exists() and not body.with_suffix(REFUSED).exists():
                    body.unlink()
        for part in filter(_is_old, self.folder.glob("*.part")):
            part.unlink(missing_ok=True)


def _is_old(path: Path) -> bool:
    """A young file may belong to a writer that is about to lock or rename it."""
    with suppress(OSError):
        return time.time() - path.stat().st_mtime > SWEEP_AFTER_S
    return False


def _read(where: Path) -> Address | None:
    try:
        return Address(**json.loads(where.read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def write_private(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a file that only we may read; it appears whole or not at all."""
    part = path.with_name(f"{path.name}.{uuid4().hex[:8]}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(data)
        out.flush()
        if durable:
            os.fsync(out.fileno())
    part.rename(path)
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
