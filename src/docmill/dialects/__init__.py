"""How external workers speak: what is on the wire, and the reports it stands for. One module for each dialect."""

from docmill.core.tokens import digest, new_token
from docmill.dialects.base import Claim, Dialect, Expected, Signature
from docmill.dialects.body import Body
from docmill.dialects.dispatcher import Dispatcher
from docmill.dialects.secretary import Secretary

DIALECTS: dict[str, Dialect] = {"secretary": Secretary(), "dispatcher": Dispatcher()}

__all__ = [
    "DIALECTS",
    "Body",
    "Claim",
    "Dialect",
    "Dispatcher",
    "Expected",
    "Secretary",
    "Signature",
    "digest",
    "new_token",
]
