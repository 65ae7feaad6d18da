"""Progress of jobs: what every ledger promises of a report, alone and among many at once."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from docmill.adapters.signals.local import LocalSignals
from docmill.adapters.sql import migrate
from docmill.adapters.sql.ledger import SqlLedger
from docmill.adapters.sql.rows import encode
from docmill.adapters.sql.sqlite import SqliteDatabase
from docmill.adapters.sql.statement import Op, Statement
from docmill.core import machine
from docmill.core.errors import NotFound
from docmill.core.face import face_of
from docmill.core.machine import Change, Handover, Verdict
from docmill.core.reports import Progress
from docmill.core.task import Attempt, Task
from docmill.dialects.base import digest
from docmill.dialects.secretary import Secretary
from docmill.http import callbacks
from docmill.http.callbacks import CallbackDoor, CallbackOptions
from docmill.ports import Filter, Limits
from docmill.work.receive import receive
from support.databases import KINDS, open_database, url_of
from support.ledgers import ANNA, claimed, opened, report_progress, succeed

TIMEOUT_MS = 600_000
PROGRESS = {"phase": "", "message": ""}


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


async def cancel(ledger: SqlLedger, task: Task) -> None:
    await ledger.decide(task.id, lambda task, attempt: machine.cancel(task, attempt, force=True))


async def lines_of(ledger: SqlLedger, task_id: int) -> list[dict[str, Any]]:
    """The progress in the task's log, whose numbers have no gap."""
    events = await ledger.events(task_id)
    task = await ledger.get(task_id)
    assert task
    assert list(range(1, task.event_seq + 1)) == [event.seq for event in events]
    return [event.data for event in events if event.kind == "progress"]


async def summary_of(ledger: SqlLedger, task_id: int) -> str:
    """The task as lists show it."""
    page = await ledger.faces(Filter(ANNA, before=task_id + 1, limit=1))
    return page.faces[0][1]


@pytest.mark.parametrize("percent", [None, -5, 0, 0.4, 42, 99.9, 100, 250])
async def test_a_report_is_in_the_task_its_job_its_log_and_the_lists(ledger: SqlLedger, percent: float | None) -> None:
    task, job = await a_job(ledger)
    for said in (
        {"phase": "extract_text", "message": "Seite 1"},
        {"phase": "ocr", "process_id": "sec-1"},
        {"message": "zurück \U0001f600 \"'\\", "process_id": "sec-1"},
        {"process_id": "sec-2"},
    ):
        assert Verdict.APPLIED is await report_progress(ledger, job, percent, **said)
        found = await ledger.find(job.id)
        assert found
        [*_, line] = await lines_of(ledger, task.id)
        expected = machine.progress_said(found[0].progress, said.get("phase", ""), said.get("message", ""), percent)
        assert expected == line
        assert machine.reached(job.stage, percent, task.progress) == found[0].progress
        assert (said.get("process_id"), None) == (found[1].process_id, found[1].lease_ms)
        assert said.get("process_id") == found[0].provider_task_id
        assert encode(face_of(found[0])) == await summary_of(ledger, task.id)
    assert 4 == len(await lines_of(ledger, task.id))


async def test_progress_never_falls_and_each_report_restarts_the_deadline(ledger: SqlLedger) -> None:
    task, job = await a_job(ledger)
    assert job.deadline_ms
    reached = []
    for percent in (80, 10):
        await report_progress(ledger, job, percent)
        found = await ledger.find(job.id)
        assert found
        assert found[0].updated_ms + TIMEOUT_MS == found[1].deadline_ms
        reached.append(found[0].progress)

    assert [reached[0]] * 2 == reached
    assert reached[0] > task.progress


