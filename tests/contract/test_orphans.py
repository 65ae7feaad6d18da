"""Thousands of tasks whose workers are gone, two sweepers at once, a row that nobody can read, and fresh ones."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.ledger import SqlLedger
from docmill.adapters.sql.statement import Op, Query, Row, Statement
from docmill.work import sweep
from support.databases import KINDS, open_database, url_of
from support.ledgers import a_task, claimed, opened, ports_on

ORPHANS = int(os.environ.get("DOCMILL_ORPHANS", "130"))
"""More than a few pages of the sweeper; 10000 on demand."""
PAGE = 50
COPY = """
INSERT INTO tasks (tenant, owner, project_id, filename, source_key, rule_id, status, stage, attempt, attempt_id,
                   version, event_seq, progress, body, face, created_ms, updated_ms)
SELECT tenant, owner, project_id, filename, source_key, rule_id, status, stage, attempt, 'orphan-' || i, version,
       event_seq, progress, body, face, created_ms, updated_ms
FROM tasks CROSS JOIN ({numbers}) AS numbers WHERE id = :template
"""
ATTEMPTS = """
INSERT INTO attempts (id, task_id, number, stage, state, priority, owner, due_ms, lease_ms, started_ms)
SELECT {uuid}, id, 1, 'parse', 'running', 0, 'gone', 0, {now} - 1000, 0 FROM tasks WHERE attempt_id LIKE 'orphan-%'
"""
NAMED = """
UPDATE tasks SET attempt_id = (SELECT a.id FROM attempts a WHERE a.task_id = tasks.id)
WHERE attempt_id LIKE 'orphan-%'
"""
NUMBERS = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :n) SELECT i FROM n",
    "postgres": "SELECT generate_series(1, CAST(:n AS BIGINT)) AS i",
}
UUIDS = {
    "sqlite": "lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2)"
    " || '-a' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))",
    "postgres": "CAST(gen_random_uuid() AS TEXT)",
}


@pytest.fixture(params=KINDS)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with open_database(request.param, tmp_path, url_of(request.param, request)) as database:
        yield database


def run(text: str, **params: object) -> Op[list[Row]]:
    rows = yield Query(Statement(text), params)
    return rows


@pytest.mark.slow
async def test_all_orphans_are_repaired_the_unreadable_one_is_left_alone_and_fresh_ones_untouched(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "PAGE", PAGE)
    ports, ledger, count = ports_on(database), SqlLedger(database), ORPHANS
    fresh, _ = await claimed(ledger, await opened(ledger, a_task()), lease_ms=600_000)
    await database.write(
        run(COPY.replace("{numbers}", NUMBERS[database.dialect]), n=count, template=fresh.id), statement_s=60
    )
    await database.write(run(ATTEMPTS.replace("{uuid}", UUIDS[database.dialect])), statement_s=60)
    await database.write(run(NAMED), statement_s=60)
    poison = (await database.read(run("SELECT min(id) FROM tasks WHERE id > :id", id=fresh.id)))[0][0]
    await database.write(run("UPDATE tasks SET body = 'not json' WHERE id = :id", id=poison))

    await asyncio.gather(sweep.sweep(ports), sweep.sweep(ports))
    await sweep.sweep(ports)

    states = dict(await database.read(run("SELECT state, count(*) FROM attempts GROUP BY state")))
    assert {"running": 2, "dropped": count - 1, "queued": count - 1} == states
    lost = await database.read(run("SELECT count(*) FROM events WHERE kind = 'worker_lost'"))
    assert count - 1 == lost[0][0], "each is recovered once"
    assert fresh.attempt_id
    found = await ledger.find(fresh.attempt_id)
    assert found
    assert "running" == found[1].state
