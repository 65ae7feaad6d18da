"""The worker of the how-to page is run as it stands there, against a receiver that misbehaves.

That it works together with a real service is tested where the page's commands are run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from support.receiver import Receiver, Say
from support.servers.process import free_ports
from support.waiting import wait_until

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "write-a-worker.md"
KEY = "a-key"


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[httpx2.Client]:
    found = re.search(r"^```python file=worker.py\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found
    [port] = free_ports(1)
    (tmp_path / "worker.py").write_text(found[1].replace("9100", str(port)))
    with (tmp_path / "worker.log").open("w") as log:
        command = [sys.executable, "worker.py"]
        process = subprocess.Popen(command, cwd=tmp_path, stderr=log, env=os.environ | {"WORKER_KEY": KEY})
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30) as client:
        try:
            wait_until(lambda: answers(client))
            yield client
        finally:
            process.terminate()
            process.wait(timeout=30)


def answers(client: httpx2.Client) -> bool:
    try:
        return client.get("/openapi.json").is_success
    except httpx2.TransportError:
        return False


def start(client: httpx2.Client, callback_url: str, source: bytes, key: str = KEY) -> httpx2.Response:
    return client.post(
        "/pdf/process",
        headers={"Authorization": f"Bearer {key}"},
        data={"callback_url": callback_url, "callback_token": "token"},
        files={"file": ("in.txt", source)},
    )


def test_the_worker_on_the_page_takes_a_job_reports_and_delivers_once(worker: httpx2.Client, tmp_path: Path) -> None:
    with Receiver() as docmill:
        docmill.says(Say(), Say(500))
        address = docmill.job()
        first, again = (start(worker, address, b"one\ftwo\fthree") for _ in range(2))
        docmill.wait(lambda heard: heard.accepted)
        wait_until(lambda: not list((tmp_path / "spool").iterdir()))

    assert (202, first.json()) == (again.status_code, again.json())
    assert ["one\n\ntwo\n\nthree"] == [one.json["data"]["extracted_text"] for one in docmill.accepted]
    assert docmill.progress


def test_a_document_that_it_cannot_read_fails(worker: httpx2.Client) -> None:
    with Receiver() as docmill:
        start(worker, docmill.job(), b"\xff\xfe")
        docmill.wait(lambda heard: heard.accepted)

    assert "WORKER_ERROR" == docmill.accepted[0].json["error"]["code"]


def test_a_stranger_is_refused(worker: httpx2.Client) -> None:
    assert 401 == start(worker, "http://127.0.0.1:9/", b"one", key="guess").status_code
