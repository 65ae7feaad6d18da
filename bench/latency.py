"""Start latency, embedded: from the call of submit until the attempt runs (claimed and committed).

Beside it, in the same run, the floor: what two durable commits in a row cost on this disk (accept, claim).
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from uuid import uuid4

from docmill.adapters.sql.sqlite import SqliteDatabase
from docmill.core.access import LOCAL
from docmill.core.task import Status
from docmill.ports import Ports
from docmill.work import intake
from embedded import service, upload

P50_MS, P99_MS = 5.0, 25.0


async def start_of_one(ports: Ports, key: str) -> float:
    began = time.perf_counter()
    with ports.signals.subscribe() as signals:
        task, _ = await intake.submit(ports, LOCAL, intake.Submission(s3_key=key, filename=f"{uuid4()}.txt"))
        while True:
            await signals.wait(5)
            now = time.perf_counter()
            seen = await ports.ledger.get(task.id)
            if seen and seen.status is not Status.PENDING:
                return (now - began) * 1000


async def finished(ports: Ports) -> None:
    with ports.signals.subscribe() as signals:
        while sum(n for status, n in (await ports.ledger.counts()).items() if status in BUSY):
            await signals.wait(0.05)


BUSY = ("pending", "mineru_parsing", "llm_processing")


async def two_commits(database: SqliteDatabase) -> float:
    from docmill.adapters.sql.statement import Op, Statement

    insert = Statement("INSERT INTO floor (x) VALUES (:x)")

    def op() -> Op[None]:
        yield insert(x="x" * 500)

    began = time.perf_counter()
    await database.write(op())
    await database.write(op())
    return (time.perf_counter() - began) * 1000


async def measure(rounds: int) -> bool:
    async with service(jobs=2) as ports:
        key = await upload(ports, "a.txt", b"hello")
        floor_db = SqliteDatabase(ports.scratch.parent / "floor.db")
        await floor_db.script("CREATE TABLE floor (x TEXT)")
        await start_of_one(ports, key)
        ours, floor = [], []
        for _ in range(rounds):
            ours.append(await start_of_one(ports, key))
            await finished(ports)
            floor.append(await two_commits(floor_db))
        await floor_db.close()
    p50, p99 = statistics.median(ours), statistics.quantiles(ours, n=100)[98]
    f50, f99 = statistics.median(floor), statistics.quantiles(floor, n=100)[98]
    print(f"start latency, embedded, {rounds} submissions one after the other")
    print(f"  docmill              p50 {p50:6.2f} ms   p99 {p99:6.2f} ms   (goal {P50_MS:.0f} / {P99_MS:.0f})")
    print(f"  two bare commits     p50 {f50:6.2f} ms   p99 {f99:6.2f} ms")
    print(f"  ratio                p50 {p50 / f50:6.2f} x    p99 {p99 / f99:6.2f} x")
    return p50 <= P50_MS and p99 <= P99_MS


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 400)) else 1)
