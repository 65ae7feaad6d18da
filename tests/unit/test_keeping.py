"""What docmill keeps beside its data."""

import os
from pathlib import Path

import pytest

from docmill import compose
from docmill.adapters.sql.sqlite import SqliteDatabase
from docmill.adapters.sql.statement import Op, Row, Statement
from docmill.compose.keeping import link_secret, sealing_secrets
from docmill.core.access import Owner
from docmill.core.errors import Invalid
from docmill.core.webhooks import Secret, WebhookDraft
from docmill.settings import Settings, load

CANARY = "whsec_Y2FuYXJ5LW9mLXRoZS10ZXN0cy0wMDAwMDAwMDAwMDA="
ANNA = Owner("acme", "anna")


def test_the_secret_is_made_once_and_an_empty_one_is_none(tmp_path: Path) -> None:
    """A file without its bytes is what a power cut leaves of one that was not synced."""
    settings = Settings(data=tmp_path)
    first = link_secret(settings)
    assert len(first) > 40
    assert first == link_secret(settings)
    assert 0o600 == (tmp_path / "secret").stat().st_mode & 0o777

    (tmp_path / "secret").write_bytes(b"")

    again = link_secret(settings)
    assert len(again) > 40
    assert first != again


def mode_of(path: Path) -> str:
    return f"{path.stat().st_mode & 0o777:o}"


async def test_the_data_folder_is_its_owners_alone(tmp_path: Path) -> None:
    data = tmp_path / "deep" / "data"
    before = os.umask(0o022)
    try:
        async with compose.opened(Settings(data=data)) as ports:
            await ports.keys.require()
            files = {path.name: mode_of(path) for path in data.glob("docmill.db*")}
            assert "700" == mode_of(data)
    finally:
        os.umask(before)
    assert {"docmill.db", "docmill.db-wal", "docmill.db-shm"} == set(files)
    assert {"600"} == set(files.values())


async def test_the_folder_of_an_older_version_is_tightened_at_start(tmp_path: Path) -> None:
    async with compose.opened(Settings(data=tmp_path)):
        pass
    copy = tmp_path / "docmill.db.bak"
    copy.write_bytes((tmp_path / "docmill.db").read_bytes())
    (tmp_path / "secret").write_text("x" * 48)
    for path in (tmp_path, tmp_path / "docmill.db", tmp_path / "secret", copy):
        path.chmod(0o755 if path.is_dir() else 0o644)

    async with compose.opened(Settings(data=tmp_path)):
        assert "700" == mode_of(tmp_path)
        assert {"600"} == {mode_of(path) for path in (tmp_path / "docmill.db", tmp_path / "secret", copy)}


async def test_a_shared_folder_such_as_tmp_is_left_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    async with compose.opened(Settings(data=tmp_path)):
        assert "777" == mode_of(tmp_path)


def bytes_of(data: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(data.rglob("*")) if path.is_file())


def update(sql: str, **params: object) -> Op[list[Row]]:
    return (yield Statement(sql)(**params))


async def webhook_with_plain_secret(data: Path) -> str:
    """As an older version stored it."""
    async with compose.opened(Settings(data=data)) as ports:
        webhook = await ports.webhooks.add("wh_" + "0" * 32, WebhookDraft("https://x.example"), CANARY, ANNA, most=9)
        assert (Secret(CANARY),) == webhook.secrets
    database = SqliteDatabase(data / "docmill.db")
    plain = f'[{{"text":"{CANARY}","until_ms":null}}]'
    await database.write(update("UPDATE webhooks SET secrets = :plain", plain=plain))
    await database.close()
    assert CANARY.encode() in bytes_of(data)
    return webhook.id


async def test_plain_secrets_of_webhooks_are_encrypted_at_start(tmp_path: Path) -> None:
    webhook_id = await webhook_with_plain_secret(tmp_path)

    async with compose.opened(Settings(data=tmp_path)) as ports:
        found = await ports.webhooks.get(webhook_id, ANNA)
        assert found
        assert (Secret(CANARY),) == found.secrets
        assert CANARY.encode() not in bytes_of(tmp_path), "also while the service runs, with its log"
        assert 0 == await ports.webhooks.unreadable()
    assert CANARY.encode() not in bytes_of(tmp_path)


async def test_a_secret_that_is_set_later_takes_over(tmp_path: Path) -> None:
    webhook_id = await webhook_with_plain_secret(tmp_path)
    async with compose.opened(Settings(data=tmp_path)):
        pass
    for _ in range(2):
        async with compose.opened(Settings(data=tmp_path, secret="a secret that is set later")) as ports:
            found = await ports.webhooks.get(webhook_id, ANNA)
            assert found
            assert (Secret(CANARY),) == found.secrets
        (tmp_path / "secret").unlink(missing_ok=True)  # the new one alone is enough from then on


async def test_a_lost_secret_is_reported_and_can_be_replaced(tmp_path: Path) -> None:
    webhook_id = await webhook_with_plain_secret(tmp_path)
    async with compose.opened(Settings(data=tmp_path)):
        pass
    (tmp_path / "secret").unlink()

    async with compose.opened(Settings(data=tmp_path)) as ports:
        [found] = await ports.webhooks.list(ANNA)
        assert () == found.secrets
        assert 1 == await ports.webhooks.unreadable()
        rotated = await ports.webhooks.rotate(webhook_id, CANARY, ANNA, overlap_ms=1000)
        assert rotated
        assert (Secret(CANARY),) == rotated.secrets
        assert 0 == await ports.webhooks.unreadable()


def test_the_password_of_postgresql_serves_where_no_secret_is_set(tmp_path: Path) -> None:
    """Processes in containers keep no files; another host or database name of the same server changes nothing."""
    url = "postgresql://docmill:pass%20word@{}/docmill"
    one, other = (sealing_secrets(Settings(data=tmp_path, database_url=url.format(host))) for host in ("db", "db2"))
    assert one == other
    assert b"pass word" not in one[0]
    both = sealing_secrets(Settings(data=tmp_path, database_url=url.format("db"), secret="s" * 40))
    assert [b"s" * 40, one[0]] == both
    assert not (tmp_path / "secret").exists()


def test_a_short_secret_of_tokens_is_refused_at_start() -> None:
    with pytest.raises(Invalid) as caught:
        load(jwt_secret="too short for HS256")
    assert "setting_invalid" == caught.value.code
    assert "32 bytes" in caught.value.message
    assert load(jwt_secret="x" * 32).jwt_secret
