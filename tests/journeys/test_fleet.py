"""Two API processes and three workers: whatever a client does at one door is seen at the other."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from support import hostile
from support.servers import Postgres, Redis, S3Address
from support.serving import Etl, Fleet, Services

SECONDS = 60
ENDED = ("completed", "failed", "cancelled")


@pytest.fixture(scope="module")
def redis_of_ours() -> Iterator[Redis]:
    """One that may be killed."""
    with Redis() as server:
        yield server


@pytest.fixture(scope="module")
def environment(redis_of_ours: Redis, request: pytest.FixtureRequest, s3: S3Address) -> Iterator[dict[str, str]]:
    from contextlib import ExitStack

    with ExitStack() as stack:
        services = Services(request.getfixturevalue("postgres"), redis_of_ours.address, s3)
        yield services.open(stack) | {"REDIS_URL": redis_of_ours.url}


@pytest.fixture(scope="module")
def fleet(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, Fleet]]:
    """Two doors, three pairs of hands."""
    folder = tmp_path_factory.mktemp("fleet")
    worker = {"silent": {"dialect": "dispatcher", "url": "http://127.0.0.1:9/tasks", "api_key": "k"}}
    settings = environment | {"DOCMILL_WORKERS": json.dumps(worker), "APP_URL": "http://127.0.0.1:9"}
    with (
        Fleet(folder / "one", "--jobs", "1", workers=3, **settings) as one,
        Fleet(folder / "two", workers=0, **settings) as two,
    ):
        yield one, two


@pytest.fixture
def doors(fleet: tuple[Fleet, Fleet]) -> Iterator[tuple[Etl, Etl]]:
    one, two = fleet
    with one.client() as here, two.client() as there:
        yield Etl(here), Etl(there)


def stream_of(etl: Etl, task_id: int, kinds: list[str], opened: threading.Event) -> None:
    with etl.http.stream("GET", f"{Etl.BASE}/tasks/{task_id}/events", timeout=SECONDS) as answer:
        for line in answer.iter_lines():
            opened.set()
            if line.startswith("event: "):
                kinds.append(line.removeprefix("event: "))


def test_what_one_took_in_the_other_shows_live_to_its_end(doors: tuple[Etl, Etl]) -> None:
    here, there = doors
    task_id = here.submit("scan.pdf", hostile.scans(2), no_cache=True)
    kinds: list[str] = []
    opened = threading.Event()
    watching = threading.Thread(target=stream_of, args=(there, task_id, kinds, opened))
    watching.start()

    assert "completed" == here.wait(task_id)["status"]
    watching.join(SECONDS)

    assert "submitted" == kinds[0]
    assert {"started", "progress", "stage_succeeded"} <= set(kinds)
    assert ["completed", "end"] == kinds[-2:]


def test_a_long_poll_at_one_door_ends_with_a_change_through_the_other(doors: tuple[Etl, Etl]) -> None:
    here, there = doors
    busy = [here.submit(f"slow-{n}.pdf", hostile.scans(30), no_cache=True) for n in range(3)]
    for one in busy:
        here.wait(one, until=("mineru_parsing",))
    waiting = here.submit("waits.txt", b"behind them")
    with ThreadPoolExecutor(1) as pool:
        polled = pool.submit(there.task, waiting, wait=30)
        time.sleep(0.3)
        began = time.monotonic()
        assert 200 == here.post(f"/tasks/{waiting}/cancel").status_code
        assert "cancelled" == polled.result(SECONDS)["status"]
        assert time.monotonic() - began < 10
    for one in busy:
        assert 200 == there.post(f"/tasks/{one}/cancel", params={"force": True}).status_code


def parsers(fleet: tuple[Fleet, Fleet]) -> list[psutil.Process]:
    """Children that burn processor time, whichever worker they belong to."""
    children = [child for worker in fleet[0].workers for child in psutil.Process(worker.pid).children(recursive=True)]
    before = {}
    for child in children:
        try:
            before[child] = sum(child.cpu_times()[:2])
        except psutil.NoSuchProcess:
            continue
    time.sleep(0.5)
    return [child for child in before if child.is_running() and sum(child.cpu_times()[:2]) - before[child] > 0.05]


def test_force_at_one_door_kills_the_parser_of_another_process(
    doors: tuple[Etl, Etl], fleet: tuple[Fleet, Fleet]
) -> None:
    here, there = doors
    task_id = here.submit("endless.pdf", hostile.scans(60), no_cache=True)
    here.wait(task_id, until=("mineru_parsing",))
    ends = time.monotonic() + 30
    while not (working := parsers(fleet)):
        assert time.monotonic() < ends, "nobody parses"

    assert 200 == there.post(f"/tasks/{task_id}/cancel", params={"force": True}).status_code

    gone, alive = psutil.wait_procs(working, timeout=4)  # less than a heartbeat: the signal did it
    assert gone, alive
    assert "cancelled" == here.task(task_id)["status"]


def test_one_idempotency_key_opens_one_task_however_many_doors_get_it(doors: tuple[Etl, Etl]) -> None:
    key = doors[0].upload("once.txt", b"once")["key"]
    body = {"project_id": 1, "filename": "once.txt", "s3_key": key}

    def submitted(n: int) -> httpx2.Response:
        return doors[n % 2].post("/submit", json=body, headers={"Idempotency-Key": "fleet-1"})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(submitted, range(16)))

    assert {True} == {answer.is_success for answer in answers}
    assert 1 == len({answer.json()["task_id"] for answer in answers})
    other = doors[1].post("/submit", json={**body, "filename": "other.txt"}, headers={"Idempotency-Key": "fleet-1"})
    assert (422, "idempotency_mismatch") == (other.status_code, other.json()["code"])


def test_two_doors_share_one_rate_limit(doors: tuple[Etl, Etl]) -> None:
    here, there = doors
    path = "/api/v1/tasks/00000000-0000-4000-8000-000000000000/callback/"
    statuses = []
    for n in range(104):
        answer = (here, there)[n % 2].http.post(path, json={}, headers={"Authorization": "Bearer x"})
        statuses.append(answer.status_code)

    assert 429 not in statuses[:100]
    assert [429] * 4 == statuses[100:]
    assert 1 <= int(answer.headers["Retry-After"]) <= 60


def test_many_documents_are_spread_over_the_workers(doors: tuple[Etl, Etl]) -> None:
    here, there = doors
    tasks = [(here, there)[n % 2].submit(f"{n}.txt", b"text %d" % n, no_cache=True) for n in range(18)]

    done = [(there, here)[n % 2].wait(task_id) for n, task_id in enumerate(tasks)]

    assert {"completed"} == {task["status"] for task in done}
    workers = {
        event["data"]["worker"] for task_id in tasks for event in here.events(task_id) if event["kind"] == "started"
    }
    assert 2 <= len(workers) <= 3


def test_without_redis_everything_goes_on_only_slower(doors: tuple[Etl, Etl], redis_of_ours: Redis) -> None:
    here, there = doors
    redis_of_ours.kill()
    try:
        began = time.monotonic()
        task_id = here.submit("alone.txt", b"without redis", no_cache=True)
        assert time.monotonic() - began < 10
        assert "completed" == there.wait(task_id)["status"]
        slow = here.submit("slow.pdf", hostile.scans(60), no_cache=True)
        there.wait(slow, until=("mineru_parsing",))
        assert 200 == there.post(f"/tasks/{slow}/cancel", params={"force": True}).status_code
        assert "cancelled" == here.task(slow)["status"]
        assert 200 == here.get("/tasks").status_code
        until(lambda: "degraded" == here.http.get("/ready").json()["checks"]["redis"])
        assert 200 == here.http.get("/ready").status_code
    finally:
        redis_of_ours.start()
    until(lambda: "ok" == here.http.get("/ready").json()["checks"]["redis"])
    assert "completed" == there.wait(here.submit("again.txt", b"with redis", no_cache=True))["status"]


def until(holds: Any) -> None:
    ends = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.2)


def test_a_killed_workers_document_is_taken_over(doors: tuple[Etl, Etl], fleet: tuple[Fleet, Fleet]) -> None:
    here, _ = doors
    task_id = here.submit("orphan.pdf", hostile.scans(3), no_cache=True)
    here.wait(task_id, until=("mineru_parsing",))
    name = next(e["data"]["worker"] for e in here.events(task_id) if e["kind"] == "started")
    victim = next(worker for worker in fleet[0].workers if f"-{worker.pid}-" in name)

    victim.kill()

    task = here.wait(task_id, seconds=90)
    assert ("completed", 2) == (task["status"], task["metadata"]["attempt"])
    kinds = [event["kind"] for event in here.events(task_id)]
    assert (1, 1) == (kinds.count("worker_lost"), kinds.count("completed"))
    victim.start()
    victim.await_ready()


def test_without_postgres_the_answer_is_503_and_then_all_goes_on(tmp_path: Path, s3: S3Address) -> None:
    with Postgres() as database, Redis() as redis, database.address.database() as url, s3.prefix() as prefix:
        settings = {"DATABASE_URL": url, "REDIS_URL": redis.url, "OBJECTS_URL": f"s3://{s3.bucket}/{prefix}"}
        with Fleet(tmp_path, "--jobs", "1", **settings, **s3.environment) as service, service.client() as client:
            etl = Etl(client)
            first = etl.done("before.txt", b"before")["task_id"]
            key = etl.upload("during.txt", b"during")["key"]
            database.kill()
            answer = etl.post("/submit", json={"project_id": 1, "filename": "during.txt", "s3_key": key})
            assert (503, "database_unavailable") == (answer.status_code, answer.json()["code"])
            assert int(answer.headers["Retry-After"]) >= 1
            assert 503 == client.get("/ready").status_code
            assert 200 == client.get("/health").status_code
            database.start()
            until(lambda: 200 == etl.get(f"/tasks/{first}").status_code)
            assert etl.done("after.txt", b"after", no_cache=True)
            assert os.getpgid(service.workers[0].pid), "the worker outlived it"
