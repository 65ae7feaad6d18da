"""What every key ring promises, on every database."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.keys import SqlKeys
from docmill.adapters.sql.statement import Op, Statement
from docmill.core.access import Principal
from docmill.core.errors import Invalid
from docmill.ports import Ports
from docmill.work import keys as work
from support.databases import KINDS, open_database, url_of

ANNA = Principal(user="anna|1", tenant="acmé")
ROOT = Principal(user="root", tenant="acme", is_admin=True)


@pytest.fixture(params=KINDS)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with open_database(request.param, tmp_path, url_of(request.param, request)) as database:
        yield database


@pytest.fixture
def keys(database: Database) -> SqlKeys:
    return SqlKeys(database)


@pytest.fixture
def ports(keys: SqlKeys) -> Ports:
    return cast(Ports, SimpleNamespace(keys=keys))


async def test_a_secret_opens_the_door_of_its_owner(ports: Ports, keys: SqlKeys) -> None:
    for who in (ANNA, ROOT):
        key, secret = await work.create(ports, "laptop", who)

        assert secret.startswith("dm_")
        assert 46 == len(secret)
        assert who == key.principal == await keys.find(work.digest(secret))


async def test_the_database_never_sees_a_secret(ports: Ports, database: Database) -> None:
    _, secret = await work.create(ports, "laptop", ANNA)

    rows = await database.read(_run("SELECT * FROM api_keys"))

    assert secret not in str([list(row) for row in rows])
    assert secret[3:] not in str([list(row) for row in rows])


@pytest.mark.parametrize("digest", ["", "0" * 64, "dm_secret", "'; DROP TABLE api_keys --"])
async def test_an_unknown_secret_opens_nothing(ports: Ports, keys: SqlKeys, digest: str) -> None:
    await work.create(ports, "laptop", ANNA)

    assert await keys.find(digest) is None


async def test_a_revoked_key_opens_nothing_and_stays_in_the_list(ports: Ports, keys: SqlKeys) -> None:
    key, secret = await work.create(ports, "laptop", ANNA)
    other, other_secret = await work.create(ports, "phone", ANNA)

    assert await work.revoke(ports, key.id)
    assert not await work.revoke(ports, key.id)
    assert not await work.revoke(ports, "unknown")

    assert await keys.find(work.digest(secret)) is None
    assert await keys.find(work.digest(other_secret)) == ANNA
    assert {key.id: True, other.id: False} == {one.id: one.revoked_ms is not None for one in await work.listed(ports)}


async def test_an_expired_key_opens_nothing(ports: Ports, keys: SqlKeys) -> None:
    now = time.time_ns() // 1_000_000
    _, old = await work.create(ports, "old", ANNA, expires_ms=now - 1)
    _, new = await work.create(ports, "new", ANNA, expires_ms=now + 60_000)

    assert await keys.find(work.digest(old)) is None
    assert await keys.find(work.digest(new)) == ANNA


async def test_whether_any_key_is_active(ports: Ports, keys: SqlKeys) -> None:
    assert not await keys.any_active()
    await work.create(ports, "old", ANNA, expires_ms=1)
    assert not await keys.any_active()
    key, _ = await work.create(ports, "new", ANNA)
    assert await keys.any_active()
    await work.revoke(ports, key.id)
    assert not await keys.any_active()


async def test_use_is_noted_but_not_on_every_request(ports: Ports, keys: SqlKeys) -> None:
    _, secret = await work.create(ports, "laptop", ANNA)
    assert (await keys.list())[0].used_ms is None

    await keys.find(work.digest(secret))
    noted = (await keys.list())[0].used_ms
    await asyncio.sleep(0.005)
    await asyncio.gather(*(keys.find(work.digest(secret)) for _ in range(20)))

    assert noted
    assert noted == (await keys.list())[0].used_ms


@pytest.mark.parametrize("name", ["", "  ", "a\0", "line\nbreak", "x" * 129, "\ud800"])
async def test_a_name_is_printable_and_short(ports: Ports, name: str) -> None:
    with pytest.raises(Invalid):
        await work.create(ports, name, ANNA)


def _run(sql: str) -> Op[list[object]]:
    rows = yield Statement(sql)()
    return list(rows)
