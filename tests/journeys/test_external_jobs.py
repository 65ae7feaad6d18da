"""Jobs of external workers as today's workers and pollers use them: error lines, options, cancel, lists."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from support.elsewhere import Elsewhere, Job
from support.serving import Etl, Mode, Service

GRACE_S = 1.5
ERROR_LINE = {
    "phase": "failed",
    "progress": 35,
    "message": "OCR of page 3 failed",
    "process": {"id": "proc-77"},
    "error": None,
}
"""What a worker sends for a line of level error in its log."""
FINAL = {"phase": "completed", "data": {"extracted_text": "# All pages\n"}}
FAILED = {"phase": "failed", "error": {"code": "OCR_TIMEOUT", "message": "no OCR", "details": {"service": "ocr-1"}}}


@pytest.fixture(scope="module")
def worker() -> Iterator[Elsewhere]:
    with Elsewhere(prefix="/api") as running:
        yield running


@pytest.fixture(scope="module")
def service(mode: Mode, worker: Elsewhere, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    data = tmp_path_factory.mktemp("jobs") / "data"
    settings = {"DOCMILL_FAILURE_GRACE": str(GRACE_S), "DOCMILL_SWEEP": "0.2"}
    with mode.serve(data, DOCMILL_WORKERS=worker.settings(), **settings) as running:
        yield running


@pytest.fixture
def etl(service: Service) -> Iterator[Etl]:
    with service.client() as client:
        yield Etl(client)


@pytest.fixture(autouse=True)
def usual_worker(worker: Elsewhere) -> Iterator[None]:
    yield
    worker.answer, worker.knows_delete, worker.before_answer = None, True, lambda job: None
    worker.cancelled.clear()


def start(etl: Etl, worker: Elsewhere, engine: str = "secretary", **wishes: Any) -> tuple[int, Job]:
    task = etl.submit("invoice.pdf", b"%PDF-1.7 " + uuid4().bytes, engine=engine, **wishes)
    job = worker.next_job()
    # The start request is answered now; wait until the answer is written.
    wait_for(lambda: any(line["phase"] == "queued" for line in poll(etl, job)["logs"]))
    return task, job


def poll(etl: Etl, job: Job, **query: Any) -> dict[str, Any]:
    answer = etl.http.get(f"/api/external/jobs/{job.id}", params=query)
    assert 200 == answer.status_code, answer.text
    found: dict[str, Any] = answer.json()
    return found


def jobs(etl: Etl, **query: Any) -> dict[str, Any]:
    answer = etl.http.get("/api/external/jobs", params=query)
    assert 200 == answer.status_code, answer.text
    found: dict[str, Any] = answer.json()
    return found


def wait_for(is_so: Callable[[], bool], seconds: float = 20) -> None:
    ends = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.05)


# Errors that a worker logs


def test_an_error_line_of_the_worker_s_log_does_not_end_the_job(etl: Etl, worker: Elsewhere) -> None:
    task, job = start(etl, worker)

    answer = job.send(ERROR_LINE)
    assert (200, {"status": "ok", "kind": "failed", "jobId": job.id}) == (answer.status_code, answer.json())
    running = poll(etl, job)
    assert ("running", None, "proc-77") == (running["status"], running["error"], running["processId"])
    assert ("failed", "OCR of page 3 failed") == (running["logs"][-1]["phase"], running["logs"][-1]["message"])

    assert "final" == job.send(FINAL).json()["kind"]
    done = etl.wait(task)
    assert ("completed", "# All pages\n") == (done["status"], done["result"]["invoice"]["content"])
    assert ("completed", None) == (poll(etl, job)["status"], poll(etl, job)["error"])


def test_without_another_report_the_job_fails_with_the_logged_error(etl: Etl, worker: Elsewhere) -> None:
    task, job = start(etl, worker)
    began = time.monotonic()
    job.send(ERROR_LINE)
    job.send(ERROR_LINE | {"message": "The disk is full"})

    failed = etl.wait(task, seconds=20)

    assert time.monotonic() - began >= GRACE_S
    meta = failed["metadata"]
    assert ("failed", "The disk is full", "worker_failed", "mineru") == (
        failed["status"], failed["error"], meta["error_code"], meta["error_stage"],
    )  # fmt: skip
    assert {"code": None, "message": "The disk is full", "details": None} == meta["worker_error"]
    polled = poll(etl, job)
    assert ("failed", "The disk is full") == (polled["status"], polled["error"]["message"])
    late = job.send({"progress": 90})
    assert (200, True) == (late.status_code, late.json().get("cancel_requested")), "the worker should stop"


def test_progress_after_an_error_line_restores_the_normal_deadline(etl: Etl, worker: Elsewhere) -> None:
    task, job = start(etl, worker)
    job.send(ERROR_LINE)
    assert 200 == job.send({"phase": "extract_text", "progress": 40, "message": "page 4"}).status_code
    time.sleep(GRACE_S + 1)

    assert "mineru_parsing" == etl.task(task)["status"]
    job.send(FINAL)
    assert "completed" == etl.wait(task)["status"]


def test_an_error_line_before_the_start_request_is_answered_counts_all_the_same(etl: Etl, worker: Elsewhere) -> None:
    worker.before_answer = lambda job: job.send(ERROR_LINE)
    task, _ = start(etl, worker)

    failed = etl.wait(task, seconds=20)

    assert ("failed", "OCR of page 3 failed") == (failed["status"], failed["error"])


def test_with_an_error_object_the_job_ends_at_once(etl: Etl, worker: Elsewhere) -> None:
    task, job = start(etl, worker)
    job.send(FAILED)

    assert "failed" == etl.task(task)["status"]
    assert "failed" == poll(etl, job)["status"]


def test_a_restart_does_not_forget_the_logged_error(tmp_path: Path) -> None:
    with Elsewhere() as worker:
        service = Service(
            tmp_path / "data",
            DOCMILL_WORKERS=worker.settings(),
            DOCMILL_FAILURE_GRACE="3",
            DOCMILL_SWEEP="0.2",
        )
        with service, service.client() as client:
            task, job = start(Etl(client), worker)
            assert 200 == job.send(ERROR_LINE).status_code
            service.kill()
            service.start()
            with service.client() as again:
                failed = Etl(again).wait(task, seconds=20)
    assert ("failed", "OCR of page 3 failed") == (failed["status"], failed["error"])


# What pollers read


def test_a_log_line_has_the_worker_s_own_words_at_its_top_level(etl: Etl, worker: Elsewhere) -> None:
    _, job = start(etl, worker)
    job.send({"phase": "extract_text", "progress": 42, "message": "page 12 of 28", "process": {"id": "sec-1"}})
    job.send({"phase": "images", "progress": 17.5})

    polled = poll(etl, job)

    first, second = polled["logs"][-2:]
    assert ("extract_text", 42, "page 12 of 28") == (first["phase"], first["progress"], first["message"])
    assert ("images", 17.5, None) == (second["phase"], second["progress"], second["message"])
    assert (first["at"], 28) == (first["timestamp"], first["data"]["progress"])
    assert (polled["created_at"], polled["updated_at"]) == (polled["createdAt"], polled["updatedAt"])
    assert polled["createdAt"] <= first["timestamp"] <= polled["updatedAt"]
    assert [second] == poll(etl, job, limit=1)["logs"]
    assert polled["logs"] == poll(etl, job, limit=100_000)["logs"], "clamped, not refused"


def test_an_error_has_the_worker_s_own_code_message_and_details(etl: Etl, worker: Elsewhere) -> None:
    task, job = start(etl, worker)
    job.send(FAILED)
    own = {"code": "OCR_TIMEOUT", "message": "no OCR", "details": {"service": "ocr-1"}}

    assert own == etl.wait(task)["metadata"]["worker_error"]
    error = poll(etl, job)["error"]
    assert own == {name: error[name] for name in own}
    assert ("mineru", "worker_failed") == (error["stage"], error["error_code"])

    task, job = start(etl, worker, "dispatcher")
    job.send({"status": "failed", "exit_code": 137, "error_message": "OOM", "log_stream": "logs/1"})
    own = {"code": None, "message": "OOM", "details": {"exit_code": 137, "log_stream": "logs/1"}}
    assert own == etl.wait(task)["metadata"]["worker_error"]
    assert "worker_failed" == poll(etl, job)["error"]["code"], "ours, where the worker has none"


def test_a_job_keeps_its_own_error_when_its_task_is_retried(etl: Etl, worker: Elsewhere) -> None:
    task, job = start(etl, worker)
    job.send(FAILED)
    assert 200 == etl.post(f"/tasks/{task}/retry", json={"from_stage": "mineru"}).status_code
    again = worker.next_job()
    again.send(FINAL)
    assert None is etl.wait(task)["metadata"]["worker_error"]

    assert ("failed", "OCR_TIMEOUT") == (poll(etl, job)["status"], poll(etl, job)["error"]["code"])
    assert ("completed", None) == (poll(etl, again)["status"], poll(etl, again)["error"])


def test_jobs_are_listed_by_page_and_status(worker: Elsewhere, tmp_path: Path) -> None:
    with Service(tmp_path / "data", DOCMILL_WORKERS=worker.settings()) as service, service.client() as client:
        etl = Etl(client)
        assert {"items": [], "page": 1, "limit": 50, "total": 0, "jobs": [], "next": None} == jobs(etl)
        done, failed, cancelled, running = (start(etl, worker) for _ in range(4))
        done[1].send(FINAL | {"message": "all pages are read"})
        failed[1].send(FAILED)
        etl.post(f"/tasks/{cancelled[0]}/cancel?force=true")
        running[1].send({"phase": "extract_text", "progress": 42, "message": "page 12 of 28"})
        running[1].send(ERROR_LINE)
        etl.wait(done[0])

        listed = jobs(etl)
        assert [running[1].id, cancelled[1].id, failed[1].id, done[1].id] == [one["jobId"] for one in listed["items"]]
        assert ["running", "cancelled", "failed", "completed"] == [one["status"] for one in listed["items"]]
        assert {"invoice.pdf"} == {one["fileName"] for one in listed["items"]}
        newest = listed["items"][0]
        assert ("OCR of page 3 failed", 42) == (newest["lastMessage"], newest["lastProgress"])
        assert FAILED["error"]["message"] == listed["items"][2]["lastMessage"]
        assert ("all pages are read", 100) == (listed["items"][3]["lastMessage"], listed["items"][3]["lastProgress"])
        assert (4, 1, 50, listed["items"]) == (listed["total"], listed["page"], listed["limit"], listed["jobs"])
        assert all(one["createdAt"] <= one["updatedAt"] for one in listed["items"])

        second = jobs(etl, page=2, limit=3)
        assert ([done[1].id], 2, 3, 4) == (
            [one["jobId"] for one in second["items"]], second["page"], second["limit"], second["total"],
        )  # fmt: skip
        beyond = jobs(etl, page=9, limit=3)
        assert ([], 4) == (beyond["items"], beyond["total"])
        for status, job in (("failed", failed), ("completed", done), ("cancelled", cancelled), ("running", running)):
            found = jobs(etl, status=status)
            assert ([job[1].id], 1) == ([one["jobId"] for one in found["items"]], found["total"]), status
        assert 100 == jobs(etl, limit=5_000)["limit"], "clamped"
        assert 422 == etl.http.get("/api/external/jobs?status=lost").status_code
        older = jobs(etl, limit=2)
        following = jobs(etl, limit=2, before=older["next"])
        assert [failed[1].id, done[1].id] == [one["jobId"] for one in following["items"]]


def test_a_job_waits_for_its_twin_to_be_stored_and_then_is_completed(etl: Etl, worker: Elsewhere) -> None:
    task, job = start(etl, worker, twin=True)
    job.send(FINAL)
    etl.wait(task)

    assert "completed" == poll(etl, job)["status"]
    assert job.id in [one["jobId"] for one in jobs(etl, status="completed")["items"]]


# Options


def test_options_reach_the_secretary_s_start_request(etl: Etl, worker: Elsewhere) -> None:
    names = ("target_language", "extraction_method", "useCache", "includeImages", "force_refresh", "template")
    asked = {
        "extraction_method": "native_and_ocr",
        "target_language": "de",
        "use_cache": True,
        "include_images": False,
        "force_refresh": True,
        "template": "Meeting Minutes",
        "ocr": "always",
    }
    _, job = start(etl, worker, options=asked)
    assert ("de", "native_and_ocr", "true", "false", "true", "Meeting Minutes") == tuple(
        job.form[name] for name in names
    )

    _, job = start(etl, worker, options={"ocr": "always", "language": "fr"})
    assert ("fr", "ocr", "false", "true", "false", "") == tuple(job.form[name] for name in names)

    answer = etl.post(
        "/upload_and_submit",
        data={"project_id": "1", "engine": "secretary", "options": json.dumps({"template": "T", "use_cache": True})},
        files={"files": ("a.pdf", b"%PDF-1.7 " + uuid4().bytes)},
    )
    assert 201 == answer.status_code, answer.text
    form = worker.next_job().form
    assert ("native", "true", "T") == (form["extraction_method"], form["useCache"], form["template"])


@pytest.mark.parametrize("engine", [None, "local", "secretary", "dispatcher", "mineru", "docling"])
def test_an_unknown_option_is_refused_with_its_name_by_every_engine(providers: Service, engine: str | None) -> None:
    with providers.client() as client:
        etl = Etl(client)
        key = etl.upload("a.pdf", b"%PDF-1.7")["key"]
        wanted = {"s3_key": key} | ({"engine": engine} if engine else {})
        for options in ({"extraktion_method": "ocr"}, {"extraktion_method": None, "ocr": "never"}):
            answer = etl.post("/submit", json=wanted | {"options": options})
            assert (422, "option_unknown") == (answer.status_code, answer.json()["code"])
            assert "extraktion_method" in answer.json()["detail"]
        form = {"project_id": "1", "options": '{"extraktion_method": "ocr"}'} | ({"engine": engine} if engine else {})
        answer = etl.post("/upload_and_submit", data=form, files={"files": ("a.pdf", b"%PDF-1.7")})
        assert (422, "option_unknown") == (answer.status_code, answer.json()["code"])
        if engine != "secretary":
            answer = etl.post("/submit", json=wanted | {"options": {"template": "T"}})
            assert (422, True) == (answer.status_code, "template" in answer.json()["detail"]), "it could not honour it"
        assert 0 == etl.get("/tasks").json()["total"]


@pytest.fixture(scope="module")
def providers(worker: Elsewhere, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with every kind of engine. Nothing is ever submitted to them."""
    named = {name: {"url": "http://127.0.0.1:9"} for name in ("mineru", "docling")}
    data = tmp_path_factory.mktemp("engines") / "data"
    settings = {"DOCMILL_WORKERS": worker.settings(), "DOCMILL_PROVIDERS": json.dumps(named)}
    with Service(data, **settings) as running:
        yield running


