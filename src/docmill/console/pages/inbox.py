"""The first page: drop files, and watch what becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from docmill.console.visit import Visit
from docmill.ports import Filter
from docmill.work import query, rulebook

if TYPE_CHECKING:
    from docmill.console.app import Console

RECENT = 12
RULES = 200


async def show(console: Console, visit: Visit) -> Response:
    ports = visit.ports
    rules, _ = await rulebook.page(ports, visit.who, limit=RULES, offset=0)
    recent = await query.tasks(ports, Filter(visit.who.owner, limit=RECENT))
    return console.render(
        visit,
        "inbox.html",
        page="inbox",
        rules=rules,
        chosen_rule=visit.number("rule"),
        engines=sorted(ports.engines | ports.workers, key=lambda name: (name != "local", name)),
        tasks=recent.tasks,
        total=recent.total,
        project_id=visit.number("project") or 0,
        limit=ports.limits.upload_bytes,
    )
