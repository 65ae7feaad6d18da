"""What every rule book promises, on every database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.rules import SqlRules
from docmill.adapters.sql.statement import Op, Statement
from docmill.core.access import Owner
from docmill.core.rules import DEFAULT_NAME, Draft
from support.databases import KINDS, open_database, url_of

ANNA, BERT, CARL = Owner("acme", "anna"), Owner("acme", "bert"), Owner("other", "anna")
DRAFT = Draft(name="invoices", description="Rechnungen 发票", json_schema={"type": "object", "b": 1, "a": [None, 1.5]})


@pytest.fixture(params=KINDS)
async def databases(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Database, Database]]:
    """The same database, opened by two processes, as it were."""
    url = url_of(request.param, request)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(open_database(request.param, tmp_path, url))
        yield first, await stack.enter_async_context(open_database(request.param, tmp_path, url))


@pytest.fixture
def rules(databases: tuple[Database, Database]) -> SqlRules:
    return SqlRules(databases[0])


async def test_the_default_rule_skips_and_is_seen_by_all(rules: SqlRules) -> None:
    default = await rules.default()

    assert (DEFAULT_NAME, "skip", True, None) == (default.name, default.mode, default.is_default, default.json_schema)
    for who in (ANNA, BERT, CARL):
        assert default == await rules.get(default.id, who)
        assert ([default], 1) == await rules.list(who, limit=10, offset=0)


@pytest.mark.slow
async def test_however_many_ask_at_once_there_is_one_default_rule(databases: tuple[Database, Database]) -> None:
    books = [SqlRules(database) for database in databases]
    for _ in range(200):
        found = await asyncio.gather(*(books[i % 2].default() for i in range(20)))

        assert 1 == len({rule.id for rule in found})
        assert [[found[0].id]] == [list(row) for row in await databases[0].read(_run("SELECT id FROM rules"))]
        await databases[0].write(_run("DELETE FROM rules"))


async def test_a_default_rule_that_was_deleted_by_hand_is_made_again(
    databases: tuple[Database, Database], rules: SqlRules
) -> None:
    first = await rules.default()
    await databases[1].write(_run("DELETE FROM rules"))

    again = await rules.default()

    assert again.id != first.id
    assert again == await rules.default()


async def test_nobody_changes_the_default_rule(rules: SqlRules) -> None:
    default = await rules.default()

    assert await rules.replace(default.id, DRAFT, ANNA) is None
    assert not await rules.remove(default.id, ANNA)
    assert default == await rules.default()


async def test_a_rule_comes_back_as_it_was_written(rules: SqlRules) -> None:
    rule = await rules.add(DRAFT, ANNA)

    assert rule == await rules.get(rule.id, ANNA)
    assert (DRAFT.name, DRAFT.description, DRAFT.mode) == (rule.name, rule.description, rule.mode)
    assert list(DRAFT.json_schema or ()) == list(rule.json_schema or ())
    assert DRAFT.json_schema == rule.json_schema
    assert not rule.is_default
    assert rule.created_ms == rule.updated_ms > 1_700_000_000_000


async def test_a_rule_is_replaced_whole(rules: SqlRules) -> None:
    rule = await rules.add(DRAFT, ANNA)

    changed = await rules.replace(rule.id, Draft(name="skip", mode="skip"), ANNA)

    assert changed
    assert changed == await rules.get(rule.id, ANNA)
    assert (rule.id, "skip", "", None, rule.created_ms) == (
        changed.id,
        changed.mode,
        changed.description,
        changed.json_schema,
        changed.created_ms,
    )


@pytest.mark.parametrize("who", [BERT, CARL])
async def test_a_rule_of_somebody_else_is_not_there(rules: SqlRules, who: Owner) -> None:
    rule = await rules.add(DRAFT, ANNA)

    assert await rules.get(rule.id, who) is None
    assert await rules.replace(rule.id, Draft("mine"), who) is None
    assert not await rules.remove(rule.id, who)
    assert ([], 0) == await rules.list(who, limit=10, offset=0)
    assert rule == await rules.get(rule.id, ANNA)


async def test_lists_begin_with_the_default_rule_and_know_their_total(rules: SqlRules) -> None:
    own = [await rules.add(Draft(f"rule {number}", mode="skip"), ANNA) for number in range(5)]
    default = await rules.default()

    assert ([default, *own], 6) == await rules.list(ANNA, limit=10, offset=0)
    assert (own[1:3], 6) == await rules.list(ANNA, limit=2, offset=2)
    assert ([], 6) == await rules.list(ANNA, limit=2, offset=6)


@pytest.mark.parametrize("number", [0, -1, 2**63, 10**30])
async def test_an_impossible_id_is_no_rule(rules: SqlRules, number: int) -> None:
    assert await rules.get(number, ANNA) is None
    assert await rules.replace(number, DRAFT, ANNA) is None
    assert not await rules.remove(number, ANNA)


async def test_a_removed_rule_is_gone(rules: SqlRules) -> None:
    rule = await rules.add(DRAFT, ANNA)

    assert await rules.remove(rule.id, ANNA)
    assert not await rules.remove(rule.id, ANNA)
    assert await rules.get(rule.id, ANNA) is None


def _run(sql: str) -> Op[list[object]]:
    rows = yield Statement(sql)()
    return list(rows)
