"""`docmill worker`: a process that only works, beside others of its kind."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from docmill import __version__
from docmill.cli.failure import told, usable_database
from docmill.cli.output import plural, standard_output

if TYPE_CHECKING:
    from docmill.settings import Settings


@click.command(epilog="Exit codes: 0 stopped by a signal, 2 could not start: a setting or the database.")
@click.option("--jobs", type=click.IntRange(1, 256), help="Documents at once; default: the number of cores.")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Folder for what is being worked on.")
def worker(jobs: int | None, data: Path | None) -> None:
    """Take tasks and work on them until SIGINT or SIGTERM.

    Any number of workers share the tasks that 'docmill serve' takes in; they meet in the database (DATABASE_URL), the
    queue (REDIS_URL) and the object store (OBJECTS_URL). Once it works, one line with its name is printed to standard
    output; the log goes to standard error. Stopped, it gives back what it has not finished; killed, others take over.
    """
    with told(), usable_database():
        from docmill import settings

        run(settings.load(jobs=jobs, data=data))


def run(chosen: Settings) -> None:
    import uvloop

    from docmill import compose
    from docmill.http import logs

    as_json = chosen.log_format == "json" or (chosen.log_format == "auto" and not sys.stderr.isatty())
    logs.configure(json=as_json, level=chosen.log_level)

    def on_ready(name: str) -> None:
        with standard_output() as out:
            out.line(f"docmill {__version__} works as {name} on {plural(chosen.jobs, 'document')} at once")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(compose.work(chosen, on_ready=on_ready))
