"""What a request must satisfy before any route sees it: pure ASGI, cheap, and in this order.

`Gate` refuses while the service shuts down, under a name that is not its own (DNS rebinding), and writes that another
web site sends through the user's browser. `BodyGuard` holds every request with a body to its route's limits: size,
authentication, then the body, and JSON only within bounds of depth and number.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from math import inf
from urllib.parse import urlsplit

from fastapi.routing import iter_route_contexts
from starlette.datastructures import Headers
from starlette.routing import BaseRoute, compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from docmill.core.access import Principal
from docmill.core.body_limits import BodyLimits, limits_of
from docmill.core.errors import BadRequest, DocmillError, Forbidden, TooLarge, Unavailable
from docmill.http.errors import answer
from docmill.http.json_meter import JsonMeter
from docmill.http.wire import check_json

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
ANY_HOST = "*"
OFF_LOOP_BYTES = 256 * 1024
"""JSON above this size is checked in a thread, so that other requests go on."""
OFF_LOOP_NODES = 20_000
MAX_PATH_CHARS = 4_096
"""More digits than `int` takes would be an error of the router's."""

MiB = 1024**2
Check = Callable[[], Awaitable[str | None]]
"""A part of the service says what is wrong with it, or None."""
Identify = Callable[[Headers], Awaitable[Principal]]
"""Who sent these headers; Unauthorized if nobody that we know."""

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """What the doors must know of the settings."""

    version: str = "0"
    allowed_hosts: tuple[str, ...] = ()
    """Names and addresses under which the service may be called, besides those of loopback; `*` for any,
    `*.example.org` for all below. None given: any if callers need a credential, which no rebound page has."""
    own_hosts: tuple[str, ...] = ()
    """Names of the service's own public address (`APP_URL`). They are allowed, and restrict nothing."""
    allowed_origins: tuple[str, ...] = ()
    """Web sites whose pages may call the API from a browser (CORS)."""
    metrics_token: str | None = None
    """Whoever sends it as a bearer token may read /metrics, from any machine."""
    json_bytes: int = 4 * MiB
    """Largest JSON body of a route that declares no limit of its own."""
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
    max_event_streams: int = 1000
    """Of one caller."""
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

    OPERATIONS = frozenset({"/health", "/ready", "/metrics"})
    """Answered while draining, too."""
    ANY_HOST_PATHS = OPERATIONS | {"/livez", "/readyz"}
    """Probes call a pod by its address, a scraper by whatever name it discovered."""

    def __init__(self, app: ASGIApp, *, options: HttpOptions, drain: Drain, is_open: bool) -> None:
        self.app = app
        self.drain = drain
        self.any_host = ANY_HOST in options.allowed_hosts or not (is_open or options.allowed_hosts)
        names = (*LOOPBACK_NAMES, *options.own_hosts, *options.allowed_hosts)
        self.hosts = frozenset(_plain(host) for host in names if not host.startswith("*."))
        self.suffixes = tuple(host[1:].lower() for host in options.allowed_hosts if host.startswith("*."))
        self.origins = frozenset(origin.lower().rstrip("/") for origin in options.allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            _drop_escaped_cookies(scope)
            _drop_foreign_cookies(scope)
        if scope["type"] == "http" and (refusal := self._refusal(scope)):
            await answer(scope, *refusal)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[DocmillError, dict[str, str]] | None:
        if len(scope["path"]) > MAX_PATH_CHARS:
            return BadRequest("request_invalid", why=f"the path has more than {MAX_PATH_CHARS} characters."), {}
        if self.drain.begun and scope["path"] not in self.OPERATIONS:
            return Unavailable("shutting_down"), {"Connection": "close"}
        if self.any_host or scope["path"] in self.ANY_HOST_PATHS:
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
    """Checks every request that may have a body, in this order: the route's size limit, authentication, body, parsing.

    FastAPI reads and parses a body before it resolves dependencies, authentication included. So this happens here, in
    front of it: nobody without a credential makes the service read a body, unless the route declares that it is public.
    The limits of a route are declared beside it with `accept_body`.
    """

    def __init__(self, app: ASGIApp, *, options: HttpOptions, identify: Identify) -> None:
        self.app = app
        self.default_bytes = options.json_bytes
        self.idle_s = options.body_idle_s
        self._identify = identify
        self._table = RouteTable()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _may_have_body(scope):
            await self.app(scope, receive, send)
            return
        limits = self._table.limits(scope)
        if limits is None:
            # No such route: the router answers 404 or 405, and reads nothing.
            await self.app(scope, receive, send)
            return
        try:
            receive = await self._admit(scope, limits, receive)
        except DocmillError as error:
            await (limits.refuse or answer)(scope, error)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    async def _admit(self, scope: Scope, limits: BodyLimits, receive: Receive) -> Receive:
        headers = Headers(scope=scope)
        max_bytes = self.default_bytes if limits.max_bytes is None else limits.max_bytes
        if not limits.is_streamed and _length(headers) > max_bytes:
            raise TooLarge("body_too_large", limit=max_bytes)
        if not limits.is_public:
            scope.setdefault("state", {})["who"] = await self._identify(headers)
        if limits.is_streamed:
            return self._counted(receive, inf)
        if limits.is_public:
            # The route identifies the caller before it reads anything.
            return self._counted(receive, max_bytes)
        receive = self._counted(receive, max_bytes)
        if _is_json(headers.get("content-type", "")):
            return await _checked(scope, receive, limits.max_nodes)
        return receive

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


class RouteTable:
    """Finds the declared limits of the route that will answer a request."""

    def __init__(self) -> None:
        self._routes = -1
        self._plain: dict[tuple[str, str], BodyLimits] = {}
        self._patterns: list[tuple[re.Pattern[str], frozenset[str], BodyLimits]] = []

    def limits(self, scope: Scope) -> BodyLimits | None:
        """None: no route takes this path and method."""
        routes = scope["app"].router.routes
        if len(routes) != self._routes:
            self._build(routes)
        path, method = scope["path"], scope["method"]
        if found := self._plain.get((method, path)):
            return found
        for pattern, methods, limits in self._patterns:
            if method in methods and pattern.match(path):
                return limits
        return None

    def _build(self, routes: Sequence[BaseRoute]) -> None:
        self._routes = len(routes)
        self._plain, self._patterns = {}, []
        for route in iter_route_contexts(routes):
            methods = frozenset(route.methods or ())
            limits = limits_of(route.endpoint)
            path = route.path or ""
            if "{" in path:
                self._patterns.append((compile_path(path)[0], methods, limits))
            else:
                for method in methods:
                    self._plain.setdefault((method, path), limits)


def _drop_escaped_cookies(scope: Scope) -> None:
    """Remove cookies with a backslash: `http.cookies` needs quadratic time for them before Python 3.12.6.

    60 KB of them stop the event loop for more than 10 s. None of ours has one.
    """
    if any(name == b"cookie" and b"\\" in value for name, value in scope["headers"]):
        scope["headers"] = [
            (name, b";".join(one for one in value.split(b";") if b"\\" not in one) if name == b"cookie" else value)
            for name, value in scope["headers"]
        ]


def _drop_foreign_cookies(scope: Scope) -> None:
    """A page of another site may link here, but not write with the session of its reader."""
    if scope["method"] in _SAFE_METHODS:
        return
    site = next((value for name, value in scope["headers"] if name == b"sec-fetch-site"), b"same-origin")
    if site not in (b"same-origin", b"none"):
        scope["headers"] = [(name, value) for name, value in scope["headers"] if name != b"cookie"]


async def _patient(receive: Receive, seconds: float) -> Message:
    """The next message, if it comes in time."""
    try:
        async with asyncio.timeout(seconds):
            return await receive()
    except TimeoutError:
        raise BadRequest("request_invalid", why=f"the body stopped arriving for {seconds:g} s.") from None


async def _checked(scope: Scope, receive: Receive, max_nodes: int) -> Receive:
    """Read JSON whole, measure it while it arrives, and parse it. The value stays in `request.state.json`."""
    chunks: list[bytes] = []
    meter = JsonMeter(max_nodes=max_nodes)
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return _replay([message], receive)
        chunk = message.get("body", b"")
        meter.feed(chunk)
        chunks.append(chunk)
        if not message.get("more_body", False):
            break
    body = b"".join(chunks)
    chunks.clear()
    if body:
        is_large = len(body) > OFF_LOOP_BYTES or meter.nodes > OFF_LOOP_NODES
        value = await asyncio.to_thread(check_json, body) if is_large else check_json(body)
        scope.setdefault("state", {})["json"] = value
    return _replay([{"type": "http.request", "body": body, "more_body": False}], receive)


def _replay(messages: list[Message], receive: Receive) -> Receive:
    async def replayed() -> Message:
        return messages.pop() if messages else await receive()

    return replayed


def _may_have_body(scope: Scope) -> bool:
    # HTTP/2 needs no header to send a body; with a safe method it would be unusual, and no route reads it.
    return scope["method"] not in _SAFE_METHODS


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
