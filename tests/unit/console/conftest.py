"""The console on real embedded adapters, without a worker: a visitor with cookies and forms."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from docmill import compose
from docmill.core.access import Principal
from docmill.core.task import Task
from docmill.core.turns import Lane
from docmill.http.app import HttpOptions, build_app
from docmill.ports import Ports
from docmill.settings import Settings
from docmill.work import keys
from docmill.work.places import Places
from docmill.work.run import run_attempt

ETL = "/api/v1/etl"


@dataclass
class Visitor:
    ports: Ports
    http: httpx2.AsyncClient

    async def submit(self, name: str = "invoice.pdf", data: bytes = b"%PDF-1.7 hello", **headers: str) -> int:
        answer = await self.http.post(
            f"{ETL}/upload_and_submit", data={"project_id": "1"}, files={"file": (name, data)}, headers=headers
        )
        assert 201 == answer.status_code, answer.text
        task_id: int = answer.json()["items"][0]["task_id"]
        return task_id

    async def claim(self, task_id: int) -> None:
        task = await self.ports.ledger.get(task_id)
        assert task
        assert task.attempt_id
        assert await self.ports.ledger.claim(task.attempt_id, worker="test", lease_ms=60_000)

    async def complete(self, task_id: int) -> Task:
        """Run the task to its end, here and now."""
        task = await self.ports.ledger.get(task_id)
        assert task
        assert task.attempt_id
        claimed = await self.ports.ledger.claim(task.attempt_id, worker="test", lease_ms=60_000)
        place = await Places(jobs=1, stage_jobs=1).at(Lane.LATER)
        while claimed:
            claimed = await run_attempt(self.ports, *claimed, place, worker="test")
        done = await self.ports.ledger.get(task_id)
        assert done
        assert "completed" == done.status, done.fault
        return done

    async def see(self, path: str, status: int = 200, **headers: str) -> str:
        answer = await self.http.get(path, headers=headers)
        assert status == answer.status_code, answer.text[:2000]
        return answer.text

    async def fill(self, page: str, action: str, /, **fields: Any) -> httpx2.Response:
        """Submit a form of a page as a browser without JavaScript does."""
        token = re.search(r'name="token" value="([0-9a-f]+)"', await self.see(page))
        assert token
        origin = {"Origin": str(self.http.base_url).rstrip("/")}
        return await self.http.post(action, data={"token": token[1], **fields}, headers=origin)


OpenConsole = Callable[..., AbstractAsyncContextManager[Visitor]]


@pytest.fixture
def open_console(tmp_path: Path) -> OpenConsole:
    @asynccontextmanager
    async def opened(key_of: Principal | None = None, **settings: Any) -> AsyncIterator[Visitor]:
        chosen = Settings(data=tmp_path / "data", **settings)
        async with compose.opened(chosen) as ports:
            secret = (await keys.create(ports, "test", key_of))[1] if key_of else ""
            auth = await compose.authenticator(chosen, ports.keys)
            app = build_app(ports, auth=auth, options=HttpOptions(version="1.2.3", poll_s=0.05))
            compose.add_console(app, chosen, ports, auth)
            transport = httpx2.ASGITransport(app=app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
                http.secret = secret  # type: ignore[attr-defined]
                yield Visitor(ports, http)

    return opened


@pytest.fixture
async def visitor(open_console: OpenConsole) -> AsyncIterator[Visitor]:
    async with open_console() as visitor:
        yield visitor