async def test_the_machine_says_of_each_of_many_why_it_did_not_count(ledger: SqlLedger) -> None:
    (_, fine), (dropped_task, dropped), (done_task, done), (taken_task, taken) = [await a_job(ledger) for _ in range(4)]
    await cancel(ledger, dropped_task)
    await succeed(ledger, done_task.id, done.id)
    await hand_over(ledger, taken_task, "another")
    before = {task.id: await ledger.get(task.id) for task in (dropped_task, done_task, taken_task)}

    jobs = (taken, fine, done, dropped)
    verdicts = await asyncio.gather(*(report_progress(ledger, one, 50) for one in jobs))

    assert [Verdict.REPLACED, Verdict.APPLIED, Verdict.CONFLICT, Verdict.SUPERSEDED] == verdicts
    assert before == {task_id: await ledger.get(task_id) for task_id in before}, "they changed nothing"
    assert Verdict.APPLIED is await report_progress(ledger, taken, 50, token_hash="another")


async def test_a_report_of_an_attempt_before_the_current_one_changes_nothing(ledger: SqlLedger) -> None:
    task, job = await a_job(ledger)
    await cancel(ledger, task)
    again = await ledger.decide(task.id, lambda task, _: machine.retry(task, from_stage="mineru", next_id=uuid4()))

    assert Verdict.SUPERSEDED is await report_progress(ledger, job, 50)
    assert again.task == await ledger.get(task.id)


async def test_reports_among_other_decisions_lose_nothing_and_none_follows_the_end(ledger: SqlLedger) -> None:
    jobs = [await a_job(ledger) for _ in range(12)]
    reports = [report_progress(ledger, job, 50) for _ in range(10) for _, job in jobs]
    ends = [cancel(ledger, task) for task, _ in jobs[::3]]
    verdicts = (await asyncio.gather(*reports[:60], *ends, *reports[60:]))[:60]
    assert {Verdict.APPLIED} >= set(verdicts) - {Verdict.SUPERSEDED}

    for task, _ in jobs:
        found = await ledger.get(task.id)
        assert found
        lines = await lines_of(ledger, task.id)
        if found.is_final:
            assert "cancelled" == (await ledger.events(task.id))[-1].kind
        else:
            assert 10 == len(lines)
        assert encode(face_of(found)) == await summary_of(ledger, task.id)


async def test_reports_of_one_job_at_once_are_one_line_each_and_progress_only_rises(ledger: SqlLedger) -> None:
    task, job = await a_job(ledger)
    percents = [20, 90, 40, 70, 10, 60]
    said = [report_progress(ledger, job, percent, message=str(percent)) for percent in percents]
    assert [Verdict.APPLIED] * 6 == await asyncio.gather(*said)

    lines = await lines_of(ledger, task.id)
    assert sorted(map(str, percents)) == sorted(line["message"] for line in lines)
    reached = [line["progress"] for line in lines]
    assert sorted(reached) == reached


async def test_reports_one_after_the_other_are_in_the_log_in_their_order(ledger: SqlLedger) -> None:
    jobs = [await a_job(ledger) for _ in range(6)]

    async def work(job: Attempt) -> None:
        for percent in range(0, 100, 10):
            assert Verdict.APPLIED is await report_progress(ledger, job, percent, message=str(percent))

    await asyncio.gather(*(work(job) for _, job in jobs))
    for task, _ in jobs:
        assert [str(n) for n in range(0, 100, 10)] == [line["message"] for line in await lines_of(ledger, task.id)]


async def test_a_final_among_a_flood_of_progress_counts_and_ends_it(ledger: SqlLedger) -> None:
    (task, job), (other, flooding) = await a_job(ledger), await a_job(ledger)
    flood = [asyncio.ensure_future(report_progress(ledger, one, 50)) for _ in range(40) for one in (job, flooding)]
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        change = await succeed(ledger, task.id, job.id)
        verdicts = await asyncio.gather(*flood)

    assert Verdict.APPLIED is change.verdict
    assert {Verdict.APPLIED} == set(verdicts[1::2])
    assert verdicts[::2].count(Verdict.APPLIED) == len(await lines_of(ledger, task.id))
    assert 40 == len(await lines_of(ledger, other.id))
    assert "stage_succeeded" == (await ledger.events(task.id))[-1].kind


