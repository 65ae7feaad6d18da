"""Before any route: names, origins, sizes, shutdown; and what every answer carries."""

import asyncio

import pytest

from docmill.http.auth import AuthOptions
from docmill.http.limits import Drain, Gate, HttpOptions

ETL = "/api/v1/etl"
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8321", "127.0.0.1:80", "[::1]:8321", "localhost.", "[0:0:0:0:0:0:0:1]"]
)
async def test_loopback_names_are_served(desk, host):
    assert 200 == (await desk.http.get("/version", headers={"Host": host})).status_code


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "",
        "localhost:x",
        "a@localhost",
        "localhost/x",
        "[::1",
        "127.1",
        "0.0.0.0",
    ],
)
async def test_a_foreign_name_is_refused(desk, host):
    answer = await desk.http.get("/version", headers={"Host": host})

    assert (400, "host_not_allowed") == (answer.status_code, answer.json()["code"])


async def test_configured_names_are_served_besides_loopback(open_desk):
    async with open_desk(options=HttpOptions(allowed_hosts=("docs.example.org", "*.mill.example"))) as desk:
        for host, status in (
            ("docs.example.org", 200),
            ("a.mill.example", 200),
            ("localhost", 200),
            ("mill.example", 400),
            ("evilmill.example", 400),
        ):
            assert status == (await desk.http.get("/version", headers={"Host": host})).status_code, host


async def test_any_name_is_served_when_callers_need_a_credential(open_desk):
    """401, not 400: the name is right, only the credential is missing."""
    named = HttpOptions(own_hosts=("docs.example.org",))
    async with open_desk(auth=AuthOptions(require=True), options=named) as desk:
        assert 401 == (await desk.http.get("/version", headers={"Host": "nas.lan"})).status_code
    async with open_desk(auth=AuthOptions(require=True), options=HttpOptions(allowed_hosts=("a.example",))) as desk:
        assert 400 == (await desk.http.get("/version", headers={"Host": "nas.lan"})).status_code


async def test_the_own_public_name_is_served_without_a_credential_too(open_desk):
    async with open_desk(options=HttpOptions(own_hosts=("docs.example.org",))) as desk:
        assert 200 == (await desk.http.get("/version", headers={"Host": "docs.example.org"})).status_code
        assert 400 == (await desk.http.get("/version", headers={"Host": "nas.lan"})).status_code


@pytest.mark.parametrize("path", ["/health", "/ready", "/livez", "/readyz", "/metrics"])
@pytest.mark.parametrize("host", ["10.1.2.3:8321", "docmill.default.svc", "evil.example", ""])
async def test_probes_are_answered_under_every_name(open_desk, path, host):
    """A kubelet calls a pod by its address; a scraper by whatever name it discovered."""
    async with open_desk(options=HttpOptions(allowed_hosts=("a.example",))) as desk:
        assert 400 == (await desk.http.get("/version", headers={"Host": host})).status_code
        assert 200 == (await desk.http.get(path, headers={"Host": host})).status_code


async def test_two_host_headers_are_refused(desk):
    assert 400 == (await desk.http.get("/version", headers=[("Host", "localhost"), ("Host", "evil")])).status_code


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "http://localhost:5173"}, 404),
        ({"Origin": "http://127.0.0.1"}, 404),
        ({"Sec-Fetch-Site": "same-origin"}, 404),
        ({}, 404),
    ],
)
async def test_another_web_site_cannot_write(desk, headers, status):
    answer = await desk.http.post(f"{ETL}/tasks/1/cancel", headers=headers)

    assert status == answer.status_code


async def test_a_configured_origin_may_call(open_desk):
    async with open_desk(options=HttpOptions(allowed_origins=("https://app.example",))) as desk:
        origin = {"Origin": "https://app.example"}
        asked = await desk.http.options(
            f"{ETL}/submit",
            headers={
                **origin,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization",
            },
        )
        done = await desk.http.post(f"{ETL}/tasks/1/cancel", headers=origin)

        assert (204, 404) == (asked.status_code, done.status_code)
        assert "https://app.example" == done.headers["access-control-allow-origin"]


async def test_a_body_over_the_cap_is_413_with_and_without_length(open_desk):
    async with open_desk(options=HttpOptions(json_bytes=100)) as desk:
        fits = b'{"s3_key": "' + b"x" * 86 + b'"}'
        assert 100 == len(fits)

        async def chunked(body):
            for at in range(0, len(body), 30):
                yield body[at : at + 30]

        for content, status in (
            (fits, 403),
            (fits + b" ", 413),
            (chunked(fits), 403),
            (chunked(fits + b" "), 413),
        ):
            answer = await desk.http.post(f"{ETL}/submit", content=content, headers=JSON)
            assert status == answer.status_code, answer.text
            if status == 413:
                assert "body_too_large" == answer.json()["code"]
                assert "close" == answer.headers["connection"]


async def test_the_cap_holds_for_every_content_type(open_desk):
    async with open_desk(options=HttpOptions(json_bytes=100)) as desk:

        async def chunked():
            for _ in range(10):
                yield b"x" * 30

        answer = await desk.http.post(f"{ETL}/submit", content=chunked(), headers={"Content-Type": "text/plain"})

        assert (413, "body_too_large") == (answer.status_code, answer.json()["code"])


