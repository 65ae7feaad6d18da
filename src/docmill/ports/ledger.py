"""The tasks and all that happened to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from docmill.core.access import Owner
from docmill.core.machine import Change
from docmill.core.retention import Aged, Estate, Retention, Tombstone
from docmill.core.task import Attempt, LoggedEvent, Task, Wishes


@dataclass(frozen=True, slots=True)
class NewTask:
    """What `Ledger.open` needs. A *fault* makes the task failed from the start, visible and retryable."""

    tenant: str
    owner: str
    project_id: int
    filename: str
    source_key: str
    rule_id: int
    wishes: Wishes
    source_size: int | None = None
    source_sha256: str | None = None
    upload_fault: str | None = None


@dataclass(frozen=True, slots=True)
class Once:
    """An Idempotency-Key with the fingerprint of the request that carried it.

    A fingerprint may have a second part after a colon, of what is not known of every request: the bytes of a file that
    could not be stored. Where only one of two has it, the first parts decide.
    """

    key: str
    fingerprint: str

    def is_same(self, seen: str) -> bool:
        ours = self.fingerprint
        return seen == ours or seen.startswith(f"{ours}:") or ours.startswith(f"{seen}:")


@dataclass(frozen=True, slots=True)
class Filter:
    """Which tasks a list shows, newest first. *before*: the last id of the page before."""

    who: Owner
    project_id: int | None = None
    status: str | None = None
    """As on the wire: `mineru_parsing`, not `running`."""
    limit: int = 50
    offset: int = 0
    before: int | None = None


Face = Sequence[Any]
"""A task's id, and its face (`core.face`) as encoded JSON. A bare row of the database: lists are read often."""


@dataclass(frozen=True, slots=True)
class Faces:
    faces: Sequence[Face]
    total: int
    unread: Sequence[int] = ()
    """Completed tasks whose output nobody has kept for lists: it must be read from the store."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A slice of a list, and how many rows there are in all."""

    tasks: Sequence[Task]
    total: int


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs a list shows, newest first. *before_ms*: the start of the last job of the page before."""

    who: Owner
    status: str | None = None
    limit: int = 50
    offset: int = 0
    before_ms: int | None = None


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job in a list."""

    attempt: Attempt
    filename: str
    updated_ms: int
    last_message: str | None
    last_percent: float | None


@dataclass(frozen=True, slots=True)
class JobListing:
    """A slice of a list of jobs, and how many there are in all."""

    jobs: Sequence[JobLine]
    total: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """A callback as it was received: what it said, what we answered, and why."""

    kind: str
    status: int
    reason: str | None
    body_hash: str
    size: int
    at_ms: int = 0


Transition = Callable[[Task, Attempt | None], Change]
"""A transition with everything bound but the task and its current attempt."""


