"""The queue that several processes share: ARQ jobs on Redis that say "look at attempt X", and nothing else.

A job is ARQ's own, byte for byte: the attempt's id is the job's id, the function is `look`, the body is JSON; ARQ's
worker could run it. But we take it ourselves, in one round trip and only when a place is free, because ARQ's worker
polls twice a second, holds more than it can run and ends with Redis.

Turns are those of `core.turns`: each tenant has an ARQ queue for each lane and priority, in which the score is the
time at which a document counts as having come; beside them lies whose turn it is. And there is a bell: a list whose
entries wake one waiting worker each, so that nobody waits for the next poll.

Redis gone: whatever is put is remembered by the ledger, and by this process if it takes work itself.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

import msgspec
import structlog
from arq.constants import default_queue_name, job_key_prefix, result_key_prefix, retry_key_prefix
from arq.jobs import DeserializationError, deserialize_job_raw, serialize_job
from redis.asyncio import Redis
from redis.exceptions import RedisError

from docmill.adapters.queues.local import LocalQueue
from docmill.core.turns import Lane, Waiting, patience_ms

log = structlog.get_logger(__name__)

FUNCTION: Final = "look"
POLL_S: Final = 0.05
"""The longest wait between two looks; the bell cuts it short."""
AFTER_FAULT_S: Final = 0.5
KEEP_MS: Final = 24 * 3600 * 1000
MOST_RINGS: Final = 64
MOST_PUTS: Final = 200
MOST_TAKEN: Final = 64

_NAMES = {"{job}": job_key_prefix, "{result}": result_key_prefix, "{retry}": retry_key_prefix}

PUT = """
-- ARGV: keep_ms, most rings, queue prefix; then id, lane, priority, tenant, patience and body of each job.
-- The clocks of those who put may differ; Redis' own ranks them all.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 4, #ARGV, 6 do
  local id, lane, priority, tenant = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if redis.call('EXISTS', '{job}' .. id, '{result}' .. id) == 0 then
    local base = 'docmill:turns:' .. lane
    redis.call('PSETEX', '{job}' .. id, ARGV[1], ARGV[i + 5])
    local rank = string.format('%.0f', now + ARGV[i + 4])
    redis.call('ZADD', ARGV[3] .. ':' .. lane .. ':' .. priority .. ':' .. tenant, rank, id)
    redis.call('ZADD', base .. ':' .. priority, 'NX', redis.call('INCR', base .. ':round'), tenant)
    redis.call('ZADD', base, priority, priority)
    redis.call('LPUSH', 'docmill:bell:' .. lane, '1')
    redis.call('LTRIM', 'docmill:bell:' .. lane, 0, ARGV[2] - 1)
  end
