"""A full disk, also for the log: clients are told, nothing breaks, and it goes on by itself (R13, R27)."""

from __future__ import annotations

import os
import random
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

import apsw
import httpx2
import pytest

from support import hostile
from support.elsewhere import Elsewhere
from support.serving import Etl, Service

SIZE = "24m"
SCRIPT = 'mount -t tmpfs -o "size=$1" none "$2" && shift 2 && exec "$@" 2>"${DOCMILL_TEST_LOG:-/dev/full}"'
"""A small disk that only this process sees. No privileges are needed for it."""


class OnSmallDisk(Service):
    size = SIZE

    def __init__(self, data: Path, *flags: str, **environment: str) -> None:
        super().__init__(data, *flags, **environment)
        data.mkdir()
        small = ("unshare", "-Urm", "sh", "-c", SCRIPT, "sh", self.size, str(data))
        self.program = (*small, sys.executable, "-m", "docmill")

    @property
    def disk(self) -> Path:
        return Path(f"/proc/{self.pid}/root{self.data}")

    def fill(self) -> None:
        with (self.disk / "filler").open("ab", buffering=0) as filler:
            size = 1 << 24
            while size:
                try:
                    filler.write(b"\0" * size)
                except OSError:
                    size //= 2

    def clear(self) -> None:
        (self.disk / "filler").unlink()


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux'")
def test_a_full_disk_is_said_and_got_over_without_a_restart(tmp_path: Path) -> None:
    pace = {"DOCMILL_LEASE": "2", "DOCMILL_HEARTBEAT": "0.5", "DOCMILL_SWEEP": "0.3"}
    with OnSmallDisk(tmp_path / "data", "--jobs", "1", **pace) as service, service.client() as client:
        etl = Etl(client)
        before = etl.done("before.txt", b"before the disk was full")
        stored = etl.upload("later.txt", b"uploaded while there was room")
        running = etl.submit("scan.pdf", hostile.scans(2), no_cache=True)
        etl.wait(running, until=("mineru_parsing",))
        service.fill()

        said = {}
        for _ in range(3):
            files = {"file": ("big.bin", b"x" * 500_000)}
            said["upload"] = etl.post("/upload", data={"project_id": "1"}, files=files)
            body = {"project_id": 1, "filename": "later.txt", "s3_key": stored["key"]}
            said["submit"] = etl.post("/submit", json=body, headers={"Idempotency-Key": "once"})
            time.sleep(0.3)

        assert {"upload": 507, "submit": 507} == {name: answer.status_code for name, answer in said.items()}
        assert {"storage_full"} == {answer.json()["code"] for answer in said.values()}
        assert all("retry-after" in answer.headers for answer in said.values())
        assert before["result"] == etl.task(before["task_id"])["result"], "what is there can be read"
        assert 200 == etl.get("/tasks").status_code
        service.clear()

        done = etl.wait(running, seconds=90)
        assert "completed" == done["status"], done
        assert 1 == [event["kind"] for event in etl.events(running)].count("completed")
        body = {"project_id": 1, "filename": "later.txt", "s3_key": stored["key"]}
        later = etl.post("/submit", json=body, headers={"Idempotency-Key": "once"})
        assert later.is_success, later.text
        assert "completed" == etl.wait(int(later.json()["task_id"]))["status"]
        assert 3 == etl.get("/tasks").json()["total"]
        for path in service.disk.glob("docmill.db*"):
            shutil.copy(path, tmp_path)
        ledger = apsw.Connection(str(tmp_path / "docmill.db"))
        assert [("ok",)] == list(ledger.execute("PRAGMA integrity_check"))
        ledger.close()
        for path in (service.disk / "objects").rglob("*"):
            assert not path.is_file() or path.stat().st_size, f"{path} is empty"


class OnLargerDisk(OnSmallDisk):
    size = "256m"


FILLS = int(os.environ.get("DOCMILL_FILLS", "4"))
"""Times that the disk is filled; 20 on demand."""
FULL_S = (1.0, 6.0) if FILLS > 4 else (1.0, 2.0)
LATER = {503, 507}


class Client(threading.Thread):
    """Repeats each request until it succeeds, as its Retry-After allows; remembers every answer but that."""

    def __init__(self, service: Service, work: Callable[[Client, int], None]) -> None:
        super().__init__(daemon=True)
        self.tasks: list[int] = []
        self.statuses: Counter[int] = Counter()
        self.wrong: list[str] = []
        self.is_over = False
        self._work = work
        self.http = service.client()

    def run(self) -> None:
        try:
            for number in count():
                if self.is_over:
                    return
                self._work(self, number)
        except Exception as error:
            self.wrong.append(f"{type(error).__name__}: {error}")
        finally:
            self.http.close()

    def until_accepted(self, send: Callable[[], httpx2.Response]) -> httpx2.Response:
        ends = time.monotonic() + 60
        while True:
            answer = send()
            self.statuses[answer.status_code] += 1
            if answer.is_success:
                return answer
            if answer.status_code not in LATER or "retry-after" not in answer.headers:
                self.wrong.append(f"{answer.status_code} {dict(answer.headers)} {answer.text[:300]}")
            assert time.monotonic() < ends, answer.text
            time.sleep(0.1)