class Ledger(Protocol):
    """The only truth. Every write is one transaction, and answers after its commit."""

    async def open(self, new: NewTask, *, attempt_id: UUID, once: Once | None = None) -> tuple[Task, bool]:
        """Write task, attempt and event. False: *once* was seen before, and this is the task of then."""
        ...

    async def decide(
        self,
        task_id: int,
        rule: Transition,
        *,
        attempt_id: UUID | None = None,
        who: Owner | None = None,
        durable: bool = True,
    ) -> Change:
        """Load, let *rule* decide, write what it says, all in one transaction; others may share it.

        A rule may be asked again, when what it said could not be written. With *attempt_id* it sees that attempt, else
        the current one. A foreign or missing task: NotFound. Not *durable*: a power cut may undo it together with all
        that followed, for steps of which nobody has heard.
        """
        ...

    async def claim(self, attempt_id: UUID, *, worker: str, lease_ms: int) -> tuple[Task, Attempt] | None:
        """Take a queued attempt that is due. None: somebody else has it, or it is no longer wanted.

        Not durable: after a power cut it may be queued again, and whoever had it is gone, too.
        """
        ...

    async def beat(self, attempt_ids: Sequence[UUID], *, worker: str, lease_ms: int) -> set[UUID]:
        """Extend the leases; the ids that are still ours. What is missing from the answer must stop."""
        ...

    async def get(self, task_id: int, who: Owner | None = None) -> Task | None: ...

    async def find(self, attempt_id: UUID) -> tuple[Task, Attempt] | None: ...

    async def find_attempt(self, attempt_id: UUID) -> Attempt | None: ...

    async def dropped(self, attempt_ids: Sequence[UUID]) -> set[UUID]:
        """Those of them that nobody wants any more: cancelled, superseded, or gone with their task."""
        ...

    async def batch(self, task_ids: Sequence[int], who: Owner) -> list[Task]:
        """In the order of the ids; foreign and unknown ones are left out."""
        ...

    async def outputs(self, task_ids: Sequence[int], who: Owner) -> dict[int, str]:
        """Outputs that are kept for lists, as JSON texts by task: empty if it is too large; absent: not kept.

        The ids must be those of the owner's own tasks.
        """
        ...

    async def page(self, where: Filter) -> Listing: ...

    async def faces(self, where: Filter) -> Faces:
        """The same page, each task as the JSON text that clients get."""
        ...

    async def events(
        self, task_id: int, *, after: int = 0, limit: int = 500, who: Owner | None = None
    ) -> list[LoggedEvent]: ...

    async def last_events(self, task_id: int, *, limit: int) -> list[LoggedEvent]:
        """The newest lines of the log, in their order."""
        ...

    async def attempts(self, task_id: int) -> list[Attempt]: ...

    async def due(self, *, limit: int) -> list[tuple[Task, Attempt]]:
        """Queued attempts whose time has come, in the order of `core.turns`: what the queue may have forgotten."""
        ...

    async def lapsed(self, *, limit: int) -> list[tuple[Attempt, int]]:
        """Running attempts whose lease ran out, handed-over ones past their deadline; and for how many ms."""
        ...

    async def now_ms(self) -> int:
        """The database's clock."""
        ...

    async def restart_times(self, *, lease_ms: int) -> int:
        """Let leases and deadlines that have passed begin anew: the clock jumped forward. How many."""
        ...

    async def mend_times(self, *, lease_ms: int) -> int:
        """Let leases, deadlines and delays that lie impossibly far ahead count from now: the clock was put back."""
        ...

    async def held(self, *, limit: int, owner: str | None = None) -> list[Attempt]:
        """Running attempts of this worker; without one, all: for the one process that knows it is alone."""
        ...

    async def leavings(self, *, older_ms: int, limit: int) -> list[tuple[Task, UUID]]:
        """Attempts that came to nothing, longer ago than *older_ms*, and whose objects nobody has collected yet."""
        ...

    async def reported(self, *, older_ms: int, limit: int) -> list[tuple[Task, UUID, str]]:
        """Jobs that a final report ended longer ago than *older_ms*, and whose other reports' objects nobody has
        collected yet, each with the id of the report that ended it."""
        ...

    async def collected(self, attempt_id: UUID) -> None:
        """Nothing of it is left in the store that no task uses."""
        ...

    async def parse_of(self, tenant: str, fingerprint: str) -> tuple[str, str] | None:
        """Markdown key and parsed key of an equal parse."""
        ...

    async def record_delivery(self, attempt: Attempt, delivery: Delivery) -> None:
        """Keep a line about a callback, accepted or refused."""
        ...

    async def deliveries(self, attempt_id: UUID, *, limit: int) -> list[Delivery]:
        """Of a job, newest first."""
        ...

    async def jobs(self, where: JobFilter) -> JobListing:
        """Attempts that were handed to external workers, newest first."""
        ...

    async def ping(self) -> None:
        """Raises if the database does not answer."""
        ...

    async def counts(self) -> dict[str, int]:
        """Tasks by status, of everybody: for metrics."""
        ...


class Tombstones(Protocol):
    """Tasks that were kept long enough, and what is left of them."""

    async def aged(self, *, after: int, limit: int) -> list[Aged]:
        """The next tasks after this id, in the order of their ids, final or not."""
        ...

    async def bury(self, task_id: int, retention: Retention) -> bool:
        """Put a tombstone in the place of a task whose time is over, in one transaction.

        Attempts, events, callbacks, its parse kept for reuse, its idempotency key and what webhooks said go with it.
        False: it is no longer there, or its time is not over.
        """
        ...

    async def find(self, task_id: int, who: Owner) -> Tombstone | None: ...

    async def full(self, *, after: int, limit: int) -> list[Estate]:
        """Tombstones whose objects have yet to be removed, of the next tasks after this id."""
        ...

    async def emptied(self, task_id: int) -> None:
        """Nothing of it is left in the store that has to go."""
        ...

    async def is_parse_used(self, parsed_key: str) -> bool:
        """Whether the task that made the parse is there, or any other that uses it."""
        ...

    async def is_source_used(self, tenant: str, key: str) -> bool:
        """Whether any task was made from this file."""
        ...
