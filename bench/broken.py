"""Every broken file that we can make, through the local engine: no crash, no hang, no wrong success.

    python bench/broken.py [--jobs N] [--only TEXT]

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
from docmill.adapters.engines.local.markdown import coverage
from docmill.core.errors import DocumentError, StageFailed
from docmill.core.parsed import Parsed
from docmill.ports import Work
from support import broken

SECONDS = 60
MEANT = frozenset({"parse_timeout", "parse_memory", "parse_crashed", "parse_output_too_large"})
"""How a file may end that was made to kill its reader: the child dies, the service says so."""
KILLERS = ("pdf/recursive form", "pdf/self-drawing form", "bomb/")
LOST = 0.5


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
        try:
            parsed = await self.parse(file.data, file.filename)
        except DocumentError as error:
            return error.code, ""
        except StageFailed as error:
            is_meant = error.code in MEANT and file.name.startswith(KILLERS)
            return error.code, "" if is_meant else f"{error}"
        if parsed.damaged_pages:
            return "damaged pages", ""
        return "read", self.judge(file, parsed)

    def judge(self, file: broken.Broken, parsed: Parsed) -> str:
        """A container or page that was hurt must not pass for whole when its words are gone."""
        if not file.whole or file.whole in broken.TEXTS or parsed.facts.get("warnings"):
            return ""
        left = coverage(self.whole[file.whole], parsed.markdown)
        return f"read as if whole, with {left:.0%} of its words" if left < LOST else ""


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
    ask.add_argument("--only", default="")
    asked = ask.parse_args()
    files = [file for file in broken.all_files() if asked.only in file.name]
    raise SystemExit(asyncio.run(run(asked.jobs, files)))


if __name__ == "__main__":
    main()
