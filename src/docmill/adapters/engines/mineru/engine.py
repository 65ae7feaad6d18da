"""The engine: probe, send, wait, fetch, read."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import structlog

from docmill.adapters.engines.local import sniff
from docmill.adapters.engines.sending import in_any_case, prepare
from docmill.core.errors import DocmillError, StageFailed
from docmill.core.parsed import Parsed

from .cloud import Cloud
from .contract import Contract, Sight
from .results import Origin, read
from .three import Three
from .today import Today

if TYPE_CHECKING:
    from docmill.adapters.providers.client import ProviderClient
    from docmill.ports import PageReport, Work

log = structlog.get_logger(__name__)

REVISION: Final = 1
CANCEL_S: Final = 5.0
EXTENSIONS: Final = {
    sniff.PDF: ".pdf",
    sniff.PNG: ".png",
    sniff.JPEG: ".jpg",
    sniff.WEBP: ".webp",
    sniff.GIF: ".gif",
    sniff.BMP: ".bmp",
    sniff.TIFF: ".tiff",
    sniff.DOCX: ".docx",
    sniff.PPTX: ".pptx",
    sniff.XLSX: ".xlsx",
    sniff.HTML: ".html",
}
OCR_MODES: Final = {"always": "ocr", "never": "txt"}


class MinerUEngine:
    """One MinerU, wherever it is and whatever it speaks."""

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
        self._contract: Contract | None = None
        self._probing = asyncio.Lock()

    async def start(self, work: Work, report: PageReport) -> Parsed:
        sending = await prepare(work, EXTENSIONS, self._options_for(work))
        contract = await self.contract()
        if sending.size > contract.max_bytes:
            limit = contract.max_bytes // 1024**2
            raise StageFailed("provider_refused", provider=self.name, why=f"it takes files up to {limit} MB")
        try:
            job = await contract.submit(sending)
        except StageFailed as error:
            if error.code in ("provider_lost", "provider_answer_invalid", "provider_refused"):
                self._contract = None  # another server may stand there by now
            raise
        log.info("provider_job", provider=self.name, job=job, task=work.task_id)
        try:
            sight = await self._wait(contract, job, report)
            archive = work.folder / "result.zip"
            await contract.fetch(job, sight, archive)
        except asyncio.CancelledError:
            await in_any_case(self._call_off(contract, job))
            raise
        except StageFailed as error:
            if error.code == "provider_lost":
                self._contract = None
            raise
        facts: dict[str, object] = {"provider": contract.label, "provider_task_id": job}
        origin = Origin(self.name, self.name, sending.media_type, facts)
        return await asyncio.to_thread(read, archive, work.folder, origin)

    async def contract(self) -> Contract:
        """What the provider speaks: asked once, and again when it seems to have changed."""
        async with self._probing:
            if self._contract is None:
                self._contract = await self._probe()
            return self._contract

    async def describe(self) -> str:
        return (await self.contract()).label

    async def page_limit(self) -> int:
        """Pages that it takes in one go."""
        known = (await self.contract()).max_pages
        return min(self._max_pages, known) if self._max_pages else known

    async def warm(self) -> None:
        """Nothing to do: it is asked when the first document comes."""

    async def close(self) -> None:
        await self._client.close()

    async def _probe(self) -> Contract:
        for kind in (Today, Three, Cloud):
            found: Contract | None = await kind.probe(self._client)
            if found is not None:
                return found
        raise StageFailed("provider_refused", provider=self.name, why="what answers there is no MinerU")

    def _options_for(self, work: Work) -> dict[str, Any]:
        mode = OCR_MODES.get(str(work.options.get("ocr")))
        return self._options | ({"ocr_mode": mode} if mode else {})

    async def _wait(self, contract: Contract, job: str, report: PageReport) -> Sight:
        pause = min(0.2, self._poll_s)
        while not (sight := await contract.look(job)).is_done:
            if sight.pages_done is not None:
                report(sight.pages_done, sight.pages_total)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, self._poll_s)
        return sight

    async def _call_off(self, contract: Contract, job: str) -> None:
        try:
            async with asyncio.timeout(CANCEL_S):
                await contract.cancel(job)
        except (DocmillError, TimeoutError) as error:
            log.info("provider_not_told", provider=self.name, job=job, why=type(error).__name__)
