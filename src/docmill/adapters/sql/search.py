"""Search among tasks: by a part of the file name, by status and by error code, a bounded part of the list at a time."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from docmill.adapters.sql.rows import TASK_COLUMNS, task_of
from docmill.adapters.sql.statement import Op, Statement
from docmill.ports import FailureCount, Found, Search

MAX_ID = 2**63 - 1
COUNTS = Statement("SELECT status, CAST(SUM(n) AS BIGINT) FROM task_counts GROUP BY status")
OWN_COUNTS = "SELECT status, CAST(SUM(n) AS BIGINT) FROM task_counts WHERE {where} GROUP BY status"


def search(where: Search, dialect: str) -> Op[Found]:
    edge_of, page = _statements(where.project_id is not None, where.status is not None, *_filters(where))
    params = _params(where, dialect)
    edge = None
    if any(_filters(where)):
        # The edge comes from the index alone; the rows between are the only ones whose names are read.
        edges = yield edge_of(**params)
        edge = edges[0][0] if edges else None
    rows = yield page(**params, edge=edge or 0)
    tasks = [task_of(row) for row in rows]
    return Found(tasks, tasks[-1].id if len(tasks) == where.limit else edge)


def failures(where: Search, dialect: str) -> Op[list[FailureCount]]:
    rows = yield _failures(where.project_id is not None, bool(where.name))(**_params(where, dialect))
    return [FailureCount(row[0] or "", int(row[1])) for row in rows]


def counts(tenant: str, owner: str, project_id: int | None) -> Op[dict[str, int]]:
    rows = yield _own_counts(project_id is not None)(tenant=tenant, owner=owner, project_id=project_id)
    return {row[0]: int(row[1]) for row in rows}


def pattern(name: str, dialect: str) -> str:
    """What a name must match to contain *name*, in upper or lower case: for GLOB of SQLite, `~` of PostgreSQL.

    The letters are spelled out in both cases, because the databases fold only ASCII or what their locale knows.
    """
    if dialect == "postgres":
        return "".join(_either(char) or re.escape(char) for char in name)
    return f"*{''.join(_either(char) or (f'[{char}]' if char in '*?[' else char) for char in name)}*"


def _either(char: str) -> str:
    cases = sorted({one for one in (char, char.lower(), char.upper()) if len(one) == 1})
    return f"[{''.join(cases)}]" if len(cases) > 1 else ""


def _filters(where: Search) -> tuple[bool, bool]:
    return bool(where.name), where.error_code is not None


def _params(where: Search, dialect: str) -> dict[str, Any]:
    return {
        "tenant": where.who.tenant,
        "owner": where.who.user,
        "project_id": where.project_id,
        "status": where.status,
        "name": pattern(where.name, dialect),
        "error_code": where.error_code,
        "before": MAX_ID if where.before is None else where.before,
        "limit": where.limit,
        "max_scanned": where.max_scanned,
        "skip": where.max_scanned - 1,
    }


def _where(*, project: bool, status: str = "") -> str:
    return (
        "tenant = :tenant AND owner = :owner"
        + (" AND project_id = :project_id" if project else "")
        + (f" AND status = {status}" if status else "")
    )


@cache
def _statements(project: bool, status: bool, name: bool, error_code: bool) -> tuple[Statement, Statement]:
    where = _where(project=project, status=":status" if status else "") + " AND id < :before"
    page = where + " AND id >= :edge"
    page += " AND filename {matches} :name" if name else ""
    page += " AND {error_code} = :error_code" if error_code else ""
    return (
        Statement(f"SELECT id FROM tasks WHERE {where} ORDER BY id DESC LIMIT 1 OFFSET :skip"),
        Statement(f"SELECT {TASK_COLUMNS} FROM tasks WHERE {page} ORDER BY id DESC LIMIT :limit"),
    )


@cache
def _failures(project: bool, name: bool) -> Statement:
    where = _where(project=project, status="'failed'")
    where += " AND filename {matches} :name" if name else ""
    return Statement(
        f"""
        SELECT {{error_code}}, COUNT(*) FROM (
            SELECT body FROM tasks WHERE {where} ORDER BY id DESC LIMIT :max_scanned
        ) AS newest GROUP BY 1 ORDER BY 2 DESC, 1
        """
    )


@cache
def _own_counts(project: bool) -> Statement:
    return Statement(OWN_COUNTS.replace("{where}", _where(project=project)))
