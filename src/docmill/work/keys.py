"""API keys: made here, shown once, and stored only as their SHA-256."""

from __future__ import annotations

from hashlib import sha256
from secrets import token_urlsafe

from docmill.core.access import Principal
from docmill.core.errors import Invalid
from docmill.ports import ApiKey, Ports

PREFIX = "dm_"
MAX_NAME = 128


async def create(ports: Ports, name: str, principal: Principal, *, expires_ms: int | None = None) -> tuple[ApiKey, str]:
    """A new key and its secret. Nobody can read the secret again."""
    if not 0 < len(name.strip()) <= MAX_NAME or not name.isprintable():
        raise Invalid("request_invalid", why=f"a key's name has 1 to {MAX_NAME} printable characters.")
    if not principal.user or not principal.tenant:
        raise Invalid("request_invalid", why="a key needs a user and a tenant.")
    secret = PREFIX + token_urlsafe(32)
    return await ports.keys.add(name.strip(), principal, digest=digest(secret), expires_ms=expires_ms), secret


async def listed(ports: Ports) -> list[ApiKey]:
    return await ports.keys.list()


async def revoke(ports: Ports, key_id: str) -> bool:
    """False: there is no such key, or it was revoked before."""
    return await ports.keys.revoke(key_id)


def digest(secret: str) -> str:
    """What is stored of a secret. It is random and long: a plain hash cannot be turned back."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
