"""Find what fell through: hints that got lost, workers that died, deadlines that passed.

Safe to run twice at once, and every row stands for itself: one that cannot be mended does not stop the others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Container
from uuid import UUID, uuid4

import structlog

from docmill.core import machine
from docmill.core.errors import DocmillError, StageFailed
from docmill.core.machine import Change, Verdict
from docmill.core.task import Attempt, Fault, Task
from docmill.ports import Ports
from docmill.work.objects import objects
from docmill.work.receive import ring
from docmill.work.stages.step import leavings_of
from docmill.work.turns import line_up

log = structlog.get_logger(__name__)

PAGE = 500
STALE_EXTRA_MS = 30_000


async def sweep(ports: Ports, *, spared: Container[UUID] = ()) -> int:
    """One round; how many attempts were recovered or rung again.

    *spared* are those that whoever asks is working on right now: their leases ran out while the machine slept.
    """
    if late := await ports.ledger.mend_times(lease_ms=ports.limits.lease_ms):
        log.warning("clock_was_put_back", attempts=late)
    if late := await ports.outbox.mend_times():
        log.warning("clock_was_put_back", notices=late)
    mended = await _recover_lapsed(ports, spared)
    due = await ports.ledger.due(limit=PAGE)
    await asyncio.gather(*(line_up(ports, task, waiting.id, waiting.stage) for task, waiting in due))
    return mended + len(due)


async def _recover_lapsed(ports: Ports, spared: Container[UUID]) -> int:
    """Page by page, as long as that helps: who was recovered is not on the next page."""
    mended = 0
    while page := await _lapsed(ports):
        # All at once: one whose row somebody else has locked, perhaps frozen, must not keep the others waiting.
        tried = (_try_to_recover(ports, attempt, lapsed) for attempt, lapsed in page if attempt.id not in spared)
        recovered = sum(await asyncio.gather(*tried))
        mended += recovered
        if not recovered or len(page) < PAGE:
            break
    return mended


async def _lapsed(ports: Ports) -> list[tuple[Attempt, int]]:
    """Attempts whose lease or deadline has passed; none, if that is because the clock jumped over them."""
    page = await ports.ledger.lapsed(limit=PAGE)
    # After the look: a jump before it is seen, and one after it lets nothing lapse that is on this page.
    jump_ms = ports.clock.observe(await ports.ledger.now_ms(), round(time.monotonic() * 1000))
    if jump_ms <= 0:
        return page
    restarted = await ports.ledger.restart_times(lease_ms=ports.limits.lease_ms)
    ports.clock.settle()
    log.warning("clock_jumped_forward", seconds=jump_ms // 1000, attempts=restarted)
    return []


async def _try_to_recover(ports: Ports, attempt: Attempt, lapsed_ms: int) -> bool:
    try:
        return await _recover(ports, attempt, lapsed_ms)
    except DocmillError as error:
        log.warning("sweep_failed", task=attempt.task_id, code=error.code)
    except Exception as error:
        # Nor must a row that nobody can read.
        log.error("sweep_failed", task=attempt.task_id, why=f"{type(error).__name__}: {error}"[:200])
    return False


async def collect(ports: Ports) -> int:
    """Remove what attempts left in the store that came to nothing; how many objects.

    No pointer leads there: a task points only to what an attempt made that succeeded, and others reuse only that; what
    a language model said last in an attempt that failed is spared. It is old enough that nobody writes there any more.
    Two collectors at once do the same work twice, and no harm.
    """
    removed = 0
    for task, attempt_id in await ports.ledger.leavings(older_ms=ports.limits.leavings_ms, limit=PAGE):
        try:
            removed += await _remove(ports, task, attempt_id)
            await ports.ledger.collected(attempt_id)
        except (DocmillError, OSError) as error:
            log.warning("collect_failed", task=task.id, attempt=str(attempt_id), why=type(error).__name__)
    return removed + await _collect_reports(ports)


async def _collect_reports(ports: Ports) -> int:
    """Remove what final reports stored that came second: the job had ended when the ledger judged them."""
    removed = 0
    for task, attempt_id, report_id in await ports.ledger.reported(older_ms=ports.limits.leavings_ms, limit=PAGE):
        try:
            removed += await _remove_other_reports(ports, task, attempt_id, report_id)
            await ports.ledger.collected(attempt_id)
        except (DocmillError, OSError) as error:
            log.warning("collect_failed", task=task.id, attempt=str(attempt_id), why=type(error).__name__)
    return removed


async def _remove_other_reports(ports: Ports, task: Task, attempt_id: UUID, report_id: str) -> int:
    prefix = objects(ports, task.tenant).prefix
    artifacts, *_ = leavings_of(task, attempt_id)
    kept = f"{prefix}{artifacts}{report_id}/"
    keys = [key async for key, _, _ in ports.store.list(prefix + artifacts)]
    return sum([await ports.store.delete(key) for key in keys if not key.startswith(kept)])


async def _remove(ports: Ports, task: Task, attempt_id: UUID) -> int:
    removed = 0
    prefix = objects(ports, task.tenant).prefix
    spared = prefix + (task.artifacts.extraction_key or "")
    for folder in leavings_of(task, attempt_id):
        for key in [key async for key, _, _ in ports.store.list(prefix + folder)]:
            if key != spared:
                removed += await ports.store.delete(key)
    return removed


async def free_all(ports: Ports) -> int:
    """For the one process that knows it is alone (it holds the data folder's lock): every running row is an orphan."""
    freed = 0
    while held := await ports.ledger.held(limit=PAGE):
        for attempt in held:
            freed += await _recover(ports, attempt, 0)
    return freed


async def recover_attempt(ports: Ports, attempt_id: UUID) -> bool:
    """The same for one attempt that somebody looks at right now."""
    for attempt, lapsed_ms in await _lapsed(ports):
        if attempt.id == attempt_id:
            return await _recover(ports, attempt, lapsed_ms)
    return False


async def _recover(ports: Ports, attempt: Attempt, lapsed_ms: int) -> bool:
    next_id = uuid4()
    stale_ms = ports.limits.task_timeout_s * 1000 + STALE_EXTRA_MS

    def rule(task: Task, current: Attempt | None) -> Change:
        if current is None or (current.lease_ms, current.deadline_ms) != (attempt.lease_ms, attempt.deadline_ms):
            # Between our look and our lock the worker gave a sign of life.
            return Change(Verdict.SUPERSEDED, task)
        if current.is_out and not ports.clock.is_sure:
            return Change(Verdict.SUPERSEDED, task)  # a later sweep will see
        if current.is_out:
            return machine.expire(task, current, current.failure or _fault("worker_timeout", "timeout"))
        if lapsed_ms > stale_ms and ports.clock.is_sure:
            return machine.expire(task, current, _fault("task_stale", "stale"))
        lost = StageFailed("worker_lost", times=task.lost_workers + 1)
        return machine.on_lost_worker(
            task,
            current,
            next_id=next_id,
            fault=Fault(lost.code, lost.message, "lost"),
            max_lost_alone=ports.limits.max_lost_alone,
        )

    change = await ports.ledger.decide(attempt.task_id, rule, attempt_id=attempt.id)
    await ring(ports, change)
    return change.verdict is Verdict.APPLIED


def _fault(code: str, stage: str) -> Fault:
    error = StageFailed(code)
    return Fault(error.code, error.message, stage)
