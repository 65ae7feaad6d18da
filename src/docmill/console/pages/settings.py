"""API keys, for administrators of a tenant; health checks and the settings in force, for operators."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from docmill.console.visit import Form, Visit
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
    days = form.get("days")
    is_number = days.isdecimal() and len(days) <= 5 and 0 < int(days) <= 36_500
    ends = round(time.time() * 1000) + int(days) * DAY_MS if is_number else None
    is_operator = form.get("is_operator") == "1"
    who = Principal(
        form.get("user").strip() or visit.who.user,
        form.get("tenant").strip() or visit.who.tenant,
        is_admin=is_operator or form.get("is_admin") == "1",
        is_operator=is_operator,
    )
    key, secret = await keys.create(visit.ports, form.get("name"), who, by=visit.who, expires_ms=ends)
    return await _show(console, visit, fresh=key, secret=secret)


async def revoke_key(console: Console, visit: Visit, form: Form) -> Response:
    key = next((one for one in await keys.listed(visit.ports, visit.who) if one.id == form.get("key_id")), None)
    _ = visit.words
    if key and not form.is_confirmed:
        return console.confirm(
            visit,
            form,
            title=_("Revoke the API key %(name)s?", name=key.name),
            losses=[
                _("Programs that use this key lose access immediately, and console sessions opened with it end."),
                _("A revoked key cannot be restored. Tasks and documents of its user are kept."),
            ],
            button=_("Revoke"),
            back="/settings#keys",
        )
    if not await keys.revoke(visit.ports, form.get("key_id"), visit.who):
        raise NotFound("route_not_found")
    return console.redirect(visit, "/settings#keys")


async def _show(console: Console, visit: Visit, **fresh: Any) -> Response:
    who, options = visit.who, console.options
    findings = []
    if who.is_operator and options.examine and visit.query("examine") == "1":
        findings = [one async for one in options.examine()]
    return console.render(
        visit,
        "settings.html",
        page="settings",
        findings=findings,
        examined=bool(findings),
        settings=options.settings if who.is_operator else {},
        keys=await keys.listed(visit.ports, who) if who.can_manage_keys else [],
        fresh=fresh.get("fresh"),
        secret=fresh.get("secret", ""),
    )
