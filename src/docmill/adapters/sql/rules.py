"""The rule book in SQL."""

from __future__ import annotations

from typing import Any

import msgspec

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.statement import Op, Row, Statement
from docmill.core.access import Owner
from docmill.core.errors import Unavailable
from docmill.core.rules import DEFAULT, Draft, Rule

MAX_ID = 2**63 - 1
TRIES = 10

COLUMNS = "id, name, description, json_schema, system_prompt, mode, strategy, is_default, created_ms, updated_ms"
VISIBLE = "(is_default = 1 OR (tenant = :tenant AND owner = :owner))"

GET_DEFAULT = Statement(f"SELECT {COLUMNS} FROM rules WHERE is_default = 1")
ADD_DEFAULT = Statement(
    "INSERT INTO rules (is_default, name, description, mode, created_ms, updated_ms)"
    " VALUES (1, :name, :description, :mode, {moment}, {moment})"
    " ON CONFLICT (is_default) WHERE is_default = 1 DO NOTHING"
)
GET = Statement(f"SELECT {COLUMNS} FROM rules WHERE id = :id AND {VISIBLE}")
LIST = Statement(
    f"SELECT {COLUMNS} FROM rules WHERE {VISIBLE} ORDER BY is_default DESC, id LIMIT :limit OFFSET :offset"
)
COUNT = Statement(f"SELECT count(*) FROM rules WHERE {VISIBLE}")
ADD = Statement(
    "INSERT INTO rules"
    " (tenant, owner, name, description, json_schema, system_prompt, mode, strategy, created_ms, updated_ms)"
    " VALUES (:tenant, :owner, :name, :description, :json_schema, :system_prompt, :mode, :strategy, {moment}, {moment})"
    f" RETURNING {COLUMNS}"
)
REPLACE = Statement(
    "UPDATE rules SET name = :name, description = :description, json_schema = :json_schema,"
    " system_prompt = :system_prompt, mode = :mode, strategy = :strategy, updated_ms = {now}"
    " WHERE id = :id AND tenant = :tenant AND owner = :owner AND is_default = 0"
    f" RETURNING {COLUMNS}"
)
REMOVE = Statement(
    "DELETE FROM rules WHERE id = :id AND tenant = :tenant AND owner = :owner AND is_default = 0 RETURNING id"
)


class SqlRules:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def default(self) -> Rule:
        rows = await self._database.read(_one(GET_DEFAULT))
        return _rule(rows[0]) if rows else await self._database.write(_ensure_default())

    async def get(self, rule_id: int, who: Owner) -> Rule | None:
        if not 0 < rule_id <= MAX_ID:
            return None
        rows = await self._database.read(_one(GET, id=rule_id, tenant=who.tenant, owner=who.user), tenant=who.tenant)
        return _rule(rows[0]) if rows else None

    async def list(self, who: Owner, *, limit: int, offset: int) -> tuple[list[Rule], int]:
        return await self._database.read(_list(who, limit, offset), tenant=who.tenant, snapshot=True)

    async def add(self, draft: Draft, who: Owner) -> Rule:
        rows = await self._database.write(
            _one(ADD, tenant=who.tenant, owner=who.user, **_columns(draft)), tenant=who.tenant
        )
        return _rule(rows[0])

    async def replace(self, rule_id: int, draft: Draft, who: Owner) -> Rule | None:
        if not 0 < rule_id <= MAX_ID:
            return None
        rows = await self._database.write(
            _one(REPLACE, id=rule_id, tenant=who.tenant, owner=who.user, **_columns(draft)), tenant=who.tenant
        )
        return _rule(rows[0]) if rows else None

    async def remove(self, rule_id: int, who: Owner) -> bool:
        if not 0 < rule_id <= MAX_ID:
            return False
        gone = _one(REMOVE, id=rule_id, tenant=who.tenant, owner=who.user)
        return bool(await self._database.write(gone, tenant=who.tenant))


def _one(statement: Statement, **params: Any) -> Op[list[Row]]:
    rows = yield statement(**params)
    return rows


def _ensure_default() -> Op[Rule]:
    # The unique index lets one insert through; the others wait for its commit and then see its row.
    # Whoever finds nothing even then met a deletion, and tries again.
    for _ in range(TRIES):
        yield ADD_DEFAULT(name=DEFAULT.name, description=DEFAULT.description, mode=DEFAULT.mode)
        if rows := (yield GET_DEFAULT()):
            return _rule(rows[0])
    raise Unavailable("database_unavailable")


def _list(who: Owner, limit: int, offset: int) -> Op[tuple[list[Rule], int]]:
    rows = yield LIST(tenant=who.tenant, owner=who.user, limit=limit, offset=offset)
    total = yield COUNT(tenant=who.tenant, owner=who.user)
    return [_rule(row) for row in rows], total[0][0]


def _columns(draft: Draft) -> dict[str, Any]:
    schema = None if draft.json_schema is None else msgspec.json.encode(draft.json_schema).decode()
    return {
        "name": draft.name,
        "description": draft.description,
        "json_schema": schema,
        "system_prompt": draft.system_prompt,
        "mode": draft.mode,
        "strategy": draft.strategy,
    }


def _rule(row: Row) -> Rule:
    number, name, description, schema, prompt, mode, strategy, is_default, created_ms, updated_ms = row
    return Rule(
        id=number,
        name=name,
        description=description,
        json_schema=None if schema is None else msgspec.json.decode(schema),
        system_prompt=prompt,
        mode=mode,
        strategy=strategy,
        is_default=bool(is_default),
        created_ms=created_ms,
        updated_ms=updated_ms,
    )
