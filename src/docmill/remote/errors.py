"""What a report can meet, as a tree.

CallbackError
├── Refused      the other side said no, and will say no again: 400, 401, 403, 404, …
├── Undelivered  the other side could not be reached until the deadline; a spooled report waits for `resume`
└── Cancelled    the other side no longer wants the work
"""

from __future__ import annotations

import errno


class CallbackError(Exception):
    """Base of everything that reporting raises."""


class Refused(CallbackError):
    """Sending it again would not help: look at the address, the token or the payload."""

    def __init__(self, status: int, code: str = "", job_id: str = "") -> None:
        self.status = status
        self.code = code
        self.job_id = job_id
        super().__init__(f"The report for job {job_id} was refused: {status} {code or WHY.get(status, '')}".rstrip())


class Undelivered(CallbackError):
    """The deadline passed first."""

    def __init__(self, job_id: str, tries: int, why: str) -> None:
        self.job_id = job_id
        self.tries = tries
        super().__init__(f"The report for job {job_id} was not delivered in {tries} tries; the last one: {why}")


class Cancelled(CallbackError):
    """Stop working: the job was cancelled."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"Job {job_id} was cancelled.")


WHY = {
    400: "the payload is not valid",
    401: "the token is not valid",
    403: "the token or the signature is not valid",
    404: "there is no such job; check the address",
    409: "the job has ended already",
    413: "the report is too large",
}


FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def is_storage_full(error: BaseException | None) -> bool:
    """Whether there was no room on the disk, also if a task group or another error hides it. Later there may be."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_storage_full(one) for one in error.exceptions)
    if error is None:
        return False
    is_full = isinstance(error, OSError) and error.errno in FULL_ERRNOS
    return is_full or getattr(error, "code", None) == "storage_full" or is_storage_full(error.__cause__)
