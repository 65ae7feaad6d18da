"""A task as clients see it: the field names of the wire. The result is left to whoever asks for one task alone.

Lists are read far more often than tasks change, so the ledger keeps each task's face encoded beside its row; a page
of a list is then a fetch and a join of strings. Progress alone does not encode it anew: whoever shows the face of a
task that runs puts in how far it is by now.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from docmill.core.machine import WIRE_STAGE, wire_status
from docmill.core.task import Task

_PROGRESS, _CREATED, _UPDATED = ',"progress":', ',"created_at":"', ',"updated_at":"'
"""Keys around the two places of an encoded face that progress changes. No text has them: its quotes are escaped."""
_ISO_LENGTH = len("1970-01-01T00:00:00.000Z")


def face_of(task: Task) -> dict[str, Any]:
    fault = task.fault
    return {
        "task_id": task.id,
        "user_id": task.owner,
        "project_id": task.project_id,
        "filename": task.filename,
        "rule_id": task.rule_id,
        "status": wire_status(task),
        "progress": task.progress,
        "created_at": iso(task.created_ms),
        "updated_at": iso(task.updated_ms),
        "result": None,
        "error": fault.message if fault else None,
        "metadata": {
            "s3_key": task.source_key or None,
            "provider_task_id": task.provider_task_id,
            "artifact_mineru_markdown_key": task.artifacts.markdown_key,
            "artifact_extraction_key": task.artifacts.extraction_key,
            "error_stage": fault.stage if fault else None,
            "error_code": fault.code if fault else None,
            "stage": WIRE_STAGE[task.stage],
            "attempt": task.attempt,
            "job_id": str(task.job_id) if task.job_id else None,
            "engine": task.engine or task.wishes.engine,
            "pages_done": task.pages_done,
            "pages_total": task.pages_total,
            "damaged_pages": task.damaged_pages,
            "cache_hit": task.cache_hit,
            "document_id": str(task.document_id) if task.document_id else None,
            "twin_path": task.twin_path,
            "mounted_path": task.mounted_path,
        },
    }


def moved(face: str, progress: int, updated_ms: int) -> str:
    """An encoded face with the progress of now."""
    number = face.index(_PROGRESS) + len(_PROGRESS)
    created = face.index(_CREATED, number)
    updated = face.index(_UPDATED, created) + len(_UPDATED)
    return f"{face[:number]}{progress}{face[created:updated]}{iso(updated_ms)}{face[updated + _ISO_LENGTH :]}"


def iso(ms: int) -> str:
    """Milliseconds since 1970 as ISO 8601 in UTC."""
    second, rest = divmod(ms, 1000)
    return f"{_second(second)}.{rest:03d}Z"


@lru_cache(maxsize=4096)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
