"""Starts jobs at a Secretary: the document goes along in a multipart form."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from posixpath import dirname
from uuid import UUID

from docmill.adapters.workers.calling import Caller, ids_in, object_in
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
        self.origin = self._caller.trusted

    async def check(self) -> None:
        await self._caller.alive()

    async def dispatch(self, job: Dispatch) -> tuple[str, ...]:
        options = job.options
        method = "ocr" if options.get("ocr") == "always" else "native"
        form = {
            "target_language": str(options.get("target_language") or options.get("language") or ""),
            "extraction_method": str(options.get("extraction_method") or method),
            "useCache": YES if options.get("use_cache") else NO,
            "includeImages": NO if options.get("include_images") is False else YES,
            "force_refresh": YES if options.get("force_refresh") else NO,
            "template": str(options.get("template") or ""),
            "callback_url": job.callback_url,
            "callback_token": job.callback_token,
        }
        with job.source.open("rb") as source:
            answer = await self._caller.post(data=form, files={"file": (job.filename, source)})
        return ids_in(object_in(answer, "process").get("id"), object_in(answer, "job").get("id"))

    async def cancel(self, job_id: UUID, worker_ids: Sequence[str]) -> None:  # noqa: ARG002 - it knows only its own ids
        """Under every id that it gave: which of them its job routes take is the worker's own matter."""
        cancels = (self._caller.cancel(self._jobs_route, one) for one in worker_ids)
        for outcome in await asyncio.gather(*cancels, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    @property
    def _jobs_route(self) -> str:
        """`/jobs` beside the start route: of `/api/pdf/process` it is `/api/jobs`."""
        return f"{dirname(dirname(self._caller.path)).rstrip('/')}/jobs"

    async def close(self) -> None:
        await self._caller.close()
