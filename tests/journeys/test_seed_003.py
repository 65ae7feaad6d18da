"""Every request and answer of seed 003, as it stands there, against a real service.

The JSON texts below are the seed's own. Only ids are put in: `<user_id>`, `<uuid>`, and the number of the task.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import httpx2
import psutil
import pytest

from support import hostile
from support.serving import Etl, Mode, Service

SUBMIT = """
{
  "project_id": 123,
  "filename": "invoice.pdf",
  "rule_id": 1,
  "s3_key": "users/<user_id>/raw/123/<uuid>.pdf"
}
"""
SUBMITTED = """
{
  "task_id": 10001,
  "status": "pending",
  "message": "Task submitted successfully"
}
"""
TASK = """
{
  "task_id": 10001,
  "user_id": "<user_id>",
  "project_id": 123,
  "filename": "invoice.pdf",
  "rule_id": 1,
  "status": "mineru_parsing",
  "progress": 40,
  "created_at": "2025-12-22T00:00:00Z",
  "updated_at": "2025-12-22T00:00:10Z",
  "result": null,
  "error": null,
  "metadata": {
    "s3_key": "users/<user_id>/raw/123/<uuid>.pdf",
    "provider_task_id": "mineru_xxx",
    "artifact_mineru_markdown_key": "users/<user_id>/etl_artifacts/123/10001/mineru.md",
    "error_stage": "postprocess"
  }
}
"""
CANCELLED = """
{
  "task_id": 10001,
  "status": "cancelled",
  "message": "Task cancelled successfully"
}
"""
RETRY_MINERU = """
{ "from_stage": "mineru" }
"""
RETRY_POSTPROCESS = """
{ "from_stage": "postprocess" }
"""
LLM_RULE = """
{
  "name": "invoice_llm",
  "description": "Extract invoice fields",
  "json_schema": { "type": "object", "properties": { "invoice_number": { "type": "string" } } },
  "system_prompt": "..."
}
"""
SKIP_RULE = """
{
  "name": "skip_llm",
  "description": "Only return markdown pointer wrapper",
  "postprocess_mode": "skip"
}
"""
SKIP_OUTPUT = """
{
  "invoice": {
    "filename": "invoice.pdf",
    "content": "# ...markdown content..."
  }
}
"""

ME = "local"
RANGES = {
    "pending": (0, 0),
    "mineru_parsing": (10, 55),
    "llm_processing": (60, 95),
    "completed": (100, 100),
}
SLOW_PAGES = 400


@pytest.fixture(scope="module")
def service(mode: Mode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One document at a time: what is submitted behind a slow one stays pending."""
    with mode.serve(tmp_path_factory.mktemp("seed") / "data", "--jobs", "1", DOCMILL_MAX_UPLOAD_MB="12") as running:
        yield running


@pytest.fixture(scope="module")
def etl(service: Service) -> Iterator[Etl]:
    with service.client() as client:
        yield Etl(client)


@pytest.fixture(scope="module")
def invoice(etl: Etl) -> dict[str, Any]:
    """A completed task, submitted with the seed's own body."""
    return etl.wait(submit_as_the_seed_does(etl)["task_id"])


def submit_as_the_seed_does(etl: Etl) -> dict[str, Any]:
    unlike_any_other = hostile.pages(1, f"Invoice {time.time_ns()}")
    key = etl.upload("invoice.pdf", unlike_any_other, project=123)["key"]
    uuid = key.rpartition("/")[2].removesuffix(".pdf")
    body = SUBMIT.replace("<user_id>", ME).replace("<uuid>", uuid)
    assert key == json.loads(body)["s3_key"], "the upload's key has the seed's form"
    answer = posted(etl, "/submit", body)
    assert 200 == answer.status_code, answer.text
    return answer.json()


def posted(etl: Etl, path: str, body: str | dict[str, Any], **options: Any) -> httpx2.Response:
    text = body if isinstance(body, str) else json.dumps(body)
    headers = {"Content-Type": "application/json", **options.pop("headers", {})}
    return etl.post(path, content=text.encode(), headers=headers, **options)


def refused(answer: httpx2.Response, status: int, code: str) -> None:
    assert (status, code) == (answer.status_code, answer.json()["code"]), answer.text
    assert "application/problem+json" == answer.headers["content-type"]


