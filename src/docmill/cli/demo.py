"""`docmill demo`: a service, the sample documents, their twins; everything over the HTTP API."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

import click

import docmill
from docmill.cli import api as service
from docmill.cli.api import Api
from docmill.cli.board import board
from docmill.cli.failure import EXIT_INTERRUPTED, Trouble
from docmill.cli.following import exit_code, follow_all
from docmill.cli.output import Out, complain, plural, standard_output
from docmill.cli.submit import send

START_S = 60.0
STOP_S = 30.0
ABOUT = "README.md"
"""It tells about the samples and is none."""


@click.command(epilog="Exit codes: 0 every sample was completed, 1 some were not, 2 the demo could not start.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default="demo-data",
    show_default=True,
    help="Where the results go.",
)
@click.option(
    "--samples",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of documents to show; default: docmill's own samples.",
)
def demo(data: Path, samples: Path | None) -> None:
    """Show a run from end to end.

    Starts a service on a free port, sends it every sample through the HTTP API, shows how they become Markdown, and
    stops the service. The results stay in the data folder.
    """
    files = sample_files(samples)
    with standard_output() as out:
        began = perf_counter()
        try:
            with served(data) as url:
                out.line(f"A service runs at {url}. It gets {plural(len(files), 'document')}.")
                out.flush()
                tasks = service.run(url, lambda api: _show(api, out, files))
        except KeyboardInterrupt:
            complain("Stopped.")
            raise SystemExit(EXIT_INTERRUPTED) from None
        done = sum(task["status"] == "completed" for task in tasks)
        seconds = perf_counter() - began
        out.line(f"{done} of {len(tasks)} completed in {seconds:.0f} s. The results are in {data / 'library'}.")
    raise SystemExit(exit_code(tasks))


def sample_files(folder: Path | None) -> list[Path]:
    there = folder or own_samples()
    found = sorted(path for path in there.glob("*") if path.is_file() and path.name != ABOUT and path.name[0] != ".")
    if not found:
        raise Trouble(f"There is nothing in {there}.")
    return found


def own_samples() -> Path:
    """They are part of the installed package. In a source tree they lie beside `src`."""
    package = Path(docmill.__file__).parent
    inside = package / "samples"
    return inside if inside.is_dir() else package.parents[1] / "samples"


async def _show(api: Api, out: Out, files: list[Path]) -> list[dict[str, Any]]:
    with board(out) as shown:
        sent = [await send(api, file, {"project_id": 0, "twin": True}) for file in files]
        tasks = await follow_all(api, [(task["task_id"], task["filename"]) for task in sent], shown, out)
    ready = await api.get("/ready")
    out.line(f"The service says that it is {ready['status']}.")
    return tasks


@contextmanager
def served(data: Path) -> Iterator[str]:
    """The address of a service of our own, which ends with the block. Its log is in the data folder."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        log = (data / "serve.log").open("wb")
    except OSError as error:
        raise Trouble(f"{data} cannot be written: {error.strerror or error}.") from error
    with log:
        command = [sys.executable, "-m", "docmill", "serve", "--host", "127.0.0.1", "--port", "0", "--data", str(data)]
        process = subprocess.Popen(  # noqa: S603 - our own command
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=plain_environment(data)
        )
        try:
            yield _address(process, data / "serve.log")
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()


def plain_environment(data: Path) -> dict[str, str]:
    """The demo shows what a service does by itself: the settings of another one stay outside."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DOCMILL_")}
    for name in ("DATABASE_URL", "APP_URL", "ETL_TASK_TIMEOUT"):
        kept.pop(name, None)
    return {**kept, "DOCMILL_LIBRARY": str(data / "library")}


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """What the service prints once it answers."""
    stdout = process.stdout
    line, ends = b"", monotonic() + START_S
    with selectors.DefaultSelector() as ready:
        ready.register(stdout, selectors.EVENT_READ)  # type: ignore[arg-type]  # it is a pipe
        while stdout and not line.endswith(b"\n") and ready.select(max(0.0, ends - monotonic())):
            part = os.read(stdout.fileno(), 4096)
            if not part:
                break
            line += part
    words = line.decode("utf-8", "replace").split()
    if "serves" not in words:
        said = log.read_text("utf-8", "replace").strip().splitlines()
        why = next((one for one in said if one.startswith("Error:")), said[-1] if said else "it said nothing")
        raise Trouble(f"The service did not start: {why}")
    return words[words.index("serves") + 1]
