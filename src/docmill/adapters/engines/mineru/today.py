"""The self-hosted server of today: an upload that may be known already, a job, files.

Known by `/v1/health`, which tells version and features. Jobs live in the server's memory: after a restart it knows
none, and at an orderly stop it calls them `canceled`. Both mean for us: lost, try again.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from docmill.adapters.engines.polling import (
    CANCEL_S,
    UPLOAD_S,
    Sight,
    failed,
    id_in,
    invalid,
    is_json,
    lost,
    refused,
    shown,
    word_in,
)
from docmill.adapters.engines.sending import Sending, in_any_case
from docmill.core.errors import DocmillError, DocumentError, StageFailed

if TYPE_CHECKING:
    from docmill.adapters.providers.client import Answer, ProviderClient

PAGES: Final = 1000
BYTES: Final = 200 * 1024 * 1024
WAITING: Final = frozenset({"queued", "running", "pending", "processing"})
LOST: Final = frozenset({"engine_dead", "server_shutting_down", "job_not_found", "file_not_found", "upload_not_found"})
"""The server's trouble, not the document's."""
DOCUMENTS: Final = {"file_too_large", "page_limit_exceeded", "encrypted_document", "password_required"}


class Today:
    def __init__(self, client: ProviderClient, version: str, tiers: list[str], limits: dict[str, Any]) -> None:
        self._client = client
        self._tiers = tiers
        self.label = f"MinerU {version} ({', '.join(tiers) or 'no tiers'})"
        self.max_pages = _number(limits.get("max_pages_per_file"), PAGES)
        self.max_bytes = _number(limits.get("max_file_size_bytes"), BYTES)

    @classmethod
    async def probe(cls, client: ProviderClient) -> Today | None:
        health = await client.ask("GET", "/v1/health")
        if not is_json(health):
            return None
        told = health.table()
        if not isinstance(told.get("features"), dict):
            return None
        tiers = await client.ask("GET", "/v1/tiers")
        listed = tiers.table().get("data") if is_json(tiers) else None
        usage = await client.ask("GET", "/v1/usage")
        if usage.status in (401, 403):
            raise refused(client.name, usage.status)
        limits = usage.table().get("limits") if is_json(usage) else None
        names = [str(one.get("id")) for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        return cls(client, shown(told.get("version")), names, limits if isinstance(limits, dict) else {})

    async def submit(self, sending: Sending) -> str:
        file_id = await self._upload(sending)
        body: dict[str, Any] = {
            "files": [{"source": {"type": "file_id", "file_id": file_id}}],
            "output_formats": ["zip"],
            **self._options(sending),
        }
        asking = asyncio.ensure_future(self._client.ask("POST", "/v1/parse/jobs", json=body, once=True))
        try:
            return self._job(await asyncio.shield(asking))
        except asyncio.CancelledError:
            # The job may have begun already, and only its id is still on the way.
            await in_any_case(self._call_off(asking))
            raise

    async def _call_off(self, asking: asyncio.Future[Answer]) -> None:
        try:
            async with asyncio.timeout(CANCEL_S):
                await self.cancel(self._job(await asking))
        except (DocmillError, TimeoutError):
            return

    def _job(self, answer: Answer) -> str:
        return id_in(self._checked(answer), "job_id", self._client.name)

    def _options(self, sending: Sending) -> dict[str, str]:
        tier = sending.options.get("tier") or (self._tiers[0] if self._tiers == ["flash"] else None)
        mode = sending.options.get("ocr_mode") or ("txt" if tier == "flash" else "auto")
        return {"ocr_mode": str(mode)} | ({"tier": str(tier)} if tier else {})

    async def _upload(self, sending: Sending) -> str:
        """The file's id there. Bytes that the server has seen before need not travel again."""
        wanted = {
            "filename": sending.name,
            "bytes": sending.size,
            "mime_type": sending.media_type,
            "purpose": "parse",
            "sha256sum": sending.sha256,
        }
        upload = self._checked(await self._client.ask("POST", "/v1/uploads", json=wanted))
        if upload.get("status") != "completed":
            where = f"/v1/uploads/{id_in(upload, 'id', self._client.name)}"
            await self._put(sending, f"{where}/content")
            answer = await self._client.ask("POST", f"{where}/complete", json={"sha256sum": sending.sha256})
            if answer.status == 409:  # an earlier try had worked, and only its answer got lost
                answer = await self._client.ask("GET", where)
            upload = self._checked(answer)
        return id_in(upload.get("file"), "id", self._client.name)

    async def _put(self, sending: Sending, where: str) -> None:
        # At the address that we know: the one in the answer is the server's own idea of its name.
        headers = {"Content-Type": sending.media_type}
        answer = await self._client.ask("PUT", where, body=sending.path, headers=headers, seconds=UPLOAD_S)
        if not answer.ok and answer.status != 409:
            raise self._error(answer)

    async def look(self, job: str) -> Sight:
        found = self._checked(await self._client.ask("GET", f"/v1/parse/jobs/{job}"))
        status = word_in(found, "status")
        if status in WAITING:
            return Sight()
        file = self._file(found)
        if status == "canceled":
            raise lost(self._client.name, "it called the job off")
        if status == "completed" and isinstance(outputs := file.get("output_files"), dict):
            return Sight(is_done=True, result=id_in(outputs.get("zip"), "file_id", self._client.name))
        if status not in ("failed", "partial", "completed"):
            raise invalid(self._client.name, "the job has an unknown state")
        raise self._verdict(word_in(file.get("error"), "code") or "parse_failed")

    async def fetch(self, job: str, sight: Sight, path: Path) -> None:  # noqa: ARG002 - the file has its own id
        answer = await self._client.download(f"/v1/files/{sight.result}/content", path, seconds=UPLOAD_S)
        if not answer.ok:
            raise self._error(answer)

    async def cancel(self, job: str) -> None:
        await self._client.ask("DELETE", f"/v1/parse/jobs/{job}", tries=2, seconds=5)

    def _file(self, job: dict[str, Any]) -> dict[str, Any]:
        files = job.get("files")
        if not isinstance(files, list) or not files or not isinstance(files[0], dict):
            raise invalid(self._client.name, "the job has no files")
        return files[0]

    def _checked(self, answer: Answer) -> dict[str, Any]:
        if not answer.ok:
            raise self._error(answer)
        return answer.table()

    def _error(self, answer: Answer) -> DocmillError:
        try:
            error = answer.table().get("error")
        except StageFailed:
            error = None
        code = word_in(error, "code")
        if code in LOST or code in DOCUMENTS:
            return self._verdict(code)
        if answer.status == 404:
            return lost(self._client.name, "it answers 404")
        return refused(self._client.name, answer.status, code)

    def _verdict(self, code: str) -> DocmillError:
        if code in ("encrypted_document", "password_required"):
            return DocumentError("document_encrypted")
        if code in LOST:
            return lost(self._client.name, shown(code))
        return failed(self._client.name, shown(code))


def _number(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else otherwise
