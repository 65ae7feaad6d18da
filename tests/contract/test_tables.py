"""What tables promise, on every database: above all, that concurrent mounts do not lose each other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.tables import SqlTables
from docmill.core.access import Owner, Principal
from docmill.core.errors import Conflict, DocmillError, Invalid, NotFound, TooLarge
from docmill.ports import Limits, Ports
from docmill.work import tables as work
from support.databases import KINDS, open_database, url_of

ANNA, BERT, CARL = Owner("acme", "anna"), Owner("acme", "bert"), Owner("other", "anna")
WHO = Principal(user="anna", tenant="acme")
DATA = {"b": [1, 2.5, None, True], "a": {"ü/~": "发票", "big": 2**64 - 1, "small": -(2**63)}}


@pytest.fixture(params=KINDS)
async def databases(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Database, Database]]:
    url = url_of(request.param, request)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(open_database(request.param, tmp_path, url))
        yield first, await stack.enter_async_context(open_database(request.param, tmp_path, url))


@pytest.fixture
def tables(databases: tuple[Database, Database]) -> SqlTables:
    return SqlTables(databases[0])


@pytest.fixture
def ports(tables: SqlTables) -> Ports:
    return _ports(tables)


def _ports(tables: SqlTables, **limits: Any) -> Ports:
    return cast(Ports, SimpleNamespace(tables=tables, limits=Limits(**limits)))


async def test_a_table_comes_back_as_it_was_written(tables: SqlTables) -> None:
    table = await tables.add(ANNA, 7, "Beträge", DATA)

    assert table == await tables.get(table.id, ANNA)
    assert (7, "Beträge", DATA) == (table.project_id, table.name, table.data)
    assert list(DATA) == list(table.data)


async def test_a_table_exists_for_its_owner_only(tables: SqlTables) -> None:
    table = await tables.add(ANNA, 7, "t", DATA)

    assert await tables.exists(table.id, ANNA)
    assert not await tables.exists(table.id, BERT)
    assert not await tables.exists(table.id, CARL)
    assert not await tables.exists(table.id + 1, ANNA)
    assert not await tables.exists(2**63, ANNA)


@pytest.mark.parametrize("data", [None, 0, "", [], {}, False, 1.5])
async def test_a_table_may_be_any_json_value(tables: SqlTables, data: Any) -> None:
    table = await tables.add(ANNA, 0, "any", data)

    found = await tables.get(table.id, ANNA)

    assert found
    assert (data, type(data)) == (found.data, type(found.data))


async def test_replacing_keeps_the_name_unless_there_is_a_new_one(tables: SqlTables) -> None:
    table = await tables.add(ANNA, 7, "first", {})

    kept = await tables.replace(table.id, ANNA, name=None, data=[1])
    renamed = await tables.replace(table.id, ANNA, name="second", data=[2])

    assert kept
    assert ("first", [1]) == (kept.name, kept.data)
    assert renamed
    assert renamed == await tables.get(table.id, ANNA)
    assert ("second", [2]) == (renamed.name, renamed.data)


async def test_a_project_lists_its_tables_without_their_data(tables: SqlTables) -> None:
    first, second = [await tables.add(ANNA, 7, name, DATA) for name in ("first", "second")]
    await tables.add(ANNA, 8, "elsewhere", DATA)

    assert [(first.id, "first", None), (second.id, "second", None)] == [
        (table.id, table.name, table.data) for table in await tables.list(ANNA, 7)
    ]


@pytest.mark.parametrize("who", [BERT, CARL])
async def test_a_table_of_somebody_else_is_not_there(tables: SqlTables, who: Owner) -> None:
    table = await tables.add(ANNA, 7, "mine", DATA)

    assert await tables.get(table.id, who) is None
    assert await tables.replace(table.id, who, name="x", data={}) is None
    assert not await tables.remove(table.id, who)
    assert await tables.edit(table.id, who, lambda data, _: (data, None, None, None)) is None
    assert [] == await tables.list(who, 7)
    assert table == await tables.get(table.id, ANNA)


@pytest.mark.parametrize("number", [0, -1, 2**63])
async def test_an_impossible_id_is_no_table(tables: SqlTables, number: int) -> None:
    assert await tables.get(number, ANNA) is None
    assert await tables.replace(number, ANNA, name=None, data={}) is None
    assert not await tables.remove(number, ANNA)


async def test_an_edit_that_raises_changes_nothing(tables: SqlTables) -> None:
    table = await tables.add(ANNA, 7, "mine", DATA)

    def edit(data: Any, _: Any) -> Any:
        raise Conflict("mount_conflict", key="x", pointer="")

    with pytest.raises(Conflict):
        await tables.edit(table.id, ANNA, edit)

    assert table == await tables.get(table.id, ANNA)


async def test_mounting_again_replaces_what_the_task_mounted(ports: Ports) -> None:
    table = await work.add(ports, WHO, 7, "t", {"in": {}})

    assert "/in/a" == await work.mount(ports, WHO, 1, table.id, "/in", "a", {"a": 1})
    assert "/in/a" == await work.mount(ports, WHO, 1, table.id, "/in", "a", {"a": 2})
    with pytest.raises(Conflict, match="belongs to something else"):
        await work.mount(ports, WHO, 2, table.id, "/in", "a", {"a": 3})

    assert 2 == await work.read_at(ports, WHO, table.id, "/in/a")


async def test_what_a_person_wrote_since_is_not_replaced(ports: Ports) -> None:
    table = await work.add(ports, WHO, 7, "t", {})
    await work.mount(ports, WHO, 1, table.id, "", "a", 1)
    await work.mount(ports, WHO, 2, table.id, "", "b", 1)

    await work.replace(ports, WHO, table.id, name=None, data={"a": "mine now", "b": 1})

    with pytest.raises(Conflict):
        await work.mount(ports, WHO, 1, table.id, "", "a", 2)
    await work.mount(ports, WHO, 2, table.id, "", "b", 2)
    assert {"a": "mine now", "b": 2} == await work.read_at(ports, WHO, table.id, "")


async def test_a_mount_inside_an_entry_ends_when_the_entry_is_replaced(ports: Ports) -> None:
    table = await work.add(ports, WHO, 7, "t", {})
    await work.mount(ports, WHO, 1, table.id, "", "a", {"x": 1})
    await work.mount(ports, WHO, 2, table.id, "/a", "b", 1)

    await work.mount(ports, WHO, 1, table.id, "", "a", {"b": "of task 1"})

    with pytest.raises(Conflict):
        await work.mount(ports, WHO, 2, table.id, "/a", "b", 2)


async def test_arrays_grow_and_once_means_once(ports: Ports) -> None:
    table = await work.add(ports, WHO, 7, "t", [])

    paths = [await work.mount(ports, WHO, task, table.id, "", "a", task) for task in (1, 1, 2)]
    again = await work.mount(ports, WHO, 2, table.id, "", "a", "new", once=True)
    first = await work.mount(ports, WHO, 3, table.id, "", "a", 3, once=True)

    assert ["/0", "/1", "/2"] == paths
    assert ("/2", "/3") == (again, first)
    assert [{"a": 1}, {"a": 1}, {"a": "new"}, {"a": 3}] == await work.read_at(ports, WHO, table.id, "")


@pytest.mark.slow
async def test_concurrent_mounts_do_not_lose_each_other(databases: tuple[Database, Database]) -> None:
    """200 rounds: ten tasks mount at once into one table, through two processes."""
    both = [_ports(SqlTables(database)) for database in databases]
    table = await work.add(both[0], WHO, 7, "t", {"all": [], "by": {}})
    for round_ in range(200):
        tasks = range(round_ * 10, round_ * 10 + 10)
        await asyncio.gather(
            *(work.mount(both[task % 2], WHO, task, table.id, "/all", "x", task) for task in tasks),
            *(work.mount(both[task % 2], WHO, task, table.id, "/by", f"t{task % 10}", task) for task in tasks),
        )
        data = await work.read_at(both[0], WHO, table.id, "")

        assert [{"x": task} for task in tasks] == sorted(data["all"], key=lambda one: one["x"])
        assert {f"t{task % 10}": task for task in tasks} == data["by"]
        await work.replace(both[1], WHO, table.id, name=None, data={"all": [], "by": {}})


async def test_of_tasks_that_want_the_same_key_one_gets_it(databases: tuple[Database, Database]) -> None:
    both = [_ports(SqlTables(database)) for database in databases]
    for _ in range(20):
        table = await work.add(both[0], WHO, 7, "t", {})

        outcomes = await asyncio.gather(
            *(work.mount(both[task % 2], WHO, task, table.id, "", "a", task) for task in range(1, 9)),
            return_exceptions=True,
        )

        assert 7 == len([one for one in outcomes if isinstance(one, Conflict)])
        assert await work.read_at(both[0], WHO, table.id, "/a") == 1 + outcomes.index("/a")


@pytest.mark.parametrize(
    ("pointer", "kind", "code"),
    [
        ("a", Invalid, "pointer_invalid"),
        ("/a\0", Invalid, "pointer_invalid"),
        ("/none", NotFound, "pointer_not_found"),
        ("/n", Conflict, "pointer_not_container"),
    ],
)
async def test_a_pointer_that_leads_nowhere(ports: Ports, pointer: str, kind: type[DocmillError], code: str) -> None:
    table = await work.add(ports, WHO, 7, "t", {"n": 1})

    with pytest.raises(kind) as caught:
        await work.mount(ports, WHO, 1, table.id, pointer, "a", 1)

    assert code == caught.value.code


async def test_a_table_has_a_largest_size(tables: SqlTables) -> None:
    ports = _ports(tables, table_bytes=100)
    table = await work.add(ports, WHO, 7, "t", {"a": "x" * 80})

    with pytest.raises(TooLarge):
        await work.add(ports, WHO, 7, "t", "x" * 99)
    with pytest.raises(TooLarge):
        await work.replace(ports, WHO, table.id, name=None, data="x" * 99)
    with pytest.raises(TooLarge):
        await work.mount(ports, WHO, 1, table.id, "", "b", "x" * 20)

    assert table == await work.get(ports, WHO, table.id)


async def test_half_a_surrogate_pair_is_refused_and_nul_is_kept(ports: Ports) -> None:
    with pytest.raises(Invalid):
        await work.add(ports, WHO, 7, "t", {"a": "\ud800"})

    table = await work.add(ports, WHO, 7, "t", {})
    await work.mount(ports, WHO, 1, table.id, "", "a", "page\0break")
    assert "page\0break" == await work.read_at(ports, WHO, table.id, "/a")


@pytest.mark.parametrize("project_id", [-1, 2**63])
async def test_a_project_is_a_number_that_fits(ports: Ports, project_id: int) -> None:
    with pytest.raises(Invalid, match="project_id"):
        await work.add(ports, WHO, project_id, "t", {})
