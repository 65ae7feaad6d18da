"""Stored files that are gone or cut: each costs its own item an answer with a code, and nothing else."""

import shutil
from typing import Any
from uuid import UUID, uuid4

import pytest

from docmill.core.access import LOCAL
from docmill.core.machine import Handover, hand_over
from docmill.core.task import Attempt, Task
from docmill.work import control, doctor
from docmill.work.objects import objects
from docmill.work.stages.step import result_key
from unit.http.test_documents import DOCUMENTS, a_document, an_asset

ETL = "/api/v1/etl"
PRIVATE = "private, no-store"


async def completed(desk: Any, output: bytes = b'{"a":1}') -> int:
    task_id: int = await desk.submit()
    await desk.complete(task_id, output)
    return task_id


@pytest.mark.parametrize(("harm", "code"), [("delete", "object_not_found"), ("cut", "object_damaged")])
async def test_a_lost_result_costs_neither_the_task_nor_the_list(desk: Any, harm: str, code: str) -> None:
    whole, lost = await completed(desk), await completed(desk)
    key = (await desk.task(lost)).artifacts.output_key
    if harm == "delete":
        await desk.ports.store.delete(objects(desk.ports, "local").prefix + key)
    else:
        await objects(desk.ports, "local").put_bytes(key, b'{"a"')

    one = await desk.http.get(f"{ETL}/tasks/{lost}")
    assert (200, None, code) == (one.status_code, one.json()["result"], one.json()["metadata"]["result_error"])
    good = (await desk.http.get(f"{ETL}/tasks/{whole}")).json()
    assert ({"a": 1}, None) == (good["result"], good["metadata"]["result_error"])
    for path, params in (("tasks", {}), ("tasks/batch", {"task_ids": f"{whole},{lost}"})):
        listed = await desk.http.get(f"{ETL}/{path}", params={"include": "result", **params})
        assert 200 == listed.status_code, listed.text
        found = {task["task_id"]: task for task in listed.json()["tasks"]}
        assert {"a": 1} == found[whole]["result"]
        assert (None, code) == (found[lost]["result"], found[lost]["metadata"]["result_error"])
    mounted = await desk.http.post(f"{ETL}/tasks/{lost}/mount", json={"table_id": 1, "json_path": ""})
    assert (404, code) == (mounted.status_code, mounted.json()["code"])


async def test_a_cut_blob_is_refused_and_the_other_still_served(desk: Any) -> None:
    document = a_document(data=b"bytes of the document", assets=1)
    kept = (await desk.http.post(DOCUMENTS, json=document)).json()
    number = document["ref"]["document_id"]
    store = objects(desk.ports, "local")
    await store.put_bytes(store.key_of(kept["blob"]["uri"]), b"bytes of")

    answer = await desk.http.get(f"{DOCUMENTS}/{number}/blob")
    assert (404, "object_damaged") == (answer.status_code, answer.json()["code"])
    asset = document["assets"][0]["ref"]["asset_id"]
    whole = await desk.http.get(f"/api/v1/assets/{asset}/blob")
    assert (200, PRIVATE) == (whole.status_code, whole.headers["cache-control"])
    assert 200 == (await desk.http.get(f"{DOCUMENTS}/{number}")).status_code
    await desk.ports.store.delete(store.prefix + store.key_of(kept["blob"]["uri"]))
    answer = await desk.http.get(f"{DOCUMENTS}/{number}/blob")
    assert (404, "blob_not_found") == (answer.status_code, answer.json()["code"])


async def test_a_hard_delete_keeps_bytes_that_another_document_names(desk: Any) -> None:
    first = a_document(data=b"shared bytes", assets=1)
    kept = (await desk.http.post(DOCUMENTS, json=first)).json()
    second = a_document(assets=0)
    second |= {"blob": kept["blob"], "checksum": kept["checksum"]}
    assert 201 == (await desk.http.post(DOCUMENTS, json=second)).status_code
    number = second["ref"]["document_id"]
    theirs = an_asset(number) | {"blob": kept["assets"][0]["blob"], "checksum": kept["assets"][0]["checksum"]}
    assert 201 == (await desk.http.post("/api/v1/assets", json=theirs)).status_code

    gone = first["ref"]["document_id"]
    assert 204 == (await desk.http.delete(f"{DOCUMENTS}/{gone}", params={"hard": True})).status_code

    answer = await desk.http.get(f"{DOCUMENTS}/{number}/blob")
    assert (200, b"shared bytes") == (answer.status_code, answer.content)
    assert 200 == (await desk.http.get(f"/api/v1/assets/{theirs['ref']['asset_id']}/blob")).status_code
    assert 204 == (await desk.http.delete(f"{DOCUMENTS}/{number}", params={"hard": True})).status_code


async def test_a_hard_delete_of_a_document_keeps_the_files_of_its_task(desk: Any) -> None:
    task_id = await completed(desk)
    source = (await desk.task(task_id)).source_key
    store = objects(desk.ports, "local")
    stored = await store.stat(source)
    blob = {"type": "file", "uri": store.uri(source), "sha256": stored.sha256, "size": stored.size}
    document = a_document(assets=0) | {"blob": blob, "checksum": stored.sha256}
    assert 201 == (await desk.http.post(DOCUMENTS, json=document)).status_code

    url = f"{DOCUMENTS}/{document['ref']['document_id']}"
    assert 204 == (await desk.http.delete(url, params={"hard": True})).status_code

    assert await store.stat(source)
    assert {"a": 1} == (await desk.http.get(f"{ETL}/tasks/{task_id}")).json()["result"]


