"""The ETL routes: what they take, what they answer, and in which words."""

import asyncio
from dataclasses import replace

import pytest

from docmill.core.errors import StageFailed, StorageFull
from docmill.core.machine import StageResult
from docmill.core.task import Artifacts
from docmill.http.limits import HttpOptions
from docmill.http.tasks import read_cursor, read_ids, write_cursor
from docmill.http.wire import TaskMetadata, TaskOut, task_json
from docmill.work.objects import objects

ETL = "/api/v1/etl"
SEED_KEYS = [
    *("task_id", "user_id", "project_id", "filename", "rule_id", "status", "progress", "created_at", "updated_at"),
    *("result", "error", "metadata"),
]


async def test_a_submitted_task_has_the_shape_of_the_seed(desk):
    key = (await desk.upload())["key"]

    answer = await desk.http.post(
        f"{ETL}/submit", json={"project_id": 123, "filename": "invoice.pdf", "rule_id": None, "s3_key": key}
    )

    assert 200 == answer.status_code
    task_id = answer.json()["task_id"]
    assert {"task_id": task_id, "status": "pending", "message": "Task submitted successfully"} == answer.json()
    task = (await desk.http.get(f"{ETL}/tasks/{task_id}")).json()
    assert SEED_KEYS == list(task)
    assert (123, "invoice.pdf", "pending", 0, None, None) == tuple(
        task[name] for name in ("project_id", "filename", "status", "progress", "result", "error")
    )
    assert key == task["metadata"]["s3_key"]
    for name in ("provider_task_id", "artifact_mineru_markdown_key", "error_stage"):
        assert task["metadata"][name] is None
    assert task["created_at"].endswith("Z")


async def test_models_of_openapi_say_what_is_sent(desk):
    task = await desk.task(await desk.submit())

    sent = task_json(task)

    assert list(TaskOut.model_fields) == list(sent)
    assert list(TaskMetadata.model_fields) == list(sent["metadata"])
    assert TaskOut.model_validate_json((await desk.http.get(f"{ETL}/tasks/{task.id}")).content)


async def test_the_result_of_a_completed_task_is_its_output(desk):
    task_id = await desk.submit()
    await desk.complete(task_id, b'{"invoice": {"filename": "invoice.pdf", "content": "# Hi"}}')

    one = (await desk.http.get(f"{ETL}/tasks/{task_id}")).json()
    plain = (await desk.http.get(f"{ETL}/tasks")).json()
    full = (await desk.http.get(f"{ETL}/tasks?include=result")).json()

    assert "completed" == one["status"]
    assert 100 == one["progress"]
    assert {"invoice": {"filename": "invoice.pdf", "content": "# Hi"}} == one["result"]
    assert one == plain["tasks"][0] == full["tasks"][0]


@pytest.mark.parametrize("fault", ["object_not_found", "object_damaged"])
async def test_a_result_that_cannot_be_read_does_not_fail_a_list(desk, fault):
    good, bad = await desk.submit(), await desk.submit()
    await desk.complete(good, b'{"good": 1}')
    await desk.complete(bad, b"no JSON")
    if fault == "object_not_found":
        key = (await desk.task(bad)).artifacts.output_key
        assert await desk.ports.store.delete(objects(desk.ports, "local").prefix + key)

    for path in (
        "/tasks?",
        "/tasks?include=result&",
        f"/tasks/batch?task_ids={bad},{good}&",
        "/tasks?status=completed",
    ):
        answer = await desk.http.get(ETL + path)
        assert 200 == answer.status_code, answer.text
        found = {task["task_id"]: task for task in answer.json()["tasks"]}
        assert ({"good": 1}, None) == (found[good]["result"], found[good]["metadata"]["result_error"])
        assert (None, fault, False) == (
            found[bad]["result"],
            found[bad]["metadata"]["result_error"],
            found[bad]["metadata"]["result_omitted"],
        )


