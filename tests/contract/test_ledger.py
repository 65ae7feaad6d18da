"""What every ledger promises, on SQLite and on PostgreSQL alike."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from docmill.adapters.sql.ledger import SqlLedger
from docmill.adapters.sql.migrate import migrate
from docmill.adapters.sql.rows import encode
from docmill.adapters.sql.statement import Op, Query, Row, Statement
from docmill.core import machine
from docmill.core.errors import Conflict, Invalid, NotFound
from docmill.core.face import face_of
from docmill.core.machine import Change, Handover, Verdict
from docmill.core.task import Fault, Stage, State, Status, Task
from docmill.ports import FailureCount, Filter, Once, Search
from support.databases import KINDS, open_database, url_of
from support.ledgers import (
    ANNA,
    BERT,
    CARL,
    a_task,
    claimed,
    complete,
    fail,
    opened,
    succeed,
)

ROUNDS = 200


@pytest.fixture(params=KINDS)
async def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqlLedger]:
    async with open_database(request.param, tmp_path, url_of(request.param, request)) as database:
        yield SqlLedger(database)


async def test_an_opened_task_is_pending_with_a_queued_attempt_and_an_event(ledger: SqlLedger) -> None:
    task = await opened(ledger)

    assert (Status.PENDING, Stage.PARSE, 1, 0) == (task.status, task.stage, task.attempt, task.progress)
    assert [task.attempt_id] == [attempt.id for _, attempt in await ledger.due(limit=10)]
    assert ["submitted"] == [event.kind for event in await ledger.events(task.id)]


async def test_what_is_saved_comes_back_whole(ledger: SqlLedger) -> None:
    task, attempt = await claimed(ledger, await opened(ledger))
    change = await succeed(ledger, task.id, attempt.id, engine="local", pages=3, damaged_pages=(1,), cache_hit=True)

    assert change.task == await ledger.get(task.id)
    assert ("local", 3, (1,), True) == (
        change.task.engine,
        change.task.pages_total,
        change.task.damaged_pages,
        change.task.cache_hit,
    )


async def test_two_workers_cannot_claim_the_same_attempt(ledger: SqlLedger) -> None:
    """The queue may deliver twice; the ledger lets one through."""
    for _ in range(ROUNDS):
        task = await opened(ledger)
        assert task.attempt_id
        taken = await asyncio.gather(*(ledger.claim(task.attempt_id, worker=f"w{n}", lease_ms=9000) for n in range(2)))
        assert 1 == sum(found is not None for found in taken)


async def test_what_is_due_comes_by_priority_and_then_the_tenants_take_turns(ledger: SqlLedger) -> None:
    flood = [await opened(ledger) for _ in range(6)]
    small = [await opened(ledger, a_task(CARL)) for _ in range(2)]
    urgent = await opened(ledger, a_task(BERT, priority=3))

    due = [task.id for task, _ in await ledger.due(limit=6)]

    expected = [urgent, flood[0], small[0], flood[1], small[1], flood[2]]
    assert [task.id for task in expected] == due


async def test_an_attempt_is_not_claimed_before_it_is_due(ledger: SqlLedger) -> None:
    task, attempt = await claimed(ledger, await opened(ledger))
    change = await fail(ledger, task.id, attempt.id, retryable=True)

    assert change.opens
    assert await ledger.claim(change.opens.id, worker="w", lease_ms=9000) is None
    assert [] == await ledger.due(limit=10)


async def test_a_cancel_against_a_completion_ends_in_exactly_one_of_both(ledger: SqlLedger) -> None:
    cancelled = 0
    for round_ in range(ROUNDS):
        task = await opened(ledger)
        for _ in range(2):
            task, attempt = await claimed(ledger, task)
            task = (await succeed(ledger, task.id, attempt.id)).task
        task, attempt = await claimed(ledger, task)
        calls = [
            ledger.decide(task.id, lambda t, a: machine.cancel(t, a, force=True), who=ANNA),
            succeed(ledger, task.id, attempt.id),
        ]
        if round_ % 2:
            calls.reverse()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        ended = await ledger.get(task.id)
        assert ended
        kinds = [event.kind for event in await ledger.events(task.id)]
        assert 1 == kinds.count("cancelled") + kinds.count("completed")
        if ended.status is Status.CANCELLED:
            cancelled += 1
            assert not any(isinstance(outcome, Exception) for outcome in outcomes)
        else:
            assert any(isinstance(outcome, Conflict) for outcome in outcomes)
    assert cancelled


async def test_of_two_retries_at_once_one_is_refused(ledger: SqlLedger) -> None:
    done = await complete(ledger, await opened(ledger))
    for round_ in range(ROUNDS):
        outcomes = await asyncio.gather(
            *(
                ledger.decide(done.id, lambda t, _: machine.retry(t, from_stage="postprocess", next_id=uuid4()))
                for _ in range(2)
            ),
            return_exceptions=True,
        )
        assert 1 == sum(isinstance(outcome, Conflict) for outcome in outcomes)
        pending = await ledger.get(done.id)
        assert pending
        assert 2 + round_ == pending.attempt
        assert 1 == len(await ledger.due(limit=10))
        await complete(ledger, pending)


async def test_a_report_of_an_older_attempt_changes_nothing(ledger: SqlLedger) -> None:
    task, old = await claimed(ledger, await opened(ledger))
    await ledger.decide(task.id, lambda t, a: machine.cancel(t, a, force=True))
    change = await ledger.decide(task.id, lambda t, _: machine.retry(t, from_stage="mineru", next_id=uuid4()))

    late = await succeed(ledger, task.id, old.id)

    assert Verdict.SUPERSEDED is late.verdict
    assert change.task == await ledger.get(task.id)


async def test_a_heartbeat_counts_only_for_the_holder_of_a_live_attempt(ledger: SqlLedger) -> None:
    task, attempt = await claimed(ledger, await opened(ledger), worker="w1")

    assert {attempt.id} == await ledger.beat([attempt.id], worker="w1", lease_ms=5000)
    assert set() == await ledger.beat([attempt.id], worker="w2", lease_ms=5000)
    await ledger.decide(task.id, lambda t, a: machine.cancel(t, a, force=True))
    assert set() == await ledger.beat([attempt.id], worker="w1", lease_ms=5000)


async def test_a_lapsed_lease_is_found_and_a_fresh_one_is_not(ledger: SqlLedger) -> None:
    _, fresh = await claimed(ledger, await opened(ledger))
    _, lapsed = await claimed(ledger, await opened(ledger), lease_ms=-1000)

    found = await ledger.lapsed(limit=10)

    assert [lapsed.id] == [attempt.id for attempt, _ in found]
    assert 1000 <= found[0][1] < 60_000
    assert {fresh.id, lapsed.id} == {attempt.id for attempt in await ledger.held(limit=10)}


async def test_a_handed_over_attempt_lapses_at_its_deadline(ledger: SqlLedger) -> None:
    task, attempt = await claimed(ledger, await opened(ledger))
    await ledger.decide(task.id, lambda t, a: machine.hand_over(t, a, Handover("w", "secretary", "h", -5)))

    [(found, _)] = await ledger.lapsed(limit=10)

    assert (attempt.id, State.HANDED_OVER) == (found.id, found.state)


async def test_times_of_before_the_clock_was_put_back_count_from_now(ledger: SqlLedger) -> None:
    """An hour ahead, nobody would run the retry, and a dead worker would hold its task for that hour."""
    hour = 3_600_000
    task, failing = await claimed(ledger, await opened(ledger))
    fault = Fault("storage_full", "x", "mineru")
    retry = await ledger.decide(
        task.id,
        lambda t, a: _later(machine.on_failure(t, a, fault, retryable=True, crashed=False, next_id=uuid4()), hour),
    )
    _, held = await claimed(ledger, await opened(ledger), lease_ms=15_000 + hour)
    job, _ = await claimed(ledger, await opened(ledger), lease_ms=15_000 + hour)
    await ledger.decide(job.id, lambda t, a: machine.hand_over(t, a, Handover("w", "secretary", "h", 5_000)))
    _, fresh = await claimed(ledger, await opened(ledger))
    assert retry.task.attempt_id
    assert not await ledger.claim(retry.task.attempt_id, worker="w1", lease_ms=15_000)

    assert 3 == await ledger.mend_times(lease_ms=15_000)

    assert await ledger.claim(retry.task.attempt_id, worker="w1", lease_ms=15_000)
    assert [] == await ledger.lapsed(limit=10), "whoever lives has time for a heartbeat"
    leases = {one.id: one.lease_ms or 0 for one in await ledger.held(limit=10)}
    assert abs(leases[held.id] - leases[fresh.id]) < 60_000
    assert failing.id not in leases
    assert 0 == await ledger.mend_times(lease_ms=15_000)


def _later(change: Change, ms: int) -> Change:
    assert change.opens
    return replace(change, opens=replace(change.opens, delay_ms=ms))


async def test_the_same_idempotency_key_gives_the_same_task(ledger: SqlLedger) -> None:
    once = Once("k1", "f1")
    outcomes = await asyncio.gather(*(ledger.open(a_task(), attempt_id=uuid4(), once=once) for _ in range(20)))

    assert 1 == len({task.id for task, _ in outcomes})
    assert 1 == sum(is_new for _, is_new in outcomes)
    with pytest.raises(Invalid) as refused:
        await ledger.open(a_task(), attempt_id=uuid4(), once=Once("k1", "f2"))
    assert "idempotency_mismatch" == refused.value.code
    _, is_new = await ledger.open(a_task(BERT), attempt_id=uuid4(), once=once)
    assert is_new


async def test_a_failed_upload_is_a_failed_task_that_can_be_seen(ledger: SqlLedger) -> None:
    task = await opened(ledger, replace(a_task(), upload_fault="the disk is full", source_key=""))

    assert (Status.FAILED, "upload") == (task.status, task.fault.stage if task.fault else None)
    assert [] == await ledger.due(limit=10)


async def test_lists_filter_page_and_count_exactly(ledger: SqlLedger) -> None:
    tasks = [await opened(ledger, a_task(project=n % 2)) for n in range(7)]
    await opened(ledger, a_task(BERT))
    await opened(ledger, a_task(CARL))
    await claimed(ledger, tasks[0])
    await complete(ledger, tasks[1])

    async def ids(**filters: object) -> tuple[list[int], int]:
        page = await ledger.page(Filter(ANNA, **filters))  # type: ignore[arg-type]
        return [task.id for task in page.tasks], page.total

    newest_first = [task.id for task in reversed(tasks)]
    assert (newest_first, 7) == await ids()
    assert (newest_first[:2], 7) == await ids(limit=2)
    assert (newest_first[2:4], 7) == await ids(limit=2, offset=2)
    assert (newest_first[2:4], 7) == await ids(limit=2, before=newest_first[1])
    assert ([tasks[0].id], 1) == await ids(status="mineru_parsing")
    assert ([tasks[1].id], 1) == await ids(status="completed")
    assert ([], 0) == await ids(status="llm_processing")
    assert 3 == (await ids(project_id=1))[1]
    assert ([tasks[1].id], 1) == await ids(project_id=1, status="completed")
    assert {"pending": 7, "mineru_parsing": 1, "completed": 1} == {
        status: n for status, n in (await ledger.counts()).items() if n
    }


async def test_a_face_is_the_task_as_it_is_now(ledger: SqlLedger) -> None:
    await opened(ledger)
    await complete(ledger, await opened(ledger))
    task, attempt = await claimed(ledger, await opened(ledger))
    await fail(ledger, task.id, attempt.id)

    tasks = (await ledger.page(Filter(ANNA))).tasks
    faces = await ledger.faces(Filter(ANNA))

    assert [json.loads(encode(face_of(task))) for task in tasks] == [json.loads(face[1]) for face in faces.faces]
    assert ["failed", "completed", "pending"] == [json.loads(face[1])["status"] for face in faces.faces]
    assert 3 == faces.total


async def test_a_batch_keeps_the_order_and_leaves_foreign_ones_out(ledger: SqlLedger) -> None:
    first, second = await opened(ledger), await opened(ledger)
    foreign = await opened(ledger, a_task(CARL))

    found = await ledger.batch([second.id, 999_999, foreign.id, first.id, second.id], ANNA)

    assert [second.id, first.id] == [task.id for task in found]


@pytest.mark.parametrize("stranger", [BERT, CARL])
async def test_a_foreign_task_is_not_there(ledger: SqlLedger, stranger: object) -> None:
    task = await opened(ledger)

    assert await ledger.get(task.id, stranger) is None  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        await ledger.decide(task.id, lambda t, a: machine.cancel(t, a, force=False), who=stranger)  # type: ignore[arg-type]


async def test_events_are_numbered_without_gaps_and_resume(ledger: SqlLedger) -> None:
    done = await complete(ledger, await opened(ledger))
    events = await ledger.events(done.id)

    assert list(range(1, len(events) + 1)) == [event.seq for event in events]
    assert events[3:] == await ledger.events(done.id, after=3)
    assert "completed" == events[-1].kind


async def test_one_that_fails_takes_none_with_it(ledger: SqlLedger) -> None:
    """Writes share a commit; each stands for itself."""
    tasks = [await opened(ledger) for _ in range(10)]
    running, _ = await claimed(ledger, tasks[5])
    outcomes = await asyncio.gather(
        *(ledger.decide(task.id, lambda t, a: machine.cancel(t, a, force=False)) for task in tasks),
        return_exceptions=True,
    )

    assert [5] == [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Exception)]
    assert Status.RUNNING is running.status
    assert 9 == (await ledger.page(Filter(ANNA, status="cancelled"))).total


async def test_a_job_that_a_report_ended_is_named_with_it_until_it_is_collected(ledger: SqlLedger) -> None:
    task, attempt = await claimed(ledger, await opened(ledger))
    other, running = await claimed(ledger, await opened(ledger))

    def end(report_id: str | None) -> Change:
        result = machine.StageResult()
        return machine.judged(
            task, attempt, "hash", machine.on_success(task, attempt, result, next_id=uuid4()), report_id=report_id
        )

    change = await ledger.decide(task.id, lambda *_: end("first"), attempt_id=attempt.id)
    late = await ledger.decide(
        task.id,
        lambda now, ended: machine.judged(now, ended or attempt, "another", end("second"), report_id="second"),
        attempt_id=attempt.id,
    )
    await succeed(ledger, other.id, running.id)

    assert (Verdict.APPLIED, Verdict.CONFLICT) == (change.verdict, late.verdict)
    assert [] == await ledger.reported(older_ms=60_000, limit=10)
    async with asyncio.timeout(10):
        while not (found := await ledger.reported(older_ms=0, limit=10)):
            await asyncio.sleep(0.001)  # the database counts in milliseconds
    assert [(task.id, attempt.id, "first")] == [(one.id, job, report) for one, job, report in found]
    await ledger.collected(attempt.id)
    assert [] == await ledger.reported(older_ms=0, limit=10)


async def complete_with(ledger: SqlLedger, output: str) -> Task:
    task = await opened(ledger)
    while not task.is_final:
        task, attempt = await claimed(ledger, task)
        is_output = attempt.stage is Stage.POSTPROCESS
        task = (await succeed(ledger, task.id, attempt.id, output=output if is_output else None)).task
    return task


async def test_lists_and_batches_have_the_outputs_that_were_kept(ledger: SqlLedger) -> None:
    text = encode({"x": {"content": 'quote " and \\ and \0 and 报'}})
    kept, large, unkept = (
        await complete_with(ledger, text),
        await complete_with(ledger, ""),
        await complete(ledger, await opened(ledger)),
    )

    found = await ledger.faces(Filter(ANNA))

    faces = {number: json.loads(face) for number, face in found.faces}
    assert json.loads(text) == faces[kept.id]["result"]
    assert (None, True) == (faces[large.id]["result"], faces[large.id]["metadata"]["result_omitted"])
    assert (None, False) == (faces[unkept.id]["result"], faces[unkept.id]["metadata"]["result_omitted"])
    assert [unkept.id] == list(found.unread)
    assert {kept.id: text, large.id: ""} == await ledger.outputs([kept.id, large.id, unkept.id], ANNA)


async def test_a_retry_shows_no_output_until_there_is_a_new_one(ledger: SqlLedger) -> None:
    task = await complete_with(ledger, '"old"')
    change = await ledger.decide(
        task.id, lambda task, _: machine.retry(task, from_stage="postprocess", next_id=uuid4())
    )
    [(_, pending)] = (await ledger.faces(Filter(ANNA))).faces
    task, attempt = await claimed(ledger, change.task)
    task = (await succeed(ledger, task.id, attempt.id, output='"new"')).task
    [(_, running)] = (await ledger.faces(Filter(ANNA))).faces
    task, attempt = await claimed(ledger, task)
    await succeed(ledger, task.id, attempt.id)
    [(_, done)] = (await ledger.faces(Filter(ANNA))).faces

    assert [None, None, "new"] == [json.loads(face)["result"] for face in (pending, running, done)]


@pytest.mark.parametrize("kind", KINDS)
async def test_faces_of_an_older_docmill_get_the_keys_of_today(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with open_database(kind, tmp_path, url_of(kind, request)) as database:
        ledger = SqlLedger(database)
        task = await complete(ledger, await opened(ledger, a_task(name=',"mounted_path":')))
        face = face_of(task)
        for name in ("result_omitted", "result_error", "mount_table_id"):
            del face["metadata"][name]
        old = Statement("UPDATE tasks SET face = :face")
        await database.write(asked(old(face=encode(face))))
        for statement in ("DROP TABLE results", "DELETE FROM migrations WHERE number = 13"):
            await database.write(asked(Statement(statement)()))

        assert ["0013_results.sql"] == await migrate(database)
        [(_, found)] = (await ledger.faces(Filter(ANNA))).faces
        assert encode(face_of(task)) == found


def asked(query: Query) -> Op[Sequence[Row]]:
    return (yield query)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("rechnung", ["Rechnung MÄRZ.pdf", "rechnung märz.pdf"]),
        ("märz", ["Rechnung MÄRZ.pdf", "rechnung märz.pdf"]),
        ("MÄRZ.PDF", ["Rechnung MÄRZ.pdf", "rechnung märz.pdf"]),
        ("100%", ["100%_[a]*?.pdf"]),
        ("_[A]*?", ["100%_[a]*?.pdf"]),
        ("h_u", []),
        ("报", ["报告.pdf"]),
        ("^x-]y\\d$", ["^x-]y\\d$.pdf"]),
    ],
)
async def test_tasks_are_found_by_a_part_of_their_name_in_either_case(ledger: SqlLedger, name, found) -> None:
    for one in ("rechnung märz.pdf", "Rechnung MÄRZ.pdf", "100%_[a]*?.pdf", "报告.pdf", "^x-]y\\d$.pdf"):
        await opened(ledger, a_task(name=one))
    await opened(ledger, a_task(BERT, name="Rechnung märz 100%_[a]*? 报告 of somebody else.pdf"))

    page = await ledger.search(Search(ANNA, name=name))

    assert (found, None) == ([task.filename for task in page.tasks], page.next_before)


async def test_a_search_looks_at_a_bounded_part_and_says_where_to_go_on(ledger: SqlLedger) -> None:
    old = await opened(ledger, a_task(name="needle.pdf"))
    others = [await opened(ledger) for _ in range(5)]
    new = await opened(ledger, a_task(name="needle.pdf", project=8))

    first = await ledger.search(Search(ANNA, name="needle", max_scanned=3))
    assert ([new.id], others[3].id) == ([task.id for task in first.tasks], first.next_before)
    second = await ledger.search(Search(ANNA, name="needle", max_scanned=3, before=first.next_before))
    assert ([], others[0].id) == (list(second.tasks), second.next_before)
    third = await ledger.search(Search(ANNA, name="needle", max_scanned=3, before=second.next_before))
    assert ([old.id], None) == ([task.id for task in third.tasks], third.next_before)

    full = await ledger.search(Search(ANNA, name="needle", limit=1))
    assert ([new.id], new.id) == ([task.id for task in full.tasks], full.next_before)
    assert [new.id] == [task.id for task in (await ledger.search(Search(ANNA, 8, "pending"))).tasks]
    assert [] == list((await ledger.search(Search(ANNA, status="failed"))).tasks)


async def test_failures_are_counted_by_code(ledger: SqlLedger) -> None:
    for n in range(3):
        task, attempt = await claimed(ledger, await opened(ledger, a_task(name=f"{n}.pdf", project=n % 2)))
        await fail(ledger, task.id, attempt.id)
    await opened(ledger)
    task, attempt = await claimed(ledger, await opened(ledger, a_task(BERT)))
    await fail(ledger, task.id, attempt.id)

    assert [FailureCount("document_broken", 3)] == await ledger.failures(Search(ANNA))
    assert [FailureCount("document_broken", 1)] == await ledger.failures(Search(ANNA, 1))
    assert [FailureCount("document_broken", 1)] == await ledger.failures(Search(ANNA, name="2.PDF"))
    assert [FailureCount("document_broken", 2)] == await ledger.failures(Search(ANNA, max_scanned=2))
    found = await ledger.search(Search(ANNA, status="failed", error_code="document_broken"))
    assert ["2.pdf", "1.pdf", "0.pdf"] == [task.filename for task in found.tasks]
    assert [] == list((await ledger.search(Search(ANNA, status="failed", error_code="parse_timeout"))).tasks)


async def test_tasks_are_counted_by_status_of_one_owner_and_of_all(ledger: SqlLedger) -> None:
    task, attempt = await claimed(ledger, await opened(ledger, a_task(project=8)))
    await fail(ledger, task.id, attempt.id)
    await opened(ledger)
    await opened(ledger, a_task(BERT))

    def present(counts: dict[str, int]) -> dict[str, int]:
        return {status: count for status, count in counts.items() if count}

    assert {"pending": 1, "failed": 1} == present(await ledger.counts(ANNA))
    assert {"failed": 1} == present(await ledger.counts(ANNA, 8))
    assert {"pending": 2, "failed": 1} == present(await ledger.counts())
