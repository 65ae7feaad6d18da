"""Every broken file that we can make, through the local engine: no crash, no hang, no wrong success.

    python bench/broken.py [--jobs N] [--only TEXT] [--flips N]

Each file ends with a code of the catalogue, with pages marked as damaged, or read; a file that was cut or bent and is
read without a word about it must still hold the words of the sound one.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from docmill.adapters.engines.local import Limits, LocalEngine
from docmill.core.errors import DocmillError, DocumentError, StageFailed
from docmill.core.parsed import Parsed
from docmill.ports import Work
from support import broken

SECONDS = 60


class Bench:
    def __init__(self, jobs: int, folder: Path) -> None:
        self.engine = LocalEngine(jobs, Limits(seconds=SECONDS))
        self.folder = folder
        self.whole: dict[str, str] = {}

    async def parse(self, data: bytes, filename: str) -> Parsed:
        folder = self.folder / uuid4().hex
        folder.mkdir()
        (folder / "source").write_bytes(data)
        work = Work(0, uuid4(), folder / "source", filename, folder)
        parsed = await self.engine.start(work, lambda _done, _total: None)
        assert isinstance(parsed, Parsed)
        return parsed

    async def learn(self) -> None:
        for kind, data in broken.sound().items():
            self.whole[kind] = (await self.parse(data, broken.Broken("", b"", kind).filename)).markdown

    async def outcome(self, file: broken.Broken) -> tuple[str, str]:
        """What became of the file, and what is wrong with that, if anything."""
        ended: Parsed | DocmillError
        try:
            ended = await self.parse(file.data, file.filename)
        except (DocumentError, StageFailed) as error:
            ended = error
        name = ended.code if isinstance(ended, DocmillError) else "damaged pages" if ended.damaged_pages else "read"
        return name, broken.complaint(file, ended, self.whole)


async def run(jobs: int, files: Sequence[broken.Broken]) -> int:
    counts: Counter[tuple[str, str]] = Counter()
    wrong: list[str] = []
    slowest: list[tuple[float, str]] = []
    gate = asyncio.Semaphore(jobs)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(jobs, Path(folder))
        await bench.learn()

        async def one(file: broken.Broken) -> None:
            async with gate:
                began = time.monotonic()
                ended, complaint = await bench.outcome(file)
                slowest.append((time.monotonic() - began, file.name))
            counts[file.kind, ended] += 1
            if complaint:
                wrong.append(f"{file.name}: {ended}: {complaint}")

        await asyncio.gather(*map(one, files))
        await bench.engine.close()
    for (kind, ended), count in sorted(counts.items()):
        print(f"{kind:10} {ended:26} {count:4}")
    print(f"{len(files)} files; slowest: " + ", ".join(f"{name} {took:.1f} s" for took, name in sorted(slowest)[-3:]))
    print("\n".join(["wrong:", *sorted(wrong)]) if wrong else "none of them crashed, hung or passed for whole")
    return 1 if wrong else 0


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--jobs", type=int, default=2)
    ask.add_argument("--only", default="", help="parts of names, separated by commas")
    ask.add_argument("--flips", type=int, default=broken.FLIPS, help="files of each format with flipped bits")
    asked = ask.parse_args()
    wanted = asked.only.split(",")
    files = [file for file in broken.all_files(asked.flips) if any(part in file.name for part in wanted)]
    raise SystemExit(asyncio.run(run(asked.jobs, files)))


if __name__ == "__main__":
    main()