@contextmanager
def busy(etl: Etl, *, project: int = 1, until: str = "mineru_parsing") -> Iterator[int]:
    """While the one worker reads a document that takes minutes."""
    task_id = etl.submit("slow.pdf", hostile.scans(SLOW_PAGES), project=project)
    try:
        etl.wait(task_id, until=(until,))
        yield task_id
    finally:
        etl.post(f"/tasks/{task_id}/cancel", params={"force": "true"})


def a_table(etl: Etl, data: Any) -> int:
    answer = etl.http.post("/api/v1/projects/123/tables", json={"name": "invoices", "data": data})
    assert 201 == answer.status_code, answer.text
    return int(answer.json()["id"])


def data_of(etl: Etl, table: int, pointer: str = "") -> Any:
    return etl.http.get(f"/api/v1/tables/{table}/data", params={"pointer": pointer}).json()


# 4.1 submit


def test_submit_answers_as_the_seed_says(etl: Etl) -> None:
    answer = submit_as_the_seed_does(etl)

    expected = json.loads(SUBMITTED)
    assert expected.keys() == answer.keys()
    assert {**expected, "task_id": answer["task_id"]} == answer
    assert isinstance(answer["task_id"], int)


def test_rule_project_and_name_may_be_left_out(etl: Etl) -> None:
    key = etl.upload("Scan von gestern.txt", b"only a key", project=77)["key"]

    task = etl.wait(posted(etl, "/submit", {"s3_key": key}).json()["task_id"])

    assert ("completed", 77, "Scan von gestern.txt") == (task["status"], task["project_id"], task["filename"])
    assert "Scan von gestern.txt" == task["result"]["Scan von gestern"]["filename"]
    assert etl.get("/rules").json()["rules"][0]["rule_id"] == task["rule_id"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"s3_key": "users/somebody/raw/1/x.pdf"}, 403, "key_not_yours"),
        ({"s3_key": "users/local/etl_artifacts/1/1/x/mineru.md"}, 403, "key_not_yours"),
        ({"s3_key": "users/local/raw/../../somebody/raw/1/x.pdf"}, 400, "key_invalid"),
        ({"s3_key": "users/local/raw/1/never-uploaded.pdf"}, 404, "object_not_found"),
        ({"project_id": 1, "filename": "never-uploaded.pdf"}, 404, "object_not_found"),
        ({"filename": "invoice.pdf"}, 400, "request_invalid"),
        ({"project_id": 2}, 400, "project_mismatch"),
        ({"rule_id": 987_654}, 404, "rule_not_found"),
        ({"engine": "no such engine"}, 422, "engine_unknown"),
    ],
)
def test_a_submission_that_cannot_be_met(etl: Etl, body: dict[str, Any], status: int, code: str) -> None:
    if body.keys() <= {"rule_id", "engine", "project_id"}:
        body = {**body, "s3_key": etl.upload("a.txt", b"a")["key"]}
    refused(posted(etl, "/submit", body), status, code)


def test_an_idempotency_key_gets_the_first_answer_again(etl: Etl) -> None:
    body = {"s3_key": etl.upload("once.txt", b"once")["key"]}
    headers = {"Idempotency-Key": f"seed-{time.time_ns()}"}

    first = posted(etl, "/submit", body, headers=headers)
    etl.wait(first.json()["task_id"])
    again = posted(etl, "/submit", body, headers=headers)

    assert first.json()["task_id"] == again.json()["task_id"]
    assert "true" == again.headers["Idempotent-Replayed"]
    refused(posted(etl, "/submit", {**body, "priority": 1}, headers=headers), 422, "idempotency_mismatch")


def test_the_same_bytes_are_parsed_once(etl: Etl) -> None:
    data = f"dedupe {time.time_ns()}".encode()
    first, second = etl.done("one.txt", data), etl.done("two.txt", data)
    third = etl.done("three.txt", data, no_cache=True)

    hits = [task["metadata"]["cache_hit"] for task in (first, second, third)]
    keys = [task["metadata"]["artifact_mineru_markdown_key"] for task in (first, second, third)]
    assert [False, True, False] == hits
    assert keys[0] == keys[1] != keys[2]
    assert {"two": {"filename": "two.txt", "content": first["result"]["one"]["content"]}} == second["result"]


# 4.2 a task, in each of its states


