"""Find what fell through: hints that got lost, workers that died, deadlines that passed.

Safe to run twice at once, and every row stands for itself: one that cannot be mended does not stop the others.
"""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import structlog

from docmill.core import machine
from docmill.core.errors import DocmillError, StageFailed
from docmill.core.machine import Change, Verdict
from docmill.core.task import Attempt, Fault, Task
from docmill.ports import Ports
from docmill.work.receive import ring
from docmill.work.turns import line_up

log = structlog.get_logger(__name__)

PAGE = 500
STALE_EXTRA_MS = 30_000


async def sweep(ports: Ports) -> int:
    """One round; how many attempts were recovered or rung again."""
    mended = 0
    for attempt, lapsed_ms in await ports.ledger.lapsed(limit=PAGE):
        try:
            mended += await _recover(ports, attempt, lapsed_ms)
        except DocmillError as error:
            log.warning("sweep_failed", task=attempt.task_id, code=error.code)
    due = await ports.ledger.due(limit=PAGE)
    await asyncio.gather(*(line_up(ports, task, waiting.id, waiting.stage) for task, waiting in due))
    return mended + len(due)


async def free_all(ports: Ports) -> int:
    """For the one process that knows it is alone (it holds the data folder's lock): every running row is an orphan."""
    freed = 0
    while held := await ports.ledger.held(limit=PAGE):
        for attempt in held:
            freed += await _recover(ports, attempt, 0)
    return freed


async def recover_attempt(ports: Ports, attempt_id: UUID) -> bool:
    """The same for one attempt that somebody looks at right now."""
    for attempt, lapsed_ms in await ports.ledger.lapsed(limit=PAGE):
        if attempt.id == attempt_id:
            return await _recover(ports, attempt, lapsed_ms)
    return False


async def _recover(ports: Ports, attempt: Attempt, lapsed_ms: int) -> bool:
    next_id = uuid4()
    stale_ms = ports.limits.task_timeout_s * 1000 + STALE_EXTRA_MS

    def rule(task: Task, current: Attempt | None) -> Change:
        if current is None or current.lease_ms != attempt.lease_ms:
            # Between our look and our lock the worker gave a sign of life.
            return Change(Verdict.SUPERSEDED, task)
        if current.is_out:
            return machine.expire(task, current, _fault("worker_timeout", "timeout"))
        if lapsed_ms > stale_ms:
            return machine.expire(task, current, _fault("task_stale", "stale"))
        lost = StageFailed("worker_lost", times=task.crashes + 1)
        return machine.on_lost_worker(task, current, next_id=next_id, fault=Fault(lost.code, lost.message, "lost"))

    change = await ports.ledger.decide(attempt.task_id, rule, attempt_id=attempt.id)
    await ring(ports, change)
    return change.verdict is Verdict.APPLIED


def _fault(code: str, stage: str) -> Fault:
    error = StageFailed(code)
    return Fault(error.code, error.message, stage)
