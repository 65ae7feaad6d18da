"""Who calls: an API key or a JWT becomes a Principal.

    Authorization: Bearer dm_...      an API key, looked up by its SHA-256
    X-API-Key: dm_...                 the same
    Authorization: Bearer <JWT>       HS256 with the shared secret, or RS256 / ES256 / EdDSA with a published key (JWKS)

Credentials in the query string are not read at all. A browser that signed in to the console sends a session cookie
instead; it counts only for requests that a page of our own makes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from docmill.core.access import LOCAL, Principal
from docmill.core.errors import Unauthorized
from docmill.ports import KeyRing
from docmill.work.sessions import COOKIE, Sessions

if TYPE_CHECKING:
    from docmill.http.jwts import JwtJudge

KEY_PREFIX = "dm_"
MAX_CREDENTIAL = 8_192
CACHE_SIZE = 4_096


@dataclass(frozen=True, slots=True)
class AuthOptions:
    """`require=False`: the service is on loopback and has no accounts; everybody is LOCAL."""

    require: bool = True
    jwt_secret: str | None = None
    jwks_url: str | None = None
    jwks_file: Path | None = None
    audience: str | None = None
    """Supabase's is `authenticated`; without it the claim is not checked."""
    issuer: str | None = None
    leeway_s: float = 30.0
    cache_s: float = 5.0
    """A revoked key stops working after so long at the latest."""
    jwks_ttl_s: float = 300.0
    jwks_pause_s: float = 10.0
    """Between two fetches, however many unknown key ids arrive."""


class Authenticator:
    def __init__(
        self,
        options: AuthOptions,
        keys: KeyRing,
        *,
        sessions: Sessions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self._keys = keys
        self._sessions = sessions
        self._clock = clock
        self._jwts = jwt_judge(options, clock)
        self._seen: dict[str, tuple[float, Principal]] = {}

    async def identify(self, headers: Headers) -> Principal:
        """Who sent these headers; Unauthorized if they do not say, or say it wrongly."""
        if not self.options.require:
            return LOCAL
        if self._sessions and (session := session_of(headers)):
            return await self._sessions.who(session)
        token, is_key = _credential(headers)
        digest = sha256(token.encode()).hexdigest()
        now = self._clock()
        if (seen := self._seen.get(digest)) and now < seen[0]:
            return seen[1]
        self._seen.pop(digest, None)
        if is_key:
            who, left = await self._by_key(digest), self.options.cache_s
        else:
            who, left = await self._by_jwt(token)
        self._remember(digest, now + min(left, self.options.cache_s), who)
        return who

    async def _by_key(self, digest: str) -> Principal:
        who = await self._keys.find(digest)
        if who is None:
            raise Unauthorized("credential_invalid")
        return who

    async def _by_jwt(self, token: str) -> tuple[Principal, float]:
        if self._jwts is None:
            raise Unauthorized("credential_invalid")
        return await self._jwts.who(token)

    def _remember(self, digest: str, until: float, who: Principal) -> None:
        if len(self._seen) >= CACHE_SIZE:
            now = self._clock()
            self._seen = {one: entry for one, entry in self._seen.items() if now < entry[0]}
            if len(self._seen) >= CACHE_SIZE:
                self._seen.clear()
        self._seen[digest] = (until, who)


def jwt_judge(options: AuthOptions, clock: Callable[[], float]) -> JwtJudge | None:
    if not (options.jwt_secret or options.jwks_url or options.jwks_file):
        return None
    # With what they need, JWTs are a tenth of the service's start: who has none does not wait for them.
    from docmill.http.jwts import JwtJudge

    return JwtJudge(options, clock)


def session_of(headers: Headers) -> str:
    """The session that the request carries; nothing if another site makes it, or it brings a credential of its own."""
    if "cookie" not in headers or "authorization" in headers or "x-api-key" in headers:
        return ""
    try:
        is_ours = _is_own_page(headers)
        found = SimpleCookie(headers["cookie"]).get(COOKIE)
    except (CookieError, ValueError):
        return ""
    return found.value if found and is_ours else ""


def _is_own_page(headers: Headers) -> bool:
    """A link from elsewhere may be followed: it brings no Origin, and what it opens only reads."""
    origin = headers.get("origin")
    if origin is not None:
        return urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
    is_near = headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
    return is_near or headers.get("sec-fetch-mode") == "navigate"


def _credential(headers: Headers) -> tuple[str, bool]:
    """The token, and whether it is an API key."""
    bearers, keys = headers.getlist("authorization"), headers.getlist("x-api-key")
    if not bearers and not keys:
        raise Unauthorized("unauthenticated")
    tokens = {_bearer(one) for one in bearers} | {one.strip() for one in keys}
    token = tokens.pop()
    if tokens or not token or len(token) > MAX_CREDENTIAL or not token.isascii():
        raise Unauthorized("credential_invalid")
    return token, bool(keys) or token.startswith(KEY_PREFIX)


def _bearer(header: str) -> str:
    scheme, _, token = header.strip().partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthorized("credential_invalid")
    return token.strip()
