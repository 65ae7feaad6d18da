"""Documents that kill their parser, eat all memory or never end: how much slower is everybody else (R16)?

    python -m bench.chaos.poison

One service with two places. An honest client sends small documents one after the other and waits for each; then again,
while a poisoner keeps one place busy with documents of one kind. In turns, so that a busy machine is busy for both. A
parser's bug is made by a signal: a segmentation fault, or a stop for good. The exit code is 1 if the others' p95 is
more than twice what it was, or if a poison ends otherwise than it should.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from support import hostile
from support.serving import Etl, Service

TURNS, DOCUMENTS = 3, 30
MOST = 2.0
SECONDS = 20


@dataclass
class Poison:
    kind: str
    data: bytes
    stages: tuple[str, ...]
    """How it may end."""
    sign: signal.Signals | None = None
    ended: list[dict[str, Any]] = field(default_factory=list)

    @contextmanager
    def at_work(self, service: Service) -> Iterator[None]:
        stop = threading.Event()

        def send() -> None:
            with service.client() as client:
                etl = Etl(client)
                while not stop.is_set():
                    self.ended.append(etl.wait(etl.submit("poison.pdf", self.data, no_cache=True), seconds=300))

        def strike() -> None:
            while sending.is_alive():
                for child in psutil.Process(service.working_pid).children() if self.sign else ():
                    with suppress(psutil.Error, OSError):
                        if hostile.size_of_input(Path(child.cwd()).parent) == len(self.data):
                            child.send_signal(self.sign)
                time.sleep(0.02)

        sending = threading.Thread(target=send, daemon=True)
        striking = threading.Thread(target=strike, daemon=True)
        sending.start()
        striking.start()
        try:
            yield
        finally:
            stop.set()
            sending.join(300)
            striking.join(10)

    @property
    def ended_well(self) -> bool:
        return bool(self.ended) and all(_end(one) in self.stages for one in self.ended)


def _end(task: dict[str, Any]) -> str:
    return str(task["metadata"].get("error_stage") if task["status"] == "failed" else task["status"])


def waits(service: Service, mark: str) -> list[float]:
    """How long each of the honest documents took, from the request to the result."""
    seconds = []
    with service.client() as client:
        etl = Etl(client)
        for number in range(DOCUMENTS):
            began = time.perf_counter()
            etl.done(f"{number}.md", f"# {mark} {number}\n\nan honest document".encode(), no_cache=True)
            seconds.append(time.perf_counter() - began)
    return seconds


def p95(seconds: list[float]) -> float:
    return 1000 * sorted(seconds)[len(seconds) * 95 // 100]


def measured(service: Service, poison: Poison) -> bool:
    alone: list[float] = []
    beside: list[float] = []
    for turn in range(TURNS):
        alone += waits(service, f"alone {turn}")
        with poison.at_work(service):
            beside += waits(service, f"beside {turn}")
    ratio = p95(beside) / p95(alone)
    ends = ", ".join(sorted({_end(one) for one in poison.ended}))
    print(
        f"a document that {poison.kind:17} ({len(poison.ended)} of them, ended: {ends}): the others' p95 "
        f"{p95(alone):.0f} ms alone, {p95(beside):.0f} ms beside it, {ratio:.2f} x (limit {MOST:.0f})",
        flush=True,
    )
    return ratio <= MOST and poison.ended_well


def main() -> bool:
    poisons = [
        Poison("kills its parser", hostile.scans(3), ("crash",), signal.SIGSEGV),
        Poison("never ends", hostile.scans(3), ("timeout",), signal.SIGSTOP),
        Poison("eats all memory", hostile.inflating_pdf(256), ("crash", "timeout")),
    ]
    limits = {"DOCMILL_ETL_TASK_TIMEOUT": str(SECONDS), "DOCMILL_MEMORY_MB": "2048", "DOCMILL_WARM": "true"}
    with tempfile.TemporaryDirectory() as folder, Service(Path(folder) / "data", "--jobs", "2", **limits) as service:
        waits(service, "warm")
        kept = [measured(service, poison) for poison in poisons]
    return all(kept)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
