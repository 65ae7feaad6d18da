"""A service with 2,500 tasks, a worker that never answers, a receiver of webhooks, and Debian's Chromium."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from docmill import compose
from docmill.core import machine
from docmill.core.access import LOCAL
from docmill.core.task import Wishes
from docmill.ports import Ledger, NewTask
from docmill.settings import Settings
from support.model_peer import ModelPeer
from support.receiver import Receiver
from support.servers.chromium import QUIET_FLAGS
from support.servers.debian import ProgramMissing, ensure_chinese_font
from support.serving import Etl, Service

SAMPLES = Path(__file__).parents[2] / "samples"
PATIENCE_MS = 20_000
RULE = {
    "name": "Invoices",
    "description": "Number, date, total and lines of an invoice",
    "json_schema": {
        "type": "object",
        "properties": {
            "number": {"type": "string", "title": "Invoice number"},
            "date": {"type": "string", "format": "date", "title": "Date"},
            "total": {"type": "number", "title": "Total", "description": "With tax"},
            "kind": {"enum": ["invoice", "credit note"], "title": "Kind"},
        },
        "required": ["number", "total"],
    },
}


class Silent(BaseHTTPRequestHandler):
    """An external worker that takes every job and never reports."""

    def do_GET(self) -> None:
        self._answer(200)

    def do_POST(self) -> None:
        if length := int(self.headers.get("Content-Length", 0)):
            self.rfile.read(length)
        else:
            while size := int(self.rfile.readline(), 16):
                self.rfile.read(size + 2)
        self._answer(202)

    def _answer(self, status: int) -> None:
        body = b'{"status": "accepted", "process": {"id": "p-1"}}'
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def wait_for(look: Callable[[], Any], told: Callable[[], Any], seconds: float = 30) -> Any:
    ends = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < ends, told()
        time.sleep(0.05)
    return found


OLD_TASKS = 2_500
OLD_FAILURES = 60
"""More than a page shows."""
AT_ONCE = 250


async def add_old_tasks(data: Path) -> None:
    """Tasks that ended before the service starts, written straight into its ledger."""
    async with compose.opened(Settings(data=data)) as ports:
        for start in range(0, OLD_TASKS, AT_ONCE):
            await asyncio.gather(*(add_old_task(ports.ledger, n) for n in range(start, start + AT_ONCE)))


async def add_old_task(ledger: Ledger, number: int) -> None:
    name = "Oldest Contract.pdf" if number == 0 else f"scan-{number:04}.pdf"
    fault = "the disk was full" if 1 <= number <= OLD_FAILURES else None
    new = NewTask(LOCAL.tenant, LOCAL.user, 1, name, "", 1, Wishes(), source_size=1000 + number, upload_fault=fault)
    task, _ = await ledger.open(new, attempt_id=uuid4())
    if not task.is_final:
        await ledger.decide(task.id, lambda one, attempt: machine.cancel(one, attempt, force=False))


@dataclass
class Stage:
    url: str
    etl: Etl
    document: str
    office: str
    completed: int
    failed: int
    held: int
    receiver: Receiver


FOUND = {"number": "2026-0147", "date": "2026-03-02", "total": 333.0, "kind": "credit note"}
"""What the model says of an invoice; the kind it made up."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Silent) as worker, Receiver() as receiver, ModelPeer() as model:
        thread = threading.Thread(target=worker.serve_forever, daemon=True)
        thread.start()
        workers = {"quiet": {"dialect": "secretary", "url": f"http://127.0.0.1:{worker.server_port}/pdf/process"}}
        data = tmp_path_factory.mktemp("console") / "data"
        model.answers = [FOUND]
        asyncio.run(add_old_tasks(data))
        settings = {
            "DOCMILL_WORKERS": json.dumps(workers),
            "DOCMILL_LLM": model.settings(),
            "DOCMILL_WEBHOOK_NETWORKS": '["127.0.0.1/32"]',
            "DOCMILL_WEBHOOK_PORTS": f"[{receiver.url.rsplit(':', 1)[1]}]",
        }
        with Service(data, **settings) as service, service.client() as client:
            etl = Etl(client)
            hook = {"url": f"{receiver.url}/docmill", "description": "Bookkeeping"}
            assert 201 == client.post("/api/v1/webhooks", json=hook).status_code
            etl.post("/rules", json=RULE)
            done = etl.done("report.en.pdf", (SAMPLES / "report.en.pdf").read_bytes())
            office = etl.done("notes.docx", (SAMPLES / "notes.docx").read_bytes())["metadata"]["document_id"]
            etl.done("invoice.en.pdf", (SAMPLES / "invoice.en.pdf").read_bytes())
            held = etl.submit("contract.pdf", b"%PDF-1.7 held elsewhere", engine="quiet")
            broken = [etl.submit(f"broken-{n}.pdf", b"%PDF-1.7 not really") for n in (1, 2)]
            failed = etl.wait(broken[-1])
            etl.wait(broken[0])
            etl.wait(held, until=("mineru_parsing",))
            job_id = wait_for(lambda: etl.task(held)["metadata"]["job_id"], lambda: etl.events(held))
            for token in ("wrong", "worse"):
                client.post(
                    f"/api/external/jobs/{job_id}",
                    json={"phase": "progress", "progress": 10},
                    headers={"Authorization": f"Bearer {token}"},
                )
            document = done["metadata"]["document_id"]
            yield Stage(service.url, etl, document, office, done["task_id"], failed["task_id"], held, receiver)
        worker.shutdown()
        thread.join(60)


@pytest.fixture(scope="module")
def browser(chromium: Path) -> Iterator[Browser]:
    with suppress(ProgramMissing):  # where nothing can be installed, there may be a font of another name
        ensure_chinese_font()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(QUIET_FLAGS))
        yield browser
        browser.close()


OpenPage = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser, stage: Stage) -> Iterator[OpenPage]:
    """A page whose scripts must not fail and that asks nobody but the service."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def opened(language: str = "en", theme: str = "light", *, script: bool = True) -> Page:
        context = browser.new_context(
            viewport={"width": 1280, "height": 800}, locale=language, java_script_enabled=script, base_url=stage.url
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        cookies = {"docmill_theme": theme, "docmill_language": language}
        context.add_cookies([{"name": name, "value": value, "url": stage.url} for name, value in cookies.items()])
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if "Content Security" in said.text else None)
        page.on("request", lambda asked: asked.url.startswith(stage.url) or complaints.append(asked.url))
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [] == complaints
