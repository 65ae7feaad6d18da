"""Sign-in for people: a session is a signed cookie that names the API key it was opened with, never the key itself.

    <sha256 of the key>.<seconds since 1970 when it ends>.<HMAC>

Nothing is stored: whoever revokes the key ends its sessions, too.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from hashlib import sha256

from docmill.core.access import Principal
from docmill.core.errors import Unauthorized
from docmill.ports import KeyRing
from docmill.work.keys import digest

COOKIE = "docmill_session"
LASTS_S = 7 * 24 * 3600


class Sessions:
    def __init__(self, secret: bytes, keys: KeyRing, *, clock: Callable[[], float] = time.time) -> None:
        self._secret = hmac.digest(secret, b"docmill sessions", "sha256")
        self._keys = keys
        self._clock = clock

    async def open(self, key: str) -> str:
        """A session for whoever holds this API key; Unauthorized if it is none."""
        named = digest(key.strip())
        if await self._keys.find(named) is None:
            raise Unauthorized("credential_invalid")
        return self._signed(f"{named}.{int(self._clock()) + LASTS_S}")

    async def who(self, session: str) -> Principal:
        """Who opened it; Unauthorized if it is forged, over, or its key no longer good."""
        claim, _, _ = session.rpartition(".")
        if not session.isascii() or not hmac.compare_digest(self._signed(claim), session):
            raise Unauthorized("credential_invalid")
        named, _, ends = claim.partition(".")
        found = await self._keys.find(named) if int(ends) > self._clock() else None
        if found is None:
            raise Unauthorized("credential_invalid")
        return found

    def form_token(self, seed: str) -> str:
        """What a form of the browser that holds *seed* must carry: another site can neither read nor guess it."""
        return hmac.digest(self._secret, b"form " + seed.encode(), "sha256").hex()

    def is_form_token(self, seed: str, token: str) -> bool:
        return bool(seed) and hmac.compare_digest(self.form_token(seed).encode(), token.encode())

    def _signed(self, claim: str) -> str:
        mac = hmac.digest(self._secret, b"session " + claim.encode(), sha256().name).hex()
        return f"{claim}.{mac}"
