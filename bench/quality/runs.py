"""Lets engines convert documents, two processes at a time, and keeps what it cost."""

from __future__ import annotations

import json
import os
import queue
import select
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

PEERS = Path(__file__).parent.parent / ".peers"
PROGRAM = Path(__file__).with_name("peer.py")
KEPT = Path(__file__).parent.parent / ".outcomes"
"""What peers made of the corpus. They change with their releases only, so each runs once; remove it after an update."""
OURS = ("docmill", "docvortex", "pypdfium2")
ELSEWHERE = {
    "markitdown": ["markitdown[pdf,docx,pptx,xlsx,outlook]"],
    # The releases called 2.0 are empty.
    "pymupdf4llm": ["pymupdf4llm<2", "pymupdf<2", "pymupdf-layout<2"],
    "kreuzberg": ["kreuzberg"],
    "liteparse": ["liteparse"],
    "pdf-inspector": ["pdf-inspector"],
}
"""Peers that live in an environment of their own; pymupdf4llm is AGPL and is only ever called as a program."""
START_S, DOCUMENT_S = 120.0, 180.0


@dataclass(slots=True)
class Outcome:
    markdown: str = ""
    error: str | None = None
    cpu: float = 0.0
    peak_mb: float = 0.0


@dataclass(slots=True)
class Run:
    """What one engine did with one set."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)

    @property
    def peak_mb(self) -> float:
        return max((outcome.peak_mb for outcome in self.outcomes.values()), default=0.0)


def python_of(engine: str) -> Path | None:
    """The interpreter that has the engine, or None when it is not installed."""
    if engine in OURS:
        return Path(sys.executable)
    found = PEERS / engine / "bin" / "python"
    return found if found.exists() else None


class Peer:
    """A running engine. A document that takes too long ends it; the next one starts another."""

    def __init__(self, engine: str, python: Path, temp: str) -> None:
        self._temp = temp
        self._command = [str(python), str(PROGRAM), engine]
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def convert(self, path: Path) -> Outcome:
        if self._process is None and (error := self.start()):
            return Outcome(error=error)
        process = self._process
        if process is None or process.stdin is None:
            return Outcome(error="it did not start")
        try:
            process.stdin.write(f"{path}\n".encode())
            process.stdin.flush()
        except OSError:
            self.stop()
            return Outcome(error="it had died")
        answer = self._answer(DOCUMENT_S)
        if answer is None:
            self.stop()
            return Outcome(error=f"it crashed, or took more than {DOCUMENT_S:.0f} s")
        return Outcome(answer["markdown"], answer["error"], answer["cpu"], answer["peak_mb"])

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._process, self._rest = None, b""

    def start(self) -> str | None:
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | threads | {"QUALITY_TEMP": self._temp, "LOGURU_LEVEL": "ERROR"},
        )
        if self._answer(START_S) is None:
            self.stop()
            return "it did not start"
        return None

    def _answer(self, seconds: float) -> dict[str, Any] | None:
        stdout = self._process.stdout if self._process else None
        if stdout is None:
            return None
        while b"\n" not in self._rest:
            if not select.select([stdout], [], [], seconds)[0] or not (part := os.read(stdout.fileno(), 1 << 20)):
                return None
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer


def starts(engine: str) -> bool:
    """An installed engine may still lack a library."""
    python = python_of(engine)
    if python is None:
        return False
    with tempfile.TemporaryDirectory() as temp:
        peer = Peer(engine, python, temp)
        error = peer.start()
        peer.stop()
    return error is None


def kept_at(engine: str, path: Path) -> Path:
    return KEPT / engine / sha256(path.read_bytes()).hexdigest()


def recall(engine: str, path: Path) -> Outcome | None:
    if engine == "docmill" or not (kept := kept_at(engine, path)).exists():
        return None
    return Outcome(**json.loads(kept.read_text()))


def keep(engine: str, path: Path, outcome: Outcome) -> Outcome:
    if engine != "docmill":
        kept = kept_at(engine, path)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(asdict(outcome)))
    return outcome


def run(engine: str, documents: list[Path], processes: int = 2) -> Run:
    """Every document once. Each process converts its first document twice and counts the second time only."""
    python = python_of(engine)
    if python is None:
        raise LookupError(engine)
    waiting: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for path in documents:
        waiting.put(path)
    result = Run()
    temp = tempfile.TemporaryDirectory()

    def work() -> None:
        peer = Peer(engine, python, temp.name)
        warm = False
        while True:
            try:
                path = waiting.get_nowait()
            except queue.Empty:
                peer.stop()
                return
            if (known := recall(engine, path)) is not None:
                result.outcomes[path.stem] = known
                continue
            if not warm:
                peer.convert(path)
                warm = True
            result.outcomes[path.stem] = keep(engine, path, peer.convert(path))

    threads = [threading.Thread(target=work) for _ in range(min(processes, len(documents)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    temp.cleanup()
    return result
