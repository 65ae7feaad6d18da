"""Live events: resumable, shared, and gone when the watcher is."""

import asyncio
import json
from functools import partial
from uuid import uuid4

import pytest

from docmill.core.machine import StageResult
from docmill.core.task import Artifacts
from docmill.http import events
from docmill.http.limits import HttpOptions
from support.waiting import until

ETL = "/api/v1/etl"


def parse(raw: bytes):
    found = []
    for block in raw.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
        if "event" in fields:
            found.append((fields.get("id"), fields["event"], json.loads(fields["data"])))
    return found


async def watch(desk, call, task_id, query="", **headers):
    request = call(desk.app, "GET", f"{ETL}/tasks/{task_id}/events{query}", headers)
    request.send()
    start = await request.next()
    assert 200 == start["status"]
    assert (b"content-type", b"text/event-stream; charset=utf-8") in start["headers"]
    return request


async def test_a_task_is_watched_to_its_end(desk, call):
    task_id = await desk.submit()
    request = await watch(desk, call, task_id)
    seen = await request.read_until(b"event: ")

    await desk.complete(task_id, b"{}")
    seen += await request.rest()

    found = parse(seen)
    assert [str(n) for n in range(1, len(found))] == [number for number, _, _ in found[:-1]]
    assert "completed" in [kind for _, kind, _ in found]
    assert (None, "end", {"task_id": task_id, "status": "completed"}) == found[-1]
    assert ["seq", "kind", "data", "at"] == list(found[0][2])


async def test_who_comes_back_gets_what_was_missed(desk, call):
    task_id = await desk.submit()
    await desk.complete(task_id, b"{}")
    whole = parse(await (await watch(desk, call, task_id)).rest())

    by_header = parse(await (await watch(desk, call, task_id, "?after=1", **{"last-event-id": "3"})).rest())
    by_query = parse(await (await watch(desk, call, task_id, "?after=2")).rest())
    beyond = parse(await (await watch(desk, call, task_id, "?after=999")).rest())

    assert whole[3:] == by_header
    assert whole[2:] == by_query
    assert whole[-1:] == beyond


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "9" * 30])
async def test_a_foreign_last_event_id_is_422(desk, last):
    task_id = await desk.submit()

    answer = await desk.http.get(f"{ETL}/tasks/{task_id}/events", headers={"Last-Event-ID": last})

    assert 422 == answer.status_code


async def test_who_leaves_is_forgotten(desk, call):
    task_id = await desk.submit()
    request = await watch(desk, call, task_id)
    await request.read_until(b"event: ")
    assert 1 == len(desk.app.state.tails._open)

    request.leave()

    await asyncio.wait_for(request.task, 30)
    assert {} == desk.app.state.tails._open
    await asyncio.sleep(0)
    assert {} == dict(desk.ports.signals._of_task)


async def test_a_hundred_watchers_share_one_reader(desk, call):
    task_id = await desk.submit()
    requests = [await watch(desk, call, task_id) for _ in range(100)]
    for request in requests:
        await request.read_until(b"event: ")
    assert 1 == len(desk.app.state.tails._open)
    asked, inner = [], desk.ports.ledger.events

    async def counted(*args, **more):
        asked.append(args)
        return await inner(*args, **more)

    desk.ports.ledger.events = counted
    await desk.complete(task_id, b"{}")
    seen = [parse(await request.rest()) for request in requests]

    assert all(one == seen[0] for one in seen)
    assert "end" == seen[0][-1][1]
    assert len(asked) < 20
    assert {} == desk.app.state.tails._open


async def test_a_slow_watcher_misses_nothing(desk, local, monkeypatch):
    monkeypatch.setattr(events, "KEPT_FRAMES", 1)
    task_id = await desk.submit()
    seen, full, room = b"", asyncio.Event(), asyncio.Event()

    async def send(message):
        nonlocal seen
        seen += message.get("body", b"")
        if b"started" in message.get("body", b""):
            full.set()
            await room.wait()

    stream = events.EventStream(
        partial(desk.app.state.tails.play, local, await desk.task(task_id), 0), desk.app.state.streams, local
    )
    sending = asyncio.ensure_future(stream({}, asyncio.Event().wait, send))
    await until(lambda: b"event: " in seen)
    await desk.claim(task_id)
    await asyncio.wait_for(full.wait(), 30)
    await desk.finish_stage(task_id, StageResult(artifacts=Artifacts("markdown", "parsed"), engine="local", pages=1))
    await desk.finish_stage(task_id, StageResult(artifacts=Artifacts("markdown", "parsed", "output")))
    await desk.finish_stage(task_id, StageResult(document_id=uuid4()))
    await asyncio.sleep(0.2)
    room.set()
    await asyncio.wait_for(sending, 30)

    numbers = [int(number) for number, kind, _ in parse(seen) if kind != "end"]
    assert list(range(1, len(numbers) + 1)) == numbers
    assert "end" == parse(seen)[-1][1]


