"""Seeds 000 and 001, literally: what a worker sends, and what it gets."""

import base64
import io
import json
import os
import re
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from support.elsewhere import Elsewhere, Job
from support.serving import Etl, Mode, Service
from support.waiting import wait_until

KEY = "a-signing-key-of-the-tests"

PROGRESS = """{
  "phase": "extract_text",
  "progress": 42,
  "message": "Seite 12/28 verarbeitet",
  "process": { "id": "sec-1234" }
}"""
FINAL = """{
  "phase": "completed",
  "message": "Extraktion abgeschlossen",
  "data": {
    "extracted_text": "<vollständiger Markdown-/Textinhalt>",
    "images_archive_data": "UEsDB... (base64)",
    "images_archive_filename": "pdf_images.zip",
    "metadata": {
      "text_contents": [
        { "page": 1, "content": "..." }
      ]
    }
  }
}"""
FAILED = """{
  "phase": "failed",
  "error": {
    "code": "OCR_TIMEOUT",
    "message": "Timeout beim OCR-Dienst",
    "details": { "service": "tesseract", "timeoutMs": 30000 }
  }
}"""
COMPLETED = """{
  "status": "completed",
  "exit_code": 0,
  "result_key": "results/550e8400-e29b-41d4-a716-446655440000/output.json",
  "result_metadata": {
    "tokens_used": 12450,
    "duration_seconds": 87
  }
}"""
OUT_OF_MEMORY = """{
  "status": "failed",
  "exit_code": 137,
  "error_message": "Container killed: OOM (memory limit 2Gi exceeded)"
}"""
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


@pytest.fixture(scope="module")
def worker() -> Iterator[Elsewhere]:
    with Elsewhere() as running:
        yield running


