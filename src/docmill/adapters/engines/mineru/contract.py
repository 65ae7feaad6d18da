"""What the wire contracts have in common: something is sent, looked after, fetched or called off."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from docmill.adapters.engines.sending import Sending
from docmill.core.errors import DocmillError, StageFailed

CODE = re.compile(r"[A-Za-z0-9_.-]{1,40}")


@dataclass(frozen=True, slots=True)
class Sight:
    """How a job stands."""

    is_done: bool = False
    pages_done: int | None = None
    pages_total: int | None = None
    result: str = ""
    """Where the result lies, once it is there."""


class Contract(Protocol):
    label: str
    """What it is: `MinerU 4.0.12 (flash)`."""
    max_pages: int
    max_bytes: int

    async def submit(self, sending: Sending) -> str:
        """Start the job; its id."""
        ...

    async def look(self, job: str) -> Sight:
        """How it stands. A failed job raises."""
        ...

    async def fetch(self, job: str, sight: Sight, path: Path) -> None:
        """The result's ZIP into a file."""
        ...

    async def cancel(self, job: str) -> None:
        """Ask it to stop, where the contract knows how."""
        ...


def shown(code: object) -> str:
    """A provider's code, if it looks like one. Its messages stay out: they name hosts, paths and keys."""
    text = str(code)
    return text if CODE.fullmatch(text) else "an unknown code"


def invalid(provider: str, why: str) -> StageFailed:
    return StageFailed("provider_answer_invalid", provider=provider, why=why)


def refused(provider: str, status: int, code: object = None) -> DocmillError:
    """An answer that is none of success."""
    said = f"it answers {status}" + (f" ({shown(code)})" if code else "")
    if status in (401, 403):
        said += "; is the key right?"
    return StageFailed("provider_refused", provider=provider, why=said)
