"""What every queue promises, run over each adapter."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import UUID, uuid4

import msgspec
import pytest
from arq.connections import ArqRedis
from arq.constants import job_key_prefix
from arq.worker import Worker as ArqWorker
from arq.worker import func

from docmill.adapters import redis
from docmill.adapters.queues.arq import ArqQueue, queue_name
from docmill.adapters.queues.local import LocalQueue
from docmill.core.turns import Lane, Waiting
from docmill.ports import Queue
from support.servers import Redis

pytestmark = pytest.mark.anyio

SOON = 30.0


@asynccontextmanager
async def arq_queue(url: str) -> AsyncIterator[ArqQueue]:
    client = redis.connect(url)
    queue = ArqQueue(client)
    yield queue
    await queue.close()
    await client.aclose()


Opener = Callable[[], Awaitable[ArqQueue]]


@pytest.fixture
async def another(redis_url: str) -> AsyncIterator[Opener]:
    """Opens one more view of the shared queue, as another process would."""
    async with AsyncExitStack() as stack:

        async def opened() -> ArqQueue:
            return await stack.enter_async_context(arq_queue(redis_url))

        yield opened


@pytest.fixture(params=["local", "arq"])
async def queue(request: pytest.FixtureRequest) -> AsyncIterator[Queue]:
    if request.param == "local":
        yield LocalQueue()
        return
    async with arq_queue(request.getfixturevalue("redis_url")) as queue:
        yield queue


async def got(queue: Queue) -> UUID:
    [attempt_id] = await asyncio.wait_for(queue.take(Lane.PARSE), SOON)
    return attempt_id


async def is_empty(queue: Queue) -> bool:
    try:
        await asyncio.wait_for(queue.take(Lane.PARSE), 0.3)
    except TimeoutError:
        return True
    return False


async def test_what_is_put_is_got(queue: Queue) -> None:
    attempt = uuid4()

    await queue.put(Waiting(attempt))

    assert attempt == await got(queue)


async def test_several_places_get_what_there_is_and_wait_only_for_the_first(queue: Queue) -> None:
    attempts = [uuid4() for _ in range(5)]
    for attempt in attempts[:3]:
        await queue.put(Waiting(attempt))
    taken: list[UUID] = []
    async with asyncio.timeout(SOON):
        while len(taken) < 3:
            some = await queue.take(Lane.PARSE, 2)
            assert 1 <= len(some) <= 2
            taken += some
    assert set(attempts[:3]) == set(taken)
    waiting = asyncio.create_task(queue.take(Lane.PARSE, 2))
    await queue.put(Waiting(attempts[3]))
    assert attempts[3:4] == await asyncio.wait_for(waiting, SOON), "nobody waits for a second one"
    assert await is_empty(queue)


async def test_who_waits_gets_what_comes(queue: Queue) -> None:
    waiting = asyncio.create_task(got(queue))
    await asyncio.sleep(0.05)
    attempt = uuid4()

    await queue.put(Waiting(attempt))

    assert attempt == await waiting


async def test_first_come_first_served(queue: Queue) -> None:
    attempts = [uuid4() for _ in range(5)]
    for attempt in attempts:
        await queue.put(Waiting(attempt))
        await asyncio.sleep(0.003)  # times are counted in milliseconds

    assert attempts == [await got(queue) for _ in attempts]


async def test_the_urgent_ones_come_first(queue: Queue) -> None:
    late, usual, urgent = uuid4(), uuid4(), uuid4()
    for attempt, priority in ((late, -10), (usual, 0), (urgent, 10)):
        await queue.put(Waiting(attempt, priority=priority))

    assert [urgent, usual, late] == [await got(queue) for _ in range(3)]


async def test_the_same_id_twice_is_delivered_once_while_it_waits(queue: Queue) -> None:
    attempt = uuid4()
    await queue.put(Waiting(attempt))
    await queue.put(Waiting(attempt))

    assert attempt == await got(queue)
    assert await is_empty(queue)


async def test_an_id_may_come_again_after_it_was_taken(queue: Queue) -> None:
    attempt = uuid4()
    for _ in range(2):
        await queue.put(Waiting(attempt))
        assert attempt == await got(queue)


async def test_what_is_delayed_comes_later(queue: Queue) -> None:
    later, now = uuid4(), uuid4()
    began = time.monotonic()
    await queue.put(Waiting(later, priority=5), delay_ms=400)
    await queue.put(Waiting(now))

    assert [now, later] == [await got(queue), await got(queue)]
    assert time.monotonic() - began >= 0.39


async def test_a_getter_that_leaves_takes_nothing_with_it(queue: Queue) -> None:
    waiting = asyncio.create_task(got(queue))
    await asyncio.sleep(0.05)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    attempt = uuid4()

    await queue.put(Waiting(attempt))

    assert attempt == await got(queue)


async def test_many_puts_at_once_all_arrive(queue: Queue) -> None:
    attempts = {uuid4() for _ in range(700)}

    await asyncio.gather(*(queue.put(Waiting(attempt)) for attempt in attempts))

    assert attempts == {await got(queue) for _ in attempts}


# The rest concerns several processes on one Redis.


async def test_each_id_goes_to_one_of_many(another: Opener) -> None:
    putting, *taking = [await another() for _ in range(4)]
    attempts = {uuid4() for _ in range(60)}
    taken: list[UUID] = []

    async def take(queue: ArqQueue) -> None:
        while True:
            taken.extend(await queue.take(Lane.PARSE, 2))

    takers = [asyncio.create_task(take(queue)) for queue in taking for _ in range(2)]
    await asyncio.gather(*(putting.put(Waiting(attempt)) for attempt in attempts))
    async with asyncio.timeout(SOON):
        while len(taken) < len(attempts):
            await asyncio.sleep(0.01)
    for taker in takers:
        taker.cancel()
    await asyncio.gather(*takers, return_exceptions=True)

    assert sorted(attempts) == sorted(taken)


async def test_nothing_is_taken_without_a_free_place(another: Opener, redis_url: str) -> None:
    putting, taking = await another(), await another()
    attempts = [uuid4() for _ in range(5)]
    for attempt in attempts:
        await putting.put(Waiting(attempt))

    await got(taking)
    await asyncio.sleep(0.2)

    client = redis.connect(redis_url)
    assert 4 == await client.zcard(queue_name(Waiting(attempts[0])))
    await client.aclose()


async def test_our_jobs_are_arqs_jobs(another: Opener, redis_url: str) -> None:
    """ARQ's own tools see them, and ARQ's own worker runs them."""
    queue, attempt = await another(), uuid4()
    await queue.put(Waiting(attempt))
    pool = ArqRedis.from_url(redis_url)
    pool.job_deserializer = msgspec.json.decode
    ran: list[str] = []

    async def look(ctx: dict[str, str]) -> None:
        ran.append(ctx["job_id"])

    [seen] = await pool.queued_jobs(queue_name=queue_name(Waiting(attempt)))
    worker = ArqWorker(
        [func(look, name="look")],
        queue_name=queue_name(Waiting(attempt)),
        redis_pool=pool,
        burst=True,
        handle_signals=False,
        keep_result=0,
        poll_delay=0.02,
        job_serializer=msgspec.json.encode,
        job_deserializer=msgspec.json.decode,
    )
    await worker.async_run()

    assert (str(attempt), "look", []) == (seen.job_id, seen.function, list(seen.args))
    assert [str(attempt)] == ran
    await pool.aclose()


async def test_tenants_take_turns(queue: Queue) -> None:
    """A flood of one does not delay the first of another."""
    flood = [uuid4() for _ in range(20)]
    for attempt in flood:
        await queue.put(Waiting(attempt, tenant="flood"))
    small = uuid4()
    await queue.put(Waiting(small, tenant="small"))

    assert small in [await got(queue) for _ in range(2)]
    await queue.put(Waiting(again := uuid4(), tenant="small"))
    assert again in [await got(queue) for _ in range(2)]


async def test_short_documents_pass_long_ones_of_the_same_tenant(queue: Queue) -> None:
    long, short = uuid4(), uuid4()
    await queue.put(Waiting(long, tenant="t", size=50_000_000))
    await queue.put(Waiting(short, tenant="t", size=1_000))

    assert [short, long] == [await got(queue), await got(queue)]


async def test_lanes_do_not_know_each_other(queue: Queue) -> None:
    parse, later = uuid4(), uuid4()
    await queue.put(Waiting(parse))
    await queue.put(Waiting(later, lane=Lane.LATER))

    assert [later] == await asyncio.wait_for(queue.take(Lane.LATER), SOON)
    assert parse == await got(queue)


EXECUTED: list[str] = []


def execute() -> None:
    EXECUTED.append("!")


class Bomb:
    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return execute, ()


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("a pickle", pickle.dumps({"t": None, "f": "look", "a": (Bomb(),), "k": {}, "et": 1})),
        ("another function", b'{"t":null,"f":"rm","a":[],"k":{},"et":1}'),
        ("no JSON", b"\xff\x00"),
        ("nothing", b""),
        ("a list", b"[]"),
    ],
)
async def test_whatever_is_not_ours_is_dropped_unread(another: Opener, redis_url: str, name: str, body: bytes) -> None:
    queue, ours = await another(), uuid4()
    client = redis.connect(redis_url)
    foreign = str(uuid4())
    await client.set(job_key_prefix + foreign, body)
    await client.zadd(queue_name(Waiting(ours)), {foreign: 1, "not-an-id": 2})
    await queue.put(Waiting(ours))

    assert ours == await got(queue)
    assert [] == EXECUTED
    assert 0 == await client.zcard(queue_name(Waiting(ours)))
    await client.aclose()


async def test_closing_gives_back_what_nobody_took(another: Opener, redis_url: str) -> None:
    attempt = uuid4()
    async with arq_queue(redis_url) as leaving:
        waiting = asyncio.create_task(leaving.take(Lane.PARSE))
        await asyncio.sleep(0.05)
        await leaving.put(Waiting(attempt))
        async with asyncio.timeout(30):
            while not waiting.done():
                await asyncio.sleep(0)
                if leaving._here.waiting(Lane.PARSE):
                    waiting.cancel()
                    break
        await asyncio.gather(waiting, return_exceptions=True)
        if waiting.cancelled():
            await leaving.close()
            assert attempt == await got(await another())


async def test_redis_gone_and_back() -> None:
    """While it is gone a working process serves itself, and nobody waits or fails."""
    with Redis() as server:
        async with arq_queue(server.url) as working, arq_queue(server.url) as asking:
            first = uuid4()
            await asking.put(Waiting(first))
            assert first == await got(working)
            server.kill()

            own, lost = uuid4(), uuid4()
            async with asyncio.timeout(SOON):
                await asking.put(Waiting(lost))  # an API that does not work leaves it to the sweeper
                await working.put(Waiting(own))
            assert own == await got(working)

            server.start()
            again = uuid4()
            async with asyncio.timeout(SOON):
                while True:
                    await asking.put(Waiting(again))
                    try:
                        assert [again] == await asyncio.wait_for(working.take(Lane.PARSE), 0.5)
                    except TimeoutError:
                        continue
                    break
