"""Lists of jobs, a page at a time: a statement for every mix of filters, so that each one uses its own index."""

from __future__ import annotations

from itertools import product
from typing import Any

from docmill.adapters.sql.rows import ATTEMPT_COLUMNS, ATTEMPT_WIDTH, attempt_of, decode, of
from docmill.adapters.sql.statement import Op, Row, Statement
from docmill.ports import JobFilter, JobLine, JobListing

_LAST = """
    SELECT e.data FROM events e
    WHERE e.task_id = a.task_id AND (e.kind IN ({kinds}) OR (e.kind = 'stage_succeeded' AND e.data LIKE '%"{field}":%'))
      AND e.at_ms >= a.started_ms AND (a.ended_ms IS NULL OR e.at_ms <= a.ended_ms)
    ORDER BY e.seq DESC LIMIT 1
"""
_LAST_MESSAGE = _LAST.format(kinds="'progress', 'worker_error'", field="message")
_LAST_PROGRESS = _LAST.format(kinds="'progress'", field="percent")


def _lists() -> dict[tuple[bool, bool], tuple[Statement, Statement]]:
    """By what they filter (status, position): the page with the total in each row, and the total alone."""
    statements = {}
    for by_status, is_keyset in product((False, True), repeat=2):
        where = "a.dialect IS NOT NULL AND a.job_tenant = :tenant AND a.job_user = :owner"
        where += " AND a.job_status = :status" if by_status else ""
        total = f"SELECT COUNT(*) FROM attempts a WHERE {where}"
        page = where + (" AND a.started_ms < :before" if is_keyset else "")
        statements[by_status, is_keyset] = (
            Statement(
                f"""
                SELECT {of("a", ATTEMPT_COLUMNS)}, t.filename, t.updated_ms, ({_LAST_MESSAGE}), ({_LAST_PROGRESS}),
                       ({total})
                FROM attempts a JOIN tasks t ON t.id = a.task_id
                WHERE {page} ORDER BY a.started_ms DESC, a.id DESC LIMIT :limit OFFSET :offset
                """
            ),
            Statement(total),
        )
    return statements


LISTS = _lists()


def page(where: JobFilter) -> Op[JobListing]:
    statement, total = LISTS[where.status is not None, where.before_ms is not None]
    params = {
        "tenant": where.who.tenant,
        "owner": where.who.user,
        "status": where.status,
        "before": where.before_ms,
        "limit": where.limit,
        "offset": where.offset,
    }
    rows = yield statement(**params)
    count = rows or (yield total(**params))
    return JobListing([_line(row) for row in rows], int(count[0][-1]))


def _line(row: Row) -> JobLine:
    filename, updated_ms, message, progress = row[ATTEMPT_WIDTH : ATTEMPT_WIDTH + 4]
    return JobLine(
        attempt_of(row), filename, updated_ms, _said(message).get("message") or None, _said(progress).get("percent")
    )


def _said(data: str | None) -> dict[str, Any]:
    return decode(data) if data else {}
