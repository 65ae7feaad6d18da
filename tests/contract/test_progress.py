"""Progress of jobs: what every ledger promises of a batch, and that nobody is answered before the commit."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from docmill.adapters.signals.local import LocalSignals
from docmill.adapters.sql.daybook import CLEAR, ENTER, LOG, MOVE_TASKS, post
from docmill.adapters.sql.ledger import SqlLedger
from docmill.adapters.sql.progress import INSERT_EVENT, LOAD, LOOK, UPDATE_TASK, _Job
from docmill.adapters.sql.rows import encode
from docmill.adapters.sql.statement import Op, Statement
from docmill.core import machine
from docmill.core.errors import Unavailable
from docmill.core.face import face_of
from docmill.core.machine import Handover, Verdict
from docmill.core.reports import Progress
from docmill.core.task import Attempt, Task
from docmill.dialects.base import digest
from docmill.dialects.secretary import Secretary
from docmill.http.callbacks import CallbackDoor, CallbackOptions
from docmill.ports import Filter, Heard
from docmill.work.progress import Gathering
from support.databases import KINDS, open_database, url_of
from support.ledgers import ANNA, claimed, opened, succeed

TIMEOUT_MS = 600_000


@pytest.fixture(params=KINDS)
async def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqlLedger]:
    async with open_database(request.param, tmp_path, url_of(request.param, request)) as database:
        yield SqlLedger(database)


async def a_job(ledger: SqlLedger, token_hash: str = "hash") -> tuple[Task, Attempt]:
    task, attempt = await claimed(ledger, await opened(ledger))
    await hand_over(ledger, task, token_hash)
    found = await ledger.find(attempt.id)
    assert found
    return found


async def hand_over(ledger: SqlLedger, task: Task, token_hash: str) -> None:
    handover = Handover("elsewhere", "secretary", token_hash, TIMEOUT_MS)
    change = await ledger.decide(task.id, lambda task, attempt: machine.hand_over(task, attempt, handover))
    assert change.verdict is Verdict.APPLIED


def heard(attempt: Attempt, percent: float | None, *, token_hash: str = "hash", **said: Any) -> Heard:
    return Heard(attempt.task_id, str(attempt.id), token_hash, Progress(percent, **said))


async def told(ledger: SqlLedger, task_id: int) -> list[dict[str, Any]]:
    return [event.data for event in await ledger.events(task_id) if event.kind == "progress"]


async def face(ledger: SqlLedger, task_id: int) -> str:
    page = await ledger.faces(Filter(ANNA, before=task_id + 1, limit=1))
    return page.faces[0][1]


@pytest.mark.parametrize("percent", [None, -5, 0, 0.4, 42, 99.9, 100, 250])
async def test_a_batch_writes_what_a_single_decision_would(ledger: SqlLedger, percent: float | None) -> None:
    """The quick way and the plain one, step by step on two jobs."""
    quick, plain = await a_job(ledger), await a_job(ledger)
    for said in (
        Progress(percent, "extract_text", "Seite 1", None),
        Progress(percent, "ocr", "", "sec-1"),
        Progress(30, "", "zurück \U0001f600 \"'\\", "sec-1"),
        Progress(None, process_id="sec-2"),
    ):
        assert [Verdict.APPLIED] == await ledger.progress([Heard(quick[0].id, str(quick[1].id), "hash", said)])
        await ledger.decide(
            plain[0].id,
            lambda task, attempt, said=said: machine.on_worker_progress(
                task,
                attempt,
                percent=said.percent,
                phase=said.phase,
                message=said.message,
                process_id=said.process_id,
            ),
        )
        ours, theirs = await ledger.find(quick[1].id), await ledger.find(plain[1].id)
        assert ours
        assert theirs
        same = {"id": 0, "attempt_id": None, "job_id": None, "created_ms": 0, "updated_ms": 0}
        assert replace(theirs[0], **same) == replace(ours[0], **same)
        assert (theirs[1].process_id, theirs[1].state, theirs[1].lease_ms) == (
            ours[1].process_id, ours[1].state, ours[1].lease_ms,
        )  # fmt: skip
        assert encode(face_of(ours[0])) == await face(ledger, quick[0].id), "the face is the task's"
    assert await told(ledger, plain[0].id) == await told(ledger, quick[0].id)
    seqs = [event.seq for event in await ledger.events(quick[0].id)]
    assert list(range(1, len(seqs) + 1)) == seqs
    assert seqs[-1] == ours[0].event_seq


async def test_progress_never_falls_and_each_report_keeps_the_deadline_ahead(ledger: SqlLedger) -> None:
    """After each report the worker may be silent for its whole time, and hardly longer."""
    task, job = await a_job(ledger)
    await ledger.progress([heard(job, 80)])
    first = await ledger.find(job.id)
    await ledger.progress([heard(job, 10)])
    second = await ledger.find(job.id)

    assert first
    assert second
    assert first[1].deadline_ms
    assert second[1].deadline_ms
    assert job.deadline_ms
    assert first[0].progress == second[0].progress > task.progress
    for found in (first, second):
        reported_ms = found[0].updated_ms
        assert reported_ms + TIMEOUT_MS <= found[1].deadline_ms <= reported_ms + TIMEOUT_MS + 5_000
    assert job.deadline_ms < first[1].deadline_ms
    assert first[0].version + 1 == second[0].version


async def test_each_of_a_batch_has_its_own_verdict(ledger: SqlLedger) -> None:
    (_, fine), (dropped_task, dropped), (done_task, done), (taken_task, taken) = [await a_job(ledger) for _ in range(4)]
    await ledger.decide(dropped_task.id, lambda task, attempt: machine.cancel(task, attempt, force=True))
    await succeed(ledger, done_task.id, done.id)
    await hand_over(ledger, taken_task, "another")
    unknown = replace(fine, id=uuid4(), task_id=999_999)
    before = {task.id: await ledger.get(task.id) for task in (dropped_task, done_task, taken_task)}

    reports = [heard(one, 50) for one in (taken, fine, unknown, done, dropped)]
    verdicts = await ledger.progress(reports)

    assert [Verdict.REPLACED, Verdict.APPLIED, None, Verdict.CONFLICT, Verdict.SUPERSEDED] == verdicts
    assert before == {task_id: await ledger.get(task_id) for task_id in before}, "they changed nothing"
    assert [Verdict.APPLIED] == await ledger.progress([heard(taken, 50, token_hash="another")])


async def test_a_report_of_an_attempt_before_the_current_one_changes_nothing(ledger: SqlLedger) -> None:
    task, job = await a_job(ledger)
    await ledger.decide(task.id, lambda task, attempt: machine.cancel(task, attempt, force=True))
    again = await ledger.decide(task.id, lambda task, _: machine.retry(task, from_stage="mineru", next_id=uuid4()))

    assert [Verdict.SUPERSEDED] == await ledger.progress([heard(job, 50)])
    assert again.task == await ledger.get(task.id)


async def test_batches_against_other_decisions_lose_nothing(ledger: SqlLedger) -> None:
    """Batches in opposite orders, and ends in between: no deadlock, no gap in the log, no report after the end."""
    jobs = [await a_job(ledger) for _ in range(12)]
    reports = [heard(job, 50) for _, job in jobs]
    ends = [
        ledger.decide(task.id, lambda task, attempt: machine.cancel(task, attempt, force=True)) for task, _ in jobs[::3]
    ]
    batches = [ledger.progress(reports if n % 2 else reports[::-1]) for n in range(10)]
    await asyncio.gather(*batches, *ends)

    for task, _ in jobs:
        found = await ledger.get(task.id)
        events = await ledger.events(task.id)
        assert found
        assert list(range(1, found.event_seq + 1)) == [event.seq for event in events]
        if found.is_final:
            assert "cancelled" == events[-1].kind
        else:
            assert 10 == len(await told(ledger, task.id))
        assert encode(face_of(found)) == await face(ledger, task.id)


async def test_reports_that_come_together_leave_one_line_with_the_newest_words(ledger: SqlLedger) -> None:
    task, job = await a_job(ledger)
    gathering = Gathering(ports_of(ledger))
    said = [
        heard(job, 20, message="first", process_id="sec-1"),
        heard(job, 90, message="second"),
        heard(job, 40, message="third"),
    ]
    verdicts = await asyncio.gather(*(gathering.report(one) for one in said))

    assert [Verdict.APPLIED] * 3 == verdicts
    assert [{"progress": 50, "phase": "", "message": "third", "percent": 90}] == await told(ledger, task.id)
    found = await ledger.get(task.id)
    assert found
    assert (50, "sec-1") == (found.progress, found.provider_task_id)


async def test_a_crowd_shares_commits_and_who_stays_alone_is_not_kept_waiting(ledger: SqlLedger) -> None:
    jobs = [await a_job(ledger) for _ in range(8)]
    counting = Counting(ledger)
    gathering = Gathering(ports_of(counting))

    async def report(job: Attempt) -> None:
        for percent in (10, 20, 30):
            assert Verdict.APPLIED is await gathering.report(heard(job, percent))

    await asyncio.gather(*(report(job) for _, job in jobs))
    assert 24 == sum(counting.sizes)
    assert len(counting.sizes) <= 12, counting.sizes
    for _ in range(12):
        await gathering.report(heard(jobs[0][1], 40))
    assert [1] * 12 == counting.sizes[-12:]
    assert 1 == gathering._crowd.size


async def test_an_answer_comes_only_after_the_write_and_a_failed_write_fails_only_its_own(ledger: SqlLedger) -> None:
    _, job = await a_job(ledger)
    slow = Slow(ledger)
    gathering = Gathering(ports_of(slow))
    first = asyncio.ensure_future(gathering.report(heard(job, 10)))
    await asyncio.wait_for(slow.asked.wait(), 30)
    second = asyncio.ensure_future(gathering.report(heard(job, 20)))
    third = asyncio.ensure_future(gathering.report(heard(job, 30)))
    await asyncio.sleep(0.05)
    assert not first.done()
    assert not second.done()

    second.cancel()
    slow.fails = True
    slow.go.set()
    with pytest.raises(Unavailable):
        await first
    assert Verdict.APPLIED is await asyncio.wait_for(third, 30), "who left in between takes nobody along"
    assert second.cancelled()
    assert Verdict.APPLIED is await asyncio.wait_for(gathering.report(heard(job, 40)), 30)


async def test_a_report_that_cannot_be_written_takes_no_other_with_it(ledger: SqlLedger) -> None:
    jobs = [await a_job(ledger) for _ in range(3)]
    gathering = Gathering(ports_of(ledger))
    said = [
        heard(job, 50, message=text)
        for (_, job), text in zip(jobs, ("fine", "half a pair: \ud800", "fine"), strict=True)
    ]
    outcomes = await asyncio.gather(*(gathering.report(one) for one in said), return_exceptions=True)

    assert [Verdict.APPLIED, Verdict.APPLIED] == outcomes[::2]
    assert isinstance(outcomes[1], ValueError)
    assert [1, 0, 1] == [len(await told(ledger, task.id)) for task, _ in jobs]


async def test_what_was_not_committed_is_not_remembered(ledger: SqlLedger) -> None:
    """The version that a failed write would have left is then another change's."""
    task, job = await a_job(ledger)
    assert [Verdict.APPLIED] == await ledger.progress([heard(job, 10)])
    with pytest.raises(ValueError, match="surrogates"):
        await ledger.progress([heard(job, 20, message="half a pair: \ud800")])
    await ledger.decide(task.id, lambda task, attempt: machine.cancel(task, attempt, force=True))

    assert [Verdict.SUPERSEDED] == await ledger.progress([heard(job, 30)])
    assert 1 == len(await told(ledger, task.id))


