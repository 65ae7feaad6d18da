"""Run a command as it would run elsewhere: `python deployments.py user,no_userns command...`.

root          as root: the real one, or that of a user namespace
readable      the interpreter is readable for every user, wherever it is installed
user          as an ordinary user
container     as root without the capabilities that containers take away
no_userns     namespaces are forbidden, as Docker's default profile does it
no_landlock   the kernel knows no Landlock
no_seccomp    the kernel takes no filter
"""

from __future__ import annotations

import errno
import os
import platform
import sys
from pathlib import Path

from docmill.adapters.engines.sandbox import calls, jail, kernel

USER = 12345
CONTAINER_LACKS = (2, 12, 16, 17, 19, 20, 21, 22, 24, 25)
"""DAC_READ_SEARCH, NET_ADMIN, and most of SYS_*: SYS_ADMIN and SYS_PTRACE above all."""
COLUMN = 0 if platform.machine() == "x86_64" else 1
FORBIDDEN = {
    "no_userns": {(272, 97)[COLUMN]: errno.EPERM, (308, 268)[COLUMN]: errno.EPERM, 435: errno.ENOSYS},
    "no_landlock": dict.fromkeys((444, 445, 446), errno.ENOSYS),
    "no_seccomp": {(317, 277)[COLUMN]: errno.EINVAL},
}


def become_root() -> None:
    if os.geteuid() == 0:
        return
    uid, gid = os.getuid(), os.getgid()
    if kernel.libc.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS):
        raise OSError(kernel.reason())
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")


def make_readable() -> None:
    """Folders that others may not pass are replaced, in a mount namespace of our own, by ones that show only Python."""
    needed = {Path(one).resolve() for one in (sys.prefix, sys.base_prefix, __file__, calls.__file__)}
    closed = {
        parent for one in needed for parent in one.parents if parent != Path("/") and not parent.stat().st_mode & 1
    }
    outermost = [one for one in closed if not closed & set(one.parents)]
    if not outermost:
        return
    if kernel.libc.unshare(kernel.CLONE_NEWNS):
        raise OSError(kernel.reason())
    jail._mount(None, "/", None, jail.MS_REC | jail.MS_PRIVATE)
    for folder in outermost:
        shown = {one: os.open(one, os.O_PATH) for one in needed if one.is_relative_to(folder)}
        jail._mount("tmpfs", str(folder), "tmpfs", 0)
        folder.chmod(0o755)
        for one, fd in shown.items():
            one.mkdir(parents=True, exist_ok=True)
            jail._mount(f"/proc/self/fd/{fd}", str(one), None, jail.MS_BIND | jail.MS_REC)
            os.close(fd)


def become_user() -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)


def main() -> None:
    kinds, command = sys.argv[1].split(","), sys.argv[2:]
    os.umask(0o022)
    if "root" in kinds:
        become_root()
    if "readable" in kinds and os.geteuid() == 0:
        make_readable()
    if "container" in kinds:
        for one in CONTAINER_LACKS:
            kernel.libc.prctl(kernel.PR_CAPBSET_DROP, one, 0, 0, 0)
    if "user" in kinds:
        become_user()
    denied = {number: error for kind in kinds for number, error in FORBIDDEN.get(kind, {}).items()}
    if denied:
        kernel.forbid_privileges()
        if not kernel.install_filter(calls.denying_program(calls.MACHINES[platform.machine()], denied)):
            raise OSError(kernel.reason())
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
