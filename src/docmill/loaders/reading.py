"""Documents through the service, in the order of their sources, a few at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docmill.client import Client

AT_ONCE = 8

Source = Path | str


@dataclass(frozen=True, slots=True)
class Read:
    markdown: str
    facts: dict[str, Any]
    """Plain values, as the frameworks want them for their stores: source, task, document, pages, engine."""


def read(sources: Iterable[Source], client: Client, **wishes: Any) -> Iterator[Read]:
    """Send the next ones while the first is being waited for. A document that fails raises `TaskEnded` in its turn."""
    waiting: deque[tuple[Source, int]] = deque()
    for source in sources:
        waiting.append((source, client.submit(source, **wishes).task_id))
        if len(waiting) >= AT_ONCE:
            yield _read(client, *waiting.popleft())
    while waiting:
        yield _read(client, *waiting.popleft())


def _read(client: Client, source: Source, task_id: int) -> Read:
    markdown = client.markdown(task_id)
    known = client.task(task_id).metadata
    facts = {
        "source": str(source),
        "file_name": Path(source).name,
        "task_id": task_id,
        "document_id": known.document_id,
        "pages": known.pages_total,
        "engine": known.engine,
    }
    return Read(markdown, {name: value for name, value in facts.items() if value is not None})
