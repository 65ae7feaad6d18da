"""A desk: the doors on real embedded adapters, without a worker."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from fastapi import FastAPI

from docmill import compose
from docmill.core import machine
from docmill.core.access import LOCAL, Principal
from docmill.core.keys import artifact_key
from docmill.core.machine import StageResult
from docmill.core.task import Artifacts, Task
from docmill.http.app import Authenticator, AuthOptions, HttpOptions, build_app
from docmill.ports import Ports
from docmill.settings import Settings
from docmill.work.objects import objects

ETL = "/api/v1/etl"


@dataclass
class Desk:
    app: FastAPI
    ports: Ports
    http: httpx2.AsyncClient

    async def upload(self, name: str = "invoice.pdf", data: bytes = b"%PDF-1.7 hello", project: int = 123) -> Any:
        answer = await self.http.post(f"{ETL}/upload", data={"project_id": project}, files={"file": (name, data)})
        assert 201 == answer.status_code, answer.text
        return answer.json()

    async def submit(self, name: str = "invoice.pdf", **more: Any) -> int:
        key = (await self.upload(name))["key"]
        answer = await self.http.post(f"{ETL}/submit", json={"s3_key": key, "filename": name, **more})
        assert 200 == answer.status_code, answer.text
        task_id: int = answer.json()["task_id"]
        return task_id

    async def task(self, task_id: int) -> Task:
        found = await self.ports.ledger.get(task_id)
        assert found
        return found

    async def claim(self, task_id: int) -> None:
        task = await self.task(task_id)
        assert task.attempt_id
        assert await self.ports.ledger.claim(task.attempt_id, worker="test", lease_ms=60_000)
        self.ports.signals.changed(task_id)

    async def finish_stage(self, task_id: int, result: StageResult) -> None:
        await self.ports.ledger.decide(
            task_id,
            lambda task, attempt: machine.on_success(task, attempt, result, next_id=uuid4(), keep_for="test"),
        )
        self.ports.signals.changed(task_id)

    async def complete(self, task_id: int, output: bytes) -> None:
        task = await self.task(task_id)
        key = artifact_key(task.owner, task.project_id, task.id, 1, "output.json")
        await objects(self.ports, task.tenant).put_bytes(key, output)
        await self.claim(task_id)
        await self.finish_stage(
            task_id, StageResult(artifacts=Artifacts("markdown", "parsed"), engine="local", pages=1)
        )
        await self.finish_stage(task_id, StageResult(artifacts=Artifacts("markdown", "parsed", key)))
        await self.finish_stage(task_id, StageResult(document_id=uuid4()))


OpenDesk = Callable[..., AbstractAsyncContextManager[Desk]]


@pytest.fixture
def open_desk(tmp_path: Path) -> OpenDesk:
    @asynccontextmanager
    async def opened(
        auth: AuthOptions | None = None,
        options: HttpOptions | None = None,
        alter: Callable[[Ports], Ports] = lambda ports: ports,
        **headers: str,
    ) -> AsyncIterator[Desk]:
        async with compose.opened(Settings(data=tmp_path / "data")) as ports:
            ports = alter(ports)
            app = build_app(
                ports,
                auth=Authenticator(auth or AuthOptions(require=False), ports.keys),
                options=options or HttpOptions(version="1.2.3", poll_s=0.05),
            )
            transport = httpx2.ASGITransport(app=app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
                yield Desk(app, ports, http)

    return opened


@pytest.fixture
async def desk(open_desk: OpenDesk) -> AsyncIterator[Desk]:
    async with open_desk() as desk:
        yield desk


class AsgiCall:
    """One request, driven by hand: body chunks go in, messages come out, the client may leave."""

    def __init__(self, app: Any, method: str, path: str, headers: dict[str, str] | None = None) -> None:
        self.to_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.from_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        path, _, query = path.partition("?")
        given = {"host": "localhost", **(headers or {})}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
            "client": ("127.0.0.1", 4711),
            "server": ("localhost", 80),
        }
        self.task = asyncio.ensure_future(app(scope, self.to_app.get, self.from_app.put))

    def send(self, body: bytes = b"", more: bool = False) -> None:
        self.to_app.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def leave(self) -> None:
        self.to_app.put_nowait({"type": "http.disconnect"})

    async def next(self, seconds: float = 30) -> dict[str, Any]:
        return await asyncio.wait_for(self.from_app.get(), seconds)

    async def status(self) -> int:
        start = await self.next()
        assert "http.response.start" == start["type"]
        status: int = start["status"]
        return status

    async def read_until(self, mark: bytes, seconds: float = 30) -> bytes:
        seen = b""
        while mark not in seen:
            seen += (await self.next(seconds)).get("body", b"")
        return seen

    async def rest(self, seconds: float = 30) -> bytes:
        await asyncio.wait_for(self.task, seconds)
        seen = b""
        while not self.from_app.empty():
            seen += self.from_app.get_nowait().get("body", b"")
        return seen


@pytest.fixture
def call() -> type[AsgiCall]:
    return AsgiCall


@pytest.fixture
def local() -> Principal:
    return LOCAL
