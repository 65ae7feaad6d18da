"""One run: a quiet phase for comparison, a storm, the calm after it, and the count."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.chaos.audit import FAULTS, Findings, audit, wait_until_drained
from bench.chaos.collect import collect
from bench.chaos.deployments import Deployment, Distributed, Embedded, Pace
from bench.chaos.faults import WEIGHTS, Storm
from bench.chaos.history import check
from bench.chaos.load import Document, Load, documents
from bench.chaos.mixed import MixedLoad, environment
from bench.chaos.outside import ReportingWorker, WebhookReceiver
from bench.chaos.recovery import Diaries

MODES: dict[str, type[Deployment]] = {"embedded": Embedded, "distributed": Distributed}
STUCK_S = 180.0
"""A task that is not finished that long after the last fault is stuck."""
TOLD = 5
"""How many of the slowest recoveries are explained."""


@dataclass(frozen=True)
class Plan:
    mode: str
    seed: int
    tasks: int = 1000
    kills: int = 200
    quiet_tasks: int = 60
    clients: int = 8
    per_second: float | None = None
    """Submissions; None: as many as fit into the time that the kills take."""
    kinds: tuple[str, ...] = tuple(WEIGHTS)
    pace: Pace = field(default_factory=Pace)
    pause_s: tuple[float, float] = (0.5, 2.0)
    away_s: tuple[float, float] = (0.0, 5.0)
    is_mixed: bool = True
    """External jobs, twins, mounts, retries, webhooks and watchers too, checked by history; else documents only."""

    @property
    def command(self) -> str:
        """What gives the same run again."""
        pace = self.pace
        return (
            f"python -m bench.chaos --mode {self.mode} --seeds {self.seed} --tasks {self.tasks} --kills {self.kills}"
            f" --quiet {self.quiet_tasks} --lease {pace.lease_s:g} --heartbeat {pace.heartbeat_s:g}"
            f" --sweep {pace.sweep_s:g} --pause {self.pause_s[0]:g},{self.pause_s[1]:g}"
            f" --away {self.away_s[0]:g},{self.away_s[1]:g} --load {'mixed' if self.is_mixed else 'plain'}"
            + (f" --rate {self.per_second:g}" if self.per_second else "")
            + ("" if self.kinds == tuple(WEIGHTS) else f" --faults {','.join(self.kinds)}")
        )


@dataclass
class Report:
    plan: Plan
    findings: Findings
    accepted: int
    faults: Counter[str]
    kills: int
    answers: Counter[str]
    drain_s: float
    quiet_per_s: float
    storm_per_s: float
    logged: Counter[str]
    exits: dict[str, int | None]
    unfinished_clients: int
    slowest: list[str]
    """Where the time of the slowest recoveries went."""
    observed: dict[str, int]
    """How much the check by history saw; empty: it was not made."""

    @property
    def limit_s(self) -> float:
        return self.plan.pace.lease_s + self.plan.pace.sweep_s + 2

    def recovery(self, share: float) -> float:
        return _share([one.free_s for one in self.findings.recoveries], share)

    @property
    def is_good(self) -> bool:
        bad = any(name.startswith(("bad", "no Retry-After")) for name in self.answers)
        late = self.recovery(0.95) > self.limit_s
        return self.findings.is_clean and not bad and not late and not self.unfinished_clients

    def lines(self) -> list[str]:
        plan, pace = self.plan, self.plan.pace
        counted = "  ".join(f"{fault} {self.findings.counts[fault]}" for fault in FAULTS)
        faults = ", ".join(f"{kind} {number}" for kind, number in sorted(self.faults.items()))
        again = sorted(one.running_s for one in self.findings.recoveries if one.running_s is not None)
        fenced = self.logged["attempt_dropped"] + self.logged["report_refused"]
        return [
            f"{plan.mode}, seed {plan.seed}: lease {pace.lease_s}, heartbeat {pace.heartbeat_s}, sweep {pace.sweep_s}",
            f"  accepted {self.accepted}, kills {self.kills} ({faults})",
            f"  {counted}",
            f"  recovery p50 {self.recovery(0.5):.2f} s, p95 {self.recovery(0.95):.2f} s, max {self.recovery(1):.2f} s",
            f"  of {len(self.findings.recoveries)} (p95 limit {self.limit_s:.1f} s); drained in {self.drain_s:.1f} s",
            f"  running again p50 {_share(again, 0.5):.2f} s, p95 {_share(again, 0.95):.2f} s (waits for a place, too)",
            f"  fenced {fenced}; tasks/s {self.storm_per_s:.1f} in the storm, {self.quiet_per_s:.1f} without",
            f"  answers {dict(self.answers.most_common(8))}",
            *([f"  checked by history: {_pairs(self.observed)}"] if self.observed else []),
            f"  in the logs {dict(self.logged)}; exit codes {self.exits}",
            *(f"  {example}" for example in self.findings.examples),
            *(f"  {line}" for line in self.slowest),
        ]


def _pairs(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in numbers.items())


def _share(found: list[float], share: float) -> float:
    return found[min(len(found) - 1, int(len(found) * share))] if found else 0.0


def run(plan: Plan, keep: Path | None = None) -> Report:
    folder = Path(tempfile.mkdtemp(prefix=f"docmill-chaos-{plan.mode}-"))
    (folder / "diaries").mkdir()
    exits: dict[str, int | None] = {}
    with ExitStack() as stack:
        load: Load = Load([], plan.seed)
        more: dict[str, str] = {}
        if plan.is_mixed:
            worker = stack.enter_context(ReportingWorker(plan.seed))
            receiver = stack.enter_context(WebhookReceiver())
            load = MixedLoad([], plan.seed, worker=worker, receiver=receiver)
            stack.callback(load.close)
            more = environment(worker, receiver, folder / "library")
        place = MODES[plan.mode](folder, plan.pace, tampering={"diary": str(folder / "diaries")}, environment=more)
        try:
            place.open()
            load.urls = place.urls
            return _run(plan, place, load, exits)
        finally:
            load.stop = True
            if not exits:
                exits.update(place.close())
            if keep:
                shutil.copytree(folder, keep, dirs_exist_ok=True, ignore=shutil.ignore_patterns("objects"))
            shutil.rmtree(folder, ignore_errors=True)


def _run(plan: Plan, place: Deployment, load: Load, exits: dict[str, int | None]) -> Report:
    made = documents(random.Random(plan.seed), plan.tasks + plan.quiet_tasks)
    if isinstance(load, MixedLoad):
        load.prepare()
    quiet_per_s = _quiet(plan, place, load, made[: plan.quiet_tasks])
    began = time.monotonic()
    # Not so fast that the workers cannot keep up: who waits for a place is not being recovered.
    per_second = plan.per_second or plan.tasks / (plan.kills * sum(plan.pause_s) / 2)
    threads = load.start(made[plan.quiet_tasks :], plan.clients, per_second)
    storm = Storm(place, plan.seed, plan.kinds, plan.pause_s, plan.away_s)
    # Until there were enough kills, and as long as there is work: nobody is killed only to have been killed.
    storm.rage(lambda storm: storm.kills < plan.kills or any(thread.is_alive() for thread in threads))
    storm.calm()
    calm = time.monotonic()
    for thread in threads:
        thread.join(max(1.0, STUCK_S - (time.monotonic() - calm)))
    unfinished = sum(thread.is_alive() for thread in threads)
    if isinstance(load, MixedLoad):
        unfinished += load.finish(max(1.0, STUCK_S - (time.monotonic() - calm)))
    load.stop = True
    wait_until_drained(place, max(1.0, STUCK_S - (time.monotonic() - calm)))
    ended = time.monotonic()
    findings = audit(place, load, storm.outages)
    observed = _check_history(load, findings) if isinstance(load, MixedLoad) else {}
    logged = place.supervisor.counted()
    exits.update(place.close())
    return Report(
        plan,
        findings,
        len(load.accepted),
        storm.done,
        storm.kills,
        load.answers,
        ended - calm,
        quiet_per_s,
        plan.tasks / (ended - began),
        logged,
        exits,
        unfinished,
        _slowest(place, findings, storm),
        observed,
    )


def _check_history(load: MixedLoad, findings: Findings) -> dict[str, int]:
    history = collect(load)
    for violation in check(history):
        findings.found(violation.fault, violation.task_id, f"{violation.why} (by history)")
    return {
        "tasks": len(history.records),
        "events": sum(len(record.log) for record in history.records),
        "streams": len(history.streams),
        "connections of streams": sum(stream.connections for stream in history.streams),
        "readings": sum(len(readings) for readings in history.readings.values()),
        "final reports": len(history.finals),
        "webhook messages": len(history.messages or ()),
        "webhook tries refused": load.receiver.refused if load.receiver else 0,
        "retries": sum(load.retries_confirmed.values()),
        "mounts": sum(record.mounts for record in history.records),
        "twins": sum(record.library_twin is not None for record in history.records),
        "objects": sum(len(record.stored) for record in history.records),
    }


def _slowest(place: Deployment, findings: Findings, storm: Storm) -> list[str]:
    names = {pid: unit.name for unit in place.supervisor.units for pid in unit.pids}
    diaries = Diaries.read(place.folder / "diaries", names)
    slowest = findings.recoveries[: -TOLD - 1 : -1]
    return [line for one in slowest for line in diaries.explain(one, storm.said)]


def _quiet(plan: Plan, place: Deployment, load: Load, made: list[Document]) -> float:
    if not made:
        return 0.0
    began = time.monotonic()
    for thread in load.start(made, plan.clients):
        thread.join()
    wait_until_drained(place, STUCK_S)
    return len(made) / (time.monotonic() - began)
