"""A task's twin goes to OneDrive or into the object store, and a storage that is away costs time, never the result."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from docmill import compose, settings
from docmill.adapters.libraries import Shelves
from docmill.adapters.libraries.graph import Graph, Patience
from docmill.adapters.libraries.objects import ObjectLibrary
from docmill.adapters.libraries.onedrive import OneDriveLibrary
from docmill.core.access import LOCAL
from docmill.core.task import Attempt, Stage, State, Status, Task, TwinWish, Wishes
from docmill.ports import Ports
from docmill.work import intake, jobs, query
from support.graph import GraphServer
from support.serving import Mode


class Token:
    async def get(self, *, fresh: bool = False) -> str:
        return "good"


@pytest.fixture
def folder(mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a deployment in either mode, as the environment names it."""
    for name, value in mode.environment(tmp_path / "data").items():
        monkeypatch.setenv(name, value)
    return tmp_path


@asynccontextmanager
async def house(folder: Path, server: GraphServer) -> AsyncIterator[Ports]:
    chosen = settings.load(data=folder / "data", jobs=1)
    async with compose.opened(chosen) as real:
        patience = Patience(tries=1, first_pause=0.01)
        drive = OneDriveLibrary(Graph(Token(), drive="drives/d1", base=server.base, patience=patience), "/Documents")
        shelves = Shelves({"": real.library, "objects": ObjectLibrary(real.store), "onedrive": drive})
        ports = replace(real, library=shelves)
        async with compose.working(chosen, ports):
            yield ports
        await drive.close()


async def submitted(ports: Ports, folder: str) -> Task:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"# Hello\n\nfrom the twin"

    stored = await intake.upload(ports, LOCAL, 1, "note.md", chunks())
    wishes = Wishes(twin=TwinWish(folder=folder), no_cache=True)
    task, _ = await intake.submit(ports, LOCAL, intake.Submission(s3_key=stored.key, filename="note.md", wishes=wishes))
    return task


async def ended(ports: Ports, task: Task) -> Task:
    async with asyncio.timeout(60):
        while not task.is_final:
            task = await query.changed(ports, LOCAL, task.id, seconds=10)
    return task


async def test_a_twin_on_onedrive_lies_there_with_its_original(folder: Path) -> None:
    with GraphServer() as server:
        async with house(folder, server) as ports:
            done = await ended(ports, await submitted(ports, "onedrive:Reports"))
        files = {path: data for path, data in server.files().items() if "docmill" not in path}

    assert (Status.COMPLETED, None) == (done.status, done.fault)
    assert any(path.endswith("Documents/Reports/note.md") for path in files), sorted(files)
    assert any(b"from the twin" in data for path, data in files.items() if "_note.md/" in path)
    assert done.twin_path
    assert done.twin_path.startswith("onedrive:")


async def test_a_drive_that_is_away_is_waited_for_and_the_result_is_kept(folder: Path) -> None:
    with GraphServer() as server:
        async with house(folder, server) as ports:
            server.fail("GET", ".*", 503, times=2)
            done = await ended(ports, await submitted(ports, "onedrive:Reports"))
            kinds = [event.kind for event in await query.events(ports, LOCAL, done.id, after=0, limit=100)]

    assert Status.COMPLETED is done.status
    assert "retry_scheduled" in kinds
    parsed = [kind for kind in kinds if kind == "stage_succeeded"]
    assert 3 == len(parsed), "only the twin was tried again"


async def test_a_twin_in_the_object_store_is_found_by_its_manifest(folder: Path) -> None:
    with GraphServer() as server:
        async with house(folder, server) as ports:
            done = await ended(ports, await submitted(ports, "objects:"))
            keys = [key async for key, _, _ in ports.store.list("")]

    assert Status.COMPLETED is done.status
    assert any("twins/" in key and key.endswith(".docmill.json") for key in keys)


@pytest.mark.parametrize("place", ["onedrive:/../up", "objects:/..", "onedrive:/CON"])
async def test_a_place_that_is_not_allowed_fails_the_twin_with_its_code(folder: Path, place: str) -> None:
    with GraphServer() as server:
        async with house(folder, server) as ports:
            failed = await ended(ports, await submitted(ports, place))

    assert failed.fault
    assert ("twin_target_invalid", "twin") == (failed.fault.code, failed.fault.stage)


def test_a_job_whose_twin_is_not_yet_stored_says_so() -> None:
    task = Task(
        id=1, tenant="t", owner="o", project_id=1, filename="a", source_key="k", rule_id=1, status=Status.RUNNING,
        stage=Stage.PUBLISH, attempt=1, attempt_id=uuid4(), version=1, event_seq=1, wishes=Wishes(twin=TwinWish()),
    )  # fmt: skip
    job = Attempt(uuid4(), 1, 1, Stage.PARSE, State.SUCCEEDED, dialect="secretary")

    assert "pending-storage" == jobs.status_of(task, job)
    assert "running" == jobs.status_of(replace(task, wishes=Wishes()), job)
    assert "completed" == jobs.status_of(replace(task, status=Status.COMPLETED), job)
