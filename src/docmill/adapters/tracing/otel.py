"""Traces by OpenTelemetry, sent to a collector by OTLP over HTTP, in batches and beside the work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from docmill.core.errors import DocmillError

_propagator = TraceContextTextMapPropagator()


class OtelTracer:
    is_on = True

    def __init__(self, endpoint: str, version: str, *, exporter: SpanExporter | None = None) -> None:
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": "docmill", "service.version": version}), shutdown_on_exit=False
        )
        target = exporter or OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=5)
        self._provider.add_span_processor(BatchSpanProcessor(target, schedule_delay_millis=1000))
        self._tracer = self._provider.get_tracer("docmill", version)

    @contextmanager
    def span(self, name: str, *, parent: str = "", **facts: str | int) -> Iterator[str]:
        attributes = {f"docmill.{key}": value for key, value in facts.items()}
        with self._tracer.start_as_current_span(
            name, _context(parent), attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield _carried()
            except DocmillError as error:
                # The code says enough: the sentence may quote the document.
                span.set_status(StatusCode.ERROR, error.code)
                raise
            except Exception as error:
                span.set_status(StatusCode.ERROR, type(error).__name__)
                raise

    def record(self, name: str, *, parent: str, began_ms: int, ended_ms: int, **facts: str | int) -> None:
        attributes = {f"docmill.{key}": value for key, value in facts.items()}
        span = self._tracer.start_span(name, _context(parent), attributes=attributes, start_time=began_ms * 1_000_000)
        span.end(max(began_ms, ended_ms) * 1_000_000)

    async def close(self) -> None:
        """What has not been sent yet is sent, if the collector is there."""
        await asyncio.to_thread(self._provider.shutdown)


def _context(parent: str) -> Context | None:
    """Without a parent: whatever runs right now."""
    return _propagator.extract({"traceparent": parent}) if parent else None


def _carried() -> str:
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return carrier.get("traceparent", "")
