"""Look at tasks. Every look also recovers what was lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from docmill.core.access import Principal
from docmill.core.errors import BadRequest, DocmillError, Gone, NotFound, TooLarge
from docmill.core.face import MAX_LISTED_RESULT_BYTES, insert_result, omit_result
from docmill.core.task import LoggedEvent, Status, Task
from docmill.ports import Faces, FailureCount, Filter, Found, Listing, Ports, Search
from docmill.work import sweep
from docmill.work.objects import objects, read_json
from docmill.work.turns import line_up

MAX_BATCH = 100
LOST_AFTER_MS = 5_000
LOOK_AGAIN_S, SELDOM_S = 1.0, 8.0
"""A watcher looks by itself after this long, then after twice as long: a signal may be lost, and watchers are many."""
READS_AT_ONCE = 8
"""Results of one list that are read from the store at the same time."""
ACTIVE = ("pending", "mineru_parsing", "llm_processing")
"""As on the wire."""


async def task(ports: Ports, who: Principal, task_id: int) -> Task:
    found = await ports.ledger.get(task_id, who.owner)
    if found is None:
        raise await missing(ports, who, task_id)
    if ports.runstate and not found.is_final:
        [found] = await ports.runstate.newest([found])
    if found.is_final or found.attempt_id is None or time.time() * 1000 - found.updated_ms < LOST_AFTER_MS:
        return found
    if found.status is Status.PENDING:
        await line_up(ports, found, found.attempt_id, found.stage)
        return found
    if await sweep.recover_attempt(ports, found.attempt_id):
        found = await ports.ledger.get(task_id, who.owner) or found
    return found


async def missing(ports: Ports, who: Principal, task_id: int) -> DocmillError:
    """Why there is no such task: it was removed after its time, or there never was one."""
    if await ports.tombstones.find(task_id, who.owner):
        return Gone("task_expired", task=task_id)
    return NotFound("task_not_found", task=task_id)


async def tasks(ports: Ports, where: Filter) -> Listing:
    found = await ports.ledger.page(where)
    if ports.runstate and where.status is None:
        return replace(found, tasks=await ports.runstate.newest(found.tasks))
    return found


async def faces(ports: Ports, where: Filter) -> Faces:
    """The same list as JSON texts, ready to be sent, with the results that are small."""
    found = await ports.ledger.faces(where)
    if found.unread:
        read = await _small_results(ports, await ports.ledger.batch(found.unread, where.who))
        found = replace(found, faces=[(id_, _with_result(face, read.get(id_))) for id_, face in found.faces])
    return replace(found, faces=await ports.runstate.newest_faces(found.faces)) if ports.runstate else found


async def search(ports: Ports, where: Search) -> Found:
    """Tasks that match, from a bounded part of the list; `next_before` says where to go on."""
    found = await ports.ledger.search(where)
    if ports.runstate and where.status is None:
        return replace(found, tasks=await ports.runstate.newest(found.tasks))
    return found


async def failures(ports: Ports, where: Search) -> list[FailureCount]:
    """Failed tasks by error code, the most frequent first."""
    return await ports.ledger.failures(where)


async def counts(ports: Ports, who: Principal, project_id: int | None = None) -> dict[str, int]:
    """The caller's tasks by status as on the wire."""
    return await ports.ledger.counts(who.owner, project_id)


async def stirring(ports: Ports, who: Principal) -> list[Task]:
    """Tasks that may have changed of late: the newest, and those that wait or run. Each once."""
    found: dict[int, Task] = {}
    for status in (None, *ACTIVE):
        page = await ports.ledger.page(Filter(who.owner, status=status, limit=MAX_BATCH))
        found |= {task.id: task for task in page.tasks}
    return list(found.values())


async def batch(ports: Ports, who: Principal, ids: list[int]) -> list[Task]:
    if not 1 <= len(ids) <= MAX_BATCH:
        raise BadRequest("task_ids_invalid")
    found = await ports.ledger.batch(ids, who.owner)
    return await ports.runstate.newest(found) if ports.runstate else found


@dataclass(frozen=True, slots=True)
class Result:
    """The output of a task as clients get it, or why they do not."""

    value: Any = None
    is_omitted: bool = False
    """It is too large for a list."""
    error: str | None = None
    """The code of what went wrong when it was read."""


