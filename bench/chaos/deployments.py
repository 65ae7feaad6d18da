"""What is under fire: one embedded process, or API and worker processes on PostgreSQL, Redis and S3."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import httpx2

from bench.chaos.nursery import Nursery
from bench.chaos.units import Supervisor, Unit
from support.servers import ObjectServer, Postgres, Redis
from support.servers.process import free_port

READY_S = 60.0


@dataclass(frozen=True)
class Pace:
    """How fast a dead worker is noticed. Shorter than the defaults, so that a run fits into minutes."""

    lease_s: float = 3.0
    heartbeat_s: float = 1.0
    sweep_s: float = 0.5

    @property
    def environment(self) -> dict[str, str]:
        return {
            "DOCMILL_LEASE": str(self.lease_s),
            "DOCMILL_HEARTBEAT": str(self.heartbeat_s),
            "DOCMILL_SWEEP": str(self.sweep_s),
            "DOCMILL_LOG_FORMAT": "json",
        }


class Deployment(ABC):
    """Processes, and a way to look at their ledger from outside."""

    def __init__(
        self,
        folder: Path,
        pace: Pace,
        *,
        tampering: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.pace = pace
        self.tampering = tampering
        self.environment = environment or {}
        self.stack = ExitStack()
        self.supervisor = Supervisor([])
        self.nursery = Nursery(folder)

    @property
    @abstractmethod
    def urls(self) -> list[str]: ...

    @property
    @abstractmethod
    def apis(self) -> list[Unit]: ...

    @property
    @abstractmethod
    def workers(self) -> list[Unit]: ...

    @abstractmethod
    def rows(self, sql: str) -> list[tuple[Any, ...]]: ...

    def open(self) -> Deployment:
        self.prepare()
        self.supervisor.start()
        return self.answering()

    def answering(self) -> Deployment:
        """Itself, when every address answers."""
        ends = time.monotonic() + READY_S
        for url in self.urls:
            while not _answers(url):
                if time.monotonic() > ends:
                    raise RuntimeError(f"{url} did not answer in {READY_S} s\n{self.log_tails()}")
                time.sleep(0.05)
        return self

    @abstractmethod
    def prepare(self) -> None: ...

    def log_tails(self) -> str:
        tails = [f"== {unit.name}\n{unit.log.read_text(errors='replace')[-2000:]}" for unit in self.supervisor.units]
        return "\n".join(tails)

    def close(self) -> dict[str, int | None]:
        try:
            return self.supervisor.close()
        finally:
            self.nursery.close()
            self.stack.close()

    def unit(self, name: str, *command: str, **environment: str) -> Unit:
        said = self.pace.environment | environment | self.environment
        return Unit(name, list(command), said, self.folder / f"{name}.log", self.nursery, self.tampering)


class Embedded(Deployment):
    name = "embedded"

    def prepare(self) -> None:
        self.port = free_port()
        data = self.folder / "data"
        unit = self.unit("serve", "serve", "--data", str(data), "--port", str(self.port), "--jobs", "2")
        self.supervisor = Supervisor([unit])

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{self.port}"]

    @property
    def apis(self) -> list[Unit]:
        return self.supervisor.units

    @property
    def workers(self) -> list[Unit]:
        return self.supervisor.units

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        connection = apsw.Connection(str(self.folder / "data/docmill.db"), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            connection.set_busy_timeout(5000)
            return list(connection.execute(sql))
        finally:
            connection.close()


class Distributed(Deployment):
    name = "distributed"

    def __init__(self, folder: Path, pace: Pace, *, apis: int = 2, workers: int = 3, **more: Any) -> None:
        super().__init__(folder, pace, **more)
        self._counts = apis, workers

    def prepare(self) -> None:
        self.postgres = self.stack.enter_context(Postgres())
        self.redis = self.stack.enter_context(Redis())
        self.objects = self.stack.enter_context(ObjectServer())
        self.database_url = self.stack.enter_context(self.postgres.address.database())
        apis, workers = self._counts
        self.ports = [free_port() for _ in range(apis)]
        environment = {
            "APP_URL": self.urls[0],
            "DATABASE_URL": self.database_url,
            "REDIS_URL": self.redis.url,
            "OBJECTS_URL": f"s3://{self.objects.address.bucket}/chaos",
            "DOCMILL_SECRET": "chaos-" + "0123456789abcdef" * 3,
            "DOCMILL_JOBS": "2",
            **self.objects.address.environment,
        }
        units = [
            self.unit(
                f"api{n}",
                *("serve", "--data", str(self.folder / f"api{n}"), "--port", str(port)),
                **environment | {"DOCMILL_JOBS": "0"},
            )
            for n, port in enumerate(self.ports)
        ]
        units += [
            self.unit(f"worker{n}", "worker", "--data", str(self.folder / f"worker{n}"), **environment)
            for n in range(workers)
        ]
        self.supervisor = Supervisor(units)

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    @property
    def apis(self) -> list[Unit]:
        return [unit for unit in self.supervisor.units if unit.name.startswith("api")]

    @property
    def workers(self) -> list[Unit]:
        return [unit for unit in self.supervisor.units if unit.name.startswith("worker")]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return asyncio.run(self._rows(sql))

    async def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        import asyncpg

        connection = await asyncpg.connect(self.database_url, server_settings={"docmill.scope": "*"})
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    def drop_connections(self) -> None:
        self.postgres.address.run_sql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'docmill'"
        )

    def flush_redis(self) -> None:
        from redis import Redis as Client

        with suppress(Exception), Client.from_url(self.redis.url) as client:
            client.flushall()


def _answers(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/ready", timeout=2, trust_env=False).is_success
    except httpx2.TransportError:
        return False