def check_like_the_seed(task: dict[str, Any]) -> None:
    expected = json.loads(TASK.replace("<user_id>", ME))
    assert expected.keys() == task.keys()
    for name, sample in expected.items():
        if sample is not None:
            assert isinstance(task[name], type(sample)), (name, task[name])
    assert expected["metadata"].keys() <= task["metadata"].keys()
    assert ME == task["user_id"]
    for name in ("created_at", "updated_at"):
        assert task[name].endswith("Z")
        assert datetime.fromisoformat(task[name]).tzinfo is not None
    assert isinstance(task["error"], str | None)


def test_a_completed_task(etl: Etl, invoice: dict[str, Any]) -> None:
    task = etl.task(invoice["task_id"])

    check_like_the_seed(task)
    assert ("completed", 100, None) == (task["status"], task["progress"], task["error"])
    assert (123, "invoice.pdf", 1) == (task["project_id"], task["filename"], task["rule_id"])
    artifact = rf"users/{ME}/etl_artifacts/123/{task['task_id']}/([0-9a-f]+/)?mineru\.md"
    assert re.fullmatch(artifact, task["metadata"]["artifact_mineru_markdown_key"])
    assert re.fullmatch(rf"users/{ME}/raw/123/[0-9a-f-]{{36}}\.pdf", task["metadata"]["s3_key"])
    assert task["metadata"]["error_stage"] is None
    assert ("local", 1, 1) == tuple(task["metadata"][name] for name in ("engine", "attempt", "pages_total"))
    assert task["metadata"]["document_id"]


def test_the_output_of_the_default_rule_is_the_markdown_itself(invoice: dict[str, Any]) -> None:
    expected = json.loads(SKIP_OUTPUT)
    assert expected.keys() == invoice["result"].keys()
    assert expected["invoice"].keys() == invoice["result"]["invoice"].keys()
    assert "invoice.pdf" == invoice["result"]["invoice"]["filename"]
    assert "# Chapter 1" in invoice["result"]["invoice"]["content"]


def test_tasks_that_wait_run_and_were_cancelled(etl: Etl) -> None:
    with busy(etl) as running:
        waiting = etl.submit("next.txt", b"next")
        for task_id, status in ((running, "mineru_parsing"), (waiting, "pending")):
            task = etl.task(task_id)
            check_like_the_seed(task)
            low, high = RANGES[status]
            assert (status, None) == (task["status"], task["result"])
            assert low <= task["progress"] <= high
        assert 200 == etl.post(f"/tasks/{waiting}/cancel").status_code
        cancelled = etl.task(waiting)
    check_like_the_seed(cancelled)
    assert ("cancelled", None, None) == (cancelled["status"], cancelled["result"], cancelled["error"])


def test_a_failed_task_says_why_and_where(etl: Etl) -> None:
    task = etl.wait(etl.submit("empty.pdf", b""))

    check_like_the_seed(task)
    assert ("failed", "mineru", "document_empty") == (
        task["status"],
        task["metadata"]["error_stage"],
        task["metadata"]["error_code"],
    )
    assert task["error"]


def test_an_unknown_task_is_404(etl: Etl) -> None:
    refused(etl.get("/tasks/999999999"), 404, "task_not_found")


def test_a_long_poll_returns_with_the_change(etl: Etl) -> None:
    with busy(etl) as running:
        waiting = etl.submit("wait.txt", b"wait")
        began = time.monotonic()
        same = etl.task(waiting, wait=0.5)
        assert "pending" == same["status"]
        assert 0.4 < time.monotonic() - began < 30

        def cancel_later() -> None:
            time.sleep(0.5)
            etl.post(f"/tasks/{waiting}/cancel")

        other = threading.Thread(target=cancel_later)
        other.start()
        began = time.monotonic()
        changed = etl.task(waiting, wait=30)
        waited = time.monotonic() - began
        other.join(60)
        assert "mineru_parsing" == etl.task(running)["status"]
    assert "cancelled" == changed["status"]
    assert waited < 25, "the poll itself ends after 30 s"


# 3.2 progress


