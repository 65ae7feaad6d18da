"""Where Landlock is missing: a mount namespace of its own that shows the same files and nothing else."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterable
from pathlib import Path

from .calls import MACHINES
from .kernel import libc

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_NOATIME, MS_NODIRATIME = 1, 2, 4, 8, 32, 1024, 2048
MS_BIND, MS_REC, MS_PRIVATE, MS_RELATIME = 4096, 16384, 1 << 18, 1 << 21
KEPT_FLAGS = MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME
ST_RELATIME = 4096
MNT_DETACH = 2


def enter(root: str, readable: Iterable[str], writable: Iterable[str], devices: Iterable[str]) -> str:
    """Make *root*, an empty folder, the root of all files. Needs a mount namespace of its own."""
    os.umask(0o022)  # another user may have to pass
    try:
        _mount(None, "/", None, MS_REC | MS_PRIVATE)
        _mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV)
        bound: list[Path] = []
        for path in sorted(map(Path, readable)):
            if not any(path.is_relative_to(one) for one in bound) and _show(root, path, writable=False):
                bound.append(path)
        for path in map(Path, (*writable, *devices)):
            _show(root, path, writable=True)
        _pivot(root)
    except OSError as error:
        return f"none: {error.strerror}"
    return "own"


def _show(root: str, path: Path, *, writable: bool) -> bool:
    """Whether other paths may lie below it."""
    target = Path(root + str(path))
    if not path.exists() or target.exists():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        target.symlink_to(path.readlink())
        return False
    target.mkdir() if path.is_dir() else target.touch()
    _mount(str(path), str(target), None, MS_BIND | MS_REC)
    if not writable:
        _make_read_only(str(target))
    return path.is_dir()


def _make_read_only(target: str) -> None:
    """Flags of the original mount are locked in a user namespace: they must be named again."""
    now = os.statvfs(target).f_flag
    kept = now & KEPT_FLAGS | (MS_RELATIME if now & ST_RELATIME else 0)
    _mount(None, target, None, MS_BIND | MS_REMOUNT | MS_RDONLY | kept)


def _pivot(root: str) -> None:
    os.chdir(root)
    if libc.syscall(MACHINES[platform.machine()].pivot_root, b".", b".") != 0 or libc.umount2(b".", MNT_DETACH) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.chdir("/")
    _make_read_only("/")


def _mount(source: str | None, target: str, kind: str | None, flags: int) -> None:
    given = (None if one is None else one.encode() for one in (source, target, kind))
    if libc.mount(*given, ctypes.c_ulong(flags), None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)
