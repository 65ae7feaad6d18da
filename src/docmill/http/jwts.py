"""Who a JWT speaks for.

The algorithm of a JWT decides which kind of key may judge it, so a public key never serves as a shared secret.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import jwt
import msgspec
import structlog

from docmill.core.access import LOCAL, Principal, is_tenant, tenant_of_one
from docmill.core.errors import Unauthorized, Unavailable
from docmill.http.auth import AuthOptions

MAX_ID = 255
MAX_JWKS_BYTES = 256 * 1024
MAX_JWKS_KEYS = 32
KEY_TYPES = {"RS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}
CURVES = {"ES256": "P-256", "EdDSA": "Ed25519"}

log = structlog.get_logger("docmill.auth")


class JwtJudge:
    def __init__(self, options: AuthOptions, clock: Callable[[], float]) -> None:
        self.options = options
        self._jwks = Jwks.of(options, clock)

    async def who(self, token: str) -> tuple[Principal, float]:
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise Unauthorized("credential_invalid") from None
        for key, algorithm in await self._judges(header):
            if claims := self._claims(token, key, algorithm):
                return principal(claims), _expiry(claims) + self.options.leeway_s - time.time()
        raise Unauthorized("credential_invalid")

    async def _judges(self, header: dict[str, Any]) -> list[tuple[Any, str]]:
        """The keys that may judge the token, each with the one algorithm that it is used with."""
        algorithm, kid = header.get("alg"), header.get("kid")
        if "crit" in header or header.get("b64") is False:
            return []
        if not isinstance(algorithm, str):
            return []
        if algorithm == "HS256" and self.options.jwt_secret:
            return [(self.options.jwt_secret, "HS256")]
        if algorithm in KEY_TYPES and self._jwks:
            return [(key, algorithm) for key in await self._jwks.find(algorithm, kid)]
        return []

    def _claims(self, token: str, key: Any, algorithm: str) -> dict[str, Any] | None:
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self.options.audience,
                issuer=self.options.issuer,
                leeway=self.options.leeway_s,
                options={"require": ["exp", "sub"], "verify_aud": self.options.audience is not None},
            )
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            return None
        return claims


def principal(claims: dict[str, Any]) -> Principal:
    """Supabase's shape. `user_metadata` is not looked at: its owner may write it."""
    given = claims.get("app_metadata")
    app = given if isinstance(given, dict) else {}
    user = _id(claims.get("sub"))
    tenant = app.get("tenant_id", claims.get("tenant_id"))
    if tenant is None:
        tenant = tenant_of_one(user)
    elif not is_tenant(_id(tenant)) or tenant == LOCAL.tenant:
        # What was stored before there were accounts lies under the local name.
        raise Unauthorized("credential_invalid")
    role = app.get("role")
    return Principal(user, tenant, is_admin=role in ("admin", "operator"), is_operator=role == "operator")


def _expiry(claims: dict[str, Any]) -> float:
    expiry = claims["exp"]
    if isinstance(expiry, bool) or not isinstance(expiry, int | float) or not 0 < expiry < 2**53:
        raise Unauthorized("credential_invalid")
    return expiry


def _id(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID or not value.isprintable() or value != value.strip():
        raise Unauthorized("credential_invalid")
    return value


Fetch = Callable[[], Awaitable[bytes]]


class Jwks:
    """Published keys, kept for a while. An unknown key id makes it look again: keys rotate."""

    def __init__(self, fetch: Fetch, options: AuthOptions, clock: Callable[[], float]) -> None:
        self._fetch = fetch
        self._options = options
        self._clock = clock
        self._keys: list[jwt.PyJWK] = []
        self._fresh_until = self._next_fetch = float("-inf")
        self._lock = asyncio.Lock()

    @classmethod
    def of(cls, options: AuthOptions, clock: Callable[[], float]) -> Jwks | None:
        if options.jwks_file:
            return cls(lambda: asyncio.to_thread(_read, options.jwks_file), options, clock)
        if options.jwks_url:
            return cls(lambda: _get(str(options.jwks_url)), options, clock)
        return None

    async def find(self, algorithm: str, kid: Any) -> list[Any]:
        """The keys that may judge a token with this header."""
        if self._clock() >= self._fresh_until:
            await self._refresh()
        found = self._matching(algorithm, kid)
        if not found:
            await self._refresh()
            found = self._matching(algorithm, kid)
        if not found and not self._keys:
            # We cannot tell a good token from a bad one: that is our fault, not the caller's.
            raise Unavailable("keys_unavailable")
        return [key.key for key in found]

    def _matching(self, algorithm: str, kid: Any) -> list[jwt.PyJWK]:
        right = [key for key in self._keys if key.algorithm_name == algorithm]
        return right if kid is None else [key for key in right if key.key_id == kid]

    async def _refresh(self) -> None:
        async with self._lock:
            if self._clock() < self._next_fetch:
                return
            self._next_fetch = self._clock() + self._options.jwks_pause_s
            try:
                self._keys = read_jwks(await self._fetch())
            except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError, RecursionError) as error:
                log.warning("jwks_unavailable", error=f"{type(error).__name__}: {error}")
                return
            self._fresh_until = self._clock() + self._options.jwks_ttl_s


def read_jwks(raw: bytes) -> list[jwt.PyJWK]:
    """The keys of a JWKS that can check signatures of ours. Shared secrets and foreign types are left out."""
    value = msgspec.json.decode(raw)
    listed = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(listed, list):
        raise ValueError("not a JWKS: there is no list 'keys'")
    return [key for one in listed[:MAX_JWKS_KEYS] if isinstance(one, dict) and (key := _key(one))]


def _key(one: dict[str, Any]) -> jwt.PyJWK | None:
    algorithm = next((name for name, kind in KEY_TYPES.items() if kind == one.get("kty")), None)
    if algorithm is None or one.get("use", "sig") != "sig" or one.get("alg", algorithm) != algorithm:
        return None
    if algorithm in CURVES and one.get("crv") != CURVES[algorithm]:
        return None
    public = {name: part for name, part in one.items() if name not in ("d", "p", "q", "dp", "dq", "qi", "oth")}
    try:
        return jwt.PyJWK.from_dict(public, algorithm)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None


def _read(path: Path | None) -> bytes:
    if path is None or path.stat().st_size > MAX_JWKS_BYTES:
        raise ValueError("the JWKS is missing or too large")
    return path.read_bytes()


async def _get(url: str) -> bytes:
    body = bytearray()
    async with (
        httpx2.AsyncClient(timeout=5.0, follow_redirects=False, trust_env=False) as client,
        client.stream("GET", url, headers={"Accept": "application/json", "Accept-Encoding": "identity"}) as response,
    ):
        response.raise_for_status()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_JWKS_BYTES:
                raise ValueError("the JWKS is too large")
    return bytes(body)
