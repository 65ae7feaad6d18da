"""Folders on this machine that one process must not take from another."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from docmill.adapters.engines.sandbox.home import remove_tree
from docmill.adapters.stores.folders import make_folder, make_private
from docmill.core.errors import Conflict

LOCK = ".lock"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the data folder's lock: two services on one folder would take each other's work for orphaned."""
    make_folder(folder)
    make_private(folder)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Conflict("data_locked", folder=folder) from error
        yield


@contextmanager
def own_scratch(folder: Path) -> Iterator[Path]:
    """A folder of this process alone below *folder*. Those whose process is gone are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    for other in folder.iterdir():
        with suppress(OSError), (other / LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(other, ignore_errors=True)
    mine = (folder / f"{os.getpid()}-{token_hex(4)}").resolve()
    mine.mkdir()
    with (mine / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield mine
        finally:
            remove_tree(mine, ignore_errors=True)


def clear_scratch(folder: Path) -> None:
    """What a killed process left there belongs to nobody."""
    remove_tree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
