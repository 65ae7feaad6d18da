"""What can go wrong, as a tree. Every error carries the stable code that API, command line and log show, too.

ClientError
├── Refused           the service said no: status, next_step, request_id, errors
│   ├── Unauthorized  401
│   ├── Forbidden     403
│   ├── NotFound      404
│   ├── Conflict      409
│   ├── Gone          410
│   ├── TooMany       429
│   └── Unavailable   502, 503, 504, 507: after the last try
├── Unreachable       no service answers, or the connection broke
├── Unexpected        something answers, and it is not docmill
├── TaskEnded         the task failed or was cancelled; `task` has the rest
├── TimedOut          the caller did not want to wait any longer; the task goes on
└── TwinDrift         somebody edited the twin that would be replaced
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docmill.client.values import Task


class ClientError(Exception):
    code: str = "internal_error"

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Refused(ClientError):
    """The service answered with a problem (RFC 9457)."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem["code"]), str(problem["detail"]))
        self.status = status
        self.retryable = bool(problem.get("retryable", False))
        self.request_id = str(problem.get("request_id", ""))
        self.next_step = str(problem.get("next_step", ""))
        self.errors: Sequence[Mapping[str, Any]] = problem.get("errors") or ()


class Unauthorized(Refused):
    pass


class Forbidden(Refused):
    pass


class NotFound(Refused):
    pass


class Conflict(Refused):
    pass


class Gone(Refused):
    pass


class TooMany(Refused):
    pass


class Unavailable(Refused):
    pass


KINDS: Mapping[int, type[Refused]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    429: TooMany,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
    507: Unavailable,
}


class Unreachable(ClientError):
    def __init__(self, why: str) -> None:
        super().__init__("service_unreachable", f"The service does not answer: {why}")


class Unexpected(ClientError):
    def __init__(self, why: str) -> None:
        super().__init__("answer_unexpected", f"The answer is not docmill's: {why}")


class TaskEnded(ClientError):
    def __init__(self, task: Task) -> None:
        said = task.error or f"task {task.id} is {task.status}"
        code = "task_cancelled" if task.status == "cancelled" else task.metadata.error_code or "stage_failed"
        if lost := task.metadata.result_error:
            code, said = lost, f"the result of task {task.id} cannot be read from the store"
        super().__init__(code, said)
        self.task = task


class TimedOut(ClientError):
    def __init__(self, task: Task, seconds: float) -> None:
        super().__init__("wait_timeout", f"task {task.id} is still {task.status} after {seconds:g} s; it goes on.")
        self.task = task


class TwinDrift(ClientError):
    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__("twin_drift", f"somebody edited {', '.join(paths)}. Keep it, or write again with force=True.")
        self.paths = tuple(paths)
