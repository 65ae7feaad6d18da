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
    """Administrator of the tenant: manages its API keys."""
    is_operator: bool = False
    """Operator of the deployment: sees metrics, settings, health checks and the API keys of all tenants."""

    @property
    def owner(self) -> Owner:
        return Owner(self.tenant, self.user)

    @property
    def can_manage_keys(self) -> bool:
        return self.is_admin or self.is_operator

    def can_grant(self, other: Principal) -> bool:
        """Whether this caller may create an API key for *other*: nobody grants a right that they do not have."""
        if self.is_operator:
            return True
        return self.is_admin and other.tenant == self.tenant and not other.is_operator


LOCAL = Principal(user="local", tenant="local", is_admin=True, is_operator=True)
"""The one user of a service on loopback without credentials."""


def is_tenant(name: str) -> bool:
    """A tenant's name is also the `tenant_id` of its documents: it must be one that the contracts keep as it is."""
    return 0 < len(name) <= MAX_TENANT and clean(name) == name


def tenant_of_one(user: str) -> str:
    """The tenant of a user who belongs to none: marked, so that nobody can be called like somebody's tenant."""
    name = f"user:{user}"
    return name if is_tenant(name) else f"user:{sha256(user.encode()).hexdigest()}"
