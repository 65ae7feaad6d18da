"""The daybook: progress as it came, until it is posted to the tasks and their logs.

A report changes a page of its task, a page of the log and a page of the log's index, and no two jobs share them. The
daybook grows at its end, so that a commit of many reports writes a page or two; posted together, the reports of a job
share their pages.

It is there where one process changes tasks. Nobody sees a task before its reports are posted (`Database.write`,
*later*).
"""

from __future__ import annotations

from docmill.adapters.sql.statement import Op, Statement

ENTER = Statement(
    """
    INSERT INTO daybook (task_id, seq, version, progress, updated_ms, data, at_ms)
    VALUES (:task_id, :seq, :version, :progress, :updated_ms, :data, :at_ms)
    """
)
# Nobody changes a task before its reports are posted. One that was changed all the same keeps what it is.
MOVE_TASKS = Statement(
    """
    UPDATE tasks SET version = d.version, event_seq = d.seq, progress = d.progress, updated_ms = d.updated_ms
    FROM (
        SELECT task_id, MIN(version) AS first, MAX(version) AS version, MAX(seq) AS seq, MAX(progress) AS progress,
               MAX(updated_ms) AS updated_ms
        FROM daybook GROUP BY task_id
    ) d
    WHERE tasks.id = d.task_id AND tasks.version = d.first - 1
    """
)
LOG = Statement(
    """
    INSERT INTO events (task_id, seq, kind, data, at_ms)
    SELECT d.task_id, d.seq, 'progress', d.data, d.at_ms
    FROM daybook d JOIN tasks t ON t.id = d.task_id AND d.seq <= t.event_seq
    ORDER BY d.task_id, d.seq
    ON CONFLICT (task_id, seq) DO NOTHING
    """
)
CLEAR = Statement("DELETE FROM daybook")


def post() -> Op[None]:
    yield MOVE_TASKS()
    yield LOG()
    yield CLEAR()
