"""Which stored files the database names, and which of those found in the store it does not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from uuid import uuid4

import msgspec

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.rows import TASK_COLUMNS, task_of
from docmill.adapters.sql.statement import Op, Query, Row, Statement
from docmill.core.task import Task
from docmill.ports import Pointer

RANDOM_TASKS = 20
"""Single tasks at random places, beside the newest."""

NEWEST = Statement(f"SELECT {TASK_COLUMNS} FROM tasks ORDER BY id DESC LIMIT :limit")
ONE_FROM = Statement(f"SELECT {TASK_COLUMNS} FROM tasks WHERE id >= :start ORDER BY id LIMIT 1")
DOCUMENTS = Statement(
    "SELECT tenant, document_id, body FROM documents WHERE deleted_ms IS NULL"
    " AND (tenant, document_id, version) > (CAST(:tenant AS TEXT), CAST(:document_id AS TEXT), '')"
    " ORDER BY tenant, document_id, version LIMIT :limit"
)
ASSETS = Statement(
    "SELECT tenant, document_id, body FROM document_assets WHERE deleted_ms IS NULL"
    " AND (tenant, document_id, version) > (CAST(:tenant AS TEXT), CAST(:document_id AS TEXT), '')"
    " ORDER BY tenant, document_id, version LIMIT :limit"
)
KNOWN_TASKS = Statement(
    " UNION ".join(
        f"SELECT {column} FROM {table}"
        f" WHERE {column} IN (SELECT CAST(value AS BIGINT) FROM {{each}}(CAST(:ids AS {{json}})))"
        for table, column in (("tasks", "id"), ("tombstones", "task_id"))
    )
)
KNOWN_DOCUMENTS = Statement(
    "SELECT DISTINCT document_id FROM documents WHERE document_id IN (SELECT value FROM {each}(CAST(:ids AS {json})))"
)


class SqlPointers:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def sample(self, *, limit: int) -> list[Pointer]:
        return await self._database.read(_sample(limit), snapshot=True)

    async def known_tasks(self, ids: Sequence[int]) -> set[int]:
        rows = await self._database.read(_rows(KNOWN_TASKS(ids=_json(ids)))) if ids else []
        return {row[0] for row in rows}

    async def known_documents(self, ids: Sequence[str]) -> set[str]:
        rows = await self._database.read(_rows(KNOWN_DOCUMENTS(ids=_json(ids)))) if ids else []
        return {row[0] for row in rows}


def _rows(query: Query) -> Op[list[Row]]:
    return (yield query)


def _json(values: Sequence[int | str]) -> str:
    return msgspec.json.encode(list(values)).decode()


def _sample(limit: int) -> Op[list[Pointer]]:
    rows = list((yield NEWEST(limit=limit)))
    highest = rows[0][0] if rows else 0
    for _ in range(RANDOM_TASKS if len(rows) == limit else 0):
        rows += yield ONE_FROM(start=random.randint(1, highest))
    tasks = {row[0]: task_of(row) for row in rows}
    found = [pointer for task in tasks.values() for pointer in _of_task(task)]
    for statement in (DOCUMENTS, ASSETS):
        start = {"tenant": random.choice([*tasks.values()]).tenant if tasks else "", "document_id": str(uuid4())}
        some = list((yield statement(**start, limit=limit)))
        if len(some) < limit:
            some += yield statement(tenant="", document_id="", limit=limit)
        found += [pointer for row in some for pointer in _of_document(row)]
    return list(dict.fromkeys(found))


def _of_task(task: Task) -> list[Pointer]:
    made = task.artifacts
    keys = (task.source_key, made.markdown_key, made.parsed_key, made.output_key, made.extraction_key)
    sizes = (task.source_size, None, None, None, None)
    return [Pointer(task.tenant, f"task {task.id}", key, size) for key, size in zip(keys, sizes, strict=True) if key]


def _of_document(row: Row) -> list[Pointer]:
    tenant, document_id, body = row
    blob = msgspec.json.decode(body)["blob"]
    uri = blob.get("uri", "")
    return [Pointer(tenant, f"document {document_id}", uri, blob.get("size"))] if uri.startswith("docmill:") else []
