"""What both dialects' start requests share: one HTTP client with timeouts, and what its faults mean."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2

from docmill.core.addresses import TrustedOrigin
from docmill.core.errors import StageFailed

CONNECT_S = 10.0
START_S = 120.0
MAX_ID_LENGTH = 255
UNKNOWN_ROUTE = (404, 405, 501)
"""Answers that leave open whether the worker knows another way to cancel."""


class Caller:
    """Calls one worker. Its answers never carry our host names or its own into an error message."""

    def __init__(self, name: str, url: str, headers: dict[str, str]) -> None:
        self._name = name
        self.url = url
        parts = urlsplit(url)
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.trusted = TrustedOrigin(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", headers)
        self.path = parts.path.rstrip("/")
        self._client = httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(START_S, connect=CONNECT_S),
            follow_redirects=False,
            trust_env=False,
        )

    async def alive(self) -> None:
        """Any answer but a 5xx will do: not every worker has a health route."""
        async with self._reachable():
            answer = await self._client.get(f"{self.origin}/health", timeout=CONNECT_S)
        if answer.status_code >= 500:
            raise StageFailed(
                "worker_unreachable", worker=self._name, why=f"its health route says {answer.status_code}"
            )

    async def post(self, **request: Any) -> dict[str, Any]:
        """Start a job. 5xx, 429 and silence are worth another try; any other refusal is final."""
        async with self._reachable():
            answer = await self._client.post(self.url, **request)
        if answer.status_code >= 500 or answer.status_code == 429:
            raise StageFailed("worker_unreachable", worker=self._name, why=f"it answered {answer.status_code}")
        if not answer.is_success:
            raise StageFailed("worker_refused", worker=self._name, why=f"it answered {answer.status_code}")
        try:
            body = answer.json()
        except ValueError:
            body = None
        return body if isinstance(body, dict) else {}

    async def cancel(self, route: str, job_id: str) -> bool:
        """`DELETE route/id`, or `POST route/id/cancel` where that is not known; whether the worker accepted it."""
        url = f"{self.origin}{route}/{quote(job_id, safe='')}"
        async with self._reachable():
            answer = await self._client.delete(url, timeout=CONNECT_S)
            if answer.status_code in UNKNOWN_ROUTE:
                answer = await self._client.post(f"{url}/cancel", timeout=CONNECT_S)
        return answer.is_success

    async def close(self) -> None:
        await self._client.aclose()

    @asynccontextmanager
    async def _reachable(self) -> AsyncIterator[None]:
        try:
            yield
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise StageFailed("worker_unreachable", worker=self._name, why=type(error).__name__) from error


def ids_in(*values: Any) -> tuple[str, ...]:
    """Those of the values that are ids, each once: texts, or whole numbers as text."""
    found = (str(value)[:MAX_ID_LENGTH] for value in values if isinstance(value, str | int) and type(value) is not bool)
    return tuple(dict.fromkeys(one for one in found if one))


def object_in(value: Any, name: str) -> dict[str, Any]:
    """The object under *name*; empty if there is none."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}
