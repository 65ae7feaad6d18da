"""Attempts line up for what they need next."""

from __future__ import annotations

from uuid import UUID

from docmill.core.task import Stage, Task
from docmill.core.turns import Lane, Waiting
from docmill.ports import Ports


async def line_up(ports: Ports, task: Task, attempt_id: UUID, stage: Stage, *, delay_ms: int = 0) -> None:
    waiting = Waiting(attempt_id, _lane(ports, task, stage), task.wishes.priority, task.tenant, task.source_size or 0)
    await ports.queue.put(waiting, delay_ms=delay_ms)


def _lane(ports: Ports, task: Task, stage: Stage) -> Lane:
    if stage is not Stage.PARSE:
        return Lane.LATER
    return Lane.DISPATCH if task.wishes.engine in ports.workers else Lane.PARSE
