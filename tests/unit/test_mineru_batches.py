"""Batches of MinerU's cloud API as they lie in the object store."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from docmill.adapters.stores.local import LocalStore
from docmill.core.access import Principal
from docmill.core.errors import BadRequest, NotFound
from docmill.work import mineru
from docmill.work.mineru import BATCH_KEEP_S, BatchFile, Image

ALICE = Principal("alice", "acme")


@pytest.fixture
def ports(tmp_path: Path) -> Any:
    return SimpleNamespace(store=LocalStore(tmp_path / "objects"))


async def test_a_batch_is_found_by_its_user_only(ports: Any) -> None:
    batch = await mineru.open_batch(ports, ALICE, [BatchFile("a.pdf", "1", True, "2-3")], no_cache=True)

    assert batch == await mineru.find_batch(ports, ALICE, batch.id)
    for who in (Principal("bob", "acme"), Principal("alice", "beta"), Principal("acme/alice", "acme")):
        with pytest.raises(NotFound):
            await mineru.find_batch(ports, who, batch.id)


UNKNOWN = "3f2c9a54-1f0e-4c7b-9a3d-5b8e2f6a7c10"


@pytest.mark.parametrize("batch_id", ["", "../../x", "x" * 100, UNKNOWN.upper(), f"{{{UNKNOWN}}}", UNKNOWN])
async def test_what_is_no_batch_is_not_found(ports: Any, batch_id: str) -> None:
    with pytest.raises(NotFound):
        await mineru.find_batch(ports, ALICE, batch_id)


async def test_batches_are_deleted_after_their_time(ports: Any, tmp_path: Path) -> None:
    old, young = [await mineru.open_batch(ports, ALICE, [BatchFile("a.pdf")], no_cache=False) for _ in range(2)]
    await ports.store.put_bytes(f"{old.folder}0-12", b"{}")
    written = time.time() - BATCH_KEEP_S - 60
    files = [path for path in (tmp_path / "objects").rglob("*") if path.is_file() and old.id in str(path)]
    for path in files:
        os.utime(path, (written, written))

    assert 2 == len(files) == await mineru.purge_batches(ports)
    assert young == await mineru.find_batch(ports, ALICE, young.id)
    with pytest.raises(NotFound):
        await mineru.find_batch(ports, ALICE, old.id)


async def test_images_over_the_limit_of_a_json_answer_are_not_read(ports: Any) -> None:
    """None of them is in the store: reading one would be another error."""
    images = [Image(f"images/{number}.png", f"users/alice/{number}", "image/png", 600) for number in range(2)]

    with pytest.raises(BadRequest, match="response_format_zip"):
        await mineru.read_images(ports, "acme", images, left=1_000)
