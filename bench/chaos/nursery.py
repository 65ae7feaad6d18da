"""Starts `docmill` processes by forking one that has imported it already.

What is killed is a real process all the same: it runs the command from its first line, with connections, threads and
children of its own. But a start costs milliseconds instead of seconds of importing, so that a machine with two cores
can be at work between two kills.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

REAPED_S = 5.0
WARM = (
    "docmill.cli.serve",
    "docmill.cli.worker",
    "docmill.compose",
    "docmill.console",
    "docmill.http.app",
    "docmill.http.server",
    "docmill.adapters.limiters.redis",
    "docmill.adapters.queues.arq",
    "docmill.adapters.runstate.redis",
    "docmill.adapters.signals.redis",
    "docmill.adapters.sql.postgres",
    "docmill.adapters.stores.s3",
    "bench.chaos.tampered",
    "uvloop",
)
"""All that a process imports by itself later. None of it starts a thread, which would not survive the fork."""


class Forked:
    """One process of the nursery. It is held by a descriptor: no signal can reach another that took over its pid."""

    def __init__(self, pid: int, exits: Path) -> None:
        self.pid = pid
        self._exits = exits
        self._handle = -1
        with suppress(ProcessLookupError):  # it may have ended already, and its parent seen to it
            self._handle = os.pidfd_open(pid)

    def poll(self) -> int | None:
        return None if not self._has_ended(0) else self._code()

    def wait(self, seconds: float | None = None) -> int:
        if not self._has_ended(seconds):
            raise subprocess.TimeoutExpired("docmill", seconds or 0)
        return self._code()

    def send_signal(self, number: int) -> None:
        if self._handle < 0:
            raise ProcessLookupError
        signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.send_signal(signal.SIGKILL)

    def _has_ended(self, seconds: float | None) -> bool:
        if self._handle < 0:
            return True
        poller = select.poll()
        poller.register(self._handle, select.POLLIN)
        return bool(poller.poll(None if seconds is None else seconds * 1000))

    def _code(self) -> int:
        ends = time.monotonic() + REAPED_S
        while time.monotonic() < ends:
            with suppress(FileNotFoundError):
                return int((self._exits / str(self.pid)).read_text() or "0")
            time.sleep(0.01)
        return -1


class Nursery:
    def __init__(self, folder: Path, source: Path | None = None) -> None:
        """*source*: the `src` folder of another version of docmill, which its processes run instead of this one."""
        self._exits = folder / "exits"
        self._exits.mkdir(parents=True)
        python = sys.executable if source is None else str(_python_of(folder / "python", source))
        self._process = subprocess.Popen(
            [python, "-m", "bench.chaos.nursery", str(self._exits)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def fork(
        self,
        command: list[str],
        environment: Mapping[str, str],
        log: Path,
        tampering: Mapping[str, object] | None = None,
    ) -> Forked:
        assert self._process.stdin
        assert self._process.stdout
        order = {"command": command, "environment": dict(environment), "log": str(log), "tampering": tampering or {}}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return Forked(int(self._process.stdout.readline()), self._exits)

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def _python_of(folder: Path, source: Path) -> Path:
    """An environment with that version and the packages of this one. Its parsers are started by its own interpreter
    without regard to PYTHONPATH, so that a variable would not do."""
    venv.create(folder, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (packages / "previous.pth").write_text(f"{source}\n{sysconfig.get_path('purelib')}\n")
    return folder / "bin/python"


def main(exits: Path) -> None:
    import gc
    from importlib import import_module

    for name in WARM:
        import_module(name)
    gc.freeze()
    alive: set[int] = set()
    signal.signal(signal.SIGCHLD, lambda *_: _reap(exits, alive))
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(order)
        alive.add(pid)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
    # Whoever started us is gone or done: nobody stays behind.
    for pid in tuple(alive):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _reap(exits: Path, alive: set[int]) -> None:
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            alive.discard(pid)
            fresh = exits / f"{pid}.new"
            fresh.write_text(str(os.waitstatus_to_exitcode(status)))
            fresh.rename(exits / str(pid))


def _become(order: dict[str, object]) -> None:
    import random

    from bench.chaos.tampered import tamper
    from docmill.cli import main as docmill

    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.environ.update(order["environment"])  # type: ignore[call-overload]
        out = os.open(str(order["log"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (out, 1), (out, 2)):
            os.dup2(source, target)
        random.seed()
        tamper(order["tampering"])  # type: ignore[arg-type]
        sys.argv = ["docmill", *order["command"]]  # type: ignore[misc]
        docmill()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
