"""`docmill tasks`: look at tasks and steer them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from docmill.cli import api as service
from docmill.cli.api import ETL, Api, Event, json_option, url_option
from docmill.cli.board import board, is_terminal
from docmill.cli.documents import fetch_markdown, out_option
from docmill.cli.failure import EXIT_FAILED, EXIT_INTERRUPTED
from docmill.cli.following import exit_code, follow_all, print_events, say_goodbye, told_event, told_task
from docmill.cli.output import Out, complain, printable, standard_output
from docmill.cli.table import short_time, write_fields, write_table

STATUSES = ("pending", "mineru_parsing", "llm_processing", "completed", "failed", "cancelled")
EXITS = "Exit codes: 0 done, 2 wrong usage or no service there, 4 the service refused."

RESULT_EXITS = "Exit codes: 0 done, 1 the result is lost, 2 wrong usage or no service there, 4 the service refused."

WIRE_STAGES = {"parse": "mineru"}

task_argument = click.argument("task_id", type=click.IntRange(1), metavar="ID")


@click.group()
def tasks() -> None:
    """List, show, follow, read, cancel, retry and mount tasks."""


@tasks.command("list", epilog=EXITS)
@click.option("--project", type=click.IntRange(0), help="Only tasks of this project.")
@click.option("--status", type=click.Choice(STATUSES), help="Only tasks of this status.")
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="Tasks on a page.")
@click.option("--offset", type=click.IntRange(0), help="Leave out so many.")
@click.option("--all", "everything", is_flag=True, help="Walk through all pages.")
@url_option
@json_option
def list_tasks(
    project: int | None, status: str | None, limit: int, offset: int | None, everything: bool, url: str, as_json: bool
) -> None:
    """List tasks, newest first."""

    async def pages(api: Api) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        asked = {"project_id": project, "status": status, "limit": limit}
        page = await api.get(f"{ETL}/tasks", offset=offset, **asked)
        found = list(page["tasks"])
        while everything and page["next_cursor"]:
            page = await api.get(f"{ETL}/tasks", cursor=page["next_cursor"], **asked)
            found += page["tasks"]
        return found, page

    found, page = service.run(url, pages)
    with standard_output() as out:
        if as_json:
            out.json({**page, "tasks": found})
            return
        rows = [_row(task) for task in found]
        write_table(out, ("TASK", "STATUS", "%", "PROJECT", "PAGES", "UPDATED", "FILE"), rows)
        if len(found) < page["total"]:
            out.line(f"{len(found)} of {page['total']} tasks; --all shows the rest.")


@tasks.command("show", epilog=EXITS)
@task_argument
@url_option
@json_option
def show_task(task_id: int, url: str, as_json: bool) -> None:
    """Show a task. With --json the result is included."""
    task = service.run(url, lambda api: api.task(task_id))
    with standard_output() as out:
        if as_json:
            out.json(task)
            return
        lists = ("damaged_pages", "missing_archives")
        meta = {name: value for name, value in task["metadata"].items() if name not in ("stage", *lists)}
        missing = ", ".join(task["metadata"]["missing_archives"])
        damaged = ", ".join(str(index + 1) for index in task["metadata"]["damaged_pages"])
        shown = {name: task[name] for name in ("task_id", "filename", "status", "progress", "project_id", "rule_id")}
        times = {name: short_time(task[name]) for name in ("created_at", "updated_at")}
        listed = dict(zip(lists, (damaged, missing), strict=True))
        write_fields(out, {**shown, **times, "error": task["error"], **meta, **listed})


@tasks.command("result", epilog=RESULT_EXITS)
@task_argument
@url_option
def show_result(task_id: int, url: str) -> None:
    """Print the result of a completed task as JSON; null if there is none yet."""
    task = service.run(url, lambda api: api.task(task_id))
    with standard_output() as out:
        out.json(task["result"])
    if code := task["metadata"].get("result_error"):
        complain(f"The result cannot be read from the store: {code}. 'docmill explain {code}' says what to do.")
        raise SystemExit(EXIT_FAILED)


@tasks.command(
    "markdown",
    epilog="Exit codes: 0 done, 1 the task is not completed, 2 wrong usage or no service there, 4 the service refused.",
)
@task_argument
@out_option
@url_option
def show_markdown(task_id: int, out: Path | None, url: str) -> None:
    """Print the Markdown of a completed task's document."""
    task = service.run(url, lambda api: api.task(task_id))
    meta = task["metadata"]
    if task["status"] == "completed":
        fetch_markdown(url, str(meta["document_id"]), out)
        return
    if task["status"] == "failed":
        complain(f"Task {task_id} failed: {meta.get('error_code')}: {task['error']}")
    else:
        complain(f"Task {task_id} is {task['status']}: there is no Markdown. 'docmill watch {task_id}' follows it.")
    raise SystemExit(EXIT_FAILED)


