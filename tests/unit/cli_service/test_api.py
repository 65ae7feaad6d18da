"""The client's side of the wire, against servers that behave badly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from docmill.cli import api
from docmill.cli.failure import Refused, Trouble

Answer = Callable[[dict[str, str]], bytes]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


@asynccontextmanager
async def server(*answers: Answer) -> AsyncIterator[tuple[str, list[dict[str, str]]]]:
    """Gives each request the next answer, as raw bytes, and hangs up; the headers of all requests."""
    waiting, seen = list(answers), []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)
        }
        seen.append({**headers, "": lines[0]})
        writer.write(waiting.pop(0)(headers))
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with listener:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", seen


def said(seq: int, kind: str) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (
        seq,
        kind.encode(),
        json.dumps({"seq": seq, "kind": kind, "data": {}, "at": "2026-01-01T00:00:00Z"}).encode(),
    )


END = b'event: end\ndata: {"task_id": 1, "status": "completed"}\n\n'


def answer(status: str, body: bytes, kind: str = "application/json") -> Answer:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return lambda _: head.encode() + body


async def test_a_cut_stream_is_taken_up_where_it_was_cut() -> None:
    cut = HEAD + said(1, "opened") + said(2, "started")
    rest = HEAD + b": still here\n\n" + said(3, "completed") + END

    async with server(lambda _: cut, lambda _: b"", lambda _: rest) as (url, seen), api.opened(url) as service:
        events = [event async for event in service.follow(1)]

    assert [1, 2, 3] == [event.seq for event in events]
    assert ["0", "2", "2"] == [request["last-event-id"] for request in seen]


async def test_a_service_that_shuts_down_is_waited_for() -> None:
    going = json.dumps({"code": "shutting_down", "detail": "later"}).encode()
    answers = (lambda _: HEAD + said(1, "opened"), answer("503 Unavailable", going), lambda _: HEAD + END)

    async with server(*answers) as (url, _), api.opened(url) as service:
        assert [1] == [event.seq async for event in service.follow(1)]


async def test_a_problem_keeps_its_code() -> None:
    problem = json.dumps({"code": "task_not_found", "detail": "There is no task 7."}).encode()

    async with server(answer("404 Not Found", problem, "application/problem+json")) as (url, _), api.opened(url) as one:
        with pytest.raises(Refused) as refused:
            await one.task(7)

    assert ("task_not_found", "There is no task 7.", 4) == (
        refused.value.code,
        refused.value.message,
        refused.value.exit_code,
    )


async def test_something_else_on_the_port_is_told_from_docmill() -> None:
    async with server(answer("404 Not Found", b"<h1>nginx</h1>", "text/html")) as (url, _), api.opened(url) as one:
        with pytest.raises(Trouble, match="right address"):
            await one.task(7)


async def test_nobody_there() -> None:
    async with server() as (url, _):
        pass
    with pytest.raises(Trouble, match="docmill serve") as trouble:
        async with api.opened(url) as service:
            await service.task(1)

    assert 2 == trouble.value.exit_code


async def test_a_lost_answer_is_asked_for_again_under_the_same_key() -> None:
    taken = answer("200 OK", b'{"task_id": 5, "status": "pending", "message": ""}')

    async with server(lambda _: b"", taken) as (url, seen), api.opened(url) as service:
        task = await service.submit({"s3_key": "k"})

    assert 5 == task["task_id"]
    assert 1 == len({request["idempotency-key"] for request in seen})
    assert 2 == len(seen)


@pytest.mark.parametrize(
    ("address", "local"),
    [("http://127.0.0.1:1", True), ("http://[::1]:1", True), ("http://localhost", True), ("https://a.example", False)],
)
def test_no_proxy_stands_between_us_and_this_machine(address: str, local: bool) -> None:
    assert local == api.is_local(address)


async def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCMILL_API_KEY", "dm_secret")

    async with server(answer("200 OK", b"{}")) as (url, seen), api.opened(url) as service:
        await service.get("/x")

    assert "Bearer dm_secret" == seen[0]["authorization"]
