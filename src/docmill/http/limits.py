"""What a request must satisfy before any route sees it: pure ASGI, cheap, and in this order.

`Gate` refuses while the service shuts down, under a name that is not its own (DNS rebinding), and writes that another
web site sends through the user's browser. `BodyGuard` counts the body while it arrives and reads JSON strictly.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from math import inf
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from docmill.core.errors import BadRequest, DocmillError, Forbidden, TooLarge, Unavailable
from docmill.http.errors import answer
from docmill.http.wire import check_json

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
ANY_HOST = "*"
OFF_LOOP_BYTES = 256 * 1024
"""JSON above this size is checked in a thread, so that other requests go on."""

MiB = 1024**2
STREAMED: Mapping[str, int | None] = {
    "/api/v1/etl/upload": None,
    "/api/v1/etl/upload_and_submit": None,
    "/api/external/": None,
    "/api/v1/tasks/": None,
    "/api/v1/objects/": None,
    "/api/v1/documents": None,
    "/api/v1/assets": None,
    "/api/v1/contracts": None,
    "/v1/convert/file": None,
}
"""Routes that read their body themselves: they know their own limits, and judge its JSON by their own rules."""
LARGE: Mapping[str, int | None] = {
    "/api/v1/projects": 20 * MiB,
    "/api/v1/tables": 20 * MiB,
    "/v1/convert/source": 128 * MiB,
}

Check = Callable[[], Awaitable[str | None]]
"""A part of the service says what is wrong with it, or None."""

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """What the doors must know of the settings."""

    version: str = "0"
    allowed_hosts: tuple[str, ...] = ()
    """Names and addresses under which the service may be called, besides those of loopback; `*` for any,
    `*.example.org` for all below. None given: any if callers need a credential, which no rebound page has."""
    allowed_origins: tuple[str, ...] = ()
    """Web sites whose pages may call the API from a browser (CORS)."""
    json_bytes: int = 4 * MiB
    body_caps: Mapping[str, int | None] = field(default_factory=lambda: {**LARGE, **STREAMED})
    """Path prefix to largest body; None: the route counts by itself. The longest prefix wins."""
    body_idle_s: float = 30.0
    """A body that stops arriving for so long is given up."""
    max_upload_bytes: int | None = None
    """Of one file; without it the limit of the use cases holds."""
    max_batch_bytes: int = 8 * 1024**3
    """Of one upload_and_submit, all files together."""
    max_batch_files: int = 100
    min_free_bytes: int = 64 * MiB
    """Below this the service says that it is not ready."""
    is_working: Callable[[], bool] | None = None
    """Whether the worker of this process lives; None: there is none."""
    checks: Mapping[str, Check] = field(default_factory=dict)
    """More parts that /ready asks."""
    poll_s: float = 1.0
    heartbeat_s: float = 15.0


class Drain:
    """Says that the service is about to stop. Open streams and long polls end; new requests are told to come back."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()

    @property
    def begun(self) -> bool:
        return self._begun.is_set()

    def begin(self) -> None:
        self._begun.set()

    async def wait(self) -> None:
        await self._begun.wait()


