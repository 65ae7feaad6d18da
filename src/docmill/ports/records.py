"""What is kept in rows besides tasks: rules, tables, documents, keys; and all rows at once, for a backup."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from docmill.contracts import Asset, NormalizedDocument
from docmill.core.access import Owner, Principal
from docmill.core.rules import Draft, Rule


class RuleBook(Protocol):
    """The rules of every user, and the global default that all see."""

    async def default(self) -> Rule:
        """The one global default rule; created on the first call, once, however many call."""
        ...

    async def get(self, rule_id: int, who: Owner) -> Rule | None: ...

    async def list(self, who: Owner, *, limit: int, offset: int) -> tuple[list[Rule], int]: ...

    async def add(self, draft: Draft, who: Owner) -> Rule: ...

    async def replace(self, rule_id: int, draft: Draft, who: Owner) -> Rule | None: ...

    async def remove(self, rule_id: int, who: Owner) -> bool: ...


@dataclass(frozen=True, slots=True)
class Table:
    """A JSON value of a project."""

    id: int
    project_id: int
    name: str
    data: Any
    created_ms: int
    updated_ms: int


Edit = Callable[[Any, Callable[[str, str], int | None]], tuple[Any, str | None, str | None, int | None]]
"""Takes the table's value and `who_mounted(pointer, entry) -> task id`; gives the new value and, for a mount,
pointer, entry and task id to remember."""


class Tables(Protocol):
    async def add(self, who: Owner, project_id: int, name: str, data: Any) -> Table: ...

    async def get(self, table_id: int, who: Owner) -> Table | None: ...

    async def exists(self, table_id: int, who: Owner) -> bool:
        """Without reading the data, which may be large."""
        ...

    async def list(self, who: Owner, project_id: int) -> list[Table]:
        """Oldest first, without their data."""
        ...

    async def replace(self, table_id: int, who: Owner, *, name: str | None, data: Any) -> Table | None: ...

    async def remove(self, table_id: int, who: Owner) -> bool: ...

    async def edit(self, table_id: int, who: Owner, edit: Edit) -> Table | None:
        """Read, change and write in one transaction. None: no such table."""
        ...


class Repository(Protocol):
    """Documents and assets of every tenant. Key: tenant, document, version; latest is the newest `created_at`."""

    async def put(self, document: NormalizedDocument) -> bool:
        """Store document and assets. True: it is new; False: the same was there. Other content: Conflict."""
        ...

    async def get(self, tenant: str, document_id: UUID, version: str | None = None) -> NormalizedDocument | None:
        """A version, or the latest. Deleted ones are not found."""
        ...

    async def versions(self, tenant: str, document_id: UUID) -> list[NormalizedDocument]: ...

    async def list(
        self, tenant: str, *, collection_id: UUID | None, limit: int, after: str | None
    ) -> tuple[list[NormalizedDocument], str | None]:
        """A page and the cursor of the next, or None. A foreign cursor: BadRequest("cursor_invalid")."""
        ...

    async def delete(
        self, tenant: str, document_id: UUID, *, version: str | None = None, hard: bool = False
    ) -> bool: ...

    async def used(self, tenant: str, uris: Sequence[str]) -> set[str]:
        """Those of these URIs (of our own store) that any document or asset names, hidden ones included."""
        ...

    async def put_asset(self, asset: Asset) -> bool:
        """Add the asset to the latest version of its document, or replace it there. True: it is new.

        No such document: Conflict("document_missing"); an id of another document's: Conflict("asset_conflict").
        """
        ...

    async def get_asset(self, tenant: str, asset_id: UUID) -> Asset | None: ...

    async def list_assets(
        self, tenant: str, document_id: UUID, *, limit: int, after: str | None
    ) -> tuple[Sequence[Asset], str | None]: ...

    async def delete_asset(self, tenant: str, asset_id: UUID, *, hard: bool = False) -> bool: ...


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its secret."""

    id: str
    name: str
    principal: Principal
    created_ms: int
    used_ms: int | None
    expires_ms: int | None
    revoked_ms: int | None


class KeyRing(Protocol):
    """API keys. Only the SHA-256 of a secret is stored."""

    async def add(self, name: str, principal: Principal, *, digest: str, expires_ms: int | None = None) -> ApiKey: ...

    async def find(self, digest: str) -> Principal | None:
        """Whose key it is; None if unknown, expired or revoked (judged by the database's clock)."""
        ...

    async def list(self, tenant: str | None = None) -> list[ApiKey]:
        """The keys of one tenant, or of all."""
        ...

    async def revoke(self, key_id: str, tenant: str | None = None) -> bool:
        """End a key and its sessions. With *tenant* only a key of that tenant that is not an operator's."""
        ...

    async def is_required(self) -> bool:
        """Whether credentials were ever in use. Revoking or expiring keys does not change the answer."""
        ...

    async def require(self) -> None:
        """Record that credentials are in use from now on (tokens of an identity provider)."""
        ...

    async def open_session(self, key_digest: str, digest: str, *, lasts_ms: int, most: int) -> bool:
        """Store a session of the key; beyond *most* the key's oldest end. False: the key is not valid."""
        ...

    async def find_session(self, digest: str) -> Principal | None:
        """Who signed in; None if the session is unknown, ended or expired, or its key is no longer valid."""
        ...

    async def end_session(self, digest: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Pointer:
    """A stored file that a row names."""

    tenant: str
    named_by: str
    """`task 7` or `document <id>`."""
    place: str
    """Its key as the tenant sees it, or its URI."""
    size: int | None


class Pointers(Protocol):
    """The links between database and store, for checks of both."""

    async def sample(self, *, limit: int) -> list[Pointer]:
        """Files that some rows name, the newest tasks' among them: of about *limit* tasks, documents and assets."""
        ...

    async def known_tasks(self, ids: Sequence[int]) -> set[int]:
        """Those that there are, or were until retention removed them."""
        ...

    async def known_documents(self, ids: Sequence[str]) -> set[str]: ...


class BackupDatabase(Protocol):
    """All rows of all tenants, for a backup of the whole deployment."""

    async def read_rows(
        self, sink: Callable[[str, Sequence[str], Sequence[Sequence[Any]]], None]
    ) -> tuple[int, dict[str, int]]:
        """Pass every table's name, columns and rows to *sink*, page by page, from one snapshot.

        Returns the schema's number, and the last number that each numbered table gave out.
        """
        ...

    async def prepare_restore(self, schema: int, columns: Mapping[str, Sequence[str]]) -> None:
        """Create the tables as they were in *schema*. Conflict("restore_not_empty") if there is anything in them."""
        ...

    async def insert_rows(
        self,
        columns: Mapping[str, Sequence[str]],
        rows: Callable[[str], Iterator[list[Any]]],
        sequences: Mapping[str, int],
        *,
        buckets: tuple[str, str],
    ) -> None:
        """Insert the rows of every table in one transaction, then bring the schema up to date.

        *buckets*: addresses of stored blobs change from the first one to the second one.
        """
        ...
