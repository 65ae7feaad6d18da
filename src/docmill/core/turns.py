"""Whose turn it is among attempts that wait.

The higher priority first. Among equals the tenants take turns, so that a thousand documents of one do not delay the
first of another. Of one tenant's documents, short ones pass long ones: a large document counts as having come later
than it did, but only so much later, so that it is never passed by one that came `PATIENCE_MS` after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush
from itertools import count
from uuid import UUID

BYTES_PER_MS = 10
PATIENCE_MS = 15 * 60_000


class Lane(StrEnum):
    """What an attempt waits for. Each lane has places of its own, so that none waits for what it does not need."""

    PARSE = "parse"
    """A place at an engine of ours."""
    DISPATCH = "dispatch"
    """Being handed to an external worker."""
    LATER = "later"
    """The stages after parsing."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """An attempt in the queue: its id, and what decides about its turn."""

    attempt_id: UUID
    lane: Lane = Lane.PARSE
    priority: int = 0
    tenant: str = ""
    size: int = 0
    """Bytes of the document, where known."""


def patience_ms(size: int) -> int:
    """How much later a document of this size counts as having come."""
    return min(size // BYTES_PER_MS, PATIENCE_MS)


class Turns:
    """Attempts of one lane in the order of their turns."""

    def __init__(self) -> None:
        self._tenants: dict[int, dict[str, list[tuple[int, int, UUID]]]] = {}
        self._order = count()

    def __bool__(self) -> bool:
        return bool(self._tenants)

    def __len__(self) -> int:
        return sum(len(theirs) for round_ in self._tenants.values() for theirs in round_.values())

    def add(self, waiting: Waiting, *, now_ms: int) -> None:
        round_ = self._tenants.setdefault(waiting.priority, {})
        rank = now_ms + patience_ms(waiting.size)
        heappush(round_.setdefault(waiting.tenant, []), (rank, next(self._order), waiting.attempt_id))

    def take(self) -> UUID:
        """The next one. Its tenant goes to the end of the round."""
        highest = max(self._tenants)
        round_ = self._tenants[highest]
        tenant = next(iter(round_))
        theirs = round_.pop(tenant)
        _, _, attempt_id = heappop(theirs)
        if theirs:
            round_[tenant] = theirs
        elif not round_:
            del self._tenants[highest]
        return attempt_id