async def test_who_reports_again_costs_one_look_and_who_was_changed_meanwhile_is_read_anew(ledger: SqlLedger) -> None:
    (_, first), (task, second) = await a_job(ledger), await a_job(ledger)
    both = [heard(first, 10), heard(second, 10)]
    await ledger.progress(both)
    with asked(ledger) as statements:
        await ledger.progress(both)
    stored = [ENTER] if ledger._database.puts_off else [UPDATE_TASK, INSERT_EVENT]
    assert [LOOK, *stored] == statements

    await hand_over(ledger, task, "another")
    with asked(ledger) as statements:
        assert [Verdict.APPLIED, Verdict.REPLACED] == await ledger.progress(both)
    posted = [MOVE_TASKS, LOG, CLEAR] if ledger._database.puts_off else []
    assert [LOOK, *posted, LOAD, *stored] == statements

    with asked(ledger) as statements:
        await ledger.progress(both[:1])
    assert [LOOK, *stored] == statements, "the other one was not changed"


async def test_what_a_crash_left_in_the_daybook_is_posted_when_the_database_is_opened_again(tmp_path: Path) -> None:
    """The files as they are right after the answer, which is all that a crash leaves."""
    (tmp_path / "crashed").mkdir()
    async with open_database("sqlite", tmp_path) as database:
        ledger = SqlLedger(database)
        (task, first), (other, second) = await a_job(ledger), await a_job(ledger)
        await ledger.progress([heard(first, 10), heard(second, 10)])
        await ledger.progress([heard(first, 50, message="half"), heard(first, 60)])
        for path in tmp_path.glob("docmill.db*"):
            shutil.copy(path, tmp_path / "crashed")
        expected = [(await ledger.get(one), await ledger.events(one)) for one in (task.id, other.id)]

    for _ in range(2):
        async with open_database("sqlite", tmp_path / "crashed") as database:
            ledger = SqlLedger(database)
            assert expected == [(await ledger.get(one), await ledger.events(one)) for one in (task.id, other.id)]
    async with open_database("sqlite", tmp_path / "crashed") as database:
        ledger = SqlLedger(database)
        assert [Verdict.APPLIED] == await ledger.progress([heard(first, 70)])
        events = await ledger.events(task.id)
        assert list(range(1, len(events) + 1)) == [event.seq for event in events]


