"""One tenant floods, long documents wait in a row, a document kills its parser: the others hardly notice (R16, R22)."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import psutil
import pytest

from support import hostile
from support.serving import Etl, Mode, Service

SECRET = "a secret of the tests that is long enough for HS256"
FLOOD = int(os.environ.get("DOCMILL_FLOOD", "12"))
"""Documents of the one who floods; 100 and more on demand."""
LONG = 400_000
PASSED_BY = 3
"""Documents that may start between a short one's coming and its start: those that were taken already, and its turn."""


@pytest.fixture(scope="module")
def service(mode: Mode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    data = tmp_path_factory.mktemp(mode.name) / "data"
    with mode.serve(data, "--jobs", "1", DOCMILL_JWT_SECRET=SECRET, DOCMILL_MEMORY_MB="2048") as service:
        yield service


@contextlib.contextmanager
def signed_in(service: Service, tenant: str) -> Iterator[Etl]:
    claims = {"sub": f"of-{tenant}", "app_metadata": {"tenant_id": tenant}, "exp": int(time.time()) + 3600}
    token = jwt.encode(claims, SECRET, algorithm="HS256")
    with service.client(headers={"Authorization": f"Bearer {token}"}) as client:
        yield Etl(client)


def flood(etl: Etl, count: int, size: int = 0) -> list[int]:
    """Many documents in one request."""
    files = [("files", (f"{n}.txt", b"flood %d " % n + b"x" * size)) for n in range(count)]
    answer = etl.post("/upload_and_submit", data={"project_id": "1"}, files=files)
    assert 201 == answer.status_code, answer.text
    return [item["task_id"] for item in answer.json()["items"]]


def started(etl: Etl, task_id: int) -> str:
    return next(event["at"] for event in etl.events(task_id) if event["kind"] == "started")


def passed_by(etl: Etl, others: list[int], since: str, until: str) -> int:
    return sum(since < started(etl, one) < until for one in others)


def came(etl: Etl, task_id: int) -> str:
    return str(etl.events(task_id)[0]["at"])


def test_a_flood_of_one_tenant_does_not_starve_another(service: Service) -> None:
    with signed_in(service, "many") as many, signed_in(service, "few") as few:
        flooding = flood(many, FLOOD)

        done = few.done("one.txt", b"the only one of its tenant")

        for task_id in flooding:
            assert "completed" == many.wait(task_id)["status"]
        first = done["task_id"]
        assert passed_by(many, flooding, came(few, first), started(few, first)) <= PASSED_BY


def test_a_short_document_passes_long_ones_that_wait(service: Service) -> None:
    with signed_in(service, "mixed") as etl:
        long = flood(etl, 6, LONG)

        short = etl.done("short.txt", b"short")["task_id"]

        for task_id in long:
            assert "completed" == etl.wait(task_id)["status"]
        assert passed_by(etl, long, came(etl, short), started(etl, short)) <= PASSED_BY


def test_a_document_that_kills_its_parser_is_given_up_and_the_others_go_on(service: Service) -> None:
    poison = hostile.scans(3)
    with signed_in(service, "poisoner") as poisoner, signed_in(service, "honest") as honest:
        bad = poisoner.submit("poison.pdf", poison)
        good = [honest.submit(f"good-{n}.txt", b"honest %d" % n) for n in range(3)]
        ends = time.monotonic() + 90
        while (task := poisoner.task(bad))["status"] not in ("completed", "failed"):
            assert time.monotonic() < ends
            kill_parser_of(len(poison), service.working_pid)

        assert ("failed", "crash", 3) == (task["status"], *facts(task)), task
        for task_id in good:
            done = honest.wait(task_id)
            assert ("completed", 1) == (done["status"], done["metadata"]["attempt"])


def facts(task: dict[str, Any]) -> tuple[str, int]:
    return task["metadata"]["error_stage"], task["metadata"]["attempt"]


def kill_parser_of(size: int, parent: int) -> None:
    """As a bug in a parser would: the child that reads a PDF of this size ends with a segmentation fault."""
    for child in psutil.Process(parent).children():
        with contextlib.suppress(psutil.Error, OSError):
            if hostile.size_of_input(Path(child.cwd()).parent) == size:
                child.send_signal(signal.SIGSEGV)
    time.sleep(0.02)
