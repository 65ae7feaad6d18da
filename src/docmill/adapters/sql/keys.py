"""API keys in SQL. The table never sees a secret, only its SHA-256."""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.statement import Op, Row, Statement
from docmill.core.access import Principal
from docmill.core.errors import DocmillError
from docmill.ports import ApiKey

NOTICE_MS = 60_000
"""`used_ms` is that coarse: a key that is used all the time costs one write a minute, not one a request."""

COLUMNS = "id, name, user_id, tenant, is_admin, created_ms, used_ms, expires_ms, revoked_ms"
ACTIVE = "revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > {now})"

ADD = Statement(
    "INSERT INTO api_keys (id, digest, name, tenant, user_id, is_admin, created_ms, expires_ms)"
    f" VALUES (:id, :digest, :name, :tenant, :user_id, :is_admin, {{now}}, :expires_ms) RETURNING {COLUMNS}"
)
FIND = Statement(
    "SELECT user_id, tenant, is_admin, id, used_ms IS NULL OR used_ms < {now} - CAST(:notice AS BIGINT)"
    f" FROM api_keys WHERE digest = :digest AND {ACTIVE}"
)
USED = Statement("UPDATE api_keys SET used_ms = {now} WHERE id = :id")
LIST = Statement(f"SELECT {COLUMNS} FROM api_keys ORDER BY created_ms, id")
REVOKE = Statement("UPDATE api_keys SET revoked_ms = {now} WHERE id = :id AND revoked_ms IS NULL RETURNING id")
ANY_ACTIVE = Statement(f"SELECT 1 FROM api_keys WHERE {ACTIVE} LIMIT 1")


class SqlKeys:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, name: str, principal: Principal, *, digest: str, expires_ms: int | None = None) -> ApiKey:
        def op() -> Op[ApiKey]:
            rows = yield ADD(
                id=uuid4().hex,
                digest=digest,
                name=name,
                tenant=principal.tenant,
                user_id=principal.user,
                is_admin=int(principal.is_admin),
                expires_ms=expires_ms,
            )
            return _key(rows[0])

        return await self._database.write(op())

    async def find(self, digest: str) -> Principal | None:
        def op() -> Op[list[Row]]:
            return (yield FIND(digest=digest, notice=NOTICE_MS))

        rows = await self._database.read(op())
        if not rows:
            return None
        user, tenant, is_admin, key_id, is_due = rows[0]
        if is_due:
            with suppress(DocmillError):  # a full disk keeps nobody from reading
                await self._database.write(_do(USED, key_id))
        return Principal(user=user, tenant=tenant, is_admin=bool(is_admin))

    async def list(self) -> list[ApiKey]:
        def op() -> Op[list[Row]]:
            return (yield LIST())

        return [_key(row) for row in await self._database.read(op())]

    async def revoke(self, key_id: str) -> bool:
        return bool(await self._database.write(_do(REVOKE, key_id)))

    async def any_active(self) -> bool:
        def op() -> Op[list[Row]]:
            return (yield ANY_ACTIVE())

        return bool(await self._database.read(op()))


def _do(statement: Statement, key_id: str) -> Op[list[Row]]:
    return (yield statement(id=key_id))


def _key(row: Row) -> ApiKey:
    key_id, name, user, tenant, is_admin, created_ms, used_ms, expires_ms, revoked_ms = row
    return ApiKey(
        id=key_id,
        name=name,
        principal=Principal(user=user, tenant=tenant, is_admin=bool(is_admin)),
        created_ms=created_ms,
        used_ms=used_ms,
        expires_ms=expires_ms,
        revoked_ms=revoked_ms,
    )
