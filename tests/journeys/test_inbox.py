"""What is laid into a folder becomes a task: when it is written, and once for each content."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path, PurePath
from typing import Any

import pytest

from docmill.adapters.libraries.disk import DiskLibrary
from docmill.adapters.watching.folder import Inbox
from docmill.core.inbox import is_wanted
from support.serving import Etl, Service, hears_ctrl_c
from support.waiting import read_line

REPORT = Path(__file__).parents[2] / "samples" / "report.en.pdf"
SETTLE = 0.3


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("report.pdf", True),
        ("deep/in/Grüße 报告.docx", True),
        ("_draft.md", True),
        (".hidden.pdf", False),
        (".git/x.pdf", False),
        ("~$report.docx", False),
        (".~lock.report.odt#", False),
        ("report.pdf.part", False),
        ("report.pdf.crdownload", False),
        ("x.TMP", False),
        ("notes.md~", False),
        ("Thumbs.db", False),
    ],
)
def test_only_documents_are_wanted(name: str, wanted: bool) -> None:
    assert wanted == is_wanted(PurePath(name))


@asynccontextmanager
async def watched(folder: Path) -> AsyncIterator[asyncio.Queue[str]]:
    """Names as they come."""
    found: asyncio.Queue[str] = asyncio.Queue()
    library = DiskLibrary((folder,))
    inbox = Inbox(folder, is_wanted, library.ours, settle_s=SETTLE)

    async def watch() -> None:
        async for path in inbox.files():
            found.put_nowait(path.relative_to(folder.resolve()).as_posix())

    running = asyncio.ensure_future(watch())
    try:
        yield found
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await library.close()


async def coming(found: asyncio.Queue[str]) -> str:
    return await asyncio.wait_for(found.get(), 30)


async def test_a_file_comes_when_it_is_written_and_again_when_it_changed(tmp_path: Path) -> None:
    (tmp_path / "there.txt").write_text("before")
    async with watched(tmp_path) as found:
        assert "there.txt" == await coming(found)
        with (tmp_path / "slow.txt").open("w") as slow:
            for _ in range(8):
                slow.write("more ")
                slow.flush()
                written = time.monotonic()
                await asyncio.sleep(SETTLE / 3)
                if time.monotonic() - written > SETTLE / 2:
                    break  # the machine is busy: it was not written for as long as the inbox waits
                assert found.empty(), "it is still being written"
        assert "slow.txt" == await coming(found)
        (tmp_path / "slow.txt").write_text("all new")
        assert "slow.txt" == await coming(found)


async def test_new_folders_and_renamed_files_are_seen_and_the_rest_is_left_alone(tmp_path: Path) -> None:
    async with watched(tmp_path) as found:
        (tmp_path / "x.pdf.part").write_text("half")
        (tmp_path / "empty.txt").touch()
        (tmp_path / "link.txt").symlink_to(REPORT)
        os.mkfifo(tmp_path / "pipe.txt")
        (tmp_path / "x.pdf.part").rename(tmp_path / "x.pdf")
        assert "x.pdf" == await coming(found)
        (tmp_path / "a" / "b").mkdir(parents=True)
        (tmp_path / "a" / "b" / "deep.txt").write_text("deep")
        assert "a/b/deep.txt" == await coming(found)
        (tmp_path / "gone.txt").write_text("gone")
        (tmp_path / "gone.txt").unlink()
        (tmp_path / "last.txt").write_text("last")
        assert "last.txt" == await coming(found)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    data = tmp_path_factory.mktemp("inbox")
    settings = json.dumps({"folder": str(data / "in"), "project": 9, "settle": SETTLE})
    with Service(data / "data", DOCMILL_INBOX=settings) as running:
        yield running


def said(service: Service, folder: Path, *flags: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "docmill", "inbox", str(folder), "--settle", "0.1", "--once", "--json", *flags],
        env=os.environ | {"DOCMILL_URL": service.url},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert 0 == done.returncode, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_command_sends_each_content_once_and_lays_twins_beside(service: Service, tmp_path: Path) -> None:
    (tmp_path / "report.pdf").write_bytes(REPORT.read_bytes())
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "copy.pdf").write_bytes(REPORT.read_bytes())

    first = said(service, tmp_path, "--twins")
    again = said(service, tmp_path)

    assert {("sent", "report.pdf"), ("known", "sub/copy.pdf"), ("twin", "report.pdf")} == {
        (one["event"], one["file"]) for one in first
    }
    assert (tmp_path / "_report.pdf" / "report.md").is_file()
    assert [("known", "report.pdf"), ("known", "sub/copy.pdf")] == [(one["event"], one["file"]) for one in again]


def test_the_command_watches_until_it_is_stopped(service: Service, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "docmill", "inbox", str(tmp_path), "--settle", "0.1", "--json"]
    process = subprocess.Popen(
        command,
        env=os.environ | {"DOCMILL_URL": service.url},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hears_ctrl_c,
    )
    try:
        (tmp_path / "later.txt").write_text("laid there later")
        assert process.stdout
        line = json.loads(read_line(process))
        assert ("sent", "later.txt") == (line["event"], line["file"])
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert 130 == process.returncode


def test_a_service_watches_the_folder_that_its_settings_name(service: Service) -> None:
    folder = service.data.parent / "in"
    (folder / "mine.md").write_text("# Mine\n")
    (folder / "same.md").write_text("# Mine\n")
    with service.client() as http:
        etl = Etl(http)
        ends = time.monotonic() + 60
        while not (tasks := http.get(f"{Etl.BASE}/tasks", params={"project_id": 9}).json()["tasks"]):
            assert time.monotonic() < ends
            time.sleep(0.1)
        assert "completed" == etl.wait(tasks[0]["task_id"])["status"]
        while not any("inbox_known" in line for line in service.log):
            assert time.monotonic() < ends
            time.sleep(0.1)
        assert 1 == http.get(f"{Etl.BASE}/tasks", params={"project_id": 9}).json()["total"]