@pytest.mark.parametrize("fault", ["object_not_found", "object_damaged"])
async def test_a_task_whose_result_cannot_be_read_can_still_be_looked_at(desk, fault):
    task_id = await desk.submit()
    await desk.complete(task_id, b"no JSON")
    if fault == "object_not_found":
        key = (await desk.task(task_id)).artifacts.output_key
        await desk.ports.store.delete(objects(desk.ports, "local").prefix + key)

    answer = await desk.http.get(f"{ETL}/tasks/{task_id}")

    assert (200, "completed") == (answer.status_code, answer.json()["status"])
    assert (None, fault) == (answer.json()["result"], answer.json()["metadata"]["result_error"])


async def test_a_result_that_lists_must_read_is_left_out_above_64_kb(desk):
    small, large = await desk.submit(), await desk.submit()
    await desk.complete(small, b'"' + b"x" * (64 * 1024 - 2) + b'"')
    await desk.complete(large, b'"' + b"x" * (64 * 1024 - 1) + b'"')

    found = {task["task_id"]: task for task in (await desk.http.get(f"{ETL}/tasks")).json()["tasks"]}

    assert [(False, False), (True, True)] == [
        (found[id_]["result"] is None, found[id_]["metadata"]["result_omitted"]) for id_ in (small, large)
    ]


async def test_a_list_is_walked_with_offset_or_cursor(desk):
    ids = [await desk.submit(f"{n}.pdf") for n in range(5)]

    by_offset = (await desk.http.get(f"{ETL}/tasks?limit=2&offset=2")).json()
    assert [ids[2], ids[1]] == [task["task_id"] for task in by_offset["tasks"]]
    assert (5, 2, 2) == (by_offset["total"], by_offset["limit"], by_offset["offset"])

    seen, cursor = [], ""
    while cursor is not None:
        page = (await desk.http.get(f"{ETL}/tasks?limit=2" + (f"&cursor={cursor}" if cursor else ""))).json()
        seen += [task["task_id"] for task in page["tasks"]]
        cursor = page["next_cursor"]
    assert ids[::-1] == seen


@pytest.mark.parametrize("query", ["status=running_", "limit=0", "limit=101", "offset=-1", "project_id=x", "limit=1e3"])
async def test_a_bad_filter_is_422(desk, query):
    answer = await desk.http.get(f"{ETL}/tasks?{query}")

    assert (422, "request_invalid") == (answer.status_code, answer.json()["code"])


async def test_status_filters_by_the_names_of_the_wire(desk):
    running, pending = await desk.submit("a.pdf"), await desk.submit("b.pdf")
    await desk.claim(running)

    async def ids(status):
        return [t["task_id"] for t in (await desk.http.get(f"{ETL}/tasks?status={status}")).json()["tasks"]]

    assert [running] == await ids("mineru_parsing")
    assert [pending] == await ids("pending")
    assert [] == await ids("llm_processing")


def test_a_cursor_is_good_for_its_own_list_only():
    cursor = write_cursor(17, 3, "failed")

    assert 17 == read_cursor(cursor, 3, "failed")
    for project, status in ((4, "failed"), (3, None), (None, "failed")):
        with pytest.raises(Exception, match="cursor"):
            read_cursor(cursor, project, status)
    for junk in ("", "!", "AAAA", "ü", cursor + "=", cursor + "A", "dDk5OTk5OTk5OTk5OTk5OTk5OTkuLg"):
        with pytest.raises(Exception, match="cursor"):
            read_cursor(junk, 3, "failed")


async def test_batch_keeps_the_order_and_leaves_out_the_unknown(desk):
    first, second = await desk.submit("a.pdf"), await desk.submit("b.pdf")

    answer = await desk.http.get(f"{ETL}/tasks/batch?task_ids={second},999999,{first}")

    assert [second, first] == [task["task_id"] for task in answer.json()["tasks"]]
    assert 2 == answer.json()["total"]


@pytest.mark.parametrize(
    "ids", ["", ",", "1,", "1,x", "1.5", "-1", "١", "9" * 20, ",".join(["1"] * 101), "1" + ",2" * 9999]
)
async def test_bad_batch_ids_are_400(desk, ids):
    answer = await desk.http.get(f"{ETL}/tasks/batch", params={"task_ids": ids})

    assert (400, "task_ids_invalid") == (answer.status_code, answer.json()["code"])


def test_a_hundred_ids_are_fine():
    assert list(range(1, 101)) == read_ids(", ".join(str(n) for n in range(1, 101)))


