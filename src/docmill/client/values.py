"""What the service says, as frozen values. Fields that a newer service adds are left out, not refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, TypeVar

T = TypeVar("T")

FINAL = frozenset({"completed", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Metadata:
    """Everything else that is known of a task, under the names of the wire."""

    s3_key: str | None = None
    provider_task_id: str | None = None
    artifact_mineru_markdown_key: str | None = None
    artifact_extraction_key: str | None = None
    error_stage: str | None = None
    error_code: str | None = None
    stage: str = ""
    attempt: int = 0
    job_id: str | None = None
    engine: str | None = None
    pages_done: int | None = None
    pages_total: int | None = None
    damaged_pages: list[int] = field(default_factory=list)
    missing_archives: list[str] = field(default_factory=list)
    cache_hit: bool = False
    document_id: str | None = None
    twin_path: str | None = None
    mounted_path: str | None = None
    mount_table_id: int | None = None
    result_omitted: bool = False
    result_error: str | None = None
    """Why the result of a completed task cannot be read: `object_not_found`, `object_damaged`."""


@dataclass(frozen=True, slots=True)
class Task:
    id: int
    owner: str
    project_id: int
    filename: str
    rule_id: int
    status: str
    progress: int
    created_at: datetime
    updated_at: datetime
    result: Any
    error: str | None
    metadata: Metadata

    @property
    def is_final(self) -> bool:
        return self.status in FINAL

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Task:
        return cls(
            id=raw["task_id"],
            owner=raw["user_id"],
            project_id=raw["project_id"],
            filename=raw["filename"],
            rule_id=raw["rule_id"],
            status=raw["status"],
            progress=raw["progress"],
            created_at=datetime.fromisoformat(raw["created_at"]),
            updated_at=datetime.fromisoformat(raw["updated_at"]),
            result=raw.get("result"),
            error=raw.get("error"),
            metadata=made(Metadata, raw["metadata"]),
        )


@dataclass(frozen=True, slots=True)
class Submitted:
    task_id: int
    status: str
    filename: str
    s3_key: str | None = None
    is_replay: bool = False
    """The Idempotency-Key was seen before, and this is the task of then."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a task's log."""

    seq: int
    kind: str
    data: Mapping[str, Any]
    at: datetime

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Event:
        return cls(int(raw["seq"]), str(raw["kind"]), raw["data"], datetime.fromisoformat(raw["at"]))


@dataclass(frozen=True, slots=True)
class Ack:
    task_id: int
    status: str
    message: str


@dataclass(frozen=True, slots=True)
class Mounted:
    mounted_path: str
    message: str = ""
    success: bool = True


@dataclass(frozen=True, slots=True)
class Rule:
    id: int
    name: str
    description: str
    json_schema: Mapping[str, Any] | None
    system_prompt: str | None
    postprocess_mode: str
    postprocess_strategy: str | None
    is_default: bool


@dataclass(frozen=True, slots=True)
class Table:
    id: int
    project_id: int
    name: str
    data: Any = None
    """Lists leave it out."""


def made(kind: type[T], raw: Mapping[str, Any]) -> T:
    """A value of the fields that we know."""
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]  # dataclasses only
    return kind(**{name: value for name, value in raw.items() if name in known})
