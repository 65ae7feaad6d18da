"""`docmill serve`: the HTTP API and the workers in one process."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from docmill import __version__
from docmill.cli import shutdown
from docmill.cli.failure import told, usable_database
from docmill.cli.output import standard_output

if TYPE_CHECKING:
    from docmill.settings import Settings


@click.command(
    epilog="Exit codes: 0 stopped by a signal, 2 could not start: a setting, the data folder or the address, 130 or "
    "143 ended at once by a second SIGINT or SIGTERM, or because it did not stop within its grace period."
)
@click.option("--host", help="Address to serve on; default: 127.0.0.1.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to serve on; default: 8321; 0 picks a free one.")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Data folder; default: .docmill.")
@click.option(
    "--jobs",
    type=click.IntRange(0, 256),
    help="Documents at once in this process; default: the number of cores, or 0 if REDIS_URL is set.",
)
def serve(host: str | None, port: int | None, data: Path | None, jobs: int | None) -> None:
    """Run the service until SIGINT or SIGTERM.

    Once it answers, one line with its address is printed to standard output; the log goes to standard error. What is
    not given here comes from the environment (DOCMILL_HOST, DOCMILL_PORT, DOCMILL_DATA, DOCMILL_JOBS, ...), then from
    docmill.toml.

    With REDIS_URL, DATABASE_URL and OBJECTS_URL several of these share the load, and the work is left to processes of
    'docmill worker': then this one works only if --jobs says so.
    """
    with told(), usable_database():
        from docmill import settings

        chosen = settings.load(host=host, port=port, data=data, jobs=jobs)
        if chosen.is_distributed and jobs is None:
            chosen = settings.load(host=host, port=port, data=data, jobs=0)
        run(chosen)


def run(chosen: Settings) -> None:
    import uvloop

    from docmill import compose
    from docmill.core.errors import Conflict, Invalid
    from docmill.http import logs

    as_json = chosen.log_format == "json" or (chosen.log_format == "auto" and not sys.stderr.isatty())
    logs.configure(json=as_json, level=chosen.log_level)
    place = "shared with other processes" if chosen.is_distributed else f"data in {chosen.data}"

    def on_ready(address: str) -> None:
        with standard_output() as out:
            out.line(f"docmill {__version__} serves {address} ({place})")

    stop = shutdown.current()
    stop.grace_s = chosen.grace
    try:
        stop.run(lambda: compose.serve(chosen, on_ready=on_ready), loop_factory=uvloop.new_event_loop)
    except (shutdown.Interrupted, KeyboardInterrupt):
        pass
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Conflict("address_taken", address=f"{chosen.host}:{chosen.port}") from error
        if error.filename is None:
            # A socket's error names no file.
            raise Invalid("setting_invalid", name="host", why=f"{error.strerror or error}: {chosen.host}.") from error
        why = f"{error.strerror}: {error.filename}"
        raise Invalid("setting_invalid", name="data", why=why) from error
