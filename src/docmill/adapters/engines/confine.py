"""Confine this process before it sees an untrusted document. Linux; must run before any thread starts."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from pathlib import Path

from .sandbox import jail, kernel, paths, selftest
from .sandbox.levels import Isolation, has, judge

MB = 1024 * 1024
OPEN_FILES = 256
PROCESSES = 128
LEAST_FILE_MB = 96
"""A library unpacks its model into a file, whatever documents may write; how much that is in all, the parent counts."""

_libc = ctypes.CDLL(None, use_errno=True)
_memory_facts = -1


def confine(
    parent: int, memory_mb: int, output_mb: int, home: str, hidden: str = "", uid: int | None = None
) -> Isolation:
    """Give up everything that parsing does not need, and try whether it is gone.

    *home* has the folders in, out and temp (see `sandbox.home`), *hidden* is a folder of the service, *uid* a user to
    become. The order matters: namespaces need files and capabilities, Landlock needs files, and the filter refuses
    everything that came before.
    """
    global _memory_facts
    if kernel.count_threads() > 1:
        raise RuntimeError("confine() binds only one thread, and there are more")
    kernel.die_with(parent, signal.SIGKILL)
    _memory_facts = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    readable = readable_paths([home, hidden])
    layers = leave_namespaces(home, readable)
    os.umask(0o077)
    if uid is not None:
        layers["user"] = change_user(uid, home, readable)
    kernel.drop_capabilities()
    kernel.forbid_privileges()
    kernel.die_with(parent, signal.SIGKILL)  # again: a change of user clears it
    set_limits(memory_mb, output_mb, is_alone="user" in layers["namespaces"] or layers.get("user") == "own")
    if "mounts" not in layers:
        layers["landlock"] = kernel.restrict_files(file_rules(home, readable))
    layers["filter"] = kernel.restrict_calls()
    # A jail shows the names of the folders on the way to those that are in it.
    listed = "" if has(layers, "mounts") else hidden
    return judge(layers, selftest.find_escapes(parent, f"{home}/probe", listed))


def leave_namespaces(home: str, readable: list[str]) -> dict[str, str]:
    """Network and shared memory; where there is no Landlock the files, too."""
    if kernel.landlock_abi() >= 1:
        return {"namespaces": kernel.unshare(mounts=False)}
    layers = {"landlock": kernel.reason(), "namespaces": kernel.unshare(mounts=True)}
    if not has(layers, "namespaces"):
        return layers | {"mounts": layers["namespaces"], "namespaces": kernel.unshare(mounts=False)}
    writable = [f"{home}/out", f"{home}/temp"]
    layers["mounts"] = jail.enter(f"{home}/root", [*readable, f"{home}/in"], writable, paths.DEVICES)
    with contextlib.suppress(OSError):
        os.chdir(f"{home}/temp")
    return layers


def change_user(uid: int, home: str, readable: list[str]) -> str:
    needed = [*(path for path in readable if path not in paths.SYSTEM), f"{home}/in"]
    try:
        return kernel.change_user(uid, needed, [f"{home}/out", f"{home}/temp"])
    except OSError as error:
        return f"none: {error.strerror}"


def file_rules(home: str, readable: list[str]) -> list[tuple[str, int]]:
    """Rights add up along a path: there is no rule on *home*, or `in` could be written as `out` is."""
    return [
        *((path, paths.READ) for path in (*readable, f"{home}/in")),
        *((path, paths.WRITE) for path in (f"{home}/out", f"{home}/temp")),
        *((path, paths.USE_DEVICE) for path in paths.DEVICES),
    ]


def readable_paths(hidden: list[str]) -> list[str]:
    """Python's code, and what its libraries read of the system."""
    real = (os.path.realpath(path) for path in sys.path if path and Path(path).exists())
    return [*paths.library_roots(real, [os.path.realpath(one) for one in hidden if one]), *paths.SYSTEM]


def set_limits(memory_mb: int, output_mb: int, *, is_alone: bool) -> None:
    limit(resource.RLIMIT_AS, memory_mb * MB)
    limit(resource.RLIMIT_FSIZE, max(output_mb, LEAST_FILE_MB) * MB)
    limit(resource.RLIMIT_NOFILE, OPEN_FILES)
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_MEMLOCK, 0)
    if is_alone:
        # Elsewhere the limit counts every process of the user, also those that are none of our business.
        limit(resource.RLIMIT_NPROC, PROCESSES)


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
    """From a file that was opened before /proc became unreachable."""
    text = Path("/proc/self/statm").read_bytes() if _memory_facts < 0 else os.pread(_memory_facts, 64, 0)
    return int(text.split()[1]) * resource.getpagesize() // MB


def bare_environment(scratch: Path) -> dict[str, str]:
    """What a child gets to know: no secrets, no proxies, one thread per library."""
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "RAYON_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "2",
        "LOGURU_LEVEL": "ERROR",
        # onnxruntime would look up a telemetry host and keep a device id in HOME.
        "ORT_DISABLE_TELEMETRY": "1",
    }
