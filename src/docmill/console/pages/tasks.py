"""All tasks: what needs attention, what runs, what is done. Filters live in the address and combine."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from heapq import merge
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.responses import Response

from docmill.console.visit import Form, Visit
from docmill.core.access import Principal
from docmill.core.errors import RETRYABLE, DocmillError
from docmill.core.machine import wire_status
from docmill.core.task import Task
from docmill.ports import Found, Ports, Search
from docmill.work import control, query

if TYPE_CHECKING:
    from docmill.console.app import Console

PAGE = 50
MAX_SEARCH_S = 2.0
"""A search that takes longer shows what it has found, and a link that goes on."""
MAX_RETRIED = 1_000
"""Failed tasks that one click retries."""
AT_ONCE = 50
MAX_NAMED = 20
"""Files that a confirmation names."""
LATE_STAGES = ("postprocess", "mount", "twin")
"""Stages whose retry does not need to read the file again."""
GROUPS = {
    "attention": ("failed",),
    "running": query.ACTIVE,
    "done": ("completed", "cancelled"),
    "all": (*query.ACTIVE, "completed", "failed", "cancelled"),
}


@dataclass(frozen=True, slots=True)
class Choice:
    """What the address asks for."""

    group: str
    statuses: tuple[str, ...]
    project_id: int | None
    name: str
    before: int | None

    def includes(self, task: Task) -> bool:
        return (
            wire_status(task) in self.statuses
            and self.project_id in (None, task.project_id)
            and self.name.casefold() in task.filename.casefold()
        )


@dataclass(frozen=True, slots=True)
class Page:
    """Tasks of one page, newest first."""

    tasks: list[Task]
    older: int | None
    """The id to go on from; None: there are no more."""
    is_partial: bool = False
    """The search ended before the page was full; older tasks were not looked at yet."""


@dataclass(frozen=True, slots=True)
class Failures:
    """Failed tasks with the same error code."""

    code: str
    count: int
    is_retryable: bool
    """Whether the code says that another try can help."""


async def show(console: Console, visit: Visit) -> Response:
    choice = choice_of(visit)
    found = await find(visit.ports, visit.who, choice)
    return console.render(
        visit,
        "tasks.html",
        page="tasks",
        choice=choice,
        counts=await counted(visit, choice),
        statuses=GROUPS["all"],
        tasks=found.tasks,
        failures=await failures(visit, choice) if choice.group == "attention" else [],
        max_retried=MAX_RETRIED,
        older=found.older,
        is_partial=found.is_partial,
        done=visit.number("done"),
        refused=visit.number("refused"),
    )


async def counts(console: Console, visit: Visit) -> Response:
    """The tabs with their counts as they are now, for a page that is open."""
    choice = choice_of(visit)
    return console.render(
        visit, "task_tabs.html", choice=choice, counts=await counted(visit, choice), base="/tasks", done=None
    )


async def rows(console: Console, visit: Visit) -> Response:
    """Some rows as they are now, for a page that is open; new ones only if the page's filter lets them in."""
    ids = [int(one) for one in visit.query("ids").split(",") if one.isdecimal() and len(one) < 19][: query.MAX_BATCH]
    found = await query.batch(visit.ports, visit.who, ids) if ids else []
    if visit.query("new") == "1":
        choice = choice_of(visit)
        found = [task for task in found if choice.includes(task)]
    is_short = visit.query("short") == "1"
    return console.render(visit, "rows.html", tasks=found, short=is_short)


async def bulk(console: Console, visit: Visit, form: Form) -> Response:
    """The same for many tasks at once. What one refuses does not stop the others."""
    ids = [int(one) for one in form.all("task") if one.isdecimal() and len(one) < 19]
    action, done, refused = form.get("action"), 0, 0
    if action == "force" and ids and not form.is_confirmed:
        return await _confirm_force(console, visit, form, ids)
    for task_id in dict.fromkeys(ids):
        try:
            if action in ("cancel", "force"):
                await control.cancel(visit.ports, visit.who, task_id, force=action == "force")
            else:
                await control.retry(visit.ports, visit.who, task_id, from_stage=action)
            done += 1
        except DocmillError:
            refused += 1
    return console.redirect(visit, _back(form, done, refused))


