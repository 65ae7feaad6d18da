"""Who turns a document's bytes into pages: here, over the network, or elsewhere with a callback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from docmill.core.addresses import TrustedOrigin
from docmill.core.parsed import Parsed
from docmill.core.routing import Reach


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
    is_suspect: bool = False
    """Somebody died of it before: it may well happen again."""
    tenant: str = ""
    """Whose document it is: a process that has read it reads no document of another tenant."""
    is_source_ours: bool = False
    """The source was made for this attempt: it may be linked instead of copied."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """The engine handed the work to an external worker, which reports through a callback."""

    provider_task_id: str | None = None


PageReport = Callable[[int, int | None], None]
"""Called with (pages done, pages in all or None). Cheap, and may be called often."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A job, as it is given to an external worker."""

    job_id: UUID
    task_id: int
    filename: str
    source: Path
    options: dict[str, Any]
    callback_url: str
    callback_token: str
    brief_key: str
    brief_url: str


class ExternalWorker(Protocol):
    """Somebody elsewhere who parses, and reports through callbacks."""

    name: str
    dialect: str
    timeout_s: float
    """How long it may be silent."""
    origin: TrustedOrigin
    """Where relative addresses in its reports lead, and how docmill authenticates there."""

    async def check(self) -> None:
        """Raises StageFailed("worker_unreachable") if it does not answer."""
        ...

    async def dispatch(self, job: Dispatch) -> tuple[str, ...]:
        """Start the job; every id that the answer gives it. Raises worker_unreachable (retryable) or worker_refused."""
        ...

    async def cancel(self, job_id: UUID, worker_ids: Sequence[str]) -> None:
        """Ask it to stop, by the ids that it gave the job. Best effort: it may not know how, or not be there."""
        ...

    async def close(self) -> None: ...


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

    async def warm(self) -> None:
        """Get ready for the first document before it comes."""
        ...

    async def close(self) -> None:
        """End every process that the engine keeps."""
        ...


@runtime_checkable
class SandboxedEngine(Engine, Protocol):
    """An engine that reads documents in confined processes on this machine."""

    @property
    def sandbox_level(self) -> str:
        """full, jailed, partial or weak; unknown before the first process has started."""
        ...

    async def confirm_sandbox(self) -> dict[str, str]:
        """Find the level and its layers out by trying. Raises Unavailable("sandbox_insufficient") if the settings ask
        for more."""
        ...


class Renderer(Protocol):
    """Shows the pages of a document as they look."""

    async def draw(self, source: Path, page: int, *, width: int, tenant: str = "") -> bytes:
        """Page *page*, counted from 0, as PNG of this width. NotFound: `page_not_found`, `page_images_unavailable`.

        *source* is a private copy, *tenant* whose document it is."""
        ...


@runtime_checkable
class ProviderEngine(Engine, Protocol):
    """An engine over the network: it can say who it is, and how much it takes."""

    media_types: frozenset[str]
    """What it can read."""

    async def describe(self) -> str:
        """Ask it who it is, each time anew. Raises like `start`."""
        ...

    async def reach(self) -> Reach:
        """How much it takes in one go. Raises like `start`."""
        ...