@tasks.command(
    "follow",
    epilog="Exit codes: 0 completed, 1 failed or cancelled, 2 wrong usage or no service there, 4 the service refused, "
    "130 interrupted: the task goes on.",
)
@task_argument
@click.option("--after", type=click.IntRange(0), default=0, help="Begin after the event of this number.")
@url_option
@json_option
def follow(task_id: int, after: int, url: str, as_json: bool) -> None:
    """Follow a task to its end. A cut connection is taken up again where it was cut.

    With --json every event is printed as one line of JSON.
    """
    with standard_output() as out:
        try:
            task = service.run(url, lambda api: _watched(api, task_id, after, out, as_json=as_json))
        except KeyboardInterrupt:
            say_goodbye([task_id], url)
            raise SystemExit(EXIT_INTERRUPTED) from None
    raise SystemExit(exit_code([task]))


async def _watched(api: Api, task_id: int, after: int, out: Out, *, as_json: bool) -> dict[str, Any]:
    if not as_json and is_terminal():
        name = (await api.task(task_id))["filename"]
        with board(out) as shown:
            [task] = await follow_all(api, [(task_id, name)], shown, out)
        return task

    def show(event: Event) -> None:
        if as_json:
            out.json(event_json(event))
        else:
            out.line(_told(event))
        out.flush()

    task = await print_events(api, task_id, after, show)
    if not as_json:
        out.line(told_task(out, task))
    return task


@tasks.command("events", epilog=EXITS)
@task_argument
@click.option("--after", type=click.IntRange(0), default=0, help="Begin after the event of this number.")
@url_option
@json_option
def show_events(task_id: int, after: int, url: str, as_json: bool) -> None:
    """Print what happened to a task so far."""

    async def log(api: Api) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        last = after
        while True:
            page = await api.call(
                "GET", f"{ETL}/tasks/{task_id}/events", params={"after": last}, headers={"Accept": "application/json"}
            )
            if not page["events"]:
                return found
            found += page["events"]
            last = page["next"]

    found = service.run(url, log)
    with standard_output() as out:
        if as_json:
            out.json({"events": found})
            return
        for one in found:
            out.line(_told(Event(one["seq"], one["kind"], one["data"], one["at"])))


@tasks.command("cancel", epilog=EXITS)
@task_argument
@click.option("--force", is_flag=True, help="Also if it is running.")
@url_option
@json_option
def cancel(task_id: int, force: bool, url: str, as_json: bool) -> None:
    """Cancel a task that waits; with --force also one that runs."""
    _acknowledge(url, f"{ETL}/tasks/{task_id}/cancel", None, as_json=as_json, force="true" if force else None)


@tasks.command("retry", epilog=EXITS)
@task_argument
@click.option(
    "--from",
    "stage",
    type=click.Choice(("parse", "mineru", "postprocess")),
    default="parse",
    show_default=True,
    help="parse reads the document again (mineru is its name in the API); postprocess keeps the Markdown.",
)
@url_option
@json_option
def retry(task_id: int, stage: str, url: str, as_json: bool) -> None:
    """Run a task again that completed, failed or was cancelled."""
    _acknowledge(url, f"{ETL}/tasks/{task_id}/retry", {"from_stage": WIRE_STAGES.get(stage, stage)}, as_json=as_json)


@tasks.command("mount", epilog=EXITS)
@task_argument
@click.option("--table", type=click.IntRange(1), required=True, metavar="ID", help="The table.")
@click.option("--pointer", default="", metavar="POINTER", help="Where in the table: a JSON Pointer; default: the top.")
@url_option
@json_option
def mount(task_id: int, table: int, pointer: str, url: str, as_json: bool) -> None:
    """Put the result of a completed task into a table."""
    body = {"table_id": table, "json_path": pointer}
    answer = service.run(url, lambda api: api.post(f"{ETL}/tasks/{task_id}/mount", body))
    with standard_output() as out:
        if as_json:
            out.json(answer)
        else:
            out.line(f"Mounted at {printable(answer['mounted_path'])}.")


watch = follow


def event_json(event: Event) -> dict[str, Any]:
    return {"seq": event.seq, "kind": event.kind, "data": event.data, "at": event.at}


def _acknowledge(url: str, path: str, body: Any, *, as_json: bool, **params: Any) -> None:
    answer = service.run(url, lambda api: api.post(path, body, **params))
    with standard_output() as out:
        if as_json:
            out.json(answer)
        else:
            out.line(f"task {answer['task_id']}  {answer['status']}")


def _row(task: dict[str, Any]) -> tuple[Any, ...]:
    pages = task["metadata"].get("pages_total") or task["metadata"].get("pages_done")
    times = short_time(task["updated_at"])
    return (task["task_id"], task["status"], task["progress"], task["project_id"], pages, times, task["filename"])


def _told(event: Event) -> str:
    return f"{event.seq:>4}  {short_time(event.at)}  {printable(told_event(event))}"
