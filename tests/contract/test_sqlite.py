"""What SQLite alone does: one writer that commits in groups, and syncs what must be durable."""

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from docmill.adapters.sql.sqlite import GROUP_S, SqliteDatabase
from docmill.adapters.sql.statement import Op, Query, Statement
from docmill.core.errors import Unavailable
from support.waiting import until

INSERT = Statement("INSERT INTO things (name) VALUES (:name)")
NAMES = Statement("SELECT name FROM things ORDER BY rowid")


class Disk(apsw.VFS):
    """Counts the syncs of write-ahead logs. A test may hold up those of the file itself: each ends a checkpoint."""

    def __init__(self) -> None:
        self.syncs = 0
        self.is_held = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.never_held: set[str] = set()
        """Threads."""
        super().__init__("counting", base="unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return File(self, name, flags)


class File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        self._is_log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)
        super().__init__("unix", name, flags)

    def xSync(self, flags: int) -> None:
        self._disk.syncs += self._is_log
        super().xSync(flags)
        if not self._is_log and threading.current_thread().name not in self._disk.never_held:
            self._disk.is_held.set()
            assert self._disk.may_go_on.wait(60)


@pytest.fixture
def disk() -> Iterator[Disk]:
    before = apsw.vfs_names()[0]
    disk = Disk()
    yield disk
    disk.unregister()
    assert before == apsw.vfs_names()[0]


def add(name: str) -> Op[None]:
    yield Query(INSERT, {"name": name})


def names() -> Op[list[str]]:
    return [row[0] for row in (yield Query(NAMES, {}))]


async def opened(folder: Path) -> SqliteDatabase:
    database = SqliteDatabase(folder / "things.db")
    await database.script("CREATE TABLE IF NOT EXISTS things (name TEXT NOT NULL)")
    return database


async def test_what_is_durable_is_synced_before_the_answer_and_the_rest_with_it(disk: Disk, tmp_path: Path) -> None:
    database = await opened(tmp_path)

    async def syncs_of(name: str, *, durable: bool) -> int:
        before = disk.syncs
        await database.write(add(name), durable=durable)
        return disk.syncs - before

    assert [1, 0, 0, 1] == [
        await syncs_of("a", durable=True),
        await syncs_of("b", durable=False),
        await syncs_of("c", durable=False),
        await syncs_of("d", durable=True),
    ]
    assert ["a", "b", "c", "d"] == await database.read(names())
    await database.close()


async def test_who_comes_to_a_long_group_waits_for_a_part_of_it(tmp_path: Path) -> None:
    database = await opened(tmp_path)
    ended: list[str] = []

    def slow(name: str) -> Op[None]:
        time.sleep(GROUP_S / 4)
        yield from add(name)

    async def write(op: Op[None], name: str, *, durable: bool) -> None:
        await database.write(op, durable=durable)
        ended.append(name)

    crowd = [asyncio.create_task(write(slow(f"{n}"), f"{n}", durable=True)) for n in range(40)]
    await asyncio.sleep(0)
    await asyncio.gather(write(add("soft"), "soft", durable=False), *crowd)

    assert ended.index("soft") < 20
    assert 41 == len(await database.read(names()))
    await database.close()


@pytest.mark.parametrize("bad", [{0}, {2}, {0, 1}, {0, 4}, {0, 1, 2, 3, 4}], ids=str)
async def test_who_fails_in_a_group_is_undone_and_takes_none_with_it(tmp_path: Path, bad: set[int]) -> None:
    database = await opened(tmp_path)
    started = threading.Event()

    def hold() -> Op[None]:
        """Until all others stand in line, so that they share the next commit."""
        assert started.wait(10)
        yield from add("before")

    def write(n: int) -> Op[None]:
        yield from add(f"{n}")
        if n in bad:
            raise ValueError(f"{n}")

    held = asyncio.create_task(database.write(hold(), durable=False))
    await asyncio.sleep(0)
    crowd = [asyncio.create_task(database.write(write(n))) for n in range(5)]
    await asyncio.sleep(0)
    started.set()
    ends = await asyncio.gather(*crowd, return_exceptions=True)
    await held

    assert bad == {n for n, end in enumerate(ends) if isinstance(end, ValueError)}
    assert ["before", *(f"{n}" for n in range(5) if n not in bad)] == await database.read(names())
    await database.close()


