"""`/metrics` and `/health` of a process without the HTTP API: a worker, on a port of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import uvicorn
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from docmill.core.errors import Unauthorized
from docmill.http.errors import answer
from docmill.http.metrics import Metrics, may_scrape
from docmill.http.stoppable import StoppableServer
from docmill.ports import Ports


def build_metrics_app(
    ports: Ports, metrics: Metrics, *, version: str, token: str | None, is_alive: Callable[[], bool]
) -> Starlette:
    async def get_metrics(request: Request) -> Response:
        if not may_scrape(request, token):
            return answer(request.scope, Unauthorized("unauthenticated"))
        return Response(await metrics.text(ports), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def get_health(_: Request) -> Response:
        if is_alive():
            return JSONResponse({"status": "ok", "version": version})
        return JSONResponse({"status": "unavailable", "version": version}, status_code=503)

    return Starlette(routes=[Route("/metrics", get_metrics), Route("/health", get_health)])


@asynccontextmanager
async def serving(app: Starlette, metrics: Metrics, listener: socket.socket) -> AsyncIterator[None]:
    """Answer on *listener* while the context is open."""
    config = uvicorn.Config(
        app,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    running = [
        asyncio.ensure_future(StoppableServer(config).serve_until_cancelled(listener)),
        asyncio.ensure_future(metrics.watch_loop()),
    ]
    try:
        yield
    finally:
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
