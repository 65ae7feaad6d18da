"""What a stranger learns by trying ids and tokens of jobs (S5)."""

from __future__ import annotations

import http.client
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from support.elsewhere import Elsewhere, Job
from support.serving import Etl, Service

PAIRS = 40
"""An unknown job and a known one each, from one address: fewer than its limit of a minute."""
ROUNDS = 6
MAX_RATIO = 1.5
"""Between the medians. The answers differ, as the seed demands: 404 and 401."""


@pytest.fixture
def known(tmp_path: Path) -> Iterator[tuple[Service, Job]]:
    with (
        Elsewhere() as worker,
        Service(tmp_path / "data", "--jobs", "1", DOCMILL_WORKERS=worker.settings()) as service,
        service.client() as client,
    ):
        Etl(client).submit("a.pdf", b"%PDF x", engine="secretary")
        yield service, worker.jobs.get(timeout=30)


def try_job(service: Service, job_id: str, address: str) -> tuple[int, float]:
    """One report with a wrong token, from that address of this machine: status and seconds."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30, source_address=(address, 0))
    try:
        connection.connect()
        began = time.perf_counter()
        headers = {"Authorization": "Bearer " + "x" * 43, "Content-Type": "application/json"}
        connection.request("POST", f"/api/external/jobs/{job_id}", b'{"progress": 1}', headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status, time.perf_counter() - began
    finally:
        connection.close()


def measure(service: Service, job: Job, address: str) -> float:
    """How many times longer a wrong token takes than an unknown job."""
    times: dict[int, list[float]] = {404: [], 401: []}
    for _ in range(PAIRS):
        for job_id in (str(uuid4()), job.id):
            status, seconds = try_job(service, job_id, address)
            times[status].append(seconds)
    return statistics.median(times[401]) / statistics.median(times[404])


def test_an_unknown_job_takes_as_long_as_a_wrong_token(known: tuple[Service, Job]) -> None:
    """A line about the refusal is written for a known job, after the answer. On a busy machine the median counts."""
    service, job = known

    ratio = statistics.median(measure(service, job, f"127.0.0.{10 + number}") for number in range(ROUNDS))

    print(f"{ratio:.2f} times")
    assert 1 / MAX_RATIO < ratio < MAX_RATIO


def test_who_tries_ids_meets_the_limit(known: tuple[Service, Job]) -> None:
    service, _ = known

    statuses = [try_job(service, str(uuid4()), "127.0.0.9")[0] for _ in range(101)]

    assert {404} == set(statuses[:100])
    assert 429 == statuses[100]
