"""Which system calls a parser may use, as a seccomp filter program. Pure: numbers in, bytes out."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

ALLOWED = """
read 0 63, write 1 64, close 3 57, stat 4 -, fstat 5 80, lstat 6 -, newfstatat 262 79, statx 332 291,
statfs 137 43, fstatfs 138 44, poll 7 -, ppoll 271 73, select 23 -, pselect6 270 72, lseek 8 62, mmap 9 222,
mprotect 10 226, munmap 11 215, mremap 25 216, madvise 28 233, msync 26 227, brk 12 214, rt_sigaction 13 134,
rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigpending 127 136, rt_sigtimedwait 128 137, rt_sigsuspend 130 133,
sigaltstack 131 132, pread64 17 67, pwrite64 18 68, readv 19 65, writev 20 66, preadv 295 69, pwritev 296 70,
access 21 -, faccessat 269 48, faccessat2 439 439, pipe 22 -, pipe2 293 59, sched_yield 24 124,
sched_getaffinity 204 123, sched_getparam 143 121, sched_getscheduler 145 120, sched_get_priority_max 146 125,
sched_get_priority_min 147 126, dup 32 23, dup2 33 -, dup3 292 24, pause 34 -, nanosleep 35 101,
clock_nanosleep 230 115, clock_gettime 228 113, clock_getres 229 114, gettimeofday 96 169, time 201 -, times 100 153,
getitimer 36 102, setitimer 38 103, alarm 37 -, timer_create 222 107, timer_settime 223 110, timer_gettime 224 108,
timer_delete 226 111, timerfd_create 283 85, timerfd_settime 286 86, timerfd_gettime 287 87, getpid 39 172,
gettid 186 178, getppid 110 173, getuid 102 174, geteuid 107 175, getgid 104 176, getegid 108 177, getresuid 118 148,
getresgid 120 150, getgroups 115 158, getpgrp 111 -, getpgid 121 155, getsid 124 156, getpriority 140 141,
getrusage 98 165, getrlimit 97 163, setrlimit 160 164, recvfrom 45 207, shutdown 48 210,
getsockopt 55 209, getsockname 51 204, getpeername 52 205, exit 60 93, exit_group 231 94, wait4 61 260, waitid 247 95,
uname 63 160, sysinfo 99 179, fsync 74 82, fdatasync 75 83, ftruncate 77 46, fallocate 285 47, fadvise64 221 223,
readahead 187 213, sync_file_range 277 84, flock 73 32, sendfile 40 71, copy_file_range 326 285, splice 275 76,
getcwd 79 17, chdir 80 49, fchdir 81 50, getdents 78 -, getdents64 217 61, mkdir 83 -, mkdirat 258 34, rmdir 84 -,
unlink 87 -, unlinkat 263 35, rename 82 -, renameat 264 38, renameat2 316 276, readlink 89 -, readlinkat 267 78,
umask 95 166, arch_prctl 158 -, set_tid_address 218 96, set_robust_list 273 99, futex 202 98, futex_waitv 449 449,
futex_wake 454 454, futex_wait 455 455, futex_requeue 456 456, restart_syscall 219 128, rseq 334 293,
membarrier 324 283, getrandom 318 278, getcpu 309 168, mbind 237 235, get_mempolicy 239 236, capget 125 90,
epoll_create 213 -, epoll_create1 291 20, epoll_ctl 233 21, epoll_wait 232 -, epoll_pwait 281 22, epoll_pwait2 441 441,
eventfd 284 -, eventfd2 290 19, signalfd4 289 74, close_range 436 436, map_shadow_stack 453 453
"""
"""Name, number on x86_64, number on aarch64; `-`: the machine has no such call.

Missing on purpose: everything that reaches beyond the process (sockets, processes, signals, ptrace, namespaces, mounts,
keyrings, shared memory, io_uring, bpf), changes a file's metadata (chmod, chown, utime, xattr), makes links or special
files, watches files (inotify), or starts a program."""

CHECKED = """
clone 56 220, kill 62 129, tgkill 234 131, prctl 157 167, prlimit64 302 261, ioctl 16 29, fcntl 72 25,
socketpair 53 199, sendto 44 206, open 2 -, openat 257 56
"""
"""Allowed with some arguments only."""

FIRST_COMMON_NUMBER = 424
"""From here on all machines share their numbers. The C library falls back to older calls where these are ENOSYS."""
IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX."""
FCNTLS = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032, 1034)
"""Without SETOWN and SETSIG, which send signals to other processes, without LEASE and NOTIFY, and without SETPIPE_SZ:
the pages of pipes are counted per user."""
PRCTLS = (3, 15, 16, 23, 39, 42, 0x53564D41)
"""GET_DUMPABLE, SET_NAME, GET_NAME, CAPBSET_READ, GET_NO_NEW_PRIVS, GET_THP_DISABLE, SET_VMA."""
CLONE_THREAD = 0x10000
CLONE_NEW = 0x7E020000
"""NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""
AF_UNIX = SOCK_STREAM = 1
SOCKET_KIND_BITS = 0xF
O_ACCMODE_TRUNC = 0x203
O_TRUNC = 0x200

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_ANY_BIT, AND, RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
NUMBER_OFFSET, MACHINE_OFFSET, ARGUMENTS_OFFSET = 0, 4, 16


@dataclass(frozen=True, slots=True)
class Machine:
    audit_arch: int
    column: int
    seccomp: int
    capset: int
    pivot_root: int


MACHINES = {
    "x86_64": Machine(0xC000003E, 1, seccomp=317, capset=126, pivot_root=155),
    "aarch64": Machine(0xC00000B7, 2, seccomp=277, capset=91, pivot_root=41),
}
"""32-bit and x32 programs run on these kernels, too: their calls are never allowed."""


def numbers(table: str, machine: Machine) -> dict[str, int]:
    """The calls of a table that the machine has."""
    rows = (entry.split() for entry in table.split(","))
    return {row[0]: int(row[machine.column]) for row in rows if row[machine.column] != "-"}


class Program:
    """Instructions of classic BPF. Jumps count instructions, forward only."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, int, int, int]] = []

    def add(self, code: int, value: int, if_true: int = 0, if_false: int = 0) -> None:
        self._lines.append((code, if_true, if_false, value))

    def give(self, action: int) -> None:
        self.add(RETURN, action)

    def load_argument(self, index: int, *, upper: bool = False) -> None:
        self.add(LOAD, ARGUMENTS_OFFSET + 8 * index + 4 * upper)  # both machines are little-endian

    def when_call(self, number: int, body: Callable[[Program], None]) -> None:
        """Run *body*, which must return an action, for the call of this number."""
        at = len(self._lines)
        self.add(JUMP_EQUAL, number)
        body(self)
        self._lines[at] = (JUMP_EQUAL, 0, len(self._lines) - at - 1, number)

    def pack(self) -> bytes:
        return b"".join(struct.pack("<HBBI", *line) for line in self._lines)


