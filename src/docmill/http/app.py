"""The HTTP service: doors in front of the use cases.

Middleware is pure ASGI, from the outside in: `Cors` (if origins are configured), `Envelope` (request id, headers,
access log, last resort), `Gate` and `BodyGuard` (limits, and authentication of whoever sends a body), then FastAPI.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from time import perf_counter
from uuid import uuid4

import structlog
from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from docmill.core.mineru import PARSE_ID
from docmill.http import (
    code_pages,
    contracts,
    docling,
    documents,
    errors,
    events,
    health,
    jobs,
    metrics,
    mineru,
    mineru_cloud,
    objects,
    rules,
    tables,
    tasks,
    uploads,
    watch,
    webhooks,
)
from docmill.http.auth import Authenticator, AuthOptions
from docmill.http.callbacks import CallbackFront, CallbackOptions
from docmill.http.cors import Cors
from docmill.http.errors import CLIENT_GONE, unexpected
from docmill.http.events import StreamSlots, Tails
from docmill.http.health import Prober
from docmill.http.limits import BodyGuard, Drain, Gate, HttpOptions
from docmill.http.metrics import Metrics, route_of
from docmill.http.openapi import OpenApiDocument, operation_id
from docmill.http.watch import Boards
from docmill.ports import Ports

__all__ = ["AuthOptions", "Authenticator", "Drain", "HttpOptions", "build_app"]

DOORS = (
    code_pages,
    *(uploads, tasks, events, watch, rules, tables, documents, contracts, jobs),
    *(webhooks, objects, health, metrics, docling, mineru, mineru_cloud),
)
QUIET = frozenset({"/health", "/ready", "/livez", "/readyz", "/metrics"})
API = (
    *("/api/", "/v1/", "/version", "/health", "/ready", "/livez", "/metrics", "/openapi.json", "/docs/"),
    *("/file_parse", "/mineru/"),
)
EVERYWHERE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}
ON_API = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

log = structlog.get_logger("docmill.access")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PARSE_PATH = re.compile(f"/tasks/{PARSE_ID}")


class App(FastAPI):
    """FastAPI behind the door for callbacks, which are too many for the layers that it wraps around its middleware."""

    front: CallbackFront

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not await self.front.take(scope, receive, send):
            await super().__call__(scope, receive, send)


def build_app(
    ports: Ports,
    *,
    auth: Authenticator,
    options: HttpOptions,
    callbacks: CallbackOptions | None = None,
    lifespan: Lifespan | None = None,
) -> FastAPI:
    """The app. `app.state.drain.begin()` makes it finish what it does and take nothing new."""
    app = App(
        title="docmill",
        version=options.version,
        description="Documents in, validated Markdown, images and tables out.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        generate_unique_id_function=operation_id,
        lifespan=_lifespan(lifespan),
    )
    drain = Drain()
    app.state.ports, app.state.auth, app.state.options, app.state.drain = ports, auth, options, drain
    app.state.metrics = Metrics(options.version)
    app.state.prober = Prober(options)
    app.state.streams = StreamSlots(options.max_event_streams)
    app.state.tails = Tails(ports, options, drain)
    app.state.boards = Boards(ports, options, drain)
    errors.install(app)
    for door in DOORS:
        app.include_router(door.router)
    app.add_middleware(BodyGuard, options=options, identify=auth.identify)
    app.add_middleware(Gate, options=options, drain=drain, is_open=not auth.options.require)
    app.add_middleware(Envelope, metrics=app.state.metrics)
    if options.allowed_origins:
        # MinerU's `/tasks` shares its path with a page of the console, which a request without a cookie does not see.
        app.add_middleware(Cors, origins=options.allowed_origins, paths=(*API, "/tasks"))
    app.front = CallbackFront(
        ports=ports, options=callbacks or CallbackOptions(), drain=drain, metrics=app.state.metrics
    )
    document = OpenApiDocument(app)
    app.openapi = document.build  # type: ignore[method-assign]  # FastAPI's own way to extend it
    app.router.add_route("/openapi.json", document.answer, include_in_schema=False)
    return app


class Envelope:
    """Gives every request its id and every answer its headers, and leaves one line in the log."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = _request_id(headers)
        scope.setdefault("state", {})["request_id"] = request_id
        began, status = perf_counter(), 0
        body = Body(receive, headers)
        self.metrics.began()

        async def dressed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                answer = MutableHeaders(scope=message)
                _dress(scope["path"], answer, request_id)
                if status >= 400 and not body.is_complete:
                    answer["Connection"] = "close"
            elif status >= 400 and not message.get("more_body", False) and not body.is_complete:
                await send({**message, "more_body": True})
                await body.linger()
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self.app(scope, body.receive, dressed)
            except ClientDisconnect:
                pass
            except Exception as error:
                if status:
                    # The answer is half out: only a broken connection tells the client so.
                    raise
                await unexpected(error, scope)(scope, receive, dressed)
            finally:
                self._done(scope, status or CLIENT_GONE, perf_counter() - began)

    def _done(self, scope: Scope, status: int, seconds: float) -> None:
        route = route_of(scope)
        self.metrics.ended(route, scope["method"], status, seconds)
        who = scope["state"].get("who")
        say = log.debug if scope["path"] in QUIET else log.info
        say(
            "request",
            method=scope["method"],
            path=_shown(scope["path"]),
            route=route,
            status=status,
            ms=round(seconds * 1000, 2),
            peer=scope["client"][0] if scope.get("client") else None,
            user=who.user if who else None,
            tenant=who.tenant if who else None,
        )


class Body:
    """Knows whether the request was read to its end.

    A connection that closes on bytes nobody read is reset, and the reset can overtake the answer. Many clients look for
    an answer only when all is sent. So after an early answer some more is read and thrown away, within bounds.
    """

    LINGER_S = 5.0
    LINGER_BYTES = 64 * 1024**2
    LAST_LOOK_S = 0.5

    def __init__(self, receive: Receive, headers: Headers) -> None:
        self._receive = receive
        self.is_complete = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self.is_complete = True
        return message

    async def linger(self) -> None:
        read = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(self.LINGER_S):
                while not self.is_complete and read < self.LINGER_BYTES:
                    read += len((await self.receive()).get("body", b""))
                if not self.is_complete:
                    await asyncio.sleep(self.LAST_LOOK_S)


def _request_id(headers: Headers) -> str:
    given = headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else uuid4().hex


def _dress(path: str, headers: MutableHeaders, request_id: str) -> None:
    headers["X-Request-ID"] = request_id
    for name, value in EVERYWHERE.items():
        headers.setdefault(name, value)
    if path.startswith(API) or _PARSE_PATH.match(path):
        for name, value in ON_API.items():
            headers.setdefault(name, value)


def _lifespan(inner: Lifespan | None) -> Lifespan:
    @asynccontextmanager
    async def run(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if inner:
                await stack.enter_async_context(inner(app))
            watching = asyncio.ensure_future(app.state.metrics.watch_loop())
            try:
                yield
            finally:
                app.state.drain.begin()
                watching.cancel()
                await asyncio.wait({watching})

    return run


def _shown(path: str) -> str:
    """A signed link is a credential: its address does not belong into a log."""
    return next((f"{prefix}…" for prefix in LINKS if path.startswith(prefix)), path)


LINKS = ("/api/v1/objects/", "/api/v4/uploads/", "/api/v4/results/")
