"""The composition root: Settings become Ports, and Ports become an HTTP app and a worker.

This is the only place that asks which world we are in.
"""

from docmill.compose.binding import (
    backup_ports,
    key_ring,
    log_sandbox,
    opened,
    pointers,
    sharing,
    tracer,
    webhooks,
    working,
)
from docmill.compose.engines import captioner, external_workers, extractor, foresee, local_engine, provider_engine
from docmill.compose.keeping import onedrive_tokens, open_database, open_store
from docmill.compose.serving import (
    add_console,
    address,
    authenticator,
    callback_options,
    connection_limits,
    listen,
    raise_open_files,
    serve,
    settle,
    work,
)

__all__ = [
    "add_console",
    "address",
    "authenticator",
    "backup_ports",
    "callback_options",
    "captioner",
    "connection_limits",
    "external_workers",
    "extractor",
    "foresee",
    "key_ring",
    "listen",
    "local_engine",
    "log_sandbox",
    "onedrive_tokens",
    "open_database",
    "open_store",
    "opened",
    "pointers",
    "provider_engine",
    "raise_open_files",
    "serve",
    "settle",
    "sharing",
    "tracer",
    "webhooks",
    "work",
    "working",
]
