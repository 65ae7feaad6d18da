"""One visit to a page: who comes, in which language and theme, and the token that proves a form to be ours."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from secrets import token_urlsafe
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request

from docmill.console.words import LANGUAGES, Words, words
from docmill.core.access import Principal
from docmill.core.catalogue import best_language
from docmill.core.errors import BadRequest, Forbidden
from docmill.ports import Ports
from docmill.work.sessions import Sessions

LANGUAGE_COOKIE = "docmill_language"
THEME_COOKIE = "docmill_theme"
SEED_COOKIE = "docmill_form"
THEMES = ("auto", "light", "dark")
MAX_FIELDS = 1_000
OFF_LOOP_BYTES = 64 * 1024


@dataclass(slots=True)
class Visit:
    request: Request
    ports: Ports
    who: Principal
    words: Words
    theme: str
    seed: str
    form_token: str
    has_session: bool
    notices: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """This page with its query, to come back to."""
        query = self.request.url.query
        return self.request.url.path + (f"?{query}" if query else "")

    def query(self, name: str, default: str = "") -> str:
        return self.request.query_params.get(name, default)

    def number(self, name: str) -> int | None:
        """A query parameter that is a whole number; anything else counts as not given."""
        text = self.query(name)
        return int(text) if text.isdecimal() and len(text) < 19 else None

    def with_query(self, **changes: Any) -> str:
        """This page's address with some parameters changed; None takes one out."""
        kept = [(name, value) for name, value in self.request.query_params.multi_items() if name not in changes]
        added = [(name, str(value)) for name, value in changes.items() if value is not None]
        query = urlencode([*kept, *added])
        return self.request.url.path + (f"?{query}" if query else "")


def open_visit(request: Request, ports: Ports, who: Principal, sessions: Sessions, *, has_session: bool) -> Visit:
    cookies = request.cookies
    language = cookies.get(LANGUAGE_COOKIE, "")
    if language not in LANGUAGES:
        language = best_language(request.headers.get("accept-language", ""))
    theme = cookies.get(THEME_COOKIE, "auto")
    seed = cookies.get(SEED_COOKIE, "")
    if not 20 <= len(seed) <= 64 or not seed.isascii():
        seed = token_urlsafe(24)
    return Visit(
        request=request,
        ports=ports,
        who=who,
        words=words(language),
        theme=theme if theme in THEMES else "auto",
        seed=seed,
        form_token=sessions.form_token(f"{seed} {who.tenant} {who.user}"),
        has_session=has_session,
    )


class Form:
    """The fields of a submitted form, and proof that one of our own pages sent it."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs = pairs

    def get(self, name: str, default: str = "") -> str:
        return next((value for key, value in self._pairs if key == name), default)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self._pairs if key == name]

    @property
    def is_confirmed(self) -> bool:
        return self.get("confirmed") == "1"

    @property
    def fields(self) -> list[tuple[str, str]]:
        """What the visitor sent, to be sent once more from a page that asks for confirmation."""
        return [pair for pair in self._pairs if pair[0] != "token"]


async def read_form(visit: Visit, sessions: Sessions) -> Form:
    """Forbidden unless the token is this browser's: then another site cannot have sent it."""
    request = visit.request
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise BadRequest("request_invalid", why="a form is expected.")
    body = await request.body()
    try:
        form = await asyncio.to_thread(_parse_form, body) if len(body) > OFF_LOOP_BYTES else _parse_form(body)
    except ValueError:
        raise BadRequest("request_invalid", why="the form cannot be read.") from None
    seed = f"{request.cookies.get(SEED_COOKIE, '')} {visit.who.tenant} {visit.who.user}"
    if not request.cookies.get(SEED_COOKIE) or not sessions.is_form_token(seed, form.get("token")):
        raise Forbidden("form_expired")
    return form


def _parse_form(body: bytes) -> Form:
    return Form(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=False, max_num_fields=MAX_FIELDS))
