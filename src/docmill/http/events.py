"""A task's log as server-sent events: live, resumable, and read once however many watch.

    id: 7
    event: progress
    data: {"seq": 7, "kind": "progress", "data": {...}, "at": "..."}

The stream closes after `event: end`, once the task is final and everything was sent. Lines that begin with a colon
only keep the connection alive.
"""

from __future__ import annotations

import asyncio
import re
import types
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from docmill.core.access import Owner, Principal
from docmill.core.errors import DocmillError, Invalid, NotFound, TooMany
from docmill.core.machine import wire_status
from docmill.core.task import LoggedEvent, Task
from docmill.http.bound import Bound
from docmill.http.caller import Caller
from docmill.http.errors import answer, problems
from docmill.http.limits import Drain, HttpOptions
from docmill.http.tasks import TaskId
from docmill.http.uploads import MAX_ROW_ID
from docmill.http.waiting import until_gone
from docmill.http.wire import EventPage, Json, encode, event_json
from docmill.ports import Ports
from docmill.work import query

PAGE = 500
KEPT_FRAMES = 1_000
HELLO = b"retry: 2000\n\n"
HEARTBEAT = b": still here\n\n"

log = structlog.get_logger("docmill.http")
router = APIRouter(prefix="/api/v1/etl", tags=["tasks"], responses=problems(404, 410, 429))

_SEQ = re.compile(r"[0-9]{1,18}")


