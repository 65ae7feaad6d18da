"""Metrics say what is the case, and the alerts on them fire when somebody has to act, and only then."""

import os
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.servers.process import free_ports
from support.servers.promtool import MINUTES, check_alerts
from support.serving import Etl, Fleet, Hand, Service, Services
from support.waiting import read_line

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yaml"
WAIT_S = 30.0
DOCUMENTS = 12

Values = dict[str, float]
"""Series, written as in a query, to value."""


@pytest.fixture
def services(postgres: Any, redis_server: Any, s3: Any) -> Services:
    return Services(postgres, redis_server, s3)


def scrape(client: httpx2.Client) -> Values:
    answer = client.get("/metrics")
    assert 200 == answer.status_code, answer.text
    return {
        _series(sample.name, sample.labels): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if sample.name.startswith("docmill_")
    }


def _series(name: str, labels: dict[str, str]) -> str:
    inside = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{inside}}}" if inside else name


def tasks(status: str) -> str:
    return f'docmill_tasks{{status="{status}"}}'


def lasting(values: Values) -> dict[str, str]:
    """The values as they were scraped, for an hour."""
    return {name: f"{value:g}+0x{MINUTES}" for name, value in values.items()}


def scrape_until(client: httpx2.Client, holds: Callable[[Values], bool]) -> Values:
    ends = time.monotonic() + WAIT_S
    while not holds(values := scrape(client)):
        assert time.monotonic() < ends, {name: n for name, n in values.items() if "tasks" in name}
        time.sleep(0.02)
    return values


def submit_many(client: httpx2.Client) -> None:
    for n in range(DOCUMENTS):
        Etl(client).submit(f"{n}.txt", f"Document {n}.\n".encode() * 20)


def test_a_backlog_that_is_worked_off_fires_no_alert(tmp_path: Path) -> None:
    with Service(tmp_path / "data", "--jobs", "1") as service, service.client() as client:
        submit_many(client)
        values = scrape_until(client, lambda now: bool(now[tasks("pending")] and now[tasks("running")]))
        done = scrape_until(client, lambda now: DOCUMENTS == now[tasks("completed")])

    assert 1 == values["docmill_worker_up"]
    assert 0 == done[tasks("running")] == done[tasks("pending")]
    check_alerts(RULES, lasting(values), set(), tmp_path)
    check_alerts(RULES, lasting(done), set(), tmp_path)


def test_a_backlog_without_workers_pages(tmp_path: Path, services: Services) -> None:
    with ExitStack() as stack:
        environment = services.open(stack) | {"DOCMILL_METRICS_TOKEN": "scrape-me"}
        service = stack.enter_context(Fleet(tmp_path / "api", workers=0, **environment))
        client = stack.enter_context(service.client())
        submit_many(client)
        alone = scrape(client)
        worker = Hand(tmp_path / "worker", ("--jobs", "1", "--metrics-port", "0"), environment, service.log).start()
        try:
            assert worker._process
            line = read_line(worker._process, 60)
            address = line.rpartition("metrics at ")[2].strip().removesuffix("/metrics")
            of_worker = stack.enter_context(httpx2.Client(base_url=address, trust_env=False))
            busy = scrape_until(of_worker, lambda now: bool(now[tasks("running")]))
            health = of_worker.get("/health")
            foreign = {"Host": "10.1.2.3:9100", "X-Forwarded-For": "10.1.2.4"}
            answers = [
                of_worker.get("/metrics", headers=foreign | more).status_code
                for more in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer scrape-me"})
            ]
        finally:
            worker.stop()

    assert (DOCUMENTS, 0) == (alone[tasks("pending")], alone[tasks("running")])
    assert 1 == busy["docmill_worker_up"]
    assert (200, "ok") == (health.status_code, health.json()["status"])
    assert [401, 401, 200] == answers
    check_alerts(RULES, lasting(alone), {"DocmillNothingRuns"}, tmp_path)
    check_alerts(RULES, lasting(busy), set(), tmp_path)


@pytest.mark.parametrize(
    ("alert", "changed"),
    [
        ("DocmillDatabaseAway", {"docmill_ledger_up": "0+0x60"}),
        ("DocmillBacklogGrows", {tasks("pending"): "0+10x60"}),
        ("DocmillServerErrors", {'docmill_http_requests_total{status="5xx"}': "0+5x60"}),
        ("DocmillTasksFail", {tasks("failed"): "0+2x60"}),
        ("DocmillLoopLate", {"docmill_event_loop_lag_seconds": "0.8+0x60"}),
    ],
)
def test_each_alert_fires_for_its_own_reason_only(alert: str, changed: dict[str, str], tmp_path: Path) -> None:
    healthy = {
        "docmill_ledger_up": "1+0x60",
        "docmill_event_loop_lag_seconds": "0.01+0x60",
        tasks("pending"): "3+0x60",
        tasks("running"): "2+0x60",
        tasks("completed"): "0+1x60",
        tasks("failed"): "1+0x60",
        'docmill_http_requests_total{status="2xx"}': "0+100x60",
        'docmill_http_requests_total{status="5xx"}': "0+0x60",
    }
    check_alerts(RULES, healthy, set(), tmp_path)
    check_alerts(RULES, healthy | changed, {alert}, tmp_path)


def test_a_worker_names_the_address_that_is_taken(tmp_path: Path, services: Services) -> None:
    [port] = free_ports(1)
    with ExitStack() as stack:
        taken = stack.enter_context(socket.create_server(("127.0.0.1", port)))
        environment = os.environ | services.open(stack)
        done = subprocess.run(
            [*Service.program, "worker", "--data", str(tmp_path), "--metrics-port", str(port)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert taken

    assert 2 == done.returncode
    assert f"address_taken: Something else serves on 127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr
