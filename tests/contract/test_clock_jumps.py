"""The database's clock jumps forward by an hour and back: nothing lapses that is alive, nothing waits an hour (R29)."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.ledger import SqlLedger
from docmill.adapters.sql.outbox import SqlOutbox
from docmill.adapters.sql.statement import Op, Row, Statement
from docmill.adapters.sql.webhooks import SqlWebhooks
from docmill.core import machine, webhooks
from docmill.core.clocks import MIN_WATCH_MS
from docmill.core.machine import Change, Handover
from docmill.core.task import Attempt, Task
from docmill.core.webhooks import Answer, Outcome, Sent, WebhookDraft
from docmill.ports import Ports
from docmill.work import sweep
from support.databases import KINDS, open_database, url_of
from support.ledgers import ANNA, SEALER, a_task, claimed, complete, opened, ports_on

HOUR_MS = 3_600_000
TIMEOUT_MS = 600_000


@pytest.fixture(params=KINDS)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with open_database(request.param, tmp_path, url_of(request.param, request)) as database:
        yield database


async def sql(database: Database, text: str, **params: Any) -> list[Row]:
    def op() -> Op[list[Row]]:
        return (yield Statement(text)(**params))

    return await database.write(op())


async def jump(database: Database, ports: Ports, by_ms: int) -> None:
    """The same as a clock that jumps: what was written, and what was observed, is that much longer ago."""
    await sql(
        database,
        "UPDATE attempts SET due_ms = due_ms - :by, lease_ms = lease_ms - :by, deadline_ms = deadline_ms - :by",
        by=by_ms,
    )
    await sql(
        database,
        "UPDATE notices SET due_ms = due_ms - :by, scheduled_ms = scheduled_ms - :by, queued_ms = queued_ms - :by",
        by=by_ms,
    )
    if ports.clock._wall_ms is not None:
        ports.clock._wall_ms -= by_ms


async def handed_over(ledger: SqlLedger, task: Task) -> None:
    def rule(found: Task, attempt: Attempt | None) -> Change:
        assert attempt
        return machine.hand_over(found, attempt, Handover("far", "secretary", "hash", TIMEOUT_MS))

    await ledger.decide(task.id, rule)

    def heard(found: Task, attempt: Attempt | None) -> Change:
        assert attempt
        return machine.on_worker_progress(found, attempt, percent=1, phase="", message="", process_id="p")

    await ledger.decide(task.id, heard)


async def statuses(ledger: SqlLedger, *tasks: Task) -> list[str]:
    found = [await ledger.get(task.id) for task in tasks]
    return [str(task.status) if task else "gone" for task in found]


async def test_a_jump_forward_fails_no_job_and_takes_no_lease(database: Database) -> None:
    ports, ledger = ports_on(database), SqlLedger(database)
    running, _ = await claimed(ledger, await opened(ledger, a_task()), lease_ms=15_000)
    job, _ = await claimed(ledger, await opened(ledger, a_task()), lease_ms=15_000)
    await handed_over(ledger, job)
    await sweep.sweep(ports)

    await jump(database, ports, HOUR_MS)
    assert job.attempt_id
    await sweep.recover_attempt(ports, job.attempt_id)
    await sweep.sweep(ports)
    await sweep.sweep(ports)

    assert ["running", "running"] == await statuses(ledger, running, job)
    kinds = [event.kind for task in (running, job) for event in await ledger.events(task.id)]
    assert "worker_lost" not in kinds


async def test_a_jump_forward_counts_until_the_times_are_set_right(database: Database) -> None:
    """The first try to set them right fails: the next sweep must not take what lapsed for the truth."""
    ports, ledger = ports_on(database), SqlLedger(database)
    running, _ = await claimed(ledger, await opened(ledger, a_task()), lease_ms=15_000)
    job, _ = await claimed(ledger, await opened(ledger, a_task()), lease_ms=15_000)
    await handed_over(ledger, job)
    await sweep.sweep(ports)
    ports.clock._since_ms -= MIN_WATCH_MS
    await jump(database, ports, HOUR_MS)

    # As a sweep does that is cut off here, before it could set them right.
    ports.clock.observe(await ledger.now_ms(), round(time.monotonic() * 1000))
    await sweep.sweep(ports)

    assert ["running", "running"] == await statuses(ledger, running, job)


async def test_after_a_jump_forward_who_is_really_gone_lapses_a_period_later(database: Database) -> None:
    ports, ledger = ports_on(database), SqlLedger(database)
    gone, _ = await claimed(ledger, await opened(ledger, a_task()), lease_ms=15_000)
    job, _ = await claimed(ledger, await opened(ledger, a_task()), lease_ms=15_000)
    await handed_over(ledger, job)
    await sweep.sweep(ports)
    await jump(database, ports, HOUR_MS)
    await sweep.sweep(ports)

    # Time passes: no jump, for the monotonic clock passes with it.
    await jump(database, ports, TIMEOUT_MS + 1_000)
    ports.clock._monotonic_ms -= TIMEOUT_MS + 1_000
    await sweep.sweep(ports)
    assert ["pending", "running"] == await statuses(ledger, gone, job), "nobody looked for ten minutes"
    ports.clock._since_ms -= MIN_WATCH_MS
    await sweep.sweep(ports)

    assert ["pending", "failed"] == await statuses(ledger, gone, job)


async def test_a_process_that_starts_after_a_jump_gives_nothing_up(database: Database) -> None:
    """It cannot know of the jump. One that saw it sets the times right with its next sweep."""
    old, new, ledger = ports_on(database), ports_on(database), SqlLedger(database)
    running, _ = await claimed(ledger, await opened(ledger, a_task()), lease_ms=15_000)
    job, _ = await claimed(ledger, await opened(ledger, a_task()), lease_ms=15_000)
    await handed_over(ledger, job)
    await sweep.sweep(old)
    await jump(database, old, HOUR_MS)

    await sweep.sweep(new)
    assert job.attempt_id
    await sweep.recover_attempt(new, job.attempt_id)
    assert ["pending", "running"] == await statuses(ledger, running, job), "a lost worker costs no task"
    await sweep.sweep(old)
    new.clock._since_ms -= MIN_WATCH_MS
    await sweep.sweep(new)

    assert ["pending", "running"] == await statuses(ledger, running, job)


async def test_a_notice_scheduled_before_the_clock_was_set_back_waits_no_longer_than_meant(database: Database) -> None:
    ports, ledger, outbox = ports_on(database), SqlLedger(database), SqlOutbox(database, SEALER)
    draft = WebhookDraft("https://hooks.example/in", "a receiver")
    webhook = await SqlWebhooks(database, SEALER).add(
        webhooks.new_webhook_id(), draft, webhooks.new_secret(), ANNA, most=9
    )
    await complete(ledger, await opened(ledger, a_task()))
    [sending] = await outbox.claim(webhook.id, limit=9, lease_ms=60_000)
    await outbox.settle(sending.notice, Answer(503), Outcome(Sent.PENDING, 5_000))

    await jump(database, ports, -HOUR_MS)
    began = time.monotonic()
    await sweep.sweep(ports)

    [notice] = [await outbox.get(sending.notice.id, ANNA)]
    assert notice
    left_ms = notice.due_ms - await ledger.now_ms() + (time.monotonic() - began) * 1000
    assert 4_000 <= left_ms <= 5_500
    await sweep.sweep(ports)
    again = await outbox.get(sending.notice.id, ANNA)
    assert again
    assert notice.due_ms == again.due_ms, "it is mended once"
