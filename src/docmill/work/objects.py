"""The store as one tenant sees it: the same keys, below a prefix of the tenant's own.

Keys on the wire say `users/<user>/...`; two tenants may both have a user of that name.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from docmill.core.errors import NotFound
from docmill.core.keys import tenant_prefix
from docmill.ports import Ports, Store, Stored


@dataclass(frozen=True, slots=True)
class TenantStore:
    inner: Store
    prefix: str

    @property
    def bucket(self) -> str:
        return self.inner.bucket

    def uri(self, key: str) -> str:
        """The address of an object as contracts carry it."""
        return f"docmill://{self.inner.bucket}/{self.prefix}{key}"

    def key_of(self, uri: str) -> str | None:
        """The key of one of this tenant's own objects, or None."""
        start = f"docmill://{self.inner.bucket}/{self.prefix}"
        return uri.removeprefix(start) if uri.startswith(start) else None

    async def put(
        self, key: str, chunks: AsyncIterable[bytes], *, limit: int | None = None, filename: str = ""
    ) -> Stored:
        return replace(await self.inner.put(self.prefix + key, chunks, limit=limit, filename=filename), key=key)

    async def put_bytes(self, key: str, data: bytes) -> Stored:
        return replace(await self.inner.put_bytes(self.prefix + key, data), key=key)

    async def put_file(self, key: str, path: Path) -> Stored:
        return replace(await self.inner.put_file(self.prefix + key, path), key=key)

    async def stat(self, key: str) -> Stored | None:
        found = await self.inner.stat(self.prefix + key)
        return replace(found, key=key) if found else None

    async def read(self, key: str, *, limit: int | None = None) -> bytes:
        return await self.inner.read(self.prefix + key, limit=limit)

    def stream(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        return self.inner.stream(self.prefix + key, start=start, end=end)

    async def fetch(self, key: str, path: Path) -> Stored:
        return replace(await self.inner.fetch(self.prefix + key, path), key=key)


def objects(ports: Ports, tenant: str) -> TenantStore:
    return TenantStore(ports.store, tenant_prefix(tenant))


async def read_json(ports: Ports, tenant: str, key: str, kind: Any = Any) -> Any:
    """A stored JSON value of type *kind*. NotFound: `object_not_found`, or `object_damaged` if it was truncated."""
    data = await objects(ports, tenant).read(key)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NotFound("object_damaged", key=key) from error
