"""How processes wake each other, and what they share for a while."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from docmill.core.task import Task
from docmill.core.turns import Lane, Waiting
from docmill.ports.ledger import Face


class Queue(Protocol):
    """Rings workers. The ledger remembers; the queue may forget."""

    async def put(self, waiting: Waiting, *, delay_ms: int = 0) -> None:
        """Deliver at least once, soon after *delay_ms*. Putting the same id twice is harmless."""
        ...

    async def take(self, lane: Lane, most: int = 1) -> list[UUID]:
        """Wait for the next attempt ids of a lane, in the order of `core.turns`: one at least, and what else there is
        for as many places."""
        ...


class Signals(Protocol):
    """Says that a task changed, to whoever waits. A signal may get lost: waiters look again by themselves."""

    may_miss: bool
    """Whether signals get lost on the way. Else waiters need not look again soon."""

    def changed(self, task_id: int) -> None: ...

    def subscribe(self, task_id: int | None = None) -> Subscription:
        """Signals of one task, or with None of all."""
        ...


class Subscription(Protocol):
    def __enter__(self) -> Subscription: ...

    def __exit__(self, *exc: object) -> None: ...

    async def wait(self, seconds: float) -> int | None:
        """The id of a task that changed since the last call, or None after *seconds*."""
        ...


class RunState(Protocol):
    """The hot state of tasks where every process sees it. It may forget, but never says what was not committed."""

    def keep(self, task: Task) -> None:
        """Remember a task as it was committed. Returns at once; something older never replaces something newer."""
        ...

    async def newest(self, tasks: Sequence[Task]) -> list[Task]:
        """Each of these tasks as read from the ledger, or a newer state of it."""
        ...

    async def newest_faces(self, faces: Sequence[Face]) -> Sequence[Face]:
        """The same for a list: newer progress in the same status, so that a filter still holds."""
        ...

    async def is_there(self) -> bool:
        """Whether anything can be kept right now."""
        ...


class Limiter(Protocol):
    """Counts what happens in a window of time. Shared by all processes of a deployment, where there are several."""

    async def hit(self, bucket: str, *, limit: int, window_s: float) -> float | None:
        """Count one more. None: within the limit; else the seconds until there is room again."""
        ...