def submit_files(client: Client, number: int) -> None:
    data = hostile.scans(1) if number % 8 == 3 else b"document %d\n" % number * 400
    name = f"{number}.pdf" if data.startswith(b"%PDF") else f"{number}.txt"
    answer = client.until_accepted(
        lambda: client.http.post(
            f"{Etl.BASE}/upload_and_submit",
            data={"project_id": "1"},
            files=[("files", (name, data))],
            headers={"Idempotency-Key": f"files-{number}"},
        )
    )
    item = answer.json()["items"][0]
    client.tasks.append(item["task_id"])
    time.sleep(0.05)


def read_tasks(client: Client, _: int) -> None:
    """What is there can be read, whether or not anything can be written."""
    found = client.http.get(f"{Etl.BASE}/tasks", params={"limit": 5})
    answers = [found, *(client.http.get(f"{Etl.BASE}/tasks/{one['task_id']}") for one in found.json().get("tasks", ()))]
    client.wrong += [f"GET {one.url}: {one.status_code} {one.text[:300]}" for one in answers if one.status_code != 200]
    time.sleep(0.2)


def write_tables(client: Client, number: int) -> None:
    table = {"name": f"table {number}", "data": {"rows": ["x" * 1000] * 20}}
    client.until_accepted(lambda: client.http.post("/api/v1/projects/1/tables", json=table))
    time.sleep(0.1)


def external_jobs(worker: Elsewhere, is_full: threading.Event) -> Callable[[Client, int], None]:
    """Every job gets progress, and into the full disk a final that is large enough to be spilled to files."""

    def run(client: Client, number: int) -> None:
        stored = client.until_accepted(
            lambda: client.http.post(
                f"{Etl.BASE}/upload", data={"project_id": "1"}, files={"file": ("a.pdf", b"%%PDF-1.7 %d" % number)}
            )
        ).json()
        body = {"project_id": 1, "filename": "a.pdf", "s3_key": stored["key"], "engine": "secretary"}
        key = {"Idempotency-Key": f"external-{number}"}
        answer = client.until_accepted(lambda: client.http.post(f"{Etl.BASE}/submit", json=body, headers=key))
        client.tasks.append(int(answer.json()["task_id"]))
        job = worker.next_job(60)
        client.until_accepted(lambda: job.send({"phase": "extract_text", "progress": 42, "message": "page 1"}))
        text = f"# Document {number}\n\n" + "A line of the result.\n" * 10_000
        is_full.wait(3)
        final = {"phase": "completed", "message": "done", "data": {"extracted_text": text}}
        client.until_accepted(lambda: job.send(final))

    return run


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux'")
def test_a_disk_that_is_full_again_and_again_fails_no_task(tmp_path: Path) -> None:
    luck, is_full = random.Random(1), threading.Event()
    log = tmp_path / "log"
    with (
        Elsewhere() as worker,
        OnLargerDisk(
            tmp_path / "data",
            "--jobs",
            "1",
            DOCMILL_SWEEP="0.3",
            DOCMILL_WORKERS=worker.settings(),
            DOCMILL_TEST_LOG=str(log),
        ) as service,
    ):
        clients = [
            Client(service, work) for work in (submit_files, write_tables, read_tasks, external_jobs(worker, is_full))
        ]
        for client in clients:
            client.start()
        for _ in range(FILLS):
            time.sleep(luck.uniform(0.5, 1.5))
            ends = time.monotonic() + luck.uniform(*FULL_S)
            while time.monotonic() < ends:
                service.fill()
                is_full.set()
                time.sleep(0.05)
            is_full.clear()
            service.clear()
        for client in clients:
            client.is_over = True
        for client in clients:
            client.join(60)
            assert not client.is_alive(), log.read_text()[-5000:]
        with service.client() as http:
            ended = [Etl(http).wait(task_id, seconds=90) for client in clients for task_id in client.tasks]
        told = log.read_text()

    assert [] == [wrong for client in clients for wrong in client.wrong], told[-5000:]
    assert [] == [task for task in ended if "completed" != task["status"]], told[-5000:]
    assert len(ended) >= FILLS, "hardly anything was accepted, so this test shows nothing"
    assert sum(client.statuses[507] for client in clients), "nobody met the full disk"
    assert "unexpected_error" not in told
