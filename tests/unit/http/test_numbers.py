"""Whole numbers beyond 64 bits are the caller's error on every route, never ours."""

from uuid import uuid4

HUGE = 99999999999999999999
IDS = {
    "document_id": str(uuid4()),
    "asset_id": str(uuid4()),
    "job_id": str(uuid4()),
    "webhook_id": "wh_" + "0" * 32,
    "kind": "document",
    "token": "x",
    "conversion_id": "1.mj.e.1-0.i",
}


def is_integer(schema):
    return any(one.get("type") == "integer" for one in (schema, *schema.get("anyOf", ())))


async def test_a_parameter_beyond_64_bits_is_422(desk):
    paths = (await desk.http.get("/openapi.json")).json()["paths"]
    asked = 0
    for path, operations in paths.items():
        for method, operation in operations.items():
            parameters = operation.get("parameters", ())
            for one in parameters:
                if not is_integer(one["schema"]):
                    continue
                fill = {p["name"]: 1 for p in parameters if p["in"] == "path"} | {
                    name: value for name, value in IDS.items() if f"{{{name}}}" in path
                }
                query = {}
                (fill if one["in"] == "path" else query)[one["name"]] = HUGE
                for value in (HUGE, -HUGE):
                    (fill if one["in"] == "path" else query)[one["name"]] = value
                    body = {} if method in ("get", "delete") else {"json": {}}
                    answer = await desk.http.request(method, path.format(**fill), params=query, **body)
                    assert 422 == answer.status_code, (method, path, one["name"], answer.text)
                    asked += 1
    assert asked > 40


async def test_bodies_with_huge_numbers_are_refused(desk):
    submitted = await desk.submit()
    for method, path, body in (
        ("POST", "/api/v1/etl/submit", {"s3_key": "users/local/raw/1/x.pdf", "project_id": HUGE}),
        ("POST", "/api/v1/etl/submit", {"s3_key": "users/local/raw/1/x.pdf", "rule_id": HUGE}),
        ("POST", "/api/v1/etl/submit", {"s3_key": "users/local/raw/1/x.pdf", "priority": HUGE}),
        ("POST", "/api/v1/etl/submit", {"s3_key": "users/local/raw/1/x.pdf", "options": {"budget_pages": HUGE}}),
        ("POST", f"/api/v1/etl/tasks/{submitted}/mount", {"table_id": HUGE, "json_path": ""}),
        ("POST", "/api/v1/etl/rules/test", {"rule_id": HUGE, "task_id": HUGE}),
        ("POST", "/v1/convert/source", {"sources": [], "options": {"page_range": [1, HUGE]}}),
    ):
        answer = await desk.http.request(method, path, json=body)
        assert answer.status_code in (400, 422), (path, answer.text)
    form = {"project_id": str(HUGE)}
    for path in ("upload", "upload_and_submit"):
        answer = await desk.http.post(f"/api/v1/etl/{path}", data=form, files={"file": ("a.txt", b"a")})
        assert answer.status_code in (400, 422), (path, answer.text)
