"""The composition root: Settings become Ports, and Ports become an HTTP app and a worker.

This is the only place that asks which world we are in.
"""

from docmill.compose.binding import key_ring, moving, opened, tracer, working
from docmill.compose.engines import captioner, external_workers, extractor, foresee, local_engine, provider_engine
from docmill.compose.keeping import onedrive_tokens, open_database
from docmill.compose.serving import (
    add_console,
    address,
    authenticator,
    callback_options,
    listen,
    serve,
    settle,
    work,
)

__all__ = [
    "add_console",
    "address",
    "authenticator",
    "callback_options",
    "captioner",
    "external_workers",
    "extractor",
    "foresee",
    "key_ring",
    "listen",
    "local_engine",
    "moving",
    "onedrive_tokens",
    "open_database",
    "opened",
    "provider_engine",
    "serve",
    "settle",
    "tracer",
    "work",
    "working",
]
