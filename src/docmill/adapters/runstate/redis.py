"""The hot state of tasks in Redis: `etl:task:<id>`, for 24 hours while a task runs, and one more when it has ended.

Only what is committed is written here, and only over something older: a value carries the version of its row. So a
late writer cannot bring back a state that has passed, and a reader who holds a row takes the newer of both. Redis gone,
or a write lost: the row is there, and it is the truth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from docmill.core.face import face_of
from docmill.core.task import Task
from docmill.ports import Face

log = structlog.get_logger(__name__)

PREFIX: Final = "etl:task:"
RUNNING_S: Final = 24 * 3600
ENDED_S: Final = 3600
MOST: Final = 200
PAUSE_S: Final = 0.05
"""Between two writes. The first one goes at once; of a task that changes meanwhile only the newest state is written."""

KEEP = """
-- ARGV: key, version, seconds, what clients see, the whole task; of each task.
for i = 1, #ARGV, 5 do
  local there = redis.call('HGET', ARGV[i], 'version')
  if not there or tonumber(there) < tonumber(ARGV[i + 1]) then
    redis.call('HSET', ARGV[i], 'version', ARGV[i + 1], 'state', ARGV[i + 3], 'task', ARGV[i + 4])
    redis.call('EXPIRE', ARGV[i], ARGV[i + 2])
  end
end
"""


class _Times(msgspec.Struct):
    """What of a face tells which of two is newer."""

    user_id: str
    status: str
    created_at: str
    updated_at: str


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Task)


class RedisRunState:
    def __init__(self, redis: Redis) -> None:
        self._redis: Any = redis
        self._keep_script: Any = redis.register_script(KEEP)
        self._unwritten: dict[int, Task] = {}
        self._writing: asyncio.Task[None] | None = None

    def keep(self, task: Task) -> None:
        before = self._unwritten.get(task.id)
        if before is None or before.version < task.version:
            self._unwritten[task.id] = task
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def newest(self, tasks: Sequence[Task]) -> list[Task]:
        running = [task for task in tasks if not task.is_final]
        if not running:
            return list(tasks)
        try:
            async with self._redis.pipeline(transaction=False) as pipe:
                for task in running:
                    pipe.hmget(PREFIX + str(task.id), "version", "task")
                found = await pipe.execute()
        except (RedisError, OSError, TimeoutError) as error:
            log.debug("runstate_away", error=type(error).__name__)
            return list(tasks)
        newer = {}
        for task, (version, body) in zip(running, found, strict=True):
            if version and body and int(version) > task.version:
                newer[task.id] = _read(body, task)
        return [newer.get(task.id, task) for task in tasks]

    async def newest_faces(self, faces: Sequence[Face]) -> Sequence[Face]:
        running = [face for face in faces if _is_running(face[1])]
        if not running:
            return faces
        try:
            async with self._redis.pipeline(transaction=False) as pipe:
                for face in running:
                    pipe.hget(PREFIX + str(face[0]), "state")
                found = await pipe.execute()
        except (RedisError, OSError, TimeoutError) as error:
            log.debug("runstate_away", error=type(error).__name__)
            return faces
        newer = {
            face[0]: state for face, state in zip(running, found, strict=True) if state and _is_newer(state, face[1])
        }
        return [(face[0], newer[face[0]].decode()) if face[0] in newer else face for face in faces]

    async def is_there(self) -> bool:
        try:
            return bool(await self._redis.ping())
        except (RedisError, OSError, TimeoutError):
            return False

    async def close(self) -> None:
        if self._writing:
            self._writing.cancel()
            await asyncio.wait({self._writing})

    async def _write(self) -> None:
        while self._unwritten:
            tasks = [self._unwritten.pop(task_id) for task_id in list(self._unwritten)[:MOST]]
            try:
                await self._keep_script(args=[part for task in tasks for part in _entry(task)])
            except (RedisError, OSError, TimeoutError) as error:
                log.debug("runstate_away", error=type(error).__name__)
            await asyncio.sleep(PAUSE_S)
        self._writing = None


def _entry(task: Task) -> tuple[Any, ...]:
    seconds = ENDED_S if task.is_final else RUNNING_S
    return PREFIX + str(task.id), task.version, seconds, _encoder.encode(face_of(task)), _encoder.encode(task)


def _is_running(face: str) -> bool:
    return '"status":"mineru_parsing"' in face or '"status":"llm_processing"' in face


def _is_newer(state: bytes, face: str) -> bool:
    """The same task in the same status, later. Times never go back from version to version."""
    try:
        kept, row = msgspec.json.decode(state, type=_Times), msgspec.json.decode(face, type=_Times)
    except msgspec.DecodeError:
        return False
    return kept.updated_at > row.updated_at and (kept.status, kept.created_at, kept.user_id) == (
        row.status,
        row.created_at,
        row.user_id,
    )


def _read(body: bytes, task: Task) -> Task:
    try:
        found = _decoder.decode(body)
    except msgspec.DecodeError:
        return task
    # Another deployment on the same Redis has tasks of the same numbers.
    same = (found.id, found.tenant, found.owner, found.created_ms) == (
        task.id,
        task.tenant,
        task.owner,
        task.created_ms,
    )
    return found if same else task
