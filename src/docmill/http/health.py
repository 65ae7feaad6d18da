"""`/health`: the process lives. `/ready`: it can do its work, and if not, which part fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable

import structlog
from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from docmill.core.errors import DocmillError
from docmill.http.bound import Bound
from docmill.http.limits import Check, Drain, HttpOptions
from docmill.http.wire import Json
from docmill.ports import Ports
from docmill.work.sandbox import sandbox_level

CHECK_S = 3.0
KEEP_S = 1.0
"""Whoever asks more often gets the answer of before: the route is open to all."""
PROBE_KEY = "health/probe"
GOOD_ENOUGH = frozenset({"ok", "degraded"})
"""A part that can be done without is degraded when it fails: slower, but ready."""

log = structlog.get_logger("docmill.http")
router = APIRouter(tags=["operations"])


class Health(BaseModel):
    status: str
    version: str


class Readiness(BaseModel):
    status: str
    checks: dict[str, str]
    sandbox: str
    """How parsers are confined: full, jailed, partial, weak, or unknown before the first has started."""


@router.head("/health", include_in_schema=False)
@router.get("/health", response_model=Health, summary="Is the process alive?")
async def get_health(request: Request) -> Response:
    """Answers as long as the process runs. It asks no other part."""
    options: HttpOptions = request.app.state.options
    return Json({"status": "ok", "version": options.version})


@router.head("/ready", include_in_schema=False)
@router.get(
    "/ready",
    response_model=Readiness,
    summary="Can it work?",
    responses={503: {"model": Readiness, "description": "A part fails; `checks` says which."}},
)
async def get_ready(request: Request, ports: Bound) -> Response:
    """Whether database, store, disk and worker can do their work, each with `ok` or a code."""
    readiness: Prober = request.app.state.prober
    checks = await readiness.look(ports)
    drain: Drain = request.app.state.drain
    if drain.begun:
        checks = {**checks, "service": "shutting_down"}
    is_ready = all(word in GOOD_ENOUGH for word in checks.values())
    return Json(
        {"status": "ready" if is_ready else "unavailable", "checks": checks, "sandbox": sandbox_level(ports)},
        status_code=200 if is_ready else 503,
        headers={} if is_ready else {"Retry-After": "2"},
    )


class Prober:
    """Asks every part at once, each with a time limit, and keeps the answer for a moment."""

    def __init__(self, options: HttpOptions) -> None:
        self._options = options
        self._lock = asyncio.Lock()
        self._until = float("-inf")
        self._last: dict[str, str] = {}

    async def look(self, ports: Ports) -> dict[str, str]:
        async with self._lock:
            if time.monotonic() >= self._until:
                self._last = await self._ask(ports)
                self._until = time.monotonic() + KEEP_S
            return self._last

    async def _ask(self, ports: Ports) -> dict[str, str]:
        async def database() -> str | None:
            await ports.ledger.ping()
            return None

        async def store() -> str | None:
            await ports.store.stat(PROBE_KEY)
            return None

        async def disk() -> str | None:
            free = await ports.store.free_bytes()
            return "storage_full" if free is not None and free < self._options.min_free_bytes else None

        async def worker() -> str | None:
            is_working = self._options.is_working
            return None if is_working is None or is_working() else "worker_lost"

        checks: dict[str, Check] = {"database": database, "store": store, "disk": disk, "worker": worker}
        checks |= self._options.checks
        words = await asyncio.gather(*(_word(name, check()) for name, check in checks.items()))
        return dict(zip(checks, words, strict=True))


async def _word(name: str, check: Awaitable[str | None]) -> str:
    """`ok`, or a code. What an exception says stays in the log."""
    try:
        async with asyncio.timeout(CHECK_S):
            return await check or "ok"
    except TimeoutError:
        word = "timeout"
    except DocmillError as error:
        word = error.code
    except Exception as error:
        log.warning("not_ready", part=name, error=f"{type(error).__name__}: {error}")
        word = "failed"
    return word
