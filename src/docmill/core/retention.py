"""How long tasks are kept after they ended, and what is left of them then."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from docmill.core.task import Status


@dataclass(frozen=True, slots=True)
class Retention:
    """For how many milliseconds a task that has ended is kept. None: for ever."""

    completed_ms: int | None = None
    failed_ms: int | None = None
    """Of tasks that failed or were cancelled."""
    documents: bool = False
    """The documents that a task made go with it."""

    @property
    def shortest_ms(self) -> int | None:
        return min((ms for ms in (self.completed_ms, self.failed_ms) if ms is not None), default=None)

    def is_over(self, status: Status, still_ms: int) -> bool:
        """Whether a task of this status, unchanged for *still_ms*, has been kept long enough."""
        if not status.is_final:
            return False
        kept_ms = self.completed_ms if status is Status.COMPLETED else self.failed_ms
        return kept_ms is not None and still_ms > kept_ms


@dataclass(frozen=True, slots=True)
class Aged:
    """A task as retention sees it, by the database's clock."""

    id: int
    status: Status
    age_ms: int
    still_ms: int
    """Since its last change."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is remembered of a task that was removed: neither its file's name nor anything of its content."""

    task_id: int
    tenant: str
    owner: str
    status: str
    ended_ms: int
    expired_ms: int


@dataclass(frozen=True, slots=True)
class Leavings:
    """Where a removed task may still have objects in the store."""

    project_id: int
    source_key: str
    attempts: tuple[UUID, ...]
    loans: tuple[str, ...] = ()
    """Parses of other tasks that it used."""


@dataclass(frozen=True, slots=True)
class Estate:
    """A tombstone whose objects have yet to be removed."""

    stone: Tombstone
    leavings: Leavings
