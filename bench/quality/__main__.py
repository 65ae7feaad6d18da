"""Quality and speed of docmill beside its peers on the corpus, in one run.

Reads `../shared/corpus` (or --corpus, or DOCMILL_CORPUS). Peers are installed by `make bench-peers`; one that is
missing is named and left out. Costs are processor time, so other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import report, runs, sets

ROOT = Path(__file__).parent.parent.parent
CORPUS = Path(os.environ.get("DOCMILL_CORPUS", ROOT.parent / "shared" / "corpus"))
PLOT = ROOT / "docs" / "images" / "quality.svg"
DIGITAL = ("pdf", "rendered", "prints-plain", "prints-tagged")
ALL = (*runs.OURS, *runs.ELSEWHERE)


def install() -> None:
    for name, packages in runs.ELSEWHERE.items():
        home = runs.PEERS / name
        if not (home / "bin" / "python").exists():
            subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run([*pip, *packages], check=False)
        print(f"{name}: {'installed' if not done.returncode else 'could not be installed'}")


def measure(engine: str, name: str, items: list[sets.Item], processes: int, keep: Path | None) -> list[dict[str, Any]]:
    """One row for each part of the set: what rules were made on, and what they were not."""
    run = runs.run(engine, [item.path for item in items], processes)
    outcomes = [(item, run.outcomes[item.path.stem]) for item in items]
    found = sets.score_all([(item, outcome.markdown) for item, outcome in outcomes])
    if keep:
        folder = keep / engine / name
        folder.mkdir(parents=True, exist_ok=True)
        for item, outcome in outcomes:
            (folder / f"{item.path.stem}.md").write_text(outcome.markdown)
    parts = [sets.TUNED, sets.UNSEEN] if name in sets.SPLIT else [""]
    rows = []
    for part in parts:
        own = [number for number, item in enumerate(items) if part in ("", item.part)]
        if own:
            rows.append(summarize(engine, name, part, [(*outcomes[number], found[number]) for number in own], run))
    return rows


Scored = tuple[sets.Item, runs.Outcome, dict[str, float]]


def summarize(engine: str, name: str, part: str, scored: list[Scored], run: runs.Run) -> dict[str, Any]:
    items = [item for item, _, _ in scored]
    outcomes = [(item, outcome) for item, outcome, _ in scored]
    found = [one for _, _, one in scored]
    pages = sum(item.pages for item in items)
    row = {
        "set": name,
        "part": part,
        "engine": engine,
        "scores": sets.means(found),
        "documents": len(items),
        "pages": pages,
        "cpu_ms": sum(outcome.cpu for _, outcome in outcomes) / max(1, pages) * 1000,
        "peak_mb": run.peak_mb,
        "failed": sum(outcome.error is not None or not outcome.markdown.strip() for _, outcome in outcomes),
        "errors": {item.path.stem: outcome.error for item, outcome in outcomes if outcome.error},
        "each": {
            item.path.stem: {**one, "cpu_ms": outcome.cpu * 1000}
            for (item, outcome), one in zip(outcomes, found, strict=True)
        },
    }
    if name in DIGITAL:
        digital = [(item.pages, outcome.cpu) for item, outcome in outcomes if item.has_text]
        row["digital"] = [sum(pages for pages, _ in digital), sum(cpu for _, cpu in digital)]
    if name == "scans":
        kinds = sorted({sets.scan_kind(item) for item in items})
        row["kinds"] = {
            kind: sets.means([one for item, one in zip(items, found, strict=True) if sets.scan_kind(item) == kind])
            for kind in kinds
        }
    return row


def main() -> int:
    given = arguments()
    if given.install:
        install()
        return 0
    if not given.corpus.is_dir():
        print(f"There is no corpus at {given.corpus}. Name it with --corpus or DOCMILL_CORPUS.")
        return 2
    missing = [engine for engine in given.engine if not runs.starts(engine)]
    rows: list[dict[str, Any]] = []
    for name in given.set:
        items = [item for item in sets.items(given.corpus, name, given.limit) if given.part in ("", item.part)]
        for engine in given.engine:
            if engine in missing or name not in sets.READS.get(engine, sets.SETS):
                continue
            rows += measure(engine, name, items, given.processes, given.keep)
            print(f"  {name} {engine}: done", file=sys.stderr)
    together(rows)
    print(report.table(rows))
    print(report.structure_table(rows))
    for row in rows:
        for kind, found in row.get("kinds", {}).items():
            said = f"{found['cer']:.2%} ({found['cer_any_order']:.2%} in any order)"
            joined = f"{found['cer_joined']:.2%} ({found['cer_joined_any_order']:.2%})"
            bare = f"{found['cer_bare']:.2%} ({found['cer_bare_any_order']:.2%})"
            print(
                f"  scans {row['engine']} {kind}: {said}; without blanks inside Chinese {joined}; letters alone {bare}"
            )
    if missing:
        print(f"not installed (make bench-peers), or does not start: {', '.join(missing)}")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))
    shown = [row for row in rows if row["set"] == "pdf" and row["part"] == sets.UNSEEN]
    if given.plot and shown:
        given.plot.parent.mkdir(parents=True, exist_ok=True)
        given.plot.write_text(report.plot(shown, f"{datetime.now(UTC):%B %Y}"))
    return 0


def together(rows: list[dict[str, Any]]) -> None:
    """The goal for speed is over these sets together, for pages that were born digital: a few of `pdf` are scans."""
    for engine in dict.fromkeys(row["engine"] for row in rows):
        both = [row for row in rows if row["engine"] == engine and row["set"] in DIGITAL]
        if len({row["set"] for row in both}) < 2:
            continue
        every = [sum(row["pages"] for row in both), sum(row["cpu_ms"] * row["pages"] for row in both) / 1000]
        digital = [sum(row["digital"][n] for row in both) for n in (0, 1)]
        for name, (pages, cpu) in (("all digital sets", every), ("born digital", digital)):
            rows.append(
                {
                    "set": name,
                    "part": "",
                    "engine": engine,
                    "scores": {},
                    "pages": pages,
                    "cpu_ms": cpu / max(1, pages) * 1000,
                    "peak_mb": max(row["peak_mb"] for row in both),
                    "failed": sum(row["failed"] for row in both),
                }
            )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="quality", description=__doc__)
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--set", nargs="+", choices=sets.SETS, default=sets.SETS)
    parser.add_argument("--engine", nargs="+", choices=ALL, default=("docmill",), help="peers are kept once they ran")
    parser.add_argument("--peers", action="store_const", dest="engine", const=ALL, help="docmill and every peer")
    parser.add_argument("--part", choices=(sets.TUNED, sets.UNSEEN), default="", help="one part of each set only")
    parser.add_argument("--limit", type=int, help="documents per set, evenly spread")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="a folder for every engine's Markdown")
    parser.add_argument("--plot", type=Path, nargs="?", const=PLOT, help=f"write the plot ({PLOT.relative_to(ROOT)})")
    parser.add_argument("--install", action="store_true", help="install the peers, each into its own environment")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
