"""Measure what the capacity model is fed with: the samples through the whole service, once each, without the cache.

python bench/figures.py
"""

from __future__ import annotations

import asyncio
import os
import resource
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2

from docmill import compose, settings
from docmill.core.access import LOCAL
from docmill.core.task import Wishes
from docmill.http import logs
from docmill.http.app import Authenticator, AuthOptions, HttpOptions, build_app
from docmill.ports import Ports
from docmill.work import intake
from embedded import upload

SAMPLES = Path(__file__).parent.parent / "samples"
REQUESTS = 2000
BUSY = ("pending", "mineru_parsing", "llm_processing")


class Counted:
    """A store that counts what is asked of it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += name not in ("bucket", "close")
        return getattr(self._inner, name)


def cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


async def finished(ports: Ports) -> None:
    while any(n for at, n in (await ports.ledger.counts()).items() if at in BUSY):  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def requests_cpu(ports: Ports) -> float:
    """Processor seconds of one look at a task, through the whole app."""
    app = build_app(ports, auth=Authenticator(AuthOptions(require=False), ports.keys), options=HttpOptions())
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        began = time.process_time()
        for _ in range(REQUESTS):
            assert 200 == (await client.get("/api/v1/etl/tasks/1")).status_code
        return (time.process_time() - began) / REQUESTS


def size_of(folder: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in folder.rglob(pattern) if path.is_file())


async def main() -> None:
    logs.configure(json=True, level="error")
    documents = [path for path in sorted(SAMPLES.iterdir()) if path.is_file() and path.suffix != ".md"]
    with tempfile.TemporaryDirectory() as folder:
        chosen = settings.load(data=Path(folder), jobs=2)
        async with compose.opened(chosen):
            pass
        empty, before = size_of(Path(folder), "docmill.db*"), cpu()
        async with compose.opened(chosen) as real:
            store = Counted(real.store)
            ports = replace(real, store=store)
            async with compose.working(chosen, ports):
                for path in documents:
                    key = await upload(ports, path.name, path.read_bytes())
                    wanted = intake.Submission(s3_key=key, filename=path.name, wishes=Wishes(no_cache=True))
                    await intake.submit(ports, LOCAL, wanted)
                await finished(ports)
            calls = sum(store.calls.values())
            look = await requests_cpu(ports)
        # Closed, so that everything is in the one file.
        grown = size_of(Path(folder), "docmill.db*") - empty
        spent = cpu() - before - look * REQUESTS
        stored = size_of(Path(folder) / "objects", "*")
    count = len(documents)
    print(f"{count} sample documents, {os.cpu_count()} cores")
    print(f"  processor seconds a document, children and start included  {spent / count:8.2f}")
    print(f"  calls to the store a document                              {calls / count:8.1f}")
    print(f"  MB a document in the store                                 {stored / count / 1e6:8.2f}")
    print(f"  kB a task in the database                                  {grown / count / 1e3:8.1f}")
    print(f"  looks at a task a second, one core                         {1 / look:8.0f}")


if __name__ == "__main__":
    asyncio.run(main())
