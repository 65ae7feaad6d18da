"""The worker SDK: report to docmill, or to any service that speaks one of its two callback dialects.

callback   Callback, AsyncCallback, resume: the words of a worker
delivery   one POST, what its answer means, and when to try again
spool      terminal reports on disk until they are delivered
wire       the JSON of both dialects
signing    signatures over the raw body
server, desk, brief   `docmill worker-server`: a worker made of all this
"""

from __future__ import annotations

from .callback import AsyncCallback, Callback, resume, resume_async
from .delivery import Receipt
from .errors import CallbackError, Cancelled, Refused, Undelivered

__all__ = [
    "AsyncCallback",
    "Callback",
    "CallbackError",
    "Cancelled",
    "Receipt",
    "Refused",
    "Undelivered",
    "resume",
    "resume_async",
]
