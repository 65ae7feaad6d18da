"""One HTTP client for every provider: patient, bounded, and silent about host names and keys.

    ask        a request whose answer is small enough for memory
    download   an answer that goes into a file

Network faults, 429 and 5xx are tried again, with the provider's own `Retry-After` or with growing, jittered pauses.
What remains is an error of ours: `provider_unreachable`, `provider_busy`, `provider_refused` or
`provider_answer_invalid`. Any other answer, 4xx included, is the caller's to read. The credentials go to the
provider's own address and nowhere else; the environment's proxies are not used; redirects are not followed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import urlsplit

import httpx2
import msgspec

from docmill.core.errors import StageFailed

from .breaker import Breaker

MB: Final = 1024 * 1024
CHUNK: Final = 1 << 18
SOON: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Worth another try."""
NOT_TAKEN: Final = frozenset({429, 503})
"""The provider says that it did nothing: also a request that must not run twice may be sent again."""


@dataclass(frozen=True, slots=True)
class Patience:
    tries: int = 4
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0
    """A provider that wants more is left alone: the stage is tried again later."""
    connect_s: float = 10.0
    silence_s: float = 60.0
    """Longest time between two bytes."""
    request_s: float = 300.0
    """Of one try of one request, whole."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    provider: str = ""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def json(self) -> Any:
        """The body as JSON; `provider_answer_invalid` if it is none."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise StageFailed("provider_answer_invalid", provider=self.provider, why="it is not JSON") from error

    def table(self) -> dict[str, Any]:
        """The body as a JSON object."""
        found = self.json()
        if not isinstance(found, dict):
            raise StageFailed("provider_answer_invalid", provider=self.provider, why="it is not a JSON object")
        return found


@dataclass(frozen=True, slots=True)
class _Upload:
    """A file that is sent as the body, or as a field of a form."""

    path: Path
    field: str = ""
    filename: str = ""
    media_type: str = ""


@dataclass(slots=True)
class _Try:
    number: int
    why: str = ""
    busy: bool = False
    wanted_s: float | None = None
    taken: bool = True
    """The provider may have done what was asked."""


