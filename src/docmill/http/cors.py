"""CORS: pages of the configured origins may call the API from a browser. Pure ASGI, outside every other middleware.

Errors of any layer, streams and 304 answers carry the headers too: without them a browser hides the answer from the
page, and the page cannot tell a refused request from a broken network.

`Access-Control-Allow-Credentials` is never sent. Clients authenticate with a header (`Authorization` or `X-API-Key`);
the session cookie belongs to the console's own pages.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PREFLIGHT_MAX_AGE_S: Final = 600
METHODS: Final = "GET, HEAD, POST, PUT, DELETE"
REQUEST_HEADERS: Final = ", ".join(
    (
        *("Accept", "Accept-Language", "Authorization", "Cache-Control", "Content-Language", "Content-Type"),
        *("Idempotency-Key", "If-None-Match", "Last-Event-ID", "Prefer", "Range", "traceparent", "tracestate"),
        *("X-API-Key", "X-Request-ID", "X-Requested-With"),
    )
)
"""What the API reads, and what common HTTP libraries add by themselves."""
EXPOSED_HEADERS: Final = ", ".join(
    (
        *("Content-Disposition", "Content-Length", "Content-Range", "ETag", "Idempotent-Replayed"),
        *("Preference-Applied", "Retry-After", "WWW-Authenticate", "X-Request-ID"),
    )
)


class Cors:
    def __init__(self, app: ASGIApp, *, origins: Iterable[str], paths: tuple[str, ...]) -> None:
        self.app = app
        self.origins = frozenset(origins)
        self.paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(self.paths):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin", "")
        is_allowed = origin in self.origins
        if is_allowed and scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await _answer_preflight(headers, origin)(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                answer.add_vary_header("Origin")
                if is_allowed:
                    answer["Access-Control-Allow-Origin"] = origin
                    answer["Access-Control-Expose-Headers"] = EXPOSED_HEADERS
            await send(message)

        await self.app(scope, receive, send_with_headers)


def _answer_preflight(asked: Headers, origin: str) -> Response:
    """What is allowed, whatever was asked for: the browser compares."""
    headers = {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": METHODS,
        "Access-Control-Allow-Headers": REQUEST_HEADERS,
        "Access-Control-Max-Age": str(PREFLIGHT_MAX_AGE_S),
        "Vary": "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
    }
    if asked.get("access-control-request-private-network") == "true":
        # Chromium asks before a public page calls a private address.
        headers["Access-Control-Allow-Private-Network"] = "true"
    return Response(status_code=204, headers=headers)
