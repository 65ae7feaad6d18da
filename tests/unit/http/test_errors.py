"""Problems in one shape, and JSON that no database could hold is the client's error."""

import json
from dataclasses import replace
from html import unescape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from docmill.core.catalogue import entries, entry
from docmill.core.errors import DocmillError, StageFailed, Unavailable
from docmill.http.app import AuthOptions
from docmill.http.wire import MAX_DEPTH, check_json

ETL = "/api/v1/etl"
FIELDS = ["type", "title", "status", "detail", "code", "instance", "request_id", "retryable", "next_step"]


async def test_an_error_is_problem_json(desk):
    answer = await desk.http.get(f"{ETL}/tasks/77", headers={"X-Request-ID": "abc-1"})

    assert "application/problem+json" == answer.headers["content-type"]
    assert {
        "type": "/docs/codes/task_not_found",
        "title": "Task not found",
        "status": 404,
        "detail": "There is no task 77.",
        "code": "task_not_found",
        "instance": f"{ETL}/tasks/77",
        "request_id": "abc-1",
        "retryable": False,
        "next_step": entry("task_not_found").text["en"][1],
    } == answer.json()
    assert FIELDS == list(answer.json())


async def test_unknown_addresses_and_methods_are_problems(desk):
    nowhere = await desk.http.get("/nowhere")
    wrong = await desk.http.delete(f"{ETL}/submit")

    assert (404, "route_not_found") == (nowhere.status_code, nowhere.json()["code"])
    assert (405, "method_not_allowed") == (wrong.status_code, wrong.json()["code"])
    assert "POST" in wrong.headers["allow"]


async def test_every_wrong_field_is_named_and_no_input_repeated(desk):
    answer = await desk.http.post(f"{ETL}/submit", json={"priority": 99, "rule_id": "secret-value"})

    assert {"priority", "rule_id"} == {error["loc"][-1] for error in answer.json()["errors"]}
    assert "secret-value" not in answer.text
    assert isinstance(answer.json()["detail"], str)


async def test_an_unexpected_error_shows_nothing_but_its_request_id(open_desk):
    async with open_desk(alter=lambda ports: replace(ports, ledger=Broken(RuntimeError("secret detail")))) as desk:
        answer = await desk.http.get(f"{ETL}/tasks/1")

    assert (500, "internal_error") == (answer.status_code, answer.json()["code"])
    assert answer.headers["x-request-id"] == answer.json()["request_id"]
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert "nosniff" == answer.headers["x-content-type-options"]


async def test_a_lost_database_is_503_with_retry_after(open_desk):
    fault = Unavailable("database_unavailable")
    async with open_desk(alter=lambda ports: replace(ports, ledger=Broken(fault))) as desk:
        answer = await desk.http.get(f"{ETL}/tasks/1")

    assert (503, "2", True) == (answer.status_code, answer.headers["retry-after"], answer.json()["retryable"])


FULL = OSError(28, "No space")
GROUP = ExceptionGroup("tasks", [RuntimeError("first"), ExceptionGroup("inner", [FULL])])
CAUSED = StageFailed("storage_failed", why="OSError")
CAUSED.__cause__ = GROUP


@pytest.mark.parametrize("error", [FULL, GROUP, CAUSED, OSError(122, "Quota")], ids=["bare", "group", "cause", "quota"])
async def test_a_full_disk_is_507_however_it_is_wrapped(open_desk, error):
    broken = Broken(error)
    async with open_desk(
        alter=lambda ports: replace(ports, ledger=broken, tables=broken, rules=broken, documents=broken)
    ) as desk:
        rule = {"name": "r", "system_prompt": "Extract.", "json_schema": {"type": "object"}}
        answers = [
            await desk.http.get(f"{ETL}/tasks/1"),
            await desk.http.post(f"{ETL}/tasks/1/cancel"),
            await desk.http.post("/api/v1/projects/1/tables", json={"name": "t", "data": {}}),
            await desk.http.post(f"{ETL}/rules", json=rule),
        ]

    for answer in answers:
        assert (507, "storage_full") == (answer.status_code, answer.json()["code"])
        assert "30" == answer.headers["Retry-After"]


async def test_a_group_of_errors_is_answered_as_the_first_of_ours(open_desk):
    error = ExceptionGroup("tasks", [RuntimeError("beside it"), Unavailable("database_unavailable")])
    async with open_desk(alter=lambda ports: replace(ports, ledger=Broken(error))) as desk:
        answer = await desk.http.get(f"{ETL}/tasks/1")

    assert (503, "database_unavailable") == (answer.status_code, answer.json()["code"])


class Broken:
    def __init__(self, error):
        self.error = error

    def __getattr__(self, name):
        async def fail(*_, **__):
            raise self.error

        return fail


