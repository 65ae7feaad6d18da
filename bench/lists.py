"""List and poll: pages of 50 by cursor and single tasks, at 1k, 100k and 1M tasks, on both databases.

Each size is a database of its own; sizes take turns within a run, and the best of many slices counts. `bare` is the
same page's rows fetched by the driver through the same reader, without making anything of them.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.ledger import SqlLedger
from docmill.adapters.sql.pages import FACES
from docmill.adapters.sql.statement import Op, Query, Row, Statement
from docmill.http.wire import encode, faces_json
from docmill.ports import Filter
from support.databases import open_database
from support.ledgers import ANNA
from support.servers import Postgres

SLICES, ROUNDS = 40, 25
FLAT, ENCODED = 1.10, 1.35

# A template task, copied by the database itself: a million inserts through the front door would take an hour.
TEMPLATE = """
INSERT INTO tasks (tenant, owner, project_id, filename, source_key, rule_id, status, stage, attempt, attempt_id,
                   version, event_seq, progress, body, face, created_ms, updated_ms)
SELECT tenant, owner, project_id, filename, source_key, rule_id, status, stage, attempt, attempt_id,
       version, event_seq, progress, body, face, created_ms, updated_ms
FROM tasks CROSS JOIN ({numbers}) AS numbers WHERE tasks.id = 1
"""
NUMBERS = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :n) SELECT i FROM n",
    "postgres": "SELECT generate_series(1, CAST(:n AS BIGINT)) AS i",
}


AT_ONCE = 50_000
"""Rows in one statement: the database may take seconds for it, but not for ever."""


def fill(dialect: str, n: int) -> Op[None]:
    yield Query(Statement(TEMPLATE.replace("{numbers}", NUMBERS[dialect])), {"n": n})


def count(n: int) -> Op[None]:
    yield Query(Statement("UPDATE task_counts SET n = :n"), {"n": n})


def analyze() -> Op[None]:
    yield Query(Statement("ANALYZE"), {})


async def filled(database: Database, n: int) -> SqlLedger:
    from support.ledgers import complete, opened

    ledger = SqlLedger(database)
    await complete(ledger, await opened(ledger))
    for start in range(1, n, AT_ONCE):
        await database.write(fill(database.dialect, min(AT_ONCE, n - start)))
    await database.write(count(n))
    await database.write(analyze())
    return ledger


def bare_page(where: Filter) -> Op[list[Row]]:
    page, _ = FACES[False, False, True]
    rows = yield page(tenant=ANNA.tenant, owner=ANNA.user, before=where.before, limit=where.limit, offset=0)
    return rows


async def ours(ledger: SqlLedger, where: Filter) -> bytes:
    found = await ledger.faces(where)
    return encode({"tasks": faces_json(found.faces), "total": found.total})


async def slice_of(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    for _ in range(ROUNDS):
        await call()
    return (time.perf_counter() - began) / ROUNDS


async def best(calls: dict[str, Callable[[], Awaitable[object]]]) -> dict[str, float]:
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(SLICES):
        for name, call in calls.items():
            found[name] = min(found[name], await slice_of(call))
    return found


async def measure(kind: str, sizes: list[int], postgres: Postgres | None) -> bool:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        calls: dict[str, Callable[[], Awaitable[object]]] = {}
        for size in sizes:
            place = folder / str(size)
            place.mkdir()
            url = stack.enter_context(postgres.address.database()) if postgres else None
            database = await stack.enter_async_context(open_database(kind, place, url))
            ledger = await filled(database, size)
            for where, before in (("first", size), ("middle", size // 2), ("last", 60)):
                page = Filter(ANNA, before=before)
                calls[f"{where} {size}"] = lambda ledger=ledger, page=page: ours(ledger, page)
            page = Filter(ANNA, before=size // 2)
            calls[f"bare {size}"] = lambda database=database, page=page: database.read(bare_page(page))
            calls[f"one {size}"] = lambda ledger=ledger, size=size: ledger.get(size // 2, ANNA)
        found = await best(calls)
    small, large = sizes[0], sizes[-1]
    print(f"\n{kind}: microseconds, best of {SLICES} slices of {ROUNDS} calls, one after the other")
    print("            " + "".join(f"{size:>12,}" for size in sizes) + "   largest / smallest")
    good = True
    for line in ("first", "middle", "last", "one", "bare"):
        ratio = found[f"{line} {large}"] / found[f"{line} {small}"]
        good &= ratio <= FLAT or line == "bare"
        cells = "".join(f"{found[f'{line} {size}'] * 1e6:12.0f}" for size in sizes)
        print(f"  {line:10}{cells}   {ratio:6.2f} x" + ("" if line == "bare" else f"  (goal {FLAT})"))
    ratio = found[f"middle {large}"] / found[f"bare {large}"]
    print(f"  query + encode against the bare fetch at {large:,}: {ratio:.2f} x  (goal {ENCODED})")
    return good and ratio <= ENCODED


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1000,100000,1000000")
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    given = parser.parse_args()
    sizes = [int(size) for size in given.sizes.split(",")]
    good = True
    if given.only != "postgres":
        good &= await measure("sqlite", sizes, None)
    if given.only != "sqlite":
        with Postgres() as postgres:
            good &= await measure("postgres", sizes, postgres)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
