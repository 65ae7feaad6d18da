"""The repository of documents and assets in SQL.

A version of a document is a row that never changes; what it says without its assets is `documents.body`. Each version
has its own list of assets (`document_assets`), so that an asset may say more in a later version than in an earlier
one. `assets` only holds which document an asset id belongs to. Every write to a document first locks all its rows.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from itertools import groupby
from typing import Annotated, Any
from uuid import UUID

import msgspec
from pydantic_core import PydanticSerializationError

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.statement import Op, Query, Row, Statement
from docmill.contracts import Asset, NormalizedDocument, check
from docmill.core.conform import conform
from docmill.core.errors import BadRequest, Conflict, Invalid, NotFound

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_BIGINT = 2**63 - 1
ROWS_AT_ONCE = 64
MARK = 12
UNVERSIONED = ""
"""The version of a document that has none; a real version is never empty."""

Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=MAX_BIGINT)]
Plain = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9._-]*$", max_length=128)]

VERSION = "tenant = :tenant AND document_id = :document_id AND version = :version"
ALL = "tenant = :tenant AND document_id = :document_id"
NEWEST = "ORDER BY created_at_us DESC, version DESC LIMIT 1"

LOCK = Statement(f"SELECT version FROM documents WHERE {ALL} ORDER BY version {{lock}}")
ADD = Statement(
    "INSERT INTO documents"
    " (tenant, document_id, version, workflow_id, collection_id, created_at_us, body, digest, stored_ms)"
    " VALUES (:tenant, :document_id, :version, :workflow_id, :collection_id, :created_at_us, :body, :digest, {now})"
    " ON CONFLICT (tenant, document_id, version) DO NOTHING RETURNING version"
)
DIGEST = Statement(f"SELECT digest, deleted_ms FROM documents WHERE {VERSION}")
RESTORE = Statement(f"UPDATE documents SET deleted_ms = NULL WHERE {VERSION}")

GET = Statement(f"SELECT version, body FROM documents WHERE {VERSION} AND deleted_ms IS NULL")
GET_LATEST = Statement(f"SELECT version, body FROM documents WHERE {ALL} AND deleted_ms IS NULL {NEWEST}")
VERSIONS = Statement(
    f"SELECT document_id, version, body FROM documents WHERE {ALL} AND deleted_ms IS NULL"
    " ORDER BY created_at_us DESC, version DESC"
)
ASSETS = Statement(f"SELECT body FROM document_assets WHERE {VERSION} AND deleted_ms IS NULL ORDER BY position")
ASSETS_OF_ALL = Statement(
    f"SELECT document_id, version, body FROM document_assets WHERE {ALL} AND deleted_ms IS NULL"
    " ORDER BY version, position"
)
ASSETS_PAGE = Statement(
    f"SELECT position, body FROM document_assets WHERE {VERSION} AND deleted_ms IS NULL"
    " AND position > CAST(:position AS BIGINT) ORDER BY position LIMIT :limit"
)

SOFT = Statement(f"UPDATE documents SET deleted_ms = {{now}} WHERE {ALL} AND deleted_ms IS NULL RETURNING version")
SOFT_VERSION = Statement(
    f"UPDATE documents SET deleted_ms = {{now}} WHERE {VERSION} AND deleted_ms IS NULL RETURNING version"
)
HARD = Statement(f"DELETE FROM documents WHERE {ALL} RETURNING version")
HARD_VERSION = Statement(f"DELETE FROM documents WHERE {VERSION} RETURNING version")
DROP_ORPHANS = Statement(
    f"DELETE FROM assets WHERE {ALL} AND NOT EXISTS (SELECT 1 FROM document_assets AS held"
    " WHERE held.tenant = assets.tenant AND held.asset_id = assets.asset_id)"
)
USED = Statement(
    " UNION ".join(
        f"SELECT blob_uri FROM {table} WHERE tenant = :tenant AND blob_uri LIKE 'docmill:%'"
        " AND blob_uri IN (SELECT value FROM {each}(CAST(:uris AS {json})))"
        for table in ("documents", "document_assets")
    )
)

ASSET_OWNER = Statement("SELECT document_id FROM assets WHERE tenant = :tenant AND asset_id = :asset_id")
GET_ASSET = Statement(
    "SELECT held.body FROM document_assets AS held JOIN documents AS d"
    " ON d.tenant = held.tenant AND d.document_id = held.document_id AND d.version = held.version"
    " WHERE held.tenant = :tenant AND held.asset_id = :asset_id AND held.deleted_ms IS NULL AND d.deleted_ms IS NULL"
    " ORDER BY d.created_at_us DESC, d.version DESC LIMIT 1"
)
HELD = Statement(f"SELECT body, deleted_ms FROM document_assets WHERE {VERSION} AND asset_id = :asset_id")
HOLD = Statement(
    "INSERT INTO document_assets (tenant, document_id, version, asset_id, position, body)"
    " SELECT CAST(:tenant AS TEXT), CAST(:document_id AS TEXT), CAST(:version AS TEXT), CAST(:asset_id AS TEXT),"
    f" coalesce(max(position) + 1, 0), CAST(:body AS TEXT) FROM document_assets WHERE {VERSION}"
    " ON CONFLICT (tenant, document_id, version, asset_id) DO UPDATE SET body = excluded.body, deleted_ms = NULL"
)
SOFT_ASSET = Statement(
    "UPDATE document_assets SET deleted_ms = {now} WHERE tenant = :tenant AND asset_id = :asset_id"
    " AND deleted_ms IS NULL RETURNING version"
)
HARD_ASSET = Statement("DELETE FROM assets WHERE tenant = :tenant AND asset_id = :asset_id RETURNING asset_id")


def _page(scope: str) -> tuple[Statement, Statement]:
    key = "(d.created_at_us, d.document_id, d.version)"
    rows = Statement(
        f"SELECT d.document_id, d.version, d.body, d.created_at_us FROM documents AS d WHERE {scope}"
        " AND d.deleted_ms IS NULL"
        f" AND {key} < (CAST(:us AS BIGINT), CAST(:document_id AS TEXT), CAST(:version AS TEXT))"
        " ORDER BY d.created_at_us DESC, d.document_id DESC, d.version DESC LIMIT :limit"
    )
    assets = Statement(
        "SELECT held.document_id, held.version, held.body FROM documents AS d JOIN document_assets AS held"
        " ON held.tenant = d.tenant AND held.document_id = d.document_id AND held.version = d.version"
        f" WHERE {scope} AND d.deleted_ms IS NULL AND held.deleted_ms IS NULL"
        f" AND {key} <= (CAST(:first_us AS BIGINT), CAST(:first_id AS TEXT), CAST(:first_version AS TEXT))"
        f" AND {key} >= (CAST(:last_us AS BIGINT), CAST(:last_id AS TEXT), CAST(:last_version AS TEXT))"
        " ORDER BY held.document_id, held.version, held.position"
    )
    return rows, assets


PAGE, PAGE_ASSETS = _page("d.tenant = :tenant")
PAGE_IN, PAGE_IN_ASSETS = _page("d.tenant = :tenant AND d.collection_id = :collection_id")


@cache
def _own(count: int) -> Statement:
    """Claims asset ids for a document, and says whose they are: a conflicting row is locked and left as it is."""
    rows = ", ".join(f"(:tenant, :asset_{i}, :document_id)" for i in range(count))
    return Statement(
        f"INSERT INTO assets (tenant, asset_id, document_id) VALUES {rows}"
        " ON CONFLICT (tenant, asset_id) DO UPDATE SET asset_id = excluded.asset_id RETURNING document_id"
    )


@cache
def _hold(count: int) -> Statement:
    rows = ", ".join(
        f"(:tenant, :document_id, :version, :asset_{i}, CAST(:position_{i} AS BIGINT), :body_{i})" for i in range(count)
    )
    return Statement(
        f"INSERT INTO document_assets (tenant, document_id, version, asset_id, position, body) VALUES {rows}"
    )


class SqlDocuments:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, document: NormalizedDocument) -> bool:
        document = conform("document", _json(document))
        ids = [asset.ref.asset_id for asset in document.assets]
        if len(set(ids)) < len(ids):
            raise Invalid("request_invalid", why="the document has two assets with the same asset_id.")
        return await self._database.write(_put(document), tenant=document.ref.tenant_id)

    async def get(self, tenant: str, document_id: UUID, version: str | None = None) -> NormalizedDocument | None:
        found = await self._database.read(_get(tenant, str(document_id), version), tenant=tenant, snapshot=True)
        return None if found is None else _document(found[1], found[2])

    async def versions(self, tenant: str, document_id: UUID) -> list[NormalizedDocument]:
        def op() -> Op[tuple[list[Row], list[Row]]]:
            rows = yield VERSIONS(tenant=tenant, document_id=str(document_id))
            assets = yield ASSETS_OF_ALL(tenant=tenant, document_id=str(document_id))
            return rows, assets

        return _documents(*await self._database.read(op(), tenant=tenant, snapshot=True))

    async def delete(self, tenant: str, document_id: UUID, *, version: str | None = None, hard: bool = False) -> bool:
        return await self._database.write(_delete(tenant, str(document_id), version, hard), tenant=tenant)

    async def used(self, tenant: str, uris: Sequence[str]) -> set[str]:
        def op() -> Op[list[Row]]:
            return (yield USED(tenant=tenant, uris=msgspec.json.encode(uris).decode()))

        return {row[0] for row in await self._database.read(op(), tenant=tenant)} if uris else set()

    async def put_asset(self, asset: Asset) -> bool:
        asset = conform("asset", _json(asset))
        return await self._database.write(_put_asset(asset), tenant=asset.ref.tenant_id)

    async def get_asset(self, tenant: str, asset_id: UUID) -> Asset | None:
        def op() -> Op[list[Row]]:
            return (yield GET_ASSET(tenant=tenant, asset_id=str(asset_id)))

        rows = await self._database.read(op(), tenant=tenant)
        return _asset(rows[0][0]) if rows else None

    async def list_assets(
        self, tenant: str, document_id: UUID, *, limit: int, after: str | None
    ) -> tuple[list[Asset], str | None]:
        scope = _scope("assets", tenant, document_id)
        start = (None, -1) if after is None else _position(after, scope, tuple[Plain, Number])
        version, rows = await self._database.read(
            _list_assets(tenant, str(document_id), limit, start), tenant=tenant, snapshot=True
        )
        more, rows = len(rows) > limit, rows[:limit]
        cursor = _cursor(scope, version, rows[-1][0]) if more else None
        return [_asset(body) for _, body in rows], cursor

    async def delete_asset(self, tenant: str, asset_id: UUID, *, hard: bool = False) -> bool:
        return await self._database.write(_delete_asset(tenant, str(asset_id), hard), tenant=tenant)

    async def list(
        self, tenant: str, *, collection_id: UUID | None, limit: int, after: str | None
    ) -> tuple[list[NormalizedDocument], str | None]:
        scope = _scope("documents", tenant, collection_id)
        start = (MAX_BIGINT, "", "") if after is None else _position(after, scope, tuple[Number, Plain, Plain])
        rows, assets, more = await self._database.read(
            _list(tenant, collection_id, limit, start), tenant=tenant, snapshot=True
        )
        cursor = _cursor(scope, rows[-1][3], rows[-1][0], rows[-1][1]) if more else None
        return _documents(rows, assets), cursor


def _put(document: NormalizedDocument) -> Op[bool]:
    ref = document.ref
    key = {"tenant": ref.tenant_id, "document_id": str(ref.document_id), "version": ref.version or UNVERSIONED}
    digest = digest_of(document)
    yield LOCK(tenant=key["tenant"], document_id=key["document_id"])
    added = yield ADD(
        **key,
        workflow_id=ref.workflow_id,
        collection_id=_text(ref.collection_id),
        created_at_us=(document.created_at - EPOCH) // timedelta(microseconds=1),
        body=_json(document, exclude={"assets"}),
        digest=digest,
    )
    if added:
        yield from _put_assets(key, document.assets)
        return True
    stored, deleted_ms = (yield DIGEST(**key))[0]
    if stored != digest:
        raise Conflict("document_exists")
    if deleted_ms is not None:
        yield RESTORE(**key)
        return True
    return False


def _put_assets(key: dict[str, str], assets: Sequence[Asset]) -> Op[None]:
    # In the order of their ids: two writers then wait for one another instead of locking each other out.
    rows = sorted((str(asset.ref.asset_id), position, _json(asset)) for position, asset in enumerate(assets))
    for start in range(0, len(rows), ROWS_AT_ONCE):
        group = rows[start : start + ROWS_AT_ONCE]
        names = {f"asset_{i}": asset_id for i, (asset_id, _, _) in enumerate(group)}
        positions = {f"position_{i}": position for i, (_, position, _) in enumerate(group)}
        bodies = {f"body_{i}": body for i, (_, _, body) in enumerate(group)}
        owners = yield _own(len(group))(tenant=key["tenant"], document_id=key["document_id"], **names)
        if any(owner[0] != key["document_id"] for owner in owners):
            raise Conflict("asset_conflict")
        yield _hold(len(group))(**key, **names, **positions, **bodies)


def _put_asset(asset: Asset) -> Op[bool]:
    tenant, document_id, asset_id = asset.ref.tenant_id, str(asset.ref.document_id), str(asset.ref.asset_id)
    yield LOCK(tenant=tenant, document_id=document_id)
    latest = yield GET_LATEST(tenant=tenant, document_id=document_id)
    if not latest:
        raise Conflict("document_missing")
    version, document = latest[0]
    key = {"tenant": tenant, "document_id": document_id, "version": version}
    # Judged as a part of its document, from which it takes over the collection.
    body = _json(conform("document", _joined(document, [_json(asset)])).assets[0])
    owners = yield _own(1)(tenant=tenant, document_id=document_id, asset_0=asset_id)
    if owners[0][0] != document_id:
        raise Conflict("asset_conflict")
    held = yield HELD(**key, asset_id=asset_id)
    if not held or held[0][0] != body or held[0][1] is not None:
        yield HOLD(**key, asset_id=asset_id, body=body)
    return not held or held[0][1] is not None


def _get(tenant: str, document_id: str, version: str | None) -> Op[tuple[str, str, list[str]] | None]:
    if version is None:
        rows = yield GET_LATEST(tenant=tenant, document_id=document_id)
    else:
        rows = yield GET(tenant=tenant, document_id=document_id, version=version)
    if not rows:
        return None
    found, body = rows[0]
    assets = yield ASSETS(tenant=tenant, document_id=document_id, version=found)
    return found, body, [asset[0] for asset in assets]


def _list(
    tenant: str, collection_id: UUID | None, limit: int, start: tuple[int, str, str]
) -> Op[tuple[list[Row], list[Row], bool]]:
    page, page_assets = (PAGE, PAGE_ASSETS) if collection_id is None else (PAGE_IN, PAGE_IN_ASSETS)
    within = {"tenant": tenant} | ({} if collection_id is None else {"collection_id": str(collection_id)})
    us, document_id, version = start
    rows = yield page(**within, us=us, document_id=document_id, version=version, limit=limit + 1)
    more, rows = len(rows) > limit, rows[:limit]
    if not rows:
        return [], [], False
    first, last = rows[0], rows[-1]
    assets = yield page_assets(
        **within,
        first_us=first[3],
        first_id=first[0],
        first_version=first[1],
        last_us=last[3],
        last_id=last[0],
        last_version=last[1],
    )
    return rows, assets, more


def _list_assets(tenant: str, document_id: str, limit: int, start: tuple[str | None, int]) -> Op[tuple[str, list[Row]]]:
    version, position = start
    rows = yield _one_version(tenant, document_id, version)
    if not rows:
        raise NotFound("document_not_found")
    # The walk stays with the version that it began with, even if a newer one arrives meanwhile.
    found: str = rows[0][0]
    page = yield ASSETS_PAGE(tenant=tenant, document_id=document_id, version=found, position=position, limit=limit + 1)
    return found, page


def _one_version(tenant: str, document_id: str, version: str | None) -> Query:
    if version is None:
        return GET_LATEST(tenant=tenant, document_id=document_id)
    return GET(tenant=tenant, document_id=document_id, version=version)


def _delete(tenant: str, document_id: str, version: str | None, hard: bool) -> Op[bool]:
    whole = {"tenant": tenant, "document_id": document_id}
    yield LOCK(**whole)
    if version is None:
        rows = yield (HARD if hard else SOFT)(**whole)
    else:
        rows = yield (HARD_VERSION if hard else SOFT_VERSION)(**whole, version=version)
    if hard:
        yield DROP_ORPHANS(**whole)
    return bool(rows)


def _delete_asset(tenant: str, asset_id: str, hard: bool) -> Op[bool]:
    owner = yield ASSET_OWNER(tenant=tenant, asset_id=asset_id)
    if not owner:
        return False
    yield LOCK(tenant=tenant, document_id=owner[0][0])
    if hard:
        return bool((yield HARD_ASSET(tenant=tenant, asset_id=asset_id)))
    if not (yield GET_ASSET(tenant=tenant, asset_id=asset_id)):
        return False
    return bool((yield SOFT_ASSET(tenant=tenant, asset_id=asset_id)))


def _json(value: NormalizedDocument | Asset, *, exclude: set[str] | None = None) -> str:
    try:
        return value.model_dump_json(exclude=exclude)
    except (PydanticSerializationError, UnicodeEncodeError):
        raise Invalid("request_invalid", why="a text has half of a surrogate pair.") from None


def digest_of(document: NormalizedDocument) -> str:
    """Of what the document says; the order of the keys of `external_ref` says nothing."""
    said = msgspec.json.encode(msgspec.json.decode(_json(document)), order="sorted")
    return sha256(said).hexdigest()


def _joined(body: str, assets: Iterable[str]) -> str:
    return f'{body[:-1]},"assets":[{",".join(assets)}]}}'


def _document(body: str, assets: Iterable[str]) -> NormalizedDocument:
    document: NormalizedDocument = _stored("document", _joined(body, assets))
    return document


def _documents(rows: Sequence[Row], assets: Sequence[Row]) -> list[NormalizedDocument]:
    """Rows begin with document id and version, and so do the assets', which come grouped by both."""
    by_version = {key: [row[2] for row in group] for key, group in groupby(assets, key=lambda row: (row[0], row[1]))}
    return [_document(row[2], by_version.get((row[0], row[1]), ())) for row in rows]