@dataclass(slots=True)
class ProviderClient:
    """Calls one provider at one address. *name* is what error messages call it."""

    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    """Credentials and the like, for the provider's own address alone."""
    concurrency: int = 4
    patience: Patience = field(default_factory=Patience)
    breaker: Breaker = field(default_factory=Breaker)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _client: httpx2.AsyncClient | None = None
    _gate: asyncio.Semaphore | None = None

    async def ask(
        self,
        method: str,
        where: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        form: Mapping[str, Any] | None = None,
        body: Path | None = None,
        file: tuple[str, str, Path, str] | None = None,
        headers: Mapping[str, str] | None = None,
        once: bool = False,
        tries: int | None = None,
        seconds: float | None = None,
        limit: int = 16 * MB,
    ) -> Answer:
        """Send a request; *where* is a path below the provider's address, or a whole address that it gave.

        *body* is a file that is sent as it is; *file* one of a form: field, file name, path, media type.
        *once*: it must not run twice, so it is repeated only when the provider surely did not take it.
        """

        async def read(answer: httpx2.Response) -> Answer:
            data = bytearray()
            async for piece in answer.aiter_bytes(CHUNK):
                data += piece
                if len(data) > limit:
                    raise self._too_large(limit)
            return Answer(answer.status_code, answer.headers, bytes(data), self.name)

        request = {"params": params, "json": json, "data": form, "headers": dict(headers or {})}
        upload = _Upload(body) if body else None
        if file:
            upload = _Upload(file[2], file[0], file[1], file[3])
        return await self._patiently(method, where, request, upload, read, once=once, tries=tries, seconds=seconds)

    async def download(
        self,
        where: str,
        path: Path,
        *,
        headers: Mapping[str, str] | None = None,
        seconds: float | None = None,
        limit: int = 1024 * MB,
    ) -> Answer:
        """Fetch into a file, which is there whole or not at all. An answer other than 2xx keeps its body."""

        async def read(answer: httpx2.Response) -> Answer:
            if not answer.is_success:
                return Answer(answer.status_code, answer.headers, (await answer.aread())[:MB], self.name)
            size = 0
            with path.open("wb") as file:
                async for piece in answer.aiter_bytes(CHUNK):
                    size += len(piece)
                    if size > limit:
                        raise self._too_large(limit)
                    await asyncio.to_thread(file.write, piece)
            return Answer(answer.status_code, answer.headers, b"", self.name)

        whole = False
        try:
            got = await self._patiently("GET", where, {"headers": dict(headers or {})}, None, read, seconds=seconds)
            whole = got.ok
            return got
        finally:
            if not whole:
                await asyncio.to_thread(path.unlink, missing_ok=True)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    # --- one request, and its repetitions

    async def _patiently(
        self,
        method: str,
        where: str,
        request: dict[str, Any],
        upload: _Upload | None,
        read: Callable[[httpx2.Response], Awaitable[Answer]],
        *,
        once: bool = False,
        tries: int | None = None,
        seconds: float | None = None,
    ) -> Answer:
        url = self.address(where)
        if _origin(url) == _origin(self.url):
            request["headers"] = {**self.headers, **request["headers"]}
        request["headers"] = {"Accept-Encoding": "identity", "User-Agent": "docmill", **request["headers"]}
        most = tries or self.patience.tries
        for number in range(1, most + 1):
            trial = _Try(number)
            answer = await self._try(trial, method, url, request, upload, read, seconds or self.patience.request_s)
            if answer is not None:
                return answer
            if number == most or (once and trial.taken):
                raise self._error(trial)
            await self._pause(trial)
        raise AssertionError("unreachable")

    async def _try(
        self,
        trial: _Try,
        method: str,
        url: str,
        request: dict[str, Any],
        upload: _Upload | None,
        read: Callable[[httpx2.Response], Awaitable[Answer]],
        seconds: float,
    ) -> Answer | None:
        """The answer, or None and *trial* says why there is none."""
        if self._gate is None:
            self._gate = asyncio.Semaphore(self.concurrency)
        async with self._gate:
            if wait_s := self.breaker.wait_s():
                raise StageFailed(
                    "provider_unreachable", provider=self.name, why=f"it failed often; asked again in {wait_s:.0f} s"
                )
            try:
                async with asyncio.timeout(seconds), self._sent(method, url, request, upload) as sent:
                    if sent.status_code not in SOON:
                        answer = await read(sent)
                        self.breaker.worked()
                        return answer
                    trial.wanted_s = retry_after(sent.headers.get("retry-after", ""))
                    trial.busy = sent.status_code == 429
                    trial.taken = sent.status_code not in NOT_TAKEN
                    trial.why = f"it answers {sent.status_code}"
            except TimeoutError:
                trial.why = f"it took longer than {seconds:g} s"
            except httpx2.InvalidURL as error:
                raise StageFailed("provider_refused", provider=self.name, why="its address is not valid") from error
            except httpx2.HTTPError as error:
                # The error's own text may hold addresses of our networks.
                trial.why = type(error).__name__
                trial.taken = not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
            except BaseException:
                self.breaker.left()
                raise
        if trial.busy:
            self.breaker.worked()  # it is there, and says no
        else:
            self.breaker.failed()
        return None

    @asynccontextmanager
    async def _sent(
        self, method: str, url: str, request: dict[str, Any], upload: _Upload | None
    ) -> AsyncIterator[httpx2.Response]:
        if self._client is None:
            self._client = httpx2.AsyncClient(
                timeout=httpx2.Timeout(self.patience.silence_s, connect=self.patience.connect_s),
                follow_redirects=False,
                trust_env=False,
            )
        if upload is None:
            async with self._client.stream(method, url, **request) as answer:
                yield answer
            return
        with upload.path.open("rb") as file:
            async with self._client.stream(method, url, **_with_file(request, upload, file)) as answer:
                yield answer

    async def _pause(self, trial: _Try) -> None:
        longest = self.patience.longest_pause_s
        if trial.wanted_s is not None and trial.wanted_s > longest:
            raise StageFailed(
                "provider_busy", provider=self.name, why=f"it wants to be left alone for {trial.wanted_s:.0f} s"
            )
        pause = min(self.patience.first_pause_s * 2 ** (trial.number - 1), longest) * random.uniform(0.5, 1.0)
        await self.sleep(pause if trial.wanted_s is None else max(trial.wanted_s, 0.0) + random.uniform(0, 0.1))

    def _error(self, trial: _Try) -> StageFailed:
        return StageFailed("provider_busy" if trial.busy else "provider_unreachable", provider=self.name, why=trial.why)

    def _too_large(self, limit: int) -> StageFailed:
        return StageFailed("provider_answer_invalid", provider=self.name, why=f"it is larger than {limit // MB} MB")

    def address(self, where: str) -> str:
        """A path below the provider's address, or an address that it gave us: of as safe a kind as its own."""
        if "://" not in where:
            return f"{self.url.rstrip('/')}/{where.lstrip('/')}"
        if urlsplit(where).scheme != urlsplit(self.url).scheme:
            raise StageFailed("provider_answer_invalid", provider=self.name, why="it names an unsafe address")
        return where


def _with_file(request: dict[str, Any], upload: _Upload, file: BinaryIO) -> dict[str, Any]:
    if upload.field:
        return {**request, "files": {upload.field: (upload.filename, file, upload.media_type)}}
    size = upload.path.stat().st_size
    return {**request, "content": _pieces(file), "headers": {**request["headers"], "Content-Length": str(size)}}


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, CHUNK):
        yield piece


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def retry_after(text: str) -> float | None:
    """Seconds of a `Retry-After`, which may be a number or a date."""
    text = text.strip()
    if not text:
        return None
    try:
        if text.replace(".", "", 1).isdecimal():
            return float(text)
        moment = parsedate_to_datetime(text)
        return (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):
        return None
