"""Documents through the service, in the order of their sources, a few at once."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from docmill.client import Client, ClientError, Forbidden, Unauthorized, Unavailable, Unexpected, Unreachable

AT_ONCE = 8

Source = Path | str
"""A file, or a folder with all files in it."""
OnError = Literal["collect", "raise"]
"""What a file that cannot be read does: it is left out and becomes a `Failure`, or it ends the loading."""

log = logging.getLogger("docmill.loaders")


@dataclass(frozen=True, slots=True)
class Item:
    """One document to read."""

    source: str
    filename: str
    content: Path | bytes
    meta: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_path(cls, path: Path, meta: Mapping[str, Any] | None = None) -> Item:
        return cls(str(path), path.name, path, meta or {})


@dataclass(frozen=True, slots=True)
class Read:
    markdown: str
    facts: dict[str, Any]
    """Plain values, as the frameworks want them for their stores: source, task, document, pages, language, engine."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that could not be read."""

    source: str
    code: str
    message: str


def borrow(client: Client | None) -> AbstractContextManager[Client]:
    """The client that was lent, which its owner closes; else one of our own, closed at the end."""
    return Client() if client is None else nullcontext(client)


def items_of(sources: Source | Iterable[Source], meta: Mapping[str, Any] | None = None) -> Iterator[Item]:
    for source in [sources] if isinstance(sources, Source) else sources:
        path = Path(source)
        for one in files_in(path) if path.is_dir() else [path]:
            yield Item.of_path(one, meta)


def files_in(folder: Path) -> Iterator[Path]:
    """All files below the folder by name; hidden ones and the twins beside their originals are left out."""
    entries = sorted(folder.iterdir())
    names = {one.name for one in entries}
    for one in entries:
        is_twin = one.name.startswith("_") and one.name[1:] in names
        if one.name.startswith(".") or is_twin:
            continue
        if one.is_dir() and not one.is_symlink():
            yield from files_in(one)
        elif one.is_file():
            yield one


def read(
    items: Iterable[Item], client: Client, failures: list[Failure], *, on_error: OnError = "collect", **wishes: Any
) -> Iterator[Read]:
    """Send the next ones while the first is being waited for. What cannot be read is added to *failures*.

    An error of the service, such as a wrong key, concerns all files and is raised in any case.
    """
    waiting: deque[tuple[Item, int | Exception]] = deque()
    for item in items:
        waiting.append((item, _submit(client, item, wishes)))
        if len(waiting) >= AT_ONCE:
            yield from _finish(client, *waiting.popleft(), failures, on_error)
    while waiting:
        yield from _finish(client, *waiting.popleft(), failures, on_error)


def _submit(client: Client, item: Item, wishes: dict[str, Any]) -> int | Exception:
    try:
        return client.submit(item.content, filename=item.filename, **wishes).task_id
    except (ClientError, OSError) as error:
        return _of_the_file(error)


def _finish(
    client: Client, item: Item, sent: int | Exception, failures: list[Failure], on_error: OnError
) -> Iterator[Read]:
    try:
        if isinstance(sent, Exception):
            raise sent
        yield _read(client, item, sent)
    except (ClientError, OSError) as error:
        if on_error == "raise":
            raise
        failure = _failure(item, _of_the_file(error))
        failures.append(failure)
        log.warning("%s was not read: %s: %s", failure.source, failure.code, failure.message)


def _of_the_file(error: Exception) -> Exception:
    """The error, if it is the fault of one file; else it is raised."""
    if isinstance(error, Unreachable | Unexpected | Unauthorized | Forbidden | Unavailable):
        raise error
    return error


def _failure(item: Item, error: Exception) -> Failure:
    if isinstance(error, ClientError):
        return Failure(item.source, error.code, error.message)
    return Failure(item.source, "file_unreadable", str(error))


def _read(client: Client, item: Item, task_id: int) -> Read:
    markdown = client.markdown(task_id)
    known = client.task(task_id).metadata
    facts = {
        "source": item.source,
        "file_name": item.filename,
        "task_id": task_id,
        "document_id": known.document_id,
        "page_count": known.pages_total,
        "language": client.document(known.document_id or "").meta.language,
        "engine": known.engine,
    }
    return Read(markdown, {name: value for name, value in facts.items() if value is not None} | dict(item.meta))