def test_progress_never_falls_and_fits_its_status(etl: Etl) -> None:
    """Watched as fast as answers come; the text is long, so that the short stages are seen, too."""
    seen: dict[str, list[int]] = {name: [] for name in RANGES}
    for name, data in (("many.pdf", hostile.pages(500)), ("long.txt", b"word " * (2 * hostile.MiB))):
        task_id = etl.submit(name, data, no_cache=True, twin=True)
        last = -1
        while True:
            task = etl.task(task_id)
            check_like_the_seed(task)
            low, high = RANGES[task["status"]]
            assert low <= task["progress"] <= high, task
            assert last <= task["progress"], task
            last = task["progress"]
            seen[task["status"]].append(last)
            assert "llm_processing" != task["status"] or task["result"] is None
            if "completed" == task["status"]:
                break
    assert all(seen[name] for name in ("mineru_parsing", "llm_processing", "completed")), "a state was never seen"
    assert len(set(seen["mineru_parsing"])) > 2, "pages move the progress"


# 4.3, 4.4 lists and batches


def test_filters_are_exact_also_for_running_states(etl: Etl) -> None:
    project = 4_003
    done = etl.done("done.txt", b"done", project=project)["task_id"]
    with busy(etl, project=project) as running:
        waiting = [etl.submit(f"{n}.txt", b"%d" % n, project=project) for n in range(3)]

        def listed(**query: Any) -> tuple[list[int], int]:
            page = etl.get("/tasks", params={"project_id": project, **query}).json()
            for task in page["tasks"]:
                check_like_the_seed(task)
                assert query.get("status", task["status"]) == task["status"]
            return [task["task_id"] for task in page["tasks"]], page["total"]

        newest_first = [*reversed(waiting), running, done]
        assert (newest_first, 5) == listed()
        assert (newest_first[:2], 5) == listed(limit=2)
        assert (newest_first[2:4], 5) == listed(limit=2, offset=2)
        assert ([running], 1) == listed(status="mineru_parsing")
        either = etl.get("/tasks", params={"project_id": project, "status": "running"}).json()
        assert ([running], 1) == ([task["task_id"] for task in either["tasks"]], either["total"])
        assert (newest_first[:3], 3) == listed(status="pending")
        assert (newest_first[1:2], 3) == listed(status="pending", limit=1, offset=1)
        assert ([done], 1) == listed(status="completed")
        assert ([], 0) == listed(status="llm_processing")
        assert ([], 0) == listed(status="failed")
        etl.post(f"/tasks/{waiting[0]}/cancel")
        assert ([waiting[0]], 1) == listed(status="cancelled")
    assert 422 == etl.get("/tasks", params={"status": "resting"}).status_code
    assert 422 == etl.get("/tasks", params={"limit": 101}).status_code


def test_a_batch_keeps_the_order_and_leaves_out_what_is_not_there(etl: Etl, invoice: dict[str, Any]) -> None:
    other = etl.done("other.txt", b"other")["task_id"]
    ids = f"{other},999999999,{invoice['task_id']}"

    found = etl.get("/tasks/batch", params={"task_ids": ids}).json()["tasks"]

    assert [other, invoice["task_id"]] == [task["task_id"] for task in found]
    for task in found:
        check_like_the_seed(task)


@pytest.mark.parametrize("ids", ["", ",", "1,,2", "1,two", "1.5", "-1", "0x1", ",".join(map(str, range(1, 102)))])
def test_a_bad_batch_is_400(etl: Etl, ids: str) -> None:
    refused(etl.get("/tasks/batch", params={"task_ids": ids}), 400, "task_ids_invalid")


def test_a_hundred_ids_are_a_good_batch(etl: Etl) -> None:
    answer = etl.get("/tasks/batch", params={"task_ids": ",".join(map(str, range(900_000, 900_100)))})
    assert (200, []) == (answer.status_code, answer.json()["tasks"])


# 4.5 cancel


def test_a_pending_task_is_cancelled_as_the_seed_says(etl: Etl) -> None:
    with busy(etl):
        waiting = etl.submit("next.txt", b"next")
        answer = etl.post(f"/tasks/{waiting}/cancel")
        again = etl.post(f"/tasks/{waiting}/cancel")
    assert 200 == answer.status_code
    assert {**json.loads(CANCELLED), "task_id": waiting} == answer.json()
    refused(again, 409, "task_finished")
    assert "cancelled" == etl.task(waiting)["status"]


