"""Sessions of people who signed in to the console with an API key.

The cookie is a random token; the server stores its SHA-256 beside the key. Signing out, revoking the key or the end of
either one ends the session.
"""

from __future__ import annotations

import hmac
from secrets import token_urlsafe

from docmill.core.access import Principal
from docmill.core.errors import Unauthorized
from docmill.ports import KeyRing
from docmill.work.keys import digest

COOKIE = "docmill_session"
LASTS_S = 7 * 24 * 3600
MAX_SESSIONS_PER_KEY = 50
MAX_COOKIE_CHARS = 128


class Sessions:
    def __init__(self, secret: bytes, keys: KeyRing) -> None:
        self._secret = hmac.digest(secret, b"docmill sessions", "sha256")
        self._keys = keys

    async def open(self, key: str) -> str:
        """A new session for the holder of this API key; Unauthorized if the key is not valid."""
        session = token_urlsafe(32)
        is_open = await self._keys.open_session(
            digest(key.strip()), digest(session), lasts_ms=LASTS_S * 1000, most=MAX_SESSIONS_PER_KEY
        )
        if not is_open:
            raise Unauthorized("credential_invalid")
        return session

    async def who(self, session: str) -> Principal:
        """Who signed in; Unauthorized if the session is unknown or over, or its key is no longer valid."""
        found = await self._keys.find_session(digest(session)) if len(session) <= MAX_COOKIE_CHARS else None
        if found is None:
            raise Unauthorized("credential_invalid")
        return found

    async def close(self, session: str) -> None:
        """Sign out: the cookie is worth nothing from now on."""
        if 0 < len(session) <= MAX_COOKIE_CHARS:
            await self._keys.end_session(digest(session))

    def form_token(self, seed: str) -> str:
        """What a form of the browser that holds *seed* must carry: another site can neither read nor guess it."""
        return hmac.digest(self._secret, b"form " + seed.encode(), "sha256").hex()

    def is_form_token(self, seed: str, token: str) -> bool:
        return bool(seed) and hmac.compare_digest(self.form_token(seed).encode(), token.encode())
