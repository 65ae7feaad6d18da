"""The hot state: what is newer wins, what has passed does not come back, and without it the row is the truth."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import uuid4

import msgspec
import pytest

from docmill.adapters import redis
from docmill.adapters.runstate.redis import ENDED_S, RUNNING_S, RedisRunState
from docmill.core.face import face_of
from docmill.core.task import Stage, Status, Task, Wishes
from support.servers import Redis
from support.waiting import until

pytestmark = pytest.mark.anyio

ROW = Task(
    id=5,
    tenant="acme",
    owner="anna",
    project_id=1,
    filename="a.pdf",
    source_key="users/anna/raw/1/a.pdf",
    rule_id=1,
    status=Status.RUNNING,
    stage=Stage.PARSE,
    attempt=1,
    attempt_id=uuid4(),
    version=4,
    event_seq=3,
    progress=20,
    wishes=Wishes(parse={"ocr": True}),
    created_ms=1_700_000_000_000,
    updated_ms=1_700_000_001_000,
)
NEWER = replace(ROW, version=5, event_seq=4, progress=30, updated_ms=1_700_000_002_000)
DONE = replace(ROW, version=6, status=Status.COMPLETED, progress=100, updated_ms=1_700_000_003_000)


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[redis.Client]:
    client = redis.connect(redis_url)
    yield client
    await client.aclose()


@pytest.fixture
async def runstate(client: redis.Client) -> AsyncIterator[RedisRunState]:
    runstate = RedisRunState(client)
    yield runstate
    await runstate.close()


async def kept(runstate: RedisRunState, *tasks: Task) -> None:
    for task in tasks:
        runstate.keep(task)
        await until(lambda: not runstate._writing)


async def test_a_newer_state_is_preferred_to_the_row(runstate: RedisRunState) -> None:
    await kept(runstate, NEWER)

    assert [NEWER] == await runstate.newest([ROW])


async def test_an_older_state_never_hides_the_row(runstate: RedisRunState) -> None:
    await kept(runstate, ROW)

    assert [NEWER] == await runstate.newest([NEWER])


async def test_a_late_writer_does_not_bring_back_what_has_passed(runstate: RedisRunState) -> None:
    await kept(runstate, DONE, NEWER, ROW)

    assert [DONE] == await runstate.newest([ROW])


async def test_a_row_that_has_ended_is_not_asked_about(runstate: RedisRunState) -> None:
    await kept(runstate, replace(ROW, version=99))

    assert [DONE] == await runstate.newest([DONE])


async def test_a_task_of_another_deployment_is_not_shown(runstate: RedisRunState) -> None:
    await kept(runstate, replace(NEWER, tenant="other"))

    assert [ROW] == await runstate.newest([ROW])


@pytest.mark.parametrize(("task", "seconds"), [(NEWER, RUNNING_S), (DONE, ENDED_S)])
async def test_it_stays_as_long_as_it_should(
    runstate: RedisRunState, client: redis.Client, task: Task, seconds: int
) -> None:
    await kept(runstate, task)

    assert seconds - 5 <= await client.ttl("etl:task:5") <= seconds
    state = msgspec.json.decode(await client.hget("etl:task:5", "state"))
    assert (5, task.progress) == (state["task_id"], state["progress"])


def face(task: Task) -> tuple[int, str]:
    return task.id, msgspec.json.encode(face_of(task)).decode()


async def test_a_list_shows_newer_progress_of_the_same_status(runstate: RedisRunState) -> None:
    await kept(runstate, NEWER)

    assert [face(NEWER)] == list(await runstate.newest_faces([face(ROW)]))
    assert [face(NEWER)] == list(await runstate.newest_faces([face(NEWER)]))


async def test_a_list_keeps_its_filter(runstate: RedisRunState) -> None:
    await kept(runstate, DONE)

    assert [face(ROW)] == list(await runstate.newest_faces([face(ROW)]))


async def test_junk_is_not_believed(runstate: RedisRunState, client: redis.Client) -> None:
    await client.hset("etl:task:5", mapping={"version": 9, "task": b"\x80junk", "state": b"{"})

    assert [ROW] == await runstate.newest([ROW])
    assert [face(ROW)] == list(await runstate.newest_faces([face(ROW)]))


async def test_without_redis_the_row_is_the_answer() -> None:
    with Redis() as server:
        client = redis.connect(server.url)
        runstate = RedisRunState(client)
        await kept(runstate, NEWER)
        server.kill()

        assert [ROW] == await runstate.newest([ROW])
        assert [face(ROW)] == list(await runstate.newest_faces([face(ROW)]))
        assert not await runstate.is_there()
        await kept(runstate, DONE)
        await runstate.close()
        await client.aclose()
