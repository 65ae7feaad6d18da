"""Lists of tasks, a page at a time: a statement for every mix of filters, so that each one uses its own index."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from docmill.adapters.sql.rows import STATUS_OF, TASK_COLUMNS, encode, task_of
from docmill.adapters.sql.statement import Op, Row, Statement
from docmill.core.access import Owner
from docmill.core.face import insert_result, moved, omit_result
from docmill.core.machine import RUNNING_WIRE_STATUSES
from docmill.core.task import Status, Task
from docmill.ports import Face, Faces, Filter, Listing

_Lists = dict[tuple[bool, str, bool], tuple[Statement, Statement]]

_ANY_RUNNING = ", ".join(f"'{status}'" for status in RUNNING_WIRE_STATUSES)
STATUS = {"": "", "one": " AND status = :status", "running": f" AND status IN ({_ANY_RUNNING})"}
"""By how a list filters by status."""


def _lists(columns: str) -> _Lists:
    """By what they filter: the page with the total in each row, and the total alone."""
    statements = {}
    for project, status, keyset in product((False, True), STATUS, (False, True)):
        where = "tenant = :tenant AND owner = :owner"
        where += " AND project_id = :project_id" if project else ""
        where += STATUS[status]
        page = where + (" AND id < :before" if keyset else "")
        total = f"SELECT CAST(COALESCE(SUM(n), 0) AS BIGINT) FROM task_counts WHERE {where}"
        statements[project, status, keyset] = (
            Statement(
                f"SELECT {columns}, ({total}) FROM tasks WHERE {page} ORDER BY id DESC LIMIT :limit OFFSET :offset"
            ),
            Statement(total),
        )
    return statements


LISTS = _lists(TASK_COLUMNS)
FACES = _lists(
    "id, face, status, progress, updated_ms,"
    " CASE WHEN status = 'completed' THEN (SELECT output FROM results WHERE task_id = tasks.id) END"
)
OUTPUTS = Statement(
    "SELECT task_id, output FROM results"
    " WHERE task_id IN (SELECT CAST(value AS BIGINT) FROM {each}(CAST(:ids AS {json})))"
)
_COMPLETED = Status.COMPLETED.value
_BY_IDS: dict[int, Statement] = {}


def tasks(where: Filter) -> Op[Listing]:
    rows, total = yield from _page(LISTS, where)
    return Listing([task_of(row) for row in rows], total)


def faces(where: Filter) -> Op[Faces]:
    rows, total = yield from _page(FACES, where)
    found: list[Face] = []
    unread: list[int] = []
    for number, face, status, progress, updated_ms, output, _ in rows:
        shown = face
        if output:
            shown = insert_result(face, output)
        elif status == _COMPLETED:
            if output is None:
                unread.append(number)
            else:
                shown = omit_result(face)
        elif STATUS_OF[status] is Status.RUNNING:
            shown = moved(face, progress, updated_ms)
        found.append((number, shown))
    return Faces(found, total, unread)


def _page(lists: _Lists, where: Filter) -> Op[tuple[list[Row], int]]:
    status = "" if where.status is None else "running" if where.status == Status.RUNNING else "one"
    page, total = lists[where.project_id is not None, status, where.before is not None]
    params = {
        "tenant": where.who.tenant,
        "owner": where.who.user,
        "project_id": where.project_id,
        "status": where.status,
        "before": where.before,
        "limit": where.limit,
        "offset": where.offset,
    }
    rows = yield page(**params)
    count = rows or (yield total(**params))
    return rows, int(count[0][-1])


def batch(task_ids: Sequence[int], who: Owner) -> Op[list[Task]]:
    unique = list(dict.fromkeys(task_ids))
    if not unique:
        return []
    rows = yield _by_ids(len(unique))(tenant=who.tenant, owner=who.user, **{f"id{n}": i for n, i in enumerate(unique)})
    found = {row[0]: task_of(row) for row in rows}
    return [found[task_id] for task_id in unique if task_id in found]


def _by_ids(count: int) -> Statement:
    if count not in _BY_IDS:
        names = ", ".join(f"CAST(:id{n} AS BIGINT)" for n in range(count))
        _BY_IDS[count] = Statement(
            f"SELECT {TASK_COLUMNS} FROM tasks WHERE tenant = :tenant AND owner = :owner AND id IN ({names})"
        )
    return _BY_IDS[count]


def outputs(task_ids: Sequence[int]) -> Op[dict[int, str]]:
    rows = yield OUTPUTS(ids=encode(list(task_ids)))
    return {row[0]: row[1] for row in rows}
