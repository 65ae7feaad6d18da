"""Starts jobs at a Dispatcher: it is told where the brief lies, and takes everything else from there."""

from __future__ import annotations

from uuid import UUID

from docmill.adapters.workers.calling import Caller
from docmill.ports import Dispatch


class DispatcherWorker:
    dialect = "dispatcher"

    def __init__(self, name: str, url: str, api_key: str | None, timeout_s: float) -> None:
        self.name = name
        self.timeout_s = timeout_s
        self._caller = Caller(name, url, {"X-API-Key": api_key} if api_key else {})

    async def check(self) -> None:
        await self._caller.alive()

    async def dispatch(self, job: Dispatch) -> str | None:
        answer = await self._caller.post(
            json={
                "task_id": str(job.job_id),
                "brief_key": job.brief_key,
                "callback_url": job.callback_url,
                "callback_token": job.callback_token,
                "timeout_seconds": round(self.timeout_s),
                "env": {"BRIEF_URL": job.brief_url},
                "resources": {},
            }
        )
        given = answer.get("task_id") or answer.get("id")
        return given[:255] if isinstance(given, str) else None

    async def cancel(self, job_id: UUID, process_id: str | None) -> None:
        await self._caller.delete(f"{self._caller.url.rstrip('/')}/{process_id or job_id}")

    async def close(self) -> None:
        await self._caller.close()
