"""Health, readiness, metrics, logs."""

import io
import json
import logging
from dataclasses import replace

import pytest
import structlog

from docmill.core.access import Principal
from docmill.core.errors import Unavailable
from docmill.core.machine import StageResult
from docmill.core.task import Artifacts
from docmill.http import logs
from docmill.http.auth import AuthOptions
from docmill.http.health import Prober
from docmill.http.limits import HttpOptions
from docmill.http.metrics import Metrics
from docmill.work.keys import PREFIX

ETL = "/api/v1/etl"


async def test_health_says_that_the_process_lives(desk):
    assert {"status": "ok", "version": "1.2.3"} == (await desk.http.get("/health")).json()
    assert 200 == (await desk.http.head("/health")).status_code


async def test_ready_asks_every_part(desk):
    answer = await desk.http.get("/ready")

    assert 200 == answer.status_code
    assert {"database": "ok", "store": "ok", "disk": "ok", "worker": "ok"} == answer.json()["checks"]


async def test_ready_and_metrics_say_how_parsers_are_confined(desk):
    async def told():
        ready, metrics = (await desk.http.get("/ready")).json(), (await desk.http.get("/metrics")).text
        return ready["sandbox"], next(line for line in metrics.splitlines() if line.startswith("docmill_sandbox_level"))

    assert ("unknown", "docmill_sandbox_level -1.0") == await told()

    facts = await desk.ports.engines["local"].confirm_sandbox()

    ranks = {"weak": 0, "partial": 1, "jailed": 2, "full": 3}
    assert (facts["level"], f"docmill_sandbox_level {ranks[facts['level']]}.0") == await told()


class Part:
    """A port of which one method fails."""

    def __init__(self, inner, name, error):
        self._inner, self._name, self._error = inner, name, error

    def __getattr__(self, name):
        if name != self._name:
            return getattr(self._inner, name)

        async def fail(*_, **__):
            if isinstance(self._error, Exception):
                raise self._error
            return self._error

        return fail


@pytest.mark.parametrize(
    ("port", "method", "error", "part", "word"),
    [
        ("ledger", "ping", Unavailable("database_unavailable"), "database", "database_unavailable"),
        ("ledger", "ping", RuntimeError("secret address"), "database", "failed"),
        ("store", "stat", ConnectionError("secret address"), "store", "failed"),
        ("store", "free_bytes", 1000, "disk", "storage_full"),
    ],
)
async def test_ready_says_which_part_fails(open_desk, port, method, error, part, word):
    def broken(ports):
        return replace(ports, **{port: Part(getattr(ports, port), method, error)})

    async with open_desk(alter=broken) as desk:
        answer = await desk.http.get("/ready")

        assert 503 == answer.status_code
        assert word == answer.json()["checks"][part]
        assert "secret" not in answer.text
        assert 200 == (await desk.http.get("/health")).status_code


async def test_ready_notices_a_dead_worker(open_desk):
    async with open_desk(options=HttpOptions(is_working=lambda: False)) as desk:
        assert "worker_lost" == (await desk.http.get("/ready")).json()["checks"]["worker"]


async def test_whoever_asks_all_the_time_gets_the_answer_of_before(desk):
    asked = []

    class Counting(Prober):
        async def _ask(self, ports):
            asked.append(1)
            return {"all": "ok"}

    desk.app.state.prober = Counting(HttpOptions())
    for _ in range(20):
        await desk.http.get("/ready")

    assert [1] == asked


async def test_metrics_count_by_template_never_by_path(desk):
    task_id = await desk.submit()
    for path in (f"{ETL}/tasks/{task_id}", f"{ETL}/tasks/987654", "/secret-path", "/health"):
        await desk.http.get(path)
    await desk.http.request("BREW", "/health")

    text = (await desk.http.get("/metrics")).text

    assert f'docmill_http_requests_total{{method="GET",route="{ETL}/tasks/{{task_id}}",status="2xx"}} 1.0' in text
    assert f'docmill_http_requests_total{{method="GET",route="{ETL}/tasks/{{task_id}}",status="4xx"}} 1.0' in text
    assert 'method="OTHER"' in text
    assert 'docmill_tasks{status="pending"} 1.0' in text
    assert "docmill_upload_bytes_total 14.0" in text
    assert "docmill_event_loop_lag_seconds" in text
    assert "987654" not in text
    assert "secret-path" not in text