def parser_program(machine: Machine, pid: int) -> bytes:
    """The filter of a parser process whose id is *pid*. Every other call fails, without ending the process."""
    program = Program()
    program.add(LOAD, MACHINE_OFFSET)
    program.add(JUMP_EQUAL, machine.audit_arch, 1)
    program.give(KILL)
    program.add(LOAD, NUMBER_OFFSET)
    for number in numbers(ALLOWED, machine).values():
        program.add(JUMP_EQUAL, number, 0, 1)
        program.give(ALLOW)
    checks = argument_checks(pid)
    for name, number in numbers(CHECKED, machine).items():
        program.when_call(number, checks[name])
    program.add(JUMP_AT_LEAST, FIRST_COMMON_NUMBER, 0, 1)
    program.give(ERRNO | errno.ENOSYS)
    program.give(ERRNO | errno.EPERM)
    return program.pack()


def denying_program(machine: Machine, denied: Mapping[int, int]) -> bytes:
    """A filter that fails the given calls with the given error numbers and allows the rest: other deployments, in
    tests."""
    program = Program()
    program.add(LOAD, MACHINE_OFFSET)
    program.add(JUMP_EQUAL, machine.audit_arch, 1)
    program.give(ALLOW)
    program.add(LOAD, NUMBER_OFFSET)
    for number, error in denied.items():
        program.when_call(number, lambda program, error=error: program.give(ERRNO | error))  # type: ignore[misc]
    program.give(ALLOW)
    return program.pack()


def argument_checks(pid: int) -> dict[str, Callable[[Program], None]]:
    return {
        "clone": allow_threads,
        "kill": allow_values((pid,), argument=0),
        "tgkill": allow_values((pid,), argument=0),
        "prctl": allow_values(PRCTLS, argument=0),
        "prlimit64": allow_values((0, pid), argument=0),
        "ioctl": allow_values(IOCTLS, argument=1, otherwise=errno.ENOTTY),
        "fcntl": allow_values(FCNTLS, argument=1),
        "socketpair": allow_stream_pairs,
        "sendto": allow_without_address,
        "open": deny_truncating_reads(1),
        "openat": deny_truncating_reads(2),
    }


def allow_values(values: Sequence[int], *, argument: int, otherwise: int = errno.EPERM) -> Callable[[Program], None]:
    def body(program: Program) -> None:
        program.load_argument(argument)
        for index, value in enumerate(values):
            program.add(JUMP_EQUAL, value, len(values) - index)
        program.give(ERRNO | otherwise)
        program.give(ALLOW)

    return body


def allow_threads(program: Program) -> None:
    """Threads, but no processes and no namespaces: nothing can outlive the parser."""
    program.load_argument(0)
    program.add(JUMP_ANY_BIT, CLONE_NEW, 2)
    program.add(JUMP_ANY_BIT, CLONE_THREAD, 0, 1)
    program.give(ALLOW)
    program.give(ERRNO | errno.EPERM)


def allow_stream_pairs(program: Program) -> None:
    """Native libraries wake their threads by a pair of connected sockets, which reaches no other process. A datagram
    socket could send to any address."""
    program.load_argument(0)
    program.add(JUMP_EQUAL, AF_UNIX, 0, 4)
    program.load_argument(1)
    program.add(AND, SOCKET_KIND_BITS)
    program.add(JUMP_EQUAL, SOCK_STREAM, 0, 1)
    program.give(ALLOW)
    program.give(ERRNO | errno.EPERM)


def allow_without_address(program: Program) -> None:
    program.load_argument(4)
    program.add(JUMP_EQUAL, 0, 0, 3)
    program.load_argument(4, upper=True)
    program.add(JUMP_EQUAL, 0, 0, 1)
    program.give(ALLOW)
    program.give(ERRNO | errno.EPERM)


def deny_truncating_reads(flags: int) -> Callable[[Program], None]:
    """O_RDONLY | O_TRUNC empties a file that may only be read, where Landlock's ABI is below 3."""

    def body(program: Program) -> None:
        program.load_argument(flags)
        program.add(AND, O_ACCMODE_TRUNC)
        program.add(JUMP_EQUAL, O_TRUNC, 1)
        program.give(ALLOW)
        program.give(ERRNO | errno.EPERM)

    return body
