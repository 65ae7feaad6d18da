"""Tables, the JSON values of projects, in SQL. Beside each lies which task mounted which of its entries."""

from __future__ import annotations

from typing import Any

import msgspec

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.statement import Op, Row, Statement
from docmill.core.access import Owner
from docmill.core.mounting import survives
from docmill.core.pointer import render
from docmill.ports import Edit, Table

MAX_ID = 2**63 - 1

COLUMNS = "id, project_id, name, data, created_ms, updated_ms"
OWN = "id = :id AND tenant = :tenant AND owner = :owner"

ADD = Statement(
    "INSERT INTO json_tables (tenant, owner, project_id, name, data, version, created_ms, updated_ms)"
    f" VALUES (:tenant, :owner, :project_id, :name, :data, 1, {{moment}}, {{moment}}) RETURNING {COLUMNS}"
)
GET = Statement(f"SELECT {COLUMNS} FROM json_tables WHERE {OWN}")
EXISTS = Statement(f"SELECT 1 FROM json_tables WHERE {OWN}")
GET_LOCKED = Statement(f"SELECT {COLUMNS} FROM json_tables WHERE {OWN} {{lock}}")
LIST = Statement(
    "SELECT id, project_id, name, 'null', created_ms, updated_ms FROM json_tables"
    " WHERE tenant = :tenant AND owner = :owner AND project_id = :project_id ORDER BY id"
)
REPLACE = Statement(
    "UPDATE json_tables SET name = :name, data = :data, version = version + 1, updated_ms = {now}"
    f" WHERE {OWN} RETURNING {COLUMNS}"
)
REMOVE = Statement(f"DELETE FROM json_tables WHERE {OWN} RETURNING id")
MOUNTS = Statement("SELECT pointer, entry, task_id FROM mounts WHERE table_id = :id")
KEEP_MOUNT = Statement(
    "INSERT INTO mounts (table_id, pointer, entry, task_id) VALUES (:id, :pointer, :entry, :task_id)"
    " ON CONFLICT (table_id, pointer, entry) DO UPDATE SET task_id = excluded.task_id"
)
DROP_MOUNT = Statement("DELETE FROM mounts WHERE table_id = :id AND pointer = :pointer AND entry = :entry")


class SqlTables:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, who: Owner, project_id: int, name: str, data: Any) -> Table:
        query = ADD(tenant=who.tenant, owner=who.user, project_id=project_id, name=name, data=_encode(data))

        def op() -> Op[Table]:
            rows = yield query
            return _table(rows[0])

        return await self._database.write(op(), tenant=who.tenant)

    async def get(self, table_id: int, who: Owner) -> Table | None:
        if not 0 < table_id <= MAX_ID:
            return None

        def op() -> Op[list[Row]]:
            return (yield GET(id=table_id, tenant=who.tenant, owner=who.user))

        rows = await self._database.read(op(), tenant=who.tenant)
        return _table(rows[0]) if rows else None

    async def exists(self, table_id: int, who: Owner) -> bool:
        if not 0 < table_id <= MAX_ID:
            return False

        def op() -> Op[bool]:
            return bool((yield EXISTS(id=table_id, tenant=who.tenant, owner=who.user)))

        return await self._database.read(op(), tenant=who.tenant)

    async def list(self, who: Owner, project_id: int) -> list[Table]:
        def op() -> Op[list[Row]]:
            return (yield LIST(tenant=who.tenant, owner=who.user, project_id=project_id))

        return [_table(row) for row in await self._database.read(op(), tenant=who.tenant)]

    async def replace(self, table_id: int, who: Owner, *, name: str | None, data: Any) -> Table | None:
        if not 0 < table_id <= MAX_ID:
            return None
        return await self._database.write(_replace(table_id, who, name, data, _encode(data)), tenant=who.tenant)

    async def remove(self, table_id: int, who: Owner) -> bool:
        if not 0 < table_id <= MAX_ID:
            return False

        def op() -> Op[bool]:
            rows = yield REMOVE(id=table_id, tenant=who.tenant, owner=who.user)
            return bool(rows)

        return await self._database.write(op(), tenant=who.tenant)

    async def edit(self, table_id: int, who: Owner, edit: Edit) -> Table | None:
        if not 0 < table_id <= MAX_ID:
            return None
        return await self._database.write(_edit(table_id, who, edit), tenant=who.tenant)


def _replace(table_id: int, who: Owner, name: str | None, data: Any, encoded: str) -> Op[Table | None]:
    rows = yield GET_LOCKED(id=table_id, tenant=who.tenant, owner=who.user)
    if not rows:
        return None
    old = _table(rows[0])
    yield from _forget(table_id, old.data, data)
    rows = yield REPLACE(
        id=table_id, tenant=who.tenant, owner=who.user, name=old.name if name is None else name, data=encoded
    )
    return _table(rows[0])


def _edit(table_id: int, who: Owner, edit: Edit) -> Op[Table | None]:
    rows = yield GET_LOCKED(id=table_id, tenant=who.tenant, owner=who.user)
    if not rows:
        return None
    old = _table(rows[0])
    mounts = yield MOUNTS(id=table_id)
    mounted = {(pointer, entry): task_id for pointer, entry, task_id in mounts}
    data, pointer, entry, task_id = edit(old.data, lambda pointer, entry: mounted.get((pointer, entry)))
    encoded = _encode(data)
    if pointer is not None and entry is not None and task_id is not None:
        yield from _remember(table_id, pointer, entry, task_id, mounted)
    else:
        yield from _forget(table_id, old.data, data)
    rows = yield REPLACE(id=table_id, tenant=who.tenant, owner=who.user, name=old.name, data=encoded)
    return _table(rows[0])


def _remember(table_id: int, pointer: str, entry: str, task_id: int, mounted: dict[tuple[str, str], int]) -> Op[None]:
    inside = pointer + render((entry,))
    for other, name in mounted:
        if other == inside or other.startswith(f"{inside}/"):
            # It lay inside the entry that was just replaced as a whole.
            yield DROP_MOUNT(id=table_id, pointer=other, entry=name)
    yield KEEP_MOUNT(id=table_id, pointer=pointer, entry=entry, task_id=task_id)


def _forget(table_id: int, old: Any, new: Any) -> Op[None]:
    """What somebody changed by hand is theirs: no task may replace it any more as if it were its own."""
    mounts = yield MOUNTS(id=table_id)
    for pointer, entry, _ in mounts:
        if not survives(old, new, pointer, entry):
            yield DROP_MOUNT(id=table_id, pointer=pointer, entry=entry)


def _encode(data: Any) -> str:
    return msgspec.json.encode(data).decode()


def _table(row: Row) -> Table:
    number, project_id, name, data, created_ms, updated_ms = row
    return Table(number, project_id, name, msgspec.json.decode(data), created_ms, updated_ms)
