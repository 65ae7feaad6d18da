"""SIGINT and SIGTERM end `serve`, `worker`, `worker-server` and `convert` in order, at any moment.

The handlers are installed by the entry point before anything else is imported, so this module imports only what the
interpreter loads anyway. One handler covers the whole life of the process:

    starting   nothing is open yet: exit at once
    running    cancel the main task of the event loop, which closes what it opened
    finished   the command is about to exit by itself: let it

After the first signal the process has the grace period and CLEANUP_S to end. A second signal ends it at once.
"""

from __future__ import annotations

import atexit
import os
import signal
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    import asyncio
    from types import FrameType

T = TypeVar("T")

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
EXIT_SIGNAL_BASE = 128
"""A shell reports this plus the number of the signal."""
DEFAULT_GRACE_S = 10.0
CLEANUP_S = 1.5
"""After the grace period: to return tasks to the queue and to close what is open."""
STDERR = 2
REPEAT_S = 0.05
"""A signal that comes so soon after the first one is the same stop: `timeout` signals the process, then its group."""


class Interrupted(BaseException):
    """A signal stopped the command, and everything it had opened is closed."""

    def __init__(self, signal_number: int) -> None:
        self.exit_code = EXIT_SIGNAL_BASE + signal_number
        super().__init__(signal.Signals(signal_number).name)


class Shutdown:
    def __init__(self, *, is_service: bool) -> None:
        self.grace_s = DEFAULT_GRACE_S
        self._is_service = is_service
        self._signal: int | None = None
        self._signalled_at = 0.0
        self._state = "starting"
        self._main: asyncio.Task[Any] | None = None

    def install(self) -> None:
        """Whatever was inherited: a background job of a script has SIGINT ignored, some supervisors block signals."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGALRM, self._on_deadline)
        # The interpreter takes the handlers away before it is gone: an alarm would then kill it. Threads have ended.
        atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)
        # Only now, for a signal that is pending is delivered here.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {*STOP_SIGNALS, signal.SIGALRM})

    def run(
        self,
        main: Callable[[], Coroutine[Any, Any, T]],
        *,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> T:
        """Run *main* in an event loop until it returns or a signal cancels it. Raises Interrupted for a signal."""
        import asyncio

        with asyncio.Runner(loop_factory=loop_factory) as runner:
            try:
                return runner.run(self._run(main))
            except asyncio.CancelledError:
                if self._signal is None:
                    raise
                raise Interrupted(self._signal) from None

    async def _run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        import asyncio

        self._main = asyncio.current_task()
        self._state = "running"
        try:
            return await main()
        finally:
            self._state = "finished"

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if self._signal is not None:
            if now - self._signalled_at > REPEAT_S:
                os._exit(EXIT_SIGNAL_BASE + number)
            return
        self._signal, self._signalled_at = number, now
        if self._state == "starting":
            # An exception would be lost if it were raised in a destructor or in a callback of the importer.
            os._exit(self._exit_code(number))
        signal.setitimer(signal.ITIMER_REAL, self.grace_s + CLEANUP_S)
        if self._state == "running" and self._main is not None:
            self._main.get_loop().call_soon_threadsafe(self._main.cancel)

    def _on_deadline(self, _: int, __: FrameType | None) -> NoReturn:
        if self._signal is None or self._state == "finished":
            # What we opened is closed; a thread or the reader of our output holds up the rest.
            os._exit(self._exit_code(self._signal or signal.SIGTERM))
        _warn(f"docmill did not stop within {self.grace_s + CLEANUP_S:g} seconds and exits now.\n")
        os._exit(EXIT_SIGNAL_BASE + self._signal)

    def _exit_code(self, number: int) -> int:
        return 0 if self._is_service else EXIT_SIGNAL_BASE + number


_installed: Shutdown | None = None


def install(*, is_service: bool) -> None:
    """Called by the entry point, as early as possible. A service that a signal stopped exits with 0."""
    global _installed
    _installed = Shutdown(is_service=is_service)
    _installed.install()


def current() -> Shutdown:
    """That of this process. In a program that calls a command as a function, signals stay that program's own."""
    return _installed or Shutdown(is_service=True)


def _warn(text: str) -> None:
    """Only if standard error takes it at once: a reader that is stuck must not keep us alive."""
    import select

    try:
        if select.select([], [STDERR], [], 0)[1]:
            os.write(STDERR, text.encode())
    except (OSError, ValueError):
        pass