async def test_what_was_asked_before_the_end_is_written_and_the_rest_refused(tmp_path: Path) -> None:
    database = await opened(tmp_path)
    asked = [asyncio.create_task(database.write(add(f"{n}"), durable=n % 2 == 0)) for n in range(50)]
    await asyncio.sleep(0)

    await database.close()

    await asyncio.gather(*asked)
    with pytest.raises(Unavailable):
        await database.write(add("late"))
    again = await opened(tmp_path)
    assert {f"{n}" for n in range(50)} == set(await again.read(names()))
    await again.close()


async def test_where_no_transaction_can_begin_everybody_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("docmill.adapters.sql.sqlite.BUSY_MS", 50)
    database = await opened(tmp_path)
    other = apsw.Connection(str(tmp_path / "things.db"))
    other.execute("BEGIN IMMEDIATE")

    ends = await asyncio.gather(
        *(database.write(add(f"{n}"), durable=n % 2 == 0) for n in range(6)), return_exceptions=True
    )
    other.execute("COMMIT")
    await database.write(add("then"))

    assert {"database_unavailable"} == {getattr(end, "code", None) for end in ends}
    assert ["then"] == await database.read(names())
    other.close()
    await database.close()


def noted(threads: set[str], name: str) -> Op[None]:
    threads.add(threading.current_thread().name)
    yield from add(name)


async def test_what_is_brief_runs_where_its_caller_stands_and_is_synced_before_the_answer(
    disk: Disk, tmp_path: Path
) -> None:
    database = await opened(tmp_path)
    threads: set[str] = set()
    await database.write(add("soft"), durable=False)
    before = disk.syncs
    await until(lambda: not database._turn.locked())  # the answer comes before the writer is done

    await database.write(noted(threads, "brief"), brief=True)

    assert {threading.main_thread().name} == threads
    assert before + 1 == disk.syncs
    assert ["soft", "brief"] == await database.read(names())
    await database.close()


async def test_what_is_brief_waits_its_turn_while_the_writer_is_busy(tmp_path: Path) -> None:
    database = await opened(tmp_path)
    threads: set[str] = set()
    go = threading.Event()

    def hold() -> Op[None]:
        assert go.wait(10)
        yield from add("held")

    held = asyncio.create_task(database.write(hold()))
    await asyncio.sleep(0.05)
    brief = asyncio.create_task(database.write(noted(threads, "brief"), brief=True))
    await asyncio.sleep(0.05)
    go.set()
    await asyncio.gather(held, brief)

    assert {"sqlite-write"} == threads
    assert ["held", "brief"] == await database.read(names())
    await database.close()


async def test_what_is_brief_does_not_wait_for_another_process_on_the_event_loop(tmp_path: Path) -> None:
    database = await opened(tmp_path)
    threads: set[str] = set()
    other = apsw.Connection(str(tmp_path / "things.db"))
    other.execute("BEGIN IMMEDIATE")

    brief = asyncio.create_task(database.write(noted(threads, "brief"), brief=True))
    began = time.monotonic()
    await asyncio.sleep(0.05)
    assert time.monotonic() - began < 2
    other.execute("COMMIT")
    await brief

    assert {"sqlite-write"} == threads
    other.close()
    await database.close()


async def test_brief_ones_and_others_in_any_order_are_written_once_and_who_fails_is_undone(tmp_path: Path) -> None:
    database = await opened(tmp_path)

    def write(n: int) -> Op[None]:
        yield from add(f"{n}")
        if n % 7 == 0:
            raise ValueError(f"{n}")

    async def one(n: int) -> None:
        for _ in range(n % 5):
            await asyncio.sleep(0)
        await database.write(write(n), durable=n % 4 != 1, brief=n % 3 == 0)

    tasks = [asyncio.create_task(one(n)) for n in range(300)]
    for n in range(2, 300, 50):
        tasks[n].cancel()
    ends = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)

    assert {n for n in range(300) if n % 7 == 0 and n % 50 != 2} == {
        n for n, end in enumerate(ends) if isinstance(end, ValueError)
    }
    found = await database.read(names())
    assert len(found) == len(set(found))
    assert {f"{n}" for n in range(300) if n % 7 and n % 50 != 2} == set(found)
    await database.close()