@pytest.fixture(scope="module")
def service(mode: Mode, worker: Elsewhere, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    data = tmp_path_factory.mktemp("callbacks") / "data"
    with mode.serve(data, DOCMILL_WORKERS=worker.settings(), CALLBACK_SIGNING_KEY=KEY) as running:
        yield running


@pytest.fixture
def etl(service: Service) -> Iterator[Etl]:
    with service.client() as client:
        yield Etl(client)


def started(etl: Etl, worker: Elsewhere, engine: str = "secretary", **wishes: Any) -> tuple[int, Job]:
    task = etl.submit("invoice.pdf", b"%PDF-1.7 " + uuid4().bytes, engine=engine, **wishes)
    return task, worker.next_job()


def images(**files: bytes) -> str:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return base64.b64encode(buffer.getvalue()).decode()


def test_the_start_request_carries_what_the_secretary_needs(etl: Etl, worker: Elsewhere, service: Service) -> None:
    task, job = started(etl, worker)

    assert job.file.startswith(b"%PDF-1.7")
    assert {
        "target_language", "extraction_method", "useCache", "includeImages", "force_refresh", "template",
        "callback_url", "callback_token",
    } == set(job.form)  # fmt: skip
    assert f"{service.url}/api/external/jobs/{job.id}" == job.url
    assert ("Bearer sec-key", "sec-key") == (job.headers["Authorization"], job.headers["X-Service-Token"])
    assert job.id == etl.task(task)["metadata"]["job_id"]
    assert len(job.token) >= 40


def test_progress_final_and_polling_as_in_seed_000(etl: Etl, worker: Elsewhere) -> None:
    task, job = started(etl, worker)

    answer = job.send(PROGRESS.encode())
    assert (200, {"status": "ok", "kind": "progress", "jobId": job.id}) == (answer.status_code, answer.json())
    running = etl.task(task)
    assert ("mineru_parsing", 28, "sec-1234") == (
        running["status"], running["progress"], running["metadata"]["provider_task_id"],
    )  # fmt: skip
    lower = json.loads(PROGRESS) | {"progress": 5}
    assert 200 == job.send(lower).status_code
    assert 28 == etl.task(task)["progress"], "progress never falls"

    final = json.loads(FINAL)
    final["data"]["images_archive_data"] = images(**{"page_001.png": PIXEL})
    final["data"]["extracted_text"] = "# Rechnung\n\n![Bild](images/page_001.png)\n"
    final["data"]["metadata"]["text_contents"][0]["content"] = final["data"]["extracted_text"]
    answer = job.send(final)
    assert (200, {"status": "ok", "kind": "final", "jobId": job.id}) == (answer.status_code, answer.json())

    done = etl.wait(task)
    assert "completed" == done["status"]
    content = done["result"]["invoice"]["content"]
    assert content.startswith("# Rechnung")
    assert "](assets/" in content
    polled = etl.http.get(f"/api/external/jobs/{job.id}").json()
    assert {"status", "logs", "result", "processId"} <= set(polled)
    assert ("completed", "sec-1234", done["result"]) == (polled["status"], polled["processId"], polled["result"])
    assert 2 == len(etl.http.get(f"/api/external/jobs/{job.id}?limit=2").json()["logs"])
    assert any(one["jobId"] == job.id for one in etl.http.get("/api/external/jobs").json()["jobs"])
    document = etl.http.get(f"/api/v1/documents/{done['metadata']['document_id']}").json()
    assert ["text/markdown", "image/png"] == [asset["media_type"] for asset in document["assets"]]


def test_the_seed_s_own_final_with_its_placeholder_for_base64_is_a_bad_request(etl: Etl, worker: Elsewhere) -> None:
    task, job = started(etl, worker)

    assert 400 == job.send(FINAL.encode()).status_code
    assert "mineru_parsing" == etl.task(task)["status"], "the worker may mend it and send again"


def test_a_failure_is_kept_with_the_worker_s_own_words(etl: Etl, worker: Elsewhere) -> None:
    task, job = started(etl, worker)

    answer = job.send(FAILED.encode())

    assert (200, {"status": "ok", "kind": "failed", "jobId": job.id}) == (answer.status_code, answer.json())
    failed = etl.wait(task)
    assert ("failed", "Timeout beim OCR-Dienst", "worker_failed", "mineru") == (
        failed["status"], failed["error"], failed["metadata"]["error_code"], failed["metadata"]["error_stage"],
    )  # fmt: skip
    said = next(event for event in etl.events(task) if event["kind"] == "failed")
    assert "OCR_TIMEOUT" == said["data"]["details"]["code"]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"phase": "warming up", "extra": 1, "correlation": {"jobId": "x"}, "jobId": "y"}, "progress"),
        ({"progress": "55"}, "progress"),
        ({"phase": "failed"}, "failed"),
        ({"phase": "completed", "data": {"extracted_text": "only text"}}, "final"),
        ({"phase": "completed", "data": {"images_archive_data": images(a=PIXEL)}}, "final"),
    ],
)
def test_what_real_workers_send_is_understood(etl: Etl, worker: Elsewhere, body: dict[str, Any], kind: str) -> None:
    _, job = started(etl, worker)

    answer = job.send(body)

    assert (200, kind) == (answer.status_code, answer.json().get("kind")), answer.text


def test_bad_tokens_are_401_unknown_jobs_404_and_bad_payloads_400(
    etl: Etl, worker: Elsewhere, service: Service
) -> None:
    task, job = started(etl, worker)
    _, other = started(etl, worker)
    body = json.loads(PROGRESS)

    assert 401 == job.send(body, token=None).status_code
    assert 401 == job.send(body, token="wrong").status_code
    assert 401 == job.send(body, token=other.token).status_code, "the token of job A on job B"
    assert 401 == job.send(body, **{"X-Callback-Token": other.token}).status_code, "both, and different"
    assert 200 == job.send(body, token=None, **{"X-Callback-Token": job.token}).status_code
    in_query = httpx2.post(f"{job.url}?token={job.token}&callback_token={job.token}", json=body, trust_env=False)
    assert 401 == in_query.status_code
    assert 401 == job.send(body | {"callback_token": job.token}, token=None).status_code
    for unknown in (uuid4(), "not-a-uuid"):
        answer = httpx2.post(f"{service.url}/api/external/jobs/{unknown}", json=body, trust_env=False)
        assert (404, "job_not_found") == (answer.status_code, answer.json()["code"])
    for bad in (b"", b"[]", b"{", b'{"progress": NaN}', b'{"phase": "completed", "data": {}}', b'{"a":1,"a":2}'):
        assert 400 == job.send(bad).status_code, bad
    seen = etl.http.get(f"/api/external/jobs/{job.id}").json()["deliveries"]
    assert {401, 400} == {one["status"] for one in seen}
    assert all(one["reason"] for one in seen)
    assert "mineru_parsing" == etl.task(task)["status"]