async def test_a_report_that_cannot_be_written_takes_no_other_with_it(ledger: SqlLedger) -> None:
    jobs = [await a_job(ledger) for _ in range(3)]
    texts = ("fine", "half a pair: \ud800", "fine")
    said = [report_progress(ledger, job, 50, message=text) for (_, job), text in zip(jobs, texts, strict=True)]
    outcomes = await asyncio.gather(*said, return_exceptions=True)

    assert [Verdict.APPLIED, Verdict.APPLIED] == outcomes[::2]
    assert isinstance(outcomes[1], ValueError)
    assert [1, 0, 1] == [len(await lines_of(ledger, task.id)) for task, _ in jobs]


async def test_what_was_answered_survives_a_crash(tmp_path: Path) -> None:
    """The files as they are right after the answers, which is all that a crash leaves."""
    (tmp_path / "crashed").mkdir()
    async with open_database("sqlite", tmp_path) as database:
        ledger = SqlLedger(database)
        jobs = [await a_job(ledger) for _ in range(3)]
        await asyncio.gather(*(report_progress(ledger, job, 50, message="half") for _, job in jobs))
        for path in tmp_path.glob("docmill.db*"):
            shutil.copy(path, tmp_path / "crashed")
        expected = [(await ledger.get(task.id), await ledger.events(task.id)) for task, _ in jobs]

    async with open_database("sqlite", tmp_path / "crashed") as database:
        ledger = SqlLedger(database)
        assert expected == [(await ledger.get(task.id), await ledger.events(task.id)) for task, _ in jobs]
        assert Verdict.APPLIED is await report_progress(ledger, jobs[0][1], 70)
        assert 2 == len(await lines_of(ledger, jobs[0][0].id))


async def test_watchers_hear_of_reports_that_count(ledger: SqlLedger) -> None:
    task, job = await a_job(ledger)
    ports: Any = SimpleNamespace(ledger=ledger, signals=LocalSignals(), runstate=None, limits=Limits())

    async def report(token_hash: str) -> Change:
        return await receive(ports, task.id, job.id, Progress(10), token_hash=token_hash)

    with ports.signals.subscribe(task.id) as watching:
        await report("hash")
        assert task.id == await watching.wait(1)
        await report("wrong")
        assert await watching.wait(0.05) is None


async def test_a_report_of_a_task_that_is_gone_is_not_found(ledger: SqlLedger) -> None:
    _, job = await a_job(ledger)
    with pytest.raises(NotFound):
        await ledger.decide(999_999, lambda task, _: machine.note(task, machine.Event("noted")), attempt_id=job.id)
    assert await ledger.find_attempt(uuid4()) is None
    assert (await ledger.find(job.id) or ())[1] == await ledger.find_attempt(job.id)


async def test_after_a_takeover_the_old_token_is_refused_and_after_a_cancel_the_worker_hears_of_it(
    ledger: SqlLedger, tmp_path: Path
) -> None:
    task, job = await a_job(ledger, digest("old"))
    ports = SimpleNamespace(
        ledger=ledger, signals=LocalSignals(), runstate=None, limits=Limits(), limiter=None, scratch=tmp_path
    )
    door = CallbackDoor(Secretary(), ports, CallbackOptions())  # type: ignore[arg-type]
    fine = {"status": "ok", "kind": "progress", "jobId": str(job.id)}
    assert (200, fine) == await call(door, job.id, "old")
    assert (200, fine) == await call(door, job.id, "old")
    assert 401 == (await call(door, job.id, "wrong"))[0]

    await hand_over(ledger, task, digest("new"))
    assert 401 == (await call(door, job.id, "old"))[0]
    assert (200, fine) == await call(door, job.id, "new")
    assert 401 == (await call(door, job.id, "old"))[0]

    await cancel(ledger, task)
    assert (200, fine | {"cancel_requested": True}) == await call(door, job.id, "new")
    assert 3 == len(await lines_of(ledger, task.id))
    assert [] == list(tmp_path.glob("callback-*"))


