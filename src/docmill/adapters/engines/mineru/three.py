"""The 3.x server: one form in, a task to look after, one ZIP out. It knows no cancelling.

Known by `/health`, which tells a protocol version. Tasks live in the server's memory: after a restart it knows none.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from docmill.adapters.engines.polling import (
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
from docmill.adapters.engines.sending import Sending

if TYPE_CHECKING:
    from docmill.adapters.providers.client import Answer, ProviderClient

PAGES: Final = 1000
BYTES: Final = 200 * 1024 * 1024
OURS: Final = {
    "return_md": "true",
    "return_middle_json": "true",
    "return_content_list": "true",
    "return_images": "true",
    "return_model_output": "false",
    "response_format_zip": "true",
}
THEIRS: Final = frozenset({"backend", "effort", "parse_method", "lang_list", "formula_enable", "table_enable"})
WAITING: Final = frozenset({"pending", "processing"})


class Three:
    max_pages = PAGES
    max_bytes = BYTES

    def __init__(self, client: ProviderClient, version: str) -> None:
        self._client = client
        self.label = f"MinerU {version}"

    @classmethod
    async def probe(cls, client: ProviderClient) -> Three | None:
        health = await client.ask("GET", "/health")
        if not is_json(health):
            return None
        told = health.table()
        if "protocol_version" not in told and told.get("status") != "healthy":
            return None
        return cls(client, shown(told.get("version")))

    async def submit(self, sending: Sending) -> str:
        form: dict[str, Any] = {key: value for key, value in sending.options.items() if key in THEIRS} | OURS
        if mode := sending.options.get("ocr_mode"):
            form.setdefault("parse_method", mode)
        file = ("files", sending.name, sending.path, sending.media_type)
        answer = await self._client.ask("POST", "/tasks", form=form, file=file, once=True, seconds=UPLOAD_S)
        return id_in(self._checked(answer), "task_id", self._client.name)

    async def look(self, job: str) -> Sight:
        found = self._checked(await self._client.ask("GET", f"/tasks/{job}"))
        status = word_in(found, "status")
        if status in WAITING:
            return Sight()
        if status == "completed":
            return Sight(is_done=True, result=job)
        if status == "failed":
            raise failed(self._client.name, "its task failed")
        raise invalid(self._client.name, "the task has an unknown state")

    async def fetch(self, job: str, sight: Sight, path: Path) -> None:  # noqa: ARG002 - the task's id is enough
        answer = await self._client.download(f"/tasks/{job}/result", path, seconds=UPLOAD_S)
        if not answer.ok:
            self._checked(answer)
        if answer.status == 202:
            raise invalid(self._client.name, "the result is not ready, though the task is")

    async def cancel(self, job: str) -> None:
        """There is no way to: the task runs to its end, and nobody fetches it."""

    def _checked(self, answer: Answer) -> dict[str, Any]:
        if answer.status == 404:
            raise lost(self._client.name, "it no longer knows the task")
        if answer.status == 409:
            raise failed(self._client.name, "its task failed")
        if not answer.ok:
            raise refused(self._client.name, answer.status)
        return answer.table()
