"""Upgrade under load: the previous version beside this one, and the migration between them.

    python -m bench.chaos.upgrade
    python -m bench.chaos.upgrade --previous <commit> --tasks 120

The previous version is the last commit before the newest migration, taken from git. Distributed, while clients submit:

1. Old API processes and old workers run.
2. A new worker starts and migrates the database. The old processes go on with the newer schema.
3. The API processes are replaced by new ones, one after the other. The old workers go on.
4. An old worker that starts now is refused (`database_newer`) and changes nothing.
5. The old workers are replaced. Everything that was accepted is checked by history, as after a storm.

Embedded, the old process is killed while it works, the new one takes over its data folder, and the old one is refused.

As long as an old API answers, each job gets one final report and streams are not watched: the previous version may
have faults there that this one mends. Once all API processes are new, every final report that the old ones took is sent
again, together with a different one for the same job, and the wide load begins: several finals at once, slow and late
ones, and watchers.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.chaos.audit import audit, wait_until_drained
from bench.chaos.collect import collect
from bench.chaos.deployments import Deployment, Distributed, Embedded, Pace
from bench.chaos.history import check
from bench.chaos.load import documents
from bench.chaos.mixed import MixedLoad, Shares, environment
from bench.chaos.nursery import Nursery
from bench.chaos.outside import MANNERS, ReportingWorker, WebhookReceiver
from bench.chaos.units import Unit

ROOT = Path(__file__).parent.parent.parent
MIGRATIONS = "src/docmill/adapters/sql/migrations"
PHASE_S = 120.0
"""Of waiting for a phase: far more than one takes."""
REFUSED_S = 60.0
PER_S = 3.0
"""Submissions per second."""
MAX_SHARE = 30
"""So many times the wanted tasks are there to be submitted, for a slow machine."""
PACE = Pace(lease_s=4.0, heartbeat_s=1.0, sweep_s=0.5)
PLAIN = {"plain": 1}
"""How external workers report to the previous version."""


class UpgradeFailed(Exception):
    """Something did not hold."""


def previous_commit(root: Path = ROOT) -> str:
    """The last commit without the newest migration."""
    newest = max(path.name for path in (root / MIGRATIONS).glob("*.sql"))
    added = _git(root, "log", "--diff-filter=A", "--format=%H", "-1", "--", f"{MIGRATIONS}/{newest}")
    if not added:
        raise UpgradeFailed(f"{newest} is not committed, or the history is not here: use --previous")
    return _git(root, "rev-parse", "--short=12", f"{added}^1")


def extract(commit: str, target: Path, root: Path = ROOT) -> Path:
    """The sources of a commit; its `src` folder."""
    target.mkdir()
    packed = subprocess.run(["git", "-C", str(root), "archive", commit, "src"], stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-x", "-C", str(target)], input=packed.stdout, check=True)
    return target / "src"


def newest_migration(source: Path) -> int:
    folder = source / "docmill/adapters/sql/migrations"
    return max(int(path.name.partition("_")[0]) for path in folder.glob("*.sql"))


@dataclass
class Upgrade:
    """One upgrade of one deployment, step by step."""

    place: Deployment
    load: MixedLoad
    old: Nursery
    schemas: tuple[int, int]
    """The newest migration of the old and of the new version."""
    said: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.said.append(text)
        print(f"  {text}", flush=True)

    def until(self, condition: Callable[[], object], what: str) -> None:
        ends = time.monotonic() + PHASE_S
        while not condition():
            if time.monotonic() > ends:
                raise UpgradeFailed(f"{what}: not within {PHASE_S:g} s\n{self.place.log_tails()[-6000:]}")
            time.sleep(0.05)

    def until_accepted(self, count: int) -> None:
        self.until(lambda: len(self.load.accepted) >= count, f"{count} tasks accepted")

    def until_more(self, count: int) -> None:
        self.until_accepted(len(self.load.accepted) + count)

    def submit(self, tasks: int) -> list[threading.Thread]:
        """Begin to submit, and go on until `end`: a step takes as long as it takes."""
        made = documents(random.Random(self.load.seed), MAX_SHARE * tasks)
        return self.load.start(made, 4, per_second=PER_S)

    def end(self, threads: list[threading.Thread], tasks: int) -> None:
        self.until_accepted(tasks)
        self.load.is_enough = True
        for thread in threads:
            thread.join(PHASE_S)

    @property
    def schema(self) -> int:
        return int(self.place.rows("SELECT max(number) FROM migrations")[0][0])

    def refuse(self, like: Unit) -> None:
        """The old version starts on the newer schema: it says so and ends, without a trace and without a change."""
        late = Unit(
            f"late-{like.name}",
            [*like.command],
            like.environment,
            self.place.folder / f"late-{like.name}.log",
            self.old,
        )
        before = self.place.rows("SELECT number, checksum FROM migrations ORDER BY number")
        late.start()
        try:
            assert late.process
            code = late.process.wait(REFUSED_S)
        except subprocess.TimeoutExpired:
            raise UpgradeFailed(f"an old {like.name} runs on the newer schema, although it started later") from None
        finally:
            late.kill()
        text = late.log.read_text(errors="replace")
        if code == 0 or "Traceback" in text or not _names_newer(text, self.schemas[1]):
            raise UpgradeFailed(f"the old {like.name} ended with {code}: {text[-2000:]}")
        if before != self.place.rows("SELECT number, checksum FROM migrations ORDER BY number"):
            raise UpgradeFailed("the refused process changed the list of migrations")
        self.note(
            f"an old {like.command[0]} that starts now is refused, exit code {code}: {text.strip().splitlines()[-1]}"
        )

    def widen(self) -> None:
        """All API processes are new: repeat what the old ones took, and send everything from now on."""
        assert self.load.worker
        sent = self.load.worker.repeat_finals()
        if not sent:
            raise UpgradeFailed("the previous version took no final report: there is nothing to repeat")
        self.load.worker.weights = MANNERS
        self.load.shares = Shares()
        self.note(f"{sent} final reports of before sent again, and different ones for the same jobs")

    def judge(self) -> bool:
        assert self.load.worker
        self.load.finish(PHASE_S)
        self.load.stop = True
        wait_until_drained(self.place, PHASE_S)
        findings = audit(self.place, self.load)
        history = collect(self.load)
        for violation in check(history):
            findings.found(violation.fault, violation.task_id, f"{violation.why} (by history)")
        self.note(f"external jobs by manner: {dict(self.load.worker.manners)}, streams {len(history.streams)}")
        bad = [said for said in self.load.answers if said.startswith(("bad", "no Retry-After"))]
        counted = {fault: number for fault, number in findings.counts.items() if number}
        self.note(f"accepted {len(self.load.accepted)}, violations {counted or 0}, answers {dict(self.load.answers)}")
        for line in [*findings.examples, *bad]:
            self.note(line)
        return findings.is_clean and not bad


def _names_newer(text: str, found: int) -> bool:
    return "database_newer" in text or (str(found) in text and "newer" in text.lower())


def rolling(upgrade: Upgrade, place: Distributed, tasks: int) -> bool:
    for unit in place.supervisor.units:
        unit.nursery = upgrade.old
    newcomer = place.workers[-1]
    newcomer.wanted = False
    place.supervisor.start()
    place.answering()
    upgrade.load.urls = place.urls
    upgrade.load.prepare()
    threads = upgrade.submit(tasks)
    upgrade.until_accepted(tasks // 5)
    if upgrade.schema != upgrade.schemas[0]:
        raise UpgradeFailed(f"the schema is {upgrade.schema} before the upgrade")
    upgrade.note(f"old API and old workers: {len(upgrade.load.accepted)} accepted, schema {upgrade.schema}")

    place.supervisor.replace(newcomer, place.nursery)
    upgrade.until(lambda: upgrade.schema == upgrade.schemas[1], "the new worker migrates")
    migrated_ms = int(time.time() * 1000)
    upgrade.until(lambda: _started(place, [newcomer], migrated_ms), "the new worker works")
    upgrade.until_more(tasks // 5)
    upgrade.note(f"new worker beside old API: {len(upgrade.load.accepted)} accepted, schema {upgrade.schema}")

    for unit in place.apis:
        code = place.supervisor.replace(unit, place.nursery)
        place.answering()
        upgrade.note(f"{unit.name} replaced, exit code {code}")
    upgrade.widen()
    upgrade.until_more(tasks // 5)
    old_workers = place.workers[:-1]
    replaced_ms = int(time.time() * 1000)
    upgrade.until(lambda: _started(place, old_workers, replaced_ms), "an old worker works beside the new API")
    upgrade.note(f"old workers beside new API: started {_started(place, old_workers, migrated_ms)} stages since then")
    upgrade.refuse(old_workers[0])

    for unit in old_workers:
        code = place.supervisor.replace(unit, place.nursery)
        upgrade.note(f"{unit.name} replaced, exit code {code}")
    upgrade.until_more(tasks // 5)
    upgrade.end(threads, tasks)
    return upgrade.judge()


def _started(place: Deployment, units: Sequence[Unit], since_ms: int) -> int:
    """Stages that these processes have started since then."""
    pids = {str(pid) for unit in units for pid in unit.pids}
    rows = place.rows(f"SELECT data FROM events WHERE kind = 'started' AND at_ms >= {since_ms}")
    return sum(bool(pids & set(json.loads(data)["worker"].split("-"))) for (data,) in rows)


def in_place(upgrade: Upgrade, place: Embedded, tasks: int) -> bool:
    [unit] = place.supervisor.units
    unit.nursery = upgrade.old
    place.supervisor.start()
    place.answering()
    upgrade.load.urls = place.urls
    upgrade.load.prepare()
    threads = upgrade.submit(tasks)
    upgrade.until_accepted(tasks // 3)
    upgrade.note(f"old process: {len(upgrade.load.accepted)} accepted, schema {upgrade.schema}")
    place.supervisor.kill(unit)
    place.supervisor.replace(unit, place.nursery)
    place.answering()
    upgrade.until(lambda: upgrade.schema == upgrade.schemas[1], "the new process migrates")
    upgrade.note(f"killed and replaced by the new one, schema {upgrade.schema}")
    upgrade.widen()
    upgrade.until_more(tasks // 3)
    upgrade.end(threads, tasks)
    is_good = upgrade.judge()
    unit.wanted = False
    unit.stop()
    upgrade.refuse(unit)
    return is_good


def run(mode: str, previous: str, *, tasks: int, seed: int) -> bool:
    print(
        f"$ python -m bench.chaos.upgrade --mode {mode} --previous {previous} --tasks {tasks} --seed {seed}", flush=True
    )
    with tempfile.TemporaryDirectory(prefix=f"docmill-upgrade-{mode}-") as name, ExitStack() as stack:
        folder = Path(name)
        source = extract(previous, folder / "previous")
        schemas = newest_migration(source), newest_migration(ROOT / "src")
        print(f"{mode}: {previous} (schema {schemas[0]}) to this version (schema {schemas[1]})", flush=True)
        if schemas[0] == schemas[1]:
            raise UpgradeFailed("both versions have the same schema")
        worker = stack.enter_context(ReportingWorker(seed, PLAIN))
        receiver = stack.enter_context(WebhookReceiver())
        load = MixedLoad([], seed, worker=worker, receiver=receiver, shares=Shares(watch=0.0))
        stack.callback(load.close)
        more = environment(worker, receiver, folder / "library")
        kind = {"distributed": Distributed, "embedded": Embedded}[mode]
        place = kind(folder, PACE, environment=more)
        old = Nursery(folder / "old", source)
        stack.callback(old.close)
        stack.callback(place.close)
        place.prepare()
        upgrade = Upgrade(place, load, old, schemas)
        if isinstance(place, Distributed):
            return rolling(upgrade, place, tasks)
        assert isinstance(place, Embedded)
        return in_place(upgrade, place, tasks)


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=["embedded", "distributed", "both"], default="both")
    parser.add_argument("--previous", help="a commit; else the last one before the newest migration")
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    is_good = True
    try:
        previous = given.previous or previous_commit()
        for mode in ["embedded", "distributed"] if given.mode == "both" else [given.mode]:
            is_good &= run(mode, previous, tasks=given.tasks, seed=given.seed)
    except UpgradeFailed as failed:
        print(f"failed: {failed}")
        return 1
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
