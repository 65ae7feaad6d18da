"""Who calls, and whose rows they may see."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from docmill.contracts.text import clean

MAX_TENANT = 128


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose rows: a user within a tenant."""

    tenant: str
    user: str


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls. The tenant comes from the credential, never from a body."""

    user: str
    tenant: str
    is_admin: bool = False

    @property
    def owner(self) -> Owner:
        return Owner(self.tenant, self.user)


LOCAL = Principal(user="local", tenant="local", is_admin=True)
"""The one user of a service on loopback without credentials."""


def is_tenant(name: str) -> bool:
    """A tenant's name is also the `tenant_id` of its documents: it must be one that the contracts keep as it is."""
    return 0 < len(name) <= MAX_TENANT and clean(name) == name


def tenant_of_one(user: str) -> str:
    """The tenant of a user who belongs to none: marked, so that nobody can be called like somebody's tenant."""
    name = f"user:{user}"
    return name if is_tenant(name) else f"user:{sha256(user.encode()).hexdigest()}"
