"""Requests as front ends send them: forms with a mount, names of uploaded files, results in lists."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.serving import Etl, Mode, Service

LARGE = b"# Large\n\n" + b"All work and no play makes a long document. " * 1_700
"""As a result it is more than 64 KB."""


@pytest.fixture(scope="module")
def service(mode: Mode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with mode.serve(tmp_path_factory.mktemp("front") / "data") as running:
        yield running


@pytest.fixture
def etl(service: Service) -> Iterator[Etl]:
    with service.client() as client:
        yield Etl(client)


def a_table(etl: Etl, data: Any) -> int:
    answer = etl.http.post("/api/v1/projects/7/tables", json={"name": "papers", "data": data})
    assert 201 == answer.status_code, answer.text
    return int(answer.json()["id"])


def send(etl: Etl, fields: dict[str, str], *names: str) -> Any:
    files = [("files", (name, f"# {name}".encode())) for name in names]
    return etl.post("/upload_and_submit", data={"project_id": "7", **fields}, files=files)


# A mount in the form


@pytest.mark.parametrize("as_json", [False, True], ids=["fields", "mount"])
def test_a_form_asks_for_a_mount(etl: Etl, as_json: bool) -> None:
    table = a_table(etl, {"in": {}})
    mount = {"table_id": str(table), "json_path": "/in"}
    answer = send(etl, {"mount": json.dumps(mount)} if as_json else mount, "one.md", "two.md")
    assert 201 == answer.status_code, answer.text

    tasks = [etl.wait(item["task_id"]) for item in answer.json()["items"]]

    assert [(table, "/in/one"), (table, "/in/two")] == [
        (task["metadata"]["mount_table_id"], task["metadata"]["mounted_path"]) for task in tasks
    ]
    data = etl.http.get(f"/api/v1/tables/{table}/data", params={"pointer": "/in"}).json()
    assert ["one.md", "two.md"] == [data[stem]["filename"] for stem in ("one", "two")]


def test_without_a_path_a_form_mounts_at_the_top(etl: Etl) -> None:
    table = a_table(etl, {})
    task = etl.wait(send(etl, {"table_id": str(table)}, "top.md").json()["items"][0]["task_id"])

    assert (table, "/top") == (task["metadata"]["mount_table_id"], task["metadata"]["mounted_path"])


@pytest.mark.parametrize(
    "fields",
    [
        {"json_path": "/in"},
        {"table_id": "first"},
        {"table_id": "0"},
        {"table_id": "1", "mount": '{"table_id": 2}'},
    ],
    ids=["no table", "no number", "zero", "two mounts"],
)
def test_a_form_with_half_a_mount_is_refused_and_stores_nothing(etl: Etl, fields: dict[str, str]) -> None:
    before = etl.get("/tasks").json()["total"]
    answer = send(etl, fields, "x.md")

    assert (422, "request_invalid") == (answer.status_code, answer.json()["code"]), answer.text
    assert before == etl.get("/tasks").json()["total"]


def test_a_task_names_the_table_that_it_was_mounted_into_last(etl: Etl) -> None:
    first, second = a_table(etl, {}), a_table(etl, {})
    task = etl.done("moved.md", b"# moved", mount={"table_id": first, "json_path": ""})
    assert first == task["metadata"]["mount_table_id"]

    assert 200 == etl.post(f"/tasks/{task['task_id']}/mount", json={"table_id": second}).status_code
    assert second == etl.task(task["task_id"])["metadata"]["mount_table_id"]


# Names of uploaded files


@pytest.mark.parametrize("name", ["Jahresbericht 2026 (Entwurf).md", "季度报告.md", 'semi;colon "quoted".md'])
def test_the_key_alone_brings_the_name_of_the_uploaded_file(etl: Etl, name: str) -> None:
    key = etl.upload(name, f"# {name}".encode(), project=7)["key"]
    assert name not in key

    task = etl.wait(etl.post("/submit", json={"s3_key": key}).json()["task_id"])

    assert ("completed", name, 7) == (task["status"], task["filename"], task["project_id"])
    assert {name.removesuffix(".md")} == task["result"].keys()
    other = etl.wait(etl.post("/submit", json={"s3_key": key, "filename": "mine.md"}).json()["task_id"])
    assert "mine.md" == other["filename"]


def test_a_project_that_contradicts_the_key_is_refused(etl: Etl) -> None:
    key = etl.upload("a.md", b"# a", project=7)["key"]

    refused = etl.post("/submit", json={"s3_key": key, "project_id": 8})
    taken = etl.post("/submit", json={"s3_key": key, "project_id": 7})

    assert (400, "project_mismatch") == (refused.status_code, refused.json()["code"])
    assert 200 == taken.status_code


# Results in lists


def listed(etl: Etl, task_id: int, **query: Any) -> list[dict[str, Any]]:
    """The task as the list and the batch give it."""
    page = etl.get("/tasks", params={"limit": 100, **query}).json()["tasks"]
    batch = etl.get("/tasks/batch", params={"task_ids": str(task_id), **query}).json()["tasks"]
    return [task for task in [*page, *batch] if task["task_id"] == task_id]


def test_lists_and_batches_have_small_results(etl: Etl) -> None:
    task = etl.done("small.md", b"# Small")
    found = listed(etl, task["task_id"])

    assert [task, task] == found
    assert "# Small" in found[0]["result"]["small"]["content"]
    assert (False, None) == (found[0]["metadata"]["result_omitted"], found[0]["metadata"]["result_error"])


def test_a_large_result_is_left_out_of_lists_and_said_to_be(etl: Etl) -> None:
    task = etl.done("large.md", LARGE)
    assert len(json.dumps(task["result"])) > 64 * 1024
    omitted = {**task, "result": None, "metadata": {**task["metadata"], "result_omitted": True}}

    assert [omitted, omitted] == listed(etl, task["task_id"])
    assert [task, task] == listed(etl, task["task_id"], include="result")


def test_a_retried_task_shows_no_old_result(etl: Etl) -> None:
    task = etl.done("again.md", b"# Again")
    assert 200 == etl.post(f"/tasks/{task['task_id']}/retry", json={"from_stage": "postprocess"}).status_code
    for found in listed(etl, task["task_id"]):
        assert (found["status"] == "completed") == (found["result"] is not None)
    done = etl.wait(task["task_id"])
    assert [done, done] == listed(etl, task["task_id"])