async def test_reports_of_a_task_that_somebody_changed_without_them_are_left_out(tmp_path: Path) -> None:
    """It cannot be; but if it were, nothing would be doubled, and no other job suffer."""
    change = Statement("UPDATE tasks SET version = version + 1 WHERE id = :id")

    def behind_its_back() -> Op[None]:
        yield change(id=task.id)

    async with open_database("sqlite", tmp_path) as database:
        ledger = SqlLedger(database)
        (task, first), (other, second) = await a_job(ledger), await a_job(ledger)
        await ledger.progress([heard(first, 50), heard(second, 50)])
        await database.write(behind_its_back(), later=post)
        changed, fine = await ledger.get(task.id), await ledger.get(other.id)
        assert changed
        assert fine
        assert (task.progress, task.event_seq) == (changed.progress, changed.event_seq)
        assert fine.progress > other.progress
        assert [0, 1] == [len(await told(ledger, one.id)) for one in (task, other)]
        assert [Verdict.APPLIED] == await ledger.progress([heard(first, 60)])
        assert 1 == len(await told(ledger, task.id))


def test_a_deadline_from_before_the_clock_was_set_back_is_set_anew() -> None:
    """The sweeper may have mended the row meanwhile, and a job whose deadline nobody moves is given up."""
    now_ms = 1_800_000_000_000
    job = _Job(
        "a", 1, 1, 1, 10, now_ms, "a", "running", "parse", "handed_over", "hash", None, None, None, TIMEOUT_MS, None, 1
    )

    assert [True, False, True, False] == [job.lives(None, now_ms - ago) for ago in (0, 0, 3_600_000, 3_600_000)]
    assert job.deadline_ms == now_ms - 3_600_000 + TIMEOUT_MS + 5_000


