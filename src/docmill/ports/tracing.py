"""Where the time of a task went, for who collects traces."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Tracer(Protocol):
    """Tells a collector what was done for whom, and how long it took. Facts are ids, names and codes, never content."""

    is_on: bool

    def span(self, name: str, *, parent: str = "", **facts: str | int) -> AbstractContextManager[str]:
        """What is done inside; gives the `traceparent` under which others go on. *parent* is such a one."""
        ...

    def record(self, name: str, *, parent: str, began_ms: int, ended_ms: int, **facts: str | int) -> None:
        """Something that is over, like a wait."""
        ...

    async def close(self) -> None: ...


class NoTracer:
    is_on = False

    def span(self, name: str, *, parent: str = "", **facts: str | int) -> AbstractContextManager[str]:  # noqa: ARG002
        return nullcontext(parent)

    def record(self, name: str, *, parent: str, began_ms: int, ended_ms: int, **facts: str | int) -> None:
        pass

    async def close(self) -> None:
        pass
