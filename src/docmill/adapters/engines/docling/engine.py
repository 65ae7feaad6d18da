"""docling-serve: submit, poll, and fetch the result once."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from docmill.adapters.engines.assembling import Assembly
from docmill.adapters.engines.local import sniff
from docmill.adapters.engines.sending import Sending, prepare
from docmill.core.errors import DocmillError, StageFailed
from docmill.core.parsed import Parsed

from .document import Document

if TYPE_CHECKING:
    from docmill.adapters.providers.client import Answer, ProviderClient
    from docmill.ports import PageReport, Work

log = structlog.get_logger(__name__)

REVISION: Final = 1
PAGES: Final = 500
UPLOAD_S: Final = 1800.0
RESULT_BYTES: Final = 512 * 1024**2
WAITING: Final = frozenset({"pending", "started"})
EXTENSIONS: Final = {
    sniff.PDF: ".pdf",
    sniff.PNG: ".png",
    sniff.JPEG: ".jpg",
    sniff.TIFF: ".tiff",
    sniff.WEBP: ".webp",
    sniff.BMP: ".bmp",
    sniff.DOCX: ".docx",
    sniff.PPTX: ".pptx",
    sniff.XLSX: ".xlsx",
    sniff.HTML: ".html",
    sniff.CSV: ".csv",
    sniff.MARKDOWN: ".md",
}
OURS: Final = {"to_formats": "json", "image_export_mode": "embedded", "target_type": "inbody"}


class DoclingEngine:
    media_types = frozenset(EXTENSIONS)

    def __init__(
        self,
        client: ProviderClient,
        *,
        options: Mapping[str, Any] | None = None,
        max_pages: int | None = None,
        poll_s: float = 2.0,
    ) -> None:
        self.name = client.name
        self.version = f"{REVISION}+" + hashlib.sha256(repr(sorted((options or {}).items())).encode()).hexdigest()[:8]
        self._client = client
        self._options = dict(options or {})
        self._max_pages = max_pages
        self._poll_s = poll_s

    async def start(self, work: Work, report: PageReport) -> Parsed:  # noqa: ARG002 - it tells no pages
        sending = await prepare(work, EXTENSIONS)
        job = await self._submit(sending, work)
        log.info("provider_job", provider=self.name, job=job, task=work.task_id)
        await self._wait(job)
        # It may be fetched once only: what breaks off after that is a new job.
        result = work.folder / "result.json"
        answer = await self._client.download(f"/v1/result/{job}", result, seconds=UPLOAD_S, limit=RESULT_BYTES)
        self._check(answer)
        facts: dict[str, object] = {"provider": "docling-serve", "provider_task_id": job}
        return await asyncio.to_thread(self._read, result, work.folder, sending.media_type, facts)

    async def describe(self) -> str:
        answer = await self._client.ask("GET", "/version")
        if answer.ok and "json" in answer.headers.get("content-type", ""):
            version = answer.table().get("docling-serve")
            if isinstance(version, str):
                return f"docling-serve {version[:20]}"
        health = await self._client.ask("GET", "/health")
        self._check(health)
        if health.table().get("status") != "ok":
            raise StageFailed("provider_refused", provider=self.name, why="what answers there is no docling-serve")
        return "docling-serve"

    async def page_limit(self) -> int:
        return self._max_pages or PAGES

    async def warm(self) -> None:
        """Nothing to do: it is asked when the first document comes."""

    async def close(self) -> None:
        await self._client.close()

    async def _submit(self, sending: Sending, work: Work) -> str:
        form = {**self._options, **OURS}
        if work.options.get("ocr") == "never":
            form["do_ocr"] = "false"
        elif work.options.get("ocr") == "always":
            form["force_ocr"] = "true"
        file = ("files", sending.name, sending.path, sending.media_type)
        answer = await self._client.ask(
            "POST", "/v1/convert/file/async", form=form, file=file, once=True, seconds=UPLOAD_S
        )
        job = self._check(answer).table().get("task_id")
        if not isinstance(job, str) or not job or "/" in job or len(job) > 200:
            raise StageFailed("provider_answer_invalid", provider=self.name, why="it has no task_id")
        return job

    async def _wait(self, job: str) -> None:
        pause = min(0.2, self._poll_s)
        while True:
            told = self._check(await self._client.ask("GET", f"/v1/status/poll/{job}")).table()
            status = told.get("task_status")
            if status in ("success", "partial_success"):
                return
            if status in ("failure", "skipped"):
                raise self._verdict(told.get("failure"))
            if status not in WAITING:
                raise StageFailed("provider_answer_invalid", provider=self.name, why="the task has an unknown state")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, self._poll_s)

    def _verdict(self, failure: object) -> StageFailed:
        told = failure if isinstance(failure, dict) else {}
        category = str(told.get("category") or "its task failed")
        why = category if category.replace("_", "").replace(" ", "").isalnum() and len(category) < 60 else "it failed"
        code = "provider_lost" if told.get("retryable") is True else "provider_failed"
        return StageFailed(code, provider=self.name, why=why)

    def _check(self, answer: Answer) -> Answer:
        if answer.status == 404:
            raise StageFailed("provider_lost", provider=self.name, why="it no longer knows the task")
        if not answer.ok:
            hint = "; is the key right?" if answer.status in (401, 403) else ""
            raise StageFailed("provider_refused", provider=self.name, why=f"it answers {answer.status}{hint}")
        return answer

    def _read(self, result: Path, folder: Path, media_type: str, facts: dict[str, object]) -> Parsed:
        assets = folder / "assets"
        assets.mkdir(exist_ok=True)
        try:
            told = msgspec.json.decode(result.read_bytes())
            if told.get("kind") == "TaskFailureResult" or told.get("status") in ("failure", "skipped"):
                raise self._verdict(told.get("failure"))
            document = Document(told["document"]["json_content"], assets)
            blocks = list(document.blocks())
            title = document.title
        except DocmillError:
            raise
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError) as error:
            raise StageFailed(
                "provider_answer_invalid", provider=self.name, why="its JSON has another shape"
            ) from error
        if told.get("status") == "partial_success":
            facts["warnings"] = ["the provider read the document in part only"]
        assembly = Assembly(self.name, media_type, folder, document.images)
        return assembly.build(blocks, document.page_count, title=title, facts=facts)