HOSTILE = {
    "nan": (b'{"rule_id": NaN}', 422),
    "infinity": (b'{"rule_id": -Infinity}', 422),
    "overflow": (b'{"rule_id": 1e999}', 422),
    "huge int": (b'{"rule_id": ' + b"9" * 5000 + b"}", 422),
    "65 bits": (b'{"x": 18446744073709551616}', 422),
    "surrogate": (b'{"filename": "\\ud800"}', 422),
    "surrogate key": (b'{"\\udfff": 1}', 422),
    "nul": (b'{"filename": "a\\u0000b"}', 422),
    "same key": (b'{"s3_key": "a", "s3_key": "b"}', 422),
    "deep": (b'{"x":' * 20_000 + b"1" + b"}" * 20_000, 422),
    "deep lists": (b"[" * 65 + b"]" * 65, 422),
    "unclosed": (b"[" * 100_000, 422),
    "cut off": (b'{"a": ', 400),
    "not json": (b"hello", 400),
    "raw nul": (b'{"a": "\0"}', 400),
    "not utf-8": (b'{"a": "\xff"}', 400),
    "utf-16": ('{"a": 1}'.encode("utf-16"), 400),
    "bom": (b'\xef\xbb\xbf{"s3_key": "x"}', 400),
    "encoded surrogate": (b'{"a": "\xed\xa0\x80"}', 400),
    "trailing": (b"{} {}", 400),
    "empty": (b" ", 400),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_json_is_the_clients_error(desk, name):
    raw, status = HOSTILE[name]

    answer = await desk.http.post(f"{ETL}/submit", content=raw, headers={"Content-Type": "application/json"})

    assert (status, "request_invalid") == (answer.status_code, answer.json()["code"]), answer.text


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/x+json"])
async def test_json_under_any_of_its_names_is_checked(desk, kind):
    answer = await desk.http.post(f"{ETL}/submit", content=b'{"rule_id": NaN}', headers={"Content-Type": kind})

    assert "NaN" in answer.json()["detail"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_a_body_that_is_not_called_json_is_not_read_as_json(desk, kind):
    answer = await desk.http.post(f"{ETL}/submit", content=b'{"s3_key": "x"}', headers={"Content-Type": kind})

    assert 422 == answer.status_code


def test_harmless_values_pass():
    for raw in (
        rb'{"a": "\ud83d\ude00", "b": "\\u0000", "c": "\\ud800", "d": 18446744073709551615, "e": -1.5e300}',
        b"[" * MAX_DEPTH + b"]" * MAX_DEPTH,
        b"[" + b"[]," * 500 + b"[]]",
        b'"[[[[["',
        '["grün 你好"]'.encode(),
    ):
        assert json.loads(raw) == check_json(raw)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), inner)
    ),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(JSON, st.booleans())
def test_what_json_can_say_comes_through(value, ascii_only):
    assert value == check_json(json.dumps(value, ensure_ascii=ascii_only).encode())


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:\\u0dD8ntfe1-. ', max_size=40).map(str.encode))
def test_any_bytes_are_a_value_or_an_error_of_ours(raw):
    try:
        check_json(raw)
    except DocmillError as error:
        assert error.status in (400, 422)  # noqa: PT017


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/api/v1/etl/rules", {"name": "r", "mode": "llm"}, "body.mode"),
        ("/api/v1/etl/rules/test", {"rule": {"name": "r", "mode": "llm"}, "task_id": 1}, "body.rule.mode"),
        ("/api/v1/projects/1/tables", {"name": "t", "rows": []}, "body.rows"),
        ("/api/v1/webhooks", {"url": "https://x.example.org", "event": ["task.completed"]}, "body.event"),
        ("/api/v1/etl/tasks/1/retry", {"from_stage": "mineru", "force": True}, "body.force"),
        ("/api/v1/etl/tasks/1/mount", {"table_id": 1, "pointer": "/a"}, "body.pointer"),
        ("/api/v1/etl/submit", {"s3_key": "users/local/raw/1/a.pdf", "prority": 5}, "body.prority"),
        ("/api/v1/etl/submit", {"twin": {"folder": "a", "place": "b"}}, "body.twin.place"),
        ("/api/v1/webhooks/wh_0123456789abcdef0123456789abcdef/rotate", {"overlap": 1}, "body.overlap"),
    ],
)
async def test_an_unknown_field_is_refused_with_its_name(desk, path, body, field):
    answer = await desk.http.post(path, json=body)

    assert (422, "request_invalid") == (answer.status_code, answer.json()["code"])
    assert f"{field}: there is no field of this name" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("languages", "words"), [("de-AT, en;q=0.5", "Nächster Schritt"), ("zh", "下一步"), ("", "Next step")]
)
async def test_the_type_of_a_problem_opens_the_page_of_its_code(open_desk, languages, words):
    async with open_desk(AuthOptions(require=True)) as desk:
        problem = (await desk.http.get("/api/v1/etl/tasks/9")).json()
        page = await desk.http.get(problem["type"], headers={"Accept-Language": languages})

    assert "unauthenticated" == problem["code"]
    assert "DOCMILL_API_KEY" in problem["detail"]
    assert "DOCMILL_API_KEY" in problem["next_step"]
    assert (200, "text/html; charset=utf-8") == (page.status_code, page.headers["content-type"])
    assert words in page.text
    assert "DOCMILL_API_KEY" in page.text
    assert "//" not in page.text.replace("<!doctype html>", ""), "the page needs nothing from elsewhere"


async def test_every_code_has_a_page_in_every_language(desk):
    for one in entries():
        for language, (sentence, step) in one.text.items():
            page = (await desk.http.get(f"/docs/codes/{one.code}", headers={"Accept-Language": language})).text
            assert sentence in unescape(page)
            assert step in unescape(page)


async def test_a_code_that_does_not_exist_has_no_page(desk):
    answer = await desk.http.get("/docs/codes/task_not_fund")

    assert (404, "code_unknown") == (answer.status_code, answer.json()["code"])
    assert "task_not_found" in answer.json()["detail"]


async def test_docs_lead_to_the_reference(desk):
    answer = await desk.http.get("/docs")

    assert (307, "/reference") == (answer.status_code, answer.headers["location"])
