"""The serving process is killed again and again, and nothing is lost, doubled, stuck or unreadable."""

import random
import threading
import time
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import apsw
import httpx2
import pytest

from bench.chaos.kills import kill_while_parsing
from support.serving import Etl, Service

CLIENTS = 4
SEED = 20_261_115
RESTART_TO_CLAIM_S = 2.0
"""On a machine where a start takes less than half of it; on a busy one four times as long as the slowest start."""
STAGES = ["parse", "postprocess", "publish"]


@dataclass
class Load:
    """A client that never gives up: it sends again, with the same key, until it has seen an answer."""

    service: Service
    tasks: int
    accepted: dict[int, str] = field(default_factory=dict)
    is_over: bool = False
    """The kills are over: who has sent its share may go."""
    stop: bool = False

    def run(self, number: int) -> None:
        chance = random.Random(f"{SEED}-{number}")
        sent = 0
        with self.service.client() as client:
            while sent < self.tasks // CLIENTS or not self.is_over:
                sent += 1
                text = f"# Document {number}.{sent}\n\n{chance.random()} " + "word " * chance.randrange(2000)
                name, key = f"{sha256(text.encode()).hexdigest()[:8]}.txt", str(uuid4())
                stored = self._sent(client, "/upload", data={"project_id": "1"}, files={"file": (name, text.encode())})
                body = {"project_id": 1, "filename": name, "s3_key": stored["key"]}
                task = self._sent(client, "/submit", json=body, headers={"Idempotency-Key": key})
                again = self._sent(client, "/submit", json=body, headers={"Idempotency-Key": key})
                assert task["task_id"] == again["task_id"]
                self.accepted[task["task_id"]] = text
                time.sleep(chance.uniform(0, 0.3))

    def _sent(self, client: httpx2.Client, path: str, **request: Any) -> dict[str, Any]:
        while not self.stop:
            try:
                answer = client.post(Etl.BASE + path, **request)
                if answer.is_success:
                    return answer.json()
                assert answer.status_code in (429, 503), answer.text
            except httpx2.TransportError:
                pass
            # As a client does that leaves the machine to the one who is starting.
            time.sleep(0.05)
        raise SystemExit


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kills", "tasks"), [(12, 80), pytest.param(50, 300, marks=pytest.mark.long)])
def test_nothing_is_lost_doubled_stuck_or_unreadable_over_many_kills(tmp_path: Path, kills: int, tasks: int) -> None:
    chance = random.Random(SEED)
    service = Service(tmp_path / "data", "--jobs", "2").start()
    load = Load(service, tasks)
    clients = [threading.Thread(target=load.run, args=(number,), daemon=True) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    restarts, slowest_s = [], 0.0
    try:
        for _ in range(kills):
            time.sleep(chance.uniform(0.05, 0.9))
            service.kill()
            service.start()
            restarts.append(service.started_at)
            slowest_s = max(slowest_s, time.time() - service.started_at)
        load.is_over = True
        for client in clients:
            client.join(60)
        assert not any(client.is_alive() for client in clients), "a client never got its answer"
        with service.client() as client:
            report = audit(Etl(client), load.accepted)
        assert 0 == service.stop()
    finally:
        load.stop = True
        if service.is_running:
            service.kill()
    recovery = claims_after(tmp_path / "data" / "docmill.db", restarts)
    print(f"seed {SEED}: accepted {len(load.accepted)}, kills {kills}, {report}, restart to first claim {recovery}")

    assert tasks <= len(load.accepted)
    assert {"lost": 0, "stuck": 0, "doubled": 0, "wrong": 0, "unreadable": 0} == report
    assert recovery["max"] < max(RESTART_TO_CLAIM_S, 4 * slowest_s)


def audit(etl: Etl, accepted: dict[int, str]) -> dict[str, int]:
    report = dict.fromkeys(["lost", "stuck", "doubled", "wrong", "unreadable"], 0)
    for task_id, text in accepted.items():
        if 200 != etl.get(f"/tasks/{task_id}").status_code:
            report["lost"] += 1
            continue
        try:
            task = etl.wait(task_id, seconds=60)
        except AssertionError:
            report["stuck"] += 1
            continue
        done = [event["data"]["stage"] for event in etl.events(task_id) if "stage_succeeded" == event["kind"]]
        ends = [event for event in etl.events(task_id) if event["kind"] in ("completed", "failed", "cancelled")]
        report["doubled"] += STAGES != done or 1 != len(ends)
        if "completed" != task["status"]:
            print("wrong", task)
            report["wrong"] += 1
            continue
        content = next(iter(task["result"].values()))["content"]
        report["wrong"] += content.strip() != text.strip()
        address = f"/api/v1/documents/{task['metadata']['document_id']}"
        document, blob, versions = (etl.http.get(address + part) for part in ("", "/blob", "/versions"))
        if not (document.is_success and blob.is_success and versions.is_success):
            print("unreadable", task, document.text)
            report["unreadable"] += 1
            continue
        report["unreadable"] += sha256(blob.content).hexdigest() != document.json()["checksum"]
        report["doubled"] += 1 != len(versions.json()["versions"])
    assert len(accepted) == etl.get("/tasks").json()["total"]
    return report


def claims_after(path: Path, restarts: list[float]) -> dict[str, float]:
    """Seconds from each restart that found work to the first attempt that began after it."""
    database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    assert [("ok",)] == list(database.execute("PRAGMA integrity_check"))
    started = sorted(row[0] / 1000 for row in database.execute("SELECT at_ms FROM events WHERE kind = 'started'"))
    lives = list(database.execute("SELECT min(at_ms) / 1000.0, max(at_ms) / 1000.0 FROM events GROUP BY task_id"))
    database.close()
    waits = []
    for begin, end in zip(restarts, [*restarts[1:], float("inf")], strict=True):
        if any(born < begin < ended for born, ended in lives):
            waits.append(next((at for at in started if begin <= at < end), end) - begin)
    assert len(waits) > len(restarts) // 2, "hardly any restart had work to do: the load is too light"
    waits.sort()
    shown = {"max": waits[-1], "p90": waits[len(waits) * 9 // 10], "median": waits[len(waits) // 2]}
    return {name: round(value, 2) for name, value in shown.items()} | {"n": len(waits)}


@pytest.mark.slow
def test_a_document_survives_eleven_kills_of_the_process_that_parses_it(tmp_path: Path) -> None:
    """`python -m bench.chaos.kills` kills fifty times."""
    killed = kill_while_parsing(tmp_path / "data", kills=11)

    assert ("completed", 11) == (killed.status, killed.lost_workers), killed.kinds
    assert "isolated" in killed.kinds, "a suspect runs alone before it is given up"
    assert "completed" == killed.neighbour
