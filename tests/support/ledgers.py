"""Ledgers on real databases, and short ways to say what a test needs of them."""

from dataclasses import MISSING, fields
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

from docmill.adapters.queues.local import LocalQueue
from docmill.adapters.signals.local import LocalSignals
from docmill.adapters.sql.database import Database
from docmill.adapters.sql.ledger import SqlLedger
from docmill.adapters.sql.outbox import SqlOutbox
from docmill.adapters.sql.sealing import Sealer
from docmill.core import machine
from docmill.core.access import Owner
from docmill.core.machine import Change, StageResult, Verdict
from docmill.core.reports import Progress
from docmill.core.task import Artifacts, Attempt, Fault, Task, Wishes
from docmill.ports import Limits, NewTask, Ports
from docmill.work.receive import receive

SEALER = Sealer(lambda: [b"secret of the tests"])
ANNA = Owner("acme", "anna")
BERT = Owner("acme", "bert")
CARL = Owner("other", "anna")


def a_task(owner: Owner = ANNA, *, project: int = 7, name: str = "invoice.pdf", priority: int = 0) -> NewTask:
    return NewTask(
        tenant=owner.tenant,
        owner=owner.user,
        project_id=project,
        filename=name,
        source_key=f"users/{owner.user}/raw/{project}/x.pdf",
        rule_id=1,
        wishes=Wishes(priority=priority),
    )


async def opened(ledger: SqlLedger, new: NewTask | None = None) -> Task:
    task, _ = await ledger.open(new or a_task(), attempt_id=uuid4())
    return task


async def claimed(ledger: SqlLedger, task: Task, *, worker: str = "w1", lease_ms: int = 15_000) -> tuple[Task, Attempt]:
    assert task.attempt_id
    taken = await ledger.claim(task.attempt_id, worker=worker, lease_ms=lease_ms)
    assert taken
    return taken


async def succeed(ledger: SqlLedger, task_id: int, attempt_id: UUID, **result: object) -> Change:
    outcome = StageResult(artifacts=Artifacts("m.md", "p.json", None), **result)  # type: ignore[arg-type]
    return await ledger.decide(
        task_id,
        lambda task, attempt: machine.on_success(task, attempt, outcome, next_id=uuid4()),
        attempt_id=attempt_id,
    )


async def report_progress(
    ledger: SqlLedger, attempt: Attempt, percent: float | None, *, token_hash: str = "hash", **said: Any
) -> Verdict:
    """A worker's report of progress, as the callback route passes it on."""
    ports: Any = SimpleNamespace(ledger=ledger, signals=LocalSignals(), runstate=None, limits=Limits())
    report = Progress(percent, **said)
    return (await receive(ports, attempt.task_id, attempt.id, report, token_hash=token_hash)).verdict


async def complete(ledger: SqlLedger, task: Task) -> Task:
    """Walk a pending task to its end."""
    while not task.is_final:
        task, attempt = await claimed(ledger, task)
        task = (await succeed(ledger, task.id, attempt.id)).task
    return task


async def fail(ledger: SqlLedger, task_id: int, attempt_id: UUID, *, retryable: bool = False) -> Change:
    fault = Fault("document_broken", "it is broken", "mineru")
    return await ledger.decide(
        task_id,
        lambda task, attempt: machine.on_failure(
            task, attempt, fault, retryable=retryable, crashed=False, next_id=uuid4()
        ),
        attempt_id=attempt_id,
    )


def ports_on(database: Database) -> Ports:
    """As much as the sweeper needs."""
    unneeded: dict[str, Any] = {
        one.name: SimpleNamespace() for one in fields(Ports) if one.default is one.default_factory is MISSING
    }
    given = {
        "ledger": SqlLedger(database),
        "outbox": SqlOutbox(database, SEALER),
        "queue": LocalQueue(),
        "signals": LocalSignals(),
    }
    return Ports(**unneeded | given)
