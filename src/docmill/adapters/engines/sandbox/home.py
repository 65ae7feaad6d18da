"""The folder of one confined process, as its parent sees it.

`in` holds the document and can only be read, `out` takes the results of one document, `temp` what libraries unpack.
They are siblings, and nothing is granted on the folder around them. The process may have been taken over: no link that
it made is followed, and what it wrote is copied, never moved, because it may still hold the file open.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import randbelow

from .kernel import can_change_user

PREFIX = "docmill-child-"
INPUT_NAME = "input.pdf"
"""Whatever the document is: readers go by the bytes."""
FIRST_UID, NUMBER_OF_UIDS = 61184, 4336
"""The range that systemd gives to services without a user of their own."""
CHUNK_BYTES = 1 << 20
MAX_ENTRIES = 100_000
REMOVE_S = 60.0
ENTRY_BYTES = 4096
"""What an empty file or folder costs at least."""
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_RESULT = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_uids = itertools.count(randbelow(NUMBER_OF_UIDS))


class UnsafeResult(Exception):
    """The process left something in `out` that is not what it said."""


@dataclass(frozen=True, slots=True)
class Home:
    path: Path
    uid: int | None
    """The user that the process should become; None: it stays who we are."""
    hidden: Path
    """A folder of ours of which it must see nothing else."""

    @classmethod
    def make(cls, scratch: Path | None = None) -> Home:
        """In *scratch*, if its own user can get there; by default where temporary files lie."""
        uid = FIRST_UID + next(_uids) % NUMBER_OF_UIDS if can_change_user() else None
        base = Path(tempfile.gettempdir()) if scratch is None else scratch
        if uid is not None and not is_passable(base):
            base = Path(tempfile.gettempdir())
        path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=base)).resolve()
        for name in ("in", "out", "temp", "root"):
            (path / name).mkdir(mode=0o700)
        if uid is not None and not open_to(path, uid):
            uid = None
        (path / "probe").touch()
        (path / "probe").chmod(0o644)  # only the sandbox may keep the process from reading it
        return cls(path, uid, (scratch or path).resolve())

    @property
    def input(self) -> Path:
        return self.path / "in" / INPUT_NAME

    @property
    def out(self) -> Path:
        return self.path / "out"

    @property
    def temp(self) -> Path:
        return self.path / "temp"

    @property
    def started(self) -> Path:
        """Is there as long as the process reads its input: whoever looks for the parser of a document that makes
        trouble finds it by this and the input."""
        return self.path / "started"

    def setup(self) -> dict[str, object]:
        """What `confine` needs to know of it."""
        return {"home": str(self.path), "hidden": str(self.hidden), "uid": self.uid}

    def place(self, source: Path, *, may_link: bool) -> None:
        """Make *source* the input and empty `out`. A link costs nothing, but changes the file's ctime and count of
        links: only for files of our own."""
        self.forget()
        if may_link and self._can_link(source):
            try:
                os.link(source, self.input)
            except OSError:  # another file system, or one without links
                self._copy(source)
        else:
            self._copy(source)

    def _can_link(self, source: Path) -> bool:
        return self.uid is None or bool(source.stat().st_mode & stat.S_IROTH)

    def _copy(self, source: Path) -> None:
        shutil.copyfile(source, self.input)
        if self.uid is not None:
            os.chown(self.input, -1, self.uid)
        self.input.chmod(0o440)

    def forget(self) -> None:
        """Remove the input and the results."""
        self.started.unlink(missing_ok=True)
        self.input.unlink(missing_ok=True)
        self.clear()

    def clear(self) -> None:
        """Empty `out`. Raises OSError if the process made something that cannot be removed."""
        with os.scandir(self.out) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    remove_tree(Path(entry.path))
                else:
                    Path(entry.path).unlink()

    def collect(self, folder: str, wanted: dict[str, str], target: Path, max_bytes: int) -> int:
        """Copy files out of a folder of `out`; *wanted* gives the SHA-256 of each name, or "" if nobody said it."""
        if not wanted:
            return 0
        target.mkdir(parents=True, exist_ok=True)
        copied = 0
        with opened(str(self.out / folder) if folder else str(self.out), OPEN_FOLDER) as parent:
            for name, sha256 in wanted.items():
                copied += copy_result(parent, name, target / name, sha256, max_bytes - copied)
        return copied

    def used_bytes(self, pid: int) -> int:
        """What the process takes of the disk, also in files that it removed and still holds."""
        return sum(measure(self.path / name) for name in ("out", "temp")) + measure_removed(pid)

    def remove(self) -> None:
        """After the process has ended."""
        with suppress(RecursionError):
            shutil.rmtree(self.path, onerror=_open_up)  # a folder may have been made without rights
        remove_tree(self.path, ignore_errors=True)


def open_to(path: Path, uid: int) -> bool:
    """Let the user pass, and its group read the input. A user namespace may know no such user."""
    try:
        os.chown(path / "in", -1, uid)
    except OSError:
        return False
    path.chmod(0o711)
    (path / "in").chmod(0o750)
    return True


def remove_tree(path: Path, *, ignore_errors: bool = False) -> None:
    """Remove a folder that a parser may have filled: `shutil` cannot go down thousands of levels, `rm` can."""
    try:
        shutil.rmtree(path, ignore_errors=ignore_errors)
    except (RecursionError, OSError) as error:
        is_too_deep = isinstance(error, RecursionError) or error.errno == errno.ENAMETOOLONG
        if not is_too_deep:
            raise
    if path.exists():
        subprocess.run(["rm", "-rf", "--", str(path)], check=False, timeout=REMOVE_S, capture_output=True)  # noqa: S603, S607 - its own path


def _open_up(_function: object, path: str, _error: object) -> None:
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            Path(path).chmod(0o700)
    except OSError:
        return


def is_passable(folder: Path) -> bool:
    """Whether another user can reach what lies in it."""
    real = folder.resolve()
    return all(one.stat().st_mode & stat.S_IXOTH for one in (real, *real.parents))


class opened:  # noqa: N801 - a context manager, used like a function
    def __init__(self, path: str, flags: int, dir_fd: int | None = None) -> None:
        try:
            self._fd = os.open(path, flags, dir_fd=dir_fd)
        except OSError as error:
            raise UnsafeResult(f"{Path(path).name}: {error.strerror}") from error

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def copy_result(parent: int, name: str, target: Path, sha256: str, max_bytes: int) -> int:
    digest, size = hashlib.sha256(), 0
    with opened(name, OPEN_RESULT, parent) as fd:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise UnsafeResult(f"{name} is no file")
        with target.open("wb") as file:
            while chunk := os.read(fd, CHUNK_BYTES):
                size += len(chunk)
                if size > max_bytes:
                    raise UnsafeResult(f"{name} is too large")
                digest.update(chunk)
                file.write(chunk)
    if sha256 and digest.hexdigest() != sha256:
        raise UnsafeResult(f"{name} has another content")
    return size


def measure(folder: Path) -> int:
    """Bytes on disk. Counting ends early where there are too many entries: that is too much in any case."""
    total = 0
    for count, entry in enumerate(walk(str(folder))):
        if count > MAX_ENTRIES:
            return 1 << 62
        try:
            total += max(ENTRY_BYTES, entry.stat(follow_symlinks=False).st_blocks * 512)
        except OSError:
            continue
    return total


def walk(folder: str) -> Iterator[os.DirEntry[str]]:
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    yield entry
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            continue


def measure_removed(pid: int) -> int:
    try:
        held = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0
    total = 0
    for one in held:
        try:
            found = one.stat()
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode) and not found.st_nlink:
            total += found.st_blocks * 512
    return total
