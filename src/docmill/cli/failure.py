"""How a command ends when something went wrong: a line with the stable code, and an exit code for scripts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from docmill.cli import EXIT_INTERRUPTED as EXIT_INTERRUPTED
from docmill.cli.output import EXIT_USAGE, complain
from docmill.core.errors import DocmillError

EXIT_FAILED = 1
"""Something was tried and did not succeed: a document, a task, a check."""
EXIT_REFUSED = 4
"""The service answered with an error."""
EXIT_UNSUPPORTED = 5
"""Everything succeeded, but there were files of types that cannot be read."""

HINT = "'docmill explain {}' says what it means and what to do next."


class Failure(click.ClickException):
    """An error with a code: the command could not do what was asked."""

    exit_code = EXIT_USAGE

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    def show(self, file: IO[Any] | None = None) -> None:  # noqa: ARG002 - click's signature
        complain(f"Error: {self.code}: {self.message}")
        complain(HINT.format(self.code))


class Refused(Failure):
    """The service said no."""

    exit_code = EXIT_REFUSED


class Trouble(click.ClickException):
    """Something outside of docmill: it has no code, and the message names the way out."""

    exit_code = EXIT_USAGE

    def show(self, file: IO[Any] | None = None) -> None:  # noqa: ARG002 - click's signature
        complain(f"Error: {self.message}")


@contextmanager
def usable_database() -> Iterator[None]:
    """What the system or the database's library says becomes a line."""
    try:
        yield
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        raise Trouble(f"The database cannot be used: {error.strerror or error}{where}.") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("apsw", "asyncpg"):
            raise
        raise Trouble(f"The database cannot be used: {type(error).__name__}: {error}.") from error


@contextmanager
def told() -> Iterator[None]:
    """Errors of ours end the command with their code."""
    log_to_stderr()
    try:
        yield
    except DocmillError as error:
        raise Failure(error.code, error.message) from error


def log_to_stderr() -> None:
    """Warnings of the parts that a command uses. Without this they would go to standard output, among the results."""
    from docmill.http import logs

    logs.configure(json=False, level="warning")
