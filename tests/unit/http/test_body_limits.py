"""On every route: size limit, authentication, body, parsing. JSON is measured before it is parsed."""

import asyncio
import json
import random
import re
import time
from typing import Any

import pytest
from fastapi import APIRouter
from fastapi.routing import iter_route_contexts

from docmill.core.access import Principal
from docmill.core.body_limits import MAX_JSON_DEPTH, MAX_JSON_NODES, BodyLimits, accept_body, limits_of
from docmill.core.errors import Invalid
from docmill.http import json_meter
from docmill.http.auth import AuthOptions
from docmill.http.json_meter import JsonMeter
from docmill.work import keys
from support.measuring import costs_at_most

ETL = "/api/v1/etl"
MiB = 1024**2
PARAMETERS = {
    "kind": "document",
    "document_id": "6f1b1d3e-3f57-4b5c-9c3f-0d4a5a0b7a11",
    "job_id": "6f1b1d3e-3f57-4b5c-9c3f-0d4a5a0b7a11",
}


def routes_with_bodies(app: Any) -> list[tuple[str, str, BodyLimits]]:
    found = []
    for route in iter_route_contexts(app.router.routes):
        path = re.sub(r"{(\w+)[^}]*}", lambda match: PARAMETERS.get(match[1], "1"), route.path or "")
        methods = (route.methods or set()) - {"GET", "HEAD", "OPTIONS"}
        found += [(method, path, limits_of(route.endpoint)) for method in methods]
    return found


async def test_no_route_reads_the_body_of_a_stranger(open_desk, call):
    """The request is answered although not one byte of its body is ever sent."""
    async with open_desk(auth=AuthOptions(require=True)) as desk:
        routes = routes_with_bodies(desk.app)
        assert len(routes) > 25
        for method, path, limits in routes:
            for kind in ("application/json", "multipart/form-data; boundary=b"):
                headers = {"content-type": kind, "content-length": "1000"}
                request = call(desk.app, method, path, headers)
                status = await request.status()
                assert status in ((403, 404) if limits.is_public else (401,)), (method, path, status)
                request.task.cancel()


async def test_only_signed_links_are_public(desk):
    """A new route needs a credential unless it says otherwise."""
    public = {(method, path) for method, path, limits in routes_with_bodies(desk.app) if limits.is_public}

    assert {("PUT", "/api/v1/objects/1"), ("PUT", "/api/v4/uploads/1")} == public


async def test_the_size_limit_comes_before_the_credential(open_desk, call):
    async with open_desk(auth=AuthOptions(require=True)) as desk:
        headers = {"content-type": "application/json", "content-length": str(200 * MiB)}
        for path in (f"{ETL}/submit", "/v1/convert/source", "/api/v1/projects/1/tables"):
            request = call(desk.app, "POST", path, headers)
            assert 413 == await request.status(), path
            request.task.cancel()


@pytest.mark.parametrize("path", [f"{ETL}/submit", "/v1/convert/source", "/api/v1/projects/1/tables"])
async def test_json_with_too_many_values_is_refused_before_it_is_parsed(open_desk, call, path, monkeypatch):
    parsed: list[int] = []
    monkeypatch.setattr("docmill.http.limits.check_json", lambda body: parsed.append(len(body)))
    async with open_desk(auth=AuthOptions(require=True)) as desk:
        _, secret = await keys.create(desk.ports, "test", Principal("alice", "acme"))
        request = call(desk.app, "POST", path, {"content-type": "application/json", "x-api-key": secret})
        request.send(b"[", more=True)
        for _ in range(60):
            request.send(b"[]," * 20_000, more=True)

        assert 422 == await request.status()
        assert request.to_app.qsize() > 5, "refused while it arrives"
        request.task.cancel()
    assert [] == parsed


async def test_a_document_with_too_many_values_is_refused_before_it_is_parsed(desk, call):
    for path in ("/api/v1/documents", "/api/v1/assets", "/api/v1/contracts/document/check"):
        request = call(desk.app, "POST", path, {"content-type": "application/json"})
        for _ in range(100):
            request.send(b"[]," * 20_000, more=True)
        assert 422 == await request.status(), path
        assert request.to_app.qsize() > 50
        request.task.cancel()


