"""Where bytes are kept, and how they come and go."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from docmill.core.access import Owner
from docmill.core.addresses import TrustedOrigin
from docmill.core.twin import Twin


@dataclass(frozen=True, slots=True)
class Stored:
    """An object in the store. `sha256` is empty where the store does not know it."""

    key: str
    size: int
    sha256: str
    etag: str
    filename: str = ""
    """The name that was given with the object; empty if there was none."""


class Store(Protocol):
    """Keeps bytes under keys. An object is visible whole or not at all, and never changes."""

    bucket: str

    async def put(
        self, key: str, chunks: AsyncIterable[bytes], *, limit: int | None = None, filename: str = ""
    ) -> Stored:
        """Store a stream, hashed on the way. Beyond *limit*: TooLarge, and nothing is left behind.

        *filename* (at most 255 characters) is kept with the object, and `stat` returns it.
        """
        ...

    async def put_bytes(self, key: str, data: bytes) -> Stored: ...

    async def put_file(self, key: str, path: Path) -> Stored: ...

    async def stat(self, key: str) -> Stored | None: ...

    async def read(self, key: str, *, limit: int | None = None) -> bytes:
        """The whole object. A missing one: NotFound("object_not_found")."""
        ...

    def stream(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]: ...

    async def fetch(self, key: str, path: Path) -> Stored:
        """Copy the object into a local file, hashed on the way."""
        ...

    async def delete(self, key: str) -> bool: ...

    def list(self, prefix: str) -> AsyncIterator[tuple[str, int, float]]:
        """Keys below *prefix* with size and time of writing (seconds since 1970)."""
        ...

    async def free_bytes(self) -> int | None: ...

    async def close(self) -> None: ...


Place = str
"""The address of a folder or file in a library: a path on a disk, or `onedrive:/...`, `objects:/...`."""


@dataclass(frozen=True, slots=True)
class Written:
    """A twin as it lies there now."""

    path: Place
    """The main Markdown file."""
    replaced: bool
    """False: the same twin was there already."""
    kept: Sequence[str] = ()
    """Files that people had added to the twin's folder."""


class Library(Protocol):
    """Where originals and their twins lie."""

    def folder(self, who: Owner, project_id: int, task_id: int, wanted: str, *, is_single_user: bool = False) -> Place:
        """The folder of a task's twin. One outside the user's own, or too deep: Invalid("twin_target_invalid").

        *is_single_user*: nobody has an account here, so the local user has the whole library.
        """
        ...

    async def keep_original(self, folder: Place, name: str, source: Path) -> None:
        """Lay the original beside its twin, unless it is there. Another file of that name: twin_target_invalid."""
        ...

    async def write(self, folder: Place, twin: Twin, assets: Mapping[str, Path], *, force: bool = False) -> Written:
        """Write the twin; a reader sees the old or the new one. Edited by a person: Conflict("twin_drift")."""
        ...

    async def close(self) -> None: ...


class Links(Protocol):
    """Signed, expiring addresses of objects, for workers without access to the store."""

    def download(self, tenant: str, key: str, *, seconds: float) -> str: ...

    def upload(self, tenant: str, key: str, *, seconds: float) -> str: ...

    def read(self, token: str, *, method: str) -> tuple[str, str]:
        """Tenant and key of a link; Forbidden("link_invalid")."""
        ...


@dataclass(frozen=True, slots=True)
class Fetched:
    size: int
    sha256: str
    content_type: str


class Fetcher(Protocol):
    """Fetches from addresses that somebody else named: only where it is safe to."""

    async def fetch(
        self, url: str, path: Path, *, limit_bytes: int, seconds: float, trusted: TrustedOrigin | None = None
    ) -> Fetched:
        """Fetch to a file. The *trusted* origin may be anywhere, and alone is sent its headers."""
        ...
