"""Links that the object store itself signed: a worker takes and leaves objects without passing through this service."""

from __future__ import annotations

from typing import Protocol

from docmill.core.errors import Forbidden
from docmill.core.keys import tenant_prefix


class Signer(Protocol):
    def __call__(self, method: str, key: str, *, seconds: float) -> str: ...


class PresignedLinks:
    def __init__(self, sign: Signer) -> None:
        self._sign = sign

    def download(self, tenant: str, key: str, *, seconds: float) -> str:
        return self._sign("GET", tenant_prefix(tenant) + key, seconds=seconds)

    def upload(self, tenant: str, key: str, *, seconds: float) -> str:
        return self._sign("PUT", tenant_prefix(tenant) + key, seconds=seconds)

    def read(self, token: str, *, method: str) -> tuple[str, str]:  # noqa: ARG002 - the port's signature
        """Nobody comes to us with such a link."""
        raise Forbidden("link_invalid")