def test_force_ends_the_parser_and_its_result_never_shows(etl: Etl, service: Service) -> None:
    with busy(etl) as running:
        refused(etl.post(f"/tasks/{running}/cancel"), 409, "task_running")
        parser = the_child_at_work(service)

        answer = etl.post(f"/tasks/{running}/cancel", params={"force": "true"})
        gone, _ = psutil.wait_procs([parser], timeout=20)

    assert 200 == answer.status_code
    assert {**json.loads(CANCELLED), "task_id": running} == answer.json()
    assert [parser] == gone, "the child lives on after the cancel"
    before = etl.task(running)
    etl.done("after.txt", b"the worker is free again")
    time.sleep(0.5)
    assert before == etl.task(running)
    assert ("cancelled", None) == (before["status"], before["result"])
    assert "cancelled" == etl.events(running)[-1]["kind"]


def the_child_at_work(service: Service) -> psutil.Process:
    """The one child that burns processor time; a spare one may still be warming up for a while."""
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        children = psutil.Process(service.working_pid).children(recursive=True)
        before = {child: sum(child.cpu_times()[:2]) for child in children}
        time.sleep(0.4)
        active = [child for child in children if sum(child.cpu_times()[:2]) - before[child] > 0.05]
        if len(active) == 1:
            return active[0]
    raise AssertionError("there is no single child at work")


# 4.6 retry


def test_a_retry_from_mineru_parses_again(etl: Etl) -> None:
    task = etl.done("again.txt", b"again", no_cache=True)
    before = len(etl.events(task["task_id"]))

    answer = posted(etl, f"/tasks/{task['task_id']}/retry", RETRY_MINERU)

    assert 200 == answer.status_code
    assert json.loads(SUBMITTED).keys() == answer.json().keys()
    assert (task["task_id"], "pending") == (answer.json()["task_id"], answer.json()["status"])
    again = etl.wait(task["task_id"])
    assert ("completed", 2) == (again["status"], again["metadata"]["attempt"])
    assert task["metadata"]["artifact_mineru_markdown_key"] != again["metadata"]["artifact_mineru_markdown_key"]
    assert ["parse", "postprocess", "publish"] == finished(etl, task["task_id"], before)


def test_a_retry_from_postprocess_takes_the_markdown_that_is_there(etl: Etl) -> None:
    task = etl.done("again.md", b"# Again\n")
    before = len(etl.events(task["task_id"]))

    answer = posted(etl, f"/tasks/{task['task_id']}/retry", RETRY_POSTPROCESS)

    assert 200 == answer.status_code
    again = etl.wait(task["task_id"])
    assert ("completed", task["result"]) == (again["status"], again["result"])
    assert task["metadata"]["artifact_mineru_markdown_key"] == again["metadata"]["artifact_mineru_markdown_key"]
    since = etl.events(task["task_id"])[before:]
    assert "retried" == since[0]["kind"]
    assert "parse" not in {event["data"].get("stage") for event in since}
    assert ["postprocess", "publish"] == finished(etl, task["task_id"], before)


def finished(etl: Etl, task_id: int, since: int) -> list[str]:
    return [one["data"]["stage"] for one in etl.events(task_id)[since:] if "stage_succeeded" == one["kind"]]


def test_what_cannot_be_retried(etl: Etl, invoice: dict[str, Any]) -> None:
    with busy(etl) as running:
        waiting = etl.submit("next.txt", b"next")
        for task_id in (running, waiting):
            for body in (RETRY_MINERU, RETRY_POSTPROCESS):
                refused(posted(etl, f"/tasks/{task_id}/retry", body), 409, "task_busy")
    failed = etl.wait(etl.submit("empty.txt", b""))["task_id"]
    refused(posted(etl, f"/tasks/{failed}/retry", RETRY_POSTPROCESS), 409, "artifact_missing")
    refused(posted(etl, f"/tasks/{running}/retry", RETRY_POSTPROCESS), 409, "artifact_missing")
    done = invoice["task_id"]
    refused(posted(etl, f"/tasks/{done}/retry", {"from_stage": "publish"}), 422, "stage_unknown")
    refused(posted(etl, f"/tasks/{done}/retry", {}), 422, "request_invalid")
    refused(posted(etl, "/tasks/999999999/retry", RETRY_MINERU), 404, "task_not_found")


# 4.7, 4.8 rules


def test_the_default_rule_is_there_and_skips(etl: Etl) -> None:
    answer = etl.get("/rules")
    first = answer.json()["rules"][0]

    assert 200 == answer.status_code
    assert (True, "skip") == (first["is_default"], first["postprocess_mode"])
    assert {"postprocess_mode", "postprocess_strategy"} <= first.keys()
    assert 1 == sum(rule["is_default"] for rule in answer.json()["rules"])


