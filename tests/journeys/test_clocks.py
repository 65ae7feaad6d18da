"""A worker whose event loop is busy for longer than its lease, and clocks that are wrong or put back (R7, R12)."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import hostile
from support.peers import Asked, ProviderPeer, Reply, route
from support.receiver import Receiver, Say
from support.serving import Etl, Fleet, Mode, Service, tampering

LEASE_S = 3.5
BUSY_S = 5.0
OFF_S = 600
HOUR_S = 3600
BUSY = {"busy": {"seconds": BUSY_S, "name": "busy.txt"}}


class Absent(ProviderPeer):
    """An external worker that is not ready the first two times."""

    @route("POST", "/pdf/process")
    def process(self, asked: Asked) -> Reply:
        return Reply(503, {}) if len(self.asked("POST", "/pdf/process")) <= 2 else Reply(202, {"process": {"id": "p"}})


class Silent(ProviderPeer):
    """An external worker that takes a job and never reports."""

    @route("POST", "/pdf/process")
    def process(self, _asked: Asked) -> Reply:
        return Reply(202, {"process": {"id": "p"}})


@pytest.fixture(scope="module")
def absent() -> Iterator[Absent]:
    with Absent() as peer:
        yield peer


@pytest.fixture(scope="module")
def service(mode: Mode, absent: Absent, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Embedded: one clock, which can be put back. Distributed: that of the API is slow, those of the workers differ."""
    workers = {"absent": {"dialect": "secretary", "url": f"{absent.url}/pdf/process", "timeout": 60}}
    pace = {"DOCMILL_LEASE": str(LEASE_S), "DOCMILL_HEARTBEAT": "0.4", "DOCMILL_SWEEP": "0.3"}
    made = mode.serve(
        tmp_path_factory.mktemp(mode.name) / "data",
        *("--jobs", "1"),
        workers=2,
        DOCMILL_WORKERS=json.dumps(workers),
        **pace,
    )
    if isinstance(made, Fleet):
        made.tampered(clock={"off_s": -OFF_S, "step_s": -HOUR_S})
        for worker, off_s in zip(made.workers, (OFF_S, -OFF_S), strict=True):
            worker.program = tampering(BUSY | {"clock": {"off_s": off_s, "step_s": -HOUR_S}})
    else:
        made.tampered(**BUSY, clock={"step_s": -HOUR_S})
    with made:
        yield made


def kinds(etl: Etl, task_id: int) -> list[str]:
    return [event["kind"] for event in etl.events(task_id)]


def test_a_busy_event_loop_costs_no_lease(service: Service) -> None:
    with service.client() as client:
        etl = Etl(client)

        done = etl.done("busy.txt", b"busy for longer than the lease")

        assert 1 == done["metadata"]["attempt"], [*etl.events(done["task_id"]), *service.log]
        assert 1 == kinds(etl, done["task_id"]).count("started")
        assert "worker_lost" not in kinds(etl, done["task_id"])


def test_a_clock_that_is_put_back_steals_no_lease_and_holds_up_no_retry(service: Service, absent: Absent) -> None:
    with service.client() as client:
        etl = Etl(client)
        absent.seen.clear()
        retried = etl.submit("retried.txt", b"its worker is not ready", engine="absent")
        ends = time.monotonic() + 30
        while "retry_scheduled" not in kinds(etl, retried):
            assert time.monotonic() < ends
        busy = etl.submit("busy.txt", b"busy while the clock is put back")
        # A loop that is busy answers nobody: who asks whether it has begun may hear only that it has ended.
        time.sleep(BUSY_S / 3)
        pids = [worker.pid for worker in service.workers] if isinstance(service, Fleet) else []
        for pid in (service.pid, *pids):
            os.kill(pid, signal.SIGUSR2)

        assert "completed" == etl.wait(busy)["status"]
        absent.wait_for("POST", "/pdf/process", count=3)

        assert "worker_lost" not in kinds(etl, busy)
        ends = time.monotonic() + 30
        while not etl.task(retried)["metadata"].get("job_id"):
            assert time.monotonic() < ends
        assert 200 == etl.post(f"/tasks/{retried}/cancel", params={"force": "true"}).status_code
        assert "completed" == etl.done("after.txt", b"after the clock was put back")["status"]


@pytest.mark.parametrize("mode", ["embedded"], indirect=True)
def test_a_machine_that_slept_loses_no_attempt(service: Service) -> None:
    """Longer than the lease: when it wakes up, nobody else can have taken over. In a fleet somebody would."""
    with service.client() as client:
        etl = Etl(client)
        task_id = etl.submit("scan.pdf", hostile.scans(1), no_cache=True)
        etl.wait(task_id, until=("mineru_parsing",))
        os.kill(service.pid, signal.SIGSTOP)
        time.sleep(LEASE_S + 0.5)
        os.kill(service.pid, signal.SIGCONT)

        assert ("completed", 1) == (etl.wait(task_id)["status"], etl.task(task_id)["metadata"]["attempt"])
        assert "worker_lost" not in kinds(etl, task_id)


@pytest.mark.parametrize("mode", ["embedded"], indirect=True)
def test_a_clock_an_hour_ahead_and_back_fails_no_job_and_delays_no_webhook(mode: Mode, tmp_path: Path) -> None:
    """R29: the job is silent for longer than its timeout by the clock, and the retry of a webhook is set meanwhile."""
    with Silent() as peer, Receiver() as receiver:
        workers = {"silent": {"dialect": "secretary", "url": f"{peer.url}/pdf/process", "timeout": 600}}
        made = mode.serve(
            tmp_path / "data",
            DOCMILL_WORKERS=json.dumps(workers),
            DOCMILL_SWEEP="0.2",
            DOCMILL_WEBHOOK_NETWORKS='["127.0.0.1/32"]',
            DOCMILL_WEBHOOK_PORTS=f"[{receiver.url.rsplit(':', 1)[1]}]",
            DOCMILL_WEBHOOK_DAYS="0.6",  # the first wait is a second
        )
        made.tampered(clock={"steps_s": [HOUR_S, -HOUR_S]})
        with made, made.client() as client:
            etl = Etl(client)
            answer = client.post("/api/v1/webhooks", json={"url": f"{receiver.url}/in"})
            assert 201 == answer.status_code, answer.text
            job = etl.submit("job.txt", b"its worker says nothing", engine="silent")
            peer.wait_for("POST", "/pdf/process")
            etl.wait(job, until=("mineru_parsing",))
            receiver.says(Say(503))

            os.kill(made.pid, signal.SIGUSR2)
            etl.done("ahead.txt", b"ends an hour ahead")
            wait_until(lambda: len(receiver.posts) == 1)
            assert "mineru_parsing" == etl.task(job)["status"], etl.events(job)
            os.kill(made.pid, signal.SIGUSR2)

            wait_until(lambda: len(receiver.posts) == 2)
            etl.done("back.txt", b"ends after the clock was set back")
            wait_until(lambda: len(receiver.posts) == 3)
            assert "mineru_parsing" == etl.task(job)["status"], etl.events(job)
            assert 200 == etl.post(f"/tasks/{job}/cancel", params={"force": "true"}).status_code


def wait_until(is_so: Callable[[], bool], seconds: float = 30) -> None:
    ends = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.05)
