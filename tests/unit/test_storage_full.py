"""Full storage is found wherever an error hides it, and postpones a stage instead of failing it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from docmill.adapters.engines.local import child
from docmill.adapters.engines.local.limits import Limits
from docmill.adapters.engines.slicing.child import Output
from docmill.adapters.sql.ledger import SqlLedger
from docmill.adapters.stores.local import LocalStore
from docmill.core import machine
from docmill.core.access import LOCAL
from docmill.core.errors import DocmillError, Invalid, StageFailed, StorageFull, Unavailable, unwrap
from docmill.core.machine import Change
from docmill.core.task import Attempt, Status, Task
from docmill.ports import Stored
from docmill.remote.errors import is_storage_full
from docmill.work import query
from docmill.work.stages.step import AtStage
from unit.test_worker import SlowEngine, ended, submitted, working

FULL = OSError(errno.ENOSPC, "No space left on device")


def raised_from(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


WRAPPED: dict[str, Callable[[], Exception]] = {
    "bare": lambda: FULL,
    "quota": lambda: OSError(errno.EDQUOT, "Disk quota exceeded"),
    "file size": lambda: OSError(errno.EFBIG, "File too large"),
    "ours": lambda: StorageFull("storage_full"),
    "the parser's child said so": lambda: StageFailed("storage_full"),
    "cause": lambda: raised_from(Unavailable("fetch_failed", why="OSError"), FULL),
    "cause of a cause": lambda: raised_from(ValueError(), raised_from(RuntimeError(), FULL)),
    "group": lambda: ExceptionGroup("tasks", [ValueError(), FULL]),
    "group in a group": lambda: ExceptionGroup("a", [ExceptionGroup("b", [StorageFull("storage_full")])]),
    "group as a cause": lambda: raised_from(StageFailed("storage_failed", why="x"), ExceptionGroup("a", [FULL])),
    "cause in a group": lambda: ExceptionGroup("a", [raised_from(ValueError(), FULL)]),
}


@pytest.mark.parametrize("make", WRAPPED.values(), ids=WRAPPED)
def test_full_storage_is_found_wherever_it_is_hidden(make: Callable[[], Exception]) -> None:
    found = unwrap(make())

    assert isinstance(found, StorageFull)
    assert (507, "storage_full", True) == (found.status, found.code, found.retryable)
    assert is_storage_full(make()), "the worker SDK has its own copy of the rule"


def test_other_errors_stay_what_they_are() -> None:
    ours, others = Invalid("project_invalid"), OSError(errno.EIO, "I/O error")
    looped = ValueError()
    looped.__cause__ = looped

    assert ours is unwrap(ours)
    assert others is unwrap(others)
    assert looped is unwrap(looped)
    assert ours is unwrap(ExceptionGroup("tasks", [others, ExceptionGroup("inner", [ours])]))
    assert others is unwrap(ExceptionGroup("tasks", [others, looped]))
    assert not is_storage_full(ExceptionGroup("tasks", [others, ours]))


@pytest.mark.parametrize("error", [FULL, raised_from(ValueError("cannot save"), FULL)], ids=["bare", "a library's own"])
def test_the_parser_says_that_there_is_no_room(error: Exception) -> None:
    with child.failures(Limits()) as failed:
        raise error

    assert [("stage", "storage_full")] == [(one.kind, one.code) for one in failed]


def test_a_file_that_pdfium_writes_remembers_why_it_could_not() -> None:
    """PDFium ignores the exception and reports only that it failed."""
    with pytest.raises(OSError, match="No space left"), Output(Path("/dev/full")) as output:
        for _ in range(3):
            try:
                output.write(b"x" * 100_000)
            except OSError:
                break
        raise RuntimeError("Failed to save document.")


class FullStore(LocalStore):
    """Has no room for the first few objects."""

    def __init__(self, root: Path, refusals: int) -> None:
        super().__init__(root)
        self.refusals = refusals

    async def put_bytes(self, key: str, data: bytes) -> Stored:
        if self.refusals:
            self.refusals -= 1
            raise StorageFull("storage_full")
        return await super().put_bytes(key, data)


async def test_a_stage_that_finds_no_room_again_and_again_is_tried_until_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parse stores its artifacts in a task group, which hides the error."""
    monkeypatch.setattr(machine, "BACKOFF_MS", 1)
    monkeypatch.setattr(machine, "MAX_POSTPONED_MS", 20)
    store = FullStore(tmp_path / "objects", refusals=3 * machine.MAX_ABSENCES)
    async with working(tmp_path, SlowEngine(0), store=store, sweep=0.05) as ports, asyncio.timeout(60):
        task = await ended(ports, await submitted(ports))
        events = await query.events(ports, LOCAL, task.id, after=0, limit=500)

    assert Status.COMPLETED is task.status, task.fault
    postponed = [event for event in events if event.kind == "retry_scheduled"]
    assert len(postponed) > machine.MAX_ABSENCES
    assert {"storage_full"} == {event.data["code"] for event in postponed}


class FullLedger(SqlLedger):
    """Has no room for the end of a stage, the first three times."""

    refusals = 3

    async def decide(self, task_id: int, rule: Callable[..., Change], **options: object) -> Change:  # type: ignore[override]
        if FullLedger.refusals and options.get("attempt_id"):
            FullLedger.refusals -= 1
            raise StorageFull("storage_full")
        return await super().decide(task_id, rule, **options)  # type: ignore[arg-type]


async def test_what_a_stage_made_is_not_lost_when_its_end_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("docmill.work.run.REPORT_AGAIN_S", 0.01)
    monkeypatch.setattr(FullLedger, "refusals", 3)
    engine = SlowEngine(0)
    async with working(tmp_path, engine, ledger=FullLedger) as ports, asyncio.timeout(30):
        task = await ended(ports, await submitted(ports))

    assert (Status.COMPLETED, 1, 0) == (task.status, task.attempt, FullLedger.refusals)
    assert 1 == engine.done, "the document was parsed again"


def test_an_error_with_its_part_of_the_stage_is_classified_too() -> None:
    from docmill.work.run import _fault

    hidden = raised_from(StageFailed("twin_failed", why="OSError"), FULL)
    at = AtStage(hidden if isinstance(hidden, DocmillError) else StageFailed("stage_failed", why=""), "twin")

    assert "storage_full" == _fault(at.error, Task.__new__(Task), Attempt.__new__(Attempt)).code