@pytest.mark.parametrize(("body", "kind"), [(LLM_RULE, "llm"), (SKIP_RULE, "skip")])
def test_the_seeds_rules_are_made(etl: Etl, body: str, kind: str) -> None:
    answer = posted(etl, "/rules", body)
    assert 201 == answer.status_code, answer.text
    made = answer.json()

    for name, value in json.loads(body).items():
        assert value == made[name]
    assert kind == made["postprocess_mode"]
    assert made == etl.get(f"/rules/{made['rule_id']}").json()
    assert made in etl.get("/rules").json()["rules"]
    assert 204 == etl.http.delete(f"{Etl.BASE}/rules/{made['rule_id']}").status_code
    refused(etl.get(f"/rules/{made['rule_id']}"), 404, "rule_not_found")


def test_a_skip_rule_gives_the_output_of_section_5(etl: Etl) -> None:
    rule = posted(etl, "/rules", {**json.loads(SKIP_RULE), "name": "skip_too"}).json()["rule_id"]
    task = etl.done("invoice.md", b"# Invoice\n", rule_id=rule)
    assert {"invoice": {"filename": "invoice.md", "content": "# Invoice\n"}} == task["result"]


def test_a_postprocess_that_fails_keeps_the_markdown_to_retry_from(etl: Etl) -> None:
    rule = posted(etl, "/rules", {**json.loads(LLM_RULE), "name": "llm_too"}).json()["rule_id"]

    task = etl.wait(etl.submit("invoice.md", b"# Invoice 7\n", rule_id=rule))

    assert ("failed", "postprocess") == (task["status"], task["metadata"]["error_stage"])
    assert "llm_not_configured" == task["metadata"]["error_code"]
    assert task["metadata"]["artifact_mineru_markdown_key"]
    assert 200 == posted(etl, f"/tasks/{task['task_id']}/retry", RETRY_POSTPROCESS).status_code
    assert "failed" == etl.wait(task["task_id"])["status"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"json_schema": None, "postprocess_mode": "llm"}, "rule_schema_required"),
        ({"json_schema": {"type": "no such type"}}, "rule_schema_invalid"),
        ({"json_schema": {"properties": {"a": {"pattern": "("}}}}, "rule_schema_invalid"),
        ({"json_schema": {"$ref": "http://169.254.169.254/latest"}}, "rule_schema_invalid"),
        ({"json_schema": "text"}, "request_invalid"),
        ({"postprocess_strategy": "guess"}, "rule_strategy_unknown"),
        ({"postprocess_mode": "magic"}, "rule_mode_unknown"),
    ],
)
def test_a_rule_that_cannot_work_is_422(etl: Etl, change: dict[str, Any], code: str) -> None:
    refused(posted(etl, "/rules", {**json.loads(LLM_RULE), "name": "wrong", **change}), 422, code)


# 4.9 mount


def mounted(etl: Etl, task_id: int, table: int, pointer: str) -> httpx2.Response:
    return posted(etl, f"/tasks/{task_id}/mount", {"table_id": table, "json_path": pointer})


def test_only_a_completed_task_is_mounted(etl: Etl) -> None:
    table = a_table(etl, {})
    with busy(etl) as running:
        waiting = etl.submit("next.txt", b"next")
        refused(mounted(etl, running, table, ""), 400, "task_not_completed")
        refused(mounted(etl, waiting, table, ""), 400, "task_not_completed")
    refused(mounted(etl, running, table, ""), 400, "task_not_completed")
    assert {} == data_of(etl, table)