async def _confirm_force(console: Console, visit: Visit, form: Form, ids: list[int]) -> Response:
    _ = visit.words
    chosen = await query.batch(visit.ports, visit.who, ids[: query.MAX_BATCH])
    return console.confirm(
        visit,
        form,
        title=_.count("Force cancel %(n)s task?", "Force cancel %(n)s tasks?", len(ids)),
        losses=[
            ", ".join(task.filename for task in chosen[:MAX_NAMED]) + (" …" if len(ids) > MAX_NAMED else ""),
            _("Processing stops immediately, and the pages read so far are discarded."),
            _("The original files are kept. You can retry the tasks later."),
        ],
        button=_("Force cancel"),
        back=form.get("next") if form.get("next").startswith("/tasks") else "/tasks",
    )


async def retry_failed(console: Console, visit: Visit, form: Form) -> Response:
    """Retry the failed tasks with one error code, the newest first, each from the stage that failed."""
    project = form.get("project")
    wanted = Search(
        visit.who.owner,
        int(project) if project.isdecimal() and len(project) < 19 else None,
        "failed",
        clean_part(form.get("name")),
        form.get("code"),
        limit=MAX_RETRIED,
    )
    found = (await query.search(visit.ports, wanted)).tasks
    done = 0
    for start in range(0, len(found), AT_ONCE):
        done += sum(await asyncio.gather(*(_retried(visit, task) for task in found[start : start + AT_ONCE])))
    return console.redirect(visit, _back(form, done, len(found) - done))


async def _retried(visit: Visit, task: Task) -> bool:
    is_late = task.artifacts.markdown_key and task.fault and task.fault.stage in LATE_STAGES
    try:
        await control.retry(visit.ports, visit.who, task.id, from_stage="postprocess" if is_late else "mineru")
    except DocmillError:
        return False
    return True


def _back(form: Form, done: int, refused: int) -> str:
    back = form.get("next")
    back = back if back.startswith("/tasks") else "/tasks"
    mark = "&" if "?" in back else "?"
    return f"{back}{mark}done={done}&refused={refused}"


def clean_part(name: str) -> str:
    """A part of a file name as somebody typed it."""
    return name.replace("\0", "").strip()[:100]


def choice_of(visit: Visit) -> Choice:
    group = visit.query("show", "all")
    group = group if group in GROUPS else "all"
    status = visit.query("status")
    statuses = GROUPS[group]
    return Choice(
        group=group,
        statuses=(status,) if status in statuses else statuses,
        project_id=visit.number("project"),
        name=clean_part(visit.query("name")),
        before=visit.number("before"),
    )


async def counted(visit: Visit, choice: Choice) -> dict[str, int]:
    """Tasks in each tab. Empty if a name is searched: how many match is not known without looking at all of them."""
    if choice.name:
        return {}
    found = await query.counts(visit.ports, visit.who, choice.project_id)
    return {name: sum(found.get(status, 0) for status in statuses) for name, statuses in GROUPS.items()}


async def failures(visit: Visit, choice: Choice) -> list[Failures]:
    """Equal failures among all tasks that match, the largest group first."""
    found = await query.failures(visit.ports, Search(visit.who.owner, choice.project_id, name=choice.name))
    groups = [Failures(one.code, one.count, one.code in RETRYABLE) for one in found]
    return [one for one in groups if one.count > 1]


async def find(ports: Ports, who: Principal, choice: Choice) -> Page:
    """A page of tasks. Names have no index: a search looks at part after part, until the page is full or time is up."""
    found: list[Task] = []
    before: int | None = choice.before
    ends = time.monotonic() + MAX_SEARCH_S
    while True:
        part = await _part(ports, who, choice, before)
        found += part.tasks
        before = part.next_before
        if len(found) > PAGE:
            return Page(found[:PAGE], found[PAGE - 1].id)
        if before is None:
            return Page(found, None)
        if time.monotonic() > ends:
            return Page(found, before, is_partial=True)


async def _part(ports: Ports, who: Principal, choice: Choice, before: int | None) -> Found:
    """The next part of the list. Each status has its own index, so each is searched on its own."""
    statuses = choice.statuses if choice.statuses != GROUPS["all"] else (None,)
    parts = [
        await query.search(
            ports, Search(who.owner, choice.project_id, status, choice.name, before=before, limit=PAGE + 1)
        )
        for status in statuses
    ]
    # Beyond the nearest edge, one of the statuses has not been looked at.
    edge = max((part.next_before for part in parts if part.next_before is not None), default=None)
    tasks = merge(*(part.tasks for part in parts), key=lambda task: -task.id)
    return Found([task for task in tasks if edge is None or task.id >= edge], edge)


def address(task_id: int, said: str = "") -> str:
    return f"/tasks/{task_id}" + (f"?said={quote(said)}" if said else "")
