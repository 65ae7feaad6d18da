"""Big finals: a callback of 140 MB read while it streams, against `request.json()`, and against bare writing.

Every measurement is a process of its own that reads the body from a file in pieces of 64 KiB, as a server gets it. The
three ways take turns. `whole` is what `request.json()` and a base64 decode do, and it stores nothing; `bare` hashes and
writes bytes that are already decoded.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

from docmill.dialects.secretary import SPILLS, Secretary
from docmill.dialects.spill import Reader

PIECE = 64 * 1024
FASTER = 3.0
OVER_BARE = 2.0
MEMORY_MB = 8.0


def pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as body:
        while piece := body.read(PIECE):
            yield piece


def stream(folder: Path) -> None:
    reader = Reader(folder, SPILLS)
    for piece in pieces(folder / "body"):
        reader.feed(piece)
    Secretary().read(reader.close())


def whole(folder: Path) -> None:
    value = json.loads(b"".join(pieces(folder / "body")))
    b64decode(value["data"].get("images_archive_data", ""))


def bare(folder: Path) -> None:
    content = sha256()
    with (folder / "out").open("wb") as out:
        for piece in pieces(folder / "decoded"):
            content.update(piece)
            out.write(piece)


WAYS: dict[str, Callable[[Path], None]] = {"stream": stream, "whole": whole, "bare": bare}


def one(way: str, folder: Path) -> None:
    """Run in a process of its own: seconds, and by how many MB the memory rose at its highest."""
    Path("/proc/self/clear_refs").write_text("5")
    before = memory("VmRSS")
    began = time.perf_counter()
    WAYS[way](folder)
    print(time.perf_counter() - began, memory("VmHWM") - before)


def memory(what: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) / 1024


def measure(way: str, folder: Path) -> tuple[float, float]:
    command = [sys.executable, __file__, "--one", way, "--folder", str(folder)]
    seconds, megabytes = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
    for left in folder.iterdir():
        if left.name not in ("body", "decoded"):
            left.unlink()
    return float(seconds), float(megabytes)


def make_archive(folder: Path, size: int) -> None:
    decoded = os.urandom(size * 3 // 4)
    archive = b64encode(decoded)
    (folder / "decoded").write_bytes(decoded)
    (folder / "body").write_bytes(
        b'{"phase": "completed", "data": {"extracted_text": "# Invoice\\n", "images_archive_data": "' + archive + b'"}}'
    )


def make_text(folder: Path, size: int) -> None:
    rows = [f'<td rowspan="2">{n}</td> Grüße, Straße № {n}, 文書\n' for n in range(1_000)]
    text = "".join(random.Random(1).choices(rows, k=size // 45))
    (folder / "decoded").write_text(text)
    (folder / "body").write_text(
        json.dumps({"phase": "completed", "data": {"extracted_text": text}}, ensure_ascii=False)
    )


def compare(title: str, make: Callable[[Path, int], None], size: int, rounds: int) -> bool:
    with tempfile.TemporaryDirectory(prefix="docmill-finals-") as name:
        folder = Path(name)
        make(folder, size)
        runs = {way: [measure(way, folder)] for way in WAYS}
        for _ in range(rounds - 1):
            for way, results in runs.items():
                results.append(measure(way, folder))
        megabytes = (folder / "body").stat().st_size / 1e6
    seconds = {way: statistics.median(run[0] for run in results) for way, results in runs.items()}
    peak = {way: max(run[1] for run in results) for way, results in runs.items()}
    print(f"\n{title}: {megabytes:.0f} MB, median of {rounds}")
    for way in WAYS:
        print(f"  {way:7} {seconds[way]:6.3f} s  +{peak[way]:.1f} MB")
    faster, over = seconds["whole"] / seconds["stream"], seconds["stream"] / seconds["bare"]
    verdicts = [faster >= FASTER, over <= OVER_BARE, peak["stream"] <= MEMORY_MB]
    print(f"  stream: {faster:.2f} x as fast as whole (goal >= {FASTER:g}), {over:.2f} x bare (goal <= {OVER_BARE:g}),")
    print(f"  +{peak['stream']:.1f} MB (goal <= {MEMORY_MB:g}): {'ok' if all(verdicts) else 'missed'}")
    return all(verdicts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=140_000_000, help="bytes of the huge string")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        one(given.one, given.folder)
        return 0
    good = compare("Archive in base64", make_archive, given.size, given.rounds)
    # The goals are those of the archive. Text must be unescaped and encoded anew; only its memory is bounded.
    compare("Text with escapes", make_text, given.size, given.rounds)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
