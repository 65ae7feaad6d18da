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
class Started:
    """An external worker accepted the start request. *ids*: every id that its answer gives the job."""

    ids: tuple[str, ...] = ()


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
    is_postponed: bool = False
    """Nobody is to blame and time cures it (a full disk): tried again for as long as it takes, not counted as error."""
    is_final: bool = True
    """False: an error that the worker logged. It fails the job only if no other report follows."""
    process_id: str | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The worker says that the work was cancelled on its side."""

    message: str = ""


@dataclass(frozen=True, slots=True)
class GivenBack:
    """The worker shuts down and has not finished."""


@dataclass(frozen=True, slots=True)
class PageText:
    """The Markdown of one page: a span of a file that holds many, as UTF-8."""

    number: int
    """Counted from 1."""
    path: Path
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Final:
    """An external worker's result as it arrived: texts and archive are files, for they may be huge.

    At least one of `text`, `archive`, `text_url`, `archive_urls` and `result_key` is there.
    """

    text: Path | None = None
    """The whole Markdown, UTF-8."""
    pages: tuple[PageText, ...] = ()
    """Markdown by page, in their order."""
    archive: Path | None = None
    """A ZIP of images."""
    text_url: str | None = None
    """Where the Markdown can be fetched; may be relative to the worker's origin, as all addresses here."""
    archive_urls: dict[str, str] = field(default_factory=dict)
    """Where ZIPs of images can be fetched, by the field that named them."""
    result_key: str | None = None
    process_id: str | None = None
    message: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


Report = Pages | Progress | Started | Succeeded | Failed | Cancelled | GivenBack
