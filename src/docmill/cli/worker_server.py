"""`docmill worker-server`: an external worker that takes jobs over HTTP and reports through callbacks."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from docmill import __version__
from docmill.cli import shutdown
from docmill.cli.failure import told
from docmill.cli.output import standard_output

if TYPE_CHECKING:
    from docmill.adapters.engines.local import LocalEngine
    from docmill.remote.desk import Order, PageReport, Parsed
    from docmill.settings import Settings

PORT = 8322
API_KEY = "DOCMILL_WORKER_API_KEY"


@click.command(
    "worker-server",
    epilog="Exit codes: 0 stopped by a signal, 2 could not start: a setting, the spool or the address, 130 or 143 "
    "ended at once by a second SIGINT or SIGTERM, or because it did not stop within its grace period.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Port to serve on; 0: a free one."
)
@click.option("--jobs", type=click.IntRange(1, 256), help="Documents at once; default: the number of cores.")
@click.option(
    "--spool",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of running jobs and undelivered reports; default: worker in the data folder.",
)
def worker_server(host: str, port: int, jobs: int | None, spool: Path | None) -> None:
    """Run an external worker until SIGINT or SIGTERM.

    It takes jobs in both dialects (POST /pdf/process and POST /tasks), parses them with the local engine, and reports
    through callbacks. What a kill interrupted goes on at the next start with the same spool.

    DOCMILL_WORKER_API_KEY is the key that callers must send; without one only 127.0.0.1 and the like are served. With
    CALLBACK_SIGNING_KEY every callback is signed.
    """
    with told():
        from docmill import settings
        from docmill.core.errors import Invalid

        chosen = settings.load(host=host, port=port, jobs=jobs)
        if not chosen.is_loopback and not os.environ.get(API_KEY):
            raise Invalid("setting_invalid", name=API_KEY, why=f"it must be set before binding to {host}.")
        run(chosen, spool or chosen.data / "worker")


def run(chosen: Settings, spool: Path) -> None:
    import uvloop

    from docmill.core.errors import Conflict, Invalid
    from docmill.http import logs
    from docmill.remote.desk import SpoolTaken

    as_json = chosen.log_format == "json" or (chosen.log_format == "auto" and not sys.stderr.isatty())
    logs.configure(json=as_json, level=chosen.log_level)
    stop = shutdown.current()
    stop.grace_s = chosen.grace
    try:
        stop.run(lambda: serve(chosen, spool), loop_factory=uvloop.new_event_loop)
    except (shutdown.Interrupted, KeyboardInterrupt):
        pass
    except SpoolTaken as error:
        raise Conflict("data_locked", folder=spool) from error
    except OSError as error:
        name = "port" if error.errno == errno.EADDRINUSE else "host" if error.filename is None else "spool"
        raise Invalid("setting_invalid", name=name, why=f"{error.strerror or error}.") from error


async def serve(chosen: Settings, spool: Path) -> None:

    from docmill import compose
    from docmill.http.connections import Connections
    from docmill.http.server import Config
    from docmill.http.stoppable import StoppableServer
    from docmill.remote.desk import Desk
    from docmill.remote.server import ServerOptions, build_app

    listener = compose.listen(chosen.host, chosen.port)
    engine = compose.local_engine(chosen)
    desk = Desk(
        LocalParser(engine),
        spool,
        slots=chosen.jobs,
        signing_key=signing_key(chosen),
    )
    options = ServerOptions(
        api_key=os.environ.get(API_KEY) or None,
        max_source_bytes=chosen.upload_bytes,
        version=__version__,
    )
    config = Config(
        build_app(desk, options),
        Connections(compose.connection_limits(chosen, compose.raise_open_files())),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        timeout_graceful_shutdown=max(1, round(chosen.grace)),
    )
    if chosen.sandbox == "require":
        await engine.confirm_sandbox()
    # Not uvicorn's lifespan: an error in there would become a line in the log and a mute exit.
    await desk.open()
    warming = asyncio.gather(compose.log_sandbox(engine), engine.warm(), return_exceptions=True)
    try:
        with standard_output() as out:
            out.line(f"docmill {__version__} worker serves {compose.address(listener)} (spool in {spool})")
        await StoppableServer(config).serve_until_cancelled(listener)
    finally:
        warming.cancel()
        await asyncio.gather(warming, return_exceptions=True)
        await desk.close()
        await engine.close()


def signing_key(chosen: Settings) -> str | None:
    """docmill accepts several keys while they are changed; a worker signs with the first."""
    keys = chosen.callback_signing_key.get_secret_value().split(",") if chosen.callback_signing_key else []
    return next((key.strip() for key in keys if key.strip()), None)


class LocalParser:
    """The local engine in the words of the worker server."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine

    async def parse(self, order: Order, report: PageReport) -> Parsed:
        from docmill.ports import Work
        from docmill.remote.desk import Parsed

        work = Work(0, uuid4(), order.source, order.filename, order.folder, order.options, is_source_ours=True)
        parsed = await self._engine.start(work, report)
        return Parsed(
            parsed.markdown,
            [(page.index + 1, page.markdown) for page in parsed.pages],
            {
                "engine": f"{self._engine.name} {self._engine.version}",
                "pages": len(parsed.pages),
                "figures": len(parsed.figures),
                "media_type": parsed.media_type,
            },
        )