def test_the_dispatcher_s_walk_as_in_seed_001(etl: Etl, worker: Elsewhere, service: Service) -> None:
    task, job = started(etl, worker, "dispatcher")
    assert {"task_id", "brief_key", "callback_url", "callback_token", "timeout_seconds", "env", "resources"} == set(
        job.form
    )
    assert (job.id, "dis-key") == (job.form["task_id"], job.headers["X-API-Key"])
    assert f"{service.url}/api/v1/tasks/{job.id}/callback/" == job.url

    brief = httpx2.get(job.form["env"]["BRIEF_URL"], trust_env=False).json()
    source = httpx2.get(brief["source"]["download_url"], trust_env=False)
    assert source.content.startswith(b"%PDF-1.7")
    put = httpx2.put(brief["result"]["upload_url"], content=b"# From the dispatcher\n", trust_env=False)
    assert put.is_success  # 201 of ours, 200 of a bucket
    assert 403 == httpx2.get(brief["result"]["upload_url"], trust_env=False).status_code
    assert 403 == httpx2.get(job.form["env"]["BRIEF_URL"][:-2] + "xx", trust_env=False).status_code

    body = json.loads(COMPLETED) | {"result_key": brief["result"]["key"]}
    answer = job.send(body, key=KEY)
    assert (200, {"status": "ok", "task_guid": job.id}) == (answer.status_code, answer.json())
    assert "# From the dispatcher\n" == etl.wait(task)["result"]["invoice"]["content"]
    assert 200 == job.send(body, key=KEY).status_code, "the same again"
    assert 409 == job.send(json.loads(OUT_OF_MEMORY), key=KEY).status_code, "another one"
    assert "completed" == etl.task(task)["status"]


def test_dispatcher_refusals_have_the_seed_s_form(etl: Etl, worker: Elsewhere, service: Service) -> None:
    _, job = started(etl, worker, "dispatcher")
    good = json.loads(OUT_OF_MEMORY)

    assert 403 == job.send(good, token="wrong", key=KEY).status_code
    assert 403 == job.send(good).status_code, "not signed"
    assert 403 == job.send(good, key="another key").status_code
    answer = job.send({"exit_code": 0}, key=KEY)
    expected = {"error": "Invalid callback payload.", "validation_errors": ["(root): 'status' is a required property"]}
    assert (400, expected) == (answer.status_code, answer.json())
    extra = job.send(good | {"foo": 1}, key=KEY)
    assert "(root): Additional properties are not allowed ('foo' was unexpected)" in extra.json()["validation_errors"]
    stray = job.send(json.loads(COMPLETED), key=KEY)
    assert (400, "result_key_invalid") == (stray.status_code, stray.json()["code"])
    unknown = httpx2.post(f"{service.url}/api/v1/tasks/{uuid4()}/callback/", json=good, trust_env=False)
    assert (404, "job_not_found") == (unknown.status_code, unknown.json()["code"])


@pytest.mark.parametrize(
    ("body", "status", "stage"),
    [
        (json.loads(OUT_OF_MEMORY), "failed", "mineru"),
        ({"status": "timed_out"}, "failed", "timeout"),
        ({"status": "cancelled"}, "cancelled", None),
        ({"status": "failed", "error": "old name", "error_message": "new name"}, "failed", "mineru"),
    ],
)
def test_terminal_reports_end_the_task(
    etl: Etl, worker: Elsewhere, body: dict[str, Any], status: str, stage: str | None
) -> None:
    task, job = started(etl, worker, "dispatcher")

    answer = httpx2.post(
        job.url.rstrip("/"),
        content=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {job.token}", **signed(job, body)},
        trust_env=False,
    )

    assert 200 == answer.status_code, answer.text
    ended = etl.wait(task)
    assert (status, stage) == (ended["status"], ended["metadata"]["error_stage"])
    if "error" in body:
        assert "new name" == ended["error"]