async def test_a_takeover_while_the_body_arrives_makes_the_old_token_void(ledger: SqlLedger, tmp_path: Path) -> None:
    task, job = await a_job(ledger, digest("old"))
    ports = SimpleNamespace(
        ledger=ledger, signals=LocalSignals(), runstate=None, limits=Limits(), limiter=None, scratch=tmp_path
    )
    door = CallbackDoor(Secretary(), ports, CallbackOptions())  # type: ignore[arg-type]
    asked, go = asyncio.Event(), asyncio.Event()

    async def slowly() -> None:
        asked.set()
        await go.wait()

    calling = asyncio.ensure_future(call(door, job.id, "old", before_body=slowly))
    await asyncio.wait_for(asked.wait(), 10)
    await hand_over(ledger, task, digest("new"))
    go.set()

    assert 401 == (await asyncio.wait_for(calling, 10))[0]
    assert [] == await lines_of(ledger, task.id)


async def test_a_body_that_stops_arriving_is_given_up_and_the_next_report_counts(
    ledger: SqlLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, job = await a_job(ledger, digest("token"))
    ports = SimpleNamespace(
        ledger=ledger, signals=LocalSignals(), runstate=None, limits=Limits(), limiter=None, scratch=tmp_path
    )
    door = CallbackDoor(Secretary(), ports, CallbackOptions())  # type: ignore[arg-type]
    with monkeypatch.context() as shorter:
        shorter.setattr(callbacks, "IDLE_S", 0.05)
        status, body = await asyncio.wait_for(call(door, job.id, "token", before_body=asyncio.Event().wait), 10)

    assert 400 == status
    assert "stopped arriving" in json.dumps(body)
    assert 200 == (await call(door, job.id, "token"))[0]


async def call(door: CallbackDoor, job_id: UUID, token: str, before_body: Any = None) -> tuple[int, dict[str, Any]]:
    body = json.dumps({"phase": "ocr", "progress": 5}).encode()
    headers = [(b"authorization", f"Bearer {token}".encode()), (b"content-length", str(len(body)).encode())]
    scope = {"type": "http", "path": "/", "headers": headers, "state": {}}
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        if before_body:
            await before_body()
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    await door.take(str(job_id), scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


ENTER = Statement(
    """
    INSERT INTO daybook (task_id, seq, version, progress, updated_ms, data, at_ms)
    VALUES (:task_id, :seq, :version, :progress, :updated_ms, :data, :at_ms)
    """
)


async def test_reports_that_an_earlier_version_left_in_the_daybook_are_kept_by_the_migration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = migrate.known()
    monkeypatch.setattr(migrate, "known", lambda: [one for one in newest if one.number < 20])
    database = SqliteDatabase(tmp_path / "docmill.db")
    await migrate.migrate(database)
    ledger = SqlLedger(database)
    task, job = await a_job(ledger)
    changed, _ = await a_job(ledger)
    found = await ledger.get(task.id)
    assert found

    def enter() -> Op[None]:
        for step in (1, 2):
            line = {"seq": found.event_seq + step, "version": found.version + step, "progress": 20 + step}
            data = encode(PROGRESS | {"progress": 20 + step})
            yield ENTER(task_id=task.id, **line, updated_ms=found.updated_ms + step, data=data, at_ms=step)
        # Of a task that stands elsewhere nothing is changed.
        yield ENTER(task_id=changed.id, seq=99, version=99, progress=55, updated_ms=99, data="{}", at_ms=9)

    await database.write(enter())
    before = await ledger.get(changed.id)
    monkeypatch.undo()
    assert "0020_drop_daybook.sqlite.sql" in await migrate.migrate(database)

    assert [PROGRESS | {"progress": 21}, PROGRESS | {"progress": 22}] == await lines_of(ledger, task.id)
    moved = await ledger.get(task.id)
    assert moved
    assert (22, found.version + 2, found.updated_ms + 2) == (moved.progress, moved.version, moved.updated_ms)
    assert before == await ledger.get(changed.id)
    assert Verdict.APPLIED is await report_progress(ledger, job, 70)
    assert 3 == len(await lines_of(ledger, task.id))
    await database.close()
