"""A deployment on real PostgreSQL, Redis and S3, with an engine that does nothing: what docmill itself costs there.

`python bench/distributed.py worker` is the worker process; `... arq` is ARQ's own, with its defaults.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from docmill import compose, settings
from docmill.core.machine import StageResult
from docmill.http import logs
from docmill.ports import Deferred, Ports
from docmill.work import run
from docmill.work.stages.step import Step
from embedded import NoEngine
from support.servers import ObjectServer, Postgres, Redis


@contextmanager
def servers() -> Iterator[dict[str, str]]:
    """Fresh servers; the variables by which every process finds them."""
    with ExitStack() as stack:
        postgres, redis, s3 = (stack.enter_context(one()) for one in (Postgres, Redis, ObjectServer))
        yield {
            "DATABASE_URL": stack.enter_context(postgres.address.database()),
            "REDIS_URL": redis.url,
            "OBJECTS_URL": f"s3://{s3.address.bucket}/bench",
            **s3.address.environment,
        }


@contextmanager
def process(role: str, environment: dict[str, str], *words: str) -> Iterator[None]:
    command = [sys.executable, __file__, role, *words]
    child = subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout
        assert "ready" in child.stdout.readline()
        yield
    finally:
        child.terminate()
        child.wait(20)
        child.stdout.close()


@asynccontextmanager
async def door(environment: dict[str, str]) -> AsyncIterator[Ports]:
    """What an API process has: no worker."""
    os.environ.update(environment)
    with tempfile.TemporaryDirectory() as folder:
        async with compose.opened(settings.load(data=Path(folder), jobs=0)) as ports:
            yield ports


async def no_stage(ports: Ports, step: Step) -> StageResult | Deferred:
    return StageResult()


async def work(jobs: int, stage_jobs: int, *, is_idle: bool) -> None:
    """A worker whose engine does nothing; *is_idle*: no stage does anything at all."""
    logs.configure(json=True, level="warning")
    if is_idle:
        for stage in run.STAGES:
            run.STAGES[stage] = no_stage
    with tempfile.TemporaryDirectory() as folder:
        chosen = settings.load(data=Path(folder), jobs=jobs, stage_jobs=stage_jobs)
        async with compose.opened(chosen) as real:
            ports = replace(real, engines={"local": NoEngine()})
            async with compose.working(chosen, ports):
                print("ready", flush=True)
                await asyncio.Event().wait()


async def echo(ctx: dict[str, Any], reply: str) -> None:
    await ctx["redis"].lpush(reply, "started")


def arq_worker() -> None:
    """As ARQ's documentation starts one: every default."""
    from arq.connections import RedisSettings
    from arq.worker import Worker

    asyncio.set_event_loop(asyncio.new_event_loop())
    print("ready", flush=True)
    Worker([echo], redis_settings=RedisSettings.from_dsn(os.environ["REDIS_URL"])).run()


if __name__ == "__main__":
    if sys.argv[1] == "arq":
        arq_worker()
    else:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work(int(sys.argv[2]), int(sys.argv[3]), is_idle="idle" in sys.argv))
