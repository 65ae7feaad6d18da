"""Starts jobs at a Secretary: the document goes along in a multipart form."""

from __future__ import annotations

from uuid import UUID

from docmill.adapters.workers.calling import Caller
from docmill.ports import Dispatch

YES = "true"
NO = "false"


class SecretaryWorker:
    dialect = "secretary"

    def __init__(self, name: str, url: str, api_key: str | None, timeout_s: float) -> None:
        self.name = name
        self.timeout_s = timeout_s
        headers = {"Authorization": f"Bearer {api_key}", "X-Service-Token": api_key} if api_key else {}
        self._caller = Caller(name, url, headers)

    async def check(self) -> None:
        await self._caller.alive()

    async def dispatch(self, job: Dispatch) -> str | None:
        options = job.options
        form = {
            "target_language": str(options.get("language") or ""),
            "extraction_method": str(options.get("extraction_method") or "native"),
            "useCache": YES if options.get("use_cache") else NO,
            "includeImages": NO if options.get("include_images") is False else YES,
            "force_refresh": YES if options.get("force_refresh") else NO,
            "template": str(options.get("template") or ""),
            "callback_url": job.callback_url,
            "callback_token": job.callback_token,
        }
        with job.source.open("rb") as source:
            answer = await self._caller.post(data=form, files={"file": (job.filename, source)})
        process = answer.get("process")
        given = process.get("id") if isinstance(process, dict) else None
        return given[:255] if isinstance(given, str) else None

    async def cancel(self, job_id: UUID, process_id: str | None) -> None:  # noqa: ARG002 - it knows only its own id
        if process_id:
            await self._caller.delete(f"{self._caller.origin}/jobs/{process_id}")

    async def close(self) -> None:
        await self._caller.close()