async def test_two_reports_of_one_job_in_one_batch_are_two_lines(ledger: SqlLedger) -> None:
    task, job = await a_job(ledger)
    said = [heard(job, 20, process_id="sec-1"), heard(job, 10, message="later", process_id="sec-2")]

    assert [Verdict.APPLIED, Verdict.APPLIED] == await ledger.progress(said)
    assert [(19, ""), (19, "later")] == [(line["progress"], line["message"]) for line in await told(ledger, task.id)]
    found = await ledger.find(job.id)
    assert found
    assert ("sec-2", "sec-2", 19) == (found[0].provider_task_id, found[1].process_id, found[0].progress)
    assert encode(face_of(found[0])) == await face(ledger, task.id)


async def test_watchers_are_told(ledger: SqlLedger) -> None:
    task, job = await a_job(ledger)
    ports = ports_of(ledger)
    with ports.signals.subscribe(task.id) as watching:
        await Gathering(ports).report(heard(job, 10))
        assert task.id == await watching.wait(30)
        await Gathering(ports).report(heard(job, 20, token_hash="wrong"))
        assert await watching.wait(0.05) is None


async def test_a_door_that_remembers_a_job_still_knows_who_holds_it(ledger: SqlLedger, tmp_path: Path) -> None:
    """After a take-over the old token is refused at once and the new one holds; after a cancel the worker is told."""
    task, job = await a_job(ledger, digest("old"))
    ports = SimpleNamespace(ledger=ledger, signals=LocalSignals(), limiter=None, scratch=tmp_path)
    door = CallbackDoor(Secretary(), ports, CallbackOptions())  # type: ignore[arg-type]
    fine = {"status": "ok", "kind": "progress", "jobId": str(job.id)}
    assert (200, fine) == await call(door, job.id, "old")
    assert (200, fine) == await call(door, job.id, "old")
    assert 401 == (await call(door, job.id, "wrong"))[0]

    await hand_over(ledger, task, digest("new"))
    assert 401 == (await call(door, job.id, "old"))[0]
    assert (200, fine) == await call(door, job.id, "new")
    assert 401 == (await call(door, job.id, "old"))[0]

    await ledger.decide(task.id, lambda task, attempt: machine.cancel(task, attempt, force=True))
    assert (200, fine | {"cancel_requested": True}) == await call(door, job.id, "new")
    assert 3 == len(await told(ledger, task.id))
    assert [] == list(tmp_path.glob("callback-*"))