def _asset(body: str) -> Asset:
    asset: Asset = _stored("asset", body)
    return asset


def _stored(kind: str, text: str) -> Any:
    checked = check(kind, text, strict=False)
    if checked.errors:
        raise ValueError(f"a stored {kind} breaks its contract: {checked.errors[0].code}")
    return checked.value


def _text(value: UUID | None) -> str | None:
    return None if value is None else str(value)


def _scope(kind: str, tenant: str, within: UUID | None) -> bytes:
    return "\0".join((kind, tenant, _text(within) or "")).encode("utf-8", "surrogatepass")


def _cursor(scope: bytes, *position: Any) -> str:
    """A position and a mark that ties it to its list. It gives no rights: the query is the tenant's own anyway."""
    payload = msgspec.json.encode(position)
    return urlsafe_b64encode(_mark(scope, payload) + payload).rstrip(b"=").decode()


def _position(cursor: str, scope: bytes, shape: Any) -> Any:
    try:
        raw = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        mark, payload = raw[:MARK], raw[MARK:]
        position: tuple[Any, ...] = msgspec.json.decode(payload, type=shape)
        if mark != _mark(scope, payload) or _cursor(scope, *position) != cursor:
            raise ValueError(cursor)
        return position
    except ValueError:
        raise BadRequest("cursor_invalid") from None


def _mark(scope: bytes, payload: bytes) -> bytes:
    return sha256(scope + b"\0" + payload).digest()[:MARK]