@router.get(
    "/tasks/{task_id}/events",
    summary="What happened to a task, live",
    response_model=EventPage,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def follow_task(
    task_id: TaskId,
    request: Request,
    who: Caller,
    ports: Bound,
    after: Annotated[int, Query(ge=0, le=MAX_ROW_ID, description="The last number that you have")] = 0,
    limit: Annotated[int, Query(ge=1, le=PAGE, description="Of the JSON answer")] = PAGE,
) -> Response:
    """The log of a task as server-sent events until the task has ended; with `Accept: application/json` one page of
    it."""
    after = last_seen(request, after)
    if wants_json(request.headers.get("accept", "")):
        found = await query.events(ports, who, task_id, after=after, limit=limit)
        return Json({"events": [event_json(one) for one in found], "next": found[-1].seq if found else after})
    task = await query.task(ports, who, task_id)
    tails: Tails = request.app.state.tails
    return EventStream(partial(tails.play, who, task, after), request.app.state.streams, who)


class EventStream(Response):
    """Plays until there is no more, or the client leaves. Who only sends never learns that nobody listens."""

    media_type = "text/event-stream"

    def __init__(self, play: Callable[[Send], Coroutine[Any, Any, None]], slots: StreamSlots, who: Principal) -> None:
        self.play = play
        self.slots = slots
        self.who = who
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self.slots.hold(self.who.owner):
                await self._stream(receive, send)
        except TooMany as error:
            await answer(scope, error)(scope, receive, send)

    async def _stream(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        sending = asyncio.ensure_future(self.play(send))
        gone = asyncio.ensure_future(until_gone(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for running in (sending, gone):
                running.cancel()
            ended, _ = await asyncio.gather(sending, gone, return_exceptions=True)
        if isinstance(ended, Exception):
            log.warning("stream_broke", error=f"{type(ended).__name__}: {ended}")


class StreamSlots:
    """Counts the open event streams of each caller."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: Counter[Owner] = Counter()

    @contextmanager
    def hold(self, owner: Owner) -> Iterator[None]:
        """TooMany if the caller has as many streams open as it may."""
        if self._open[owner] >= self._limit:
            raise TooMany("too_many_streams", limit=self._limit)
        self._open[owner] += 1
        try:
            yield
        finally:
            self._open[owner] -= 1
            if not self._open[owner]:
                del self._open[owner]


class Tails:
    """The ends of the logs that somebody watches: one reader each, shared by all its watchers."""

    def __init__(self, ports: Ports, options: HttpOptions, drain: Drain) -> None:
        self.ports = ports
        self.options = options
        self.drain = drain
        self._open: dict[tuple[int, Owner], Tail] = {}

    async def play(self, who: Principal, task: Task, after: int, send: Send) -> None:
        """The log from *after* on, to its end. Once everything is sent, the tail itself hands on what is new."""
        tail = self._join(who, task)
        try:
            await send(body(HELLO))
            while True:
                if after < tail.dropped:
                    # Written before the tail began, or long ago for a slow client: the log still has it.
                    page = await query.events(self.ports, who, task.id, after=after, limit=PAGE)
                    after = page[-1].seq if page else tail.dropped
                    await send(body(b"".join(frame(one) for one in page)))
                elif frames := tail.since(after):
                    after = tail.seq
                    await send(body(frames))
                elif tail.is_over and after > tail.seq and (fresh := await self._gone_on(who, task, tail)):
                    # This watcher has read more than the tail: after the end that it means, the task was retried.
                    self._leave(tail)
                    tail = self._join(who, fresh)
                elif tail.is_over:
                    await send(body(tail.last_word, more=False))
                    return
                else:
                    after = await tail.live(send, after)
        finally:
            self._leave(tail)

    async def _gone_on(self, who: Principal, task: Task, tail: Tail) -> Task | None:
        """The task, if its log is longer than it was at the tail's end."""
        fresh = await query.task(self.ports, who, task.id)
        return fresh if fresh.event_seq > tail.seq else None

    def _join(self, who: Principal, task: Task) -> Tail:
        key = (task.id, who.owner)
        tail = self._open.get(key)
        if tail is None or tail.is_over:
            tail = self._open[key] = Tail(self.ports, who, task, self.options, self.drain)
        tail.watchers += 1
        return tail

    def _leave(self, tail: Tail) -> None:
        tail.watchers -= 1
        if tail.watchers == 0:
            tail.close()
            if self._open.get(tail.key) is tail:
                del self._open[tail.key]


class Live:
    """A watcher that has everything there is. What is new is sent to it without waking anybody.

    A thousand watchers are a thousand writes, not a thousand tasks that each wake up to write. Only where a connection
    is full does sending have to wait; then its own task does the waiting, and catches up from the log.
    """

    __slots__ = ("_ends", "_send", "seq")

    def __init__(self, send: Send, seq: int, ends: asyncio.Future[Coroutine[Any, Any, None] | None]) -> None:
        self._send, self.seq, self._ends = send, seq, ends

    def give(self, message: Message, seq: int) -> bool:
        """False: this one is live no longer. *seq* is 0 for what is no event."""
        if self._ends.done():
            return False
        if seq:
            if seq <= self.seq:
                return True  # it came with a number that this log had not reached yet
            self.seq = seq
        sending: Coroutine[Any, Any, None] = self._send(message)  # type: ignore[assignment]  # every one of ours is
        try:
            waits_for = sending.send(None)
        except StopIteration:
            return True
        except Exception as error:
            self._ends.set_exception(error)
            return False
        self._ends.set_result(_resumed(sending, waits_for))
        return False

    def end(self) -> None:
        if not self._ends.done():
            self._ends.set_result(None)


@types.coroutine
def _resumed(begun: Coroutine[Any, Any, None], waits_for: Any) -> Generator[Any, None, None]:
    """The rest of a coroutine that was begun elsewhere and stopped at *waits_for*."""
    while True:
        try:
            yield waits_for
        except BaseException:
            begun.close()
            raise
        try:
            waits_for = begun.send(None)
        except StopIteration:
            return


def body(frames: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": frames, "more_body": more}


class Tail:
    """Reads one log from a point on, and wakes whoever waits for more."""

    def __init__(self, ports: Ports, who: Principal, task: Task, options: HttpOptions, drain: Drain) -> None:
        self.key = (task.id, who.owner)
        self.watchers = 0
        self.seq = self.dropped = task.event_seq
        """Frames are kept of the events after `dropped`, up to `seq`."""
        self.is_over = False
        self.last_word = b""
        self._live: list[Live] = []
        self._frames: deque[tuple[int, bytes]] = deque()
        self._ports, self._who, self._task_id, self._options, self._drain = ports, who, task.id, options, drain
        self._told_at = asyncio.get_running_loop().time()
        self._reading = asyncio.ensure_future(self._read_on())

    def since(self, after: int) -> bytes:
        if after >= self.seq:
            return b""
        newer: list[bytes] = []
        for seq, one in reversed(self._frames):
            if seq <= after:
                break
            newer.append(one)
        return b"".join(reversed(newer))

    async def live(self, send: Send, after: int) -> int:
        """Stand in line for what comes, until the end, or until the connection is full; the last number sent."""
        ends: asyncio.Future[Coroutine[Any, Any, None] | None] = asyncio.get_running_loop().create_future()
        one = Live(send, after, ends)
        self._live.append(one)
        try:
            unfinished = await ends
            if unfinished is not None:
                await unfinished
            return one.seq
        finally:
            if one in self._live:
                self._live.remove(one)

    def close(self) -> None:
        self._reading.cancel()

    async def _read_on(self) -> None:
        try:
            with self._ports.signals.subscribe(self._task_id) as subscription:
                while not self.is_over:
                    await self._read()
                    if not self.is_over:
                        self._beat()
                        await subscription.wait(min(self._options.poll_s, self._options.heartbeat_s))
        except Exception as error:
            log.error("tail_broke", task=self._task_id, exc_info=error)
            self._end(b"")

    async def _read(self) -> None:
        try:
            task = await query.task(self._ports, self._who, self._task_id)
            while self.seq < task.event_seq and await self._take_page():
                pass
        except NotFound:
            self._end(b"")
            return
        except DocmillError as error:
            log.warning("tail_waits", task=self._task_id, code=error.code)
            return
        # A page may hold more than the task that was read before it: then it was retried, and is read again.
        if task.is_final and self.seq == task.event_seq:
            self._end(_end_frame(task))
        elif self._drain.begun:
            self._end(b"")

    async def _take_page(self) -> bool:
        page = await query.events(self._ports, self._who, self._task_id, after=self.seq, limit=PAGE)
        new = [(one.seq, frame(one)) for one in page]
        self._frames.extend(new)
        self.seq = new[-1][0] if new else self.seq
        while len(self._frames) > KEPT_FRAMES:
            self.dropped, _ = self._frames.popleft()
        if new:
            self._publish(new)
        return bool(new)

    def _publish(self, new: list[tuple[int, bytes]]) -> None:
        """Send new events to every live watcher.

        A watcher may be ahead of this tail: it resumed with a number that another process gave it, or it read a page of
        the log that the tail has not reached. It gets only the events after its own number.
        """
        whole, first = body(b"".join(frames for _, frames in new)), new[0][0]

        def unseen(after: int) -> Message:
            return whole if after < first else body(b"".join(frames for seq, frames in new if seq > after))

        self._told_at = asyncio.get_running_loop().time()
        self._live = [one for one in self._live if one.give(unseen(one.seq), self.seq)]

    def _beat(self) -> None:
        if asyncio.get_running_loop().time() - self._told_at >= self._options.heartbeat_s:
            self._told_at = asyncio.get_running_loop().time()
            self._live = [one for one in self._live if one.give(body(HEARTBEAT), 0)]

    def _end(self, last_word: bytes) -> None:
        self.is_over, self.last_word = True, last_word
        for one in self._live:
            one.end()


def frame(event: LoggedEvent) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.kind.encode(), encode(event_json(event)))


def _end_frame(task: Task) -> bytes:
    return b"event: end\ndata: %s\n\n" % encode({"task_id": task.id, "status": wire_status(task)})


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def last_seen(request: Request, after: int) -> int:
    """The header wins: a browser that reconnects sends it along with the old address."""
    header = request.headers.get("last-event-id")
    if not header:
        return after
    if not _SEQ.fullmatch(header):
        raise Invalid("request_invalid", why="Last-Event-ID is not a number that this stream gave out.")
    return int(header)


def wants_json(accept: str) -> bool:
    kinds = [kind.partition(";")[0].strip().lower() for kind in accept.split(",")]
    return "application/json" in kinds and "text/event-stream" not in kinds
