"""Language and theme, kept in cookies so that the server renders them and nothing flashes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from docmill.console.pages.sign_in import inside
from docmill.console.visit import LANGUAGE_COOKIE, THEME_COOKIE, THEMES, Form, Visit
from docmill.console.words import LANGUAGES

if TYPE_CHECKING:
    from docmill.console.app import Console

YEAR_S = 365 * 24 * 3600


async def change(console: Console, visit: Visit, form: Form) -> Response:
    response = console.redirect(visit, inside(form.get("next")))
    for name, allowed in ((LANGUAGE_COOKIE, LANGUAGES), (THEME_COOKIE, THEMES)):
        chosen = form.get(name)
        if chosen in allowed:
            response.set_cookie(name, chosen, max_age=YEAR_S, httponly=True, samesite="lax")
    return response