async def test_an_endless_body_is_stopped_at_the_cap(open_desk, call):
    async with open_desk(options=HttpOptions(json_bytes=1000)) as desk:
        request = call(desk.app, "POST", f"{ETL}/submit", {"content-type": "application/json"})
        for _ in range(100):
            request.send(b" " * 100, more=True)

        assert 413 == await request.status()
        assert request.to_app.qsize() > 80


async def test_a_body_that_stops_arriving_is_given_up(open_desk, call):
    async with open_desk(options=HttpOptions(body_idle_s=0.1)) as desk:
        for path, kind in (("submit", "application/json"), ("upload", "multipart/form-data; boundary=b")):
            request = call(desk.app, "POST", f"{ETL}/{path}?project_id=1", {"content-type": kind})
            request.send(b"--b\r\n" if path == "upload" else b"{", more=True)

            assert 400 == await request.status()


async def test_large_json_is_checked_off_the_loop(desk):
    tables = "/api/v1/projects/1/tables"
    body = b'{"name": "t", "data": "' + b"x" * 600_000 + b'"}'

    assert 201 == (await desk.http.post(tables, content=body, headers=JSON)).status_code
    assert 422 == (await desk.http.post(tables, content=body.replace(b"data", b"name"), headers=JSON)).status_code


async def test_who_leaves_while_sending_json_disturbs_nobody(desk, call):
    request = call(desk.app, "POST", f"{ETL}/submit", {"content-type": "application/json"})
    request.send(b"{", more=True)
    request.leave()

    await asyncio.wait_for(request.task, 30)
    assert 200 == (await desk.http.get("/health")).status_code


async def test_while_shutting_down_new_requests_are_told_to_come_back(desk):
    desk.app.state.drain.begin()

    answer = await desk.http.get(f"{ETL}/tasks")

    assert (503, "shutting_down") == (answer.status_code, answer.json()["code"])
    assert "retry-after" in answer.headers
    assert 200 == (await desk.http.get("/health")).status_code
    assert 503 == (await desk.http.get("/ready")).status_code


async def test_every_answer_carries_its_headers(desk):
    for path in (f"{ETL}/tasks", f"{ETL}/tasks/1", "/nowhere", "/health", "/openapi.json"):
        headers = (await desk.http.get(path)).headers
        assert "nosniff" == headers["x-content-type-options"]
        assert "no-referrer" == headers["referrer-policy"]
        assert headers["x-request-id"]
        if path != "/nowhere":
            assert "no-store" == headers["cache-control"]
            assert headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize(
    ("given", "kept"), [("abc-1.X_y", True), ("", False), ("a b", False), ("x" * 65, False), ("ä", False)]
)
async def test_a_request_id_is_kept_if_it_is_harmless(desk, given, kept):
    answer = await desk.http.get("/health", headers=[(b"X-Request-ID", given.encode())])

    assert kept == (given == answer.headers["x-request-id"])


async def test_openapi_describes_every_route(desk):
    schema = (await desk.http.get("/openapi.json")).json()

    assert "Problem" in schema["components"]["schemas"]
    for path in ("upload", "submit", "upload_and_submit", "tasks", "tasks/batch", "tasks/{task_id}/events"):
        assert f"{ETL}/{path}" in schema["paths"]
    submit = schema["paths"][f"{ETL}/submit"]["post"]["responses"]
    assert "application/problem+json" in submit["422"]["content"]
    assert [] == schema["paths"]["/health"]["get"]["security"]
    assert "HTTPValidationError" not in schema["components"]["schemas"]


@pytest.mark.parametrize(
    ("path", "status"), [(f"{ETL}/tasks?cursor=%00", 400), ("/a%00b", 404), (f"{ETL}/tasks/%00", 422)]
)
async def test_nul_in_an_address_is_the_clients_fault(desk, path, status):
    assert status == (await desk.http.get(path)).status_code


@pytest.mark.parametrize("path", ["/tasks/", "/rules/", "/api/v1/etl/tasks/"])
async def test_a_number_of_five_thousand_digits_in_a_path_is_refused(desk, path):
    answer = await desk.http.get(path + "1" * 5_000)

    assert (400, "request_invalid") == (answer.status_code, answer.json()["code"])


@pytest.mark.parametrize(("site", "count"), [("same-origin", 1), ("none", 1), ("cross-site", 0), ("same-site", 0)])
async def test_a_page_of_another_site_writes_without_the_cookie_of_its_reader(site, count):
    seen = []

    async def app(scope, receive, send):
        seen.extend(value for name, value in scope["headers"] if name == b"cookie")

    gate = Gate(app, options=HttpOptions(), drain=Drain(), is_open=False)
    headers = [(b"host", b"localhost"), (b"cookie", b"a=b"), (b"sec-fetch-site", site.encode())]
    for method in ("GET", "POST"):
        await gate({"type": "http", "method": method, "path": "/", "headers": headers}, None, None)

    assert 1 + count == len(seen)
