"""Pages of one document in parallel: a long PDF with all places against the same PDF with one.

The pages are those of the samples, one document after the other, so that headings, tables, figures and fonts come and
go. Both sides take turns with warm processes. The result must be the same to the byte; what a process took at most is
read from the system.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import os
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import msgspec
import pypdfium2

from docmill.adapters.engines.local import LocalEngine
from docmill.ports import Work

GOAL = 0.6
SAMPLES = Path(__file__).parent.parent / "samples"
PARTS = ("bericht.de.pdf", "invoice.en.pdf", "rechnung.de.pdf", "report.en.pdf", "rotated.en.pdf", "报告.zh.pdf")


@dataclass(frozen=True, slots=True)
class Turn:
    seconds: float
    first_page: float
    peak_mb: int
    digest: str


def book(path: Path, pages: int) -> Path:
    whole = pypdfium2.PdfDocument.new()
    for part in itertools.cycle(PARTS):
        with pypdfium2.PdfDocument(SAMPLES / part) as one:
            whole.import_pages(one, range(min(len(one), pages - len(whole))))
        if len(whole) >= pages:
            break
    whole.save(str(path))
    whole.close()
    return path


async def read(engine: LocalEngine, source: Path) -> Turn:
    with tempfile.TemporaryDirectory() as folder:
        pages: list[float] = []
        began = time.perf_counter()
        parsed = await engine.start(
            Work(0, uuid4(), source, source.name, Path(folder)),
            lambda _done, _all: pages.append(time.perf_counter() - began),
        )
        seconds = time.perf_counter() - began
    digest = hashlib.sha256(msgspec.json.encode(parsed)).hexdigest()
    return Turn(seconds, pages[0], max(map(peak_mb, children())), digest)


def children() -> list[int]:
    """The processes that we started."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def peak_mb(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) // 1024 if found else 0


async def compare(source: Path, places: int, turns: int) -> dict[int, list[Turn]]:
    engines = {number: LocalEngine(number, spares=0) for number in (1, places)}
    try:
        for engine in engines.values():
            await read(engine, source)  # the processes get warm
        found: dict[int, list[Turn]] = {number: [] for number in engines}
        for _ in range(turns):
            for number, engine in engines.items():
                found[number].append(await read(engine, source))
        return found
    finally:
        for engine in engines.values():
            await engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=400)
    parser.add_argument("--places", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = book(Path(folder) / "book.pdf", chosen.pages)
        found = asyncio.run(compare(source, chosen.places, chosen.turns))
    best = {number: min(turns, key=lambda turn: turn.seconds) for number, turns in found.items()}
    for number, turn in best.items():
        print(
            f"{chosen.pages} pages, {number} place{'s' * (number > 1)}: {turn.seconds:6.2f} s, first page after"
            f" {turn.first_page:.2f} s"
        )
    ratio = best[chosen.places].seconds / best[1].seconds
    print(f"at most {max(turn.peak_mb for turns in found.values() for turn in turns)} MB in one process")
    same = 1 == len({turn.digest for turns in found.values() for turn in turns})
    print(f"{chosen.places} places against one: {ratio:.2f} x (goal <= {GOAL} with two); the same to the byte: {same}")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
