"""What attempts leave in the store that came to nothing: collected when it is old, and never anything that counts."""

from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from docmill import compose
from docmill.core import machine
from docmill.core.access import LOCAL
from docmill.core.machine import StageResult, Verdict
from docmill.core.reports import Failed, Final, Succeeded
from docmill.core.task import Artifacts, Attempt, Fault, Task
from docmill.ports import NewTask, Ports
from docmill.settings import Settings
from docmill.work import sweep
from docmill.work.finish import finish
from docmill.work.objects import objects
from docmill.work.receive import receive
from docmill.work.stages.step import Step, brief_key, folders_of, result_prefix

LATER = 10_000_000


def new_task() -> NewTask:
    from docmill.core.task import Wishes

    return NewTask(LOCAL.tenant, LOCAL.user, 1, "a.txt", f"users/{LOCAL.user}/raw/1/x.txt", 1, Wishes())


async def began(ports: Ports, task: Task) -> Attempt:
    assert task.attempt_id
    taken = await ports.ledger.claim(task.attempt_id, worker="w", lease_ms=60_000)
    assert taken
    return taken[1]


async def left(ports: Ports, task: Task, attempt: Attempt) -> list[str]:
    """The artifacts that a parse leaves before its commit, and a job's result and brief."""
    store = objects(ports, task.tenant)
    step = Step(task, attempt, lambda _done, _total: None)
    keys = [step.key("mineru.md"), step.key("assets/a.png"), brief_key(attempt.id), result_prefix(attempt.id) + "o.zip"]
    for key in keys:
        await store.put_bytes(key, b"bytes")
    return keys


async def are_there(ports: Ports, task: Task, keys: list[str]) -> set[bool]:
    return {await objects(ports, task.tenant).stat(key) is not None for key in keys}


async def test_only_old_leavings_of_attempts_that_came_to_nothing_are_collected(tmp_path: Path) -> None:
    async with compose.opened(Settings(data=tmp_path)) as real:
        ports = replace(real, limits=replace(real.limits, leavings_ms=0))
        task, _ = await ports.ledger.open(new_task(), attempt_id=uuid4())
        other, _ = await ports.ledger.open(new_task(), attempt_id=uuid4())
        source = f"users/{LOCAL.user}/raw/1/x.txt"
        await objects(ports, task.tenant).put_bytes(source, b"source")
        failing, working = await began(ports, task), await began(ports, other)
        lost, held = await left(ports, task, failing), await left(ports, other, working)
        fault = Failed(Fault("stage_failed", "x", "mineru"), retryable=True)
        again = (await receive(ports, task.id, failing.id, fault)).task

        assert 0 == await sweep.collect(replace(ports, limits=replace(ports.limits, leavings_ms=LATER)))
        assert {True} == await are_there(ports, task, lost)

        # The clock of the database is in milliseconds, and the attempt may have ended in this very one.
        while not await ports.ledger.leavings(older_ms=0, limit=10):
            pass
        assert len(lost) == await sweep.collect(ports)
        assert {False} == await are_there(ports, task, lost)
        assert {True} == await are_there(ports, other, held), "it is being worked on"
        assert {True} == await are_there(ports, task, [source])
        assert 0 == await sweep.collect(ports), "once is enough"

        kept = Artifacts(held[0], held[0], None)
        done = await receive(ports, other.id, working.id, Succeeded(StageResult(artifacts=kept)))
        assert again.attempt_id
        assert done.task.attempt_id

        await ports.ledger.decide(other.id, lambda task, attempt: machine.cancel(task, attempt, force=True))
        while not await ports.ledger.leavings(older_ms=0, limit=10):
            pass
        await sweep.collect(ports)
        assert {True} == await are_there(ports, other, held), "a retry may start from it"


async def test_of_a_job_that_succeeded_only_what_other_reports_stored_is_collected(tmp_path: Path) -> None:
    """Both reports were read while the job ran, so both stored their bytes; the ledger took the first."""
    async with compose.opened(Settings(data=tmp_path)) as real:
        ports = replace(real, limits=replace(real.limits, leavings_ms=0))
        task, _ = await ports.ledger.open(new_task(), attempt_id=uuid4())
        attempt = await began(ports, task)
        texts = [tmp_path / name for name in ("first.md", "second.md")]
        for text in texts:
            text.write_text(text.stem)

        first = await finish(ports, task, attempt, Final(text=texts[0]), outcome_hash="1")
        second = await finish(ports, task, attempt, Final(text=texts[1]), outcome_hash="2")

        assert (Verdict.APPLIED, Verdict.CONFLICT) == (first.verdict, second.verdict)
        kept = first.task.artifacts
        store = objects(ports, task.tenant)
        assert b"first\n" == await store.read(kept.markdown_key or "")
        folder = ports.store.list(store.prefix + folders_of(task.owner, 1, task.id, attempt.id)[0])
        assert 4 == len([key async for key, _, _ in folder]), "the Markdown and the parse of both"
        while not await ports.ledger.reported(older_ms=0, limit=10):
            pass
        assert 2 == await sweep.collect(ports)
        assert {True} == await are_there(ports, task, [kept.markdown_key or "", kept.parsed_key or ""])
        assert b"first\n" == await store.read(kept.markdown_key or "")
        assert 0 == await sweep.collect(ports), "once is enough"
