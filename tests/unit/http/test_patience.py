"""Bodies that stop arriving are given up; those that arrive, and those who leave by themselves, are not touched."""

import asyncio
from typing import Any

import pytest

from docmill.core.errors import BadRequest
from docmill.http.patience import Patience


async def never() -> dict[str, Any]:
    await asyncio.Event().wait()
    return {}


async def at_once() -> dict[str, Any]:
    return {"type": "http.request", "body": b"x"}


async def test_a_message_that_never_comes_is_given_up_and_the_task_goes_on() -> None:
    patience = Patience(0.05)
    with pytest.raises(BadRequest, match="stopped arriving"):
        await asyncio.wait_for(patience.next(never), 10)
    assert b"x" == (await patience.next(at_once))["body"]


async def test_one_that_waits_does_not_disturb_the_others() -> None:
    patience = Patience(0.2)

    async def slowly() -> dict[str, Any]:
        await asyncio.sleep(0.01)
        return await at_once()

    async def fed() -> int:
        return sum([len((await patience.next(slowly))["body"]) for _ in range(40)])

    outcomes = await asyncio.gather(fed(), patience.next(never), fed(), return_exceptions=True)
    assert [40, 40] == outcomes[::2]
    assert isinstance(outcomes[1], BadRequest)


async def test_who_is_cancelled_by_somebody_else_stays_cancelled() -> None:
    waiting = asyncio.ensure_future(Patience(30).next(never))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
