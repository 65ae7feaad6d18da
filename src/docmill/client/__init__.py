"""docmill from Python: `Client`, and `AsyncClient` with the same calls to await.

Lists are iterators, values are frozen, and every error carries its stable code (see `docmill.client.errors`).
"""

from .aio import AsyncClient
from .errors import (
    ClientError,
    Conflict,
    Forbidden,
    Gone,
    NotFound,
    Refused,
    TaskEnded,
    TimedOut,
    TooMany,
    TwinDrift,
    Unauthorized,
    Unavailable,
    Unexpected,
    Unreachable,
)
from .sync import Client
from .values import Ack, Event, Metadata, Mounted, Rule, Submitted, Table, Task

__all__ = [
    "Ack",
    "AsyncClient",
    "Client",
    "ClientError",
    "Conflict",
    "Event",
    "Forbidden",
    "Gone",
    "Metadata",
    "Mounted",
    "NotFound",
    "Refused",
    "Rule",
    "Submitted",
    "Table",
    "Task",
    "TaskEnded",
    "TimedOut",
    "TooMany",
    "TwinDrift",
    "Unauthorized",
    "Unavailable",
    "Unexpected",
    "Unreachable",
]
