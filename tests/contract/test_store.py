"""What every object store promises, run over each adapter."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from docmill.adapters.stores.local import CHUNK, LocalStore
from docmill.adapters.stores.names import key_of, place_of
from docmill.adapters.stores.s3 import CloudStore
from docmill.core.errors import BadRequest, NotFound, StageFailed, TooLarge
from docmill.core.keys import check_key
from docmill.ports import Store
from support.servers import S3Address
from support.waiting import read_line

pytestmark = pytest.mark.anyio

LONGEST_IN_S3 = 255
KEY = "users/anna/raw/1/report.pdf"
AWKWARD_KEYS = [
    "a",
    "users/auth0%7C1/raw/1/x.pdf",
    "users/a b/ü/报告 (1).pdf",
    "a/.hidden/.x",
    "a/.tmp/x",
    ".tmp/x",
    "a/~/x~",
    "a/" + "x" * 480,
    "报" * 400,
    "a/CON/nul:/x?.*",
    "a/...",
    "a/%2E%2E/b",
    "A/b",
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["local", "s3"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    store: Store = LocalStore(tmp_path / "objects") if request.param == "local" else in_a_bucket(request)
    yield store
    await store.close()


def in_a_bucket(request: pytest.FixtureRequest) -> CloudStore:
    """A store below a prefix of the test's own, on a real S3 server, with parts as small as S3 allows."""
    s3: S3Address = request.getfixturevalue("s3")
    prefix = request.getfixturevalue("s3_prefix")
    return CloudStore(f"s3://{s3.bucket}/{prefix}", part=5 << 20, options=s3.options)


