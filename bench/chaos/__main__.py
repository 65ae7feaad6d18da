"""Kill what docmill is made of, again and again, and count what went wrong.

    python -m bench.chaos                                  both modes, one seed each, some minutes
    python -m bench.chaos --mode distributed --seeds 1,2,3 --tasks 1000 --kills 200
    python -m bench.chaos --mode distributed --faults worker,zombie

Every run prints its seed; the same seed gives the same documents and the same order of faults. The exit code is 1 if
anything was lost, stuck, doubled, wrong or unreadable, if a client got an answer that it should not have got, or if
recovery took longer than lease + sweep + 2 s (p95).
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from bench.chaos.deployments import Pace
from bench.chaos.faults import WEIGHTS
from bench.chaos.run import MODES, Plan, run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=[*MODES, "both"], default="both")
    parser.add_argument("--seeds", default="20261115")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--quiet", type=int, default=60, help="tasks before the first fault, for comparison")
    parser.add_argument("--rate", type=float, help="submissions per second; else as many as fit into the storm")
    parser.add_argument("--faults", default=",".join(WEIGHTS), help="which, separated by commas")
    parser.add_argument("--lease", type=float, default=Pace.lease_s)
    parser.add_argument("--heartbeat", type=float, default=Pace.heartbeat_s)
    parser.add_argument("--sweep", type=float, default=Pace.sweep_s)
    parser.add_argument("--pause", default="0.5,2.0", help="seconds between two faults, from,to")
    parser.add_argument("--away", default="0,5", help="seconds that a server stays away, from,to")
    parser.add_argument("--load", choices=["mixed", "plain"], default="mixed", help="plain: documents only")
    parser.add_argument("--keep", type=Path, help="a folder for the logs")
    given = parser.parse_args()
    # Whoever ends us early shall not leave processes behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    pace = Pace(given.lease, given.heartbeat, given.sweep)
    good = True
    for mode in MODES if given.mode == "both" else [given.mode]:
        for seed in given.seeds.split(","):
            plan = Plan(
                mode,
                int(seed),
                tasks=given.tasks,
                kills=given.kills,
                quiet_tasks=given.quiet,
                per_second=given.rate,
                kinds=tuple(given.faults.split(",")),
                pace=pace,
                pause_s=_pair(given.pause),
                away_s=_pair(given.away),
                is_mixed=given.load == "mixed",
            )
            print(f"$ {plan.command}", flush=True)
            report = run(plan, given.keep)
            print("\n".join(report.lines()), flush=True)
            good &= report.is_good
    return 0 if good else 1


def _pair(text: str) -> tuple[float, float]:
    low, high = text.split(",")
    return float(low), float(high)


if __name__ == "__main__":
    sys.exit(main())
