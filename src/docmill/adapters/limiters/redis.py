"""Rate limits shared by all processes: a window that slides, kept in Redis by Redis' own clock.

Redis gone: each process goes on with what it saw itself.
"""

from __future__ import annotations

from typing import Any, Final

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from docmill.adapters.limiters.local import LocalLimiter

log = structlog.get_logger(__name__)

PREFIX: Final = "docmill:limit:"

HIT = """
-- KEYS: bucket. ARGV: limit, window in microseconds. Answers -1, or the microseconds until there is room.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local window = tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then
  local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  if not oldest[2] then return window end
  return math.max(1, tonumber(oldest[2]) + window - now)
end
local name = now
while redis.call('ZADD', KEYS[1], 'NX', now, string.format('%.0f', name)) == 0 do name = name + 1 end
redis.call('PEXPIRE', KEYS[1], math.ceil(window / 1000) + 1000)
return -1
"""


class RedisLimiter:
    def __init__(self, redis: Redis) -> None:
        self._hit: Any = redis.register_script(HIT)
        self._here = LocalLimiter()

    async def hit(self, bucket: str, *, limit: int, window_s: float) -> float | None:
        try:
            wait = await self._hit(keys=[PREFIX + bucket], args=[limit, round(window_s * 1_000_000)])
        except (RedisError, OSError, TimeoutError) as error:
            log.debug("limiter_away", error=type(error).__name__)
            return await self._here.hit(bucket, limit=limit, window_s=window_s)
        if wait >= 0:
            return float(wait) / 1_000_000
        self._here.count(bucket, window_s=window_s)
        return None
