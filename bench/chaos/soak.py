"""Run the wide load at a modest rate for an hour, and see whether anything grows that should not.

    python -m bench.chaos.soak                                  one hour in each mode
    python -m bench.chaos.soak --minutes 5 --mode embedded

Sampled every few seconds: memory, file descriptors and threads of each process, number and memory of its parsers, rows
of each table, keys in Redis, files in scratch folders and objects in the store. After the warm-up a line is fitted to
each series, and over the rest of the run it may rise by no more than a limit. Tables that hold what a task leaves,
objects and run states in Redis grow with the tasks, so they must be flat per task; everything else must be flat. The
tasks are checked by history, in batches. The exit code is 1 if anything grows or a check fails.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import httpx2

from bench.chaos.collect import collect
from bench.chaos.deployments import Deployment, Distributed, Embedded, Pace
from bench.chaos.history import Violation, check
from bench.chaos.load import Document, documents
from bench.chaos.mixed import MixedLoad, environment
from bench.chaos.outside import ReportingWorker, WebhookReceiver

MB = 1024**2
MODES = ("distributed", "embedded")
WARM_UP_SHARE = 0.3
"""Of the run: caches, pools and the allocator reach their size."""
BATCH_S = 120.0
"""Tasks are checked and forgotten after each batch, so that this process stays small itself."""
MIN_SAMPLES = 10
SQLITE = "sqlite-memory"
PACE = Pace(lease_s=15.0, heartbeat_s=5.0, sweep_s=2.0)
"""The defaults of the product: this is about the long run, not about faults."""


@dataclass(frozen=True)
class Limit:
    """By how much a fitted line may rise after the warm-up: the larger of both."""

    absolute: float
    share: float = 0.0

    def allows(self, rise: float, mean: float) -> bool:
        return rise <= max(self.absolute, self.share * abs(mean))


LIMITS = {
    "memory of": Limit(8.0),
    "descriptors of": Limit(5.0),
    "threads of": Limit(4.0),
    "parsers of": Limit(1.5),
    "memory of SQLite": Limit(96.0),
    "memory of the largest parser of": Limit(60.0),
    "redis run states per task": Limit(0.05),
    "redis keys beside run states": Limit(20.0),
    "scratch files": Limit(5.0),
    "rows per task in": Limit(0.1, 0.05),
    "rows in": Limit(50.0),
    "objects per task": Limit(0.2),
}
"""By the first words of a series' name, the longest that fits; memory is in MB. An hour is 3,600 tasks, so that a leak
of 4 KB, a hundredth of a descriptor or a fiftieth of a row per task breaks its limit. Parsers are renewed after some
documents, so that their number and memory goes up and down. SQLite caches pages of a growing database, up to 16 MB for
each of its six connections; the memory of its process is counted without it."""
PER_TASK = frozenset(
    [
        *("tasks", "attempts", "events", "idempotency", "parses", "results", "deliveries", "mounts"),
        *("documents", "assets", "document_assets"),
    ]
)
"""Tables with what a task leaves. The rows of all others do not depend on the number of tasks."""


@dataclass(frozen=True)
class Fit:
    """A series after its warm-up, and the line through it."""

    name: str
    first: float
    last: float
    mean: float
    rise: float
    """Of the fitted line, from the end of the warm-up to the end of the run."""
    is_flat: bool


def fit(name: str, series: Sequence[tuple[float, float]], limit: Limit) -> Fit:
    """The least-squares line through what comes after the warm-up. *series*: seconds and values."""
    after = [one for one in series if one[0] >= series[-1][0] * WARM_UP_SHARE]
    times, values = [at for at, _ in after], [value for _, value in after]
    middle, mean = fmean(times), fmean(values)
    spread = sum((at - middle) ** 2 for at in times)
    slope = sum((at - middle) * (value - mean) for at, value in after) / spread if spread else 0.0
    rise = slope * (times[-1] - times[0])
    return Fit(name, values[0], values[-1], mean, rise, limit.allows(rise, mean))


def limit_of(name: str) -> Limit:
    return LIMITS[max((words for words in LIMITS if name.startswith(words)), key=len)]


@dataclass
class Samples:
    """Series by name."""

    series: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, seconds: float, values: dict[str, float]) -> None:
        for name, value in values.items():
            self.series[name].append((seconds, value))

    def fits(self) -> Iterator[Fit]:
        for name, series in sorted(self.series.items()):
            if len(series) >= MIN_SAMPLES:
                yield fit(name, series, limit_of(name))


def sample(place: Deployment, tasks: int) -> dict[str, float]:
    """One look at everything."""
    values: dict[str, float] = {}
    for unit in place.supervisor.units:
        if unit.process is not None:
            values |= _processes(unit.name, unit.process.pid)
    if isinstance(place, Embedded):
        values |= _without_sqlite(place, values)
    for name, count in _tables(place).items():
        if name not in PER_TASK:
            values[f"rows in {name}"] = float(count)
        elif tasks:
            values[f"rows per task in {name}"] = count / tasks
    if tasks:
        values["objects per task"] = _objects(place) / tasks
    values["scratch files"] = float(_scratch(place))
    if isinstance(place, Distributed):
        states, others = _redis_keys(place)
        values["redis keys beside run states"] = float(others)
        if tasks:
            values["redis run states per task"] = states / tasks
    return values


def _processes(name: str, pid: int) -> dict[str, float]:
    """What a process costs, and its parsers, which come and go."""
    values: dict[str, float] = {}
    with suppress(OSError, ValueError, KeyError):
        values |= {f"{what} of {name}": cost for what, cost in _costs(pid).items()}
    parsers = []
    for child in _family(pid)[1:]:
        with suppress(OSError, ValueError, KeyError):  # it ends just now, and has no memory any more
            parsers.append(_costs(child)["memory"])
    if parsers:
        values[f"parsers of {name}"] = float(len(parsers))
        values[f"memory of the largest parser of {name}"] = max(parsers)
    return values


def _without_sqlite(place: Embedded, values: dict[str, float]) -> dict[str, float]:
    file = place.folder / SQLITE
    used = int(file.read_text() or 0) / MB if file.exists() else 0.0
    return {"memory of SQLite": used, "memory of serve": values.get("memory of serve", used) - used}


def _family(pid: int) -> list[int]:
    found, ahead = [], [pid]
    while ahead:
        one = ahead.pop()
        found.append(one)
        with suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                ahead += [int(child) for child in (task / "children").read_text().split()]
    return found


def _costs(pid: int) -> dict[str, float]:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return {
        "memory": int(status["RssAnon"].split()[0]) * 1024 / MB,
        "threads": float(status["Threads"]),
        "descriptors": float(sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())),
    }


def _tables(place: Deployment) -> dict[str, int]:
    if isinstance(place, Distributed):
        names = place.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    else:
        names = place.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
    return {name: int(place.rows(f'SELECT count(*) FROM "{name}"')[0][0]) for (name,) in names}


def _objects(place: Deployment) -> int:
    if not isinstance(place, Distributed):
        return _files(place.folder / "data/objects")
    import obstore

    return sum(len(batch) for batch in obstore.list(place.objects.address.store("chaos")))


def _scratch(place: Deployment) -> int:
    return sum(_files(folder) for folder in place.folder.glob("*/scratch"))


def _files(folder: Path) -> int:
    """How many there are. `os.walk` passes over folders that are removed meanwhile."""
    return sum(len(names) for _, _, names in os.walk(folder))


def _redis_keys(place: Distributed) -> tuple[int, int]:
    """Run states, of which each task has one for an hour after its end, and all other keys."""
    from redis import Redis as Client

    with Client.from_url(place.redis.url) as client:
        states = sum(1 for _ in client.scan_iter(match="etl:task:*", count=1000))
        return states, int(client.dbsize()) - states


@dataclass
class Soak:
    """The load in batches, with a sample every few seconds."""

    place: Deployment
    worker: ReportingWorker
    receiver: WebhookReceiver
    seed: int
    minutes: float
    per_second: float
    every_s: float
    samples: Samples = field(default_factory=Samples)
    violations: list[Violation] = field(default_factory=list)
    bad: Counter[str] = field(default_factory=Counter)
    accepted: int = 0

    def run(self) -> None:
        chance, began = random.Random(self.seed), time.monotonic()
        ends = began + self.minutes * 60
        batch = 0
        while (left := ends - time.monotonic()) > 0:
            seconds = min(BATCH_S, left)
            made = documents(chance, max(4, round(self.per_second * seconds)))
            self._run_batch(made, batch, began)
            batch += 1

    def _run_batch(self, made: list[Document], number: int, began: float) -> None:
        load = MixedLoad(self.place.urls, self.seed + number, worker=self.worker, receiver=self.receiver)
        self.receiver.is_steady = False
        load.prepare()
        try:
            threads = load.start(made, 4, self.per_second)
            while any(thread.is_alive() for thread in threads):
                threads[0].join(self.every_s)
                self._sample(began, len(load.accepted))
            unfinished = load.finish(BATCH_S)
            history = collect(load)
            history.listed = None  # it holds the tasks of all batches
            found = check(history)
            self.violations += found
            self.accepted += len(load.accepted)
            self.bad.update(f"{unfinished} unfinished" for _ in range(bool(unfinished)))
            self.bad.update(said for said in load.answers if said.startswith(("bad", "no Retry-After")))
        finally:
            load.close()
            self._remove_webhook(load)
        self.worker.forget()
        self.receiver.forget()
        self._sample(began, 0)
        print(f"  batch {number}: {self.accepted} tasks accepted, {len(self.violations)} violations", flush=True)
        for violation in found:
            print(f"    {violation.fault}: task {violation.task_id}: {violation.why}", flush=True)

    def _remove_webhook(self, load: MixedLoad) -> None:
        """Else each batch would be told of the tasks of all later ones."""
        httpx2.delete(f"{load.urls[0]}/api/v1/webhooks/{load.webhook_id}", timeout=30, trust_env=False)

    def _sample(self, began: float, accepted: int) -> None:
        tasks = self.accepted + accepted
        self.samples.add(time.monotonic() - began, sample(self.place, tasks))


def soak(mode: str, *, minutes: float, per_second: float, seed: int, every_s: float | None = None) -> bool:
    every_s = every_s or max(1.0, min(10.0, minutes * 60 / 60))
    print(
        f"$ python -m bench.chaos.soak --mode {mode} --minutes {minutes:g} --rate {per_second:g} --seed {seed}",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix=f"docmill-soak-{mode}-") as name, ExitStack() as stack:
        folder = Path(name)
        worker = stack.enter_context(ReportingWorker(seed))
        receiver = stack.enter_context(WebhookReceiver())
        more = environment(worker, receiver, folder / "library")
        place: Deployment
        if mode == "distributed":
            place = Distributed(folder, PACE, apis=2, workers=2, environment=more)
        else:
            place = Embedded(folder, PACE, environment=more, tampering={"sqlite": str(folder / SQLITE)})
        stack.callback(place.close)
        place.open()
        running = Soak(place, worker, receiver, seed, minutes, per_second, every_s)
        running.run()
        restarts = {unit.name: unit.starts - 1 for unit in place.supervisor.units if unit.starts > 1}
    return _tell(running, restarts)


def _tell(running: Soak, restarts: dict[str, int]) -> bool:
    fits = list(running.samples.fits())
    print(f"{'series':<44} {'first':>9} {'last':>9} {'rise':>9}")
    for one in fits:
        verdict = "" if one.is_flat else "  GROWS"
        print(f"{one.name:<44} {one.first:>9.2f} {one.last:>9.2f} {one.rise:>+9.2f}{verdict}")
    growing = [one.name for one in fits if not one.is_flat]
    print(f"accepted {running.accepted}, violations {len(running.violations)}, restarts {restarts or 0}")
    for said, number in running.bad.items():
        print(f"  {number} times {said}")
    if not fits:
        print("  too few samples to fit a line")
    return bool(fits) and not (growing or running.violations or running.bad or restarts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=[*MODES, "both"], default="both")
    parser.add_argument("--minutes", type=float, default=60.0, help="in each mode")
    parser.add_argument("--rate", type=float, default=1.0, help="submissions per second")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    modes = MODES if given.mode == "both" else [given.mode]
    flat = [soak(mode, minutes=given.minutes, per_second=given.rate, seed=given.seed) for mode in modes]
    return 0 if all(flat) else 1


if __name__ == "__main__":
    sys.exit(main())
