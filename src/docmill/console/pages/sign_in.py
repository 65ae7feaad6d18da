"""Sign in with an API key; sign out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from docmill.console.visit import Form, Visit
from docmill.core.errors import TooMany, Unauthorized
from docmill.work.sessions import COOKIE, LASTS_S

if TYPE_CHECKING:
    from docmill.console.app import Console

GUESSES = 20
WINDOW_S = 60.0


async def show(console: Console, visit: Visit) -> Response:
    if not console.options.needs_sign_in:
        return console.redirect(visit, "/")
    return console.render(visit, "sign_in.html", next=inside(visit.query("next")), error=None)


async def enter(console: Console, visit: Visit, form: Form) -> Response:
    client = console.options.client_of(visit.request.scope)
    limiter = console.ports.limiter
    if limiter is not None and (wait := await limiter.hit(f"sign-in:{client}", limit=GUESSES, window_s=WINDOW_S)):
        raise TooMany("rate_limited", retry_after=round(wait) + 1)
    try:
        session = await console.sessions.open(form.get("key"))
    except Unauthorized as error:
        return console.render(visit, "sign_in.html", 401, next=inside(form.get("next")), error=error)
    response = console.redirect(visit, inside(form.get("next")))
    secure = visit.request.url.scheme == "https"
    response.set_cookie(COOKIE, session, max_age=LASTS_S, httponly=True, samesite="lax", secure=secure)
    return response


async def leave(console: Console, visit: Visit, _: Form) -> Response:
    await console.sessions.close(visit.request.cookies.get(COOKIE, ""))
    response = console.redirect(visit, "/sign-in")
    response.delete_cookie(COOKIE, httponly=True, samesite="lax")
    return response


def inside(target: str) -> str:
    """Where to go afterwards: only ever to a page of our own."""
    is_ours = target.startswith("/") and not target.startswith("//") and "\\" not in target and target.isprintable()
    return target if is_ours else "/"
