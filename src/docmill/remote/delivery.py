"""One POST and what its answer means; and a terminal report, sent until it is delivered, refused or too late."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import httpx2

from . import signing
from .errors import Refused, Undelivered
from .spool import Address, Held

log = logging.getLogger("docmill.remote")

DAY_S = 86_400.0
MAX_ANSWER = 64 * 1024
MAX_RETRY_AFTER_S = 3_600.0
AGAIN = frozenset({408, 425, 429})
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long, and how often."""

    deadline_s: float = DAY_S
    """Of a terminal report, counted from when it was made. One try is always made."""
    first_s: float = 0.5
    most_s: float = 60.0
    """Pauses are random between 0 and first_s, doubled with every try up to most_s."""
    timeout_s: float = 120.0
    """Of a single answer to a terminal report; progress waits a tenth of it."""

    def pause(self, tries: int, retry_after: float | None) -> float:
        jitter = random.uniform(0, min(self.most_s, self.first_s * 2 ** min(tries, 20)))
        return min(retry_after, MAX_RETRY_AFTER_S) + jitter if retry_after is not None else jitter


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    data: dict[str, Any] = field(default_factory=dict)
    retry_after: float | None = None

    @property
    def is_ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status >= 500 or self.status in AGAIN

    @property
    def code(self) -> str:
        error = self.data.get("error")
        found = self.data.get("code") or (error.get("code") if isinstance(error, dict) else error)
        return found[:200] if isinstance(found, str) else ""


@dataclass(frozen=True, slots=True)
class Receipt:
    """A terminal report has arrived."""

    job_id: str
    status: int
    answer: dict[str, Any]
    tries: int
    is_duplicate: bool = False
    """The job had ended before (409): by an earlier try of this report, by a cancel, or by somebody else."""


def open_client(*, connections: int = 8) -> httpx2.AsyncClient:
    """No redirects: a token is for one address. No proxy between us and this machine."""
    return httpx2.AsyncClient(
        verify=_certificates(),
        follow_redirects=False,
        limits=httpx2.Limits(max_connections=connections, max_keepalive_connections=connections),
        mounts={f"all://{host}": None for host in LOOPBACK},
    )


@cache
def _certificates() -> ssl.SSLContext:
    """Read once: it takes a fifth of a second."""
    return httpx2.create_ssl_context()


def check_url(url: str) -> str:
    """The URL, if it is one that we call: http or https, and no credentials in it."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
        parts = None
    if not good or parts is None:
        raise ValueError("not an http:// or https:// address")
    if parts.username or parts.password:
        raise ValueError("an address must not carry credentials")
    if not url.isprintable() or " " in url:
        raise ValueError("an address has no spaces and no control characters")
    return url


def headers_of(address: Address, key: str | None, body: Held | bytes) -> dict[str, str]:
    headers = {
        "Authorization": f"Bearer {address.token}",
        "Content-Type": "application/json",
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "X-Worker": address.worker,
        "Content-Length": str(len(body) if isinstance(body, bytes) else body.size),
    }
    if key:
        signed = [body] if isinstance(body, bytes) else body.pieces()
        if address.signing == "standard":
            headers |= signing.standard(key, address.message_id, int(time.time()), signed)
        else:
            headers |= signing.legacy(key, address.job_id, signed)
    return headers


async def post(
    client: httpx2.AsyncClient, address: Address, key: str | None, body: Held | bytes, timeout_s: float
) -> Answer:
    """One try. Raises httpx2.RequestError if there is no answer."""
    if isinstance(body, bytes):
        headers = headers_of(address, key, body)
        content: bytes | AsyncIterator[bytes] = body
    else:
        headers = await asyncio.to_thread(headers_of, address, key, body)
        content = _streamed(body)
    timeout = httpx2.Timeout(timeout_s, connect=min(10.0, timeout_s), pool=None)
    async with client.stream("POST", address.url, content=content, headers=headers, timeout=timeout) as response:
        return Answer(response.status_code, await _read(response), _retry_after(response.headers))


async def _streamed(held: Held) -> AsyncIterator[bytes]:
    for piece in held.pieces():
        yield piece


async def _read(response: httpx2.Response) -> dict[str, Any]:
    raw = bytearray()
    async with aclosing(response.aiter_bytes()) as pieces:
        async for piece in pieces:
            raw += piece
            if len(raw) > MAX_ANSWER:
                return {}
    try:
        data = json.loads(raw)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def _retry_after(headers: httpx2.Headers) -> float | None:
    """Seconds, or a date."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())


async def deliver(client: httpx2.AsyncClient, held: Held, key: str | None, patience: Patience) -> Receipt:
    """Send until it is there. Afterwards the report is gone from the spool, or set aside, or free for the next one."""
    try:
        return await _deliver(client, held, key, patience)
    except Refused:
        held.refused()
        raise
    finally:
        held.release()


async def _deliver(client: httpx2.AsyncClient, held: Held, key: str | None, patience: Patience) -> Receipt:
    address = held.address
    if address.is_signed and not key:
        raise ValueError(f"the report for job {address.job_id} has to be signed: give the signing key")
    ends = time.monotonic() + patience.deadline_s - max(0.0, time.time() - address.created)
    tries = 0
    while True:
        tries += 1
        retry_after = None
        try:
            answer = await post(client, address, key if address.is_signed else None, held, patience.timeout_s)
        except httpx2.RequestError as error:
            why = type(error).__name__
        else:
            if answer.is_ok or answer.status == 409:
                held.delivered()
                return Receipt(address.job_id, answer.status, answer.data, tries, answer.status == 409)
            if not answer.may_pass:
                log.error("report_refused job=%s status=%d code=%s", address.job_id, answer.status, answer.code)
                raise Refused(answer.status, answer.code, address.job_id)
            why, retry_after = f"{answer.status} {answer.code}".rstrip(), answer.retry_after
        pause = patience.pause(tries - 1, retry_after)
        if time.monotonic() + pause > ends:
            raise Undelivered(address.job_id, tries, why)
        log.warning("report_waits job=%s tries=%d why=%s pause=%.1f", address.job_id, tries, why, pause)
        await asyncio.sleep(pause)