@pytest.mark.parametrize(("depth", "status"), [(MAX_JSON_DEPTH, 201), (MAX_JSON_DEPTH + 1, 422), (100_000, 422)])
async def test_json_depth(desk, depth, status):
    deep = b"[" * (depth - 1) + b"]" * (depth - 1)
    body = b'{"name": "deep", "data": ' + deep + b"}"

    answer = await desk.http.post(
        "/api/v1/projects/1/tables", content=body, headers={"Content-Type": "application/json"}
    )

    assert status == answer.status_code, answer.text


async def test_a_large_table_does_not_hold_the_loop(desk):
    """20 MB of JSON are parsed and validated once, in a thread."""
    body = json.dumps({"name": "t", "data": ["x" * 1000] * 15_000}).encode()
    worst, stop = 0.0, asyncio.Event()

    async def watch() -> None:
        nonlocal worst
        while not stop.is_set():
            before = time.thread_time()
            await asyncio.sleep(0.001)
            worst = max(worst, time.thread_time() - before)

    watching = asyncio.ensure_future(watch())
    answer = await desk.http.post(
        "/api/v1/projects/1/tables", content=body, headers={"Content-Type": "application/json"}
    )
    stop.set()
    await watching

    assert 201 == answer.status_code
    assert worst < 0.25


async def test_openapi_still_describes_bodies_that_routes_read_themselves(desk):
    schema = (await desk.http.get("/openapi.json")).json()
    text = json.dumps(schema)

    body = schema["paths"]["/v1/convert/source"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"$ref": "#/components/schemas/ConvertSources"} == body
    assert {"options", "sources", "target"} == set(schema["components"]["schemas"]["ConvertSources"]["properties"])
    for name in set(re.findall(r"#/components/schemas/(\w+)", text)):
        assert name in schema["components"]["schemas"], name
    assert "$defs" not in text


# The meter


def value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(7 if depth < 6 else 4)
    if kind == 0:
        return rng.choice(['a"b\\', "\\", '"', "x[{,:", '\\\\"', "ü", "]}"])
    if kind < 4:
        return rng.choice([None, True, 1.5, -2])
    if kind < 6:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice('abc"\\[') + str(n): value(rng, depth + 1) for n in range(rng.randrange(4))}


def depth_of(one: Any) -> int:
    children = one.values() if isinstance(one, dict) else one if isinstance(one, list) else None
    return 0 if children is None else 1 + max(map(depth_of, children), default=0)


def count_of(one: Any) -> int:
    if isinstance(one, dict):
        return 1 + sum(1 + count_of(child) for child in one.values())
    return 1 + sum(map(count_of, one)) if isinstance(one, list) else 1


def measure(text: bytes, step: int, **limits: Any) -> JsonMeter:
    meter = JsonMeter(**limits)
    for at in range(0, len(text), step):
        meter.feed(text[at : at + step])
    return meter


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_the_meter_agrees_with_a_parser_wherever_the_text_is_cut(step):
    rng = random.Random(7)
    for _ in range(300):
        one = value(rng)
        text, depth, count = json.dumps(one).encode(), depth_of(one), count_of(one)
        meter = measure(text, step, max_depth=depth)
        assert meter.depth == 0
        assert count <= meter.nodes <= 2 * count + 1
        if depth:
            with pytest.raises(Invalid, match="nested deeper"):
                measure(text, step, max_depth=depth - 1)


@pytest.mark.parametrize("unit", [b"[],", b'"",', b'"', b'\\"', b"\\", b"{}", b'{"":', b"1,"])
def test_the_meter_is_linear_and_quick(unit):
    meter = JsonMeter(max_nodes=10**9, max_depth=10**9)
    chunk = unit * (65_536 // len(unit))
    with costs_at_most(0.5):  # 1 MB
        for _ in range(16):
            meter.feed(chunk)


def test_the_limits_are_those_that_the_documentation_names():
    assert (64, 200_000) == (MAX_JSON_DEPTH, MAX_JSON_NODES)
    assert json_meter.__doc__


async def test_a_form_of_the_console_reads_no_json_of_a_stranger(open_desk, call):
    """Its route is public, because it redirects strangers to the sign-in; it must not parse their bodies before."""
    async with open_desk(auth=AuthOptions(require=True)) as desk:
        public = APIRouter()

        @public.post("/form")
        @accept_body(max_bytes=1000, is_public=True)
        async def post_form() -> dict[str, str]:
            return {}

        desk.app.include_router(public)
        request = call(desk.app, "POST", "/form", {"content-type": "application/json", "content-length": "900"})

        assert 200 == await request.status(), "answered, although not one byte of the body was sent"
        request.task.cancel()
