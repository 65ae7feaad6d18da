"""Which files a parser may see, and Landlock's names for what may be done with them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

NAMES = """
execute write_file read_file read_dir remove_dir remove_file make_char make_dir make_reg make_sock make_fifo make_block
make_sym refer truncate ioctl_dev resolve_unix
"""
RIGHTS = {name: 1 << bit for bit, name in enumerate(NAMES.split())}
SINCE_ABI = {"refer": 2, "truncate": 3, "ioctl_dev": 5, "resolve_unix": 9}
NETWORK_SINCE_ABI, SCOPES_SINCE_ABI = 4, 6
NETWORK_RIGHTS = 3
"""TCP bind and connect: handled, and never granted."""
SCOPES = 3
"""Abstract Unix sockets and signals stay inside."""


def rights(names: str) -> int:
    return sum(RIGHTS[name] for name in names.split())


READ = rights("read_file read_dir")
WRITE = READ | rights("write_file remove_dir remove_file make_dir make_reg refer truncate")
"""Without make_sym, make_fifo, make_sock and devices: whoever collects results meets files and folders only."""
USE_DEVICE = rights("read_file write_file")
OF_FILES = rights("execute write_file read_file truncate ioctl_dev")
"""A rule on a file may name these only."""

SYSTEM = (
    "/usr/lib",
    "/usr/lib64",
    "/lib",
    "/lib64",
    "/usr/local/lib",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/usr/share/fonts",
    "/usr/local/share/fonts",
    "/usr/share/fontconfig",
    "/etc/fonts",
    "/usr/share/zoneinfo",
    "/etc/localtime",
    "/usr/share/mime",
    "/etc/mime.types",
    "/etc/os-release",
    "/dev/urandom",
    "/dev/random",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/kernel/mm/transparent_hugepage",
)
DEVICES = ("/dev/null",)
TOO_WIDE = frozenset({"/", "/usr", "/etc", "/home", "/root", "/var", "/opt", "/srv"})


def handled_rights(abi: int) -> int:
    """All rights that Landlock of this ABI knows: what is handled and not granted is refused."""
    return sum(bit for name, bit in RIGHTS.items() if SINCE_ABI.get(name, 1) <= abi)


def library_roots(search_path: Iterable[str], hidden: Iterable[str]) -> list[str]:
    """Folders of Python code, from real paths. One that contains something hidden is left out: an editable project may
    have its data folder inside."""
    concealed = [PurePath(path) for path in hidden]
    found = dict.fromkeys(path for path in search_path if path and path not in TOO_WIDE)
    return [path for path in found if not any(one.is_relative_to(path) for one in concealed)]
