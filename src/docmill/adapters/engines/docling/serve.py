"""docling-serve's asynchronous contract: submit, poll, and a result that may be fetched once. It knows no cancelling.

Known by `/version`, or by `/health` where the version is not told.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from docmill.adapters.engines.polling import UPLOAD_S, Sight, failed, id_in, invalid, is_json, lost, refused, word_in
from docmill.adapters.engines.sending import Sending
from docmill.core.errors import StageFailed

if TYPE_CHECKING:
    from docmill.adapters.providers.client import Answer, ProviderClient

PAGES: Final = 500
BYTES: Final = 1024 * 1024 * 1024
RESULT_BYTES: Final = 512 * 1024 * 1024
WAITING: Final = frozenset({"pending", "started"})
OURS: Final = {"to_formats": "json", "image_export_mode": "embedded", "target_type": "inbody"}


class Serve:
    max_pages = PAGES
    max_bytes = BYTES

    def __init__(self, client: ProviderClient, label: str = "docling-serve") -> None:
        self._client = client
        self.label = label

    @classmethod
    async def probe(cls, client: ProviderClient) -> Serve | None:
        answer = await client.ask("GET", "/version")
        version = answer.table().get("docling-serve") if is_json(answer) else None
        if isinstance(version, str):
            return cls(client, f"docling-serve {version[:20]}")
        health = await client.ask("GET", "/health")
        if health.status in (401, 403):
            raise refused(client.name, health.status)
        return cls(client) if is_json(health) and health.table().get("status") == "ok" else None

    async def submit(self, sending: Sending) -> str:
        form = {**sending.options, **OURS}
        file = ("files", sending.name, sending.path, sending.media_type)
        where = "/v1/convert/file/async"
        answer = await self._client.ask("POST", where, form=form, file=file, once=True, seconds=UPLOAD_S)
        return id_in(checked(self._client.name, answer).table(), "task_id", self._client.name)

    async def look(self, job: str) -> Sight:
        told = checked(self._client.name, await self._client.ask("GET", f"/v1/status/poll/{job}")).table()
        status = word_in(told, "task_status")
        if status in ("failure", "skipped"):
            raise verdict(self._client.name, told.get("failure"))
        if status not in WAITING and status not in ("success", "partial_success"):
            raise invalid(self._client.name, "the task has an unknown state")
        return Sight(is_done=status not in WAITING)

    async def fetch(self, job: str, sight: Sight, path: Path) -> None:  # noqa: ARG002 - the task's id is enough
        # It may be fetched once only: what breaks off after that is a new job.
        answer = await self._client.download(f"/v1/result/{job}", path, seconds=UPLOAD_S, limit=RESULT_BYTES)
        checked(self._client.name, answer)

    async def cancel(self, job: str) -> None:
        """There is no way to: the task runs to its end, and nobody fetches it."""


def checked(provider: str, answer: Answer) -> Answer:
    if answer.status == 404:
        raise lost(provider, "it no longer knows the task")
    if not answer.ok:
        raise refused(provider, answer.status)
    return answer


def verdict(provider: str, failure: object) -> StageFailed:
    """Why its task failed, and whether another try may help."""
    told = failure if isinstance(failure, dict) else {}
    category = str(told.get("category") or "its task failed")
    why = category if category.replace("_", "").replace(" ", "").isalnum() and len(category) < 60 else "it failed"
    return lost(provider, why) if told.get("retryable") is True else failed(provider, why)
