"""`docmill submit`: files go to the service."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from docmill.cli import api as service
from docmill.cli.api import Api, json_option, url_option
from docmill.cli.board import board
from docmill.cli.failure import EXIT_INTERRUPTED, EXIT_REFUSED, HINT, Failure
from docmill.cli.following import exit_code, follow_all, say_goodbye
from docmill.cli.output import Out, complain, printable, standard_output


@click.command(
    epilog="Exit codes: 0 submitted (with --follow: completed), 1 a followed task failed or was cancelled, 2 wrong "
    "usage or no service there, 4 the service refused a file, 130 interrupted: the tasks go on."
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True, dir_okay=False))
@click.option("--project", type=click.IntRange(0), default=0, show_default=True, help="Number of the project.")
@click.option("--rule", type=click.IntRange(1), metavar="ID", help="Rule for the Markdown; default: keep it as it is.")
@click.option("--engine", metavar="NAME", help="Engine that parses; default: local.")
@click.option("--twin", is_flag=True, help="Also write a twin into the service's library.")
@click.option("--twin-folder", metavar="DIR", help="Folder of the twin in the library (implies --twin).")
@click.option("--layout", type=click.Choice(("folder", "sidecar")), help="Layout of the twin (implies --twin).")
@click.option("--table", type=click.IntRange(1), metavar="ID", help="Mount the result into this table.")
@click.option("--pointer", default="", metavar="POINTER", help="Where in the table: a JSON Pointer.")
@click.option("--language", metavar="CODE", help="Language of the documents; default: found out.")
@click.option("--ocr", type=click.Choice(("auto", "always", "never")), help="Whether to read pages as images.")
@click.option("--page-images", is_flag=True, help="Also keep an image of every page.")
@click.option("--no-cache", is_flag=True, help="Parse although the same bytes were parsed before.")
@click.option("--priority", type=click.IntRange(-10, 10), default=0, show_default=True, help="Higher goes first.")
@click.option("--follow", "-f", is_flag=True, help="Show the progress until the tasks have ended.")
@url_option
@json_option
def submit(files: tuple[str, ...], url: str, follow: bool, as_json: bool, **asked: Any) -> None:
    """Send files to the service, which processes them as tasks."""
    sent = Sent()
    with standard_output() as out:
        try:
            service.run(url, lambda api: _submit(api, out, files, asked, sent, follow=follow, as_json=as_json))
        except KeyboardInterrupt:
            if sent.ids:
                say_goodbye(sent.ids, url)
            else:
                complain("Stopped. Nothing was submitted.")
            raise SystemExit(EXIT_INTERRUPTED) from None
    if sent.refused:
        complain(HINT.format("CODE"))
        raise SystemExit(EXIT_REFUSED)
    raise SystemExit(exit_code(sent.ended) if follow else 0)


@dataclass(slots=True)
class Sent:
    tasks: list[dict[str, Any]] = field(default_factory=list)
    ended: list[dict[str, Any]] = field(default_factory=list)
    refused: int = 0

    @property
    def ids(self) -> list[int]:
        return [task["task_id"] for task in self.tasks]


async def _submit(
    api: Api, out: Out, files: tuple[str, ...], asked: dict[str, Any], sent: Sent, *, follow: bool, as_json: bool
) -> None:
    for file in files:
        try:
            task = await send(api, Path(file), body(asked))
        except Failure as refused:
            sent.refused += 1
            complain(f"{file}: {refused.code}: {refused.message}")
            continue
        sent.tasks.append(task)
        if not as_json:
            out.line(f"task {task['task_id']}  {printable(task['filename'])}  {task['status']}")
            out.flush()
    if follow:
        with board(out, lines=not as_json) as shown:
            names = [(task["task_id"], f"{task['filename']} (task {task['task_id']})") for task in sent.tasks]
            sent.ended = await follow_all(api, names, shown, out)
    if as_json:
        out.json({"tasks": sent.ended if follow else sent.tasks, "refused": sent.refused})


async def send(api: Api, file: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """Upload and submit one file."""
    try:
        stored = await api.upload(file, wanted["project_id"])
    except OSError as error:
        raise Failure("upload_failed", f"The file cannot be read: {error.strerror or error}.") from error
    task = await api.submit({**wanted, "s3_key": stored["key"], "filename": stored["filename"]})
    return {
        "task_id": task["task_id"],
        "status": task["status"],
        "filename": stored["filename"],
        "s3_key": stored["key"],
    }


def body(asked: dict[str, Any]) -> dict[str, Any]:
    """What the flags ask for, as `POST /submit` takes it."""
    twin = {"folder": asked["twin_folder"], "layout": asked["layout"]}
    options = {"language": asked["language"], "ocr": asked["ocr"], "page_images": asked["page_images"] or None}
    wanted = {
        "project_id": asked["project"],
        "rule_id": asked["rule"],
        "engine": asked["engine"],
        "no_cache": asked["no_cache"] or None,
        "priority": asked["priority"] or None,
        "twin": _given(twin) or asked["twin"] or None,
        "mount": {"table_id": asked["table"], "json_path": asked["pointer"]} if asked["table"] else None,
        "options": _given(options) or None,
    }
    return _given(wanted)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
