"""Two docmills, one as server and one as worker: documents go out, reports come back, kills change nothing."""

import random
import re
import threading
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import httpx2
import pytest

from support.serving import Etl, Mode, Service, WorkerServer

SAMPLES = Path(__file__).parents[2] / "samples"
KEY = "a-key-that-both-sides-share"
SEED = 20_261_116


@pytest.fixture
def pair(mode: Mode, tmp_path: Path) -> Iterator[tuple[Service, WorkerServer]]:
    with (
        WorkerServer(tmp_path / "spool", "--jobs", "2", CALLBACK_SIGNING_KEY=KEY) as worker,
        mode.serve(
            tmp_path / "data",
            DOCMILL_WORKERS=worker.settings(timeout=120),
            CALLBACK_SIGNING_KEY=KEY,
            DOCMILL_SWEEP="0.5",
        ) as service,
    ):
        yield service, worker


@pytest.mark.parametrize("engine", ["secretary", "dispatcher"])
def test_a_document_goes_to_a_worker_and_comes_back_as_document_and_twin(
    pair: tuple[Service, WorkerServer], engine: str
) -> None:
    service, _ = pair
    with service.client() as client:
        etl = Etl(client)
        source = (SAMPLES / "report.en.pdf").read_bytes()

        done = etl.done("report.en.pdf", source, engine=engine, twin=True)

        kinds = [event["kind"] for event in etl.events(done["task_id"])]
        assert {"handed_over", "completed"} <= set(kinds)
        if engine == "secretary":
            assert "progress" in kinds
        assert done["metadata"]["engine"] == engine
        document = client.get(f"/api/v1/documents/{done['metadata']['document_id']}").json()
        pictures = [asset for asset in document["assets"] if asset["media_type"].startswith("image/")]
        assert pictures
        blob = client.get(f"/api/v1/assets/{pictures[0]['ref']['asset_id']}/blob")
        assert sha256(blob.content).hexdigest() == pictures[0]["checksum"]
        assert sha256(source).hexdigest() == document["checksum"]
        twin = Path(done["metadata"]["twin_path"])
        links = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", twin.read_text(encoding="utf-8"))
        assert links
        assert all((twin.parent / unquote(link)).is_file() for link in links)
        job = client.get(f"/api/external/jobs/{done['metadata']['job_id']}").json()
        assert "completed" == job["status"]


def test_a_bad_document_fails_with_the_worker_s_words(pair: tuple[Service, WorkerServer]) -> None:
    service, _ = pair
    with service.client() as client:
        failed = Etl(client).wait(Etl(client).submit("empty.pdf", b"%PDF-1.7 nothing", engine="secretary"))
    assert ("failed", "worker_failed") == (failed["status"], failed["metadata"]["error_code"])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("jobs", "least_kills"), [(60, 6), pytest.param(200, 12, marks=pytest.mark.long)])
def test_killing_server_worker_or_both_ends_every_job_once(tmp_path: Path, jobs: int, least_kills: int) -> None:
    chance = random.Random(SEED)
    worker = WorkerServer(tmp_path / "spool", "--jobs", "2", CALLBACK_SIGNING_KEY=KEY).start()
    # A dispatcher job's deadline counts from its start, the line and the restarts included: it is not what is tested.
    service = Service(
        tmp_path / "data", DOCMILL_WORKERS=worker.settings(timeout=300), CALLBACK_SIGNING_KEY=KEY, DOCMILL_SWEEP="0.5"
    ).start()
    accepted: dict[int, str] = {}
    stop = threading.Event()

    def sent(path: str, **request: Any) -> dict[str, Any]:
        while not stop.is_set():
            try:
                with service.client() as client:
                    answer = client.post(Etl.BASE + path, **request)
                if answer.is_success:
                    return answer.json()
            except (httpx2.TransportError, httpx2.InvalidURL):
                pass
            time.sleep(0.05)
        raise SystemExit

    def submit(numbers: range) -> None:
        for n in numbers:
            text, name = f"# Document {n}\n\nof seed {SEED}", f"{n}.md"
            stored = sent("/upload", data={"project_id": "1"}, files={"file": (name, text.encode())})
            body = {
                "project_id": 1,
                "filename": name,
                "s3_key": stored["key"],
                "engine": ("secretary", "dispatcher")[n % 2],
            }
            accepted[sent("/submit", json=body, headers={"Idempotency-Key": str(uuid4())})["task_id"]] = text

    clients = [threading.Thread(target=submit, args=(range(k, jobs, 2),), daemon=True) for k in range(2)]
    kills, starting_s = 0, 0.0
    try:
        for client in clients:
            client.start()
        while any(client.is_alive() for client in clients) or kills < least_kills:
            # On a slow machine they live longer, too: who is mostly dead is given up, and rightly so.
            time.sleep(chance.uniform(0.5, 2.5) + starting_s)
            for victim in chance.choice([[service], [worker], [service, worker]]):
                victim.kill()
                begun = time.monotonic()
                victim.start()
                starting_s = time.monotonic() - begun
                kills += 1
        with service.client() as client:
            etl = Etl(client)
            ended = {task_id: etl.wait(task_id, seconds=180) for task_id in accepted}
            events = {task_id: [event["kind"] for event in etl.events(task_id)] for task_id in accepted}
    finally:
        stop.set()
        for process in (service, worker):
            if process.is_running:
                process.kill()
    statuses = [task["status"] for task in ended.values()]
    attempts = max(task["metadata"]["attempt"] for task in ended.values())
    print(
        f"seed {SEED}: {len(accepted)} jobs, {kills} kills, {statuses.count('completed')} completed, tries {attempts}"
    )
    for task_id, task in ended.items():
        if task["status"] != "completed":
            print(task["metadata"]["engine"], task["status"], task["metadata"]["error_code"], events[task_id])

    assert jobs == len(accepted)
    assert {"completed"} == set(statuses)
    for task_id, text in accepted.items():
        assert 1 == events[task_id].count("completed")
        assert text in next(iter(ended[task_id]["result"].values()))["content"]
