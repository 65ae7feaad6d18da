"""OpenAPI shows how every error looks."""

from __future__ import annotations

from typing import Any

import pytest

from docmill.core.catalogue import entries
from docmill.core.errors import SENTENCES
from docmill.http.errors import Problem


@pytest.fixture
async def schema(desk: Any) -> dict[str, Any]:
    found: dict[str, Any] = (await desk.http.get("/openapi.json")).json()
    return found


async def test_every_code_that_comes_with_a_status_has_an_example(schema: dict[str, Any]) -> None:
    shown = schema["components"]["examples"]
    wanted = {one.code: one.status for one in entries() if one.status and one.code in SENTENCES}

    assert schema["openapi"].startswith("3.1")
    assert wanted == {code: Problem.model_validate(one["value"]).status for code, one in shown.items()}
    assert not any("{" in one["value"]["detail"] for one in shown.values())


async def test_every_error_of_every_route_shows_codes_of_its_status(schema: dict[str, Any]) -> None:
    shown = schema["components"]["examples"]
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            for status, response in operation["responses"].items():
                content = response.get("content", {}).get("application/problem+json")
                if content is None:
                    continue
                codes = set(content["examples"])
                assert codes, (method, path, status)
                assert {int(status)} == {shown[code]["value"]["status"] for code in codes}, (method, path, status)


async def test_a_route_shows_its_own_codes_and_not_those_of_others(schema: dict[str, Any]) -> None:
    def codes(path: str, method: str, status: int) -> set[str]:
        responses = schema["paths"][path][method]["responses"]
        return set(responses[str(status)]["content"]["application/problem+json"]["examples"])

    assert "task_not_found" in codes("/api/v1/etl/tasks/{task_id}", "get", 404)
    assert {"task_expired"} == codes("/api/v1/etl/tasks/{task_id}/events", "get", 410)
    assert "mount_conflict" in codes("/api/v1/etl/tasks/{task_id}/mount", "post", 409)
    assert "task_not_found" not in codes("/api/v1/tables/{table_id}", "get", 404)
