"""Starts jobs at a Dispatcher: it is told where the brief lies, and takes everything else from there."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from docmill.adapters.workers.calling import Caller, ids_in, object_in
from docmill.ports import Dispatch


class DispatcherWorker:
    dialect = "dispatcher"

    def __init__(self, name: str, url: str, api_key: str | None, timeout_s: float) -> None:
        self.name = name
        self.timeout_s = timeout_s
        self._caller = Caller(name, url, {"X-API-Key": api_key} if api_key else {})
        self.origin = self._caller.trusted

    async def check(self) -> None:
        await self._caller.alive()

    async def dispatch(self, job: Dispatch) -> tuple[str, ...]:
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
        # Some put the task into an envelope: {"ok": true, "data": {"task": {...}}}.
        data = object_in(answer, "data")
        shapes = (answer, object_in(answer, "task"), data, object_in(data, "task"))
        return ids_in(*(shape.get(name) for shape in shapes for name in ("task_id", "id")))

    async def cancel(self, job_id: UUID, worker_ids: Sequence[str]) -> None:
        """By the worker's own id; where it does not know that one, by the `task_id` of the start request."""
        for one in dict.fromkeys([*worker_ids, str(job_id)]):
            if await self._caller.cancel(self._caller.path, one):
                return

    async def close(self) -> None:
        await self._caller.close()
