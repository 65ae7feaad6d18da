"""Make this process harmless before it sees a stranger's document. Linux; must run before any thread starts."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
MB = 1024 * 1024
OPEN_FILES = 256
PROCESSES = 128
LEAST_FILE_MB = 96
"""A library unpacks its model into a file, whatever documents may write; how much that is in all, the parent counts."""

_libc = ctypes.CDLL(None, use_errno=True)


def confine(parent: int, memory_mb: int, output_mb: int) -> dict[str, str]:
    """Give up everything that parsing does not need. Says what could be had."""
    die_with(parent)
    network = leave_network()
    _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    limit(resource.RLIMIT_AS, memory_mb * MB)
    limit(resource.RLIMIT_FSIZE, max(output_mb, LEAST_FILE_MB) * MB)
    limit(resource.RLIMIT_NOFILE, OPEN_FILES)
    limit(resource.RLIMIT_CORE, 0)
    if network == "own user and network namespace":
        # Elsewhere the limit counts every process of the user, also those that are none of our business.
        limit(resource.RLIMIT_NPROC, PROCESSES)
    return {"network": network}


def die_with(parent: int) -> None:
    """When the service dies, even by SIGKILL, so do we."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def leave_network() -> str:
    if _libc.unshare(CLONE_NEWNET) == 0:
        return "own network namespace"
    uid, gid = os.getuid(), os.getgid()
    if _libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0:
        with contextlib.suppress(OSError):
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
        return "own user and network namespace"
    return "not confined"


def limit(what: int, value: int) -> None:
    _, hard = resource.getrlimit(what)
    ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (ceiling, ceiling))


def allow_cpu(seconds: float) -> None:
    """The limit counts the process's whole life, so each document sets it anew."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(usage.ru_utime + usage.ru_stime + seconds) + 2, hard))


def give_back() -> None:
    """What was freed goes back to the system, where the C library can do that: otherwise it keeps most of it."""
    with contextlib.suppress(AttributeError):
        _libc.malloc_trim(0)


def resident_mb() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // MB


def bare_environment(home: Path) -> dict[str, str]:
    """What a child gets to know: no secrets, no proxies, one thread per library."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "HOME": str(home),
        "TMPDIR": str(home),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "RAYON_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "2",
        "LOGURU_LEVEL": "ERROR",
    }