async def test_cancel_and_retry(desk):
    task_id = await desk.submit()

    cancelled = await desk.http.post(f"{ETL}/tasks/{task_id}/cancel")
    again = await desk.http.post(f"{ETL}/tasks/{task_id}/cancel")
    retried = await desk.http.post(f"{ETL}/tasks/{task_id}/retry", json={"from_stage": "mineru"})

    assert {"task_id": task_id, "status": "cancelled", "message": "Task cancelled successfully"} == cancelled.json()
    assert 409 == again.status_code
    assert {
        "task_id": task_id,
        "status": "pending",
        "message": "Task retry submitted successfully",
    } == retried.json()


async def test_a_running_task_is_cancelled_only_by_force(desk):
    task_id = await desk.submit()
    await desk.claim(task_id)

    gently = await desk.http.post(f"{ETL}/tasks/{task_id}/cancel")
    retry = await desk.http.post(f"{ETL}/tasks/{task_id}/retry", json={"from_stage": "mineru"})
    forced = await desk.http.post(f"{ETL}/tasks/{task_id}/cancel?force=true")

    assert (409, "task_running") == (gently.status_code, gently.json()["code"])
    assert (409, "task_busy") == (retry.status_code, retry.json()["code"])
    assert "cancelled" == forced.json()["status"]


@pytest.mark.parametrize(
    ("body", "code"), [({"from_stage": "upload"}, "stage_unknown"), ({}, "request_invalid"), (None, "request_invalid")]
)
async def test_an_unknown_or_missing_stage_is_422(desk, body, code):
    task_id = await desk.submit()
    await desk.http.post(f"{ETL}/tasks/{task_id}/cancel")

    answer = await desk.http.post(f"{ETL}/tasks/{task_id}/retry", json=body)

    assert (422, code) == (answer.status_code, answer.json()["code"])


async def test_mounting_a_task_that_is_not_completed_is_400(desk):
    task_id = await desk.submit()

    answer = await desk.http.post(f"{ETL}/tasks/{task_id}/mount", json={"table_id": 1, "json_path": ""})

    assert (400, "task_not_completed") == (answer.status_code, answer.json()["code"])


async def test_a_completed_task_is_mounted(desk, local):
    task_id = await desk.submit()
    await desk.complete(task_id, b'{"invoice": {"filename": "invoice.pdf", "content": "x"}}')
    table = await desk.ports.tables.add(local.owner, 123, "t", {"docs": {}})

    answer = await desk.http.post(f"{ETL}/tasks/{task_id}/mount", json={"table_id": table.id, "json_path": "/docs"})

    assert 200 == answer.status_code, answer.text
    assert ["success", "message", "mounted_path"] == list(answer.json())
    assert answer.json()["success"] is True


@pytest.mark.parametrize("path", ["tasks/999999", "tasks/999999/events"])
async def test_an_unknown_task_is_404(desk, path):
    answer = await desk.http.get(f"{ETL}/{path}")

    assert (404, "task_not_found") == (answer.status_code, answer.json()["code"])


@pytest.mark.parametrize("task_id", ["x", "0", "-1", "1.5", "9" * 30, "%00"])
async def test_a_task_id_is_a_positive_number(desk, task_id):
    assert 422 == (await desk.http.get(f"{ETL}/tasks/{task_id}")).status_code


# Waiting


async def test_waiting_ends_with_the_next_change(desk):
    task_id = await desk.submit()
    waiting = asyncio.ensure_future(desk.http.get(f"{ETL}/tasks/{task_id}?wait=30"))
    await asyncio.sleep(0.05)
    assert not waiting.done()

    await desk.claim(task_id)

    assert "mineru_parsing" == (await asyncio.wait_for(waiting, 30)).json()["status"]


async def test_an_etag_says_whether_something_changed(desk):
    task_id = await desk.submit()
    first = await desk.http.get(f"{ETL}/tasks/{task_id}")
    known = {"If-None-Match": first.headers["etag"]}

    same = await desk.http.get(f"{ETL}/tasks/{task_id}", headers=known)
    waited = await desk.http.get(f"{ETL}/tasks/{task_id}?wait=0.1", headers=known)
    await desk.claim(task_id)
    other = await desk.http.get(f"{ETL}/tasks/{task_id}?wait=30", headers=known)

    assert [304, 304, 200] == [same.status_code, waited.status_code, other.status_code]
    assert b"" == same.content


