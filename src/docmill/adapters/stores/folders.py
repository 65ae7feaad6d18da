"""Folders that outlive a power cut."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


def make_folder(path: Path) -> None:
    """Make it, and what is missing around it, so that a power cut does not take it away again with all that is in it.

    One that is there is synced all the same: whoever made it may have died before it came to that.
    """
    if not path.parent.is_dir():
        make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync_folder(path.parent)


def make_private(path: Path) -> None:
    """Take every right on it from all but its owner. What is not ours to change stays as it is.

    A folder with the sticky bit, such as /tmp, is shared on purpose.
    """
    with contextlib.suppress(FileNotFoundError, PermissionError):
        mode = path.stat().st_mode
        if mode & 0o077 and not mode & stat.S_ISVTX:
            path.chmod(mode & 0o700)


def sync_folder(path: Path) -> None:
    with contextlib.suppress(PermissionError):  # one that we may enter, but not list, cannot be synced
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
