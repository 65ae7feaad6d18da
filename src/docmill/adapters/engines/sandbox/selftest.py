"""What a confined process tries before it reads anything: a layer that is in force on paper only must not count."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from .kernel import AF_INET, SOCK_STREAM, libc


def find_escapes(parent: int, probe: str, hidden: str) -> list[str]:
    """The names of what should be refused and was not. *probe* is a readable file beside the process's folders,
    *hidden* a folder of the service, or empty."""
    attempts: dict[str, Callable[[], object]] = {
        "read_files": lambda: read_any(probe, hidden),
        "write_files": lambda: close(os.open(f"{probe}.new", os.O_WRONLY | os.O_CREAT | os.O_EXCL)),
        "network": open_socket,
        "processes": fork,
        "service_memory": lambda: close(os.open(f"/proc/{parent}/environ", os.O_RDONLY)),
        "signals": lambda: os.kill(parent, 0),
    }
    return [name for name, attempt in attempts.items() if succeeds(attempt)]


def succeeds(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return False
    return True


def read_any(probe: str, hidden: str) -> None:
    """Raises OSError if none of them can be read."""
    try:
        close(os.open(probe, os.O_RDONLY))
    except OSError:
        if not hidden:
            raise
        next(Path(hidden).iterdir(), None)


def open_socket() -> None:
    fd = libc.socket(AF_INET, SOCK_STREAM, 0)
    if fd < 0:
        raise OSError
    close(fd)


def fork() -> None:
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)


def close(fd: int) -> None:
    os.close(fd)
