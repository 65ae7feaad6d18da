"""A progress callback as one would write it with FastAPI and SQLAlchemy's ORM: a session and a commit a request."""

import hmac
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, FastAPI, Header, HTTPException
from sqlalchemy import JSON, ForeignKey, Index, event, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, joinedload, mapped_column, relationship

from peers.callbacks_aiosqlite import Report


class Base(DeclarativeBase):
    pass


class Task(Base):
    __tablename__ = "tasks"
    __table_args__ = (
        Index("tasks_by_owner", "tenant", "owner", "id"),
        Index("tasks_by_status", "tenant", "owner", "status", "id"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    tenant: Mapped[str]
    owner: Mapped[str]
    project_id: Mapped[int]
    status: Mapped[str]
    stage: Mapped[str]
    attempt_id: Mapped[str]
    version: Mapped[int] = mapped_column()
    event_seq: Mapped[int]
    progress: Mapped[int]
    provider_task_id: Mapped[str | None]
    updated_ms: Mapped[int]
    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012 - SQLAlchemy's own form


class Attempt(Base):
    __tablename__ = "attempts"
    __table_args__ = (Index("attempts_handed_over", "deadline_ms", sqlite_where=text("state = 'handed_over'")),)
    id: Mapped[str] = mapped_column(primary_key=True)
    task_id: Mapped[int] = mapped_column(ForeignKey("tasks.id"))
    state: Mapped[str]
    deadline_ms: Mapped[int]
    token_hash: Mapped[str]
    process_id: Mapped[str | None]
    timeout_ms: Mapped[int]
    task: Mapped[Task] = relationship()


class Event(Base):
    __tablename__ = "events"
    task_id: Mapped[int] = mapped_column(ForeignKey("tasks.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    data: Mapped[dict[str, Any]] = mapped_column(JSON)
    at_ms: Mapped[int]


def build(path: str, jobs: dict[str, str]) -> FastAPI:
    # One connection at a time: SQLite has one writer, and whoever waits in the pool burns no CPU.
    engine = create_async_engine(
        f"sqlite+aiosqlite:///{path}", pool_size=1, max_overflow=0, connect_args={"isolation_level": None}
    )
    sessions = async_sessionmaker(engine, expire_on_commit=False)

    @event.listens_for(engine.sync_engine, "connect")
    def connect(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("PRAGMA synchronous = full")

    @event.listens_for(engine.sync_engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        async with sessions() as session, session.begin():
            for number, (job, token) in enumerate(jobs.items(), 1):
                task = Task(
                    id=number, tenant="acme", owner="anna", project_id=1, status="running", stage="parse",
                    attempt_id=job, version=1, event_seq=0, progress=10, updated_ms=0,
                )  # fmt: skip
                hashed = sha256(token.encode()).hexdigest()
                session.add(
                    Attempt(id=job, task=task, state="handed_over", deadline_ms=0, token_hash=hashed, timeout_ms=600000)
                )
        yield
        await engine.dispose()

    async def one_session() -> AsyncIterator[AsyncSession]:
        async with sessions() as found:
            yield found

    app = FastAPI(lifespan=lifespan)

    @app.post("/api/external/jobs/{job_id}")
    async def progress(
        job_id: UUID,
        report: Report,
        authorization: Annotated[str, Header()],
        session: Annotated[AsyncSession, Depends(one_session)],
    ) -> dict[str, Any]:
        job = str(job_id)
        attempt = await session.get(Attempt, job, options=[joinedload(Attempt.task)])
        if attempt is None:
            raise HTTPException(404)
        token = authorization.removeprefix("Bearer ")
        if not hmac.compare_digest(sha256(token.encode()).hexdigest(), attempt.token_hash):
            raise HTTPException(401)
        answer = {"status": "ok", "kind": "progress", "jobId": job}
        task = attempt.task
        if task.attempt_id != job or attempt.state != "handed_over":
            return answer | {"cancel_requested": True}
        now = int(time.time() * 1000)
        process = report.process.id if report.process else None
        task.progress = max(task.progress, 10 + int(45 * min(max(report.progress or 0, 0), 100) / 100))
        task.provider_task_id = process or task.provider_task_id
        task.event_seq += 1
        task.updated_ms = now
        attempt.deadline_ms = now + attempt.timeout_ms
        attempt.process_id = process or attempt.process_id
        said = {"progress": task.progress, "phase": report.phase, "message": report.message}
        session.add(Event(task_id=task.id, seq=task.event_seq, kind="progress", data=said, at_ms=now))
        await session.commit()
        return answer

    return app
