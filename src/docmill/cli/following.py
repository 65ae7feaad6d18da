"""Watch tasks to their end, and say how to come back if the watcher leaves earlier."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from docmill.cli.api import DEFAULT_URL, Api, Event
from docmill.cli.board import Board
from docmill.cli.failure import EXIT_FAILED, HINT
from docmill.cli.output import Out, complain, near, plural, printable

STREAMS = 32
"""Followed at once. The others wait: the log of a task that ended meanwhile is read in no time."""
COLOURS = {"completed": "green", "failed": "red", "cancelled": "yellow"}


async def follow_all(
    api: Api,
    tasks: Sequence[tuple[int, str]],
    shown: Board,
    out: Out,
    on_end: Callable[[dict[str, Any]], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """The tasks at their ends, in the order given. *tasks*: id and name of each. *on_end* has each as it ends."""
    gate = asyncio.Semaphore(STREAMS)

    async def one(task_id: int, name: str) -> dict[str, Any]:
        async with gate:
            task = await _follow(api, task_id, name, shown, out)
        on_end(task)
        return task

    return await asyncio.gather(*(one(task_id, name) for task_id, name in tasks))


async def _follow(api: Api, task_id: int, name: str, shown: Board, out: Out) -> dict[str, Any]:
    shown.show(name, 0, 100, "waiting")
    progress = 0
    async for event in api.follow(task_id):
        progress = event.data.get("progress", progress)
        shown.show(name, progress, 100, told_event(event))
    task = await api.task(task_id)
    shown.hide(name)
    shown.line(told_task(out, task))
    return task


async def print_events(api: Api, task_id: int, after: int, show: Callable[[Event], None]) -> dict[str, Any]:
    """Show every event of a task, and give the task at its end."""
    async for event in api.follow(task_id, after):
        show(event)
    return await api.task(task_id)


def told_event(event: Event) -> str:
    """An event in a few words."""
    data = event.data
    match event.kind:
        case "progress" if data.get("pages_total"):
            return f"page {data.get('pages_done')} of {data['pages_total']}"
        case "progress" if data.get("pages_done"):
            return plural(data["pages_done"], "page")
        case "progress" if data.get("message"):
            return str(data["message"])
        case "started":
            return f"{data.get('stage', 'stage')} started"
        case "stage_succeeded" if data.get("stage"):
            return f"{data['stage']} succeeded"
        case "failed" | "retry_scheduled" | "twin_drift":
            return f"{event.kind.replace('_', ' ')}: {data.get('code')}"
    return event.kind.replace("_", " ")


def told_task(out: Out, task: dict[str, Any]) -> str:
    """A finished task in one line."""
    meta = task["metadata"]
    word = out.style(f"{task['status']:<9}", fg=COLOURS.get(task["status"]))
    told = [f"task {task['task_id']}"]
    if meta.get("pages_total") or meta.get("pages_done"):
        told.append(plural(meta.get("pages_total") or meta["pages_done"], "page"))
    if meta.get("cache_hit"):
        told.append("parsed before")
    line = f"{word}  {printable(task['filename'])}  ({', '.join(told)})"
    if task["status"] == "failed":
        return f"{line}: {meta.get('error_code')}: {printable(str(task['error']))}"
    return f"{line} -> {printable(near(Path(meta['twin_path'])))}" if meta.get("twin_path") else line


def exit_code(tasks: Sequence[dict[str, Any]]) -> int:
    """0 if all completed. What went wrong is explained where the codes are."""
    if any(task["status"] == "failed" for task in tasks):
        complain(HINT.format("CODE"))
    return 0 if all(task["status"] == "completed" for task in tasks) else EXIT_FAILED


def say_goodbye(task_ids: Sequence[int], url: str) -> None:
    """How to come back to the tasks that go on without the watcher."""
    if not task_ids:
        complain("Stopped. All tasks that were submitted have ended.")
        return
    where = "" if url == DEFAULT_URL else f" --url {url}"
    complain(f"Detached. {'The task goes' if len(task_ids) == 1 else 'The tasks go'} on. Come back with:")
    for task_id in task_ids:
        complain(f"  docmill tasks follow {task_id}{where}")
