"""Rules over HTTP, as the frontend of seed 003 calls them."""

import time
from typing import Any

import pytest

from docmill.core.access import Principal
from docmill.http.auth import AuthOptions
from docmill.work import keys

RULES = "/api/v1/etl/rules"
LLM = {
    "name": "invoice_llm",
    "description": "Extract invoice fields",
    "json_schema": {"type": "object", "properties": {"invoice_number": {"type": "string"}}},
    "system_prompt": "...",
}


async def test_the_default_rule_is_always_there(desk: Any) -> None:
    answer = await desk.http.get(RULES)

    assert 200 == answer.status_code
    found = answer.json()
    assert {"rules", "total", "limit", "offset"} == set(found)
    assert 1 == found["total"]
    assert ("skip", True) == (found["rules"][0]["postprocess_mode"], found["rules"][0]["is_default"])


async def test_the_examples_of_the_seed(desk: Any) -> None:
    llm = await desk.http.post(RULES, json=LLM)
    skip = await desk.http.post(
        RULES, json={"name": "skip_llm", "description": "Only return markdown", "postprocess_mode": "skip"}
    )

    assert (201, "llm") == (llm.status_code, llm.json()["postprocess_mode"])
    assert (201, "skip") == (skip.status_code, skip.json()["postprocess_mode"])
    made = llm.json()
    assert made["id"] == made["rule_id"]
    assert LLM == {name: made[name] for name in LLM}
    assert made["created_at"].endswith("Z")
    assert made == (await desk.http.get(f"{RULES}/{made['id']}")).json()
    assert 3 == (await desk.http.get(RULES)).json()["total"]


async def test_a_rule_is_replaced_and_deleted(desk: Any) -> None:
    rule = (await desk.http.post(RULES, json=LLM)).json()["id"]

    changed = await desk.http.put(f"{RULES}/{rule}", json={"name": "other"})
    gone = await desk.http.delete(f"{RULES}/{rule}")

    assert (200, "other", "skip", None) == (
        changed.status_code,
        changed.json()["name"],
        changed.json()["postprocess_mode"],
        changed.json()["json_schema"],
    )
    assert (204, b"") == (gone.status_code, gone.content)
    for call in (desk.http.get, desk.http.delete):
        assert "rule_not_found" == (await call(f"{RULES}/{rule}")).json()["code"]


async def test_the_default_rule_cannot_be_changed(desk: Any) -> None:
    default = (await desk.http.get(RULES)).json()["rules"][0]["id"]

    for answer in (
        await desk.http.put(f"{RULES}/{default}", json=LLM),
        await desk.http.delete(f"{RULES}/{default}"),
    ):
        assert (409, "rule_global") == (answer.status_code, answer.json()["code"])


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        ({"name": "x", "postprocess_mode": "llm"}, "rule_schema_required", ""),
        ({"name": "x", "postprocess_mode": "maybe"}, "rule_mode_unknown", "maybe"),
        ({"name": "x", "postprocess_strategy": "guess"}, "rule_strategy_unknown", "guess"),
        (
            {"name": "x", "json_schema": {"properties": {"a": {"type": "nope"}}}},
            "rule_schema_invalid",
            "/properties/a/type",
        ),
        ({"name": "x", "json_schema": {"pattern": "("}}, "rule_schema_invalid", "/pattern"),
        ({"name": "x", "json_schema": {"$ref": "http://127.0.0.1:1/x"}}, "rule_schema_invalid", "complete in itself"),
        ({"name": "x", "json_schema": {"$schema": "http://127.0.0.1:1/x"}}, "rule_schema_invalid", "127.0.0.1"),
        ({"name": "x", "json_schema": {"$ref": "#/nowhere"}}, "rule_schema_invalid", "nowhere"),
        ({"name": "x", "json_schema": {"enum": ["x" * 300_000]}}, "rule_schema_invalid", "bytes"),
        ({"name": "x", "json_schema": [1]}, "request_invalid", "json_schema"),
        ({"name": "x", "json_schema": "{}"}, "request_invalid", "json_schema"),
        ({"name": ""}, "request_invalid", "name"),
        ({}, "request_invalid", "name"),
        ({"name": "a\0"}, "request_invalid", "NUL"),
    ],
)
async def test_what_is_no_rule_is_refused_and_the_place_named(desk: Any, body: Any, code: str, says: str) -> None:
    answer = await desk.http.post(RULES, json=body)

    assert (422, code) == (answer.status_code, answer.json()["code"]), answer.text
    assert says in answer.json()["detail"]
    assert 1 == (await desk.http.get(RULES)).json()["total"]


async def test_a_foreign_rule_is_not_there(open_desk: Any) -> None:
    async with open_desk(AuthOptions()) as desk:
        anna, bert, carl = [
            {"Authorization": f"Bearer {(await keys.create(desk.ports, 'k', Principal(user, tenant)))[1]}"}
            for user, tenant in (("anna", "acme"), ("bert", "acme"), ("anna", "other"))
        ]
        rule = (await desk.http.post(RULES, json=LLM, headers=anna)).json()["id"]

        for other in (bert, carl):
            answers = [
                await desk.http.get(f"{RULES}/{rule}", headers=other),
                await desk.http.put(f"{RULES}/{rule}", json=LLM, headers=other),
                await desk.http.delete(f"{RULES}/{rule}", headers=other),
            ]
            assert [404] * 3 == [answer.status_code for answer in answers]
            assert 1 == (await desk.http.get(RULES, headers=other)).json()["total"]
        assert 401 == (await desk.http.get(RULES)).status_code
        assert 200 == (await desk.http.get(f"{RULES}/{rule}", headers=anna)).status_code


@pytest.mark.parametrize("number", [str(2**63), str(-(2**63)), "9" * 100])
async def test_a_rule_number_beyond_64_bits_is_422(desk: Any, number: str) -> None:
    assert 422 == (await desk.http.get(f"{RULES}/{number}")).status_code


@pytest.mark.parametrize("number", ["0", "-1", "99"])
async def test_an_unknown_rule_is_404(desk: Any, number: str) -> None:
    assert 404 == (await desk.http.get(f"{RULES}/{number}")).status_code


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "offset=-1", f"offset={2**63}", f"limit={2**70}"])
async def test_a_page_has_bounds(desk: Any, query: str) -> None:
    assert 422 == (await desk.http.get(f"{RULES}?{query}")).status_code


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"pattern": rf"(?=\w{{200}})\w{{200}}{number}"} for number in range(400)]},
        {"allOf": [{"pattern": rf"\w{{{number}}}"} for number in range(5_000)]},
        {"pattern": r"(\w{1000}){1000}"},
        {"pattern": r"(a)\1"},
    ],
    ids=["look-ahead", "many", "huge", "back-reference"],
)
async def test_a_schema_whose_patterns_cost_too_much_is_refused_at_once(desk: Any, schema: dict[str, Any]) -> None:
    """400 patterns with look-ahead stopped the service for minutes and took 9 GB."""
    began = time.thread_time()

    answer = await desk.http.post(RULES, json=LLM | {"json_schema": schema})

    assert (422, "rule_schema_invalid") == (answer.status_code, answer.json()["code"])
    assert time.thread_time() - began < 0.5