async def chunked(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def breaking_off(parts: Iterable[bytes], error: BaseException) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
    raise error


async def collected(stream: AsyncIterable[bytes]) -> bytes:
    return b"".join([chunk async for chunk in stream])


async def keys(store: Store, prefix: str = "") -> list[str]:
    return sorted([key async for key, _, _ in store.list(prefix)])


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("parts", [[], [b""], [b"x"], [b"ab", b"", b"cd"], [b"z" * 100_000] * 30])
async def test_what_is_put_in_parts_is_read_back_whole(store: Store, parts: list[bytes]) -> None:
    data = b"".join(parts)

    stored = await store.put(KEY, chunked(parts))

    assert (KEY, len(data), digest(data)) == (stored.key, stored.size, stored.sha256)
    assert data == await store.read(KEY)
    assert data == await collected(store.stream(KEY))


async def test_stat_tells_what_put_told(store: Store) -> None:
    stored = await store.put_bytes(KEY, b"hello")

    found = await store.stat(KEY)

    assert found is not None
    assert (5, stored.etag) == (found.size, found.etag)
    assert found.sha256 in {"", stored.sha256}


@pytest.mark.parametrize("filename", ["report.pdf", "Größe & Preis (1).pdf", "报" * 255, "😀" * 255, 'a"b; c.pdf'])
@pytest.mark.parametrize("size", [5, (5 << 20) + 1], ids=["one part", "two parts"])
async def test_the_name_of_an_uploaded_file_is_kept_with_it(store: Store, filename: str, size: int) -> None:
    stored = await store.put(KEY, chunked([b"x" * size]), filename=filename)

    found = await store.stat(KEY)

    assert found is not None
    assert (filename, filename) == (stored.filename, found.filename)


async def test_an_object_without_a_name_has_none(store: Store) -> None:
    await store.put(KEY, chunked([b"x"]))

    found = await store.stat(KEY)

    assert found is not None
    assert "" == found.filename


async def test_a_missing_object_is_not_found(store: Store, tmp_path: Path) -> None:
    assert await store.stat(KEY) is None
    assert await store.delete(KEY) is False
    for attempt in (store.read(KEY), collected(store.stream(KEY)), store.fetch(KEY, tmp_path / "copy")):
        with pytest.raises(NotFound) as caught:
            await attempt
        assert "object_not_found" == caught.value.code
    assert not (tmp_path / "copy").exists()


async def test_a_folder_is_no_object(store: Store) -> None:
    await store.put_bytes("a/b/c", b"x")

    assert await store.stat("a/b") is None
    assert await store.delete("a/b") is False
    with pytest.raises(NotFound):
        await store.read("a/b")


@pytest.mark.parametrize("parts", [[b"x" * 11], [b"x" * CHUNK, b"x" * CHUNK, b"x"], [b"12345", b"67890", b"1"]])
async def test_more_than_the_limit_is_refused_and_leaves_nothing(
    store: Store, parts: list[bytes], tmp_path: Path
) -> None:
    limit = sum(map(len, parts)) - 1

    with pytest.raises(TooLarge) as caught:
        await store.put(KEY, chunked(parts), limit=limit)

    assert ("upload_too_large", {"limit": limit}) == (caught.value.code, caught.value.facts)
    assert await store.stat(KEY) is None
    assert [] == leftovers(tmp_path)


async def test_exactly_the_limit_is_stored(store: Store) -> None:
    assert 10 == (await store.put(KEY, chunked([b"12345", b"67890"]), limit=10)).size


@pytest.mark.parametrize("error", [ConnectionError("client left"), asyncio.CancelledError()])
async def test_an_upload_that_breaks_off_leaves_nothing(store: Store, error: BaseException, tmp_path: Path) -> None:
    with pytest.raises(type(error)):
        await store.put(KEY, breaking_off([b"x" * CHUNK] * 3, error))

    assert await store.stat(KEY) is None
    assert [] == leftovers(tmp_path)


async def test_a_broken_replacement_keeps_the_old_bytes(store: Store) -> None:
    await store.put_bytes(KEY, b"old")

    with pytest.raises(ConnectionError):
        await store.put(KEY, breaking_off([b"n" * CHUNK, b"ew"], ConnectionError()))

    assert b"old" == await store.read(KEY)


async def test_a_cancelled_upload_leaves_nothing(store: Store, tmp_path: Path) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * CHUNK

    task = asyncio.create_task(store.put(KEY, endless()))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await store.stat(KEY) is None
    assert [] == leftovers(tmp_path)


async def test_putting_the_same_again_is_fine_and_the_last_one_wins(store: Store) -> None:
    first = await store.put_bytes(KEY, b"same")
    again = await store.put_bytes(KEY, b"same")
    other = await store.put_bytes(KEY, b"other")

    assert first.sha256 == again.sha256
    assert other.etag != again.etag
    assert b"other" == await store.read(KEY)


async def test_a_reader_keeps_the_bytes_it_began_with(store: Store) -> None:
    await store.put_bytes(KEY, b"old" * CHUNK)
    stream = store.stream(KEY)
    first = await anext(stream)

    await store.put_bytes(KEY, b"new" * CHUNK)

    assert b"old" * CHUNK == first + await collected(stream)
    assert b"new" * CHUNK == await store.read(KEY)


async def test_many_writers_of_one_key_leave_the_bytes_of_one(store: Store) -> None:
    bodies = [bytes([65 + n]) * 50_000 for n in range(20)]

    await asyncio.gather(*(store.put_bytes(KEY, body) for body in bodies))

    assert await store.read(KEY) in bodies
    assert [KEY] == await keys(store)


@pytest.mark.parametrize(
    ("start", "end"), [(0, None), (0, 0), (0, 1), (5, 8), (9, 10), (9, 99), (10, None), (50, None), (8, 5)]
)
async def test_a_stream_gives_the_range_of_a_slice(store: Store, start: int, end: int | None) -> None:
    await store.put_bytes(KEY, b"0123456789")

    assert b"0123456789"[start:end] == await collected(store.stream(KEY, start=start, end=end))


async def test_a_range_may_span_chunks(store: Store) -> None:
    data = os.urandom(3 * CHUNK)
    await store.put_bytes(KEY, data)

    assert data[CHUNK - 7 : 2 * CHUNK + 7] == await collected(store.stream(KEY, start=CHUNK - 7, end=2 * CHUNK + 7))


async def test_read_stops_at_its_limit(store: Store) -> None:
    await store.put_bytes(KEY, b"12345")

    assert b"12345" == await store.read(KEY, limit=5)
    with pytest.raises(TooLarge):
        await store.read(KEY, limit=4)


async def test_files_go_in_and_come_out(store: Store, tmp_path: Path) -> None:
    source, copy = tmp_path / "in", tmp_path / "out"
    source.write_bytes(b"x" * 3_000_000)

    stored = await store.put_file(KEY, source)
    source.write_bytes(b"changed afterwards")
    fetched = await store.fetch(KEY, copy)

    assert stored == fetched
    assert digest(copy.read_bytes()) == stored.sha256
    assert {"in", "out", "objects"} >= set(names_in(tmp_path))


async def test_a_deleted_object_is_gone(store: Store) -> None:
    await store.put_bytes(KEY, b"x")

    assert await store.delete(KEY) is True
    assert await store.stat(KEY) is None
    assert await store.delete(KEY) is False
    assert [] == await keys(store)


async def test_putting_and_deleting_neighbours_at_once_is_safe(store: Store) -> None:
    async def come_and_go(n: int) -> None:
        for _ in range(20):
            await store.put_bytes(f"a/b/c/{n}", b"x")
            assert await store.delete(f"a/b/c/{n}")

    await asyncio.gather(*(come_and_go(n) for n in range(8)))

    assert [] == await keys(store)


async def test_list_gives_what_begins_with_the_prefix(store: Store) -> None:
    before = time.time() - 5
    for key in ("a/1", "a/12", "a/2/x", "ab/1", "b"):
        await store.put_bytes(key, key.encode())

    assert ["a/1", "a/12", "a/2/x", "ab/1", "b"] == await keys(store)
    assert ["a/1", "a/12", "a/2/x"] == await keys(store, "a/")
    assert ["a/1", "a/12", "a/2/x", "ab/1"] == await keys(store, "a")
    assert ["a/1", "a/12"] == await keys(store, "a/1")
    assert [] == await keys(store, "c/")
    assert [] == await keys(store, "a/1/2/3")
    facts = {key: (size, mtime) async for key, size, mtime in store.list("b")}
    assert 1 == facts["b"][0]
    assert before <= facts["b"][1] <= time.time() + 5


async def test_awkward_keys_live_side_by_side(store: Store) -> None:
    awkward = [key for key in AWKWARD_KEYS[1:] if isinstance(store, LocalStore) or len(key) < LONGEST_IN_S3]
    for key in awkward:
        await store.put_bytes(key, key.encode())

    assert sorted(awkward) == await keys(store)
    for key in awkward:
        assert key.encode() == await store.read(key)


@pytest.mark.parametrize("key", ["", "/a", "../a", "a/../../b", "a//b", "a\x00", "a\\b", "．．／a"])
async def test_a_bad_key_is_refused_by_every_method(store: Store, key: str, tmp_path: Path) -> None:
    attempts = (
        store.put_bytes(key, b""),
        store.put(key, chunked([b""])),
        store.put_file(key, tmp_path),
        store.stat(key),
        store.read(key),
        store.fetch(key, tmp_path / "x"),
        store.delete(key),
        collected(store.stream(key)),
    )
    for attempt in attempts:
        with pytest.raises(BadRequest) as caught:
            await attempt
        assert "key_invalid" == caught.value.code


async def test_the_room_left_is_known_or_unlimited(store: Store) -> None:
    free = await store.free_bytes()

    assert free is None or free > 0


async def test_the_event_loop_goes_on_during_big_copies(store: Store) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.002)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await store.put_bytes(KEY, bytes(60_000_000))
    ticking.cancel()

    assert ticks >= 5


