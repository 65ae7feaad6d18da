"""A parser that was taken over: it tries every way out that we know of, and reports which ones were open.

An attempt succeeds by returning; it is refused by OSError. The order is JSON: where the service and its things are."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import platform
import resource
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docmill.adapters.engines.local import child, reading
from docmill.adapters.engines.local.job import Job

COLUMN = 0 if platform.machine() == "x86_64" else 1
NUMBERS = {
    "fork": (57, None),
    "vfork": (58, None),
    "clone": (56, 220),
    "unshare": (272, 97),
    "setns": (308, 268),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "execve": (59, 221),
    "execveat": (322, 281),
    "memfd_create": (319, 279),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "prctl": (157, 167),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "setuid": (105, 146),
    "setgroups": (116, 159),
    "capset": (126, 91),
    "personality": (135, 92),
    "seccomp": (317, 277),
    "ioctl": (16, 29),
    "sendmmsg": (307, 269),
    "acct": (163, 89),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "init_module": (175, 105),
    "kexec_load": (246, 104),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "settimeofday": (170, 170),
    "sethostname": (170, 161),
    "io_setup": (206, 0),
    "vmsplice": (278, 75),
    "mlockall": (151, 230),
    "move_pages": (279, 239),
    "lookup_dcookie": (212, 18),
    "mknodat": (259, 33),
    "fchmodat": (268, 53),
    "fchownat": (260, 54),
    "utimensat": (280, 88),
    "linkat": (265, 37),
    "symlinkat": (266, 36),
    "truncate": (76, 45),
    "setxattr": (188, 5),
}
AT_CWD = -100
COMMON = {
    "pidfd_send_signal": 424,
    "io_uring_setup": 425,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "pidfd_open": 434,
    "clone3": 435,
    "openat2": 437,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "memfd_secret": 447,
    "process_mrelease": 448,
    "fchmodat2": 452,
    "listmount": 458,
}

libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: Any) -> int:
    """A raw system call; one that this machine does not have is refused."""
    number = COMMON.get(name) or NUMBERS[name][COLUMN]
    if number is None:
        raise OSError("no such call")
    ctypes.set_errno(0)
    found = libc.syscall(number, *arguments)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(found)


def room(size: int = 256, begin: bytes = b"") -> Any:
    return ctypes.create_string_buffer(begin + bytes(size - len(begin)), size)


def parts(job: Job, order: dict[str, Any]) -> dict[str, dict[str, Callable[[], object]]]:
    data, out, parent = Path(order["data"]), job.folder, os.getppid()
    database = data / "docmill.db"
    raw = str(database).encode()
    return {
        "descriptors": {"left open": find_descriptors},
        "files": read_files(job, data, database, raw, parent),
        "metadata": change_files(database, raw, job),
        "results": special_results(out, database, raw),
        "network": reach_network(order),
        "processes": start_processes(),
        "service": touch_service(parent),
        "kernel": reach_kernel(),
    }


def read_files(job: Job, data: Path, database: Path, raw: bytes, parent: int) -> dict[str, Callable[[], object]]:
    return {
        "read the database": database.read_bytes,
        "read the secret": (data / "secret").read_bytes,
        "read another tenant's object": (data / "objects" / "other" / "contract.pdf").read_bytes,
        "list the data folder": lambda: find(data, "docmill.db"),
        "list the folder around": lambda: find(job.folder.parent, "probe"),
        "list the scratch folder": lambda: find(data / "scratch", "source"),
        "read through /proc/self/root": Path(f"/proc/self/root{database}").read_bytes,
        "read through /proc/self/cwd": Path(f"/proc/self/cwd/../../..{database}").read_bytes,
        "read relative to a folder that is open": lambda: os.open("../../docmill.db", os.O_RDONLY, dir_fd=folder(job)),
        "reopen a path-only descriptor": lambda: os.open(f"/proc/self/fd/{os.open(database, os.O_PATH)}", os.O_RDONLY),
        "read from a new thread": lambda: in_thread(database.read_bytes),
        "open by openat2": lambda: call("openat2", AT_CWD, raw, room(24), 24),
        "a handle of the database": lambda: call("name_to_handle_at", AT_CWD, raw, room(128, b"\x40"), room(8), 0),
        "open by handle": lambda: call("open_by_handle_at", AT_CWD, room(128, struct.pack("<Ii", 8, 1)), 0),
        "read the system's users": Path("/etc/passwd").read_bytes,
        "list the root": lambda: find(Path("/"), "var"),
        "list processes": lambda: find(Path("/proc"), "1"),
        "read the command line of init": Path("/proc/1/cmdline").read_bytes,
        "read the environment of init": Path("/proc/1/environ").read_bytes,
        "read own environment in /proc": Path("/proc/self/environ").read_bytes,
        "read own memory in /proc": lambda: os.open("/proc/self/mem", os.O_RDWR),
        "read own maps": Path("/proc/self/maps").read_bytes,
        "read mounts": Path("/proc/self/mountinfo").read_bytes,
        "read the kernel's log": lambda: os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK),
        "open shared memory": lambda: os.open("/dev/shm/docmill", os.O_RDWR | os.O_CREAT),
        "open the terminal": lambda: os.open("/dev/tty", os.O_RDWR),
        "write into the data folder": lambda: (data / "planted").write_text("x"),
        "write the database": lambda: os.open(database, os.O_WRONLY),
        "write the input": lambda: os.open(job.source, os.O_WRONLY),
        "empty the input": lambda: os.open(job.source, os.O_RDONLY | os.O_TRUNC),
        "remove the input": job.source.unlink,
        "move the input to the results": lambda: job.source.rename(job.folder / "moved"),
        "move a result over the input": lambda: replace_input(job),
        "add to the input folder": lambda: job.source.with_name("more").touch(),
        "write beside the folders": lambda: (job.folder.parent / "planted").touch(),
        "replace the results folder": lambda: job.folder.rename(job.folder.with_name("gone")),
        "write a library": lambda: os.open(child.__file__, os.O_WRONLY),
        "empty a library": lambda: os.open(child.__file__, os.O_RDONLY | os.O_TRUNC),
        "plant a module": lambda: Path(child.__file__).with_name("planted.py").touch(),
        "map a library for writing": lambda: map_shared(child.__file__),
    }


def change_files(database: Path, raw: bytes, job: Job) -> dict[str, Callable[[], object]]:
    source = str(job.source).encode()
    return {
        "chmod the database": lambda: database.chmod(0o666),
        "chmod the input": lambda: job.source.chmod(0o666),
        "fchmodat the input": lambda: call("fchmodat", AT_CWD, source, 0o666),
        "fchmodat2 the input": lambda: call("fchmodat2", AT_CWD, source, 0o666, 0),
        "fchmod the input": lambda: os.fchmod(os.open(job.source, os.O_RDONLY), 0o666),
        "chown the database": lambda: os.chown(database, os.getuid(), os.getgid()),
        "fchownat the input": lambda: call("fchownat", AT_CWD, source, os.getuid(), os.getgid(), 0),
        "set the times of the database": lambda: os.utime(database, (1, 1)),
        "set the times of the input": lambda: os.utime(job.source, (1, 1)),
        "set an attribute of the database": lambda: os.setxattr(database, "user.x", b"1"),
        "truncate the database": lambda: os.truncate(database, 1),
        "truncate the input": lambda: call("truncate", source, 1),
        "remove the database": database.unlink,
        "rename the database": lambda: database.rename(job.folder / "stolen"),
        "link the database": lambda: os.link(database, job.folder / "stolen"),
        "linkat the database": lambda: call("linkat", AT_CWD, raw, AT_CWD, bytes(job.folder / "stolen2"), 0),
        "link the input into the results": lambda: os.link(job.source, job.folder / "input"),
    }


def special_results(out: Path, database: Path, raw: bytes) -> dict[str, Callable[[], object]]:
    return {
        "a symbolic link": lambda: (out / "link").symlink_to(database),
        "symlinkat": lambda: call("symlinkat", raw, AT_CWD, bytes(out / "link2")),
        "a fifo": lambda: os.mkfifo(out / "fifo"),
        "a device": lambda: call("mknodat", AT_CWD, bytes(out / "device"), 0o20666, 0x103),
        "a socket": lambda: call("mknodat", AT_CWD, bytes(out / "socket"), 0o140666, 0),
        "a file with a set-user-id bit": lambda: set_user_id(out / "program"),
        "a hard link": lambda: hard_link(out),
    }


def reach_network(order: dict[str, Any]) -> dict[str, Callable[[], object]]:
    return {
        "TCP": lambda: socket.create_connection(("127.0.0.1", order["port"]), 2).close(),
        "a TCP socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
        "a UDP socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        "an IPv6 socket": lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM),
        "a raw socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
        "a packet socket": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
        "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
        "vsock": lambda: socket.socket(40, socket.SOCK_STREAM),
        "the kernel's ciphers": lambda: socket.socket(38, socket.SOCK_SEQPACKET),
        "a Unix socket": lambda: connect_unix(order["socket"]),
        "an abstract Unix socket": lambda: connect_unix("\0" + order["abstract"]),
        "a pair of datagrams to a path": lambda: send_from_pair(order["socket"]),
        "a pair of packets": lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET),
        "a stream's sendmsg": lambda: socket.socketpair()[0].sendmsg([b"x"]),
        "connect one of a pair again": lambda: socket.socketpair()[0].connect(order["socket"]),
        "names": lambda: socket.gethostbyname("docmill.invalid.example"),
    }


def start_processes() -> dict[str, Callable[[], object]]:
    return {
        "fork": lambda: leave(os.fork()),
        "vfork": lambda: leave(call("fork")),
        "clone": lambda: leave(call("clone", signal.SIGCHLD, 0, 0, 0, 0)),
        "clone into a user namespace": lambda: leave(call("clone", 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)),
        "clone3": lambda: leave(call("clone3", room(88, bytes(32) + struct.pack("<Q", signal.SIGCHLD)), 88)),
        "a daemon": daemonise,
        "a program": lambda: subprocess.run(["/bin/true"], check=True, timeout=10),
        "execveat": lambda: call("execveat", AT_CWD, b"/bin/true", None, None, 0x2000),
        "a memory file": lambda: call("memfd_create", b"x", 0),
        "a secret memory file": lambda: call("memfd_secret", 0),
        "a script in the results": lambda: run_script(),
    }


def touch_service(parent: int) -> dict[str, Callable[[], object]]:
    return {
        "its environment": Path(f"/proc/{parent}/environ").read_bytes,
        "its memory": lambda: os.open(f"/proc/{parent}/mem", os.O_RDONLY),
        "its memory for writing": lambda: os.open(f"/proc/{parent}/mem", os.O_RDWR),
        "its maps": Path(f"/proc/{parent}/maps").read_bytes,
        "its files": lambda: find(Path(f"/proc/{parent}/fd"), "0"),
        "its root": lambda: find(Path(f"/proc/{parent}/root"), "var"),
        "its working folder": Path(f"/proc/{parent}/cwd").readlink,
        "its program": Path(f"/proc/{parent}/exe").readlink,
        "its command line": Path(f"/proc/{parent}/cmdline").read_bytes,
        "its network namespace": lambda: os.open(f"/proc/{parent}/ns/net", os.O_RDONLY),
        "init's network namespace": lambda: call("setns", os.open("/proc/1/ns/net", os.O_RDONLY), 0),
        "setns by pidfd": lambda: call("setns", call("pidfd_open", parent, 0), 0x40000000),
        "ptrace": lambda: call("ptrace", 16, parent, 0, 0),
        "process_vm_readv": lambda: call("process_vm_readv", parent, room(), 0, room(), 0, 0),
        "process_vm_writev": lambda: call("process_vm_writev", parent, room(), 0, room(), 0, 0),
        "pidfd_open": lambda: call("pidfd_open", parent, 0),
        "pidfd_getfd": lambda: call("pidfd_getfd", call("pidfd_open", parent, 0), 0, 0),
        "kcmp": lambda: call("kcmp", os.getpid(), parent, 0, 0, 0),
        "a signal": lambda: os.kill(parent, 0),
        "a signal to its group": lambda: os.killpg(os.getpgid(parent), 0),
        "a signal to all": lambda: os.kill(-1, 0),
        "a signal to its thread": lambda: call("tkill", parent, 0),
        "a queued signal": lambda: call("rt_sigqueueinfo", parent, 0, room()),
        "a signal by a descriptor": lambda: fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, parent),
        "its limits": lambda: call("prlimit64", parent, resource.RLIMIT_NOFILE, None, room()),
        "its processors": lambda: call("sched_setaffinity", parent, 8, room(8, b"\1")),
        "its priority": lambda: call("setpriority", 0, parent, 19),
        "its disk priority": lambda: call("ioprio_set", 1, parent, 0),
        "survive it": lambda: call("prctl", 1, 0, 0, 0, 0),
        "be traced by anybody": lambda: call("prctl", 0x59616D61, -1, 0, 0, 0),
    }


def reach_kernel() -> dict[str, Callable[[], object]]:
    attempts: dict[str, Callable[[], object]] = {
        "io_uring": lambda: call("io_uring_setup", 1, room()),
        "asynchronous IO": lambda: call("io_setup", 1, room(8)) if COLUMN == 0 else refuse(),
        "bpf": lambda: call("bpf", 0, room(), 72),
        "perf": lambda: call("perf_event_open", room(), 0, -1, -1, 0),
        "userfaultfd": lambda: call("userfaultfd", 1),
        "keyring": lambda: call("keyctl", 0, -4, 0),
        "add a key": lambda: call("add_key", b"user", b"x", b"y", 1, -4),
        "request a key": lambda: call("request_key", b"user", b"x", None, -4),
        "shared memory": lambda: call("shmget", 0, 4096, 0o1600),
        "semaphores": lambda: call("semget", 0, 1, 0o1600),
        "messages": lambda: call("msgget", 0, 0o1600),
        "a message queue": lambda: call("mq_open", b"x", 0o102, 0o600, None),
        "inotify": lambda: call("inotify_init1", 0),
        "fanotify": lambda: call("fanotify_init", 0, 0),
        "a user namespace": lambda: call("unshare", 0x10000000),
        "a mount namespace": lambda: call("unshare", 0x20000),
        "a mount": lambda: call("mount", b"x", b"/tmp", b"tmpfs", 0, None),
        "an unmount": lambda: call("umount2", b"/", 2),
        "a new root": lambda: call("chroot", b"."),
        "pivot_root": lambda: call("pivot_root", b".", b"."),
        "open_tree": lambda: call("open_tree", AT_CWD, b"/", 1),
        "fsopen": lambda: call("fsopen", b"tmpfs", 0),
        "mount_setattr": lambda: call("mount_setattr", AT_CWD, b"/", 0, room(32), 32),
        "listmount": lambda: call("listmount", room(24), room(), 1, 0),
        "be root": lambda: call("setuid", 0),
        "other groups": lambda: call("setgroups", 0, None),
        "capabilities": lambda: call("capset", room(8, struct.pack("<Ii", 0x20080522, 0)), room(24, b"\xff" * 8)),
        "personality": lambda: call("personality", 0x0040000),
        "another filter": lambda: call("seccomp", 2, 0, room()),
        "another Landlock": lambda: call("landlock_create_ruleset", None, 0, 1),
        "be dumpable": lambda: call("prctl", 4, 1, 0, 0, 0),
        "be a subreaper": lambda: call("prctl", 36, 1, 0, 0, 0),
        "the kernel's log": lambda: call("syslog", 10, None, 0),
        "accounting": lambda: call("acct", None),
        "load a module": lambda: call("init_module", room(), 1, b""),
        "the host's name": lambda: call("sethostname", b"x", 1),
        "type into the terminal": lambda: call("ioctl", 0, 0x5412, b"x"),
        "lock memory": lambda: call("mlockall", 2),
        "raise the limit of memory": lambda: raise_limit(resource.RLIMIT_AS),
        "raise the limit of files": lambda: raise_limit(resource.RLIMIT_NOFILE),
        "raise the limit of a file's size": lambda: raise_limit(resource.RLIMIT_FSIZE),
    }
    if COLUMN == 0:
        attempts["x32"] = lambda: raw_call(0x40000000 | 39)
    return attempts


def raw_call(number: int) -> int:
    ctypes.set_errno(0)
    if (found := libc.syscall(number)) < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return int(found)


def refuse() -> None:
    raise OSError("not here")


def folder(job: Job) -> int:
    return os.open(job.folder, os.O_RDONLY | os.O_DIRECTORY)


def in_thread(attempt: Callable[[], Any]) -> Any:
    found: list[Any] = []

    def run() -> None:
        with contextlib.suppress(OSError):
            found.append(attempt())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    if not found:
        raise OSError("refused in the thread, too")
    return found[0]


def find(folder: Path, name: str) -> None:
    """In a jail a folder may be there that shows nothing but the way to another one."""
    if name not in {one.name for one in folder.iterdir()}:
        raise OSError(f"it does not show {name}")


def replace_input(job: Job) -> None:
    (job.folder / "false").write_text("another document")
    (job.folder / "false").replace(job.source)


def map_shared(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    mmap.mmap(fd, 1, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)


def set_user_id(path: Path) -> None:
    path.touch(mode=0o755)
    path.chmod(0o4755)


def hard_link(out: Path) -> None:
    (out / "one").touch()
    os.link(out / "one", out / "two")


def connect_unix(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(address)


def send_from_pair(address: str) -> None:
    socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"x", address)


def leave(pid: int) -> None:
    """A new process ends at once."""
    if not pid:
        os._exit(0)
    with contextlib.suppress(OSError):
        os.waitpid(pid, 0)


def daemonise() -> None:
    """What would survive the kill of our process group."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    os.setsid()
    os._exit(0)