def test_a_task_is_mounted_under_its_stem(etl: Etl, invoice: dict[str, Any]) -> None:
    table = a_table(etl, {"docs": {}, "list": ["first"], "number": 7, "taken": {"invoice": "by hand"}})
    task = invoice["task_id"]

    answer = mounted(etl, task, table, "/docs")
    assert 200 == answer.status_code, answer.text
    assert {"success", "message", "mounted_path"} == answer.json().keys()
    assert (True, "/docs/invoice") == (answer.json()["success"], answer.json()["mounted_path"])
    assert invoice["result"]["invoice"] == data_of(etl, table, "/docs/invoice")

    assert 200 == mounted(etl, task, table, "/docs").status_code, "its own entry is replaced"
    assert ["invoice"] == list(data_of(etl, table, "/docs"))
    other = etl.done("invoice.txt", b"another invoice")["task_id"]
    refused(mounted(etl, other, table, "/docs"), 409, "mount_conflict")
    refused(mounted(etl, task, table, "/taken"), 409, "mount_conflict")

    assert "/list/1" == mounted(etl, task, table, "/list").json()["mounted_path"]
    assert "/list/2" == mounted(etl, other, table, "/list").json()["mounted_path"]
    assert ["first", "another invoice\n"] == [
        data_of(etl, table, "/list/0"),
        data_of(etl, table, "/list/2/invoice/content"),
    ]
    refused(mounted(etl, task, table, "/nowhere"), 404, "pointer_not_found")
    refused(mounted(etl, task, table, "/number"), 409, "pointer_not_container")
    refused(mounted(etl, task, 999_999, ""), 404, "table_not_found")
    assert "by hand" == data_of(etl, table, "/taken/invoice")


def test_a_mount_can_be_asked_for_at_submission(etl: Etl) -> None:
    table = a_table(etl, {"in": {}})
    task = etl.done("wish.txt", b"a wish", mount={"table_id": table, "json_path": "/in"})
    assert "/in/wish" == task["metadata"]["mounted_path"]
    assert "wish.txt" == data_of(etl, table, "/in/wish/filename")
    failed = etl.wait(etl.submit("wish.txt", b"a wish", mount={"table_id": table, "json_path": "/out"}))
    assert ("failed", "mount", "pointer_not_found") == (
        failed["status"],
        failed["metadata"]["error_stage"],
        failed["metadata"]["error_code"],
    )


# Beside the seed: streams and batches of files


def test_a_stream_resumes_without_gap_or_repeat(etl: Etl) -> None:
    """The first two connections break after one event each; the third is open while the task ends."""
    with busy(etl) as running:
        seen: list[int] = []
        for _ in range(2):
            with watching(etl, running, seen) as stream:
                seen.append(next(numbers(stream)))
        with watching(etl, running, seen) as stream:
            assert 200 == etl.post(f"/tasks/{running}/cancel", params={"force": "true"}).status_code
            seen.extend(numbers(stream))
    assert [1, 2] == seen[:2]
    assert [event["seq"] for event in etl.events(running)] == seen == list(range(1, len(seen) + 1))


@contextmanager
def watching(etl: Etl, task_id: int, seen: list[int]) -> Iterator[httpx2.Response]:
    last = {"Last-Event-ID": str(seen[-1])} if seen else {}
    with etl.http.stream("GET", f"{Etl.BASE}/tasks/{task_id}/events", headers=last) as stream:
        assert "text/event-stream" in stream.headers["content-type"]
        yield stream


def numbers(stream: httpx2.Response) -> Iterator[int]:
    for line in stream.iter_lines():
        if line.startswith("id: "):
            yield int(line.removeprefix("id: "))


def test_several_files_in_one_call_also_bad_ones(etl: Etl) -> None:
    files = [
        ("files", ("good.txt", b"good")),
        ("files", ("empty.txt", b"")),
        ("files", ("large.txt", b"x" * (13 * hostile.MiB))),
        ("files", ("last.md", b"# Last\n")),
    ]

    answer = etl.post("/upload_and_submit", data={"project_id": "55"}, files=files)

    assert 201 == answer.status_code, answer.text
    items = answer.json()["items"]
    assert (4, 4) == (answer.json()["total"], len(items))
    assert [name for _, (name, _) in files] == [item["filename"] for item in items]
    for item in items:
        assert {"filename", "task_id", "status", "s3_key", "error"} == item.keys()
    ended = [etl.wait(item["task_id"]) for item in items]
    assert ["completed", "failed", "failed", "completed"] == [task["status"] for task in ended]
    assert [None, "mineru", "upload", None] == [task["metadata"]["error_stage"] for task in ended]
    assert {55} == {task["project_id"] for task in ended}
    assert ("failed", None) == (items[2]["status"], items[2]["s3_key"])
    assert items[2]["error"]
    refused(posted(etl, f"/tasks/{items[2]['task_id']}/retry", RETRY_MINERU), 409, "artifact_missing")
