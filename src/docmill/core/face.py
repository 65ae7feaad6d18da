"""A task as clients see it: the field names of the wire.

Lists are read far more often than tasks change, so the ledger keeps each task's face encoded beside its row; a page
of a list is then a fetch and a join of strings. Progress alone does not encode it anew: whoever shows the face of a
task that runs puts in how far it is by now. A small result is kept in a row of its own, and spliced in.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from docmill.core.machine import WIRE_STAGE, wire_status
from docmill.core.task import Task

MAX_LISTED_RESULT_BYTES = 64 * 1024
"""A larger result is left out of lists."""

_PROGRESS, _CREATED, _UPDATED = ',"progress":', ',"created_at":"', ',"updated_at":"'
"""Keys around the two places of an encoded face that progress changes. No text has them: its quotes are escaped."""
_RESULT, _OMITTED = ',"result":null', ',"result_omitted":false,"result_error":null'
"""Where a result, or the reason why there is none, is put in. The same holds for these keys."""
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
            "worker_error": asdict(fault.worker_error) if fault and fault.worker_error else None,
            "stage": WIRE_STAGE[task.stage],
            "attempt": task.attempt,
            "job_id": str(task.job_id) if task.job_id else None,
            "engine": task.engine or task.wishes.engine,
            "pages_done": task.pages_done,
            "pages_total": task.pages_total,
            "damaged_pages": task.damaged_pages,
            "missing_archives": task.missing_archives,
            "cache_hit": task.cache_hit,
            "document_id": str(task.document_id) if task.document_id else None,
            "twin_path": task.twin_path,
            "result_omitted": False,
            "result_error": None,
            "mount_table_id": task.mount_table_id or (task.wishes.mount.table_id if task.wishes.mount else None),
            "mounted_path": task.mounted_path,
        },
    }


def moved(face: str, progress: int, updated_ms: int) -> str:
    """An encoded face with the progress of now."""
    number = face.index(_PROGRESS) + len(_PROGRESS)
    created = face.index(_CREATED, number)
    updated = face.index(_UPDATED, created) + len(_UPDATED)
    return f"{face[:number]}{progress}{face[created:updated]}{iso(updated_ms)}{face[updated + _ISO_LENGTH :]}"


def insert_result(face: str, result: str) -> str:
    """An encoded face with the task's result, which is JSON already."""
    before, key, after = face.partition(_RESULT)
    return f'{before},"result":{result}{after}' if key else face


def omit_result(face: str, error: str | None = None) -> str:
    """An encoded face that says that the result is too large for a list, or could not be read (a code)."""
    why = f',"result_omitted":false,"result_error":"{error}"' if error else ',"result_omitted":true,"result_error":null'
    return face.replace(_OMITTED, why, 1)


def listed_result(output: bytes) -> str:
    """An output as lists keep it: empty if it is too large."""
    return output.decode() if len(output) <= MAX_LISTED_RESULT_BYTES else ""


def iso(ms: int) -> str:
    """Milliseconds since 1970 as ISO 8601 in UTC."""
    second, rest = divmod(ms, 1000)
    return f"{_second(second)}.{rest:03d}Z"


@lru_cache(maxsize=4096)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
