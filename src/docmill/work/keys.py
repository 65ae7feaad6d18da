"""API keys: made here, shown once, and stored only as their SHA-256."""

from __future__ import annotations

from hashlib import sha256
from secrets import token_urlsafe

from docmill.core.access import LOCAL, Principal, is_tenant
from docmill.core.errors import Forbidden, Invalid
from docmill.ports import ApiKey, Ports

PREFIX = "dm_"
MAX_NAME = 128


async def create(
    ports: Ports, name: str, principal: Principal, *, by: Principal = LOCAL, expires_ms: int | None = None
) -> tuple[ApiKey, str]:
    """A new key and its secret. Nobody can read the secret again. Without *by*, the command line asks: an operator."""
    if not by.can_grant(principal):
        raise Forbidden("forbidden")
    if not 0 < len(name.strip()) <= MAX_NAME or not name.isprintable():
        raise Invalid("request_invalid", why=f"a key's name has 1 to {MAX_NAME} printable characters.")
    if not principal.user or not is_tenant(principal.tenant):
        raise Invalid("request_invalid", why="a key needs a user and a valid tenant.")
    secret = PREFIX + token_urlsafe(32)
    return await ports.keys.add(name.strip(), principal, digest=digest(secret), expires_ms=expires_ms), secret


async def listed(ports: Ports, by: Principal) -> list[ApiKey]:
    """The keys that the caller manages: an administrator's tenant's, or all of the deployment."""
    return await ports.keys.list(_tenant_of(by))


async def revoke(ports: Ports, key_id: str, by: Principal) -> bool:
    """False: there is no such key that the caller manages, or it was revoked before."""
    return await ports.keys.revoke(key_id, _tenant_of(by))


def _tenant_of(by: Principal) -> str | None:
    """The tenant to which the caller's management of keys is limited; None: no limit."""
    if not by.can_manage_keys:
        raise Forbidden("forbidden")
    return None if by.is_operator else by.tenant


def digest(secret: str) -> str:
    """What is stored of a secret. It is random and long: a plain hash cannot be turned back."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
