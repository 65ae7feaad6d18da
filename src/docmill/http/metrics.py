"""Prometheus metrics in a registry of our own. Labels come from short, fixed lists: nobody can fill them up."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog
from fastapi import APIRouter
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request
from starlette.responses import Response

from docmill.core.errors import DocmillError
from docmill.core.task import Status
from docmill.http.bound import Bound
from docmill.http.caller import admin, caller, is_local_peer
from docmill.ports import Ports

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
LAG_EVERY_S = 0.5
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

log = structlog.get_logger("docmill.http")
router = APIRouter(tags=["operations"])


@router.get("/metrics", response_class=Response, summary="Prometheus metrics")
async def get_metrics(request: Request, ports: Bound) -> Response:
    if not is_local_peer(request):
        await admin(await caller(request))
    metrics: Metrics = request.app.state.metrics
    return Response(await metrics.text(ports), media_type=CONTENT_TYPE_PLAIN_0_0_4)


class Metrics:
    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        labels = ("route", "method", "status")
        self._requests = Counter("docmill_http_requests", "Requests", labels, registry=self.registry)
        self._seconds = Histogram(
            "docmill_http_request_seconds", "Time to answer", ("route",), registry=self.registry, buckets=BUCKETS
        )
        self._running = Gauge("docmill_http_requests_running", "Requests under way", registry=self.registry)
        self._uploads = Counter("docmill_upload_bytes", "Bytes of stored files", registry=self.registry)
        self._tasks = Gauge("docmill_tasks", "Tasks by status", ("status",), registry=self.registry)
        self._ledger_up = Gauge("docmill_ledger_up", "1 if the database answers", registry=self.registry)
        self._lag = Gauge("docmill_event_loop_lag_seconds", "How late the loop is", registry=self.registry)
        Gauge("docmill_build_info", "1", ("version",), registry=self.registry).labels(version).set(1)

    def began(self) -> None:
        self._running.inc()

    def ended(self, route: str, method: str, status: int, seconds: float) -> None:
        self._running.dec()
        known = method if method in METHODS else "OTHER"
        self._requests.labels(route, known, f"{status // 100}xx").inc()
        self._seconds.labels(route).observe(seconds)

    def uploaded(self, size: int) -> None:
        self._uploads.inc(size)

    async def text(self, ports: Ports) -> bytes:
        try:
            async with asyncio.timeout(5):
                counts = await ports.ledger.counts()
        except (DocmillError, OSError, TimeoutError) as error:
            log.warning("metrics_incomplete", error=type(error).__name__)
            self._ledger_up.set(0)
        else:
            self._ledger_up.set(1)
            for status in Status:
                self._tasks.labels(status.value).set(counts.get(status.value, 0))
        return generate_latest(self.registry)

    async def watch_loop(self) -> None:
        """Measures, for as long as it runs, how late the event loop is."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            self._lag.set(max(0.0, loop.time() - due))


def route_of(scope: Any) -> str:
    """The template of the matched route: `/api/v1/etl/tasks/{task_id}`, never the path itself."""
    context = scope.get("fastapi", {}).get("effective_route_context") or scope.get("route")
    return getattr(context, "path", None) or "other"
