"""Twins in the object store: a reader that starts from the manifest sees the old twin or the new one."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import AsyncIterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from docmill.adapters.libraries.objects import ObjectLibrary, key_name
from docmill.adapters.stores.local import LocalStore
from docmill.core.access import LOCAL
from docmill.core.errors import Invalid, StageFailed
from docmill.core.keys import check_key
from docmill.core.parsed import Page, Parsed
from docmill.core.twin import Twin, plan_twin
from docmill.ports import Stored

pytestmark = pytest.mark.anyio

MANIFEST = "twins/x/_report.pdf/.docmill.json"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def store(tmp_path: Path) -> Any:
    store = LocalStore(tmp_path / "objects")
    yield store
    await store.close()


def a_twin(word: str) -> Twin:
    pages = tuple(Page(number, f"# {word} {number}") for number in range(3))
    parsed = Parsed("local", "application/pdf", pages, language="en")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return plan_twin("report.pdf", parsed, layout="folder", source_sha256=word, generated_by="t", generated_at=at)


async def keys(store: LocalStore) -> list[str]:
    return [key async for key, _, _ in store.list("twins/")]


async def read_twin(store: LocalStore) -> str:
    """As a reader does: the manifest first, then what it names. The word that all pages tell."""
    index = json.loads(await store.read(MANIFEST))
    words = set()
    for path, digest in index["manifest"]["files"].items():
        data = await store.read(f"twins/x/_report.pdf/@{index['generation']}/{path.partition('/')[2]}")
        assert digest == hashlib.sha256(data).hexdigest()
        words.update(line.split()[1] for line in data.decode().splitlines() if line.startswith("# "))
    [word] = words
    return word


class Watched:
    """A store that calls somebody before every write, and fails when told to."""

    def __init__(self, inner: LocalStore) -> None:
        self.inner, self.seen, self.fail_at, self.writes = inner, [], -1, 0  # type: ignore[var-annotated]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def _before(self) -> None:
        self.writes += 1
        if self.writes == self.fail_at:
            raise ConnectionResetError
        if await self.inner.stat(MANIFEST):
            self.seen.append(await read_twin(self.inner))

    async def put(
        self, key: str, chunks: AsyncIterable[bytes], *, limit: int | None = None, filename: str = ""
    ) -> Stored:
        await self._before()
        return await self.inner.put(key, chunks, limit=limit, filename=filename)

    async def put_bytes(self, key: str, data: bytes) -> Stored:
        await self._before()
        return await self.inner.put_bytes(key, data)


async def test_a_reader_sees_the_old_twin_until_the_new_one_is_whole(store: LocalStore) -> None:
    watched = Watched(store)
    library = ObjectLibrary(watched)  # type: ignore[arg-type]
    await library.write("objects:/x", a_twin("old"), {})
    await library.write("objects:/x", a_twin("new"), {})

    assert {"old"} == set(watched.seen)
    assert 5 == len(watched.seen)
    assert "new" == await read_twin(store)


async def test_a_writer_may_fail_at_any_write(store: LocalStore) -> None:
    await ObjectLibrary(store).write("objects:/x", a_twin("old"), {})
    for fatal in range(1, 6):
        watched = Watched(store)
        watched.fail_at = fatal
        with pytest.raises(StageFailed) as caught:
            await ObjectLibrary(watched).write("objects:/x", a_twin("new"), {})  # type: ignore[arg-type]
        assert ("twin_unavailable", True) == (caught.value.code, caught.value.retryable)
        assert "old" == await read_twin(store)
    await ObjectLibrary(store).write("objects:/x", a_twin("new"), {})
    assert "new" == await read_twin(store)


async def test_old_generations_go_the_last_one_stays_for_readers(store: LocalStore, tmp_path: Path) -> None:
    library = ObjectLibrary(store)
    for word in ("one", "two", "three", "four"):
        await library.write("objects:/x", a_twin(word), {})
        for path in (tmp_path / "objects").rglob("*"):
            os.utime(path, (1, 1))
    await store.put_bytes("twins/x/_report.pdf/@mine/note", b"a person's")

    await library.write("objects:/x", a_twin("five"), {})

    index = json.loads(await store.read(MANIFEST))
    generations = {key.split("@")[1][:16] for key in await keys(store) if "/@" in key}
    assert {index["generation"], index["previous"], "mine/note"} == generations


async def test_a_generation_that_somebody_may_be_writing_is_left_alone(store: LocalStore) -> None:
    await store.put_bytes("twins/x/_report.pdf/@0123456789abcdef/report.md", b"on its way")

    await ObjectLibrary(store).write("objects:/x", a_twin("new"), {})

    assert "twins/x/_report.pdf/@0123456789abcdef/report.md" in await keys(store)


@pytest.mark.parametrize(
    "name", ["a\\b", "ﬁ", "e\u0301", "a\u2028b", "a\x00b", "\udc80", "x" * 300, "％", "a%2Fb", "书"]
)
def test_names_become_parts_of_keys(name: str) -> None:
    assert check_key(f"twins/{key_name(name)}")


def test_distinct_names_stay_distinct() -> None:
    names = ["é", "e\u0301", "e%CC%81", "e%25CC%81", "ﬁ", "fi", "x" * 300, "x" * 301, "a\\b", "a%5Cb"]

    assert len(names) == len({key_name(name) for name in names})


async def test_too_long_a_place_is_refused(store: LocalStore) -> None:
    with pytest.raises(Invalid):
        ObjectLibrary(store).folder(LOCAL.owner, 1, 2, "/".join(["folder"] * 80))