@pytest.mark.parametrize("wait", ["-1", "61", "x", "nan", "inf"])
async def test_waiting_has_a_limit(desk, wait):
    task_id = await desk.submit()

    assert 422 == (await desk.http.get(f"{ETL}/tasks/{task_id}?wait={wait}")).status_code


async def test_who_leaves_stops_waiting(desk, call):
    task_id = await desk.submit()
    request = call(desk.app, "GET", f"{ETL}/tasks/{task_id}?wait=60")
    request.send()
    await asyncio.sleep(0.1)

    request.leave()

    await asyncio.wait_for(request.task, 30)


async def test_a_shutdown_ends_the_wait(desk):
    task_id = await desk.submit()
    waiting = asyncio.ensure_future(desk.http.get(f"{ETL}/tasks/{task_id}?wait=60"))
    await asyncio.sleep(0.1)

    desk.app.state.drain.begin()

    assert "pending" == (await asyncio.wait_for(waiting, 30)).json()["status"]


# Submitting


@pytest.mark.parametrize(
    "body",
    [
        {"priority": 11},
        {"priority": True},
        {"project_id": -1},
        {"project_id": 2**63},
        {"rule_id": 0},
        {"twin": "yes please"},
        {"twin": {"layout": "pile"}},
        {"mount": {"json_path": "/a"}},
        {"options": {"max_pages": 0}},
        {"options": {"ocr": "sometimes"}},
        {"options": {"language": "de\n"}},
        {"filename": "a" * 1025},
        {"workflow_id": ""},
    ],
)
async def test_a_submission_out_of_bounds_is_422(desk, body):
    answer = await desk.http.post(f"{ETL}/submit", json={"s3_key": "users/local/raw/1/x.pdf", **body})

    assert (422, "request_invalid") == (answer.status_code, answer.json()["code"])
    assert answer.json()["errors"][0]["loc"][0] == "body"


async def test_wishes_reach_the_task(desk):
    table = (await desk.http.post("/api/v1/projects/1/tables", json={"name": "t"})).json()["id"]
    task_id = await desk.submit(
        twin={"folder": "out", "layout": "sidecar", "force": True},
        mount={"table_id": table, "json_path": "/a"},
        priority=-3,
        engine="local",
        no_cache=True,
        workflow_id="w1",
        options={"language": "de", "ocr": True, "page_images": True, "max_pages": 9},
    )

    wishes = (await desk.task(task_id)).wishes

    assert ("w1", "local", True, -3) == (wishes.workflow_id, wishes.engine, wishes.no_cache, wishes.priority)
    assert wishes.twin
    assert ("out", "sidecar", True) == (wishes.twin.folder, wishes.twin.layout, wishes.twin.force)
    assert wishes.mount
    assert (table, "/a") == (wishes.mount.table_id, wishes.mount.json_path)
    assert {"language": "de", "ocr": "always", "page_images": True, "max_pages": 9} == wishes.parse


async def test_the_same_key_and_body_get_the_first_answer_again(desk):
    key = (await desk.upload())["key"]
    once = {"Idempotency-Key": "k-1"}

    first = await desk.http.post(f"{ETL}/submit", json={"s3_key": key, "rule_id": None}, headers=once)
    again = await desk.http.post(f"{ETL}/submit", json={"s3_key": key, "no_cache": False}, headers=once)
    other = await desk.http.post(f"{ETL}/submit", json={"s3_key": key, "no_cache": True}, headers=once)

    assert first.json()["task_id"] == again.json()["task_id"]
    assert "Idempotent-Replayed" not in first.headers
    assert "true" == again.headers["Idempotent-Replayed"]
    assert (422, "idempotency_mismatch") == (other.status_code, other.json()["code"])


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 256, "\x7f"])
async def test_a_bad_idempotency_key_is_400(desk, key):
    answer = await desk.http.post(f"{ETL}/submit", json={"s3_key": "k"}, headers={"Idempotency-Key": key})

    assert (400, "idempotency_key_invalid") == (answer.status_code, answer.json()["code"])