# The link under which a dispatcher's worker stores its result


async def handed_over(desk: Any) -> tuple[int, UUID, str]:
    task_id = await desk.submit()
    await desk.claim(task_id)
    task = await desk.task(task_id)
    handover = Handover("far", "dispatcher", "0" * 64, 60_000)

    def rule(task: Task, attempt: Attempt | None) -> Any:
        return hand_over(task, attempt, handover)

    await desk.ports.ledger.decide(task_id, rule, attempt_id=task.attempt_id)
    link = desk.ports.links.upload(task.tenant, result_key(task.attempt_id), seconds=60)
    return task_id, task.attempt_id, link[link.index("/api/") :]


async def test_an_upload_link_dies_with_its_job(desk: Any) -> None:
    task_id, job, link = await handed_over(desk)
    assert 201 == (await desk.http.put(link, content=b"first")).status_code
    assert 201 == (await desk.http.put(link, content=b"second")).status_code

    await control.cancel(desk.ports, LOCAL, task_id, force=True)

    late = await desk.http.put(link, content=b"late")
    assert (403, "link_invalid") == (late.status_code, late.json()["code"])
    assert b"second" == await objects(desk.ports, "local").read(result_key(job))
    await control.retry(desk.ports, LOCAL, task_id, from_stage="mineru")
    assert 403 == (await desk.http.put(link, content=b"late")).status_code
    assert b"second" == await objects(desk.ports, "local").read(result_key(job))


async def test_an_upload_that_outlasts_its_job_leaves_nothing(desk: Any) -> None:
    task_id, job, link = await handed_over(desk)

    async def body() -> Any:
        yield b"begun"
        await control.cancel(desk.ports, LOCAL, task_id, force=True)
        yield b"late"

    assert 403 == (await desk.http.put(link, content=body())).status_code
    assert await objects(desk.ports, "local").stat(result_key(job)) is None


async def test_a_link_for_anything_but_a_result_of_the_own_tenant_stores_nothing(desk: Any) -> None:
    _, job, _ = await handed_over(desk)
    for tenant, key in (
        ("local", "users/local/raw/1/x.pdf"),
        ("acme", result_key(job)),
        ("local", result_key(uuid4())),
    ):
        link = desk.ports.links.upload(tenant, key, seconds=60)
        assert 403 == (await desk.http.put(link[link.index("/api/") :], content=b"x")).status_code


async def test_a_download_by_link_is_private(desk: Any) -> None:
    await objects(desk.ports, "local").put_bytes("briefs/x.json", b"{}")
    link = desk.ports.links.download("local", "briefs/x.json", seconds=60)
    answer = await desk.http.get(link[link.index("/api/") :])
    assert (200, PRIVATE) == (answer.status_code, answer.headers["cache-control"])


# What the doctor says of database and store


async def finding(desk: Any) -> doctor.Finding:
    return await doctor.stored_files(desk.ports.pointers, desk.ports.store)


async def a_whole_task(desk: Any) -> int:
    task_id: int = await desk.submit()
    task = await desk.task(task_id)
    for name in ("markdown", "parsed"):
        await objects(desk.ports, task.tenant).put_bytes(name, b"x")
    await desk.complete(task_id, b"{}")
    return task_id


async def test_the_doctor_finds_nothing_wrong_where_all_is_there(desk: Any) -> None:
    await a_whole_task(desk)
    await desk.http.post(DOCUMENTS, json=a_document(assets=1))
    found = await finding(desk)
    assert "ok" == found.status, found


async def test_the_doctor_names_files_that_are_missing_or_cut(desk: Any) -> None:
    """Objects older than the database."""
    task_id = await a_whole_task(desk)
    task = await desk.task(task_id)
    store = objects(desk.ports, "local")
    await desk.ports.store.delete(store.prefix + task.artifacts.output_key)
    kept = (await desk.http.post(DOCUMENTS, json=a_document(assets=0))).json()
    await store.put_bytes(store.key_of(kept["blob"]["uri"]), b"cut")

    found = await finding(desk)

    assert "fail" == found.status
    assert f"task {task_id} (tenant local): {task.artifacts.output_key}: object_not_found" in found.detail
    assert f"document {kept['ref']['document_id']}" in found.detail
    assert "object_damaged" in found.detail
    assert found.next_step


async def test_the_doctor_names_files_without_a_row(desk: Any) -> None:
    """A database that is older than the objects."""
    await a_whole_task(desk)
    store = objects(desk.ports, "local")
    await store.put_bytes("users/local/etl_artifacts/1/4711/abcdef123456/output.json", b"{}")
    await store.put_bytes(f"documents/{uuid4()}/{'0' * 64}", b"x")

    found = await finding(desk)

    assert "warn" == found.status
    assert "2 are without a row" in found.detail
    assert "/4711/" in found.detail


async def test_a_store_that_lost_everything_is_survived(desk: Any) -> None:
    task_id = await a_whole_task(desk)
    shutil.rmtree(desk.ports.store._root / "tenants", ignore_errors=True)
    for path in (f"{ETL}/tasks/{task_id}", f"{ETL}/tasks?include=result", "/api/v1/documents"):
        assert 200 == (await desk.http.get(path)).status_code
    assert "fail" == (await finding(desk)).status
