"""One task: where it is, what happened, what it left, and what can be done."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.responses import Response, StreamingResponse

from docmill.console.pages.tasks import address
from docmill.console.telling import has_failed_before
from docmill.console.visit import Form, Visit
from docmill.core.errors import BadRequest, NotFound
from docmill.core.output import stem_of
from docmill.core.task import Attempt, LoggedEvent, State, Task
from docmill.core.webhooks import Notice
from docmill.ports import Delivery, Ports
from docmill.work import control, query, webhooks
from docmill.work.intake import attachment
from docmill.work.objects import objects

if TYPE_CHECKING:
    from docmill.console.app import Console

EVENTS = 500
MESSAGES = 50
ARTIFACTS = {
    "source": ("source_key", "application/octet-stream"),
    "markdown.md": ("markdown_key", "text/markdown; charset=utf-8"),
    "parsed.json": ("parsed_key", "application/json"),
    "output.json": ("output_key", "application/json"),
    "extraction.json": ("extraction_key", "application/json"),
}


@dataclass(frozen=True, slots=True)
class Told:
    """A message about the task, and the address it goes to."""

    notice: Notice
    url: str


@dataclass(frozen=True, slots=True)
class Bar:
    """An attempt in the waterfall: where it begins and how long it is, in percent of the whole."""

    attempt: Attempt
    start: float
    width: float
    ms: int | None


async def show(console: Console, visit: Visit) -> Response:
    found = await query.task(visit.ports, visit.who, _id(visit))
    tables = await visit.ports.tables.list(visit.who.owner, found.project_id)
    rule = await visit.ports.rules.get(found.rule_id, visit.who.owner)
    return console.render(
        visit,
        "task.html",
        page="tasks",
        tables=tables,
        rule=rule,
        said=visit.query("said"),
        origin=visit.ports.app_url or str(visit.request.base_url).rstrip("/"),
        **await _facts(visit, found),
    )


async def live(console: Console, visit: Visit) -> Response:
    """The part of the page that changes."""
    found = await query.task(visit.ports, visit.who, _id(visit))
    return console.render(visit, "task_live.html", **await _facts(visit, found))


async def _facts(visit: Visit, found: Task) -> dict[str, Any]:
    attempts = await visit.ports.ledger.attempts(found.id)
    events = await query.events(visit.ports, visit.who, found.id, after=max(0, found.event_seq - EVENTS), limit=EVENTS)
    return {
        "task": found,
        "events": list(reversed(_condensed(events))),
        "bars": waterfall(attempts, round(time.time() * 1000)),
        "due_ms": _due_ms(found, attempts),
        "artifacts": [name for name in ARTIFACTS if _key(found, name)],
        "deliveries": await _deliveries(visit.ports, found),
        "told": await _told(visit, found),
    }


def _due_ms(found: Task, attempts: list[Attempt]) -> int | None:
    """When the next attempt starts, if it waits for that after a failed one."""
    if not has_failed_before(found):
        return None
    due = next((one.due_ms for one in attempts if one.id == found.attempt_id), None)
    return due if due and due > time.time() * 1000 else None


async def _deliveries(ports: Ports, found: Task) -> list[Delivery]:
    return await ports.ledger.deliveries(found.job_id, limit=50) if found.job_id else []


async def _told(visit: Visit, found: Task) -> list[Told]:
    notices, _ = await webhooks.deliveries(visit.ports, visit.who, task_id=found.id, limit=MESSAGES)
    if not notices:
        return []
    addresses = {one.id: one.url for one in await webhooks.listed(visit.ports, visit.who)}
    return [Told(one, addresses.get(one.webhook_id, one.webhook_id)) for one in notices]


async def cancel(console: Console, visit: Visit, form: Form) -> Response:
    force, _ = form.get("force") == "1", visit.words
    if force and not form.is_confirmed:
        found = await query.task(visit.ports, visit.who, _id(visit))
        return console.confirm(
            visit,
            form,
            title=_("Force cancel %(name)s?", name=found.filename),
            losses=[
                _("Processing stops immediately, and the pages read so far are discarded."),
                _("The original file is kept. You can retry the task later."),
            ],
            button=_("Force cancel"),
            back=address(found.id),
        )
    await control.cancel(visit.ports, visit.who, _id(visit), force=force)
    return console.redirect(visit, address(_id(visit), "cancelled"))


async def retry(console: Console, visit: Visit, form: Form) -> Response:
    await control.retry(visit.ports, visit.who, _id(visit), from_stage=form.get("from_stage"))
    return console.redirect(visit, address(_id(visit), "retried"))


async def mount(console: Console, visit: Visit, form: Form) -> Response:
    table_id = form.get("table_id")
    if not table_id.isdecimal() or len(table_id) > 18:
        raise BadRequest("request_invalid", why=visit.words("Select a table."))
    await control.mount(
        visit.ports, visit.who, _id(visit), table_id=int(table_id), json_path=form.get("json_path").strip()
    )
    return console.redirect(visit, address(_id(visit), "mounted"))


async def artifact(_: Console, visit: Visit) -> Response:
    """Something that a stage left, for saving."""
    found = await query.task(visit.ports, visit.who, _id(visit))
    name = visit.request.path_params["name"]
    key = _key(found, name)
    store = objects(visit.ports, found.tenant)
    stored = await store.stat(key) if key else None
    if key is None or stored is None:
        raise NotFound("object_not_found", key=name[:64])
    headers = {
        "Content-Disposition": attachment(_saved_as(found, name)),
        "Content-Length": str(stored.size),
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Cache-Control": "private, no-store",
    }
    return StreamingResponse(store.stream(key), headers=headers, media_type=ARTIFACTS[name][1])


def _saved_as(found: Task, name: str) -> str:
    """The original under its own name; what was made of it under the same stem."""
    if name == "source":
        return found.filename
    return f"{stem_of(found.filename)}.md" if name == "markdown.md" else f"{stem_of(found.filename)}.{name}"


def waterfall(attempts: list[Attempt], now_ms: int) -> list[Bar]:
    started = [one for one in attempts if one.started_ms]
    if not started:
        return []
    begins = min(one.started_ms or 0 for one in started)
    ends = max((one.ended_ms or (now_ms if _goes_on(one) else one.started_ms or 0)) for one in started)
    whole = max(ends - begins, 1)
    bars = []
    for one in started:
        start, end = one.started_ms or 0, one.ended_ms or (now_ms if _goes_on(one) else one.started_ms or 0)
        place = 100 * (start - begins) / whole
        bars.append(Bar(one, min(place, 99), max(100 * (end - start) / whole, 1), end - start))
    return bars


def _goes_on(attempt: Attempt) -> bool:
    return attempt.state in (State.RUNNING, State.HANDED_OVER)


def _condensed(events: list[LoggedEvent]) -> list[LoggedEvent]:
    """Of progress lines in a row only the last is worth a line on the page."""
    following = [*(one.kind for one in events[1:]), ""]
    return [one for one, after in zip(events, following, strict=True) if one.kind != "progress" or after != "progress"]


def _key(found: Task, name: str) -> str | None:
    if name not in ARTIFACTS:
        return None
    field = ARTIFACTS[name][0]
    key: str | None = found.source_key or None if field == "source_key" else getattr(found.artifacts, field)
    return key


def _id(visit: Visit) -> int:
    found: int = visit.request.path_params["task_id"]
    if found >= 2**63:
        raise NotFound("task_not_found", task=found)
    return found
