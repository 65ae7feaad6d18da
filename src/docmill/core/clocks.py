"""Tells when the wall clock was set, or the machine slept."""

from __future__ import annotations

from dataclasses import dataclass

TOLERANCE_MS = 10_000
DRIFT_RATIO = 0.001
"""A clock that is being corrected runs this much faster or slower than the monotonic one, and is no jump."""
MIN_WATCH_MS = 5_000
"""Longer than two sweeps by default: so long it takes until others that saw a jump have set the times right."""


@dataclass(slots=True)
class ClockWatch:
    """Compares the database's clock, which leases and deadlines are set by, with the monotonic clock of a process."""

    _wall_ms: int | None = None
    _monotonic_ms: int = 0
    _since_ms: int = 0
    """The monotonic time of the first observation."""

    @property
    def is_sure(self) -> bool:
        """Whether a time that has passed means anything. A process that has just started does not know whether the
        clock jumped before."""
        return self._wall_ms is not None and self._monotonic_ms - self._since_ms >= MIN_WATCH_MS

    def observe(self, wall_ms: int, monotonic_ms: int) -> int:
        """By how much the wall clock jumped since the last observation: positive is forward, 0 is no jump."""
        if self._wall_ms is None:
            jump_ms, elapsed_ms = 0, 0
            self._since_ms = monotonic_ms
        else:
            elapsed_ms = monotonic_ms - self._monotonic_ms
            jump_ms = wall_ms - self._wall_ms - elapsed_ms
        self._wall_ms, self._monotonic_ms = wall_ms, monotonic_ms
        return jump_ms if abs(jump_ms) > TOLERANCE_MS + DRIFT_RATIO * elapsed_ms else 0
