"""Runs one service and sees to it that nothing of it outlives the test run.

Started by process.py with the order as JSON; answers with the service's pid on one line.
SIGTERM stops the service politely, SIGUSR1 kills it at once. When the parent is gone, however it went, the service is
stopped and its folder removed. Should this process be killed itself, the kernel kills the service (PR_SET_PDEATHSIG).
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
KILLED_S = 60
"""A process that was killed is gone in no time, unless its disk hangs."""
WATCHED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1}
PARENT_CHECK_SECONDS = 0.2

libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    if libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def run(order: dict[str, Any]) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    service = launch(order)
    print(service.pid, flush=True)
    try:
        watch(service, order)
    finally:
        kill_the_rest()
        for path in order["leftovers"]:
            Path(path).unlink(missing_ok=True)
    return service.returncode


def launch(order: dict[str, Any]) -> subprocess.Popen[bytes]:
    supervisor = os.getpid()

    def in_the_child() -> None:
        # Popen has changed the user by now: doing so later would clear the death signal.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)

    with Path(order["log"]).open("ab") as log:
        return subprocess.Popen(
            order["command"],
            cwd=order["cwd"],
            env=order["env"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=in_the_child,
            **order["identity"],
        )


def watch(service: subprocess.Popen[bytes], order: dict[str, Any]) -> None:
    while service.poll() is None:
        told = signal.sigtimedwait(WATCHED, PARENT_CHECK_SECONDS)
        if os.getppid() != order["parent"]:
            stop(service, order)
            shutil.rmtree(order["folder"], ignore_errors=True)
        elif told and told.si_signo == signal.SIGUSR1:
            service.kill()
            service.wait(KILLED_S)
        elif told and told.si_signo in (signal.SIGTERM, signal.SIGINT):
            # Others that it names are none: a process that was stopped and goes on gets one that nobody sent.
            stop(service, order)


def stop(service: subprocess.Popen[bytes], order: dict[str, Any]) -> None:
    service.send_signal(order["stop_signal"])
    try:
        service.wait(order["grace"])
    except subprocess.TimeoutExpired:
        service.kill()
        service.wait(KILLED_S)


def kill_the_rest() -> None:
    """What the service started is ours once it is gone (child subreaper); a killed PostgreSQL leaves backends."""
    while children := children_of(os.getpid()):
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def children_of(parent: int) -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and parent_of(entry) == parent]


def parent_of(entry: Path) -> int | None:
    try:
        # "pid (name) state ppid ...": the name may hold spaces and brackets.
        return int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return None


if __name__ == "__main__":
    sys.exit(0 if run(json.loads(sys.argv[1])) == 0 else 1)
