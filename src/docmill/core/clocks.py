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

    max_gap_ms: int = MIN_WATCH_MS
    """Between two observations. After a longer one the watch begins again: the clock may have jumped and back."""
    _wall_ms: int | None = None
    _monotonic_ms: int = 0
    _since_ms: int = 0
    """The monotonic time since which it has been watched without a gap."""
    _unsettled_ms: int = 0

    @property
    def is_sure(self) -> bool:
        """Whether a time that has passed means anything. A process that has just started, or has not looked for a
        while, does not know whether the clock jumped."""
        return self._wall_ms is not None and self._monotonic_ms - self._since_ms >= MIN_WATCH_MS

    def observe(self, wall_ms: int, monotonic_ms: int) -> int:
        """By how much the wall clock jumped: positive is forward, 0 is no jump. A jump forward is told again until
        somebody has dealt with it (`settle`), for the times that it passed over are wrong until then."""
        if self._wall_ms is None:
            jump_ms, elapsed_ms = 0, 0
            self._since_ms = monotonic_ms
        else:
            elapsed_ms = monotonic_ms - self._monotonic_ms
            jump_ms = wall_ms - self._wall_ms - elapsed_ms
        if elapsed_ms > self.max_gap_ms:
            self._since_ms = monotonic_ms
        self._wall_ms, self._monotonic_ms = wall_ms, monotonic_ms
        if abs(jump_ms) <= TOLERANCE_MS + DRIFT_RATIO * elapsed_ms:
            return self._unsettled_ms
        self._unsettled_ms = max(0, self._unsettled_ms + jump_ms)
        return self._unsettled_ms or min(0, jump_ms)

    def settle(self) -> None:
        """The times were set right after a jump forward."""
        self._unsettled_ms = 0
