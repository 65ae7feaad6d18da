"""API keys and sessions in SQL. The tables never see a secret, only its SHA-256."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import uuid4

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.statement import Op, Row, Statement
from docmill.core.access import Principal
from docmill.core.errors import DocmillError
from docmill.ports import ApiKey

NOTICE_MS = 60_000
"""`used_ms` is that coarse: a key that is used all the time costs one write a minute, not one a request."""

COLUMNS = "id, name, user_id, tenant, is_admin, is_operator, created_ms, used_ms, expires_ms, revoked_ms"
ACTIVE = "revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > {now})"

ADD = Statement(
    "INSERT INTO api_keys (id, digest, name, tenant, user_id, is_admin, is_operator, created_ms, expires_ms)"
    " VALUES (:id, :digest, :name, :tenant, :user_id, :is_admin, :is_operator, {now}, :expires_ms)"
    f" RETURNING {COLUMNS}"
)
FIND = Statement(
    "SELECT user_id, tenant, is_admin, is_operator, id, used_ms IS NULL OR used_ms < {now} - CAST(:notice AS BIGINT)"
    f" FROM api_keys WHERE digest = :digest AND {ACTIVE}"
)
USED = Statement("UPDATE api_keys SET used_ms = {now} WHERE id = :id")
LIST = Statement(f"SELECT {COLUMNS} FROM api_keys ORDER BY created_ms, id")
LIST_OF = Statement(f"SELECT {COLUMNS} FROM api_keys WHERE tenant = :tenant ORDER BY created_ms, id")
REVOKE = Statement("UPDATE api_keys SET revoked_ms = {now} WHERE id = :id AND revoked_ms IS NULL RETURNING id")
REVOKE_OF = Statement(
    "UPDATE api_keys SET revoked_ms = {now} WHERE id = :id AND revoked_ms IS NULL"
    " AND tenant = :tenant AND is_operator = 0 RETURNING id"
)
REQUIRE = Statement("INSERT INTO access_control (one, required_ms) VALUES (1, {now}) ON CONFLICT (one) DO NOTHING")
IS_REQUIRED = Statement(
    "SELECT 1 FROM access_control UNION ALL SELECT 1 FROM api_keys LIMIT 1"  # keys also come with an import
)

KEY_OF = Statement(f"SELECT id FROM api_keys WHERE digest = :digest AND {ACTIVE}")
ADD_SESSION = Statement(
    "INSERT INTO sessions (digest, key_id, created_ms, expires_ms)"
    " VALUES (:digest, :key_id, {moment}, {moment} + CAST(:lasts AS BIGINT))"
)
END_EXPIRED = Statement("DELETE FROM sessions WHERE expires_ms <= {now}")
END_OLDEST = Statement(
    "DELETE FROM sessions WHERE digest IN (SELECT digest FROM sessions WHERE key_id = :key_id"
    " ORDER BY created_ms DESC, digest LIMIT 1000 OFFSET CAST(:keep AS BIGINT))"
)
FIND_SESSION = Statement(
    "SELECT k.user_id, k.tenant, k.is_admin, k.is_operator FROM sessions AS s JOIN api_keys AS k ON k.id = s.key_id"
    " WHERE s.digest = :digest AND s.expires_ms > {now} AND k.revoked_ms IS NULL"
    " AND (k.expires_ms IS NULL OR k.expires_ms > {now})"
)
END_SESSION = Statement("DELETE FROM sessions WHERE digest = :digest")
END_SESSIONS = Statement("DELETE FROM sessions WHERE key_id = :id")


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
                is_operator=int(principal.is_operator),
                expires_ms=expires_ms,
            )
            yield REQUIRE()
            return _key(rows[0])

        return await self._database.write(op())

    async def find(self, digest: str) -> Principal | None:
        def op() -> Op[list[Row]]:
            return (yield FIND(digest=digest, notice=NOTICE_MS))

        rows = await self._database.read(op())
        if not rows:
            return None
        *who, key_id, is_due = rows[0]
        if is_due:
            with suppress(DocmillError):  # a full disk keeps nobody from reading
                await self._database.write(_rows(USED, id=key_id))
        return _principal(*who)

    async def list(self, tenant: str | None = None) -> list[ApiKey]:
        query = _rows(LIST) if tenant is None else _rows(LIST_OF, tenant=tenant)
        return [_key(row) for row in await self._database.read(query)]

    async def revoke(self, key_id: str, tenant: str | None = None) -> bool:
        def op() -> Op[bool]:
            revoked = yield REVOKE(id=key_id) if tenant is None else REVOKE_OF(id=key_id, tenant=tenant)
            if revoked:
                yield END_SESSIONS(id=key_id)
            return bool(revoked)

        return await self._database.write(op())

    async def is_required(self) -> bool:
        return bool(await self._database.read(_rows(IS_REQUIRED)))

    async def require(self) -> None:
        if not await self.is_required():
            await self._database.write(_rows(REQUIRE))

    async def open_session(self, key_digest: str, digest: str, *, lasts_ms: int, most: int) -> bool:
        def op() -> Op[bool]:
            found = yield KEY_OF(digest=key_digest)
            if not found:
                return False
            yield END_EXPIRED()
            yield END_OLDEST(key_id=found[0][0], keep=most - 1)
            yield ADD_SESSION(digest=digest, key_id=found[0][0], lasts=lasts_ms)
            return True

        return await self._database.write(op())

    async def find_session(self, digest: str) -> Principal | None:
        rows = await self._database.read(_rows(FIND_SESSION, digest=digest))
        return _principal(*rows[0]) if rows else None

    async def end_session(self, digest: str) -> None:
        await self._database.write(_rows(END_SESSION, digest=digest))


def _rows(statement: Statement, **params: Any) -> Op[list[Row]]:
    return (yield statement(**params))


def _principal(user: str, tenant: str, is_admin: int, is_operator: int) -> Principal:
    return Principal(user=user, tenant=tenant, is_admin=bool(is_admin), is_operator=bool(is_operator))


def _key(row: Row) -> ApiKey:
    key_id, name, *who, created_ms, used_ms, expires_ms, revoked_ms = row
    return ApiKey(
        id=key_id,
        name=name,
        principal=_principal(*who),
        created_ms=created_ms,
        used_ms=used_ms,
        expires_ms=expires_ms,
        revoked_ms=revoked_ms,
    )
