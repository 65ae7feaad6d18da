"""The gate that lets a suspect run alone in its worker."""

import asyncio
from contextlib import AbstractAsyncContextManager

from docmill.work.isolation import IsolationGate


class Runner:
    """Runs inside the gate until it is told to end."""

    def __init__(self, gate: AbstractAsyncContextManager[None]) -> None:
        self.is_inside = False
        self._ends = asyncio.Event()
        self._task = asyncio.ensure_future(self._run(gate))

    async def _run(self, gate: AbstractAsyncContextManager[None]) -> None:
        async with gate:
            self.is_inside = True
            await self._ends.wait()
        self.is_inside = False

    async def end(self) -> None:
        self._ends.set()
        await asyncio.wait_for(self._task, 30)

    async def cancel(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=30)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_suspect_waits_for_the_others_and_later_ones_wait_for_it() -> None:
    gate = IsolationGate()
    first, second = Runner(gate.together()), Runner(gate.together())
    await settle()
    suspect = Runner(gate.alone())
    await settle()
    later = Runner(gate.together())
    await settle()
    assert (True, True, False, False) == (first.is_inside, second.is_inside, suspect.is_inside, later.is_inside)

    await first.end()
    await settle()
    assert not suspect.is_inside
    await second.end()
    await settle()
    assert (True, False) == (suspect.is_inside, later.is_inside)

    await suspect.end()
    await settle()
    assert later.is_inside
    await later.end()


async def test_two_suspects_run_one_after_the_other() -> None:
    gate = IsolationGate()
    one, other = Runner(gate.alone()), Runner(gate.alone())
    await settle()
    assert (True, False) == (one.is_inside, other.is_inside)

    await one.end()
    await settle()
    assert other.is_inside
    await other.end()


async def test_a_suspect_that_is_cancelled_while_it_waits_holds_nobody_up() -> None:
    gate = IsolationGate()
    first = Runner(gate.together())
    await settle()
    suspect, later = Runner(gate.alone()), Runner(gate.together())
    await settle()
    assert not later.is_inside

    await suspect.cancel()
    await settle()

    assert later.is_inside
    await first.end()
    await later.end()
