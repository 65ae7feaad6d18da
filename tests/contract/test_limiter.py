"""What a limiter promises, run over each adapter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from docmill.adapters import redis
from docmill.adapters.limiters.local import LocalLimiter
from docmill.adapters.limiters.redis import RedisLimiter
from docmill.ports import Limiter
from support.servers import Redis

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["local", "redis"])
async def limiter(request: pytest.FixtureRequest) -> AsyncIterator[Limiter]:
    if request.param == "local":
        yield LocalLimiter()
        return
    client = redis.connect(request.getfixturevalue("redis_url"))
    yield RedisLimiter(client)
    await client.aclose()


async def hits(limiter: Limiter, times: int, bucket: str = "a", **limits: float) -> list[bool]:
    given = {"limit": 3, "window_s": 60.0} | limits
    return [await limiter.hit(bucket, **given) is None for _ in range(times)]  # type: ignore[arg-type]


async def test_one_more_than_the_limit_is_too_many(limiter: Limiter) -> None:
    assert [True, True, True, False, False] == await hits(limiter, 5)


async def test_buckets_do_not_know_each_other(limiter: Limiter) -> None:
    await hits(limiter, 4, "a")

    assert [True] == await hits(limiter, 1, "b")


async def test_it_says_how_long_to_wait(limiter: Limiter) -> None:
    await hits(limiter, 3)

    wait = await limiter.hit("a", limit=3, window_s=60.0)

    assert wait is not None
    assert 50 < wait <= 60


async def test_the_window_slides(limiter: Limiter) -> None:
    assert [True, True, True, False] == await hits(limiter, 4, window_s=1)
    await asyncio.sleep(1.05)

    assert [True, True, True, False] == await hits(limiter, 4, window_s=1)


async def test_what_was_refused_does_not_count(limiter: Limiter) -> None:
    await hits(limiter, 3)
    first = await limiter.hit("a", limit=3, window_s=60.0)
    await asyncio.sleep(0.05)
    await hits(limiter, 20)

    later = await limiter.hit("a", limit=3, window_s=60.0)

    assert first is not None
    assert later is not None
    assert later < first, "the wait gets shorter, however often one asks"


async def test_many_at_once_share_the_limit(limiter: Limiter) -> None:
    answers = await asyncio.gather(*(limiter.hit("a", limit=10, window_s=60.0) for _ in range(50)))

    assert 10 == answers.count(None)


async def test_processes_share_the_count(redis_url: str) -> None:
    clients = [redis.connect(redis_url) for _ in range(2)]
    one, other = (RedisLimiter(client) for client in clients)

    assert [True, True] == await hits(one, 2)
    assert [True, False] == await hits(other, 2)
    assert [False] == await hits(one, 1)
    for client in clients:
        await client.aclose()


async def test_without_redis_each_process_goes_on_with_what_it_saw() -> None:
    with Redis() as server:
        client = redis.connect(server.url)
        limiter = RedisLimiter(client)
        assert [True, True] == await hits(limiter, 2)
        server.kill()

        assert [True, False] == await hits(limiter, 2)
        await client.aclose()


async def test_a_process_forgets_buckets_that_count_nothing_any_more() -> None:
    """Each job of an external worker has a bucket: a service that runs for long must not keep all of them."""
    now = 0.0
    limiter = LocalLimiter(lambda: now)
    for number in range(1000):
        limiter.count(f"progress:{number}", window_s=60.0)
    assert 1000 == limiter.bucket_count
    assert [True, True, False] == await hits(limiter, 3, "progress:7")

    now = 59.0
    assert [False] == await hits(limiter, 1, "progress:7")
    now = 61.0
    limiter.count("another", window_s=60.0)

    assert 2 == limiter.bucket_count
