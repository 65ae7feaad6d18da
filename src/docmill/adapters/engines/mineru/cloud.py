"""The cloud, API v4: ask for an address, put the file there, look after the batch, fetch the ZIP it names.

Two envelopes: business answers are `{"code": 0, "data": …}`, the gateway's `{"success": false, "msgCode": …}`; either
may come with HTTP 200. There is no way to cancel. `/extract/task` takes public addresses only, so it serves us as the
question by which the API is known.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from docmill.adapters.engines import sniff
from docmill.adapters.engines.polling import UPLOAD_S, Sight, failed, id_in, invalid, lost, refused, shown, word_in
from docmill.adapters.engines.sending import Sending
from docmill.core.errors import DocmillError, DocumentError, StageFailed

if TYPE_CHECKING:
    from docmill.adapters.providers.client import Answer, ProviderClient

PAGES: Final = 200
BYTES: Final = 200 * 1024 * 1024
PREFIXES: Final = ("", "/api/v4")
NOBODY: Final = "00000000-0000-0000-0000-000000000000"
WAITING: Final = frozenset({"waiting-file", "uploading", "pending", "running", "converting"})
THEIRS: Final = frozenset({"model_version", "enable_formula", "enable_table", "language", "extra_formats"})

KEY: Final = frozenset({"A0202", "A0211"})
SOON: Final = frozenset({-10001, -60001, -60007, -60009, -60010, -60022})
"""Trouble of theirs: the service, the address, the model, the queue; worth another try."""
GONE: Final = frozenset({-60011, -60012})
"""The upload or the task is not there any more."""
QUOTA: Final = frozenset({-60017, -60018, -60019})
UNREADABLE: Final = {
    "media_type": sniff.UNKNOWN,
    "type": "For the provider",
    "advice": "The local engine may read it.",
}
DOCUMENT: Final = {
    -60002: ("document_unsupported", UNREADABLE),
    -60003: ("document_broken", {"why": "the provider cannot read it"}),
    -60004: ("document_empty", {}),
    -60015: ("document_broken", {"why": "the provider cannot convert it"}),
    -60021: ("document_broken", {"why": "the provider cannot count its pages"}),
}


class Cloud:
    max_pages = PAGES
    max_bytes = BYTES
    label = "MinerU cloud v4"

    def __init__(self, client: ProviderClient, prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    @classmethod
    async def probe(cls, client: ProviderClient) -> Cloud | None:
        for prefix in PREFIXES:
            answer = await client.ask("GET", f"{prefix}/extract/task/{NOBODY}")
            code = _code(answer)
            if code in KEY:
                raise _error(client.name, answer.status, code)
            if isinstance(code, int):
                return cls(client, prefix)
        return None

    async def submit(self, sending: Sending) -> str:
        options = {key: value for key, value in sending.options.items() if key in THEIRS}
        file: dict[str, Any] = {"name": sending.name, "data_id": sending.sha256[:32]}
        if sending.options.get("ocr_mode") == "ocr":
            file["is_ocr"] = True
        body = {"model_version": "vlm", **options, "files": [file]}
        batch = self._data(await self._client.ask("POST", f"{self._prefix}/file-urls/batch", json=body, once=True))
        urls, job = batch.get("file_urls"), id_in(batch, "batch_id", self._client.name)
        if not isinstance(urls, list) or not urls:
            raise invalid(self._client.name, "it gives no address for the file")
        await self._put(sending, str(urls[0]))
        return job

    async def _put(self, sending: Sending, url: str) -> None:
        """Without a Content-Type: the address was signed without one."""
        answer = await self._client.ask("PUT", url, body=sending.path, seconds=UPLOAD_S)
        if not answer.ok:
            raise lost(self._client.name, f"the upload is answered {answer.status}")

    async def look(self, job: str) -> Sight:
        data = self._data(await self._client.ask("GET", f"{self._prefix}/extract-results/batch/{job}"))
        results = data.get("extract_result")
        if not isinstance(results, list) or not results or not isinstance(results[0], dict):
            raise invalid(self._client.name, "the batch has no results")
        result = results[0]
        state = word_in(result, "state")
        if state in WAITING:
            told = result.get("extract_progress")
            progress = told if isinstance(told, dict) else {}
            return Sight(
                pages_done=_count(progress.get("extracted_pages")), pages_total=_count(progress.get("total_pages"))
            )
        if state == "done" and isinstance(url := result.get("full_zip_url"), str):
            return Sight(is_done=True, result=url)
        if state == "failed":
            code = _coded(result.get("err_code"))
            raise _error(self._client.name, 200, code) if code else failed(self._client.name, "its task failed")
        raise invalid(self._client.name, "the task has an unknown state")

    async def fetch(self, job: str, sight: Sight, path: Path) -> None:  # noqa: ARG002 - the address is enough
        answer = await self._client.download(sight.result, path, seconds=UPLOAD_S)
        if not answer.ok:
            raise lost(self._client.name, f"the download is answered {answer.status}")

    async def cancel(self, job: str) -> None:
        """There is no way to."""

    def _data(self, answer: Answer) -> dict[str, Any]:
        code = _code(answer)
        if code != 0:
            raise _error(self._client.name, answer.status, code)
        data = answer.table().get("data")
        if not isinstance(data, dict):
            raise invalid(self._client.name, "it has no data")
        return data


def _code(answer: Answer) -> int | str | None:
    """The code of either envelope; None: it is no envelope."""
    try:
        told = answer.table()
    except StageFailed:
        if answer.ok:
            raise
        return None
    return word_in(told, "msgCode") or _coded(told.get("code"))


def _coded(code: object) -> int | str | None:
    """A number, also where it is told as text, or a word."""
    if isinstance(code, str) and code.lstrip("-").isdecimal() and len(code) < 9:
        return int(code)
    return code if isinstance(code, int | str) else None


def _error(provider: str, status: int, code: int | str | None) -> DocmillError:
    if code in KEY:
        return StageFailed("provider_refused", provider=provider, why=f"{code}; is the key right, or has it expired?")
    if code in SOON:
        return StageFailed("provider_busy", provider=provider, why=f"it answers {code}")
    if code in GONE:
        return lost(provider, f"it answers {code}")
    if code in QUOTA:
        return StageFailed("provider_quota", provider=provider, why=f"it answers {code}")
    if isinstance(code, int) and code in DOCUMENT:
        name, facts = DOCUMENT[code]
        return DocumentError(name, **facts)
    if code == -60005:
        return StageFailed("provider_refused", provider=provider, why="the file is too large for it")
    if code == -60006:
        return StageFailed("provider_refused", provider=provider, why="the document has too many pages for it")
    if code is None and status < 400:
        return invalid(provider, "it is no envelope")
    return refused(provider, status, shown(code) if code is not None else None)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
