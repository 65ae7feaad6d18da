"""The rules of the machine, row by row of its table."""

from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from docmill.core import machine
from docmill.core.errors import Conflict, Invalid
from docmill.core.machine import Change, StageResult, Verdict
from docmill.core.task import Artifacts, Attempt, Fault, Stage, State, Status, Task, TwinWish, Wishes

ID = UUID(int=1)
NEXT = UUID(int=2)
BROKEN = Fault("document_broken", "it is broken", "mineru")


def a_task(status: Status = Status.RUNNING, stage: Stage = Stage.PARSE, **changes: object) -> Task:
    task = Task(
        id=1, tenant="t", owner="o", project_id=1, filename="a.pdf", source_key="k", rule_id=1, status=status,
        stage=stage, attempt=1, attempt_id=ID, version=1, event_seq=1,
    )  # fmt: skip
    return replace(task, **changes)  # type: ignore[arg-type]


def an_attempt(state: State = State.RUNNING, stage: Stage = Stage.PARSE, id_: UUID = ID) -> Attempt:
    return Attempt(id_, 1, 1, stage, state)


def kinds(change: Change) -> list[str]:
    return [event.kind for event in change.events]


def test_a_claim_starts_a_pending_task() -> None:
    change = machine.claim(a_task(Status.PENDING), an_attempt(State.QUEUED), owner="w")

    assert (Status.RUNNING, 10, ["started"]) == (change.task.status, change.task.progress, kinds(change))


@pytest.mark.parametrize(
    ("task", "attempt"),
    [
        (a_task(Status.PENDING), an_attempt(State.QUEUED, id_=NEXT)),
        (a_task(Status.PENDING), an_attempt(State.RUNNING)),
        (a_task(Status.CANCELLED), an_attempt(State.QUEUED)),
    ],
)
def test_a_claim_of_what_is_not_to_be_had_changes_nothing(task: Task, attempt: Attempt) -> None:
    assert Change(Verdict.SUPERSEDED, task) == machine.claim(task, attempt, owner="w")


def test_progress_moves_by_pages_within_the_range_of_its_stage_and_never_falls() -> None:
    task = a_task(progress=10)
    half = machine.on_progress(task, an_attempt(), done=5, total=10).task
    back = machine.on_progress(half, an_attempt(), done=2, total=10).task
    full = machine.on_progress(half, an_attempt(), done=99, total=10).task

    assert (32, 32, 55) == (half.progress, back.progress, full.progress)
    assert 5 == back.pages_done


def test_a_stage_that_succeeds_opens_the_next_and_the_last_completes() -> None:
    result = StageResult(artifacts=Artifacts("m", "p"))
    parsed = machine.on_success(a_task(), an_attempt(), result, next_id=NEXT)
    assert parsed.opens
    assert (Stage.POSTPROCESS, NEXT, None) == (parsed.task.stage, parsed.opens.id, parsed.opens.owner)
    assert ((ID, State.SUCCEEDED),) == parsed.ends

    published = machine.on_success(
        a_task(stage=Stage.PUBLISH), an_attempt(stage=Stage.PUBLISH), StageResult(), next_id=NEXT
    )
    assert (Status.COMPLETED, 100, None) == (published.task.status, published.task.progress, published.opens)


def test_the_same_outcome_again_is_a_duplicate() -> None:
    done = a_task(Status.COMPLETED, Stage.PUBLISH)

    again = machine.on_success(done, an_attempt(State.SUCCEEDED), StageResult(), next_id=NEXT)

    assert Change(Verdict.DUPLICATE, done) == again


@pytest.mark.parametrize("state", [State.DROPPED, State.GIVEN_BACK, State.FAILED, State.QUEUED])
def test_what_is_not_at_work_cannot_succeed(state: State) -> None:
    change = machine.on_success(a_task(), an_attempt(state), StageResult(), next_id=NEXT)

    assert Verdict.SUPERSEDED is change.verdict


def test_a_retryable_error_waits_longer_each_time_and_then_fails() -> None:
    task, delays = a_task(), []
    for _ in range(machine.MAX_ERRORS):
        attempt = replace(an_attempt(), id=task.attempt_id)
        change = machine.on_failure(
            replace(task, status=Status.RUNNING), attempt, BROKEN, retryable=True, crashed=False, next_id=uuid4()
        )
        task = change.task
        if change.opens:
            delays.append(change.opens.delay_ms)

    assert [1000, 2000] == delays
    assert (Status.FAILED, BROKEN) == (task.status, task.fault)