async def test_a_foreign_key_is_403_and_a_missing_object_404(desk):
    foreign = await desk.http.post(f"{ETL}/submit", json={"s3_key": "users/eve/raw/1/x.pdf"})
    missing = await desk.http.post(f"{ETL}/submit", json={"s3_key": "users/local/raw/1/x.pdf"})

    assert (403, "key_not_yours") == (foreign.status_code, foreign.json()["code"])
    assert (404, "object_not_found") == (missing.status_code, missing.json()["code"])


# Upload


async def test_an_upload_answers_with_its_key_and_hash(desk):
    answer = await desk.upload("Rechnung Ä.PDF", b"hello")

    assert ["key", "bucket", "size", "etag", "content_type", "sha256"] == list(answer)
    assert answer["key"].startswith("users/local/raw/123/")
    assert answer["key"].endswith(".pdf")
    assert (5, "application/pdf") == (answer["size"], answer["content_type"])
    assert "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" == answer["sha256"]


async def stored(desk):
    return [key async for key, _, _ in desk.ports.store.list("")]


async def test_the_project_may_stand_in_the_address(desk):
    files = {"file": ("a.txt", b"x")}

    fine = await desk.http.post(f"{ETL}/upload?project_id=7", files=files)
    contradiction = await desk.http.post(f"{ETL}/upload?project_id=7", data={"project_id": "8"}, files=files)
    agreement = await desk.http.post(f"{ETL}/upload?project_id=7", data={"project_id": "7"}, files=files)

    assert "/raw/7/" in fine.json()["key"]
    assert (422, "project_invalid") == (contradiction.status_code, contradiction.json()["code"])
    assert 201 == agreement.status_code


def form(*parts: tuple[str, str | None, bytes]) -> tuple[dict[str, str], bytes]:
    body = b""
    for name, filename, data in parts:
        more = f'; filename="{filename}"' if filename is not None else ""
        body += f'--b\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + data + b"\r\n"
    return {"Content-Type": "multipart/form-data; boundary=b"}, body + b"--b--\r\n"


@pytest.mark.parametrize(
    ("parts", "status", "code"),
    [
        ([("file", "a.pdf", b"x"), ("project_id", None, b"1")], 422, "project_required"),
        ([("project_id", None, b"1")], 422, "upload_missing_file"),
        ([("project_id", None, b"1"), ("file", "", b"")], 422, "upload_missing_file"),
        ([("project_id", None, b"1"), ("file", None, b"text")], 422, "upload_missing_file"),
        ([("project_id", None, b"1"), ("other", "a.pdf", b"x")], 422, "upload_missing_file"),
        ([("project_id", None, b"x"), ("file", "a.pdf", b"x")], 422, "project_invalid"),
        ([("project_id", None, b"9" * 19), ("file", "a.pdf", b"x")], 422, "project_invalid"),
        ([("project_id", None, b"1"), ("project_id", None, b"1"), ("file", "a", b"x")], 422, "request_invalid"),
        ([("project_id", None, b"1"), ("file", "a", b"x"), ("file", "b", b"y")], 400, "request_invalid"),
        ([("project_id", None, b"1"), ("file", "a", b"x"), ("late", None, b"\xff")], 400, "request_invalid"),
    ],
)
async def test_a_form_that_is_wrong_stores_nothing(desk, parts, status, code):
    headers, body = form(*parts)

    answer = await desk.http.post(f"{ETL}/upload", content=body, headers=headers)

    assert (status, code) == (answer.status_code, answer.json()["code"])
    assert [] == await stored(desk)


async def test_a_body_that_is_no_form_is_415(desk):
    answer = await desk.http.post(f"{ETL}/upload", json={"project_id": 1})

    assert (415, "media_type_unsupported") == (answer.status_code, answer.json()["code"])


async def test_a_file_over_the_limit_is_413_and_leaves_nothing(open_desk):
    async with open_desk(options=HttpOptions(max_upload_bytes=1000)) as desk:
        headers, body = form(("project_id", None, b"1"), ("file", "a.pdf", b"x" * 1001))

        answer = await desk.http.post(f"{ETL}/upload", content=body, headers=headers)

        assert (413, "upload_too_large") == (answer.status_code, answer.json()["code"])
        assert [] == await stored(desk)
        assert (
            201
            == (await desk.http.post(f"{ETL}/upload", content=body.replace(b"xx", b"x"), headers=headers)).status_code
        )


