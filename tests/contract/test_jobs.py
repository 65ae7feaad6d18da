"""Jobs of external workers: what every ledger keeps of them, and how they are listed."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from docmill.adapters.sql import jobs, migrate
from docmill.adapters.sql.database import Database
from docmill.adapters.sql.ledger import SqlLedger
from docmill.adapters.sql.statement import Op, Row, Statement
from docmill.core import machine
from docmill.core.access import Owner
from docmill.core.machine import Change, Handover, Verdict
from docmill.core.task import Attempt, Event, Fault, Task, WorkerError
from docmill.ports import JobFilter
from support.databases import KINDS, open_database, url_of
from support.ledgers import ANNA, BERT, CARL, a_task, claimed, complete, fail, opened, report_progress, succeed

TIMEOUT_MS = 600_000
ERROR = Fault("worker_failed", "page 3", "mineru", WorkerError("E1", "page 3", {"page": [3]}))


@pytest.fixture(params=KINDS)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with open_database(request.param, tmp_path, url_of(request.param, request)) as database:
        yield database


@pytest.fixture
def ledger(database: Database) -> SqlLedger:
    return SqlLedger(database)


async def a_job(ledger: SqlLedger, owner: Owner = ANNA, timeout_ms: int = TIMEOUT_MS) -> tuple[Task, Attempt]:
    task, attempt = await claimed(ledger, await opened(ledger, a_task(owner)))
    handover = Handover("elsewhere", "secretary", "hash", timeout_ms)
    await ledger.decide(task.id, lambda task, attempt: machine.hand_over(task, attempt, handover))
    return await find(ledger, attempt)


async def find(ledger: SqlLedger, attempt: Attempt) -> tuple[Task, Attempt]:
    found = await ledger.find(attempt.id)
    assert found
    return found


async def log_error(ledger: SqlLedger, attempt: Attempt, grace_ms: int = 30_000) -> Change:
    return await ledger.decide(
        attempt.task_id,
        lambda task, attempt: machine.on_worker_error(task, attempt, ERROR, grace_ms=grace_ms, process_id="p-1"),
        attempt_id=attempt.id,
    )


def give_up(task: Task, attempt: Attempt | None) -> Change:
    assert attempt
    return machine.expire(task, attempt, ERROR)


async def accept(ledger: SqlLedger, attempt: Attempt, *ids: str) -> None:
    await ledger.decide(
        attempt.task_id,
        lambda task, attempt: machine.on_start_accepted(task, attempt, ids=ids),
        attempt_id=attempt.id,
    )


async def test_a_logged_error_is_kept_with_a_short_deadline_until_progress_makes_it_void(ledger: SqlLedger) -> None:
    task, job = await a_job(ledger)
    await report_progress(ledger, job, 40)
    await log_error(ledger, job)

    task, failing = await find(ledger, job)
    assert (ERROR, "p-1", "running") == (failing.failure, failing.process_id, failing.job_status)
    assert failing.deadline_ms
    assert task.updated_ms <= failing.deadline_ms <= task.updated_ms + 30_000

    assert Verdict.APPLIED is await report_progress(ledger, job, 40)
    task, restored = await find(ledger, job)
    assert restored.failure is None
    assert restored.deadline_ms
    assert restored.deadline_ms >= task.updated_ms + TIMEOUT_MS


async def test_a_grace_period_longer_than_the_worker_s_time_is_cut_to_it(ledger: SqlLedger) -> None:
    """Also then progress clears the error, although it leaves the deadline nearly where it was."""
    task, job = await a_job(ledger, timeout_ms=20_000)
    await log_error(ledger, job)

    task, failing = await find(ledger, job)
    assert failing.deadline_ms
    assert failing.deadline_ms <= task.updated_ms + 20_000
    await report_progress(ledger, job, 40)
    assert (await find(ledger, job))[1].failure is None


async def test_the_answer_to_the_start_request_changes_nothing_that_a_report_said_before_it(ledger: SqlLedger) -> None:
    _, early = await a_job(ledger)
    await log_error(ledger, early)
    _, before = await find(ledger, early)
    await accept(ledger, early, "s-1", "s-2")
    task, after = await find(ledger, early)
    assert (before.deadline_ms, ERROR, "p-1") == (after.deadline_ms, after.failure, after.process_id)
    assert (("s-1", "s-2", "p-1"), "p-1") == (after.worker_ids, task.provider_task_id)

    _, late = await a_job(ledger)
    assert late.lease_ms is not None
    await accept(ledger, late, "s-1")
    task, after = await find(ledger, late)
    assert (None, "s-1", ("s-1",)) == (after.lease_ms, after.process_id, after.worker_ids)
    assert "s-1" == task.provider_task_id


async def test_jobs_are_listed_for_their_owner_alone_and_follow_their_tasks(ledger: SqlLedger) -> None:
    (_, done), (_, failed), (_, cancelled), (_, lost), (_, running) = [await a_job(ledger) for _ in range(5)]
    for stranger in (BERT, CARL):
        await a_job(ledger, stranger)
    await opened(ledger)
    await complete(ledger, (await succeed(ledger, done.task_id, done.id)).task)
    await fail(ledger, failed.task_id, failed.id)
    await ledger.decide(cancelled.task_id, lambda task, attempt: machine.cancel(task, attempt, force=True))
    await ledger.decide(lost.task_id, give_up)
    await ledger.decide(lost.task_id, lambda task, _: machine.retry(task, from_stage="mineru", next_id=uuid4()))
    await report_progress(ledger, running, 12, message="page 1")

    listing = await ledger.jobs(JobFilter(ANNA))

    assert 5 == listing.total
    assert {
        done.id: "completed", failed.id: "failed", cancelled.id: "cancelled", lost.id: "failed", running.id: "running",
    } == {line.attempt.id: line.attempt.job_status for line in listing.jobs}  # fmt: skip
    newest = next(line for line in listing.jobs if line.attempt.id == running.id)
    assert ("invoice.pdf", "page 1", 12) == (newest.filename, newest.last_message, newest.last_percent)
    assert {failed.id, lost.id} == {line.attempt.id for line in (await ledger.jobs(JobFilter(ANNA, "failed"))).jobs}
    assert 0 == (await ledger.jobs(JobFilter(ANNA, "queued"))).total


async def test_a_job_that_delivered_goes_on_with_its_task(ledger: SqlLedger) -> None:
    _, job = await a_job(ledger)
    task = (await succeed(ledger, job.task_id, job.id)).task
    assert "running" == (await find(ledger, job))[1].job_status
    task, attempt = await claimed(ledger, task)
    await fail(ledger, task.id, attempt.id)
    assert "failed" == (await find(ledger, job))[1].job_status
    retried = await ledger.decide(
        task.id, lambda task, _: machine.retry(task, from_stage="postprocess", next_id=uuid4())
    )
    assert "running" == (await find(ledger, job))[1].job_status
    await complete(ledger, retried.task)
    assert "completed" == (await find(ledger, job))[1].job_status


async def test_the_upgrade_lists_the_jobs_of_before(database: Database, ledger: SqlLedger) -> None:
    """The migration gives old rows what the ledger writes into new ones."""
    (_, done), (_, failed), (_, cancelled), (_, lost), (_, running) = [await a_job(ledger) for _ in range(5)]
    await complete(ledger, (await succeed(ledger, done.task_id, done.id)).task)
    await fail(ledger, failed.task_id, failed.id)
    await ledger.decide(cancelled.task_id, lambda task, attempt: machine.cancel(task, attempt, force=True))
    await ledger.decide(lost.task_id, give_up)
    text = next(one.text for one in migrate.known() if one.number == 12)
    [fill_in] = [part.strip() for part in text.split(";\n") if part.strip().startswith("UPDATE")]

    def op() -> Op[None]:
        yield Statement("UPDATE attempts SET job_tenant = NULL, job_user = NULL, job_status = NULL")()
        yield Statement(fill_in)()

    before = await ledger.jobs(JobFilter(ANNA))
    await database.write(op())

    assert before == await ledger.jobs(JobFilter(ANNA))
    assert {"completed", "failed", "cancelled", "running"} == {line.attempt.job_status for line in before.jobs}
    assert running.id in {line.attempt.id for line in before.jobs}


async def test_the_last_lines_of_a_log_are_the_newest_in_their_order(ledger: SqlLedger) -> None:
    task = await opened(ledger)
    for number in range(5):
        await ledger.decide(
            task.id, lambda task, _, number=number: machine.note(task, Event("mounted", {"number": number}))
        )

    assert [3, 4] == [event.data["number"] for event in await ledger.last_events(task.id, limit=2)]
    assert 6 == len(await ledger.last_events(task.id, limit=100))


@pytest.mark.parametrize(
    ("filters", "index"),
    [((False, False), "jobs_by_owner"), ((True, False), "jobs_by_status"),
     ((False, True), "jobs_by_owner"), ((True, True), "jobs_by_status")],
)  # fmt: skip
async def test_every_list_of_jobs_has_an_index(
    database: Database, request: pytest.FixtureRequest, filters: tuple[bool, bool], index: str
) -> None:
    text = jobs.LISTS[filters][0].sqlite
    for name in ("tenant", "owner", "status"):
        text = text.replace(f":{name}", "'x'")
    for name in ("before", "limit", "offset"):
        text = text.replace(f":{name}", "7")
    is_postgres = "postgres" in request.node.name

    def op() -> Op[list[Row]]:
        if is_postgres:
            yield Statement("SET LOCAL enable_seqscan = off")()  # a table of no rows is read whole otherwise
        return (yield Statement(f"EXPLAIN {'' if is_postgres else 'QUERY PLAN'} {text}")())

    plan = str([tuple(row) for row in await database.write(op())])

    # Read in the order of the list: nothing is sorted.
    assert (f"Index Scan Backward using {index}" if is_postgres else f"USING INDEX {index}") in plan, plan
    assert "TEMP B-TREE" not in plan, plan
