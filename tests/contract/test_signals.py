"""What signals promise, run over each adapter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from docmill.adapters import redis
from docmill.adapters.signals.local import LocalSignals
from docmill.adapters.signals.redis import RedisSignals
from docmill.ports import Signals
from support.servers import Redis

pytestmark = pytest.mark.anyio

SOON = 30.0


@pytest.fixture(params=["local", "redis, same process", "redis, other process"])
async def ends(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Signals, Signals]]:
    """Where something is said, and where it is heard."""
    if request.param == "local":
        signals = LocalSignals()
        yield signals, signals
        return
    client = redis.connect(request.getfixturevalue("redis_url"))
    said = RedisSignals(client)
    heard = said if "same" in request.param else RedisSignals(client)
    with heard.subscribe():
        await asyncio.wait_for(heard.is_listening.wait(), SOON)
    yield said, heard
    for one in {said, heard}:
        await one.close()
    await client.aclose()


async def test_a_change_is_heard_by_who_waits_for_that_task(ends: tuple[Signals, Signals]) -> None:
    said, heard = ends
    with heard.subscribe(7) as seven, heard.subscribe(8) as eight, heard.subscribe() as everything:
        said.changed(7)

        assert 7 == await seven.wait(SOON)
        assert 7 == await everything.wait(SOON)
        assert await eight.wait(0.05) is None


async def test_many_changes_of_one_task_are_heard_at_least_once(ends: tuple[Signals, Signals]) -> None:
    said, heard = ends
    with heard.subscribe() as everything:
        for _ in range(100):
            said.changed(1)
        said.changed(2)

        assert {1, 2} == {await everything.wait(SOON), await everything.wait(SOON)}


async def test_a_burst_of_many_tasks_is_heard_whole(ends: tuple[Signals, Signals]) -> None:
    said, heard = ends
    with heard.subscribe() as everything:
        for task_id in range(1, 2001):
            said.changed(task_id)

        assert set(range(1, 2001)) == {await everything.wait(SOON) for _ in range(2000)}


async def test_silence_ends_with_the_patience(ends: tuple[Signals, Signals]) -> None:
    _, heard = ends
    with heard.subscribe(1) as subscription:
        assert await subscription.wait(0.02) is None


async def test_who_left_hears_nothing_more(ends: tuple[Signals, Signals]) -> None:
    said, heard = ends
    with heard.subscribe(1) as left:
        pass
    said.changed(1)

    assert await left.wait(0.1) is None


async def test_two_databases_of_one_server_do_not_hear_each_other(redis_url: str) -> None:
    client, other = redis.connect(redis_url), redis.connect(redis_url.rpartition("/")[0] + "/0")
    here, there = RedisSignals(client), RedisSignals(other)
    with there.subscribe() as subscription:
        await asyncio.wait_for(there.is_listening.wait(), SOON)
        here.changed(1)
        assert await subscription.wait(0.3) is None
    await here.close()
    await there.close()
    await client.aclose()
    await other.aclose()


async def test_redis_gone_and_back() -> None:
    with Redis() as server:
        client = redis.connect(server.url)
        said, heard = RedisSignals(client), RedisSignals(client)
        with said.subscribe() as here, heard.subscribe() as there:
            await asyncio.wait_for(heard.is_listening.wait(), SOON)
            server.kill()
            said.changed(1)
            assert 1 == await here.wait(SOON)
            server.start()
            async with asyncio.timeout(SOON):
                while True:
                    said.changed(2)
                    if await there.wait(0.2) == 2:
                        break
        await said.close()
        await heard.close()
        await client.aclose()