async def test_a_length_over_the_limit_is_413_before_anything_is_read(open_desk, call):
    async with open_desk(options=HttpOptions(max_upload_bytes=1000)) as desk:
        headers, _ = form()

        request = call(desk.app, "POST", f"{ETL}/upload?project_id=1", {**headers, "content-length": str(10**9)})

        assert 413 == await request.status()
        request.leave()
        await asyncio.wait_for(request.task, 30)


async def test_who_leaves_in_the_middle_leaves_nothing(desk, call):
    headers, body = form(("project_id", None, b"1"), ("file", "a.pdf", b"x" * 200_000))
    request = call(desk.app, "POST", f"{ETL}/upload", headers)
    request.send(body[:100_000], more=True)
    await asyncio.sleep(0.05)

    request.leave()

    await asyncio.wait_for(request.task, 30)
    assert [] == await stored(desk)


async def test_a_form_cut_off_is_400_and_leaves_nothing(desk):
    headers, body = form(("project_id", None, b"1"), ("file", "a.pdf", b"x" * 1000))

    for cut in (len(body) - 4, len(body) - 100, 60, 10):
        answer = await desk.http.post(f"{ETL}/upload", content=body[:cut], headers=headers)

        assert (400, "upload_incomplete") == (answer.status_code, answer.json()["code"])
    assert [] == await stored(desk)


# Upload and submit


async def test_several_files_in_one_call(desk):
    answer = await desk.http.post(
        f"{ETL}/upload_and_submit",
        data={"project_id": "5", "priority": "2", "options": '{"ocr": "never"}', "rule_id": "", "twin": "true"},
        files=[("files", ("a.pdf", b"a")), ("files", ("b.pdf", b"b"))],
    )

    assert 201 == answer.status_code, answer.text
    assert 2 == answer.json()["total"]
    first, second = answer.json()["items"]
    assert ["filename", "task_id", "status", "s3_key", "error"] == list(first)
    assert ("a.pdf", "pending", None) == (first["filename"], first["status"], first["error"])
    assert first["s3_key"] != second["s3_key"]
    wishes = (await desk.task(second["task_id"])).wishes
    assert (2, {"ocr": "never"}) == (wishes.priority, wishes.parse)
    assert wishes.twin


async def test_a_file_that_cannot_be_stored_is_a_failed_task_and_the_others_go_on(open_desk):
    async with open_desk(options=HttpOptions(max_upload_bytes=10)) as desk:
        answer = await desk.http.post(
            f"{ETL}/upload_and_submit",
            data={"project_id": "5"},
            files=[("files", ("big.pdf", b"x" * 11)), ("files", ("ok.pdf", b"x"))],
        )

        big, fine = answer.json()["items"]
        assert ("failed", None) == (big["status"], big["s3_key"])
        assert "10 bytes" in big["error"]
        assert "pending" == fine["status"]
        seen = (await desk.http.get(f"{ETL}/tasks/{big['task_id']}")).json()
        assert ("failed", "upload") == (seen["status"], seen["metadata"]["error_stage"])


HIDDEN = [
    StorageFull("storage_full"),
    OSError(28, "No space left on device"),
    ExceptionGroup("several", [ValueError("beside it"), ExceptionGroup("inner", [OSError(122, "Quota exceeded")])]),
]


@pytest.mark.parametrize("error", HIDDEN, ids=["ours", "of the system", "in a group"])
async def test_a_full_disk_is_507_and_no_failed_task(open_desk, error):
    async with open_desk(alter=lambda ports: replace(ports, store=BrokenStore(ports.store, error))) as desk:
        form, file = {"project_id": "5"}, ("a.pdf", b"x")
        both = await desk.http.post(f"{ETL}/upload_and_submit", data=form, files=[("files", file), ("files", file)])
        alone = await desk.http.post(f"{ETL}/upload", data=form, files={"file": file})
        docling = await desk.http.post("/v1/convert/file", files={"files": file})

        for answer in (both, alone, docling):
            assert (507, "30") == (answer.status_code, answer.headers["Retry-After"]), answer.text
        assert "storage_full" == alone.json()["code"] == both.json()["code"]
        assert 0 == (await desk.http.get(f"{ETL}/tasks")).json()["total"]


