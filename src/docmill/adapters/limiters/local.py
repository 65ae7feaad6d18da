"""Rate limits of one process: a window that slides, in memory that is bounded."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable

MOST_BUCKETS = 50_000


class LocalLimiter:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._hits: OrderedDict[str, deque[float]] = OrderedDict()

    async def hit(self, bucket: str, *, limit: int, window_s: float) -> float | None:
        now = self._clock()
        hits = self._recent(bucket, now - window_s)
        if len(hits) >= limit:
            return hits[0] + window_s - now
        hits.append(now)
        self._forget()
        return None

    def count(self, bucket: str, *, window_s: float) -> None:
        """Remember what somebody else allowed, for the time when nobody can be asked."""
        now = self._clock()
        self._recent(bucket, now - window_s).append(now)
        self._forget()

    def _recent(self, bucket: str, since: float) -> deque[float]:
        hits = self._hits.get(bucket)
        if hits is None:
            hits = self._hits[bucket] = deque()
        self._hits.move_to_end(bucket)
        while hits and hits[0] <= since:
            hits.popleft()
        return hits

    def _forget(self) -> None:
        while len(self._hits) > MOST_BUCKETS:
            self._hits.popitem(last=False)