@pytest.mark.parametrize("last", [2, 3, 4])
async def test_a_watcher_that_is_ahead_of_the_shared_reader_sees_nothing_twice(open_desk, call, last):
    """It resumes with a number from another process, while the reader of this one has not read that far."""
    async with open_desk(options=HttpOptions(poll_s=30)) as desk:
        task_id = await desk.submit()
        behind = await watch(desk, call, task_id)
        await behind.read_until(b"event: ")
        notify, desk.ports.signals.changed = desk.ports.signals.changed, lambda task_id: None
        await desk.claim(task_id)
        stored = StageResult(artifacts=Artifacts("markdown", "parsed"), engine="local", pages=1)
        await desk.finish_stage(task_id, stored)
        await desk.finish_stage(task_id, StageResult(artifacts=Artifacts("markdown", "parsed", "output")))
        resumed = await watch(desk, call, task_id, **{"last-event-id": str(last)})
        await resumed.read_until(events.HELLO)
        desk.ports.signals.changed = notify
        await desk.finish_stage(task_id, StageResult(document_id=uuid4()))

        whole, rest = parse(await behind.rest()), parse(await resumed.rest())

        assert list(range(last + 1, len(whole) + 1)) == [int(number) for number, kind, _ in rest if kind != "end"]
        assert whole[-1] == rest[-1]


@pytest.mark.parametrize("joins", ["before the end", "after the end"])
async def test_a_retry_while_the_end_is_read_does_not_end_the_stream(desk, call, joins):
    """Between a look at the task, which has ended, and the reading of its log it is sent again."""
    task_id = await desk.submit()
    inner, retried = desk.ports.ledger.events, False

    async def late(*args, **more):
        nonlocal retried
        task = await desk.ports.ledger.get(task_id)
        if task.is_final and not retried:
            retried = True
            await asyncio.sleep(0.1)  # whoever reads the task now sees its end
            answer = await desk.http.post(f"{ETL}/tasks/{task_id}/retry", json={"from_stage": "mineru"})
            assert 200 == answer.status_code
        return await inner(*args, **more)

    if joins == "before the end":
        request = await watch(desk, call, task_id)
        seen = await request.read_until(b"event: ")
        # The stream looks at the task once it has ended, not in the middle of that.
        notify, desk.ports.signals.changed = desk.ports.signals.changed, lambda task_id: None
        desk.ports.ledger.events = late
        await desk.complete(task_id, b"{}")
        desk.ports.signals.changed = notify
        notify(task_id)
    else:
        await desk.complete(task_id, b"{}")
        desk.ports.ledger.events = late
        request, seen = await watch(desk, call, task_id), b""
    seen += await request.read_until(b"event: retried")
    await desk.complete(task_id, b"{}")
    seen += await request.rest()

    kinds = [kind for _, kind, _ in parse(seen)]
    assert ["completed", "end"] == kinds[-2:]
    assert (2, 1, 1) == (kinds.count("completed"), kinds.count("retried"), kinds.count("end"))


async def test_a_lost_signal_costs_a_moment_only(desk, call):
    task_id = await desk.submit()
    request = await watch(desk, call, task_id)
    await request.read_until(b"event: ")
    desk.ports.signals.changed = lambda task_id: None  # nobody is told

    await desk.claim(task_id)

    assert b"event: started" in await request.read_until(b"event: started", 2)
    request.leave()
    await request.rest()


async def test_a_quiet_stream_is_kept_alive(open_desk, call):
    async with open_desk(options=HttpOptions(heartbeat_s=0.05, poll_s=0.05)) as desk:
        request = await watch(desk, call, await desk.submit())

        assert await request.read_until(b": still here\n\n")
        request.leave()
        await request.rest()


async def test_a_shutdown_ends_the_streams(desk, call):
    request = await watch(desk, call, await desk.submit())
    await request.read_until(b"event: ")

    desk.app.state.drain.begin()

    assert b"event: end" not in await request.rest(2)


async def test_events_as_json(desk):
    task_id = await desk.submit()
    await desk.complete(task_id, b"{}")
    as_json = {"Accept": "application/json"}

    first = (await desk.http.get(f"{ETL}/tasks/{task_id}/events?limit=2", headers=as_json)).json()
    rest = (await desk.http.get(f"{ETL}/tasks/{task_id}/events?after={first['next']}", headers=as_json)).json()
    none = (await desk.http.get(f"{ETL}/tasks/{task_id}/events?after={rest['next']}", headers=as_json)).json()

    assert [1, 2] == [event["seq"] for event in first["events"]]
    assert 3 == rest["events"][0]["seq"]
    assert {"events": [], "next": rest["next"]} == none


async def test_a_caller_has_a_limited_number_of_streams(open_desk, call):
    async with open_desk(options=HttpOptions(max_event_streams=2, poll_s=0.05)) as desk:
        task_id = await desk.submit()
        streams = [await watch(desk, call, task_id)]
        streams.append(call(desk.app, "GET", f"{ETL}/events"))
        assert 200 == await streams[1].status()
        for path in (f"{ETL}/tasks/{task_id}/events", f"{ETL}/events"):
            third = call(desk.app, "GET", path)
            assert 429 == await third.status()
            refusal = json.loads((await third.next())["body"])
            assert ("too_many_streams", True) == (refusal["code"], refusal["retryable"])
        listed = await desk.http.get(f"{ETL}/tasks/{task_id}/events", headers={"Accept": "application/json"})
        assert 200 == listed.status_code, "pages of the log are no streams"

        streams[0].leave()
        await asyncio.wait_for(streams[0].task, 30)
        fourth = await watch(desk, call, task_id)

        for stream in (streams[1], fourth):
            stream.leave()
            await asyncio.wait_for(stream.task, 30)
        assert not desk.app.state.streams._open