# Cancel


def test_a_cancel_reaches_a_secretary_under_every_id_that_it_gave(etl: Etl, worker: Elsewhere) -> None:
    worker.answer = {"status": "accepted", "process": {"id": "start/1"}, "job": {"id": "job-9"}}
    task, job = start(etl, worker)
    job.send({"phase": "extract_text", "progress": 5, "process": {"id": "report-2"}})
    assert 200 == etl.post(f"/tasks/{task}/cancel?force=true").status_code

    expected = {"/api/jobs/start%2F1", "/api/jobs/job-9", "/api/jobs/report-2"}
    assert expected == set(worker.cancelled), "beside /api/pdf/process"

    worker.cancelled.clear()
    worker.knows_delete = False
    task, _ = start(etl, worker)
    etl.post(f"/tasks/{task}/cancel?force=true")
    assert {"/api/jobs/start%2F1/cancel", "/api/jobs/job-9/cancel"} == set(worker.cancelled)


def test_a_cancel_reaches_a_dispatcher_under_the_id_of_its_envelope(etl: Etl, worker: Elsewhere) -> None:
    worker.answer = {"ok": True, "data": {"task": {"id": "dis-5", "status": "queued"}}}
    task, _ = start(etl, worker, "dispatcher")
    assert "dis-5" == etl.task(task)["metadata"]["provider_task_id"]
    etl.post(f"/tasks/{task}/cancel?force=true")
    assert ["/api/tasks/dis-5"] == worker.cancelled

    worker.cancelled.clear()
    worker.knows_delete = False
    task, _ = start(etl, worker, "dispatcher")
    etl.post(f"/tasks/{task}/cancel?force=true")
    assert ["/api/tasks/dis-5/cancel"] == worker.cancelled


