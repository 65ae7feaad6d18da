"""`docmill submit`: files and folders go to the service."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import click

from docmill.cli import api as service
from docmill.cli.api import Api, json_option, url_option
from docmill.cli.board import board
from docmill.cli.failure import EXIT_INTERRUPTED, EXIT_REFUSED, EXIT_UNSUPPORTED, HINT, Failure
from docmill.cli.following import exit_code, follow_all, say_goodbye
from docmill.cli.output import Out, complain, plural, printable, standard_output
from docmill.cli.unsupported import list_unsupported, refusal


@click.command(
    epilog="Exit codes: 0 submitted (with --follow: completed), 1 a followed task failed or was cancelled, 2 wrong "
    "usage or no service there, 4 the service refused a file, 5 all documents were submitted but some files are of "
    "unsupported types, 130 interrupted: the tasks go on."
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(exists=True, path_type=Path))
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
@click.option("--ignore-unsupported", is_flag=True, help="Do not list files of unsupported types; exit with 0.")
@click.option("--follow", "-f", is_flag=True, help="Show the progress until the tasks have ended.")
@url_option
@json_option
def submit(
    paths: tuple[Path, ...], url: str, ignore_unsupported: bool, follow: bool, as_json: bool, **asked: Any
) -> None:
    """Send files to the service, which processes them as tasks.

    A PATH is a file or a folder. Of a folder and the folders in it all documents are sent; twins and hidden files are
    skipped, and files that are not documents are listed as unsupported. With --twin-folder their twins keep the tree.
    """
    sent = Sent()
    with standard_output() as out:
        try:
            service.run(url, lambda api: _submit(api, out, paths, asked, sent, follow=follow, as_json=as_json))
        except KeyboardInterrupt:
            if sent.tasks:
                say_goodbye(sent.unfinished_ids, url)
            if not sent.tasks:
                complain("Stopped. Nothing was submitted.")
            elif left := sent.files - len(sent.tasks) - sent.refused:
                complain(f"Stopped. {plural(left, 'file')} not submitted.")
            raise SystemExit(EXIT_INTERRUPTED) from None
        if not ignore_unsupported and not as_json:
            for line in list_unsupported(out, sent.unsupported):
                out.line(line)
    raise SystemExit(sent.exit_code(follow=follow, ignore_unsupported=ignore_unsupported))


@dataclass(slots=True)
class Sent:
    files: int = 0
    tasks: list[dict[str, Any]] = field(default_factory=list)
    ended: list[dict[str, Any]] = field(default_factory=list)
    unsupported: list[Path] = field(default_factory=list)
    refused: int = 0

    @property
    def unfinished_ids(self) -> list[int]:
        ended = {task["task_id"] for task in self.ended}
        return [task["task_id"] for task in self.tasks if task["task_id"] not in ended]

    def exit_code(self, *, follow: bool, ignore_unsupported: bool) -> int:
        if self.refused:
            complain(HINT.format("CODE"))
            return EXIT_REFUSED
        if follow and (code := exit_code(self.ended)):
            return code
        return EXIT_UNSUPPORTED if self.unsupported and not ignore_unsupported else 0


async def _submit(
    api: Api, out: Out, paths: tuple[Path, ...], asked: dict[str, Any], sent: Sent, *, follow: bool, as_json: bool
) -> None:
    files = [file for path in paths for file in await _files(path, sent)]
    sent.files = len(files)
    for file in files:
        try:
            task = await send(api, file.path, body(asked, file.folder))
        except Failure as refused:
            sent.refused += 1
            complain(f"{file.path}: {refused.code}: {refused.message}")
            continue
        sent.tasks.append(task)
        if not as_json:
            out.line(f"task {task['task_id']}  {printable(file.label(task))}  {task['status']}")
            out.flush()
    if follow:
        with board(out, lines=not as_json) as shown:
            names = [(task["task_id"], f"{task['filename']} (task {task['task_id']})") for task in sent.tasks]
            in_order = await follow_all(api, names, shown, out, sent.ended.append)
        sent.ended = in_order
    if as_json:
        tasks = sent.ended if follow else sent.tasks
        out.json({"tasks": tasks, "refused": sent.refused, "unsupported": [str(path) for path in sent.unsupported]})


@dataclass(frozen=True, slots=True)
class File:
    path: Path
    folder: Path | None = None
    """Where it lies below the folder that was named; None: the file itself was."""

    def label(self, task: dict[str, Any]) -> str:
        return task["filename"] if self.folder is None else str(self.folder / task["filename"])


async def _files(path: Path, sent: Sent) -> list[File]:
    """The file, or the documents in the folder."""
    if not await asyncio.to_thread(path.is_dir):
        return [File(path)]
    from docmill.adapters.libraries.disk import DiskLibrary
    from docmill.work.convert import find

    library = DiskLibrary()
    try:
        sources = await find([path], library, refusal)
    finally:
        await library.close()
    sent.unsupported += [source.path for source in sources if source.refusal]
    documents = [source.path for source in sources if source.refusal is None]
    return [File(file, file.relative_to(path).parent) for file in documents]


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


def body(asked: dict[str, Any], folder: Path | None = None) -> dict[str, Any]:
    """What the flags ask for, as `POST /submit` takes it. *folder*: where the file lies in a tree that was named."""
    wanted_folder = asked["twin_folder"]
    if wanted_folder and folder is not None:
        wanted_folder = str(PurePosixPath(wanted_folder) / folder)
    twin = {"folder": wanted_folder, "layout": asked["layout"]}
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
