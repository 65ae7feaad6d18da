"""A worker server whose disk is full asks for patience, and repeats what it could not write."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import httpx2
import pytest

from docmill.remote import desk as desks
from docmill.remote.desk import Desk, Order, PageReport, Parsed
from docmill.remote.server import ServerOptions, build_app
from docmill.remote.spool import Spool
from support.receiver import Receiver
from support.waiting import until

FULL = OSError(errno.ENOSPC, "No space left on device")


class FullParser:
    """Finds no room for the first documents."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals

    async def parse(self, order: Order, report: PageReport) -> Parsed:
        if self.refusals:
            self.refusals -= 1
            raise ExceptionGroup("tasks", [FULL])
        report(1, 1)
        return Parsed("# Done", [(1, "# Done")])


async def test_a_full_disk_postpones_jobs_and_refuses_new_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desks, "FULL_RETRY_S", 0.01)
    refusals, add, new_folder = [FULL, FULL], Spool.add, Desk.new_folder

    def add_later(*args: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return add(*args)

    def refuse(_: Desk) -> Path:
        raise FULL

    monkeypatch.setattr(Spool, "add", add_later)
    parser = FullParser(3)
    desk = Desk(parser, tmp_path / "spool")
    transport = httpx2.ASGITransport(build_app(desk, ServerOptions()))
    await desk.open()
    try:
        with Receiver() as docmill:
            async with (
                asyncio.timeout(30),
                httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http,
            ):

                async def start() -> httpx2.Response:
                    form = {"callback_url": docmill.job(), "callback_token": "job-token"}
                    return await http.post("/pdf/process", data=form, files={"file": ("a.pdf", b"%PDF")})

                monkeypatch.setattr(Desk, "new_folder", refuse)
                refused = await start()
                monkeypatch.setattr(Desk, "new_folder", new_folder)
                accepted = await start()
                await until(lambda: docmill.accepted)
    finally:
        await desk.close()

    assert (507, "10") == (refused.status_code, refused.headers["Retry-After"])
    assert "storage_full" == refused.json()["error"]["code"]
    assert (202, 0, []) == (accepted.status_code, parser.refusals, refusals)
    assert ["completed"] == [one.json["phase"] for one in docmill.finals]