async def test_metrics_are_open_to_this_machine_only(open_desk):
    async with open_desk(auth=AuthOptions(require=True)) as desk:
        from hashlib import sha256

        for name, is_operator in (("root", True), ("admin", False), ("user", False)):
            secret = sha256(f"{PREFIX}{name}".encode()).hexdigest()
            who = Principal(name, name, is_admin=name != "user", is_operator=is_operator)
            await desk.ports.keys.add(name, who, digest=secret)

        async def status(**headers):
            return (await desk.http.get("/metrics", headers=headers)).status_code

        assert 200 == await status()
        for spoof in ({"X-Forwarded-For": "127.0.0.1"}, {"Forwarded": "for=1.2.3.4"}, {"Host": "rebound.example"}):
            assert 401 == await status(**spoof)
            assert 403 == await status(**spoof, Authorization=f"Bearer {PREFIX}user")
            assert 403 == await status(**spoof, Authorization=f"Bearer {PREFIX}admin")
            assert 200 == await status(**spoof, Authorization=f"Bearer {PREFIX}root")


async def test_metrics_count_running_tasks_in_every_stage(desk):
    first, second, _ = [await desk.submit() for _ in range(3)]
    await desk.claim(first)
    await desk.claim(second)
    await desk.finish_stage(second, StageResult(artifacts=Artifacts("markdown", "parsed"), engine="local", pages=1))

    text = (await desk.http.get("/metrics")).text

    assert 'docmill_tasks{status="running"} 2.0' in text
    assert 'docmill_tasks{status="pending"} 1.0' in text


async def test_a_scrape_token_opens_metrics_and_nothing_else(open_desk):
    options = HttpOptions(metrics_token="scrape-me", allowed_hosts=("docmill.example",))
    async with open_desk(auth=AuthOptions(require=True), options=options) as desk:
        from_a_pod = {"Host": "10.1.2.3:8321", "X-Forwarded-For": "10.1.2.4"}

        async def status(path, token):
            headers = from_a_pod | {"Authorization": f"Bearer {token}"}
            return (await desk.http.get(path, headers=headers)).status_code

        assert 200 == await status("/metrics", "scrape-me")
        assert 401 == await status("/metrics", "scrape-you")
        assert 401 == await status("/metrics", "")
        assert 401 == (await desk.http.get("/metrics", headers=from_a_pod)).status_code
        assert 400 == await status(f"{ETL}/tasks", "scrape-me")
        named = {"Host": "docmill.example", "Authorization": "Bearer scrape-me"}
        assert 401 == (await desk.http.get(f"{ETL}/tasks", headers=named)).status_code


async def test_probes_may_use_the_address_of_a_pod(open_desk):
    """Kubernetes sends the pod's address as Host, whatever names the service has."""
    async with open_desk(options=HttpOptions(allowed_hosts=("docmill.example",))) as desk:
        for path in ("/health", "/ready"):
            assert 200 == (await desk.http.get(path, headers={"Host": "10.1.2.3:8321"})).status_code


async def test_metrics_survive_a_lost_database(open_desk):
    def broken(ports):
        return replace(ports, ledger=Part(ports.ledger, "counts", Unavailable("database_unavailable")))

    async with open_desk(alter=broken) as desk:
        answer = await desk.http.get("/metrics")

        assert 200 == answer.status_code
        assert "docmill_ledger_up 0.0" in answer.text


def test_two_apps_in_one_process_do_not_share_metrics():
    Metrics("1"), Metrics("2")


# Logs


