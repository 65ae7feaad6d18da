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
        State.HANDED_OVER: _("at an external worker"),
        State.SUCCEEDED: _("succeeded"),
        State.FAILED: _("failed"),
        State.DROPPED: _("discarded"),
        State.GIVEN_BACK: _("returned to the queue"),
    }[state]


def status_sentence(_: Words, task: Task) -> str:
    """Where the task is, and what happens next."""
    status = wire_status(task)
    if status == "pending":
        if has_failed_before(task):
            return _(
                "Attempt %(n)s did not finish. Waiting for attempt %(next)s.", n=task.attempt - 1, next=task.attempt
            )
        return _("Waiting for a free worker.")
    if status == "mineru_parsing":
        if task.job_id and task.job_id == task.attempt_id:
            return _("An external worker is processing the document. Postprocessing follows.")
        if task.pages_total:
            return _(
                "Reading page %(done)s of %(total)s. Postprocessing follows.",
                done=task.pages_done or 0,
                total=task.pages_total,
            )
        return _("Reading the document. Postprocessing follows.")
    if status == "llm_processing":
        if task.stage is Stage.PUBLISH:
            return _("Storing the document.")
        return _("Applying the rule. Storing the document follows.")
    if status == "completed":
        if task.damaged_pages:
            return _("Some pages are damaged. The readable parts are available.")
        return _("The document is ready.")
    if status == "cancelled":
        return _("Retry the task to process it again.")
    return _("The reason is shown below.")


def has_failed_before(task: Task) -> bool:
    """Whether the task waits for another attempt after one that failed or whose worker was lost."""
    return task.status is Status.PENDING and bool(task.errors or task.crashes or task.lost_workers)


def event_sentence(_: Words, event: LoggedEvent) -> str:
    said = _event(_, event.kind, event.data)
    return said if said is not None else event.kind.replace("_", " ")


def _event(_: Words, kind: str, data: dict[str, Any]) -> str | None:
    stage = stage_word(_, str(data.get("stage", "")))
    message = _message(_, data)
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
            return _("Handed over to worker %(worker)s", worker=data.get("worker", ""))
        case "stage_succeeded" if data.get("cache_hit"):
            return _("%(stage)s reused from an identical document", stage=stage)
        case "stage_succeeded":
            return _("%(stage)s succeeded", stage=stage)
        case "completed":
            return _("Completed")
        case "failed":
            return _("Failed: %(message)s", message=message)
        case "retry_scheduled":
            return _("Failed, will be retried: %(message)s", message=message)
        case "cancelled" if data.get("forced"):
            return _("Force cancelled")
        case "cancelled":
            return _("Cancelled")
        case "retried":
            return _("Retried from %(stage)s", stage=stage_word(_, str(data.get("from_stage", ""))))
        case "given_back":
            return _("Returned to the queue because the worker shut down")
        case "worker_lost":
            return _("The worker was lost; another worker starts over")
        case "isolated":
            return _("Runs in isolation because workers were lost repeatedly on this task")
        case "worker_error":
            return _("The worker reported an error: %(message)s", message=data.get("message", ""))
        case "mounted":
            return _("Mounted at %(path)s", path=data.get("path", ""))
        case "twin_drift":
            return _("The twin had been edited and was not overwritten")
    return None


def _message(_: Words, data: dict[str, Any]) -> str:
    """Why something failed, in the visitor's language as far as its code is known."""
    code, message = str(data.get("code", "")), str(data.get("message", ""))
    known = _.explain(code)
    return _.detail(code, message) or (known[0] if known else message)