def run_script() -> None:
    path = Path("run.sh")
    path.write_text("#!/bin/sh\n")
    os.execv(path, ["run.sh"])


def raise_limit(what: int) -> None:
    try:
        resource.setrlimit(what, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except ValueError as error:
        raise OSError(str(error)) from error


def find_descriptors() -> None:
    """Files, folders and sockets that somebody forgot to close: pipes to the service and /proc/self/statm are ours."""
    for number in range(256):
        try:
            kind = os.fstat(number).st_mode & 0o170000
            size = os.fstat(number).st_size
        except OSError:
            continue
        if kind in (0o140000, 0o040000, 0o060000) or (kind == 0o100000 and size):
            return
    raise OSError("none")


def attempt_all(job: Job, order: dict[str, Any]) -> dict[str, str]:
    found = {}
    for part, attempts in parts(job, order).items():
        for name, attempt in attempts.items():
            try:
                attempt()
            except OSError as error:
                found[f"{part}: {name}"] = f"refused: {error.strerror or error}"
            else:
                found[f"{part}: {name}"] = "possible"
    return found


def read(job: Job) -> None:
    job.media_type = "text/plain"
    order = json.loads(job.source.read_text())
    if order.get("input"):
        job.add_page(0, job.source.read_text())
        return
    job.add_page(0, json.dumps(attempt_all(job, order)))


reading.read = read

if __name__ == "__main__":
    child.main()