class Gate:
    """Answers instead of the app what must not reach it."""

    OPEN_WHILE_DRAINING = frozenset({"/health", "/ready", "/metrics"})

    def __init__(self, app: ASGIApp, *, options: HttpOptions, drain: Drain, is_open: bool) -> None:
        self.app = app
        self.drain = drain
        self.any_host = ANY_HOST in options.allowed_hosts or not (is_open or options.allowed_hosts)
        names = (*LOOPBACK_NAMES, *options.allowed_hosts)
        self.hosts = frozenset(_plain(host) for host in names if not host.startswith("*."))
        self.suffixes = tuple(host[1:].lower() for host in options.allowed_hosts if host.startswith("*."))
        self.origins = frozenset(origin.lower().rstrip("/") for origin in options.allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refusal := self._refusal(scope)):
            await answer(scope, *refusal)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[DocmillError, dict[str, str]] | None:
        if self.drain.begun and scope["path"] not in self.OPEN_WHILE_DRAINING:
            return Unavailable("shutting_down"), {"Connection": "close"}
        if self.any_host:
            return None
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return BadRequest("host_not_allowed", host=", ".join(hosts)[:100]), {}
        if scope["method"] not in _SAFE_METHODS and self._is_foreign_page(headers):
            return Forbidden("forbidden"), {}
        return None

    def _is_ours(self, authority: str) -> bool:
        found = _HOST.fullmatch(authority)
        if not found:
            return False
        host = _plain(found[1])
        return host in self.hosts or (bool(self.suffixes) and host.endswith(self.suffixes))

    def _is_foreign_page(self, headers: Headers) -> bool:
        """A browser says which site sends. Without this, any web page could write to a service on loopback."""
        origin = headers.get("origin")
        if origin is None:
            return headers.get("sec-fetch-site") == "cross-site"
        if origin.lower().rstrip("/") in self.origins:
            return False
        try:
            return not self._is_ours(urlsplit(origin).netloc)
        except ValueError:
            return True


class BodyGuard:
    """Counts the body while it arrives; reads JSON whole, checks it and hands it on."""

    def __init__(self, app: ASGIApp, *, options: HttpOptions) -> None:
        self.app = app
        self.default = options.json_bytes
        self.caps = sorted(options.body_caps.items(), key=lambda cap: -len(cap[0]))
        self.idle_s = options.body_idle_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        cap = self._cap(scope["path"])
        if cap is None:
            await self.app(scope, self._counted(receive, inf), send)
            return
        headers = Headers(scope=scope)
        try:
            if _length(headers) > cap:
                raise TooLarge("body_too_large", limit=cap)
            receive = self._counted(receive, cap)
            if _is_json(headers.get("content-type", "")):
                receive = await _checked(receive)
        except DocmillError as error:
            await answer(scope, error)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _cap(self, path: str) -> int | None:
        for prefix, cap in self.caps:
            if path.startswith(prefix):
                return cap
        return self.default

    def _counted(self, receive: Receive, cap: float) -> Receive:
        seen = 0
        complete = False

        async def counted() -> Message:
            nonlocal seen, complete
            if complete:
                return await receive()
            message = await _patient(receive, self.idle_s)
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                complete = not message.get("more_body", False)
            if seen > cap:
                raise TooLarge("body_too_large", limit=cap)
            return message

        return counted


async def _patient(receive: Receive, seconds: float) -> Message:
    """The next message, if it comes in time."""
    try:
        async with asyncio.timeout(seconds):
            return await receive()
    except TimeoutError:
        raise BadRequest("request_invalid", why=f"the body stopped arriving for {seconds:g} s.") from None


async def _checked(receive: Receive) -> Receive:
    chunks: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return _replay([message], receive)
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            break
    body = b"".join(chunks)
    if len(body) > OFF_LOOP_BYTES:
        await asyncio.to_thread(check_json, body)
    elif body:
        check_json(body)
    return _replay([{"type": "http.request", "body": body, "more_body": False}], receive)


def _replay(messages: list[Message], receive: Receive) -> Receive:
    async def replayed() -> Message:
        return messages.pop() if messages else await receive()

    return replayed


def _length(headers: Headers) -> int:
    raw = headers.get("content-length", "0")
    return int(raw) if raw.isdecimal() and len(raw) < 20 else 0


def _is_json(content_type: str) -> bool:
    media = content_type.partition(";")[0].strip().lower()
    return media == "application/json" or (media.startswith("application/") and media.endswith("+json"))


def _plain(host: str) -> str:
    """A host as it is compared: lower case, without brackets, a final dot or another spelling of its address."""
    host = host.strip("[]").lower().removesuffix(".")
    try:
        return str(ip_address(host))
    except ValueError:
        return host
