"""How many documents may be where at once.

A document holds a place at the engine only while it is being parsed. Its results are stored, and its later stages run,
in other places, so that the engine gets the next document meanwhile. Each kind of place is bounded: when results cannot
be stored as fast as they come, the engine waits.
"""

from __future__ import annotations

from asyncio import Semaphore

from docmill.core.turns import Lane


class Places:
    def __init__(self, *, jobs: int, stage_jobs: int) -> None:
        self.lanes = {
            Lane.PARSE: Semaphore(jobs),
            Lane.DISPATCH: Semaphore(stage_jobs),
            Lane.LATER: Semaphore(stage_jobs),
        }
        self.storing = Semaphore(jobs)

    async def at(self, lane: Lane) -> Place:
        """A place of the lane, as soon as one is free."""
        await self.lanes[lane].acquire()
        return Place(self, self.lanes[lane])

    async def more(self, lane: Lane) -> list[Place]:
        """What else is free of the lane right now. Of the later stages nothing: who comes from parsing wants them."""
        found = []
        while lane is not Lane.LATER and not self.lanes[lane].locked():
            found.append(await self.at(lane))  # at once: it is not locked
        return found


class Place:
    """The place of one document. It moves on with the document; who took it frees it in the end."""

    def __init__(self, places: Places, held: Semaphore) -> None:
        self._places = places
        self._held: Semaphore | None = held

    async def parsed(self) -> None:
        """The engine is done with the document: the next one may come, unless too many wait to be stored."""
        if self._held is self._places.lanes[Lane.PARSE]:
            await self._places.storing.acquire()
            self._move_to(self._places.storing)

    async def goes_on(self) -> bool:
        """Whether the document can stay with us for its next stage. If nobody may, or others wait, it lines up."""
        later = self._places.lanes[Lane.LATER]
        if self._held is later:
            return True
        if self._held is None or later.locked():
            return False
        await later.acquire()  # at once: it is not locked
        self._move_to(later)
        return True

    def free(self) -> None:
        if self._held is not None:
            self._held.release()
            self._held = None

    def _move_to(self, other: Semaphore) -> None:
        self.free()
        self._held = other
