"""What can be asked of the service, each call once, for both clients."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar
from uuid import UUID, uuid4

from docmill.client.errors import NotFound, TaskEnded, TimedOut, Unexpected
from docmill.client.twins import unpack
from docmill.client.values import Ack, Mounted, Rule, Submitted, Table, Task, made
from docmill.client.wire import Answer, Ask, Content, Do, Form, Source, Steps, answered
from docmill.contracts import Asset, NormalizedDocument

T = TypeVar("T")

ETL = "/api/v1/etl"
LOOK_S = 30.0
"""How long one long poll waits."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A list that comes page by page."""

    ask: Ask
    name: str
    read: Callable[[Mapping[str, Any]], T]
    by_offset: bool = False

    def page(self, cursor: str | int | None) -> Steps[tuple[list[T], str | int | None]]:
        """The items of one page, and where the next one begins."""
        params = {**self.ask.params, "offset" if self.by_offset else "cursor": cursor}
        raw = (yield from answered(Ask("GET", self.ask.path, params))).json()
        try:
            items = [self.read(one) for one in raw[self.name]]
        except (KeyError, TypeError) as error:
            raise Unexpected(f"a list without {error}") from error
        if not self.by_offset:
            return items, raw.get("next_cursor")
        end = int(cursor or 0) + len(items)
        return items, end if items and end < raw.get("total", 0) else None


# Tasks


def submit(
    source: Source,
    *,
    filename: str | None = None,
    project: int = 0,
    rule: int | None = None,
    engine: str | None = None,
    workflow: str | None = None,
    no_cache: bool = False,
    twin: bool | Mapping[str, Any] | None = None,
    mount: Mapping[str, Any] | None = None,
    priority: int = 0,
    options: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
) -> Steps[Submitted]:
    """Send a document: a path, bytes, an open file or a stream of bytes. It is processed as a task.

    The request carries an Idempotency-Key, so that a repeated try never makes a second task. Give your own key to be
    safe across restarts of your program, too. Streams cannot be read twice and are sent once.
    """
    wanted: dict[str, Any] = {
        "rule_id": rule,
        "engine": engine,
        "workflow_id": workflow,
        "no_cache": no_cache or None,
        "twin": twin or None,
        "mount": mount,
        "priority": priority or None,
        "options": options,
    }
    fields = {name: _field(value) for name, value in wanted.items() if value is not None}
    ask = Ask(
        "POST",
        f"{ETL}/upload_and_submit",
        params={"project_id": project},
        headers={"Idempotency-Key": idempotency_key or str(uuid4())},
        form=Form(fields, Content.of(source, filename)),
    )
    answer = yield from answered(ask)
    try:
        [item] = answer.json()["items"]
        sent = made(Submitted, item | {"is_replay": answer.headers.get("idempotent-replayed") == "true"})
    except (KeyError, TypeError, ValueError) as error:
        raise Unexpected("no task in the answer to an upload") from error
    if item.get("error") is not None and item.get("s3_key") is None:
        # The file was not stored; the service keeps a failed task to show it.
        raise TaskEnded((yield from task(sent.task_id)))
    return sent


