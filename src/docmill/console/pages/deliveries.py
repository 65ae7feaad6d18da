"""What external workers reported, and what we answered and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import Response

from docmill.console.visit import Visit
from docmill.core.task import Attempt
from docmill.ports import Delivery
from docmill.work import jobs

if TYPE_CHECKING:
    from docmill.console.app import Console

PAGE = 30
CALLBACKS = 20


@dataclass(frozen=True, slots=True)
class Reported:
    job: Attempt
    callbacks: list[Delivery]


async def show(console: Console, visit: Visit) -> Response:
    found = await jobs.page(visit.ports, visit.who, before_ms=visit.number("before"), limit=PAGE)
    reported = [Reported(one, await visit.ports.ledger.deliveries(one.id, limit=CALLBACKS)) for one in found]
    older = found[-1].started_ms if len(found) == PAGE else None
    return console.render(visit, "deliveries.html", page="deliveries", reported=reported, older=older)
