"""All tasks: what needs attention, what runs, what is done. Filters live in the address and combine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import merge
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.responses import Response

from docmill.console.visit import Form, Visit
from docmill.core.access import Principal
from docmill.core.errors import DocmillError
from docmill.core.task import Task
from docmill.ports import Filter, Ports
from docmill.work import control, query

if TYPE_CHECKING:
    from docmill.console.app import Console

PAGE = 50
SCAN = 100
MAX_SCANNED = 2_000
"""Rows that a search by name looks at: names have no index."""
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


@dataclass(frozen=True, slots=True)
class Failures:
    """Failed tasks with the same code at the same stage."""

    code: str
    stage: str
    tasks: list[Task]


async def show(console: Console, visit: Visit) -> Response:
    choice = choice_of(visit)
    counts = await counted(visit.ports, visit.who, choice.project_id)
    found, older = await find(visit.ports, visit.who, choice)
    groups = grouped(found) if choice.group == "attention" else []
    return console.render(
        visit,
        "tasks.html",
        page="tasks",
        choice=choice,
        counts={name: sum(counts[status] for status in statuses) for name, statuses in GROUPS.items()},
        statuses=counts,
        tasks=found,
        failures=[one for one in groups if len(one.tasks) > 1],
        older=older,
        done=visit.number("done"),
        refused=visit.number("refused"),
    )


async def rows(console: Console, visit: Visit) -> Response:
    """Some rows as they are now, for a page that is open."""
    ids = [int(one) for one in visit.query("ids").split(",") if one.isdecimal() and len(one) < 19][: query.MAX_BATCH]
    found = await query.batch(visit.ports, visit.who, ids) if ids else []
    is_short = visit.query("short") == "1"
    return console.render(visit, "rows.html", tasks=found, short=is_short)


async def bulk(console: Console, visit: Visit, form: Form) -> Response:
    """The same for many tasks at once. What one refuses does not stop the others."""
    ids = [int(one) for one in form.all("task") if one.isdecimal() and len(one) < 19]
    action, done, refused = form.get("action"), 0, 0
    for task_id in dict.fromkeys(ids):
        try:
            if action in ("cancel", "force"):
                await control.cancel(visit.ports, visit.who, task_id, force=action == "force")
            else:
                await control.retry(visit.ports, visit.who, task_id, from_stage=action)
            done += 1
        except DocmillError:
            refused += 1
    back = form.get("next")
    back = back if back.startswith("/tasks") else "/tasks"
    mark = "&" if "?" in back else "?"
    return console.redirect(visit, f"{back}{mark}done={done}&refused={refused}")


def choice_of(visit: Visit) -> Choice:
    group = visit.query("show", "all")
    group = group if group in GROUPS else "all"
    status = visit.query("status")
    statuses = GROUPS[group]
    return Choice(
        group=group,
        statuses=(status,) if status in statuses else statuses,
        project_id=visit.number("project"),
        name=visit.query("name").strip()[:100],
        before=visit.number("before"),
    )


async def counted(ports: Ports, who: Principal, project_id: int | None) -> dict[str, int]:
    return {
        status: (await query.faces(ports, Filter(who.owner, project_id, status, limit=1))).total
        for status in GROUPS["all"]
    }


async def find(ports: Ports, who: Principal, choice: Choice) -> tuple[list[Task], int | None]:
    """A page of tasks, newest first, and the id to go on from."""
    found: list[Task] = []
    before, scanned = choice.before, 0
    while len(found) <= PAGE and scanned < MAX_SCANNED:
        tasks = await _slice(ports, who, choice, before)
        found += [task for task in tasks if choice.name.casefold() in task.filename.casefold()]
        scanned += len(tasks)
        if len(tasks) < SCAN:
            break
        before = tasks[-1].id
    return found[:PAGE], found[PAGE - 1].id if len(found) > PAGE else None


async def _slice(ports: Ports, who: Principal, choice: Choice, before: int | None) -> list[Task]:
    pages: Iterable[str | None] = choice.statuses if choice.statuses != GROUPS["all"] else (None,)
    lists = [
        (await query.tasks(ports, Filter(who.owner, choice.project_id, status, SCAN, before=before))).tasks
        for status in pages
    ]
    return list(merge(*lists, key=lambda task: -task.id))[:SCAN]


def grouped(tasks: Iterable[Task]) -> list[Failures]:
    """Equal failures together, the largest group first."""
    groups: dict[tuple[str, str], list[Task]] = {}
    for task in tasks:
        if task.fault:
            groups.setdefault((task.fault.code, task.fault.stage), []).append(task)
    found = [Failures(code, stage, members) for (code, stage), members in groups.items()]
    return sorted(found, key=lambda one: -len(one.tasks))


def address(task_id: int, said: str = "") -> str:
    return f"/tasks/{task_id}" + (f"?said={quote(said)}" if said else "")