OMITTED = Result(is_omitted=True)


async def small_results(ports: Ports, who: Principal, tasks: Sequence[Task]) -> dict[int, Result]:
    """Results of those that are completed, as lists show them. One that cannot be read does not fail the others."""
    completed = {task.id: task for task in tasks if task.status is Status.COMPLETED}
    if not completed:
        return {}
    kept = await ports.ledger.outputs(list(completed), who.owner)
    found = {id_: Result(msgspec.Raw(text.encode())) if text else OMITTED for id_, text in kept.items()}
    return found | await _small_results(ports, [task for id_, task in completed.items() if id_ not in found])


async def full_results(ports: Ports, tasks: Sequence[Task]) -> dict[int, Result]:
    """The same whatever their size."""
    return await _read_all(ports, [task for task in tasks if task.status is Status.COMPLETED], None)


async def _small_results(ports: Ports, tasks: Sequence[Task]) -> dict[int, Result]:
    return await _read_all(ports, tasks, MAX_LISTED_RESULT_BYTES)


async def _read_all(ports: Ports, tasks: Sequence[Task], limit: int | None) -> dict[int, Result]:
    gate = asyncio.Semaphore(READS_AT_ONCE)

    async def read(task: Task) -> Result:
        if not task.artifacts.output_key:
            return Result()
        try:
            async with gate:
                data = await objects(ports, task.tenant).read(task.artifacts.output_key, limit=limit)
                await asyncio.to_thread(msgspec.json.decode, data)
            return Result(msgspec.Raw(data))
        except TooLarge:
            return OMITTED
        except DocmillError as error:
            return Result(error=error.code)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return Result(error="object_damaged")

    return dict(zip([task.id for task in tasks], await asyncio.gather(*map(read, tasks)), strict=True))


def _with_result(face: str, found: Result | None) -> str:
    if found is None:
        return face
    if found.value is not None:
        return insert_result(face, bytes(found.value).decode())
    return omit_result(face, found.error) if found.is_omitted or found.error else face


async def outcome(ports: Ports, task: Task) -> Result:
    """A lost or damaged file costs the task its result, not its answer; a store that is away now is an error."""
    if task.status is not Status.COMPLETED or not task.artifacts.output_key:
        return Result()
    try:
        return Result(await output(ports, task))
    except NotFound as error:
        return Result(error=error.code)


async def result(ports: Ports, task: Task) -> Any | None:
    """The output of a completed task; None also if it cannot be read (`outcome` says why)."""
    return (await outcome(ports, task)).value


async def output(ports: Ports, task: Task) -> Any:
    """What postprocess left, whatever the task's state."""
    return await read_json(ports, task.tenant, task.artifacts.output_key or "")


async def events(ports: Ports, who: Principal, task_id: int, *, after: int, limit: int) -> list[LoggedEvent]:
    if await ports.ledger.get(task_id, who.owner) is None:
        raise await missing(ports, who, task_id)
    return await ports.ledger.events(task_id, after=after, limit=limit, who=who.owner)


async def changed(ports: Ports, who: Principal, task_id: int, *, seconds: float, version: int | None = None) -> Task:
    """Wait until the task is another than *version* (or than it is now), at most *seconds*."""
    ends, patience = time.monotonic() + seconds, LOOK_AGAIN_S if ports.signals.may_miss else SELDOM_S
    with ports.signals.subscribe(task_id) as subscription:
        found = await task(ports, who, task_id)
        known = found.version if version is None else version
        while found.version == known and not found.is_final and (left := ends - time.monotonic()) > 0:
            await subscription.wait(min(left, patience))
            patience = min(2 * patience, SELDOM_S)
            found = await task(ports, who, task_id)
        return found


async def extraction(ports: Ports, who: Principal, task_id: int) -> Any:
    """How a language model came to the task's output, or what it said last when it did not."""
    found = await task(ports, who, task_id)
    if not found.artifacts.extraction_key:
        raise NotFound("extraction_not_found", task=task_id)
    return await read_json(ports, found.tenant, found.artifacts.extraction_key)