end
"""

TAKE = """
-- ARGV: lane, how many, queue prefix. Answers id, body, id, body...
local base, taken, looks = 'docmill:turns:' .. ARGV[1], {}, 0
while #taken < 2 * ARGV[2] and looks < 1000 do
  looks = looks + 1
  local priority = redis.call('ZREVRANGE', base, 0, 0)[1]
  if not priority then break end
  local round = base .. ':' .. priority
  local tenant = redis.call('ZRANGE', round, 0, 0)[1]
  if not tenant then
    redis.call('ZREM', base, priority)
  else
    local queue = ARGV[3] .. ':' .. ARGV[1] .. ':' .. priority .. ':' .. tenant
    local id = redis.call('ZPOPMIN', queue)[1]
    if not id or redis.call('EXISTS', queue) == 0 then
      redis.call('ZREM', round, tenant)
    else
      redis.call('ZADD', round, redis.call('INCR', base .. ':round'), tenant)
    end
    if id then
      taken[#taken + 1] = id
      taken[#taken + 1] = redis.call('GET', '{job}' .. id) or ''
      redis.call('DEL', '{job}' .. id, '{retry}' .. id)
    end
  end
end
return taken
"""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def _named(script: str) -> str:
    for name, value in _NAMES.items():
        script = script.replace(name, value)
    return script


def queue_name(waiting: Waiting) -> str:
    """The name of the ARQ queue in which an attempt waits."""
    return f"{default_queue_name}:{waiting.lane}:{waiting.priority}:{waiting.tenant}"


class ArqQueue:
    def __init__(self, redis: Redis) -> None:
        self._redis: Any = redis
        self._put_script: Any = redis.register_script(_named(PUT))
        self._take_script: Any = redis.register_script(_named(TAKE))
        self._here = LocalQueue()
        """What was taken for a free place, and what Redis could not be told."""
        self._free = dict.fromkeys(Lane, 0)
        self._wanted = {lane: asyncio.Event() for lane in Lane}
        self._taking: dict[Lane, asyncio.Task[None]] = {}
        self._puts: list[tuple[Waiting, asyncio.Future[None]]] = []
        self._putting: asyncio.Task[None] | None = None
        self._later: set[asyncio.TimerHandle] = set()
        self._ringing: set[asyncio.Future[None]] = set()

    async def put(self, waiting: Waiting, *, delay_ms: int = 0) -> None:
        if delay_ms:
            # If we die before its time, the sweeper rings.
            self._ring_later(waiting, delay_ms)
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._puts.append((waiting, done))
        if self._putting is None:
            self._putting = asyncio.create_task(self._put_waiting())
        await done

    async def take(self, lane: Lane, most: int = 1) -> list[UUID]:
        if lane not in self._taking:
            self._taking[lane] = asyncio.create_task(self._take_until_closed(lane))
        self._free[lane] += most
        self._wanted[lane].set()
        try:
            return await self._here.take(lane, most)
        finally:
            self._free[lane] -= most

    async def close(self) -> None:
        """Take nothing more, and put back what was taken for a place that is gone."""
        for timer in self._later:
            timer.cancel()
        for task in (*self._taking.values(), self._putting):
            while task and not task.done():
                task.cancel()
                # Redis' client may take a cancel for its own time-out, and the loop goes on: then the next one ends it.
                await asyncio.wait([task], timeout=1)
        left = self._here.leftovers()
        if left:
            with suppress(RedisError, OSError, TimeoutError):
                await self._send(left)

    def _ring_later(self, waiting: Waiting, delay_ms: int) -> None:
        def ring() -> None:
            self._later.discard(timer)
            ringing = asyncio.ensure_future(self.put(waiting))
            self._ringing.add(ringing)
            ringing.add_done_callback(self._ringing.discard)

        timer = asyncio.get_running_loop().call_later(delay_ms / 1000, ring)
        self._later.add(timer)

    async def _put_waiting(self) -> None:
        """Everybody who puts at the same moment shares a round trip."""
        while self._puts:
            batch, self._puts = self._puts[:MOST_PUTS], self._puts[MOST_PUTS:]
            try:
                await self._send([waiting for waiting, _ in batch])
            except (RedisError, OSError, TimeoutError) as error:
                log.debug("queue_away", error=type(error).__name__)
                await self._remember([waiting for waiting, _ in batch])
            except Exception:
                # Nobody may wait for ever because of one bad put; the sweeper rings.
                log.exception("queue_fault")
            finally:
                for _, done in batch:
                    if not done.done():
                        done.set_result(None)
        self._putting = None

    async def _send(self, several: list[Waiting]) -> None:
        now = int(time.time() * 1000)
        body = serialize_job(FUNCTION, (), {}, None, now, serializer=_encode)
        args: list[Any] = [KEEP_MS, MOST_RINGS, default_queue_name]
        for one in several:
            args += (str(one.attempt_id), str(one.lane), one.priority, one.tenant, patience_ms(one.size), body)
        await self._put_script(args=args)

    async def _remember(self, several: list[Waiting]) -> None:
        """Without Redis a process that works serves itself; one that does not leaves it to the others' sweepers."""
        for one in several:
            if one.lane in self._taking:
                await self._here.put(one)

    async def _take_until_closed(self, lane: Lane) -> None:
        while True:
            places = self._free[lane] - self._here.waiting(lane)
            if places <= 0:
                self._wanted[lane].clear()
                await self._wanted[lane].wait()
                continue
            try:
                if not await self._take(lane, places):
                    await self._redis.blpop([f"docmill:bell:{lane}"], timeout=POLL_S)
            except (RedisError, OSError, TimeoutError) as error:
                log.debug("queue_away", error=type(error).__name__)
                await asyncio.sleep(AFTER_FAULT_S)
            except Exception:
                log.exception("queue_fault")
                await asyncio.sleep(AFTER_FAULT_S)

    async def _take(self, lane: Lane, places: int) -> bool:
        taken = await self._take_script(args=[str(lane), min(places, MOST_TAKEN), default_queue_name])
        for raw_id, body in zip(taken[::2], taken[1::2], strict=True):
            attempt_id = read_job(raw_id, body)
            if attempt_id is not None:
                await self._here.put(Waiting(attempt_id, lane))
        return bool(taken)


def read_job(raw_id: bytes, body: bytes) -> UUID | None:
    """The attempt that a job names. What is not ours is dropped unread: never a pickle, never another function."""
    try:
        function, _, _, _, _ = deserialize_job_raw(body, deserializer=_decode)
        attempt_id = UUID(raw_id.decode())
    except (DeserializationError, ValueError):
        log.warning("queue_job_refused", why="it is not a job of ours")
        return None
    if function != FUNCTION:
        log.warning("queue_job_refused", why="unknown function")
        return None
    return attempt_id