def signed(job: Job, body: Any) -> dict[str, str]:
    from support.elsewhere import signature

    return {"X-Kohakku-Signature": "sha256=" + signature(KEY, job.id, json.dumps(body).encode())}


def test_one_terminal_transition_however_many_reports(etl: Etl, worker: Elsewhere) -> None:
    """Ten times the same, fifty at once, completed and failed together: one ends it, the rest change nothing."""
    task, job = started(etl, worker)
    bodies = [
        {"phase": "completed", "data": {"extracted_text": f"# {n % 5}"}} if n % 3 else json.loads(FAILED)
        for n in range(50)
    ]
    answers: list[int] = []
    threads = [threading.Thread(target=lambda body=body: answers.append(job.send(body).status_code)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert [200] * 50 == answers
    ended = etl.wait(task)
    kinds = [event["kind"] for event in etl.events(task)]
    assert 1 == kinds.count("completed") + kinds.count("failed")
    parsed = [
        event for event in etl.events(task) if event["kind"] == "stage_succeeded" and event["data"]["stage"] == "parse"
    ]
    assert ("completed" == ended["status"]) == (1 == len(parsed))
    assert 200 == job.send(json.loads(PROGRESS)).status_code
    assert ended["progress"] == etl.task(task)["progress"]


def test_after_a_cancel_the_worker_is_told_and_its_reports_change_nothing(etl: Etl, worker: Elsewhere) -> None:
    task, job = started(etl, worker)
    assert 200 == etl.post(f"/tasks/{task}/cancel?force=true").status_code
    told = f"/jobs/{etl.task(task)['metadata']['provider_task_id'] or f'sec-{worker.calls}'}"
    for _ in range(400):
        if told in worker.cancelled:
            break
        time.sleep(0.05)
    assert told in worker.cancelled

    answer = job.send(json.loads(PROGRESS))
    assert (200, True) == (answer.status_code, answer.json().get("cancel_requested"))
    assert 200 == job.send({"phase": "completed", "data": {"extracted_text": "too late"}}).status_code
    assert "cancelled" == etl.task(task)["status"]

    assert 200 == etl.post(f"/tasks/{task}/retry", json={"from_stage": "mineru"}).status_code
    again = worker.next_job()
    assert again.id != job.id
    assert 401 == again.send(json.loads(PROGRESS), token=job.token).status_code, "yesterday's token"
    assert 200 == job.send({"phase": "completed", "data": {"extracted_text": "too late"}}).status_code
    assert 200 == again.send({"phase": "completed", "data": {"extracted_text": "in time"}}).status_code
    assert "in time\n" == etl.wait(task)["result"]["invoice"]["content"]


def test_a_test_callback_is_triggered_and_deliveries_are_shown(etl: Etl, worker: Elsewhere, service: Service) -> None:
    task, job = started(etl, worker)
    job.send(json.loads(PROGRESS), token="wrong")

    for what in ("progress", "completed"):
        assert 0 == docmill(service, "trigger", what, str(task)).returncode
    assert "Sent by docmill trigger" in etl.wait(task)["result"]["invoice"]["content"]
    assert 401 == job.send(json.loads(PROGRESS)).status_code, "the job was taken over"
    shown = docmill(service, "deliveries", str(task)).stdout
    assert "callback_token_invalid" in shown
    assert "final" in shown
    other, _ = started(etl, worker, "dispatcher")
    assert 0 == docmill(service, "trigger", "failed", str(other)).returncode
    assert "failed" == etl.wait(other)["status"]


def docmill(service: Service, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "docmill", *words, "--url", service.url],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"CALLBACK_SIGNING_KEY": KEY},
        timeout=60,
    )


def test_the_how_to_s_curl_lines_do_what_it_says(etl: Etl, worker: Elsewhere, service: Service) -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "external-workers.md").read_text(encoding="utf-8")
    task, job = started(etl, worker)
    given = os.environ | {"TOKEN": job.token, "CALLBACK": job.url, "SERVICE": service.url, "JOB": job.id}
    blocks = re.findall(r"```console\n\$ (curl .*)\n(.*)\n```", page)
    assert len(blocks) >= 5
    for line, shown in blocks:
        if "$JOB?" in line:
            etl.wait(task)
        printed = subprocess.run(
            ["bash", "-c", line], capture_output=True, text=True, check=True, env=given, timeout=60
        ).stdout
        assert fnmatch(printed.strip(), shown.replace("[", "[[]").replace("…", "*")), (line, printed)


