"""Prometheus metrics in a registry of our own. Labels come from short, fixed lists: nobody can fill them up."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from hmac import compare_digest
from itertools import accumulate
from typing import Any

import structlog
from fastapi import APIRouter
from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from docmill.core.errors import DocmillError
from docmill.core.machine import RUNNING_WIRE_STATUSES
from docmill.core.task import Status
from docmill.http.bound import Bound
from docmill.http.caller import caller, is_local_peer, operator
from docmill.http.errors import problems
from docmill.ports import Ports
from docmill.work.sandbox import RANKS, sandbox_level

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
LAG_EVERY_S = 0.5
MAX_LAG_S = 1.0
"""A longer stall of the event loop is logged."""
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

log = structlog.get_logger("docmill.http")
router = APIRouter(tags=["operations"])


@router.get(
    "/metrics",
    response_class=Response,
    summary="Prometheus metrics",
    responses=problems(403)
    | {200: {"description": "The metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def get_metrics(request: Request, ports: Bound) -> Response:
    """Metrics in the text format of Prometheus: for operators, `metrics_token`, or callers on the same machine."""
    if not may_scrape(request, request.app.state.options.metrics_token):
        await operator(await caller(request))
    metrics: Metrics = request.app.state.metrics
    return Response(await metrics.text(ports), media_type=CONTENT_TYPE_PLAIN_0_0_4)


def may_scrape(request: Request, token: str | None) -> bool:
    """Whether the request comes from this machine, or brings the token for scrapers."""
    if is_local_peer(request):
        return True
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return bool(token) and scheme.lower() == "bearer" and compare_digest(given.strip().encode(), str(token).encode())


def count_by_status(counts: Mapping[str, int]) -> dict[Status, int]:
    """The ledger counts under the names of the API, which has two for a running task."""
    found = {status: counts.get(status.value, 0) for status in Status}
    found[Status.RUNNING] = sum(counts.get(name, 0) for name in RUNNING_WIRE_STATUSES)
    return found


class Tally(Collector):
    """Requests, counted in plain numbers: only the event loop counts, so no lock is needed. Read when somebody asks."""

    def __init__(self) -> None:
        self.running = 0
        self._requests: dict[tuple[str, str, int], int] = {}
        self._seconds: dict[str, tuple[list[int], list[float]]] = {}

    def count(self, route: str, method: str, hundred: int, seconds: float) -> None:
        key = (route, method, hundred)
        self._requests[key] = self._requests.get(key, 0) + 1
        found = self._seconds.get(route)
        if found is None:
            found = self._seconds[route] = [0] * (len(BUCKETS) + 1), [0.0]
        found[0][bisect_left(BUCKETS, seconds)] += 1
        found[1][0] += seconds

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("docmill_http_requests", "Requests", labels=("route", "method", "status"))
        for (route, method, hundred), number in self._requests.items():
            requests.add_metric((route, method, f"{hundred}xx"), number)
        yield requests
        times = HistogramMetricFamily("docmill_http_request_seconds", "Time to answer", labels=("route",))
        for route, (counts, (total,)) in self._seconds.items():
            bounds = [*map(str, BUCKETS), "+Inf"]
            times.add_metric((route,), list(zip(bounds, accumulate(counts), strict=True)), total)
        yield times
        yield GaugeMetricFamily("docmill_http_requests_running", "Requests under way", self.running)


class Metrics:
    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        self._tally = Tally()
        self.registry.register(self._tally)
        self._uploads = Counter("docmill_upload_bytes", "Bytes of stored files", registry=self.registry)
        self._tasks = Gauge("docmill_tasks", "Tasks by status", ("status",), registry=self.registry)
        self._ledger_up = Gauge("docmill_ledger_up", "1 if the database answers", registry=self.registry)
        self._lag = Gauge("docmill_event_loop_lag_seconds", "How late the loop is", registry=self.registry)
        self._sandbox = Gauge(
            "docmill_sandbox_level", "Parsers: 3 full, 2 jailed, 1 partial, 0 weak, -1 unknown", registry=self.registry
        )
        self._max_lag = Gauge(
            "docmill_event_loop_lag_max_seconds",
            "Longest stall since the last scrape",
            registry=self.registry,
        )
        self._max_lag_s = 0.0
        Gauge("docmill_build_info", "1", ("version",), registry=self.registry).labels(version).set(1)

    def began(self) -> None:
        self._tally.running += 1

    def ended(self, route: str, method: str, status: int, seconds: float) -> None:
        self._tally.running -= 1
        self._tally.count(route, method if method in METHODS else "OTHER", status // 100, seconds)

    def uploaded(self, size: int) -> None:
        self._uploads.inc(size)

    def observe_worker(self, *, is_alive: Callable[[], bool], count_running: Callable[[], int]) -> None:
        """Also show the worker of this process."""
        up = Gauge("docmill_worker_up", "1 if the worker of this process works", registry=self.registry)
        up.set_function(lambda: float(is_alive()))
        running = Gauge("docmill_worker_attempts_running", "Attempts in this process", registry=self.registry)
        running.set_function(count_running)

    async def text(self, ports: Ports) -> bytes:
        self._sandbox.set(RANKS[sandbox_level(ports)])
        try:
            async with asyncio.timeout(5):
                counts = await ports.ledger.counts()
        except (DocmillError, OSError, TimeoutError) as error:
            log.warning("metrics_incomplete", error=type(error).__name__)
            self._ledger_up.set(0)
        else:
            self._ledger_up.set(1)
            for status, number in count_by_status(counts).items():
                self._tasks.labels(status.value).set(number)
        self._max_lag.set(self._max_lag_s)
        self._max_lag_s = 0.0
        return generate_latest(self.registry)

    async def watch_loop(self) -> None:
        """Measures, for as long as it runs, how late the event loop is."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            lag_s = max(0.0, loop.time() - due)
            self._lag.set(lag_s)
            self._max_lag_s = max(self._max_lag_s, lag_s)
            if lag_s > MAX_LAG_S:
                log.warning("event_loop_stalled", seconds=round(lag_s, 3))


def route_of(scope: Any) -> str:
    """The template of the matched route: `/api/v1/etl/tasks/{task_id}`, never the path itself."""
    context = scope.get("fastapi", {}).get("effective_route_context") or scope.get("route")
    return getattr(context, "path", None) or "other"
