"""Who calls, and whose rows they may see."""

from __future__ import annotations

from dataclasses import dataclass


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
