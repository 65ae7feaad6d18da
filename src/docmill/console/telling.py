"""States and events in plain words."""

from __future__ import annotations

from typing import Any

from docmill.console.words import Words
from docmill.core.machine import wire_status
from docmill.core.task import LoggedEvent, Stage, State, Status, Task


def status_word(_: Words, status: str) -> str:
    return {
        "pending": _("Waiting"),
        "mineru_parsing": _("Parsing"),
        "llm_processing": _("Postprocessing"),
        "completed": _("Completed"),
        "failed": _("Failed"),
        "cancelled": _("Cancelled"),
    }[status]


def stage_word(_: Words, stage: str) -> str:
    return {
        "parse": _("Parse"),
        "mineru": _("Parse"),
        "postprocess": _("Postprocess"),
        "publish": _("Publish"),
    }.get(stage, stage)


def block_word(_: Words, kind: str) -> str:
    return {
        "heading": _("Heading"),
        "item": _("List item"),
        "code": _("Code"),
        "table": _("Table"),
        "figure": _("Image"),
        "caption": _("Caption"),
    }.get(kind, _("Paragraph"))


def state_word(_: Words, state: State) -> str:
    return {
        State.QUEUED: _("waiting"),
        State.RUNNING: _("running"),
        State.HANDED_OVER: _("with an external worker"),
        State.SUCCEEDED: _("succeeded"),
        State.FAILED: _("failed"),
        State.DROPPED: _("dropped"),
        State.GIVEN_BACK: _("given back"),
    }[state]


def status_sentence(_: Words, task: Task) -> str:
    """Where the task is, and what happens next."""
    status = wire_status(task)
    if status == "pending":
        if task.errors or task.crashes or task.lost_workers:
            return _("The last try failed; the next one starts by itself in a moment.")
        return _("Waiting for a free worker. It starts by itself.")
    if status == "mineru_parsing":
        if task.job_id and task.job_id == task.attempt_id:
            return _("An external worker reads the document and reports back. Postprocessing follows.")
        if task.pages_total:
            return _(
                "Reading page %(done)s of %(total)s. Postprocessing follows by itself.",
                done=task.pages_done or 0,
                total=task.pages_total,
            )
        return _("Reading the document. Postprocessing follows by itself.")
    if status == "llm_processing":
        if task.stage is Stage.PUBLISH:
            return _("Storing the document. Then it is done.")
        return _("Applying the rule. Then the document is stored.")
    if status == "completed":
        if task.damaged_pages:
            return _("Done, but some pages were damaged. What could be read is there.")
        return _("Done. The document is stored and can be opened.")
    if status == "cancelled":
        return _("Cancelled. Nothing more happens unless you retry it.")
    return _("Failed. Nothing more happens unless you retry it.")


def event_sentence(_: Words, event: LoggedEvent) -> str:
    said = _event(_, event.kind, event.data)
    return said if said is not None else event.kind.replace("_", " ")


def _event(_: Words, kind: str, data: dict[str, Any]) -> str | None:
    stage = stage_word(_, str(data.get("stage", "")))
    match kind:
        case "submitted":
            return _("Submitted")
        case "started":
            return _("%(stage)s started, attempt %(n)s", stage=stage, n=data.get("attempt", ""))
        case "progress" if data.get("pages_total"):
            return _("Page %(done)s of %(total)s", done=data.get("pages_done", 0), total=data["pages_total"])
        case "progress":
            return _("Progress %(n)s %%", n=data.get("progress", 0))
        case "handed_over":
            return _("Handed over to the worker %(worker)s", worker=data.get("worker", ""))
        case "stage_succeeded" if data.get("cache_hit"):
            return _("%(stage)s reused from an equal document", stage=stage)
        case "stage_succeeded":
            return _("%(stage)s succeeded", stage=stage)
        case "completed":
            return _("Completed")
        case "failed":
            return _("Failed: %(message)s", message=data.get("message", ""))
        case "retry_scheduled":
            return _("Failed and tries again: %(message)s", message=data.get("message", ""))
        case "cancelled" if data.get("forced"):
            return _("Cancelled by force")
        case "cancelled":
            return _("Cancelled")
        case "retried":
            return _("Retried from %(stage)s", stage=stage_word(_, str(data.get("from_stage", ""))))
        case "given_back":
            return _("Given back by a worker that shut down")
        case "worker_lost":
            return _("The worker died; another one starts over")
        case "isolated":
            return _("Runs alone, because workers died repeatedly on this task")
        case "worker_error":
            return _("The worker reported an error: %(message)s", message=data.get("message", ""))
        case "mounted":
            return _("Mounted at %(path)s", path=data.get("path", ""))
        case "twin_drift":
            return _("The twin was edited by somebody and was kept")
    return None


def group_of(task: Task) -> str:
    """Which tab a task belongs to."""
    if task.status is Status.FAILED:
        return "attention"
    return "done" if task.is_final else "running"