# The rest concerns files.


def leftovers(tmp_path: Path) -> list[str]:
    folder = tmp_path / "objects" / ".tmp"
    return [path.name for path in folder.glob("*/*")]


KEYS = st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=4).map("/".join)


def path_of(key: str) -> tuple[str, ...]:
    place = place_of(key)
    return (*place.folders, place.name)


def is_key(key: str) -> bool:
    try:
        return bool(check_key(key))
    except BadRequest:
        return False


@given(KEYS.filter(is_key))
@example("a/" + "x" * 480)
@example("报" * 400)
@example("a~/~b~")
@example("a~" * 200)
def test_a_path_stays_below_the_root_and_tells_its_key(key: str) -> None:
    names = path_of(key)

    assert all(
        name.isascii() and 0 < len(name) <= 255 and not name.startswith(".") and "/" not in name for name in names
    )
    assert key == key_of(names)


@given(KEYS.filter(is_key), KEYS.filter(is_key))
def test_distinct_keys_have_distinct_paths(one: str, other: str) -> None:
    assert (one == other) == (path_of(one) == path_of(other))


async def test_one_bad_put_in_a_batch_does_not_harm_the_others(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    await store.put_bytes("a/b", b"x")

    outcomes = await asyncio.gather(
        *(store.put_bytes("a/b/c" if n == 7 else f"a/{n}", b"y") for n in range(20)), return_exceptions=True
    )

    assert [7] == [n for n, outcome in enumerate(outcomes) if isinstance(outcome, BadRequest)]
    assert 20 == len(await keys(store, "a/"))
    await store.close()


async def test_a_key_through_another_object_is_refused(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    await store.put_bytes("a/b", b"x")

    for key in ("a/b/c", "a"):
        with pytest.raises(BadRequest):
            await store.put_bytes(key, b"y")

    assert b"x" == await store.read("a/b")
    await store.close()


async def test_planted_links_lead_nowhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    store = LocalStore(tmp_path / "objects")
    await store.put_bytes("a/real", b"x")
    (tmp_path / "objects" / "a" / "folder").symlink_to(outside)
    (tmp_path / "objects" / "a" / "file").symlink_to(outside / "secret")

    assert await store.stat("a/file") is None
    assert await store.stat("a/folder/secret") is None
    assert ["a/real"] == await keys(store, "a/")
    assert [] == await keys(store, "a/folder/")
    assert await store.delete("a/folder/secret") is False
    with pytest.raises((BadRequest, StageFailed)):
        await store.put_bytes("a/folder/new", b"x")
    await store.put_bytes("a/file", b"mine")
    assert b"secret" == (outside / "secret").read_bytes()
    assert ["secret"] == names_in(outside)
    await store.close()


async def test_leftovers_are_collected_on_start_after_an_hour(tmp_path: Path) -> None:
    old, young = tmp_path / ".tmp" / "a" / "old", tmp_path / ".tmp" / "a" / "young"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"x")
    young.write_bytes(b"x")
    os.utime(old, (time.time() - 3700,) * 2)

    await LocalStore(tmp_path).close()

    assert (False, True) == (old.exists(), young.exists())


FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from docmill.adapters.stores.local import LocalStore
from docmill.core.errors import StorageFull

async def main():
    store = LocalStore(Path(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        await store.put_bytes("a/big", bytes(200_000))
    except StorageFull as error:
        print(error.code)
    await store.put_bytes("a/small", b"x")
    print(await store.stat("a/big"))

asyncio.run(main())
"""


def test_a_full_disk_is_said_so_and_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "objects"
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, folder], capture_output=True, text=True, check=True, timeout=60
    )

    assert ["storage_full", "None"] == done.stdout.split()
    assert [] == leftovers(tmp_path)


ENDLESS_WRITER = """
import asyncio, hashlib, os, sys
from pathlib import Path
from docmill.adapters.stores.local import LocalStore

async def main():
    store = LocalStore(Path(sys.argv[1]))
    await store.put_bytes("same/0", os.urandom(70_000))
    print("ready", flush=True)
    while True:
        bodies = [os.urandom(70_000) for _ in range(8)]
        await asyncio.gather(*(store.put_bytes("k/" + hashlib.sha256(b).hexdigest(), b) for b in bodies))
        await asyncio.gather(*(store.put_bytes(f"same/{i}", b) for i, b in enumerate(bodies)))

asyncio.run(main())
"""


def kill_after(seconds: float, folder: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", ENDLESS_WRITER, folder], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    read_line(writer)
    time.sleep(seconds)
    writer.send_signal(signal.SIGKILL)
    writer.wait(30)
    writer.stdout.close()


async def test_whatever_a_killed_writer_left_visible_is_whole(tmp_path: Path) -> None:
    for round_ in range(8):
        await asyncio.to_thread(kill_after, 0.02 + round_ * 0.011, tmp_path)

    store = LocalStore(tmp_path)
    found = await keys(store)
    assert found
    for key in found:
        data = await store.read(key)
        facts = await store.stat(key)
        assert facts is not None
        assert 70_000 == len(data)
        assert facts.sha256 in {"", digest(data)}
        assert not key.startswith("k/") or key == f"k/{digest(data)}"
    await store.close()