def test_a_worker_that_is_away_is_called_again_and_one_that_refuses_is_not(etl: Etl, worker: Elsewhere) -> None:
    worker.status, before = 503, worker.calls
    task = etl.submit("invoice.pdf", uuid4().bytes, engine="secretary")
    wait_until(lambda: worker.calls >= before + 2)
    worker.status = 202
    worker.next_job().send({"phase": "completed", "data": {"extracted_text": "back again"}})
    done = etl.wait(task)
    assert ("completed", 3) == (done["status"], done["metadata"]["attempt"])

    worker.status = 403
    try:
        refused = etl.wait(etl.submit("invoice.pdf", uuid4().bytes, engine="secretary"))
    finally:
        worker.status = 202
    assert ("worker_refused", 1) == (refused["metadata"]["error_code"], refused["metadata"]["attempt"])


def test_a_silent_worker_is_given_up_and_its_late_answer_changes_nothing(tmp_path: Path) -> None:
    with Elsewhere() as worker:
        workers = worker.settings(timeout=1)
        with (
            Service(tmp_path / "data", DOCMILL_WORKERS=workers, DOCMILL_SWEEP="0.3") as service,
            service.client() as client,
        ):
            etl = Etl(client)
            task, job = started(etl, worker)
            failed = etl.wait(task, seconds=15)
            assert ("failed", "timeout", "worker_timeout") == (
                failed["status"], failed["metadata"]["error_stage"], failed["metadata"]["error_code"],
            )  # fmt: skip
            assert 200 == job.send({"phase": "completed", "data": {"extracted_text": "late"}}).status_code
            assert "failed" == etl.task(task)["status"]


def test_the_101st_callback_of_a_minute_is_429(tmp_path: Path) -> None:
    with (
        Elsewhere() as worker,
        Service(tmp_path / "data", DOCMILL_WORKERS=worker.settings()) as service,
        service.client() as client,
    ):
        _, job = started(Etl(client), worker, "dispatcher")
        assert {400} == {job.send({"status": "nonsense"}).status_code for _ in range(100)}
        refused = job.send({"status": "nonsense"})
        assert 429 == refused.status_code
        assert 1 <= int(refused.headers["Retry-After"]) <= 60


def test_guessing_tokens_is_429_and_starves_nobody(tmp_path: Path) -> None:
    """Each kind of request has its own bucket: neither guesses nor progress keep a final out."""
    with (
        Elsewhere() as worker,
        Service(tmp_path / "data", DOCMILL_WORKERS=worker.settings()) as service,
        service.client() as client,
    ):
        etl = Etl(client)
        task, job = started(etl, worker)
        assert {401} == {job.send({"progress": 1}, token=f"guess-{n}").status_code for n in range(100)}
        refused = job.send({"progress": 1}, token="guess-101")
        assert 429 == refused.status_code
        assert int(refused.headers["Retry-After"]) >= 1
        assert {200} == {job.send({"progress": n}).status_code for n in range(30)}
        assert 200 == job.send({"phase": "completed", "data": {"extracted_text": "# in"}}).status_code
        assert "completed" == etl.wait(task)["status"]
        spoofed = [
            job.send({"progress": 1}, token="guess", **{"X-Forwarded-For": f"203.0.113.{n}"}).status_code
            for n in range(3)
        ]
        assert [429] * 3 == spoofed, "nobody trusts a header of somebody who is no proxy of ours"


def test_while_keys_rotate_both_are_good_and_a_revoked_one_is_not(tmp_path: Path) -> None:
    with (
        Elsewhere() as worker,
        Service(
            tmp_path / "data", DOCMILL_WORKERS=worker.settings(), CALLBACK_SIGNING_KEY="old-key, new-key"
        ) as service,
        service.client() as client,
    ):
        for key, expected in (("old-key", 200), ("new-key", 200), ("revoked-key", 403)):
            _, job = started(Etl(client), worker, "dispatcher")
            assert expected == job.send({"status": "failed"}, key=key).status_code, key
