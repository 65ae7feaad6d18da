"""Cut the power again and again: what was answered is there afterwards (R8).

    python -m bench.chaos.power --cuts 20 --seed 1 --pause 4,6

The one process of the embedded mode runs on a disk that forgets what was not synced (`bench.chaos.disk`), while clients
send documents. At each cut it is killed, and its data folder becomes what the disk may hold. Before the next start the
database must be whole, must know every task that a client was told of, and must call those completed that a client has
seen completed. In the end everything is counted as after a storm.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import apsw
import httpx2

from bench.chaos.audit import FAULTS, Findings, audit, wait_until_drained
from bench.chaos.deployments import Embedded, Pace
from bench.chaos.disk import Luck, after_a_cut
from bench.chaos.load import BASE, Load, documents

CLIENTS = 3
PER_SECOND = 8.0
DRAINED_S = 60.0


class Power:
    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._data, self._image = folder, folder / "data", folder / "image"
        self._data.mkdir()
        tampering = {"disk": {"data": str(self._data), "image": str(self._image)}}
        self.place = Embedded(folder, Pace(), tampering=tampering)
        self.load = Load([], seed)
        self.findings = Findings()
        self.seen: set[int] = set()
        """Tasks that were seen completed."""
        self.told = 0
        """Of what clients were told, how much was looked for after a cut."""
        self._chance = random.Random(seed)
        self._watching = threading.Event()

    def run(self, cuts: int, pause_s: tuple[float, float]) -> None:
        self.place.open()
        self.load.urls[:] = self.place.urls
        threads = self.load.start(documents(self._chance, _enough(cuts, pause_s), {"txt": 1}), CLIENTS, PER_SECOND)
        threads.append(threading.Thread(target=self._watch, daemon=True))
        threads[-1].start()
        for number in range(cuts):
            time.sleep(self._chance.uniform(*pause_s))
            # Every other time nothing is left of what was not synced.
            self._cut(Luck(self._chance, 0.5 * (number % 2)))
        self.load.stop = True
        self._watching.set()
        for thread in threads:
            thread.join(30)
        self._wait_until_ready()
        wait_until_drained(self.place, DRAINED_S)
        found = audit(self.place, self.load)
        self.findings.counts.update(found.counts)
        self.findings.examples += found.examples

    def _wait_until_ready(self) -> None:
        with httpx2.Client(base_url=self.place.urls[0], timeout=5, trust_env=False) as http:
            for _ in range(600):
                try:
                    if http.get("/ready").is_success:
                        return
                except httpx2.TransportError:
                    pass
                time.sleep(0.05)

    def _watch(self) -> None:
        """A client that looks what became of the tasks."""
        with httpx2.Client(base_url=self.place.urls[0], timeout=5, trust_env=False) as http:
            while not self._watching.wait(0.05):
                ids = [task_id for task_id in tuple(self.load.accepted) if task_id not in self.seen][:100]
                try:
                    answer = http.get(f"{BASE}/tasks/batch", params={"task_ids": ",".join(map(str, ids))})
                except httpx2.TransportError:
                    continue
                if answer.is_success:
                    self.seen |= {task["task_id"] for task in answer.json()["tasks"] if task["status"] == "completed"}

    def _cut(self, luck: Luck) -> None:
        unit = self.place.supervisor.units[0]
        unit.wanted = False
        self.place.supervisor.kill(unit)
        told, seen = set(self.load.accepted), set(self.seen)
        fresh = self._folder / "fresh"
        after_a_cut(self._data, self._image, fresh, luck)
        self._look(fresh, told, seen)
        shutil.rmtree(self._data)
        shutil.rmtree(self._image)
        fresh.rename(self._data)
        unit.wanted = True

    def _look(self, disk: Path, told: set[int], seen: set[int]) -> None:
        """At a copy, for a database that is opened recovers, and that is for docmill to do."""
        copy = self._folder / "copy"
        copy.mkdir()
        for path in disk.glob("docmill.db*"):
            shutil.copy(path, copy)
        self.told += len(told)
        database = apsw.Connection(str(copy / "docmill.db"))
        try:
            if list(database.execute("PRAGMA integrity_check")) != [("ok",)]:
                self.findings.found("unreadable", 0, "the database is broken")
            states = dict(database.execute("SELECT id, status FROM tasks"))
        except apsw.SQLError as error:
            self.findings.found("unreadable", 0, str(error))
            states = {}
        finally:
            database.close()
            shutil.rmtree(copy)
        for task_id in told - states.keys():
            self.findings.found("lost", task_id, "accepted, and not on the disk after the cut")
        for task_id in seen & states.keys():
            if states[task_id] != "completed":
                self.findings.found("wrong", task_id, f"seen completed, and {states[task_id]} after the cut")


def _enough(cuts: int, pause_s: tuple[float, float]) -> int:
    """More documents than there is time for."""
    return int(2 * PER_SECOND * cuts * (max(pause_s) + 2))


def run(cuts: int, *, seed: int = 1, pause_s: tuple[float, float] = (1.0, 3.0)) -> Power:
    with tempfile.TemporaryDirectory(prefix="docmill-power-") as name:
        power = Power(Path(name), seed)
        try:
            power.run(cuts, pause_s)
        except BaseException:
            print(power.place.log_tails()[-3000:])
            raise
        finally:
            power.load.stop = True
            power.place.close()
    return power


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", default="1,3", help="seconds between two cuts, from,to")
    given = parser.parse_args()
    low, high = map(float, given.pause.split(","))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    power = run(given.cuts, seed=given.seed, pause_s=(low, high))
    counted = "  ".join(f"{fault} {power.findings.counts[fault]}" for fault in FAULTS)
    print(
        f"seed {given.seed}: {given.cuts} cuts, accepted {len(power.load.accepted)}, seen completed {len(power.seen)}"
    )
    print(f"  {counted}")
    print("\n".join(f"  {example}" for example in power.findings.examples))
    return 0 if power.findings.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
