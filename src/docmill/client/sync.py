"""The client for programs without an event loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
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


def _call(call: Callable[P, Steps[T]]) -> Callable[Concatenate[Client, P], T]:
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(call(*args, **kwargs))

    return connection.dressed(method, call)


def _list(call: Callable[P, Listing[T]]) -> Callable[Concatenate[Client, P], Iterator[T]]:
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._each(call(*args, **kwargs))

    return connection.dressed(method, call)


class Client:
    """A docmill service. Threads may share one; use it in a `with` block, or call `close`.

    >>> with Client("http://127.0.0.1:8321") as docmill:  # doctest: +SKIP
    ...     task = docmill.submit("report.pdf")
    ...     print(docmill.markdown(task.task_id))
    """

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
        self._http = httpx2.Client(**connection.options(url, api_key, timeout))
        self._timeout, self._patience = timeout, patience

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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

    def follow(self, task_id: int, *, after: int = 0) -> Iterator[Event]:
        """The task's events to its end, each once, over cut connections and restarts of the service."""
        course = Following(calls.events_path(task_id), after=after, patience=self._patience, now=time.monotonic())
        while not course.is_over:
            why: Cut | ClientError | None = None
            try:
                with connection.cuts():
                    yield from self._read(course)
            except (Cut, ClientError) as error:
                why = error
            if not course.is_over:
                time.sleep(course.cut(why, time.monotonic()))

    def _read(self, course: Following) -> Iterator[Event]:
        with self._http.stream(**connection.request(course.ask(), self._timeout)) as response:
            if not response.is_success:
                raise refusal(connection.answer(response, response.read()))
            course.begun(time.monotonic())
            for one in httpx2.EventSource(response):
                if event := course.take(one.event, one.data, time.monotonic()):
                    yield event
                if course.is_over:
                    return

    def _run(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                try:
                    outcome = self._take(step)
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(outcome)
        except StopIteration as done:
            value: T = done.value
            return value

    def _each(self, listing: Listing[T]) -> Iterator[T]:
        items, cursor = self._run(listing.page(None))
        yield from items
        while cursor is not None:
            items, cursor = self._run(listing.page(cursor))
            yield from items

    def _take(self, step: Step) -> Any:
        if isinstance(step, Ask):
            return self._send(step)
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        return step.work()

    def _send(self, ask: Ask) -> Answer:
        content = connection.body(ask.form) if ask.form else None
        with connection.cuts(), self._http.stream(**connection.request(ask, self._timeout), content=content) as got:
            if ask.into is None or not got.is_success:
                return connection.answer(got, got.read())
            with ask.into.open("wb") as file:
                for chunk in got.iter_bytes(1 << 20):
                    file.write(chunk)
            return connection.answer(got, b"")
