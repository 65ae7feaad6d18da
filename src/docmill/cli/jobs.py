"""`docmill deliveries` and `docmill trigger`: what external workers reported, and a report by hand."""

from __future__ import annotations

import hmac
import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import click

from docmill.cli import api as service
from docmill.cli.api import Api, json_option, url_option
from docmill.cli.failure import Refused
from docmill.cli.output import standard_output
from docmill.cli.table import short_time, write_table

EXITS = "Exit codes: 0 done, 2 wrong usage or no service there, 4 the service refused."
JOBS = "/api/external/jobs"


@click.command(epilog=EXITS)
@click.argument("task_id", type=click.IntRange(1), metavar="TASK")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Newest callbacks to show.")
@url_option
@json_option
def deliveries(task_id: int, limit: int, url: str, as_json: bool) -> None:
    """Show the callbacks that came in for a task's current job, accepted or refused, with the reason."""

    async def work(api: Api) -> dict[str, Any]:
        found: dict[str, Any] = await api.get(f"{JOBS}/{await _job_of(api, task_id)}", limit=limit)
        return found

    job = service.run(url, work)
    with standard_output() as out:
        if as_json:
            out.json(job)
            return
        out.line(f"job {job['jobId']} of {job['worker']} ({job['dialect']}): {job['status']}")
        rows = [
            (short_time(one["at"]), one["kind"], one["status"], one["size"], one["reason"]) for one in job["deliveries"]
        ]
        write_table(out, ("TIME", "KIND", "ANSWER", "BYTES", "REASON"), rows)


@click.command(epilog=EXITS)
@click.argument("what", type=click.Choice(["progress", "completed", "failed"]))
@click.argument("task_id", type=click.IntRange(1), metavar="TASK")
@click.option("--percent", type=click.FloatRange(0, 100), default=50, show_default=True, help="For progress.")
@click.option("--text", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Markdown for completed.")
@click.option("--message", default="sent by docmill trigger", show_default=True, help="What the report says.")
@url_option
@json_option
def trigger(what: str, task_id: int, percent: float, text: Path | None, message: str, url: str, as_json: bool) -> None:
    """Send a correct test callback for a task that waits for an external worker.

    The job is taken over: the worker that held it is refused from then on. Dispatcher callbacks are signed with
    CALLBACK_SIGNING_KEY, if it is set.
    """
    markdown = text.read_text(encoding="utf-8") if text else "# Sent by docmill trigger\n"

    async def work(api: Api) -> dict[str, Any]:
        job = await _job_of(api, task_id)
        taken = await api.post(f"{JOBS}/{job}/token")
        if taken["dialect"] == "secretary":
            body = _secretary(what, percent, message, markdown)
        else:
            body = _dispatcher(what, message, job)
        raw = json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {taken['callback_token']}", "Content-Type": "application/json"}
        if key := os.environ.get("CALLBACK_SIGNING_KEY"):
            headers["X-Kohakku-Signature"] = (
                "sha256=" + hmac.new(key.split(",")[0].encode(), f"{job}:".encode() + raw, sha256).hexdigest()
            )
        answer = await api.client.post(taken["callback_url"], content=raw, headers=headers)
        if not answer.is_success:
            said = answer.json()
            raise Refused(
                str(said.get("code", "callback_payload_invalid")), str(said.get("detail") or said.get("error"))
            )
        found: dict[str, Any] = answer.json()
        return found

    answer = service.run(url, work)
    with standard_output() as out:
        if as_json:
            out.json(answer)
        else:
            out.line(f"{what} was accepted for task {task_id}. Follow it with 'docmill watch {task_id}'.")


async def _job_of(api: Api, task_id: int) -> str:
    task = await api.task(task_id)
    job = task["metadata"]["job_id"]
    if job is None:
        raise click.UsageError(f"Task {task_id} has no job of an external worker.")
    return str(job)


def _secretary(what: str, percent: float, message: str, markdown: str) -> dict[str, Any]:
    if what == "progress":
        return {"phase": "extract_text", "progress": percent, "message": message}
    if what == "failed":
        return {"phase": "failed", "error": {"code": "TRIGGERED", "message": message}}
    return {"phase": "completed", "message": message, "data": {"extracted_text": markdown}}


def _dispatcher(what: str, message: str, job: str) -> dict[str, Any]:
    if what == "progress":
        raise click.UsageError("Dispatchers report only the end of a task: completed or failed.")
    if what == "failed":
        return {"status": "failed", "exit_code": 1, "error_message": message}
    return {"status": "completed", "exit_code": 0, "result_key": f"results/{job}/output.zip"}