def test_an_absent_service_is_waited_for_longer() -> None:
    task, delays = a_task(), []
    while not task.is_final:
        change = machine.on_failure(
            replace(task, status=Status.RUNNING),
            replace(an_attempt(), id=task.attempt_id),
            BROKEN,
            retryable=True,
            crashed=False,
            next_id=uuid4(),
            tries=machine.MAX_ABSENCES,
        )
        task = change.task
        delays += [change.opens.delay_ms] if change.opens else []

    assert [1000, 2000, 4000, 8000, 16000, 16000, 16000] == delays


def test_what_is_postponed_is_tried_for_ever_and_counts_as_no_error() -> None:
    task, attempt, delays = a_task(errors=machine.MAX_ERRORS - 1), an_attempt(), []
    for number in range(1, 101):
        change = machine.on_failure(
            replace(task, status=Status.RUNNING),
            replace(attempt, id=task.attempt_id, number=number),
            BROKEN,
            retryable=True,
            crashed=False,
            next_id=uuid4(),
            is_postponed=True,
        )
        assert change.opens
        task = change.task
        delays.append(change.opens.delay_ms)

    assert (Status.PENDING, machine.MAX_ERRORS - 1) == (task.status, task.errors)
    assert [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000] == delays[:8]
    assert machine.MAX_POSTPONED_MS == max(delays)


def test_a_document_that_kills_its_parser_three_times_fails_as_a_crash() -> None:
    task = a_task(crashes=machine.MAX_CRASHES - 1)

    change = machine.on_failure(task, an_attempt(), BROKEN, retryable=True, crashed=True, next_id=NEXT)

    assert change.task.fault
    assert (Status.FAILED, "crash") == (change.task.status, change.task.fault.stage)


def test_a_document_error_fails_at_once() -> None:
    change = machine.on_failure(a_task(), an_attempt(), BROKEN, retryable=False, crashed=False, next_id=NEXT)

    assert (Status.FAILED, None) == (change.task.status, change.opens)


def test_giving_back_costs_no_attempt() -> None:
    change = machine.give_back(a_task(progress=30), an_attempt(), next_id=NEXT)

    assert change.opens
    assert (Status.PENDING, 1, 1) == (change.task.status, change.task.attempt, change.opens.number)
    assert 30 == change.task.progress


LOST = Fault("worker_lost", "gone", "lost")


def lose_worker(task: Task, max_lost_alone: int = 3) -> Change:
    return machine.on_lost_worker(task, an_attempt(), next_id=NEXT, fault=LOST, max_lost_alone=max_lost_alone)


def test_a_lost_worker_costs_one_attempt_and_later_ones_wait() -> None:
    change = lose_worker(a_task())
    assert (Status.PENDING, 2, 1) == (change.task.status, change.task.attempt, change.task.lost_workers)

    delays = [lose_worker(a_task(lost_workers=n)).opens.delay_ms for n in (0, 1, 2, 3, 50)]  # type: ignore[union-attr]
    assert [0, 0, 250, 500, 1_000] == delays, "a suspect lets the others go first"


def test_only_workers_lost_by_a_task_that_ran_alone_fail_it() -> None:
    beside_others = a_task(lost_workers=50)
    assert Status.PENDING is lose_worker(beside_others).task.status
    assert machine.is_suspect(beside_others)

    alone = machine.isolate(beside_others, an_attempt()).task
    once = lose_worker(alone).task
    assert (Status.PENDING, 1, False) == (once.status, once.lost_alone, once.runs_alone)

    last = lose_worker(replace(alone, lost_alone=2)).task
    assert (Status.FAILED, LOST) == (last.status, last.fault)


def test_a_stage_that_succeeds_clears_the_suspicion() -> None:
    suspect = a_task(lost_workers=9, lost_alone=1, runs_alone=True)

    done = machine.on_success(suspect, an_attempt(), StageResult(), next_id=NEXT).task

    assert (0, 0, False) == (done.lost_workers, done.lost_alone, done.runs_alone)


def test_pending_can_be_cancelled_running_only_by_force_and_final_never() -> None:
    assert Status.CANCELLED is machine.cancel(a_task(Status.PENDING), None, force=False).task.status
    assert Status.CANCELLED is machine.cancel(a_task(), an_attempt(), force=True).task.status
    with pytest.raises(Conflict, match="force=true"):
        machine.cancel(a_task(), an_attempt(), force=False)
    for final in (Status.COMPLETED, Status.FAILED, Status.CANCELLED):
        with pytest.raises(Conflict) as refused:
            machine.cancel(a_task(final), None, force=True)
        assert "task_finished" == refused.value.code


