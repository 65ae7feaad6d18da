"""What docmill needs of the outside world. A port promises behaviour, not technology.

Adapters implement these Protocols; `compose` binds them; one conformance suite runs over every adapter of a port.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from docmill.core.parsed import Parsed


@dataclass(frozen=True, slots=True)
class Work:
    """One attempt at `parse`, as an engine sees it."""

    task_id: int
    attempt_id: UUID
    source: Path
    """The document's bytes. Only to be read; the file's name means nothing."""
    filename: str
    """The name that the user gave: a hint, never a path."""
    folder: Path
    """An empty folder of this attempt. Figures go to `folder/assets/<name>`."""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deferred:
    """The engine handed the work to an external worker, which reports through a callback."""

    provider_task_id: str | None = None


PageReport = Callable[[int, int | None], None]
"""Called with (pages done, pages in all or None). Cheap, and may be called often."""


class Engine(Protocol):
    """Turns bytes into pages of Markdown plus assets."""

    name: str
    version: str
    """Part of the dedupe key: another version may parse differently."""

    async def start(self, work: Work, report: PageReport) -> Parsed | Deferred:
        """Parse, or hand over. Raises DocumentError for what no retry will mend, StageFailed for the rest.

        When the awaiting task is cancelled, everything that the engine started here has ended before it returns.
        """
        ...

    async def close(self) -> None:
        """End every process that the engine keeps."""
        ...
