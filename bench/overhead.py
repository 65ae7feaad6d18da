"""Overhead: mixed documents through the whole service against the same engine in a plain loop on the same cores.

The service stores the source, keeps a ledger of every step, writes artifacts, assembles and stores the document; the
loop parses and forgets. Both sides use one engine with the same slots, on the event loop that `docmill serve` has, and
take turns, each with all documents: a handful alone would mostly show how a queue fills and empties.

Mixed are the samples, one after the other: PDFs, scans, photos, Office, web, mail and text. Recognising a scan takes
most of the time on either path, so the same is shown without scans and pictures, for whoever has none.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import uvloop

from docmill import compose, settings
from docmill.core.access import LOCAL
from docmill.core.task import Wishes
from docmill.ports import Engine, Ports, Work
from docmill.work import intake, query
from embedded import upload

GOAL = 1.10
SLOTS = 2
SAMPLES = Path(__file__).parent.parent / "samples"
SCANS = ("scan", "photo", "sign")


def documents(count: int, *, with_scans: bool = True) -> list[Path]:
    left_out = ("README",) if with_scans else ("README", *SCANS)
    mixed = [path for path in sorted(SAMPLES.iterdir()) if path.suffix and not path.name.startswith(left_out)]
    return [mixed[n % len(mixed)] for n in range(count)]


async def plain(engine: Engine, batch: list[Path], folder: Path) -> float:
    gate = asyncio.Semaphore(SLOTS)

    async def one(path: Path) -> None:
        async with gate:
            place = folder / uuid4().hex
            (place / "assets").mkdir(parents=True)
            shutil.copy(path, place / "source")
            await engine.start(Work(0, uuid4(), place / "source", path.name, place), lambda _done, _all: None)
            shutil.rmtree(place)

    began = time.perf_counter()
    await asyncio.gather(*(one(path) for path in batch))
    return time.perf_counter() - began


async def through(ports: Ports, batch: list[Path]) -> float:
    async def one(path: Path) -> None:
        key = await upload(ports, path.name, path.read_bytes())
        wanted = intake.Submission(s3_key=key, filename=path.name, wishes=Wishes(no_cache=True))
        task, _ = await intake.submit(ports, LOCAL, wanted)
        while not task.is_final:
            task = await query.changed(ports, LOCAL, task.id, seconds=30, version=task.version)
        assert task.status == "completed", task.fault

    began = time.perf_counter()
    await asyncio.gather(*(one(path) for path in batch))
    return time.perf_counter() - began


@asynccontextmanager
async def service() -> AsyncIterator[tuple[Ports, Path]]:
    with tempfile.TemporaryDirectory() as name:
        chosen = settings.load(data=Path(name) / "data", jobs=SLOTS)
        async with compose.opened(chosen) as ports, compose.working(chosen, ports):
            compose.settle()
            yield ports, Path(name)


async def measure(whole: list[Path], turns: int) -> float:
    async with service() as (ports, folder):
        engine = ports.engines["local"]
        kinds = list(dict.fromkeys(whole))
        await plain(engine, kinds * SLOTS, folder)
        await through(ports, kinds)
        ratios, loop, ours = [], 0.0, 0.0
        for n in range(turns):
            sides = [await plain(engine, whole, folder), await through(ports, whole)]
            loop, ours = loop + sides[0], ours + sides[1]
            ratios.append(sides[1] / sides[0])
            print(f"  turn {n + 1}: plain loop {sides[0]:.2f} s, docmill {sides[1]:.2f} s, {ratios[-1]:.2f} x")
    print(f"  plain loop   {loop:7.2f} s")
    print(f"  docmill      {ours:7.2f} s")
    print(f"  ratio        {ours / loop:7.2f} x  (median of turns {statistics.median(ratios):.2f})")
    return ours / loop


async def main(count: int, turns: int) -> bool:
    print(f"overhead: {count} mixed documents, {SLOTS} slots, {turns} turns; goal {GOAL} x")
    ratio = await measure(documents(count), turns)
    print(f"overhead without scans and pictures: {count} documents, {SLOTS} slots, {turns} turns; no goal")
    await measure(documents(count, with_scans=False), turns)
    return ratio <= GOAL


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(0 if runner.run(main(given.documents, given.turns)) else 1)
