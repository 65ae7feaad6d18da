"""`docmill worker`: a process that only works, beside others of its kind."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from docmill import __version__
from docmill.cli import shutdown
from docmill.cli.failure import told, usable_database
from docmill.cli.output import plural, standard_output

if TYPE_CHECKING:
    from docmill.settings import Settings


@click.command(
    epilog="Exit codes: 0 stopped by a signal, 2 could not start: a setting or the database, 130 or 143 ended at once "
    "by a second SIGINT or SIGTERM, or because it did not stop within its grace period."
)
@click.option("--jobs", type=click.IntRange(1, 256), help="Documents at once; default: the number of cores.")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Folder for what is being worked on.")
@click.option("--host", help="Address of --metrics-port; default: 127.0.0.1.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Port for /metrics and /health of this worker; default: none; 0 picks a free one.",
)
def worker(jobs: int | None, data: Path | None, host: str | None, metrics_port: int | None) -> None:
    """Take tasks and work on them until SIGINT or SIGTERM.

    Any number of workers share the tasks that 'docmill serve' takes in; they meet in the database (DATABASE_URL), the
    queue (REDIS_URL) and the object store (OBJECTS_URL). Once it works, one line with its name is printed to standard
    output; the log goes to standard error. Stopped, it gives back what it has not finished; killed, others take over.
    """
    with told(), usable_database():
        from docmill import settings

        run(settings.load(jobs=jobs, data=data, host=host, metrics_port=metrics_port))


def run(chosen: Settings) -> None:
    import uvloop

    from docmill import compose
    from docmill.core.errors import Conflict
    from docmill.http import logs

    as_json = chosen.log_format == "json" or (chosen.log_format == "auto" and not sys.stderr.isatty())
    logs.configure(json=as_json, level=chosen.log_level)

    def on_ready(name: str, metrics_address: str) -> None:
        more = f"; metrics at {metrics_address}/metrics" if metrics_address else ""
        with standard_output() as out:
            out.line(f"docmill {__version__} works as {name} on {plural(chosen.jobs, 'document')} at once{more}")

    stop = shutdown.current()
    stop.grace_s = chosen.grace
    try:
        stop.run(lambda: compose.work(chosen, on_ready=on_ready), loop_factory=uvloop.new_event_loop)
    except (shutdown.Interrupted, KeyboardInterrupt):
        pass
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise Conflict("address_taken", address=f"{chosen.host}:{chosen.metrics_port}") from error
