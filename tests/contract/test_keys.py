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
from docmill.core.access import LOCAL, Principal
from docmill.core.errors import Forbidden, Invalid
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

    assert await work.revoke(ports, key.id, LOCAL)
    assert not await work.revoke(ports, key.id, LOCAL)
    assert not await work.revoke(ports, "unknown", LOCAL)

    assert await keys.find(work.digest(secret)) is None
    assert await keys.find(work.digest(other_secret)) == ANNA
    assert {key.id: True, other.id: False} == {
        one.id: one.revoked_ms is not None for one in await work.listed(ports, LOCAL)
    }


async def test_an_expired_key_opens_nothing(ports: Ports, keys: SqlKeys) -> None:
    now = time.time_ns() // 1_000_000
    _, old = await work.create(ports, "old", ANNA, expires_ms=now - 1)
    _, new = await work.create(ports, "new", ANNA, expires_ms=now + 60_000)

    assert await keys.find(work.digest(old)) is None
    assert await keys.find(work.digest(new)) == ANNA


async def test_credentials_once_made_stay_required(ports: Ports, keys: SqlKeys) -> None:
    """Whoever revokes the last key, or lets it expire, must not open the service to everybody."""
    assert not await keys.is_required()
    key, _ = await work.create(ports, "gone", ANNA, expires_ms=1)
    assert await keys.is_required()
    await work.revoke(ports, key.id, LOCAL)
    assert await keys.is_required()


async def test_tokens_of_an_identity_provider_are_remembered(keys: SqlKeys) -> None:
    await keys.require()
    await keys.require()
    assert await keys.is_required()


async def test_an_administrator_manages_the_keys_of_the_own_tenant_alone(ports: Ports) -> None:
    operator = Principal("ops", "acme", is_admin=True, is_operator=True)
    ops, _ = await work.create(ports, "ops", operator)
    mine, _ = await work.create(ports, "mine", Principal("bob", "acme"), by=ROOT)
    theirs, secret = await work.create(ports, "theirs", Principal("eve", "beta", is_admin=True))

    assert {ops.id, mine.id} == {one.id for one in await work.listed(ports, ROOT)}
    assert {ops.id, mine.id, theirs.id} == {one.id for one in await work.listed(ports, operator)}
    for refused in (theirs.id, ops.id):
        assert not await work.revoke(ports, refused, ROOT)
    for refused in (Principal("x", "beta"), operator):
        with pytest.raises(Forbidden):
            await work.create(ports, "more", refused, by=ROOT)
    for nobody in (Principal("bob", "acme"),):
        with pytest.raises(Forbidden):
            await work.listed(ports, nobody)
        with pytest.raises(Forbidden):
            await work.revoke(ports, mine.id, nobody)
        with pytest.raises(Forbidden):
            await work.create(ports, "more", nobody, by=nobody)
    found = await ports.keys.find(work.digest(secret))
    assert found == Principal("eve", "beta", is_admin=True)
    assert await work.revoke(ports, mine.id, ROOT)
    assert await work.revoke(ports, theirs.id, operator)


async def test_sessions_end_with_sign_out_their_time_and_their_key(
    ports: Ports, keys: SqlKeys, database: Database
) -> None:
    key, secret = await work.create(ports, "laptop", ROOT)
    digest = work.digest(secret)
    assert not await keys.open_session("unknown", "s0", lasts_ms=60_000, most=3)
    for name in ("s1", "s2", "s3"):
        assert await keys.open_session(digest, name, lasts_ms=60_000, most=3)
    assert [ROOT] * 3 == [await keys.find_session(name) for name in ("s1", "s2", "s3")]

    await keys.end_session("s2")
    assert [ROOT, None, ROOT] == [await keys.find_session(name) for name in ("s1", "s2", "s3")]

    assert await keys.open_session(digest, "over", lasts_ms=0, most=3)
    assert await keys.find_session("over") is None

    await work.revoke(ports, key.id, LOCAL)
    assert [None] * 2 == [await keys.find_session(name) for name in ("s1", "s3")]
    assert not await keys.open_session(digest, "late", lasts_ms=60_000, most=3)

    def count() -> Op[int]:
        return (yield Statement("SELECT count(*) FROM sessions")())[0][0]

    assert 0 == await database.read(count())


async def test_the_number_of_sessions_is_bounded(ports: Ports, keys: SqlKeys, database: Database) -> None:
    _, secret = await work.create(ports, "laptop", ROOT)
    for number in range(12):
        assert await keys.open_session(work.digest(secret), f"s{number}", lasts_ms=60_000, most=5)

    def count() -> Op[int]:
        return (yield Statement("SELECT count(*) FROM sessions")())[0][0]

    assert 5 == await database.read(count())
    assert ROOT == await keys.find_session("s11")


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
