"""The client for programs with an event loop: the same calls, awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx2

from docmill.client import calls, connection
from docmill.client.calls import Listing
from docmill.client.errors import ClientError
from docmill.client.follow import Following
from docmill.client.values import Event
from docmill.client.wire import Answer, Ask, Cut, Pause, Step, Steps, refusal

P = ParamSpec("P")
T = TypeVar("T")


def _call(call: Callable[P, Steps[T]]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(call(*args, **kwargs))

    return connection.dressed(method, call)


def _list(call: Callable[P, Listing[T]]) -> Callable[Concatenate[AsyncClient, P], AsyncIterator[T]]:
    def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self._each(call(*args, **kwargs))

    return connection.dressed(method, call)


class AsyncClient:
    """A docmill service. Use it in an `async with` block, or await `aclose`."""

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = 60.0,
        patience: float = 60.0,
    ) -> None:
        """Without *url* and *api_key*: DOCMILL_URL and DOCMILL_API_KEY. *timeout*: seconds of silence in one request.
        *patience*: how long `follow` waits for a service to return."""
        self._http = httpx2.AsyncClient(**connection.options(url, api_key, timeout))
        self._timeout, self._patience = timeout, patience

    async def aclose(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    submit = _call(calls.submit)
    task = _call(calls.task)
    tasks = _list(calls.tasks)
    tasks_page = _call(calls.tasks_page)
    batch = _call(calls.batch)
    wait = _call(calls.wait)
    result = _call(calls.result)
    markdown = _call(calls.markdown)
    save_twin = _call(calls.save_twin)
    cancel = _call(calls.cancel)
    retry = _call(calls.retry)
    mount = _call(calls.mount)
    documents = _list(calls.documents)
    document = _call(calls.document)
    assets = _list(calls.assets)
    save_original = _call(calls.save_original)
    save_asset = _call(calls.save_asset)
    rules = _list(calls.rules)
    add_rule = _call(calls.add_rule)
    delete_rule = _call(calls.delete_rule)
    tables = _call(calls.tables)
    add_table = _call(calls.add_table)
    table_data = _call(calls.table_data)
    delete_table = _call(calls.delete_table)

    async def follow(self, task_id: int, *, after: int = 0) -> AsyncIterator[Event]:
        """The task's events to its end, each once, over cut connections and restarts of the service."""
        course = Following(calls.events_path(task_id), after=after, patience=self._patience, now=time.monotonic())
        while not course.is_over:
            why: Cut | ClientError | None = None
            try:
                with connection.cuts():
                    async with aclosing(self._read(course)) as events:
                        async for event in events:
                            yield event
            except (Cut, ClientError) as error:
                why = error
            if not course.is_over:
                await asyncio.sleep(course.cut(why, time.monotonic()))

    async def _read(self, course: Following) -> AsyncGenerator[Event, None]:
        async with self._http.stream(**connection.request(course.ask(), self._timeout)) as response:
            if not response.is_success:
                raise refusal(connection.answer(response, await response.aread()))
            course.begun(time.monotonic())
            async for one in httpx2.EventSource(response):
                if event := course.take(one.event, one.data, time.monotonic()):
                    yield event
                if course.is_over:
                    return

    async def _run(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                try:
                    outcome = await self._take(step)
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(outcome)
        except StopIteration as done:
            value: T = done.value
            return value

    async def _each(self, listing: Listing[T]) -> AsyncIterator[T]:
        items, cursor = await self._run(listing.page(None))
        for item in items:
            yield item
        while cursor is not None:
            items, cursor = await self._run(listing.page(cursor))
            for item in items:
                yield item

    async def _take(self, step: Step) -> Any:
        if isinstance(step, Ask):
            return await self._send(step)
        if isinstance(step, Pause):
            return await asyncio.sleep(step.seconds)
        return await asyncio.to_thread(step.work)

    async def _send(self, ask: Ask) -> Answer:
        content = connection.async_body(ask.form) if ask.form else None
        with connection.cuts():
            async with self._http.stream(**connection.request(ask, self._timeout), content=content) as got:
                if ask.into is None or not got.is_success:
                    return connection.answer(got, await got.aread())
                with ask.into.open("wb") as file:
                    async for chunk in got.aiter_bytes(1 << 20):
                        await asyncio.to_thread(file.write, chunk)
                return connection.answer(got, b"")
