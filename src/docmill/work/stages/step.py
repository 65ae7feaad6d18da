"""What a stage is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

from docmill.core.access import Owner
from docmill.core.errors import DocmillError
from docmill.core.keys import artifact_key
from docmill.core.task import Artifacts, Attempt, Task
from docmill.ports import PageReport


async def _nothing() -> None: ...


@dataclass(frozen=True, slots=True)
class Step:
    task: Task
    attempt: Attempt
    report: PageReport
    parsed: Callable[[], Awaitable[None]] = _nothing
    """To be awaited when the engine is done, before the results are stored."""
    report_id: str = ""
    """Of an external worker's final report: several may come at once for one attempt, and only one of them counts."""

    @property
    def owner(self) -> Owner:
        return Owner(self.task.tenant, self.task.owner)

    def key(self, name: str) -> str:
        """The key of an artifact of this attempt or report: its own folder, so that none overwrites another's."""
        task = self.task
        within = f"{self.report_id}/{name}" if self.report_id else name
        return artifact_key(task.owner, task.project_id, task.id, self.attempt.id.hex[:12], within)


def leavings_of(task: Task, attempt_id: UUID) -> tuple[str, ...]:
    """Below what one attempt alone may have left something: its artifacts, and what went to and from its worker."""
    return folders_of(task.owner, task.project_id, task.id, attempt_id)


def folders_of(owner: str, project_id: int, task_id: int, attempt_id: UUID) -> tuple[str, ...]:
    """The same for a task of which nothing else is known any more. The artifacts come first."""
    artifacts = artifact_key(owner, project_id, task_id, attempt_id.hex[:12], "x").removesuffix("x")
    return artifacts, result_prefix(attempt_id), brief_key(attempt_id)


def result_prefix(job_id: UUID) -> str:
    """Where a job's worker may leave its result."""
    return f"results/{job_id}/"


def result_key(job_id: UUID) -> str:
    return f"{result_prefix(job_id)}output.zip"


def job_of_result(key: str) -> UUID | None:
    """The job whose result has this key; None: it is the key of something else."""
    _, _, rest = key.partition("/")
    try:
        job_id = UUID(rest.partition("/")[0])
    except ValueError:
        return None
    return job_id if result_key(job_id) == key else None


def brief_key(job_id: UUID) -> str:
    return f"briefs/{job_id}.json"


class AtStage(Exception):
    """An error with the part of the work that it belongs to (`twin`, `mount`), finer than the stage."""

    def __init__(self, error: DocmillError, stage: str, artifacts: Artifacts | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.stage = stage
        self.artifacts = artifacts
        """What was kept for reading, although the stage failed."""