class BrokenStore:
    def __init__(self, inner, error):
        self.inner = inner
        self.error = error
        self.bucket = inner.bucket

    def __getattr__(self, name):
        return getattr(self.inner, name)

    async def put(self, key, chunks, *, limit=None, filename=""):
        raise self.error


async def test_the_same_files_under_the_same_key_are_the_same_tasks(desk):
    async def send(data=b"a", name="a.pdf"):
        return await desk.http.post(
            f"{ETL}/upload_and_submit",
            data={"project_id": "5"},
            files=[("files", (name, data)), ("files", ("b.pdf", b"b"))],
            headers={"Idempotency-Key": "once"},
        )

    first, again, other = await send(), await send(), await send(b"other")

    assert first.json() == again.json()
    assert "true" == again.headers["Idempotent-Replayed"]
    assert (422, "idempotency_mismatch") == (other.status_code, other.json()["code"])
    assert 2 == len(await stored(desk))


async def test_a_file_that_could_not_be_stored_is_one_failed_task_however_often_it_comes(open_desk):
    broken = []

    def sometimes(ports):
        broken.append(BrokenStore(ports.store, StageFailed("storage_failed", why="I/O error")))
        return replace(ports, store=broken[0])

    async with open_desk(alter=sometimes) as desk:

        async def send(key, data=b"a"):
            answer = await desk.http.post(
                f"{ETL}/upload_and_submit",
                data={"project_id": "5"},
                files=[("files", ("a.pdf", data))],
                headers={"Idempotency-Key": key},
            )
            return answer.headers.get("Idempotent-Replayed"), answer.json().get("items", answer.json().get("code"))

        (_, first), (replayed, again) = await send("k"), await send("k")
        assert "failed" == first[0]["status"]
        assert ("true", first) == (replayed, again)

        broken[0].put = broken[0].inner.put
        assert ("true", first) == await send("k")
        _, stored_one = await send("other")
        assert "pending" == stored_one[0]["status"]
        assert (None, "idempotency_mismatch") == await send("other", b"b")

        del broken[0].put
        assert ("true", stored_one) == await send("other")
        assert 2 == (await desk.http.get(f"{ETL}/tasks")).json()["total"]


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        ({"rule_id": "99999"}, 404, "rule_not_found"),
        ({"rule_id": "x"}, 422, "request_invalid"),
        ({"engine": "none"}, 422, "engine_unknown"),
        ({"table_id": "99999"}, 404, "table_not_found"),
        ({"mount": '{"table_id": 1, "json_path": "a"}'}, 422, "pointer_invalid"),
        ({"enigne": "local"}, 422, "request_invalid"),
        ({"options": "{"}, 400, "request_invalid"),
        ({"twin": '{"layout": "x"}'}, 422, "request_invalid"),
    ],
)
async def test_a_wish_that_cannot_be_met_stores_nothing(desk, data, status, code):
    answer = await desk.http.post(
        f"{ETL}/upload_and_submit", data={"project_id": "5", **data}, files=[("files", ("a.pdf", b"x"))]
    )

    assert (status, code) == (answer.status_code, answer.json()["code"]), answer.text
    assert [] == await stored(desk)


@pytest.mark.parametrize(
    ("wish", "status", "code"),
    [
        ({"rule_id": 99999}, 404, "rule_not_found"),
        ({"engine": "none"}, 422, "engine_unknown"),
        ({"mount": {"table_id": 99999}}, 404, "table_not_found"),
        ({"mount": {"table_id": 1, "json_path": "a"}}, 422, "pointer_invalid"),
    ],
)
async def test_a_submission_that_names_what_is_not_there_makes_no_task(desk, wish, status, code):
    key = (await desk.upload())["key"]

    answer = await desk.http.post(f"{ETL}/submit", json={"s3_key": key, **wish})

    assert (status, code) == (answer.status_code, answer.json()["code"])
    assert 0 == (await desk.http.get(f"{ETL}/tasks")).json()["total"]