# The dispatcher's report


def test_the_same_report_spelled_differently_is_a_duplicate(etl: Etl, worker: Elsewhere) -> None:
    task, job = start(etl, worker, "dispatcher")
    assert 200 == job.send(b'{"status": "failed", "exit_code": 1, "error_message": "caf\\u00e9"}').status_code
    etl.wait(task)

    again = job.send('{"error_message":"café",\n  "exit_code":1, "status":"failed"}'.encode())
    assert (200, {"status": "ok", "task_guid": job.id}) == (again.status_code, again.json())
    other = job.send({"status": "failed", "exit_code": 2, "error_message": "café"})
    assert (409, "callback_conflict") == (other.status_code, other.json()["code"])
    assert ["callback_conflict", "duplicate", None] == [
        one["reason"] and one["reason"].split(":")[0] for one in poll(etl, job)["deliveries"]
    ]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [(b"[]", "(root): [] is not of type 'object'"), (b'"x"', "(root): 'x' is not of type 'object'")],
)
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_that_is_no_object_gets_the_validator_s_own_sentence(
    etl: Etl, worker: Elsewhere, body: bytes, sentence: str, is_chunked: bool
) -> None:
    _, job = start(etl, worker, "dispatcher")
    headers = {"Authorization": f"Bearer {job.token}", "Content-Type": "application/json"}
    answer = httpx2.post(job.url, content=iter([body]) if is_chunked else body, headers=headers, trust_env=False)

    expected = {"error": "Invalid callback payload.", "validation_errors": [sentence]}
    assert (400, expected) == (answer.status_code, answer.json())


def test_a_dispatcher_s_body_over_the_limit_is_413_also_without_a_length(etl: Etl, worker: Elsewhere) -> None:
    _, job = start(etl, worker, "dispatcher")
    headers = {"Authorization": f"Bearer {job.token}", "Content-Type": "application/json"}
    body = iter([b'{"status": "failed", "error": "', *([b"x" * 65_536] * 20)])

    assert 413 == httpx2.post(job.url, content=body, headers=headers, trust_env=False).status_code
