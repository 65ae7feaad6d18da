"""Tasks/s: durable tasks whose stages do nothing, from the queue to their end, by one worker process.

Beside it, in turns, on the same database: the bare loop that claims and finishes the same number of tasks through the
same ledger, with the same number at once, and does nothing else. Both commit every step.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from uuid import UUID, uuid4

from distributed import door, process, servers
from docmill.core import machine
from docmill.core.access import LOCAL
from docmill.core.machine import StageResult
from docmill.core.task import Status, Wishes
from docmill.core.turns import Waiting
from docmill.ports import NewTask, Ports

RATE, SHARE = 300.0, 0.5
BUSY = ("pending", "mineru_parsing", "llm_processing")
LOOK_S = 0.02
TASKS, SLICES, JOBS = 400, 5, 32
PARSING = 8
"""Of these so many at their first stage: a worker has places of their own for the two later ones."""


async def opened(ports: Ports, count: int) -> list[tuple[int, UUID]]:
    async def one(n: int) -> tuple[int, UUID]:
        attempt_id = uuid4()
        new = NewTask(LOCAL.tenant, LOCAL.user, 1, f"{n}.txt", f"users/local/raw/1/{n}.txt", 1, Wishes(no_cache=True))
        task, _ = await ports.ledger.open(new, attempt_id=attempt_id)
        return task.id, attempt_id

    gate = asyncio.Semaphore(JOBS)

    async def gated(n: int) -> tuple[int, UUID]:
        async with gate:
            return await one(n)

    return await asyncio.gather(*(gated(n) for n in range(count)))


async def through_the_worker(ports: Ports) -> float:
    tasks = await opened(ports, TASKS)
    last = max(task_id for task_id, _ in tasks)
    began = time.perf_counter()
    await asyncio.gather(*(ports.queue.put(Waiting(attempt_id)) for _, attempt_id in tasks))
    while True:
        # Whoever watches must not cost more than what is watched.
        await asyncio.sleep(LOOK_S)
        counts = await ports.ledger.counts()
        if not any(counts.get(status) for status in BUSY):
            break
    seconds = time.perf_counter() - began
    done = await ports.ledger.get(last)
    assert done
    assert done.status is Status.COMPLETED
    return TASKS / seconds


async def bare_loop(ports: Ports) -> float:
    tasks = await opened(ports, TASKS)
    rest = iter(tasks)

    async def hand(name: str) -> None:
        for task_id, attempt_id in rest:
            claimed = await ports.ledger.claim(attempt_id, worker=name, lease_ms=15_000)
            assert claimed
            following: UUID | None = attempt_id
            while following:
                change = await ports.ledger.decide(task_id, _succeed(uuid4(), name), attempt_id=following)
                following = change.opens.id if change.opens else None

    began = time.perf_counter()
    await asyncio.gather(*(hand(f"hand-{n}") for n in range(JOBS)))
    return TASKS / (time.perf_counter() - began)


def _succeed(next_id: UUID, name: str) -> Callable[..., machine.Change]:
    return lambda task, attempt: machine.on_success(task, attempt, StageResult(), next_id=next_id, keep_for=name)


async def best(measure: Callable[[Ports], Awaitable[float]], ports: Ports, before: float) -> float:
    return max(before, await measure(ports))


async def main() -> bool:
    with servers() as environment:
        async with door(environment) as ports:
            ours = bare = 0.0
            for _ in range(SLICES):
                bare = await best(bare_loop, ports, bare)
                with process("worker", environment, str(PARSING), str(JOBS - PARSING), "idle"):
                    ours = await best(through_the_worker, ports, ours)
    print(
        f"tasks/s, PostgreSQL and Redis, {TASKS} no-op tasks of three stages, {JOBS} at once (in the worker {PARSING}"
        f" in the first stage, {JOBS - PARSING} in the later ones), best of {SLICES} slices"
    )
    print(f"  one worker process   {ours:7.0f}/s   (goal {RATE:.0f})")
    print(f"  bare claim + finish  {bare:7.0f}/s")
    print(f"  ratio                {ours / bare:7.2f} x    (goal {SHARE})")
    return ours >= RATE and ours / bare >= SHARE


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main()) else 1)