async def call(door: CallbackDoor, job_id: UUID, token: str) -> tuple[int, dict[str, Any]]:
    body = json.dumps({"phase": "ocr", "progress": 5}).encode()
    headers = [(b"authorization", f"Bearer {token}".encode()), (b"content-length", str(len(body)).encode())]
    scope = {"type": "http", "path": "/", "headers": headers, "state": {}}
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    await door.take(str(job_id), scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


@contextmanager
def asked(ledger: SqlLedger) -> Iterator[list[Statement]]:
    """The statements of progress that its database runs meanwhile."""
    database, seen = ledger._database, []
    write = database.write

    def watched(op: Op[Any]) -> Op[Any]:
        rows = None
        while True:
            try:
                query = op.send(rows)  # type: ignore[arg-type]  # the first is None
            except StopIteration as stop:
                return stop.value
            seen.append(query.statement)  # type: ignore[union-attr]
            rows = yield query

    database.write = lambda op, **how: write(watched(op), **how)  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        del database.write


class Counting:
    """A ledger that remembers how large its batches were."""

    def __init__(self, ledger: SqlLedger) -> None:
        self._ledger = ledger
        self.sizes: list[int] = []

    async def progress(self, reports: Sequence[Heard]) -> list[Verdict | None]:
        self.sizes.append(len(reports))
        return await self._ledger.progress(reports)


class Slow:
    """A ledger that waits to be let go, and fails once when told to."""

    def __init__(self, ledger: SqlLedger) -> None:
        self._ledger = ledger
        self.asked, self.go, self.fails = asyncio.Event(), asyncio.Event(), False

    async def progress(self, reports: Sequence[Heard]) -> list[Verdict | None]:
        self.asked.set()
        await self.go.wait()
        if self.fails:
            self.fails = False
            raise Unavailable("database_unavailable")
        return await self._ledger.progress(reports)


def ports_of(ledger: Any) -> Any:
    return SimpleNamespace(ledger=ledger, signals=LocalSignals())