async def test_a_bad_file_and_a_missing_table_make_no_task(open_desk):
    """The first file cannot be stored, which alone would be a failed task."""

    class Breaking(BrokenStore):
        async def put(self, key, chunks, *, limit=None, filename=""):
            async for _ in chunks:
                raise OSError

    async with open_desk(alter=lambda ports: replace(ports, store=Breaking(ports.store, None))) as desk:
        form = {"project_id": "5", "table_id": "99999"}
        answer = await desk.http.post(f"{ETL}/upload_and_submit", data=form, files=[("files", ("a.pdf", b"x"))])

        assert (404, "table_not_found") == (answer.status_code, answer.json()["code"])
        assert 0 == (await desk.http.get(f"{ETL}/tasks")).json()["total"]


async def test_running_is_a_status_of_lists_beside_those_of_the_wire(desk):
    waiting, parsing, later = [await desk.submit() for _ in range(3)]
    await desk.claim(parsing)
    await desk.claim(later)
    await desk.finish_stage(later, StageResult(artifacts=Artifacts("markdown", "parsed"), engine="local", pages=1))

    async def listed(query):
        page = (await desk.http.get(f"{ETL}/tasks?{query}")).json()
        return [task["task_id"] for task in page["tasks"]], page["total"], page["next_cursor"]

    assert ([later, parsing], 2, None) == await listed("status=running")
    first, _, cursor = await listed("status=running&project_id=123&limit=1")
    assert ([later], [parsing]) == (first, (await listed(f"status=running&project_id=123&limit=1&cursor={cursor}"))[0])
    assert ([waiting], 1, None) == await listed("status=pending")


async def test_a_hostile_file_name_is_only_a_name(desk):
    for name in ("../../etc/passwd", "a\\b.pdf", "..", "x" * 900 + ".pdf", "名前.pdf", "a;b.pdf", 'q".pdf'):
        answer = await desk.upload(name.replace('"', "%22"), b"x")
        assert answer["key"].startswith("users/local/raw/123/")
        assert ".." not in answer["key"]


async def test_a_form_that_breaks_in_a_file_is_refused_whole(desk):
    headers, body = form(("project_id", None, b"1"), ("files", "a.pdf", b"x"), ("files", "b.pdf", b"y" * 1000))
    broken = body.replace(b'name="files"; filename="b.pdf"', b"nam\xff;", 1)

    for whole in (body[:-200], broken, body[:-6] + b"junk"):
        answer = await desk.http.post(f"{ETL}/upload_and_submit", content=whole, headers=headers)
        assert 400 == answer.status_code, answer.text
    assert [] == await stored(desk)
    assert 0 == (await desk.http.get(f"{ETL}/tasks")).json()["total"]


async def test_all_files_together_have_a_limit(open_desk):
    async with open_desk(options=HttpOptions(max_batch_bytes=5000)) as desk:
        headers, body = form(("project_id", None, b"1"), *[("files", f"{n}.pdf", b"x" * 1000) for n in range(6)])

        async def chunked():
            for at in range(0, len(body), 100):
                yield body[at : at + 100]

        for content in (body, chunked()):
            answer = await desk.http.post(f"{ETL}/upload_and_submit", content=content, headers=headers)
            assert (413, "upload_too_large") == (answer.status_code, answer.json()["code"])
        assert [] == await stored(desk)
        assert 0 == (await desk.http.get(f"{ETL}/tasks")).json()["total"]


async def test_a_store_that_breaks_is_a_failed_task_too(open_desk):
    class Breaking(BrokenStore):
        async def put(self, key, chunks, *, limit=None, filename=""):
            async for _ in chunks:
                raise OSError("secret path")

    async with open_desk(alter=lambda ports: replace(ports, store=Breaking(ports.store, None))) as desk:
        both = [("files", ("a.pdf", b"x" * 100)), ("files", ("b.pdf", b"x"))]
        answer = await desk.http.post(f"{ETL}/upload_and_submit", data={"project_id": "5"}, files=both)
        alone = await desk.http.post(f"{ETL}/upload", data={"project_id": "5"}, files={"file": ("a.pdf", b"x")})

        assert ["failed", "failed"] == [item["status"] for item in answer.json()["items"]]
        assert (500, "upload_failed") == (alone.status_code, alone.json()["code"])
        assert "secret" not in answer.text + alone.text
