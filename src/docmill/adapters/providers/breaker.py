"""A circuit breaker: who failed often enough in a row is left alone for a while, then tried by one caller alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic


@dataclass(slots=True)
class Breaker:
    failures: int = 5
    """In a row, until it opens."""
    pause_s: float = 30.0
    clock: Callable[[], float] = monotonic
    _count: int = 0
    _open_until: float = field(default=0.0)
    _probing: bool = False

    def wait_s(self) -> float:
        """Seconds until somebody may call again; 0: now, and whoever asks first after a pause is the probe."""
        if self._count < self.failures:
            return 0.0
        left = self._open_until - self.clock()
        if left > 0:
            return left
        if self._probing:
            return self.pause_s
        self._probing = True
        return 0.0

    def worked(self) -> None:
        self._count, self._probing = 0, False

    def failed(self) -> None:
        self._count += 1
        self._probing = False
        if self._count >= self.failures:
            self._open_until = self.clock() + self.pause_s

    def left(self) -> None:
        """The call was given up before it showed anything: the next one may probe."""
        self._probing = False
