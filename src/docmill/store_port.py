"""The object store's port. For `ports.py`: kept apart only until it moves there."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Stored:
    """An object as the store knows it."""

    key: str
    size: int
    sha256: str
    """Hex digest, or empty where the store was not told."""
    etag: str
    """Changes whenever the bytes do. Without quotes."""


class Store(Protocol):
    """Keeps bytes under keys. A key is visible with all its bytes or not at all, and what was put outlives a crash.

    Keys are checked (`core.keys.check_key`). Putting a key again is allowed: readers see the old bytes or the new ones,
    and of several writers the last one wins. Faults: StorageFull `storage_full`, StageFailed `storage_failed`.
    """

    bucket: str

    async def put(self, key: str, chunks: AsyncIterable[bytes], *, limit: int | None = None) -> Stored:
        """Store a stream. More than *limit* bytes: TooLarge `upload_too_large`. What fails leaves nothing behind."""
        ...

    async def put_bytes(self, key: str, data: bytes) -> Stored:
        """Store bytes."""
        ...

    async def put_file(self, key: str, path: Path) -> Stored:
        """Store a copy of a local file; later changes of the file do not reach it."""
        ...

    async def stat(self, key: str) -> Stored | None:
        """What is stored under the key, or None."""
        ...

    async def read(self, key: str, *, limit: int | None = None) -> bytes:
        """All bytes. Missing: NotFound `object_not_found`; more than *limit*: TooLarge `upload_too_large`."""
        ...

    def stream(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The bytes from *start* up to, not including, *end*. Missing: NotFound at the first step."""
        ...

    async def fetch(self, key: str, path: Path) -> Stored:
        """Copy the object to a local file; the digest is that of the bytes copied. The file is complete or absent."""
        ...

    async def delete(self, key: str) -> bool:
        """Remove the object; False if there was none."""
        ...

    def list(self, prefix: str) -> AsyncIterator[tuple[str, int, float]]:
        """(key, size, time of writing in epoch seconds) of all objects whose key starts with *prefix*, in any order."""
        ...

    async def free_bytes(self) -> int | None:
        """Room left for objects, or None where there is no such limit."""
        ...

    async def close(self) -> None:
        """Finish what is under way and give back threads and connections."""
        ...
