"""What SQLite alone does: one writer that commits in groups, and syncs what must be durable."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from docmill.adapters.sql.sqlite import MAX_GROUP_S, SqliteDatabase
from docmill.adapters.sql.statement import Op, Query, Statement
from docmill.core.errors import Unavailable
from support.waiting import until

INSERT = Statement("INSERT INTO things (name) VALUES (:name)")
NAMES = Statement("SELECT name FROM things ORDER BY rowid")


class Disk(apsw.VFS):
    """Counts the syncs of write-ahead logs."""

    def __init__(self) -> None:
        self.syncs = 0
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
        time.sleep(MAX_GROUP_S / 4)
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


async def test_a_long_log_is_copied_back_and_starts_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("docmill.adapters.sql.sqlite.CHECKPOINT_PAGES", 20)
    database = await opened(tmp_path)
    for _ in range(200):
        await database.write(add("x" * 3000))

    # All commits together write six hundred pages or more.
    assert (tmp_path / "things.db-wal").stat().st_size < 100 * 4096
    assert 200 == len(await database.read(names()))
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