def test_a_retry_needs_its_input() -> None:
    bare = a_task(Status.FAILED)
    with pytest.raises(Conflict) as refused:
        machine.retry(bare, from_stage="postprocess", next_id=NEXT)
    assert "artifact_missing" == refused.value.code
    with pytest.raises(Conflict):
        machine.retry(replace(bare, source_key=""), from_stage="mineru", next_id=NEXT)
    with pytest.raises(Invalid):
        machine.retry(bare, from_stage="publish", next_id=NEXT)
    with pytest.raises(Conflict):
        machine.retry(a_task(Status.PENDING), from_stage="mineru", next_id=NEXT)


def test_a_retry_from_postprocess_keeps_the_markdown_and_one_from_parse_forgets_it() -> None:
    done = a_task(Status.COMPLETED, Stage.PUBLISH, artifacts=Artifacts("m", "p", "o"), fault=BROKEN, progress=100)

    later = machine.retry(done, from_stage="postprocess", next_id=NEXT).task
    anew = machine.retry(done, from_stage="mineru", next_id=NEXT).task

    assert (Artifacts("m", "p", None), Artifacts()) == (later.artifacts, anew.artifacts)
    assert (2, 2, 0, None) == (later.attempt, later.run, later.progress, later.fault)


def a_job(**changes: object) -> Attempt:
    job = Attempt(ID, 1, 1, Stage.PARSE, State.HANDED_OVER, dialect="secretary", timeout_ms=600_000)
    return replace(job, **changes)  # type: ignore[arg-type]


def test_an_error_that_a_worker_logs_shortens_the_deadline_and_changes_no_state() -> None:
    change = machine.on_worker_error(a_task(progress=30), a_job(), BROKEN, grace_ms=30_000, process_id="p-1")

    assert (Verdict.APPLIED, Status.RUNNING, 30, ()) == (
        change.verdict, change.task.status, change.task.progress, change.ends,
    )  # fmt: skip
    assert (machine.SignOfLife(ID, 30_000, "p-1"), BROKEN) == (change.sign_of_life, change.failure)
    assert ["worker_error"] == kinds(change)
    short = machine.on_worker_error(a_task(), a_job(timeout_ms=5_000), BROKEN, grace_ms=30_000, process_id=None)
    assert short.sign_of_life
    assert 5_000 == short.sign_of_life.timeout_ms, "never longer than the worker may be silent"


@pytest.mark.parametrize("state", [State.FAILED, State.SUCCEEDED, State.DROPPED])
def test_an_error_that_is_logged_after_the_end_changes_nothing(state: State) -> None:
    task = a_task()
    change = machine.on_worker_error(task, a_job(state=state), BROKEN, grace_ms=30_000, process_id=None)

    assert Change(Verdict.SUPERSEDED, task) == change


@pytest.mark.parametrize(
    ("state", "status", "failure", "expected"),
    [
        (State.RUNNING, Status.RUNNING, None, "queued"),
        (State.HANDED_OVER, Status.RUNNING, BROKEN, "running"),
        (State.FAILED, Status.FAILED, BROKEN, "failed"),
        (State.FAILED, Status.PENDING, BROKEN, "failed"),
        (State.FAILED, Status.CANCELLED, None, "cancelled"),
        (State.DROPPED, Status.FAILED, BROKEN, "failed"),
        (State.DROPPED, Status.CANCELLED, None, "cancelled"),
        (State.SUCCEEDED, Status.RUNNING, None, "running"),
        (State.SUCCEEDED, Status.COMPLETED, None, "completed"),
        (State.SUCCEEDED, Status.FAILED, None, "failed"),
    ],
)
def test_the_status_of_a_job(state: State, status: Status, failure: Fault | None, expected: str) -> None:
    assert expected == machine.job_status(a_task(status), state, failure)


def test_a_job_whose_twin_is_being_stored_says_so() -> None:
    task = a_task(stage=Stage.PUBLISH, wishes=Wishes(twin=TwinWish()))

    assert "pending-storage" == machine.job_status(task, State.SUCCEEDED, None)


@pytest.mark.parametrize(("percent", "expected"), [(None, None), (42.0, 42), (17.5, 17.5), (-3, 0), (250, 100)])
def test_a_progress_line_has_the_worker_s_own_number(percent: float | None, expected: float | None) -> None:
    assert expected == machine.progress_said(28, "ocr", "", percent).get("percent")
