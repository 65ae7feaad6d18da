"""Who writes for many waits for those who come back, and no longer."""

import asyncio

import pytest

from docmill.work import crowd
from docmill.work.crowd import Crowd

LINGER_S = 0.01
SIZE = 10


@pytest.fixture
def ten(monkeypatch: pytest.MonkeyPatch) -> Crowd:
    """Ten came together before."""
    monkeypatch.setattr(crowd, "LINGER_S", LINGER_S)
    found = Crowd(most=100, most_s=30)
    found.went(SIZE)
    return found


async def come(crowd: Crowd, numbers: range) -> None:
    """One after the other, each before those who are here are tired of waiting."""
    for number in numbers:
        await asyncio.sleep(LINGER_S * SIZE / 2)
        crowd.now(number)


async def gathered(crowd: Crowd, count: int) -> float:
    began = asyncio.get_running_loop().time()
    crowd.now(count)
    await crowd.gather(count)
    return asyncio.get_running_loop().time() - began


async def test_as_long_as_some_come_the_others_are_waited_for(ten: Crowd) -> None:
    coming = asyncio.create_task(come(ten, range(2, SIZE + 1)))

    took = await gathered(ten, 1)

    assert took > LINGER_S * SIZE * 3, "longer than the patience with nobody"
    assert coming.done()


async def test_when_nobody_comes_those_who_are_here_go(ten: Crowd) -> None:
    assert await gathered(ten, 3) < 30
    coming = asyncio.create_task(come(ten, range(4, 6)))
    assert await gathered(ten, 3) < 30
    await coming


async def test_no_wait_is_longer_than_the_longest(ten: Crowd) -> None:
    ten._most_s = LINGER_S * SIZE * 2
    coming = asyncio.create_task(come(ten, range(2, SIZE)))

    await gathered(ten, 1)

    assert not coming.done()
    await coming


def test_a_crowd_that_is_complete_and_one_alone_wait_for_nobody(ten: Crowd) -> None:
    alone = Crowd(most=100, most_s=30)
    for one, count in ((ten, SIZE), (ten, SIZE + 1), (alone, 1)):
        with pytest.raises(StopIteration):
            one.gather(count).send(None)
    alone.went(1)
    assert 1 == alone.size
