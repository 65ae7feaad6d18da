"""Following a task without missing a line or seeing one twice, whatever happens to the connection."""

from __future__ import annotations

import json

from docmill.client.errors import ClientError, Refused, Unexpected, Unreachable
from docmill.client.values import Event
from docmill.client.wire import AGAIN, Ask, Cut, jittered

SILENCE_S = 60.0
"""A stream without even a heartbeat for so long is dead; the service sends one every few seconds."""
PAUSE_S = 0.5


class Following:
    """Where one follower of one log is. Time comes from the caller."""

    def __init__(self, path: str, *, after: int, patience: float, now: float) -> None:
        self.after = after
        self.is_over = False
        self._path, self._patience = path, patience
        self._has_begun = False
        self._alive = now

    def ask(self) -> Ask:
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(self.after)}
        return Ask("GET", self._path, headers=headers, seconds=SILENCE_S)

    def begun(self, now: float) -> None:
        self._has_begun, self._alive = True, now

    def take(self, name: str, data: str, now: float) -> Event | None:
        """The event of one frame, if it is a new one."""
        self._alive = now
        if name == "end":
            self.is_over = True
            return None
        if not data:
            return None
        try:
            event = Event.of(json.loads(data))
        except (ValueError, KeyError, TypeError):
            raise Unexpected("a line of the log cannot be read") from None
        if event.seq <= self.after:
            return None
        self.after = event.seq
        return event

    def cut(self, error: Cut | ClientError | None, now: float) -> float:
        """The stream ended before the task did: seconds until the next try, or the error that ends it all."""
        if isinstance(error, Refused) and error.status not in AGAIN:
            raise error
        # An address at which nobody ever answered is a mistake; one that did is being restarted.
        patience = self._patience if self._has_begun else min(self._patience, 5.0)
        if now - self._alive > patience:
            raise error if isinstance(error, ClientError) else Unreachable(str(error or "the stream keeps ending"))
        return jittered(PAUSE_S)
