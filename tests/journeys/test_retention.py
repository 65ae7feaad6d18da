"""A service that is told to keep tasks only for a while: the task is gone and says so, and its document is whole."""

import time
from pathlib import Path

from support.serving import Etl, Service

A_SECOND = str(1 / 24 / 3600)
TEXT = b"# Hello\n\nnobody else may read this\n"


def copies(data: Path) -> int:
    """Files of the store that hold the text in some form."""
    return sum(b"nobody else" in path.read_bytes() for path in (data / "objects").rglob("*") if path.is_file())


def test_a_task_is_gone_after_its_time_and_says_so(tmp_path: Path) -> None:
    with Service(tmp_path, "--jobs", "1") as service, service.client() as client:
        task = Etl(client).done("secret-name.txt", TEXT)
        task_id, document_id = task["task_id"], task["metadata"]["document_id"]
        table = client.post("/api/v1/projects/1/tables", json={"name": "t", "data": {}}).json()["id"]
    assert 4 == copies(tmp_path), "source, Markdown, parse, output"
    with Service(tmp_path, "--jobs", "1", DOCMILL_RETENTION_DAYS=A_SECOND) as service, service.client() as client:
        etl, mount = Etl(client), {"table_id": table, "json_path": ""}
        ends = time.monotonic() + 60
        while (answer := etl.get(f"/tasks/{task_id}")).status_code == 200 or copies(tmp_path) > 2:
            assert time.monotonic() < ends, answer.text
            time.sleep(0.05)

        for gone in (
            answer,
            etl.get(f"/tasks/{task_id}/events", headers={"Accept": "application/json"}),
            etl.get(f"/tasks/{task_id}/events"),
            etl.get(f"/tasks/{task_id}?wait=5"),
            etl.get(f"/tasks/{task_id}/twin"),
            etl.post(f"/tasks/{task_id}/cancel?force=true"),
            etl.post(f"/tasks/{task_id}/retry", json={"from_stage": "mineru"}),
            etl.post(f"/tasks/{task_id}/mount", json=mount),
        ):
            assert (410, "task_expired") == (gone.status_code, gone.json()["code"]), gone.text
            assert "application/problem+json" == gone.headers["content-type"]
            assert "secret" not in gone.text
        assert (0, 0) == (
            etl.get("/tasks").json()["total"],
            etl.get(f"/tasks/batch?task_ids={task_id}").json()["total"],
        )
        assert 404 == etl.get("/tasks/999").status_code
        page = client.get(f"/tasks/{task_id}", headers={"Accept": "text/html"})
        assert (410, True) == (page.status_code, "task_expired" in page.text)
        address = f"/api/v1/documents/{document_id}"
        assert TEXT == client.get(f"{address}/blob").content
        [markdown] = client.get(address).json()["assets"]
        assert b"nobody else" in client.get(f"/api/v1/assets/{markdown['ref']['asset_id']}/blob").content
        assert 200 == client.get(f"/documents/{document_id}", headers={"Accept": "text/html"}).status_code