def _field(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def events_path(task_id: int) -> str:
    return f"{ETL}/tasks/{task_id}/events"


def task(task_id: int, *, wait: float = 0) -> Steps[Task]:
    """The task as it is; with *wait* after its next change, or after so many seconds (60 at most)."""
    ask = Ask("GET", f"{ETL}/tasks/{task_id}", {"wait": wait or None}, seconds=wait)
    return Task.of((yield from answered(ask)).json())


def tasks(*, project: int | None = None, status: str | None = None, page_size: int = 100) -> Listing[Task]:
    """All tasks, newest first, page by page as they are needed."""
    params = {"project_id": project, "status": status, "limit": page_size}
    return Listing(Ask("GET", f"{ETL}/tasks", params), "tasks", Task.of)


def tasks_page(
    *, project: int | None = None, status: str | None = None, limit: int = 50, cursor: str | None = None
) -> Steps[tuple[list[Task], str | None]]:
    """One page of that list, and the cursor of the next one."""
    found, after = yield from tasks(project=project, status=status, page_size=limit).page(cursor)
    return found, str(after) if after is not None else None


def batch(task_ids: Sequence[int]) -> Steps[list[Task]]:
    """Up to 100 tasks by their ids; unknown ones are left out."""
    ids = ",".join(str(one) for one in task_ids)
    raw = (yield from answered(Ask("GET", f"{ETL}/tasks/batch", {"task_ids": ids}))).json()
    return [Task.of(one) for one in raw["tasks"]]


def wait(task_id: int, *, timeout: float | None = None) -> Steps[Task]:
    """The task at its end, however it ended. `TimedOut` after *timeout* seconds; the task goes on."""
    began = time.monotonic()
    found = yield from task(task_id)
    while not found.is_final:
        left = LOOK_S if timeout is None else timeout - (time.monotonic() - began)
        if left <= 0:
            raise TimedOut(found, timeout or 0)
        found = yield from task(task_id, wait=min(left, LOOK_S))
    return found


def result(task_id: int, *, timeout: float | None = None) -> Steps[Any]:
    """The output of the task, once it is completed; `TaskEnded` if it failed, was cancelled or lost its result."""
    found = yield from completed(task_id, timeout=timeout)
    if found.metadata.result_error:
        raise TaskEnded(found)
    return found.result


def completed(task_id: int, *, timeout: float | None = None) -> Steps[Task]:
    found = yield from wait(task_id, timeout=timeout)
    if found.status != "completed":
        raise TaskEnded(found)
    return found


def markdown(task_id: int, *, timeout: float | None = None) -> Steps[str]:
    """The Markdown of the task's document, once it is completed."""
    found = yield from completed(task_id, timeout=timeout)
    whole = yield from document(found.metadata.document_id or "")
    texts = [one.ref.asset_id for one in whole.assets if one.media_type == "text/markdown"]
    if not texts:
        raise NotFound(404, {"code": "asset_not_found", "detail": "The document has no Markdown."})
    return (yield from answered(Ask("GET", f"/api/v1/assets/{texts[0]}/blob"))).body.decode()


def save_twin(
    task_id: int, folder: Path | str = ".", *, force: bool = False, timeout: float | None = None
) -> Steps[Path]:
    """Write the twin (Markdown, pages, images) of a completed task below *folder*; the path of its Markdown.

    A reader sees the old twin or the new one. One that a person edited since is kept (`TwinDrift`), unless forced.
    """
    yield from completed(task_id, timeout=timeout)
    with tempfile.TemporaryDirectory(prefix="docmill-") as there:
        archive = Path(there) / "twin.zip"
        yield from answered(Ask("GET", f"{ETL}/tasks/{task_id}/twin", into=archive))
        written: Path = yield Do(lambda: unpack(archive, Path(folder), force=force))
    return written


def cancel(task_id: int, *, force: bool = False) -> Steps[Ack]:
    """Cancel a waiting task; with *force* also a running one."""
    params = {"force": "true" if force else None}
    return made(Ack, (yield from _told(Ask("POST", f"{ETL}/tasks/{task_id}/cancel", params, is_safe=False))))


def retry(task_id: int, *, from_stage: str = "mineru") -> Steps[Ack]:
    """Run a finished task again from `mineru` (parse) or `postprocess`."""
    ask = Ask("POST", f"{ETL}/tasks/{task_id}/retry", json={"from_stage": from_stage}, is_safe=False)
    return made(Ack, (yield from _told(ask)))


def mount(task_id: int, table_id: int, json_path: str = "") -> Steps[Mounted]:
    """Put the task's output into a table at a JSON Pointer. Mounting twice replaces the task's own entry."""
    ask = Ask(
        "POST", f"{ETL}/tasks/{task_id}/mount", json={"table_id": table_id, "json_path": json_path}, is_safe=False
    )
    return made(Mounted, (yield from _told(ask)))


# Documents


def documents(*, collection: UUID | None = None, page_size: int = 100) -> Listing[NormalizedDocument]:
    """All documents, newest first."""
    params = {"collection_id": str(collection) if collection else None, "limit": page_size}
    return Listing(Ask("GET", "/api/v1/documents", params), "documents", NormalizedDocument.model_validate)


def document(document_id: UUID | str, *, version: str | None = None) -> Steps[NormalizedDocument]:
    """A version of a document, or the latest."""
    answer = yield from answered(Ask("GET", f"/api/v1/documents/{document_id}", {"version": version}))
    return NormalizedDocument.model_validate_json(answer.body)


def assets(document_id: UUID | str, *, page_size: int = 100) -> Listing[Asset]:
    """The images, tables and texts of a document's latest version, in order."""
    path = f"/api/v1/documents/{document_id}/assets"
    return Listing(Ask("GET", path, {"limit": page_size}), "assets", Asset.model_validate)


def save_original(document_id: UUID | str, file: Path | str, *, version: str | None = None) -> Steps[Path]:
    """The bytes of the document as they were sent, into a file."""
    return (yield from _saved(f"/api/v1/documents/{document_id}/blob", Path(file), version=version))


def save_asset(asset_id: UUID | str, file: Path | str) -> Steps[Path]:
    """The bytes of an asset, into a file."""
    return (yield from _saved(f"/api/v1/assets/{asset_id}/blob", Path(file)))


def _saved(path: str, file: Path, **params: Any) -> Steps[Path]:
    # Under another name until it is whole: who finds the file finds all of it.
    part = file.with_name(f".{file.name}.{uuid4().hex[:8]}.part")
    try:
        yield from answered(Ask("GET", path, params, into=part))
        yield Do(lambda: part.replace(file))
    finally:
        part.unlink(missing_ok=True)
    return file


# Rules and tables


def rules() -> Listing[Rule]:
    """The default rule, and the caller's own."""
    return Listing(Ask("GET", f"{ETL}/rules", {"limit": 100}), "rules", lambda raw: made(Rule, raw), by_offset=True)


def add_rule(name: str, **more: Any) -> Steps[Rule]:
    """Make a rule: json_schema, system_prompt, description, postprocess_mode, postprocess_strategy."""
    ask = Ask("POST", f"{ETL}/rules", json={"name": name, **more}, is_safe=False)
    return made(Rule, (yield from _told(ask)))


def delete_rule(rule_id: int) -> Steps[None]:
    yield from answered(Ask("DELETE", f"{ETL}/rules/{rule_id}", is_safe=False))


def tables(project: int) -> Steps[list[Table]]:
    """The tables of a project, without their data."""
    raw = (yield from answered(Ask("GET", f"/api/v1/projects/{project}/tables"))).json()
    return [made(Table, one) for one in raw["tables"]]


def add_table(project: int, name: str, data: Any = None) -> Steps[Table]:
    body = {"name": name, "data": {} if data is None else data}
    return made(Table, (yield from _told(Ask("POST", f"/api/v1/projects/{project}/tables", json=body, is_safe=False))))


def table_data(table_id: int, pointer: str = "") -> Steps[Any]:
    """The JSON value of a table at a JSON Pointer."""
    return (yield from answered(Ask("GET", f"/api/v1/tables/{table_id}/data", {"pointer": pointer}))).json()


def delete_table(table_id: int) -> Steps[None]:
    yield from answered(Ask("DELETE", f"/api/v1/tables/{table_id}", is_safe=False))


def _told(ask: Ask) -> Steps[Any]:
    answer: Answer = yield from answered(ask)
    return answer.json()
