"""A server of the test run: started on free loopback ports, supervised, stopped by its pid."""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

SUPERVISOR = Path(__file__).with_name("supervise.py")
LOG_TAIL_LINES = 25
PORT_TRIES = 5
FIRST_PORT = 12_000
PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class ServiceFailed(Exception):
    """A service that the tests need cannot be had. This fails the tests; nothing is skipped."""


class PortTaken(ServiceFailed):
    """Someone took the port between our look and the server's."""


class Process:
    """One service process under its supervisor (see supervise.py)."""

    def __init__(
        self,
        command: list[str],
        *,
        folder: Path,
        log: Path,
        leftovers: list[Path],
        identity: Mapping[str, Any],
        stop_signal: int,
        grace: float,
    ) -> None:
        self.log = log
        self.grace = grace
        order = {
            "command": command,
            "cwd": str(folder),
            "folder": str(folder),
            # Nothing of the developer's environment steers a service.
            "env": {"HOME": str(folder), "PATH": os.defpath, "LANG": "C.UTF-8", "TZ": "UTC"},
            "log": str(log),
            "leftovers": [str(path) for path in leftovers],
            "identity": dict(identity),
            "stop_signal": stop_signal,
            "grace": grace,
            "parent": os.getpid(),
        }
        with log.open("ab") as errors:
            self.supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", str(SUPERVISOR), json.dumps(order)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for pytest, which stops the services in order
            )
        assert self.supervisor.stdout
        with self.supervisor.stdout as answer:
            pid = answer.readline()
        if not pid:
            self.supervisor.wait(30)
            raise ServiceFailed(f"could not run {command[0]}:\n{self.log_tail()}")
        self.pid = int(pid)

    @property
    def is_running(self) -> bool:
        return self.supervisor.poll() is None

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGUSR1)

    def _end(self, how: signal.Signals) -> None:
        # Popen signals only what it has not reaped, so this pid cannot be someone else's.
        self.supervisor.send_signal(how)
        try:
            self.supervisor.wait(self.grace + 30)
        except subprocess.TimeoutExpired:
            self.supervisor.kill()
            self.supervisor.wait(30)

    def log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:]) or "(it logged nothing)"


class Server(ABC):
    """A real server, ours from start to close. Stopped or killed, it starts again on the same folder and port.

    Without a *folder* it works in a temporary one, removed on close; without a *port* it takes a free one.
    """

    name: ClassVar[str]
    stop_signal: ClassVar[int] = signal.SIGTERM
    grace: ClassVar[float] = 5.0
    start_timeout: ClassVar[float] = 60.0

    def __init__(self, folder: Path | None = None, port: int | None = None) -> None:
        self.folder = folder
        self.port = port
        self.process: Process | None = None
        self.identity: Mapping[str, Any] = {}
        self.leftovers: list[Path] = []  # what the server forgets outside its folder
        self._owns_folder = folder is None

    @abstractmethod
    def prepare(self, folder: Path) -> None:
        """Lay out the folder before the first start."""

    @abstractmethod
    def command(self, folder: Path, port: int) -> list[str]:
        """What to run."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Does it answer, in its own protocol, and is it ours?"""

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_running

    def start(self) -> Self:
        if self.is_running:
            return self
        if self.folder is None:
            self.folder = self.make_folder()
        if not (self.folder / "prepared").exists():
            self.prepare(self.folder)
            (self.folder / "prepared").touch()
        if self.port is not None:
            self._launch(self.folder, self.port)
        else:
            self._launch_on_a_free_port(self.folder)
        return self

    def _launch_on_a_free_port(self, folder: Path) -> None:
        for _ in range(PORT_TRIES - 1):
            with contextlib.suppress(PortTaken):
                return self._launch(folder, free_port())
        return self._launch(folder, free_port())

    def make_folder(self) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"docmill-test-{self.name.lower()}-"))

    def _launch(self, folder: Path, port: int) -> None:
        process = Process(
            self.command(folder, port),
            folder=folder,
            log=folder / "log",
            leftovers=self.leftovers,
            identity=self.identity,
            stop_signal=self.stop_signal,
            grace=self.grace,
        )
        chosen, self.port, self.process = self.port, port, process
        try:
            self._wait_until_ready(process)
        except BaseException:
            process.kill()
            self.port, self.process = chosen, None
            raise

    def _wait_until_ready(self, process: Process) -> None:
        deadline = time.monotonic() + self.start_timeout
        while process.is_running:
            if self.is_ready():
                return
            if time.monotonic() > deadline:
                raise ServiceFailed(
                    f"{self.name} did not answer within {self.start_timeout:.0f} s; its log ends:\n{process.log_tail()}"
                )
            time.sleep(0.02)
        tail = process.log_tail()
        failure = PortTaken if "address already in use" in tail.lower() else ServiceFailed
        raise failure(f"{self.name} ended while starting; its log ends:\n{tail}")

    def stop(self) -> None:
        """Stop as an operator would. Data stay; start() goes on with them."""
        if self.process:
            self.process.stop()
            self.process = None

    def kill(self) -> None:
        """Kill -9 the server and everything it started, as a power cut would."""
        if self.process:
            self.process.kill()
            self.process = None

    def close(self) -> None:
        self.stop()
        if self.folder and self._owns_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, below those that the kernel gives to outgoing connections: until the server takes
    its port, no connection of another test can."""
    with contextlib.ExitStack() as stack:
        held: list[socket.socket] = []
        while len(held) < count:
            port = FIRST_PORT + secrets.randbelow(_first_outgoing_port() - FIRST_PORT)
            with contextlib.suppress(OSError):
                held.append(stack.enter_context(socket.create_server(("127.0.0.1", port))))
        return [int(found.getsockname()[1]) for found in held]


def _first_outgoing_port() -> int:
    try:
        return max(int(PORT_RANGE.read_text().split()[0]), FIRST_PORT + 2_000)
    except (OSError, ValueError, IndexError):
        return 32_768


def can_be_entered_by_all(path: Path) -> bool:
    resolved = path.resolve()
    return all(step.stat().st_mode & stat.S_IXOTH for step in (resolved, *resolved.parents))


def new_secret() -> str:
    return secrets.token_hex(16)
