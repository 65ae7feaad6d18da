"""One trace from the submission to the webhook, as a collector gets it."""

import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.elsewhere import Elsewhere
from support.loopback import Loopback
from support.serving import Etl, Service

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SECRET = "the words of the document"


class Collector(Loopback):
    """Takes traces by OTLP over HTTP; whatever else is posted to it is somebody's webhook."""

    def __init__(self) -> None:
        outer = self
        self.spans: list[Any] = []
        self.raw = b""

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/v1/traces":
                    outer.raw += body
                    outer.spans += spans_of(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(Handler)

    def until(self, *names: str) -> dict[str, Any]:
        """The spans of the trace by name, once all of these are there."""
        ends = time.monotonic() + 30
        while True:
            found = {span.name: span for span in list(self.spans) if span.trace_id.hex() in PARENT}
            if found.keys() >= set(names):
                return found
            assert time.monotonic() < ends, sorted(found)
            time.sleep(0.05)


def spans_of(request: ExportTraceServiceRequest) -> Iterator[Any]:
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            yield from scope.spans


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture(scope="module")
def worker() -> Iterator[Elsewhere]:
    with Elsewhere() as running:
        yield running


@pytest.fixture(scope="module")
def etl(collector: Collector, worker: Elsewhere, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etl]:
    settings = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "DOCMILL_WORKERS": worker.settings(),
        "DOCMILL_WEBHOOK_NETWORKS": '["127.0.0.0/8"]',
        "DOCMILL_WEBHOOK_PORTS": f"[{collector.port}]",
    }
    with Service(tmp_path_factory.mktemp("traces") / "data", **settings) as service, service.client() as client:
        yield Etl(client)


def test_a_task_is_one_trace_from_its_caller_to_its_webhook(etl: Etl, collector: Collector, worker: Elsewhere) -> None:
    asked = {"url": f"{collector.url}/told", "events": ["task.completed"]}
    assert 201 == etl.http.post("/api/v1/webhooks", json=asked).status_code
    stored = etl.post("/upload", data={"project_id": "1"}, files={"file": ("a.pdf", b"%PDF-1.7 a")}).json()
    body = {"project_id": 1, "filename": "a.pdf", "s3_key": stored["key"], "engine": "secretary"}
    task = etl.post("/submit", json=body, headers={"traceparent": PARENT}).json()["task_id"]
    worker.next_job().send({"phase": "completed", "data": {"extracted_text": SECRET}})
    assert "completed" == etl.wait(task)["status"]

    found = collector.until("submit", "queue", "stage parse", "stage publish", "callback", "webhook")

    submit = found.pop("submit")
    assert submit.parent_span_id.hex() in PARENT
    assert {submit.span_id} == {span.parent_span_id for span in found.values()}
    facts = {one.key: one.value for one in found["stage parse"].attributes}
    assert (task, "parse") == (facts["docmill.task"].int_value, facts["docmill.stage"].string_value)
    assert SECRET.encode() not in collector.raw
    assert b"a.pdf" not in collector.raw


def test_what_fails_is_marked_with_its_code(etl: Etl, collector: Collector) -> None:
    task = etl.submit("broken.pdf", b"%PDF-1.7 nothing")

    fault = etl.wait(task)
    ends = time.monotonic() + 30
    while not (marked := [span.status.message for span in list(collector.spans) if 2 == span.status.code]):
        assert time.monotonic() < ends
        time.sleep(0.05)

    assert "failed" == fault["status"]
    assert [fault["metadata"]["error_code"]] == marked


def test_without_the_packages_a_setting_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    from docmill import compose, settings
    from docmill.core.errors import Invalid

    monkeypatch.setitem(sys.modules, "docmill.adapters.tracing.otel", None)
    with pytest.raises(Invalid, match=r"docmill\[otel\]"):
        compose.tracer(settings.load(data=tmp_path, otel_endpoint="http://127.0.0.1:9"))
