"""The system calls that confine this process, by ctypes. What the kernel refuses is reported as text, not raised.

Landlock binds only the calling thread: all of this must happen before a second thread starts."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import struct
from collections.abc import Iterable
from pathlib import Path

from .calls import MACHINES, parser_program
from .paths import NETWORK_RIGHTS, NETWORK_SINCE_ABI, OF_FILES, SCOPES, SCOPES_SINCE_ABI, handled_rights

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 1, 4, 24, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
CAPABILITY_VERSION_3 = 0x20080522
LAST_CAPABILITY = 63
CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_KILL, CAP_SETGID, CAP_SETUID = 0, 1, 5, 6, 7
TO_CHANGE_USER = (CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_KILL, CAP_SETGID, CAP_SETUID)
"""The parent needs them, too: to end a process of another user, and to remove its files."""
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWNET = 0x20000, 0x08000000, 0x10000000, 0x40000000
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
LANDLOCK_CREATE_RULESET_VERSION = 1
LANDLOCK_RULE_PATH_BENEATH = 1
SECCOMP_SET_MODE_FILTER = 1
SECCOMP_TSYNC, SECCOMP_SPEC_ALLOW = 1, 4
AF_INET, SOCK_STREAM = 2, 1

libc = ctypes.CDLL(None, use_errno=True)


def reason() -> str:
    """Why the last call failed, as the text of a layer that is not there."""
    return f"none: {os.strerror(ctypes.get_errno())}"


def count_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def hide_memory() -> None:
    """Other processes of the same user can no longer read this one's memory and environment, nor trace it."""
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def forbid_privileges() -> None:
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def die_with(parent: int, number: int) -> None:
    """The kernel sends the signal when the parent ends, even if that was killed."""
    libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def capabilities() -> int:
    """The effective ones, as a set of bits."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1], 16) if found else 0


def can_change_user() -> bool:
    try:
        held = capabilities()
    except OSError:
        return False
    return os.geteuid() == 0 and all(held >> one & 1 for one in TO_CHANGE_USER)


def drop_capabilities() -> None:
    machine = MACHINES.get(platform.machine())
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for one in range(LAST_CAPABILITY + 1):
        libc.prctl(PR_CAPBSET_DROP, one, 0, 0, 0)
    if machine is not None:
        header = struct.pack("<Ii", CAPABILITY_VERSION_3, 0)
        libc.syscall(machine.capset, header, struct.pack("<6I", *[0] * 6))


def change_user(uid: int, needed: Iterable[str], owned: Iterable[str]) -> str:
    """Become a user who owns nothing but *owned*, unless that user could not read what is *needed*."""
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(uid)
    os.seteuid(uid)
    try:
        for path in needed:
            os.close(os.open(path, os.O_RDONLY))
    except OSError:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)
        return "none: another user could not read the libraries"
    os.seteuid(0)
    for path in owned:
        os.chown(path, uid, uid)
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    return "own"


def unshare(*, mounts: bool) -> str:
    """Leave the machine's network and shared memory. Without privilege that takes a user namespace, too."""
    uid, gid = os.getuid(), os.getgid()
    flags = CLONE_NEWNET | CLONE_NEWIPC | (CLONE_NEWNS if mounts else 0)
    if libc.unshare(flags) == 0:
        return "network, ipc"
    if libc.unshare(flags | CLONE_NEWUSER) == 0:
        try:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
        except OSError as error:
            return f"user, network, ipc (not mapped: {error.strerror})"
        return "user, network, ipc"
    return reason()


def landlock_abi() -> int:
    """0 or less: the kernel, its boot options or the container know none."""
    return int(libc.syscall(LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_CREATE_RULESET_VERSION))


def restrict_files(rules: Iterable[tuple[str, int]]) -> str:
    """Landlock: from now on only these paths, each with its rights. What does not exist cannot be used."""
    abi, ruleset, handled = landlock_abi(), -1, 0
    refused = reason()
    while abi >= 1 and ruleset < 0:
        # Kernels with backports (RHEL 9) report an ABI whose rights they do not know (EINVAL): step down.
        handled = handled_rights(abi)
        network = NETWORK_RIGHTS if abi >= NETWORK_SINCE_ABI else 0
        attributes = struct.pack("<QQQ", handled, network, SCOPES if abi >= SCOPES_SINCE_ABI else 0)
        ruleset = libc.syscall(LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)
        refused = reason()
        abi -= ruleset < 0
    if ruleset < 0:
        return refused
    try:
        for path, granted in rules:
            _add_rule(ruleset, path, granted & handled)
        if libc.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0) != 0:
            return reason()
    finally:
        os.close(ruleset)
    return f"abi {abi}"


def _add_rule(ruleset: int, path: str, granted: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        granted = granted if Path(path).is_dir() else granted & OF_FILES
        if libc.syscall(LANDLOCK_ADD_RULE, ruleset, LANDLOCK_RULE_PATH_BENEATH, struct.pack("<Qi", granted, fd), 0):
            raise OSError(ctypes.get_errno(), "landlock_add_rule", path)
    finally:
        os.close(fd)


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_char_p))


def install_filter(program: bytes) -> bool:
    """Needs `forbid_privileges` first. There is no way back."""
    machine = MACHINES[platform.machine()]
    argument = _Filter(len(program) // 8, program)
    for flags in (SECCOMP_TSYNC | SECCOMP_SPEC_ALLOW, SECCOMP_TSYNC, 0):
        if libc.syscall(machine.seccomp, SECCOMP_SET_MODE_FILTER, flags, ctypes.byref(argument)) == 0:
            return True
    return False


def restrict_calls() -> str:
    machine = MACHINES.get(platform.machine())
    if machine is None:
        return f"none: no list of calls for {platform.machine()}"
    return "seccomp" if install_filter(parser_program(machine, os.getpid())) else reason()
