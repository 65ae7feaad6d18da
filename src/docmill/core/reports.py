"""What workers say about an attempt. Local children and external workers speak through the same few values."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docmill.core.machine import MAX_ERRORS, StageResult
from docmill.core.task import Artifacts, Fault


@dataclass(frozen=True, slots=True)
class Pages:
    """A local engine has read so many pages."""

    done: int
    total: int | None


@dataclass(frozen=True, slots=True)
class Progress:
    """An external worker is at work. What it does not say is None."""

    percent: float | None = None
    phase: str = ""
    message: str = ""
    process_id: str | None = None


@dataclass(frozen=True, slots=True)
class Succeeded:
    result: StageResult


@dataclass(frozen=True, slots=True)
class Failed:
    fault: Fault
    retryable: bool = False
    crashed: bool = False
    tries: int = MAX_ERRORS
    details: dict[str, Any] = field(default_factory=dict)
    """What the worker added (exit code, log stream, its own error details): small JSON values, shown and kept."""
    artifacts: Artifacts | None = None
    """What was kept although the stage failed; None: the task keeps what it had."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The worker says that the work was cancelled on its side."""

    message: str = ""


@dataclass(frozen=True, slots=True)
class GivenBack:
    """The worker shuts down and has not finished."""


@dataclass(frozen=True, slots=True)
class Final:
    """An external worker's result as it arrived: texts and archive are files, for they may be huge.

    At least one of `text`, `archive`, `archive_url` and `result_key` is there.
    """

    text: Path | None = None
    """The whole Markdown, UTF-8."""
    pages: tuple[tuple[int, str], ...] = ()
    """Markdown by page, counted from 1."""
    archive: Path | None = None
    """A ZIP of images."""
    archive_url: str | None = None
    result_key: str | None = None
    process_id: str | None = None
    message: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


Report = Pages | Progress | Succeeded | Failed | Cancelled | GivenBack
