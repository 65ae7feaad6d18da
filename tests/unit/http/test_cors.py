"""CORS: pages of configured origins may call every route; nobody else's may, and nothing changes by default."""

from collections.abc import Iterator

import pytest

from docmill.core.origins import parse_origin
from docmill.http.auth import AuthOptions
from docmill.http.limits import HttpOptions

APP = "https://app.example"
OPTIONS = HttpOptions(allowed_origins=(APP, "http://localhost:5173"), poll_s=0.05)
ETL = "/api/v1/etl"


def preflight(method: str, origin: str = APP, headers: str = "authorization, content-type") -> dict[str, str]:
    return {"Origin": origin, "Access-Control-Request-Method": method, "Access-Control-Request-Headers": headers}


def routes(schema: dict) -> Iterator[tuple[str, str]]:
    for path, operations in schema["paths"].items():
        for method in operations:
            yield method.upper(), path.replace("{", "").replace("}", "")


async def test_a_preflight_is_answered_on_every_route_without_a_credential(open_desk):
    async with open_desk(auth=AuthOptions(require=True), options=OPTIONS) as desk:
        asked = list(routes(desk.app.openapi()))
        for method, path in asked:
            answer = await desk.http.options(path, headers=preflight(method))
            assert 204 == answer.status_code, (method, path, answer.text)
            assert APP == answer.headers["access-control-allow-origin"]
            assert method in answer.headers["access-control-allow-methods"].split(", ")
            allowed = answer.headers["access-control-allow-headers"].lower().split(", ")
            assert {"authorization", "content-type", "idempotency-key", "last-event-id", "x-api-key"} <= set(allowed)
            assert "origin" in answer.headers["vary"].lower()
            assert "access-control-allow-credentials" not in answer.headers
        assert {"GET", "POST", "PUT", "DELETE"} <= {method for method, _ in asked}


@pytest.mark.parametrize(
    "origin",
    [
        "https://app.example.evil.example",
        "https://evil-app.example",
        "http://app.example",
        "https://app.example:8443",
        "https://app.example/",
        "HTTPS://APP.EXAMPLE",
        "https://sub.app.example",
        "null",
        "*",
        "",
    ],
)
async def test_another_origin_gets_no_permission(open_desk, origin):
    async with open_desk(options=OPTIONS) as desk:
        asked = await desk.http.options(f"{ETL}/submit", headers=preflight("POST", origin))
        read = await desk.http.get(f"{ETL}/tasks", headers={"Origin": origin})

        for answer in (asked, read):
            assert not [name for name in answer.headers if name.startswith("access-control-")]
            assert "Origin" in answer.headers["vary"]
        assert not asked.is_success
        assert 200 == read.status_code


async def test_without_the_setting_there_is_no_cors(desk):
    asked = await desk.http.options(f"{ETL}/submit", headers=preflight("POST"))
    read = await desk.http.get(f"{ETL}/tasks", headers={"Origin": APP})

    for answer in (asked, read):
        assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert "vary" not in answer.headers
    assert 405 == asked.status_code


async def test_answers_of_every_layer_can_be_read_by_the_page(open_desk):
    async with open_desk(auth=AuthOptions(require=True), options=OPTIONS) as desk:
        refused = await desk.http.get(f"{ETL}/tasks", headers={"Origin": APP})
        wrong = await desk.http.get("/api/v1/nothing", headers={"Origin": APP})
    async with open_desk(options=OPTIONS) as desk:
        task_id = await desk.submit()
        await desk.http.post(f"{ETL}/tasks/{task_id}/cancel")
        host = await desk.http.get(f"{ETL}/tasks", headers={"Origin": APP, "Host": "evil.example"})
        large = await desk.http.post(f"{ETL}/submit", content=b"x" * 5_000_000, headers={"Origin": APP})
        known = await desk.http.get(f"{ETL}/tasks/{task_id}", headers={"Origin": APP, "If-None-Match": "*"})
        stream = await desk.http.get(f"{ETL}/tasks/{task_id}/events", headers={"Origin": APP})

        async def broken(*_: object) -> None:
            raise RuntimeError("broken on purpose")

        desk.app.state.auth.identify = broken
        failed = await desk.http.get(f"{ETL}/tasks", headers={"Origin": APP})
        desk.app.state.drain.begin()
        stopping = await desk.http.get(f"{ETL}/tasks", headers={"Origin": APP})

    found = (refused, wrong, host, large, known, stream, failed, stopping)
    assert [401, 404, 400, 413, 304, 200, 500, 503] == [answer.status_code for answer in found]
    assert "text/event-stream" in stream.headers["content-type"]
    for answer in found:
        assert APP == answer.headers["access-control-allow-origin"], answer.status_code
        assert "Origin" in answer.headers["vary"]
        exposed = answer.headers["access-control-expose-headers"].split(", ")
        assert {"ETag", "Retry-After", "Content-Disposition", "X-Request-ID"} <= set(exposed)


async def test_a_page_of_an_allowed_origin_may_write(open_desk):
    async with open_desk(options=OPTIONS) as desk:
        answer = await desk.http.post(f"{ETL}/tasks/1/cancel", headers={"Origin": "http://localhost:5173"})

        assert (404, "http://localhost:5173") == (answer.status_code, answer.headers["access-control-allow-origin"])


async def test_a_public_page_may_call_a_private_address(open_desk):
    async with open_desk(options=OPTIONS) as desk:
        asked = {**preflight("POST"), "Access-Control-Request-Private-Network": "true"}
        answer = await desk.http.options(f"{ETL}/submit", headers=asked)

        assert "true" == answer.headers["access-control-allow-private-network"]


@pytest.mark.parametrize(
    ("given", "origin"),
    [
        ("https://App.Example.org/", "https://app.example.org"),
        ("https://app.example.org:443", "https://app.example.org"),
        ("http://app.example.org:80", "http://app.example.org"),
        ("http://localhost:5173", "http://localhost:5173"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("chrome-extension://abcdef", "chrome-extension://abcdef"),
    ],
)
def test_an_origin_is_spelled_as_browsers_do(given: str, origin: str) -> None:
    assert origin == parse_origin(given)


@pytest.mark.parametrize(
    "given", ["*", "null", "", "app.example", "https://", "https://*.example", "https://a/b", "https://a?b", "a b://c"]
)
def test_a_wildcard_or_anything_but_an_origin_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="not an origin"):
        parse_origin(given)
