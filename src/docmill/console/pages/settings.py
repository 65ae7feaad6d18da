"""How the service is set up: what the doctor finds, the settings in force, API keys."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from docmill.console.visit import Form, Visit, admins_only
from docmill.core.access import Principal
from docmill.core.errors import NotFound
from docmill.work import keys

if TYPE_CHECKING:
    from docmill.console.app import Console

DAY_MS = 86_400_000


async def show(console: Console, visit: Visit) -> Response:
    return await _show(console, visit)


async def create_key(console: Console, visit: Visit, form: Form) -> Response:
    """The secret is in this one answer, and nowhere else."""
    admins_only(visit)
    days = form.get("days")
    ends = round(time.time() * 1000) + int(days) * DAY_MS if days.isdecimal() and 0 < int(days) <= 36_500 else None
    who = Principal(form.get("user").strip() or visit.who.user, visit.who.tenant, is_admin=form.get("is_admin") == "1")
    key, secret = await keys.create(visit.ports, form.get("name"), who, expires_ms=ends)
    return await _show(console, visit, fresh=key, secret=secret)


async def revoke_key(console: Console, visit: Visit, form: Form) -> Response:
    admins_only(visit)
    if not await keys.revoke(visit.ports, form.get("key_id")):
        raise NotFound("route_not_found")
    return console.redirect(visit, "/settings#keys")


async def _show(console: Console, visit: Visit, **fresh: Any) -> Response:
    is_admin, options = visit.who.is_admin, console.options
    findings = []
    if is_admin and options.examine and visit.query("examine") == "1":
        findings = [one async for one in options.examine()]
    return console.render(
        visit,
        "settings.html",
        page="settings",
        findings=findings,
        examined=bool(findings),
        settings=options.settings if is_admin else {},
        keys=await keys.listed(visit.ports) if is_admin else [],
        fresh=fresh.get("fresh"),
        secret=fresh.get("secret", ""),
    )
