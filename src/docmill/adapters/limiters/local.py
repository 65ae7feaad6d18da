"""Rate limits of one process: a window that slides, in memory that is bounded."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

MAX_BUCKETS = 50_000


@dataclass(slots=True)
class _Bucket:
    hits: deque[float]
    ends: float
    """When the last of its hits leaves the window."""


class LocalLimiter:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        """The least recently used first."""

    @property
    def bucket_count(self) -> int:
        return len(self._buckets)

    async def hit(self, bucket: str, *, limit: int, window_s: float) -> float | None:
        now = self._clock()
        hits = self._recent(bucket, now, window_s)
        if len(hits) >= limit:
            return hits[0] + window_s - now
        hits.append(now)
        self._forget(now)
        return None

    def count(self, bucket: str, *, window_s: float) -> None:
        """Remember what somebody else allowed, for the time when nobody can be asked."""
        now = self._clock()
        self._recent(bucket, now, window_s).append(now)
        self._forget(now)

    def _recent(self, name: str, now: float, window_s: float) -> deque[float]:
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = _Bucket(deque(), now)
        bucket.ends = now + window_s
        self._buckets.move_to_end(name)
        while bucket.hits and bucket.hits[0] <= now - window_s:
            bucket.hits.popleft()
        return bucket.hits

    def _forget(self, now: float) -> None:
        """Buckets that count nothing any more go: there is one for each job of an external worker."""
        while self._buckets:
            oldest = next(iter(self._buckets.values()))
            if len(self._buckets) <= MAX_BUCKETS and oldest.ends > now:
                return
            self._buckets.popitem(last=False)
