"""Times that nobody can have meant, because the database's clock was put back after they were written.

A lease, a deadline or a delay is a moment of that clock. Put back by an hour, it would keep a dead worker's task for an
hour, and a retry of a second would come an hour late. So what lies further ahead than anybody sets it counts from now.
"""

from __future__ import annotations

from docmill.adapters.sql.statement import Op, Statement

MOST_DELAY_MS = 120_000
"""Longer than any backoff of the machine."""
MARGIN_MS = 120_000
"""Workers may have longer leases than ours."""

FAR = Statement(
    """
    SELECT id FROM attempts WHERE state = 'queued' AND due_ms > {now} + CAST(:most_ms AS BIGINT)
    UNION ALL
    SELECT id FROM attempts WHERE state = 'running' AND lease_ms > {now} + CAST(:far_ms AS BIGINT)
    UNION ALL
    SELECT id FROM attempts WHERE state = 'handed_over' AND lease_ms > {now} + CAST(:far_ms AS BIGINT)
    UNION ALL
    SELECT id FROM attempts
    WHERE state = 'handed_over' AND deadline_ms > {now} + timeout_ms + CAST(:margin_ms AS BIGINT)
    LIMIT 1
    """
)
DUE_NOW = Statement(
    """
    UPDATE attempts SET due_ms = {now}
    WHERE state = 'queued' AND due_ms > {now} + CAST(:most_ms AS BIGINT) RETURNING id
    """
)
LEASED_FROM_NOW = Statement(
    """
    UPDATE attempts SET lease_ms = {now} + CAST(:lease_ms AS BIGINT)
    WHERE state IN ('running', 'handed_over') AND lease_ms > {now} + CAST(:far_ms AS BIGINT) RETURNING id
    """
)
EXPECTED_FROM_NOW = Statement(
    """
    UPDATE attempts SET deadline_ms = {now} + timeout_ms
    WHERE state = 'handed_over' AND deadline_ms > {now} + timeout_ms + CAST(:margin_ms AS BIGINT) RETURNING id
    """
)
RESTART_LEASES = Statement(
    """
    UPDATE attempts SET lease_ms = {now} + CAST(:lease_ms AS BIGINT)
    WHERE state IN ('running', 'handed_over') AND lease_ms < {now} RETURNING id
    """
)
RESTART_DEADLINES = Statement(
    """
    UPDATE attempts SET deadline_ms = {now} + timeout_ms
    WHERE state = 'handed_over' AND deadline_ms < {now} RETURNING id
    """
)


def restart(lease_ms: int) -> Op[int]:
    """The clock jumped forward over them: whoever is alive renews them, and the others lapse a period later."""
    leased = yield RESTART_LEASES(lease_ms=lease_ms)
    expected = yield RESTART_DEADLINES()
    return len(leased) + len(expected)


def is_off(lease_ms: int) -> Op[bool]:
    rows = yield FAR(most_ms=MOST_DELAY_MS, far_ms=_far(lease_ms), margin_ms=MARGIN_MS)
    return bool(rows)


def mend(lease_ms: int) -> Op[int]:
    due = yield DUE_NOW(most_ms=MOST_DELAY_MS)
    leased = yield LEASED_FROM_NOW(lease_ms=lease_ms, far_ms=_far(lease_ms))
    expected = yield EXPECTED_FROM_NOW(margin_ms=MARGIN_MS)
    return len(due) + len(leased) + len(expected)


def _far(lease_ms: int) -> int:
    return 4 * lease_ms + MARGIN_MS
