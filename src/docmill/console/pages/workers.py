"""Who does the work: the engines in this house, and the workers elsewhere."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import Response

from docmill.console.visit import Visit
from docmill.core.errors import DocmillError
from docmill.ports import ExternalWorker

if TYPE_CHECKING:
    from docmill.console.app import Console

CHECK_S = 5.0
HELD = 100


@dataclass(frozen=True, slots=True)
class Looked:
    worker: ExternalWorker
    code: str | None
    """Why it cannot be reached; empty: it can; None: nobody looked."""


async def show(console: Console, visit: Visit) -> Response:
    ports, is_operator = visit.ports, visit.who.is_operator
    asked = is_operator and visit.query("check") == "1"
    workers = await asyncio.gather(*(_look(one, asked=asked) for one in ports.workers.values()))
    held = await ports.ledger.held(limit=HELD) if is_operator else []
    counts = await ports.ledger.counts() if is_operator else {}
    return console.render(
        visit,
        "workers.html",
        page="workers",
        engines=list(ports.engines.values()),
        workers=workers,
        held=held,
        counts=counts,
        limits=ports.limits,
        asked=asked,
    )


async def _look(worker: ExternalWorker, *, asked: bool) -> Looked:
    if not asked:
        return Looked(worker, None)
    try:
        async with asyncio.timeout(CHECK_S):
            await worker.check()
    except DocmillError as error:
        return Looked(worker, error.code)
    except TimeoutError:
        return Looked(worker, "worker_unreachable")
    return Looked(worker, "")
