"""Processes that are started again whenever they end, as a service manager would."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.chaos.nursery import Forked, Nursery

COUNTED = ("attempt_dropped", "report_refused", "unexpected_error", "sweep_fault", "worker_fault", "heart_fault")
"""Lines of the log that the report counts."""
RESTART_S = 0.05


@dataclass
class Unit:
    """One process of a deployment, under its name."""

    name: str
    command: list[str]
    environment: Mapping[str, str]
    log: Path
    nursery: Nursery
    tampering: Mapping[str, object] | None = None
    process: Forked | None = None
    wanted: bool = True
    is_frozen: bool = False
    starts: int = 0
    pids: list[int] = field(default_factory=list)
    deaths: dict[int, float] = field(default_factory=dict)
    """When each process that was killed died, by its pid."""

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        self.process = self.nursery.fork(self.command, self.environment, self.log, self.tampering)
        self.pids.append(self.process.pid)
        self.starts += 1
        self.is_frozen = False

    def kill(self) -> bool:
        """-9. False: there was nothing to kill."""
        if not self.is_running or self.process is None:
            return False
        self.deaths[self.process.pid] = time.time()
        self.process.kill()
        self.process.wait()
        return True

    def freeze(self) -> bool:
        if not self.is_running or self.is_frozen or self.process is None:
            return False
        self.is_frozen = True
        self.process.send_signal(signal.SIGSTOP)
        return True

    def signal(self, number: int) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)

    def thaw(self) -> None:
        if self.is_frozen and self.is_running and self.process is not None:
            self.process.send_signal(signal.SIGCONT)
        self.is_frozen = False

    def stop(self, seconds: float = 20) -> int | None:
        """SIGTERM; the exit code, or None if it had to be killed."""
        if self.process is None:
            return 0
        self.thaw()
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None


class Supervisor:
    """Starts what is wanted and does not run, until it is closed."""

    def __init__(self, units: list[Unit]) -> None:
        self.units = units
        self._closing = threading.Event()
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        for unit in self.units:
            if unit.wanted:
                unit.start()
        self._thread.start()

    def _watch(self) -> None:
        while not self._closing.wait(RESTART_S):
            with self._guard:
                for unit in self.units:
                    if unit.wanted and not unit.is_running and not self._closing.is_set():
                        unit.start()

    def kill(self, unit: Unit) -> bool:
        with self._guard:
            return unit.kill()

    def replace(self, unit: Unit, nursery: Nursery) -> int | None:
        """Stop a process in an orderly way and start it from another nursery; its exit code."""
        with self._guard:
            code = unit.stop() if unit.is_running else 0
            unit.nursery, unit.wanted = nursery, True
            unit.start()
            return code

    def close(self) -> dict[str, int | None]:
        """Ask all to stop; their exit codes."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(10)
        for unit in self.units:
            unit.wanted = False
        return {unit.name: unit.stop() for unit in self.units}

    def counted(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for unit in self.units:
            if unit.log.exists():
                text = unit.log.read_text(errors="replace")
                found.update({word: text.count(f'"{word}"') for word in COUNTED})
        return found
