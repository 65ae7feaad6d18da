"""A progress callback as one would write it with FastAPI and aiosqlite: a commit a request."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Annotated, Any
from uuid import UUID

import aiosqlite
from fastapi import FastAPI, Header, HTTPException
from pydantic import BaseModel, Field

SCHEMA = """
CREATE TABLE tasks (id INTEGER PRIMARY KEY, tenant TEXT, owner TEXT, project_id INTEGER, status TEXT, stage TEXT,
    attempt_id TEXT, version INTEGER, event_seq INTEGER, progress INTEGER, provider_task_id TEXT, updated_ms INTEGER);
CREATE INDEX tasks_by_owner ON tasks (tenant, owner, id);
CREATE INDEX tasks_by_status ON tasks (tenant, owner, status, id);
CREATE TABLE attempts (id TEXT PRIMARY KEY, task_id INTEGER REFERENCES tasks (id), state TEXT, deadline_ms INTEGER,
    token_hash TEXT, process_id TEXT, timeout_ms INTEGER);
CREATE INDEX attempts_handed_over ON attempts (deadline_ms) WHERE state = 'handed_over';
CREATE TABLE events (task_id INTEGER REFERENCES tasks (id), seq INTEGER, kind TEXT, data TEXT, at_ms INTEGER,
    PRIMARY KEY (task_id, seq));
"""


class Process(BaseModel):
    id: str | None = Field(None, max_length=200)


class Report(BaseModel):
    phase: str = Field("", max_length=200)
    progress: float | None = None
    message: str = Field("", max_length=1000)
    process: Process | None = None


def build(path: str, jobs: dict[str, str]) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with aiosqlite.connect(path, isolation_level=None) as database:
            await database.execute("PRAGMA journal_mode = wal")
            await database.execute("PRAGMA synchronous = full")
            await database.executescript(SCHEMA)
            await database.execute("BEGIN")
            for number, (job, token) in enumerate(jobs.items(), 1):
                await database.execute(
                    "INSERT INTO tasks VALUES (?, 'acme', 'anna', 1, 'running', 'parse', ?, 1, 0, 10, NULL, 0)",
                    (number, job),
                )
                await database.execute(
                    "INSERT INTO attempts VALUES (?, ?, 'handed_over', 0, ?, NULL, 600000)",
                    (job, number, sha256(token.encode()).hexdigest()),
                )
            await database.execute("COMMIT")
            app.state.database = database
            app.state.lock = asyncio.Lock()
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/api/external/jobs/{job_id}")
    async def progress(job_id: UUID, report: Report, authorization: Annotated[str, Header()]) -> dict[str, Any]:
        database: aiosqlite.Connection = app.state.database
        # One connection, one transaction at a time: cheaper than a connection a request that waits for the lock.
        async with app.state.lock:
            await database.execute("BEGIN IMMEDIATE")
            try:
                answer = await apply(database, str(job_id), report, authorization)
                await database.execute("COMMIT")
            except BaseException:
                await database.execute("ROLLBACK")
                raise
        return answer

    return app


async def apply(database: aiosqlite.Connection, job: str, report: Report, authorization: str) -> dict[str, Any]:
    rows = list(
        await database.execute_fetchall(
            "SELECT t.id, t.version, t.event_seq, t.progress, t.attempt_id, a.state, a.token_hash, a.timeout_ms"
            " FROM attempts a JOIN tasks t ON t.id = a.task_id WHERE a.id = ?",
            (job,),
        )
    )
    if not rows:
        raise HTTPException(404)
    task, version, seq, reached, current, state, token_hash, timeout_ms = rows[0]
    token = authorization.removeprefix("Bearer ")
    if not hmac.compare_digest(sha256(token.encode()).hexdigest(), token_hash):
        raise HTTPException(401)
    answer = {"status": "ok", "kind": "progress", "jobId": job}
    if current != job or state != "handed_over":
        return answer | {"cancel_requested": True}
    reached = max(reached, 10 + int(45 * min(max(report.progress or 0, 0), 100) / 100))
    now = int(time.time() * 1000)
    process = report.process.id if report.process else None
    await database.execute(
        "UPDATE tasks SET progress = ?, provider_task_id = COALESCE(?, provider_task_id), version = version + 1,"
        " event_seq = ?, updated_ms = ? WHERE id = ? AND version = ?",
        (reached, process, seq + 1, now, task, version),
    )
    await database.execute(
        "UPDATE attempts SET deadline_ms = ?, process_id = COALESCE(?, process_id) WHERE id = ?",
        (now + timeout_ms, process, job),
    )
    said = json.dumps({"progress": reached, "phase": report.phase, "message": report.message})
    await database.execute("INSERT INTO events VALUES (?, ?, 'progress', ?, ?)", (task, seq + 1, said, now))
    return answer
