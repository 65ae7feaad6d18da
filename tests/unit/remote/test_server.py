"""The worker server from end to end, with a receiver in docmill's place: real engine, real processes, both dialects."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from click.testing import CliRunner

from docmill.cli.group import root
from docmill.dialects.dispatcher import validation_errors
from support import documents
from support.receiver import Receiver, Say
from support.waiting import read_line

KEY = "the-key-of-the-worker"
SIGNING_KEY = "the-signing-key"


class Worker:
    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url
        self.http = httpx2.Client(base_url=url, trust_env=False, timeout=20, headers={"X-API-Key": KEY})

    def process_pdf(self, callback_url: str, data: bytes, name: str = "report.pdf", **fields: str) -> httpx2.Response:
        form = {"callback_url": callback_url, "callback_token": "job-token", **fields}
        return self.http.post("/pdf/process", data=form, files={"file": (name, data)})

    def start_task(self, docmill: Receiver, task_id: str, data: bytes, **more: Any) -> httpx2.Response:
        return self.http.post("/tasks", json=task(docmill, task_id, data, **more))

    def wait(self, path: str, *states: str) -> dict[str, Any]:
        ends = time.monotonic() + 30
        while (shown := self.http.get(path).json())["status"] not in states:
            assert time.monotonic() < ends, shown
            time.sleep(0.03)
        return shown


def task(docmill: Receiver, task_id: str, data: bytes, *, sha256: str = "", **more: Any) -> dict[str, Any]:
    """A start request, with brief and source where the brief says."""
    brief = {
        "version": 1,
        "task_id": task_id,
        "source": {
            "filename": "report.pdf",
            "sha256": sha256 or hashlib.sha256(data).hexdigest(),
            "size": len(data),
            "download_url": docmill.serve(f"objects/{task_id}?signature=abc", data),
        },
        "options": {},
        "result": {
            "key": f"results/{task_id}/output.zip",
            "upload_url": f"{docmill.url}/upload/{task_id}",
            "prefix": f"results/{task_id}/",
        },
    }
    return {
        "task_id": task_id,
        "brief_key": f"briefs/{task_id}.json",
        "callback_url": docmill.task(task_id),
        "callback_token": "task-token",
        "timeout_seconds": 60,
        "env": {"BRIEF_URL": docmill.serve(f"briefs/{task_id}.json", json.dumps(brief).encode())},
        "resources": {},
        **more,
    }


@contextmanager
def running(spool: Path, **environment: str) -> Iterator[Worker]:
    env = os.environ | {"DOCMILL_WORKER_API_KEY": KEY, "CALLBACK_SIGNING_KEY": SIGNING_KEY, "PYTHONWARNINGS": ""}
    with (spool.parent / f"{spool.name}.log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "docmill", "worker-server", "--port", "0", "--jobs", "1", "--spool", str(spool)],
            cwd=spool.parent,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=env | environment,
        )
        assert process.stdout
        try:
            line = read_line(process)
            assert "http://" in line, (spool.parent / f"{spool.name}.log").read_text()
            worker = Worker(process, next(word for word in line.split() if word.startswith("http://")))
            with worker.http:
                yield worker
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(20)
            process.stdout.close()


@pytest.fixture(scope="module")
def spool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worker") / "spool"


@pytest.fixture(scope="module")
def worker(spool: Path) -> Iterator[Worker]:
    with running(spool) as worker:
        yield worker
    log = spool.with_name("spool.log").read_text()
    assert 0 == worker.process.returncode, log
    for secret in ("job-token", "task-token", KEY, SIGNING_KEY, "signature=abc"):
        assert secret not in log
    assert "Traceback" not in log, log


@pytest.fixture
def docmill() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return documents.pdf_rich(tmp_path_factory.mktemp("pdf") / "rich.pdf").read_bytes()


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """So many pages that there is time to interrupt."""
    return documents.pdf(tmp_path_factory.mktemp("pdf") / "slow.pdf", pages=2000).read_bytes()


def signature(heard: Any, job_id: str) -> str:
    import hmac

    return "sha256=" + hmac.new(SIGNING_KEY.encode(), f"{job_id}:".encode() + heard.body, hashlib.sha256).hexdigest()


# Secretary


def test_a_document_goes_through_as_secretary(worker: Worker, docmill: Receiver, spool: Path, rich: bytes) -> None:
    job_id = str(uuid4())
    docmill.says(Say(), Say(500))
    answer = worker.process_pdf(
        docmill.job(job_id),
        rich,
        target_language="en",
        extraction_method="native",
        includeImages="true",
        useCache="false",
        force_refresh="false",
        template="",
    )
    assert (202, "accepted") == (answer.status_code, answer.json()["status"])
    process_id = answer.json()["process"]["id"]
    docmill.wait(lambda d: d.accepted)
    shown = worker.wait(f"/jobs/{process_id}", "completed")

    final = docmill.accepted[0]
    data = final.json["data"]
    archive = zipfile.ZipFile(io.BytesIO(base64.b64decode(data["images_archive_data"])))
    linked = [name for name in archive.namelist() if f"]({name})" in data["extracted_text"]]
    assert "Ships and Ports" in data["extracted_text"]
    assert [1, 2, 3] == [page["page"] for page in data["metadata"]["text_contents"]]
    assert linked
    assert all(name.startswith("assets/") for name in archive.namelist())
    assert ("Bearer job-token", signature(final, job_id)) == (
        final.headers["authorization"],
        final.headers["x-kohakku-signature"],
    )
    assert all(one.json["process"] == {"id": process_id} for one in docmill.progress)
    assert (None, 100.0) == (shown["error"], shown["progress"])
    ended(spool)


def ended(spool: Path, seconds: float = 30) -> None:
    """Neither a job nor a report is left."""
    ends = time.monotonic() + seconds
    while left := [*(spool / "jobs").iterdir(), *(spool / "reports").iterdir()]:
        assert time.monotonic() < ends, left
        time.sleep(0.02)


def test_a_document_that_cannot_be_read_fails_with_its_code(worker: Worker, docmill: Receiver, tmp_path: Path) -> None:
    data = documents.pdf(tmp_path / "locked.pdf", encrypt="secret").read_bytes()

    worker.process_pdf(docmill.job(), data)
    docmill.wait(lambda d: d.accepted)

    assert ("failed", "document_encrypted") == (
        docmill.finals[0].json["phase"],
        docmill.finals[0].json["error"]["code"],
    )


def test_without_images_there_are_none_and_pages_are_counted(worker: Worker, docmill: Receiver, tmp_path: Path) -> None:
    data = documents.pdf(tmp_path / "long.pdf", pages=60).read_bytes()

    worker.process_pdf(docmill.job(), data, includeImages="false")
    docmill.wait(lambda d: d.accepted)

    assert "images_archive_data" not in docmill.finals[0].json["data"]
    assert 60 == len(docmill.finals[0].json["data"]["metadata"]["text_contents"])
    messages = {one.json["message"] for one in docmill.progress}
    assert messages <= {"queued", "finalizing"} | {f"page {n} of 60" for n in range(61)}


def test_the_same_start_again_is_the_same_job(worker: Worker, docmill: Receiver, rich: bytes) -> None:
    url = docmill.job()

    first = worker.process_pdf(url, rich).json()["process"]["id"]
    second = worker.process_pdf(url, rich).json()["process"]["id"]
    docmill.wait(lambda d: d.accepted)
    third = worker.process_pdf(url, rich)

    assert (202, first) == (third.status_code, third.json()["process"]["id"])
    assert first == second
    time.sleep(0.2)
    assert 1 == len(docmill.finals)


def test_a_cancel_stops_what_runs_and_what_waits(worker: Worker, docmill: Receiver, slow: bytes, spool: Path) -> None:
    runs, waits, too = (worker.process_pdf(docmill.job(), slow).json()["process"]["id"] for _ in range(3))
    docmill.wait(lambda d: any("page " in one.json["message"] for one in d.progress))

    assert 202 == worker.http.delete(f"/jobs/{waits}/cancel").status_code
    assert 202 == worker.http.delete(f"/jobs/{too}").status_code
    assert 202 == worker.http.post(f"/jobs/{runs}/cancel").status_code
    docmill.wait(lambda d: len(d.accepted) == 3)

    assert ["CANCELLED"] * 3 == [one.json["error"]["code"] for one in docmill.finals]
    for process_id in (runs, waits, too):
        assert "cancelled" == worker.wait(f"/jobs/{process_id}", "cancelled")["status"]
    ended(spool)


def test_docmill_cancels_in_its_answer(worker: Worker, docmill: Receiver, slow: bytes, spool: Path) -> None:
    docmill.on_progress = Say(body={"status": "ok", "kind": "progress", "cancel_requested": True})

    process_id = worker.process_pdf(docmill.job(), slow).json()["process"]["id"]

    assert "cancelled" == worker.wait(f"/jobs/{process_id}", "cancelled")["status"]
    ended(spool)


def test_a_job_that_docmill_does_not_know_is_dropped(
    worker: Worker, docmill: Receiver, slow: bytes, spool: Path
) -> None:
    docmill.on_progress = Say(404, body={"error": {"code": "job_not_found"}})

    process_id = worker.process_pdf(docmill.job(), slow).json()["process"]["id"]

    assert "callback_refused" == worker.wait(f"/jobs/{process_id}", "failed")["error"]["code"]
    assert [] == docmill.finals
    ended(spool)


# Dispatcher


def test_a_document_goes_through_as_dispatcher(worker: Worker, docmill: Receiver, spool: Path, rich: bytes) -> None:
    task_id = str(uuid4())
    started = [worker.start_task(docmill, task_id, rich) for _ in range(3)]
    docmill.wait(lambda d: d.accepted)

    (final,) = docmill.finals
    archive = zipfile.ZipFile(io.BytesIO(docmill.files[f"/upload/{task_id}"]))
    markdown = archive.read("document.md").decode()
    assert [(202, {"task_id": task_id, "status": "accepted"})] * 3 == [(one.status_code, one.json()) for one in started]
    assert ("completed", 0, f"results/{task_id}/output.zip") == tuple(
        final.json[name] for name in ("status", "exit_code", "result_key")
    )
    assert [] == validation_errors(final.json)
    assert 3 == final.json["result_metadata"]["pages"]
    assert "Ships and Ports" in markdown
    assert {"document.md"} < set(archive.namelist())
    assert all(f"]({name})" in markdown for name in archive.namelist() if name.endswith("_img01.png"))
    assert signature(final, task_id) == final.headers["x-kohakku-signature"]
    assert "completed" == worker.http.get(f"/tasks/{task_id}").json()["status"]
    ended(spool)


def test_a_source_that_is_not_the_promised_one_is_not_parsed(worker: Worker, docmill: Receiver, rich: bytes) -> None:
    worker.start_task(docmill, str(uuid4()), rich, sha256="0" * 64)
    docmill.wait(lambda d: d.accepted)

    final = docmill.finals[0].json
    assert ("failed", 1) == (final["status"], final["exit_code"])
    assert final["error_message"].startswith("[source_mismatch] ")


def test_a_broken_document_fails_with_its_code_in_the_message(worker: Worker, docmill: Receiver) -> None:
    worker.start_task(docmill, str(uuid4()), b"")
    docmill.wait(lambda d: d.accepted)

    final = docmill.finals[0].json
    assert ("failed", 1, "[document_empty]") == (
        final["status"],
        final["exit_code"],
        final["error_message"].split()[0],
    )


def test_a_task_is_cancelled_and_one_is_too_slow(worker: Worker, docmill: Receiver, slow: bytes, spool: Path) -> None:
    """The second waits for the only slot, and its time counts from when it was accepted."""
    cancelled, late = str(uuid4()), str(uuid4())
    worker.start_task(docmill, cancelled, slow)
    worker.start_task(docmill, late, slow, timeout_seconds=1.5)
    worker.wait(f"/tasks/{cancelled}", "running")
    docmill.wait(lambda d: any(late in one.path for one in d.accepted))
    assert 202 == worker.http.post(f"/tasks/{cancelled}/cancel").status_code
    assert 202 == worker.http.delete(f"/tasks/{cancelled}").status_code, "once more is harmless"
    assert 404 == worker.http.post(f"/tasks/{uuid4()}/cancel").status_code
    docmill.wait(lambda d: len(d.accepted) == 2)

    ends = {one.path.split("/")[-3]: one.json for one in docmill.finals}
    assert ("timed_out", None) == (ends[late]["status"], ends[late]["exit_code"])
    assert ("cancelled", None) == (ends[cancelled]["status"], ends[cancelled]["exit_code"])
    assert all([] == validation_errors(one) for one in ends.values())
    ended(spool)


# Doors


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"X-API-Key": "wrong"}, 401),
        ({"X-API-Key": ""}, 401),
        ({"X-API-Key": KEY, "Authorization": "Bearer wrong"}, 401),
        ({"X-API-Key": "", "Authorization": f"Bearer {KEY}"}, 404),
        ({"X-API-Key": "", "X-Service-Token": KEY}, 404),
    ],
)
def test_the_key_opens(worker: Worker, headers: dict[str, str], status: int) -> None:
    assert status == worker.http.get("/jobs/unknown", headers=headers).status_code
    assert 200 == worker.http.get("/health", headers={"X-API-Key": ""}).status_code


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"callback_url": "file:///etc/passwd"}, "request_invalid"),
        ({"callback_url": None}, "request_invalid"),
        ({"callback_token": "two words"}, "request_invalid"),
        ({"task_id": "../../etc"}, "request_invalid"),
        ({"env": {}}, "brief_url_missing"),
        ({"env": {"BRIEF_URL": "ftp://x/1"}}, "request_invalid"),
        ({"timeout_seconds": -1}, "request_invalid"),
    ],
)
def test_a_start_that_makes_no_sense_is_refused(
    worker: Worker, docmill: Receiver, spool: Path, change: dict[str, Any], code: str
) -> None:
    answer = worker.http.post("/tasks", json=task(docmill, str(uuid4()), b"x") | change)

    assert (400, code) == (answer.status_code, answer.json()["error"]["code"])
    ended(spool)


def test_a_form_that_makes_no_sense_is_refused(worker: Worker, docmill: Receiver, spool: Path) -> None:
    no_file = worker.http.post("/pdf/process", data={"callback_url": docmill.job(), "callback_token": "t"}, files={})
    no_form = worker.http.post("/pdf/process", json={})
    no_token = worker.process_pdf(docmill.job(), b"x", callback_token="")
    cut = worker.http.post(
        "/pdf/process", content=b"--b\r\nnonsense", headers={"Content-Type": "multipart/form-data; boundary=b"}
    )

    assert [415, 415, 400, 400] == [one.status_code for one in (no_file, no_form, no_token, cut)]
    ended(spool)


# Restart


def test_what_a_kill_interrupted_goes_on(docmill: Receiver, tmp_path: Path) -> None:
    """One report undelivered, one job running, one task waiting, one job without its source: all end, each once."""
    spool = tmp_path / "spool"
    docmill.on_progress = Say()
    docmill.otherwise = Say(503)
    done, again, lost, waiting = (str(uuid4()) for _ in range(4))
    short = documents.pdf(tmp_path / "short.pdf", pages=2).read_bytes()
    long = documents.pdf(tmp_path / "long.pdf", pages=40).read_bytes()
    endless = documents.pdf(tmp_path / "endless.pdf", pages=600).read_bytes()
    with running(spool) as worker:
        worker.process_pdf(docmill.job(done), short)
        docmill.wait(lambda d: d.finals)
        worker.process_pdf(docmill.job(again), long)
        worker.process_pdf(docmill.job(lost), endless)
        worker.start_task(docmill, waiting, short)
        worker.process.kill()
        worker.process.wait(30)
    for record in (spool / "jobs").glob("*/job.json"):
        assert 0o600 == record.stat().st_mode & 0o777
        if lost in record.read_text():
            (record.parent / "source").unlink()
        if waiting in record.read_text():
            assert 0 == json.loads(record.read_text())["starts"], "waiting is no start"
    docmill.otherwise = Say()

    with running(spool):
        docmill.wait(lambda d: len(d.accepted) == 4)
        ended(spool)
        time.sleep(0.3)

    ends = {job: [one.json for one in docmill.accepted if job in one.path] for job in (done, again, lost, waiting)}
    assert [1, 1, 1, 1] == [len(one) for one in ends.values()]
    assert "(2.11)" in ends[done][0]["data"]["extracted_text"]
    assert "(40.11)" in ends[again][0]["data"]["extracted_text"]
    assert "WORKER_RESTARTED" == ends[lost][0]["error"]["code"]
    assert "completed" == ends[waiting][0]["status"]


def test_who_was_running_at_three_kills_is_given_up(docmill: Receiver, tmp_path: Path, slow: bytes) -> None:
    spool = tmp_path / "spool"
    behind = str(uuid4())
    short = documents.pdf(tmp_path / "short.pdf", pages=1).read_bytes()
    for kill in range(3):
        with running(spool) as worker:
            if kill == 0:
                worker.process_pdf(docmill.job(), slow)
                worker.process_pdf(docmill.job(behind), short)
            seen = len(docmill.progress)
            docmill.wait(lambda d, seen=seen: any("page " in one.json["message"] for one in d.progress[seen:]))
            worker.process.kill()
            worker.process.wait(30)
    with running(spool):
        docmill.wait(lambda d: len(d.accepted) == 2)

    ends = {behind in one.path: one.json for one in docmill.accepted}
    assert "WORKER_RESTARTED" == ends[False]["error"]["code"]
    assert "completed" == ends[True]["phase"], "it only waited while the worker was killed"


def test_a_planned_stop_keeps_the_work(docmill: Receiver, tmp_path: Path, slow: bytes) -> None:
    spool = tmp_path / "spool"
    with running(spool) as worker:
        worker.process_pdf(docmill.job(), slow)
        docmill.wait(lambda d: any("page " in one.json["message"] for one in d.progress))
        began = time.monotonic()
        worker.process.send_signal(signal.SIGTERM)
        assert 0 == worker.process.wait(20)

    (record,) = (spool / "jobs").glob("*/job.json")
    assert time.monotonic() - began < 10
    assert 0 == json.loads(record.read_text())["starts"]
    assert [] == docmill.finals


def test_without_a_key_only_this_machine_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path / "spool", DOCMILL_WORKER_API_KEY="") as worker:
        answers = [
            worker.http.get("/jobs/1", headers=headers).status_code
            for headers in ({}, {"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Host": "[bad"})
        ]
        second = subprocess.run(
            [sys.executable, "-m", "docmill", "worker-server", "--port", "0", "--spool", str(tmp_path / "spool")],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    monkeypatch.delenv("DOCMILL_WORKER_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    bound = CliRunner().invoke(root, ["worker-server", "--host", "0.0.0.0", "--port", "0"])

    assert [404, 403, 403] == answers[:3]
    assert answers[3] in (400, 403)
    assert (2, True) == (second.returncode, "data_locked" in second.stderr)
    assert (2, True) == (bound.exit_code, "DOCMILL_WORKER_API_KEY" in bound.stderr)
