"""SIGTERM under load: the service ends soon and cleanly, and what it was doing is done after the next start."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from support import hostile
from support.serving import Etl, Mode, Service

GRACE_S = 10
CYCLES = int(os.environ.get("DOCMILL_CYCLES", "2"))
"""Deployments in a row; 20 on demand."""
PENDING = 6


class Watcher(threading.Thread):
    """Reads a task's events until the stream ends, and remembers how it ended."""

    def __init__(self, service: Service, task_id: int) -> None:
        super().__init__(daemon=True)
        self.opened = threading.Event()
        self.kinds: list[str] = []
        self.ended_at = 0.0
        self.error: Exception | None = None
        self._url = f"{service.url}{Etl.BASE}/tasks/{task_id}/events"

    def run(self) -> None:
        try:
            with (
                httpx2.Client(timeout=60, trust_env=False) as client,
                client.stream("GET", self._url) as stream,
            ):
                for line in stream.iter_lines():
                    self.opened.set()
                    if line.startswith("event: "):
                        self.kinds.append(line.removeprefix("event: "))
        except httpx2.TransportError as error:
            self.error = error
        self.ended_at = time.monotonic()


class Submitter(threading.Thread):
    """Submits until the service is gone; remembers what was accepted."""

    def __init__(self, service: Service) -> None:
        super().__init__(daemon=True)
        self.accepted: list[int] = []
        self.statuses: set[int] = set()
        self._service = service

    def run(self) -> None:
        with suppress(httpx2.TransportError), self._service.client() as client:
            for number in range(10_000):
                files = {"files": (f"{number}.txt", b"load %d" % number)}
                answer = client.post(f"{Etl.BASE}/upload_and_submit", data={"project_id": "1"}, files=files)
                self.statuses.add(answer.status_code)
                if 201 == answer.status_code:
                    self.accepted.append(answer.json()["items"][0]["task_id"])
                time.sleep(0.01)


@pytest.mark.timeout(300 + 60 * CYCLES)
def test_a_stop_costs_no_attempt_and_loses_nothing(mode: Mode, tmp_path: Path) -> None:
    service = mode.serve(tmp_path / "data", "--jobs", "2", DOCMILL_GRACE=str(GRACE_S))
    size = 2 * CYCLES  # pages enough that they are still being read when the last stop comes
    slow: list[int] = []
    accepted: list[int] = []
    seconds: list[float] = []
    for cycle in range(CYCLES):
        service.start()
        with service.client() as client:
            etl = Etl(client)
            if not slow:
                slow = [etl.submit(f"scan-{n}.pdf", hostile.scans(size), no_cache=True) for n in range(2)]
            for task_id in slow:
                etl.wait(task_id, until=("mineru_parsing", "completed"))
            accepted += [etl.submit(f"{cycle}-{n}.txt", b"waiting %d" % n) for n in range(PENDING)]
            watcher, submitter = Watcher(service, slow[-1]), Submitter(service)
            watcher.start()
            submitter.start()
            assert watcher.opened.wait(10)
            time.sleep(0.2)
        children = psutil.Process(service.working_pid).children(recursive=True)
        began = time.monotonic()
        assert 0 == service.stop(GRACE_S + 5), "".join(service.log)
        seconds.append(time.monotonic() - began)
        _, alive = psutil.wait_procs(children, timeout=30)
        assert [] == alive, "a child outlives the service"
        assert not [path for folder in service.data.glob("**/scratch") for path in folder.iterdir()]
        watcher.join(30)
        submitter.join(30)
        assert not watcher.is_alive(), "the stream hangs"
        assert watcher.error is None, "the stream broke instead of ending"
        assert watcher.ended_at - began < GRACE_S
        assert submitter.statuses <= {201, 503}
        accepted += submitter.accepted
    assert max(seconds) < GRACE_S, seconds

    with service, service.client() as client:
        etl = Etl(client)
        for task_id in (*slow, *accepted):
            task = etl.wait(task_id, seconds=60 * CYCLES)
            assert ("completed", 1) == (task["status"], task["metadata"]["attempt"]), task
        for task_id in slow:
            kinds = [event["kind"] for event in etl.events(task_id)]
            assert "worker_lost" not in kinds
            assert 1 <= kinds.count("given_back") <= CYCLES
            assert ["parse", "postprocess", "publish"] == stages(etl, task_id)
        assert len(slow) + len(accepted) == etl.get("/tasks", params={"limit": 1}).json()["total"]


def stages(etl: Etl, task_id: int) -> list[Any]:
    return [event["data"]["stage"] for event in etl.events(task_id) if "stage_succeeded" == event["kind"]]


def test_a_second_service_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with Service(tmp_path / "data") as service, service.client() as client:
        second = subprocess.run(
            [sys.executable, "-m", "docmill", "serve", "--port", "0", "--data", str(service.data)],
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert 0 != second.returncode
        assert "data_locked" in second.stderr
        assert "" == second.stdout
        assert "completed" == Etl(client).done("a.txt", b"the first one works on")["status"]
    with Service(tmp_path / "data") as again, again.client() as client:
        assert 1 == Etl(client).get("/tasks").json()["total"]


def test_a_long_poll_and_an_upload_do_not_hold_up_the_stop(tmp_path: Path) -> None:
    service = Service(tmp_path / "data", "--jobs", "1", DOCMILL_GRACE="3").start()
    answers: list[int] = []
    with service.client() as client:
        task_id = Etl(client).submit("slow.pdf", hostile.scans(50))
        Etl(client).wait(task_id, until=("mineru_parsing",))

    def poll() -> None:
        with suppress(httpx2.TransportError), service.client() as client:
            while 200 == (answer := client.get(f"{Etl.BASE}/tasks/{task_id}", params={"wait": 30})).status_code:
                answers.append(answer.status_code)
            answers.append(answer.status_code)

    def body() -> Iterator[bytes]:
        yield b"--b\r\nContent-Disposition: form-data; name=project_id\r\n\r\n1\r\n"
        yield b"--b\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\n"
        for _ in range(1000):
            time.sleep(0.05)
            yield b"x"

    def trickle() -> None:
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        with suppress(httpx2.TransportError), service.client() as client:
            client.post(f"{Etl.BASE}/upload", content=body(), headers=headers)

    threads = [threading.Thread(target=poll, daemon=True), threading.Thread(target=trickle, daemon=True)]
    for thread in threads:
        thread.start()
    time.sleep(0.7)
    began = time.monotonic()
    code = service.stop(15)
    took = time.monotonic() - began
    for thread in threads:
        thread.join(10)
    assert 0 == code
    assert took < 8, f"{took:.1f} s with a grace of 3 s"
    assert set(answers) <= {200, 503}
    left = [path for path in (service.data / "objects").rglob("*") if path.is_file() and path.stat().st_size < 1000]
    assert [] == left, "half an upload was left"
