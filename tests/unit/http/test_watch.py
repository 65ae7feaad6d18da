"""All tasks of a caller, live: the newest state of each, nobody else's, and nothing missed."""

import asyncio
import json

from docmill.core.access import Principal
from docmill.http.app import AuthOptions
from docmill.work import keys

EVENTS = "/api/v1/etl/events"


def parse(raw: bytes):
    blocks = [
        dict(line.split(": ", 1) for line in block.splitlines() if ": " in line) for block in raw.decode().split("\n\n")
    ]
    return [(int(one["id"]), json.loads(one["data"])) for one in blocks if one.get("event") == "task"]


async def watch(desk, call, query="", **headers):
    request = call(desk.app, "GET", EVENTS + query, headers)
    request.send()
    start = await request.next()
    assert 200 == start["status"]
    assert b"retry" in (await request.next())["body"]
    return request


async def until(request, status):
    seen = b""
    while not any(task["status"] == status for _, task in parse(seen)):
        seen += (await request.next()).get("body", b"")
    return parse(seen)


async def test_whoever_watches_sees_every_task_move_to_its_end(desk, call):
    request = await watch(desk, call)
    task_id = await desk.submit()
    await desk.complete(task_id, b"{}")

    found = await until(request, "completed")

    assert {task_id} == {task["task_id"] for _, task in found}
    versions = [task["version"] for _, task in found]
    assert sorted(set(versions)) == versions
    request.leave()
    await request.rest()
    assert {} == desk.app.state.boards._open


async def test_who_comes_back_gets_what_changed_meanwhile_and_no_more(desk, call):
    first = await desk.submit()
    request = await watch(desk, call, "?after=1")
    last, _ = (await until(request, "pending"))[-1]
    request.leave()
    await request.rest()
    await asyncio.sleep(0.01)
    second = await desk.submit("b.pdf")

    again = await watch(desk, call, **{"last-event-id": str(last)})
    found = await until(again, "pending")

    assert [second] == [task["task_id"] for _, task in found]
    assert first != second
    again.leave()
    await again.rest()


async def test_a_lost_signal_is_made_up_for(desk, call):
    """Another process may change a task; the board looks again by itself."""
    request = await watch(desk, call)
    task_id = await desk.submit()
    await until(request, "pending")
    task = await desk.task(task_id)

    assert await desk.ports.ledger.claim(task.attempt_id, worker="elsewhere", lease_ms=60_000)

    assert task_id == (await until(request, "mineru_parsing"))[-1][1]["task_id"]
    request.leave()
    await request.rest()


async def test_nobody_sees_anybody_elses_tasks(open_desk, call):
    async with open_desk(AuthOptions(require=True)) as desk:
        secrets = [(await keys.create(desk.ports, name, Principal(name, "acme")))[1] for name in ("alice", "bob")]
        alice, bob = ({"authorization": f"Bearer {secret}"} for secret in secrets)
        desk.http.headers.update(alice)
        request = await watch(desk, call, **alice)
        task_id = await desk.submit()
        await until(request, "pending")

        answer = await desk.http.get(EVENTS, headers={**bob, "Accept": "application/json"})
        own = await desk.http.get(EVENTS, headers={"Accept": "application/json"})

        assert {"tasks": [], "next": 0} == answer.json()
        assert [task_id] == [task["task_id"] for task in own.json()["tasks"]]
        assert 401 == (await desk.http.get(EVENTS, headers={"Authorization": "Bearer dm_x"})).status_code
        request.leave()
        await request.rest()


async def test_a_task_can_be_waited_for_by_preference(desk):
    task_id = await desk.submit()
    first = await desk.http.get(f"/api/v1/etl/tasks/{task_id}")

    same = await desk.http.get(
        f"/api/v1/etl/tasks/{task_id}",
        headers={"Prefer": "respond-async, wait=1", "If-None-Match": first.headers["etag"]},
    )
    waiting = asyncio.ensure_future(
        desk.http.get(
            f"/api/v1/etl/tasks/{task_id}", headers={"Prefer": "wait=30", "If-None-Match": first.headers["etag"]}
        )
    )
    await asyncio.sleep(0.05)
    await desk.claim(task_id)
    changed = await asyncio.wait_for(waiting, 20)

    assert (304, "wait=1") == (same.status_code, same.headers["preference-applied"])
    assert "mineru_parsing" == changed.json()["status"]
