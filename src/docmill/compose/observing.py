"""What operators watch of a worker: its metrics and its health, on a port of their own."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from docmill import __version__
from docmill.ports import Ports
from docmill.settings import Settings
from docmill.worker import Worker


def metrics_token(settings: Settings) -> str | None:
    return settings.metrics_token.get_secret_value() if settings.metrics_token else None


@asynccontextmanager
async def observed(
    settings: Settings, ports: Ports, worker: Worker, listener: socket.socket | None
) -> AsyncIterator[None]:
    """Serve /metrics and /health of *worker* while the context is open, if there is a *listener*."""
    if listener is None:
        yield
        return
    from docmill.http.metrics import Metrics
    from docmill.http.metrics_server import build_metrics_app, serving

    metrics = Metrics(__version__)
    metrics.observe_worker(is_alive=lambda: worker.is_alive, count_running=lambda: worker.busy)
    app = build_metrics_app(
        ports, metrics, version=__version__, token=metrics_token(settings), is_alive=lambda: worker.is_alive
    )
    async with serving(app, metrics, listener):
        yield
