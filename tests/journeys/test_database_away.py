"""PostgreSQL goes away under a running service: every door says so, nothing is half done, and it comes back alone."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from support.servers import Postgres
from support.serving import Etl, Service

BODIES: dict[str, dict[str, Any]] = {
    "/api/v1/etl/submit": {"json": {"s3_key": "{key}", "filename": "a.txt"}},
    "/api/v1/etl/upload_and_submit": {"data": {"project_id": "1"}, "files": {"files": ("a.txt", b"text")}},
    "/api/v1/etl/upload": {"data": {"project_id": "1"}, "files": {"file": ("a.txt", b"text")}},
    "/api/v1/etl/tasks/{task_id}/retry": {"json": {"from_stage": "mineru"}},
    "/api/v1/etl/tasks/{task_id}/mount": {"json": {"table_id": 1, "json_path": ""}},
    "/api/v1/etl/rules": {"json": {"name": "n", "description": "d", "mode": "skip"}},
    "/api/v1/etl/rules/{rule_id}": {"json": {"name": "n", "description": "d", "mode": "skip"}},
    "/api/v1/projects/{project_id}/tables": {"json": {"name": "t", "data": {}}},
    "/api/v1/tables/{table_id}": {"json": {"name": "t", "data": {}}},
}
QUERIES = {"/api/v1/etl/tasks/batch": {"task_ids": "1,2"}}
DOORS = [
    ("POST", "/api/external/jobs/{job}", {"json": {"phase": "x"}, "headers": {"Authorization": "Bearer x"}}),
    ("POST", "/api/v1/tasks/{job}/callback/", {"json": {"status": "failed"}, "headers": {"Authorization": "Bearer x"}}),
]
WITHOUT = {"/version", "/health", "/livez", "/metrics", "/api/v1/etl/upload", "/v1/clear/converters"}
"""What needs no database may answer as ever."""


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


def calls(http: httpx2.Client, facts: dict[str, str]) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Every route of the API, filled in with things that exist."""
    for path, methods in http.get("/openapi.json").json()["paths"].items():
        filled = path
        for name, value in facts.items():
            filled = filled.replace(f"{{{name}}}", value)
        for method in methods:
            request: dict[str, Any] = {} if method in ("get", "delete") else dict(BODIES.get(path, {}))
            if "json" in request and "s3_key" in request["json"]:
                request["json"] = request["json"] | {"s3_key": facts["key"]}
            if path in QUERIES:
                request["params"] = QUERIES[path]
            yield method.upper(), path, filled, request
    for method, path, request in DOORS:
        yield method, path, path.replace("{job}", str(uuid4())), request


def test_every_route_says_503_while_the_database_is_away_and_goes_on_afterwards(
    server: Postgres, tmp_path: Path
) -> None:
    with (
        server.address.database() as url,
        Service(tmp_path / "data", DATABASE_URL=url) as service,
        service.client() as http,
    ):
        etl = Etl(http)
        task = etl.done("a.txt", b"some text")
        table = http.post("/api/v1/projects/1/tables", json={"name": "t", "data": {}}).json()["id"]
        facts = {
            "task_id": str(task["task_id"]),
            "document_id": task["metadata"]["document_id"],
            "asset_id": str(uuid4()),
            "table_id": str(table),
            "project_id": "1",
            "rule_id": "1",
            "job_id": str(uuid4()),
            "key": task["metadata"]["s3_key"],
        }
        before = http.get("/api/v1/etl/tasks").json()
        routes = list(calls(http, facts))
        server.kill()
        answers = {}
        for method, path, filled, request in routes:
            began = time.monotonic()
            answer = http.request(method, filled, **request)
            assert time.monotonic() - began < 20, (method, path)
            answers[method, path] = answer
        server.start()

        odd = {route: (answer.status_code, answer.text[:200]) for route, answer in answers.items()}
        assert not {route: said for route, said in odd.items() if said[0] == 500}
        refused = {route: answer for route, answer in answers.items() if answer.status_code == 503}
        for route, answer in refused.items():
            assert "Retry-After" in answer.headers, route
            assert route[1] in ("/ready", "/readyz") or "database_unavailable" in answer.text, (route, answer.text)
        let_through = {
            route: said
            for route, said in odd.items()
            if said[0] < 400 and route[1] not in WITHOUT and not route[1].startswith("/api/v1/contracts")
        }
        assert {} == let_through
        assert len(refused) > 25, odd

        again = time.monotonic() + 30
        while http.get("/api/v1/etl/tasks").status_code != 200:
            assert time.monotonic() < again, "it does not come back by itself"
        assert before == http.get("/api/v1/etl/tasks").json(), "something was half done"
        assert "completed" == etl.done("b.txt", b"other text")["status"]
