"""How long a dead worker's tasks waited for another one, and where the time of the slowest went."""

from __future__ import annotations

import json
import re
import socket
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.chaos.deployments import Deployment

Outage = tuple[str, float, float]
"""What was away, from when, until when."""
Rows = Mapping[int, Sequence[tuple[Any, ...]]]
"""Of each task."""
LONG_S = 0.3
"""A sweep that takes longer is told one by one."""


@dataclass(frozen=True)
class Recovery:
    """An attempt whose worker was killed. Times are those of the day, in seconds."""

    task_id: int
    attempt_id: str
    stage: str
    worker: str
    died: float
    free: float
    """Its task was free for another worker."""
    running: float | None
    """And ran: with a backlog that is also the wait for a place."""
    away_s: float
    """So long there was no database, until it was free: nobody can take over anything then."""

    @property
    def free_s(self) -> float:
        return self.free - self.died - self.away_s

    @property
    def running_s(self) -> float | None:
        return None if self.running is None else self.running - self.died - self.away_s


def recoveries(place: Deployment, events: Rows, attempts: Rows, outages: Sequence[Outage]) -> list[Recovery]:
    """Of all attempts that were under way when their worker was killed, the quickest first."""
    deaths = {pid: (unit.name, at) for unit in place.supervisor.units for pid, at in unit.deaths.items()}
    found = []
    for task_id, tried in attempts.items():
        lost = {_which(event): event[4] / 1000 for event in events[task_id] if event[2] == "worker_lost"}
        starts = [event[4] / 1000 for event in events[task_id] if event[2] == "started"]
        for _, attempt_id, stage, _, owner, started_ms, _, number in tried:
            name, died = deaths.get(_pid(owner), ("", 0.0))
            free = lost.get((stage, number), 0.0)
            if not name or started_ms is None or not started_ms / 1000 < died < free:
                continue  # it ended otherwise, or was another's by the time that its worker died
            running = min((at for at in starts if at >= free), default=None)
            away_s = _away(outages, died, free)
            found.append(Recovery(task_id, attempt_id, stage, name, died, free, running, away_s))
    return sorted(found, key=lambda one: one.free_s)


def _which(event: tuple[Any, ...]) -> tuple[str, int]:
    data = json.loads(event[3])
    return data["stage"], data["attempt"]


def _away(outages: Sequence[Outage], begin: float, end: float) -> float:
    return sum(max(0.0, min(end, until) - max(begin, since)) for what, since, until in outages if what == "postgres")


def _pid(owner: str | None) -> int:
    """A worker holds attempts as host-pid-something."""
    found = re.fullmatch(r".*?-(\d+)(-[0-9a-f]{6})?", (owner or "").removeprefix(socket.gethostname()))
    return int(found[1]) if found else 0


@dataclass(frozen=True)
class Diaries:
    """What the sweepers wrote down, by the name of their process (see `bench.chaos.tampered`)."""

    pages: Mapping[str, Sequence[Mapping[str, Any]]]

    @classmethod
    def read(cls, folder: Path, names: Mapping[int, str]) -> Diaries:
        pages: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for path in folder.glob("*.jsonl"):
            for said in _ended(path.read_text().splitlines()):
                pages[names.get(int(path.stem), path.stem)].append(said)
        return cls({name: sorted(lines, key=lambda said: said["at"]) for name, lines in sorted(pages.items())})

    def explain(self, one: Recovery, faults: Sequence[tuple[float, str]]) -> Iterator[str]:
        """The time of one recovery: the faults meanwhile, the end of the lease, and what each sweeper did after it."""
        ends = self._lease_end(one)
        again = "never again" if one.running_s is None else f"running again after {one.running_s:.2f} s"
        yield (
            f"task {one.task_id}, {one.stage}: free {one.free_s:.2f} s after {one.worker} was killed, {again}"
            f" (besides {one.away_s:.2f} s without PostgreSQL)"
        )
        said = [(at, what) for at, what in faults if one.died - 15 < at <= one.free]
        said += [(ends, "the lease ended")] if ends else []
        yield "  " + ", ".join(f"{at - one.died:+.2f} {what}" for at, what in sorted(said))
        for name, lines in self.pages.items():
            swept = [line for line in lines if line["at"] <= one.free and line["until"] >= (ends or one.died)]
            if swept:
                yield f"  {name}: {_told(swept, one.died)}"

    def _lease_end(self, one: Recovery) -> float | None:
        """As the sweepers saw it last, for until then it may have been renewed."""
        known = [
            line["lease_ms"] / 1000
            for lines in self.pages.values()
            for line in lines
            if line.get("attempt") == one.attempt_id and line["lease_ms"] and line["at"] <= one.free
        ]
        return max(known, default=None)


def _ended(lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Each thing once: as it ended, or as it began if its process did not live to see the end."""
    begun: dict[tuple[str, float], dict[str, Any]] = {}
    for line in lines:
        if line.endswith("}"):
            said = json.loads(line)
            begun[said["what"], said["at"]] = said
    for said in begun.values():
        yield {"until": said["at"], **said}


def _told(lines: Sequence[Mapping[str, Any]], zero: float) -> str:
    """Short ones are counted; what was long, went wrong or came to no end is told."""
    short = sum(line["what"] == "sweep" and _is_plain(line) for line in lines)
    words = [f"{short} short sweeps"]
    for line in lines:
        if line["what"] == "up":
            words.append(f"{line['at'] - zero:+.2f} up")
        elif not _is_plain(line):
            how = line.get("error") or ("done" if "mended" in line or "done" in line else "no end")
            words.append(f"{line['at'] - zero:+.2f} to {line['until'] - zero:+.2f} {line['what']}: {how}")
    return ", ".join(words)


def _is_plain(line: Mapping[str, Any]) -> bool:
    return "error" not in line and ("mended" in line or "done" in line) and line["until"] - line["at"] < LONG_S