@pytest.fixture
def lines():
    stream = io.StringIO()
    root = logging.getLogger()
    before = root.handlers[:], root.level
    logs.configure(json=True, level="debug", stream=stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers[:], root.level = before
    structlog.reset_defaults()


CANARIES = [
    ("Authorization", "Bearer canary123456"),
    ("x", "got header Authorization: Bearer canary123456 from"),
    ("x", "key dm_canary123456 used"),
    ("X-Callback-Token", "canary123456"),
    ("x", "{'X-Callback-Token': 'canary123456'}"),
    ("x", "X-API-Key: canary123456"),
    ("signature", "sha256=" + "ca" * 32 + "canary"),
    ("x", "https://s3/b/k?X-Amz-Signature=canary123456&X-Amz-Credential=canary"),
    ("x", "https://az/b?sv=1&sig=canary123456%3D"),
    ("x", "GET /objects/1?token=canary123456&expires=canary"),
    ("x", "postgresql://user:canary123456@db/x"),
    ("database_url", "canary"),
    ("password", "canary"),
    ("jwt_secret", "canary"),
    ("cookie", "canary"),
    ("callback_token", "canary"),
    ("x", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.canary"),
    ("x", "mail to canary@example.org"),
    ("x", {"headers": {"authorization": "canary"}, "list": ["Bearer canary123456"]}),
    ("x", b"canary"),
    ("x", "whsec_canary123456"),
]


def test_no_secret_reaches_the_log(lines):
    for field, value in CANARIES:
        structlog.get_logger("t").info("said", **{field: value})

    assert len(CANARIES) == len(lines())
    for line in lines():
        assert "canary" not in json.dumps(line)


def test_no_secret_reaches_the_log_through_the_standard_library(lines):
    for field, value in CANARIES:
        if not isinstance(value, bytes) and field != "database_url":
            logging.getLogger("t").warning("said %s=%s", field, value, extra={f"x_{field}": value})
            logging.getLogger("t").warning("said %s: %r", field, value)

    for line in lines():
        assert "canary" not in json.dumps(line)


def test_secrets_in_a_trace_are_removed(lines):
    try:
        raise RuntimeError("cannot reach https://u:canary12@host/?sig=canary12\nfake: line")
    except RuntimeError:
        structlog.get_logger("t").exception("failed")

    [line] = lines()
    assert "RuntimeError" in line["exception"]
    assert "canary" not in line["exception"]


def test_a_line_break_cannot_forge_a_line(lines):
    structlog.get_logger("t").info("a\r\nb", path="/x\n{}\u2028\x1b[31m")

    [line] = lines()
    assert r"a\r\nb" == line["event"]
    assert "\x1b" not in line["path"]


def test_ordinary_fields_stay_readable(lines):
    structlog.get_logger("t").info(
        "request", status=200, ms=1.5, path="/api/v1/etl/tasks/5", keys=3, tokens=7, key_id="k"
    )

    [line] = lines()
    assert (200, 1.5, "/api/v1/etl/tasks/5", 3, 7, "k") == tuple(
        line[name] for name in ("status", "ms", "path", "keys", "tokens", "key_id")
    )
    assert "timestamp" in line


async def test_the_access_log_has_ids_and_no_secrets(open_desk, lines):
    async with open_desk(auth=AuthOptions(require=True, jwt_secret="s" * 40)) as desk:
        import time

        import jwt

        raw = jwt.encode({"sub": "u-1", "exp": time.time() + 60}, "s" * 40)
        await desk.http.get(
            f"{ETL}/tasks/5?token=canary123456",
            headers={"Authorization": f"Bearer {raw}", "X-Request-ID": "r-1", "Cookie": "canary"},
        )

    [line] = [line for line in lines() if line["logger"] == "docmill.access"]
    assert ("r-1", "u-1", 404, f"{ETL}/tasks/5", f"{ETL}/tasks/{{task_id}}") == tuple(
        line[name] for name in ("request_id", "user", "status", "path", "route")
    )
    assert "canary" not in json.dumps(lines())
    assert raw not in json.dumps(lines())


def test_the_console_is_for_people(capsys):
    stream = io.StringIO()
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        logs.configure(json=False, stream=stream)
        try:
            raise ValueError("x\n2026-01-01 [info] forged")
        except ValueError:
            structlog.get_logger("t").exception("broke", token="canary")
    finally:
        root.handlers[:], root.level = before
        structlog.reset_defaults()

    text = stream.getvalue()
    assert "canary" not in text
    assert not any(line.startswith("2026-01-01 [info] forged") for line in text.splitlines())