async def test_a_long_log_is_copied_back_after_the_answer_and_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("docmill.adapters.sql.sqlite.CHECKPOINT_PAGES", 20)
    database = await opened(tmp_path)
    for n in range(200):
        await database.write(add("x" * 3000), brief=n % 2 == 0)

    # All commits together write six hundred pages or more; how soon a thread has its turn is another's to say.
    assert (tmp_path / "things.db-wal").stat().st_size < 300 * 4096
    assert 200 == len(await database.read(names()))
    await database.close()


async def test_where_no_thread_is_to_be_had_the_writer_copies_the_log_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("docmill.adapters.sql.sqlite.CHECKPOINT_PAGES", 20)
    database = await opened(tmp_path)
    database._keeper.shutdown()
    for _ in range(100):
        await asyncio.wait_for(database.write(add("x" * 3000)), 30)

    assert (tmp_path / "things.db-wal").stat().st_size < 60 * 4096
    await database.close()


async def test_commits_go_on_while_a_long_log_is_copied_back(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("docmill.adapters.sql.sqlite.CHECKPOINT_PAGES", 50)
    database = await opened(tmp_path)
    await database.write(noted(disk.never_held, "first"))  # the writer may copy too, when the other found it busy
    disk.is_held.clear()
    disk.may_go_on.clear()
    written = 1
    async with asyncio.timeout(30):
        while not disk.is_held.is_set():
            await database.write(add("x" * 3000))
            written += 1
        for _ in range(100):  # none of these would be answered if commits waited for the copy
            await database.write(add("x" * 3000))
    disk.may_go_on.set()
    for _ in range(100):
        await database.write(add("x" * 3000))

    assert written + 200 == len(await database.read(names()))
    # A commit adds three pages or four: without any copy the log would hold all of them.
    assert (tmp_path / "things.db-wal").stat().st_size < 2 * 4096 * (written + 200)
    await database.close()


async def test_who_shares_a_commit_with_another_event_loop_is_told_in_its_own(tmp_path: Path) -> None:
    """The heart beats in a thread with a loop of its own, which nobody else wakes."""
    database = await opened(tmp_path)
    go, ended = threading.Event(), threading.Event()

    def hold() -> Op[None]:
        assert go.wait(10)
        yield from add("held")

    async def elsewhere() -> None:
        await database.write(add("elsewhere"), durable=False)
        ended.set()

    held = asyncio.create_task(database.write(hold(), durable=False))
    await asyncio.sleep(0.05)
    here = asyncio.create_task(database.write(add("here"), durable=False))
    await asyncio.sleep(0)
    heart = threading.Thread(target=asyncio.run, args=(elsewhere(),), daemon=True)
    heart.start()
    await until(lambda: len(database._soft) >= 2)
    go.set()
    await asyncio.gather(held, here)

    assert await asyncio.to_thread(ended.wait, 2), "the other loop sleeps on"
    await database.close()


# What is put off

NOTE = Statement("INSERT INTO notes (name) VALUES (:name)")
PLACE = Statement("INSERT INTO things (name) SELECT name FROM notes ORDER BY rowid")
FORGET = Statement("DELETE FROM notes")


async def noting(folder: Path) -> SqliteDatabase:
    database = await opened(folder)
    await database.script("CREATE TABLE IF NOT EXISTS notes (name TEXT NOT NULL)")
    return database


def note(name: str) -> Op[None]:
    yield NOTE(name=name)


def place() -> Op[None]:
    yield PLACE()
    yield FORGET()


def seen_by_others(folder: Path) -> list[str]:
    other = apsw.Connection(str(folder / "things.db"))
    try:
        return [row[0] for row in other.execute("SELECT name FROM things ORDER BY rowid")]
    finally:
        other.close()


async def test_what_is_put_off_is_stored_at_once_and_done_before_anybody_looks(disk: Disk, tmp_path: Path) -> None:
    database = await noting(tmp_path)
    before = disk.syncs
    for name in "abc":
        await database.write(note(name), brief=True, later=place)
    assert before + 3 == disk.syncs
    assert [] == seen_by_others(tmp_path), "nobody looked"

    assert ["a", "b", "c"] == await database.peek(names())
    assert before + 3 == disk.syncs, "it needs no sync of its own"
    await database.write(note("d"), later=place)
    assert ["a", "b", "c", "d"] == await database.read(names())
    await database.write(note("e"), later=place)
    assert ["a", "b", "c", "d", "e"] == await database.write(names())
    await database.close()


async def test_what_is_put_off_is_done_soon_though_nobody_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("docmill.adapters.sql.sqlite.PUT_OFF_S", 0.05)
    database = await noting(tmp_path)
    for name in ("once", "again"):
        await database.write(note(name), later=place)
        ends = time.monotonic() + 60
        while name not in seen_by_others(tmp_path) and time.monotonic() < ends:
            await asyncio.sleep(0.01)
    assert ["once", "again"] == seen_by_others(tmp_path)
    await database.close()


async def test_what_is_put_off_is_done_at_the_end_at_the_latest(tmp_path: Path) -> None:
    database = await noting(tmp_path)
    await database.write(note("a"), later=place)
    await database.close()
    assert ["a"] == seen_by_others(tmp_path)


async def test_who_fails_after_what_was_put_off_does_not_undo_it(tmp_path: Path) -> None:
    database = await noting(tmp_path)

    def fail() -> Op[None]:
        yield from add("undone")
        raise ValueError("undone")

    for name in "ab":
        await database.write(note(name), later=place)
        with pytest.raises(ValueError, match="undone"):
            await database.write(fail())
    assert ["a", "b"] == await database.read(names())
    await database.close()


async def test_what_was_put_off_and_fails_is_tried_again_and_readers_see_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else keeps the file for longer than anybody waits."""
    monkeypatch.setattr("docmill.adapters.sql.sqlite.CATCH_UP_S", 0.1)
    monkeypatch.setattr("docmill.adapters.sql.sqlite.BUSY_MS", 50)
    monkeypatch.setattr("docmill.adapters.sql.sqlite.PUT_OFF_S", 0.05)
    database = await noting(tmp_path)
    await database.write(add("before"))
    await database.write(note("a"), later=place)
    other = apsw.Connection(str(tmp_path / "things.db"))
    other.execute("BEGIN IMMEDIATE")
    for look in (database.read, database.glance, database.peek):
        assert ["before"] == await asyncio.wait_for(look(names()), 30)
    await asyncio.sleep(0.3)
    other.execute("COMMIT")
    other.close()

    ends = time.monotonic() + 60
    while ["before", "a"] != seen_by_others(tmp_path) and time.monotonic() < ends:
        await asyncio.sleep(0.01)
    assert ["before", "a"] == await database.read(names())
    await database.close()


async def test_in_any_order_everybody_sees_what_was_answered_before(tmp_path: Path) -> None:
    database = await noting(tmp_path)
    chance = random.Random(7)
    answered: set[str] = set()

    def write(n: int) -> Op[None]:
        yield from add(f"{n}")
        if n % 7 == 0:
            raise ValueError

    async def one(n: int) -> None:
        for _ in range(chance.randrange(40)):
            await asyncio.sleep(0)
        match chance.randrange(4):
            case 0:
                with suppress(ValueError):
                    await database.write(write(n), durable=n % 2 == 0, brief=n % 3 == 0)
                    answered.add(f"{n}")
            case 1 | 2:
                await database.write(note(f"{n}"), later=place, brief=n % 2 == 0)
                answered.add(f"{n}")
            case _:
                before = set(answered)
                found = await (database.read, database.peek)[n % 2](names())
                assert before <= set(found)
                assert len(found) == len(set(found))

    for first in range(0, 600, 60):
        await asyncio.wait_for(asyncio.gather(*(one(n) for n in range(first, first + 60))), 20)
    await database.close()
    assert len(answered) > 200
    assert answered == set(seen_by_others(tmp_path))
