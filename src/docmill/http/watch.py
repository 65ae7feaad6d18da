"""All of the caller's tasks as server-sent events: whenever one changes, how it is now.

    id: 1793066400123
    event: task
    data: {"task_id": 7, "status": "mineru_parsing", "progress": 32, ..., "version": 5}

What happened in between is left out, so that a slow client or a busy service never falls behind: the log of one task
(`/tasks/{id}/events`) has every line. `id` is the time of the change; a client that returns with it gets what changed
since, some of it perhaps twice: `version` tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Annotated

import structlog
from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Send

from docmill.core.access import Owner, Principal
from docmill.core.errors import DocmillError
from docmill.core.face import face_of
from docmill.core.task import Task
from docmill.http.bound import Bound
from docmill.http.caller import Caller
from docmill.http.errors import problems
from docmill.http.events import HEARTBEAT, HELLO, EventStream, body, last_seen, set_within, wants_json
from docmill.http.limits import Drain, HttpOptions
from docmill.http.uploads import MAX_ROW_ID
from docmill.http.wire import Json, TaskOut, encode
from docmill.ports import Ports
from docmill.work import query

PAUSE_S = 0.1
"""Changes that come faster are told together."""
KEPT = 1_000

log = structlog.get_logger("docmill.http")
router = APIRouter(prefix="/api/v1/etl", tags=["tasks"], responses=problems(429))


class TaskNow(TaskOut):
    version: int


class Changes(BaseModel):
    tasks: list[TaskNow]
    next: int


@router.get(
    "/events",
    summary="Changes of all tasks, live",
    response_model=Changes,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def follow_tasks(
    request: Request,
    who: Caller,
    ports: Bound,
    after: Annotated[int, Query(ge=0, le=MAX_ROW_ID, description="The last id that you have; 0: from now on")] = 0,
) -> Response:
    """Every change of every task of the caller as server-sent events; with `Accept: application/json` the latest."""
    after = last_seen(request, after)
    if wants_json(request.headers.get("accept", "")):
        found = [task for task in await query.stirring(ports, who) if task.updated_ms > after]
        latest = max((task.updated_ms for task in found), default=after)
        return Json({"tasks": [_now(task) for task in found], "next": latest})
    await ports.ledger.ping()  # once a stream has begun, it is too late to say 503
    boards: Boards = request.app.state.boards
    return EventStream(partial(boards.play, who, after), request.app.state.streams, who)


class Boards:
    """One reader for each owner whose tasks somebody watches, shared by all who do."""

    def __init__(self, ports: Ports, options: HttpOptions, drain: Drain) -> None:
        self.ports = ports
        self.options = options
        self.drain = drain
        self._open: dict[Owner, Board] = {}

    async def play(self, who: Principal, after: int, send: Send) -> None:
        board = self._open.get(who.owner)
        if board is None or board.is_over:
            board = self._open[who.owner] = Board(self.ports, who, self.options.poll_s, self.drain)
        board.watchers += 1
        try:
            await send(body(HELLO))
            await board.ready.wait()
            place, frames = board.newer_than(after)
            if frames:
                await send(body(frames))
            while not board.is_over:
                news = board.news
                if place < board.place:
                    place, frames = board.since(place)
                    await send(body(frames))
                elif not await set_within(news, self.options.heartbeat_s):
                    await send(body(HEARTBEAT))
            await send(body(b"", more=False))
        finally:
            board.watchers -= 1
            if board.watchers == 0:
                board.close()
                if self._open.get(who.owner) is board:
                    del self._open[who.owner]


class Board:
    """How an owner's tasks are now, as far as anything about them changed since the board was hung up."""

    def __init__(self, ports: Ports, who: Principal, poll_s: float, drain: Drain) -> None:
        self.watchers = 0
        self.place = 0
        self.is_over = False
        self.ready = asyncio.Event()
        self.news = asyncio.Event()
        self._tasks: dict[int, tuple[int, Task]] = {}
        """By task id, in the order of their last change: when it was told, and the task as it was then."""
        self._ports, self._who, self._poll_s, self._drain = ports, who, poll_s, drain
        self._reading = asyncio.ensure_future(self._read_on())

    def since(self, place: int) -> tuple[int, bytes]:
        newer = []
        for told, task in reversed(self._tasks.values()):
            if told <= place:
                break
            newer.append(frame(task))
        return self.place, b"".join(reversed(newer))

    def newer_than(self, ms: int) -> tuple[int, bytes]:
        found = sorted((task for _, task in self._tasks.values() if ms and task.updated_ms > ms), key=_changed_at)
        return self.place, b"".join(frame(task) for task in found)

    def close(self) -> None:
        self._reading.cancel()

    async def _read_on(self) -> None:
        try:
            with self._ports.signals.subscribe() as subscription:
                self._take(await query.stirring(self._ports, self._who))
                self.ready.set()
                while not self._drain.begun:
                    changed = await subscription.wait(self._poll_s)
                    ids: set[int] = set()
                    while changed is not None and len(ids) < query.MAX_BATCH:
                        ids.add(changed)
                        changed = await subscription.wait(0)
                    await self._look(sorted(ids))
                    await asyncio.sleep(PAUSE_S)
        except Exception as error:
            log.error("board_broke", exc_info=error)
        self.is_over = True
        self.ready.set()
        self._wake()

    async def _look(self, ids: list[int]) -> None:
        """At the tasks that a signal named; without one at all that may have moved, for signals get lost."""
        try:
            if ids:
                self._take(await query.batch(self._ports, self._who, ids))
                return
            moving = [task.id for _, task in self._tasks.values() if not task.is_final][-query.MAX_BATCH :]
            known = await query.batch(self._ports, self._who, moving) if moving else []
            self._take([*known, *await query.stirring(self._ports, self._who)])
        except DocmillError as error:
            log.warning("board_waits", code=error.code)

    def _take(self, tasks: Sequence[Task]) -> None:
        before = self.place
        for task in sorted(tasks, key=_changed_at):
            known = self._tasks.get(task.id)
            if known is None or known[1].version < task.version:
                self.place += 1
                self._tasks.pop(task.id, None)
                self._tasks[task.id] = (self.place, task)
        while len(self._tasks) > KEPT:
            del self._tasks[next(iter(self._tasks))]
        if self.place > before:
            self._wake()

    def _wake(self) -> None:
        self.news.set()
        self.news = asyncio.Event()


def frame(task: Task) -> bytes:
    return b"id: %d\nevent: task\ndata: %s\n\n" % (task.updated_ms, encode(_now(task)))


def _now(task: Task) -> dict[str, object]:
    return face_of(task) | {"version": task.version}


def _changed_at(task: Task) -> tuple[int, int]:
    return task.updated_ms, task.id
