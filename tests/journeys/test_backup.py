"""A backup holds the whole deployment, and a restore brings all of it into an empty one, or changes nothing."""

import asyncio
import io
import json
import os
import tracemalloc
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from docmill import compose, settings
from docmill.adapters.sql.backup import LEFT_OUT, TABLES
from docmill.adapters.sql.database import Database
from docmill.adapters.sql.statement import Op, Query, Statement
from docmill.contracts import Asset, NormalizedDocument
from docmill.core.access import LOCAL, Owner, Principal
from docmill.core.errors import Conflict, DocmillError, Invalid
from docmill.core.rules import Draft
from docmill.core.task import Status, Task, Wishes
from docmill.core.webhooks import WebhookDraft
from docmill.ports import Filter, Ports
from docmill.settings import Settings
from docmill.work import backup, control, documents, intake, keys, query, rulebook, tables, webhooks
from docmill.work.backup import BackupSummary
from support.databases import KINDS, open_database, url_of
from support.serving import Mode

TEXT = b"# Hello\n\nfrom afar\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
MINE = Owner(LOCAL.tenant, LOCAL.user)
SCHEMA = {"type": "object", "properties": {"total": {"type": "number"}}}


@dataclass
class Source:
    """A deployment with something of everything, and its backup."""

    chosen: Settings
    archive: bytes
    summary: BackupSummary
    task: int
    failed: int
    pending: int
    rule: int
    table: int
    document: UUID
    secret: str
    webhook_secret: str
    events: list[Any]
    result: Any


def at(folder: Path, environment: dict[str, str] | None = None) -> Settings:
    """Settings of a deployment, without leaving its variables behind."""
    before = dict(os.environ)
    os.environ.update(environment or {})
    try:
        return settings.load(data=folder, jobs=1)
    finally:
        for name in environment or {}:
            # The keys of the bucket are read from the environment by the adapter itself.
            if not name.startswith("AWS_"):
                os.environ.pop(name, None)
        os.environ.update(before)


@asynccontextmanager
async def deployment(chosen: Settings) -> AsyncIterator[Ports]:
    async with compose.opened(chosen) as ports, compose.working(chosen, ports):
        yield ports


async def submitted(ports: Ports, data: bytes = TEXT, name: str = "note.md", **wanted: Any) -> Task:
    async def chunks() -> AsyncIterator[bytes]:
        yield data

    stored = await intake.upload(ports, LOCAL, 1, name, chunks())
    task, _ = await intake.submit(ports, LOCAL, intake.Submission(s3_key=stored.key, filename=name, **wanted))
    return task


async def ended(ports: Ports, task: Task) -> Task:
    async with asyncio.timeout(60):
        while not task.is_final:
            task = await query.changed(ports, LOCAL, task.id, seconds=10)
    return task


async def back_up(chosen: Settings) -> tuple[bytes, BackupSummary]:
    out = io.BytesIO()
    async with compose.backup_ports(chosen) as (database, store):
        summary = await backup.write_backup(database, store, out, docmill="1")
    return out.getvalue(), summary


async def restore(chosen: Settings, archive: bytes) -> BackupSummary:
    async with compose.backup_ports(chosen) as (database, store):
        return await backup.restore_backup(database, store, io.BytesIO(archive))


@pytest.fixture(scope="module")
async def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    chosen = at(tmp_path_factory.mktemp("source"))
    async with deployment(chosen) as ports:
        rule = await rulebook.add(ports, LOCAL, Draft("invoice", json_schema=SCHEMA))
        table = await tables.add(ports, LOCAL, 1, "all", {})
        task = await ended(ports, await submitted(ports))
        await control.mount(ports, LOCAL, task.id, table_id=table.id, json_path="")
        failed = await ended(ports, await submitted(ports, b"", "empty.pdf", rule_id=rule.id))
        _, secret = await keys.create(ports, "laptop", Principal("anna", "acme"))
        _, webhook_secret = await webhooks.add(ports, LOCAL, WebhookDraft("https://example.org/hook", "mine"))
        events = await query.events(ports, LOCAL, task.id, after=0, limit=100)
        result = await query.result(ports, task)
    async with compose.opened(chosen) as ports:
        # No worker runs here, so this task stays pending. The service holds its folder during the backup.
        pending = await submitted(ports, b"# waits", "waits.md")
        archive, summary = await back_up(chosen)
    assert task.document_id
    assert Status.FAILED is failed.status
    said = (rule.id, table.id, task.document_id, secret, webhook_secret, events, result)
    return Source(chosen, archive, summary, task.id, failed.id, pending.id, *said)


async def contents(ports: Ports) -> dict[str, Any]:
    """What a user would see."""
    listing = await ports.ledger.page(Filter(MINE))
    found = {}
    for task in listing.tasks:
        found[task.filename] = [
            task.status,
            task.rule_id,
            task.created_ms,
            [(event.seq, event.kind, event.data) for event in await ports.ledger.events(task.id)],
            await query.result(ports, task) if task.status is Status.COMPLETED else None,
        ]
    shown, _ = await ports.documents.list(LOCAL.tenant, collection_id=None, limit=50, after=None)
    ids = [document.ref.document_id for document in shown]
    return {"tasks": found, "total": listing.total, "documents": ids, "counts": await ports.ledger.counts()}


async def blob(ports: Ports, document: UUID) -> bytes:
    return await whole(ports, await documents.get_document(ports, LOCAL, document))


async def whole(ports: Ports, thing: NormalizedDocument | Asset) -> bytes:
    opened = await documents.open_blob(ports, LOCAL, thing)
    return b"".join([chunk async for chunk in opened.stream])


async def test_a_backup_holds_every_table_and_object_and_no_secret(source: Source) -> None:
    names = zipfile.ZipFile(io.BytesIO(source.archive)).namelist()

    rows = source.summary.rows
    assert {"rules": 2, "tasks": 3, "json_tables": 1, "documents": 1, "api_keys": 1, "webhooks": 1} == {
        table: rows[table] for table in ("rules", "tasks", "json_tables", "documents", "api_keys", "webhooks")
    }
    assert source.summary.objects == len([name for name in names if name.startswith("objects/")])
    plain = b"".join(zipfile.ZipFile(io.BytesIO(source.archive)).read(name) for name in names)
    assert TEXT in plain
    assert source.secret.encode() not in plain
    assert source.webhook_secret.encode() not in plain


@pytest.fixture(params=KINDS)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with open_database(request.param, tmp_path, url_of(request.param, request)) as opened:
        yield opened


async def test_every_table_of_the_schema_is_backed_up_or_left_out_on_purpose(database: Database) -> None:
    listing = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
        "postgres": "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()",
    }

    def list_tables() -> Op[set[str]]:
        return {name for (name,) in (yield Query(Statement(listing[database.dialect]), {}))}

    assert {*TABLES, *LEFT_OUT} == await database.read(list_tables())


async def test_everything_arrives_in_an_empty_deployment(source: Source, mode: Mode, tmp_path: Path) -> None:
    target = at(tmp_path / "data", mode.environment(tmp_path / "data"))

    restored = await restore(target, source.archive)

    assert source.summary == restored
    async with deployment(target) as ports:
        there = await contents(ports)
        assert {"note.md", "empty.pdf", "waits.md"} == set(there["tasks"])
        assert source.result == there["tasks"]["note.md"][4]
        assert source.events == await ports.ledger.events(source.task)
        assert source.rule == there["tasks"]["empty.pdf"][1]
        assert "note" in (await tables.get(ports, LOCAL, source.table)).data
        assert TEXT == await blob(ports, source.document)
        assert Principal("anna", "acme") == await ports.keys.find(keys.digest(source.secret))
        assert 1 == len(await webhooks.listed(ports, LOCAL))
        # What was not finished goes on, new numbers follow, and an equal document is reused.
        assert (await ended(ports, await query.task(ports, LOCAL, source.pending))).status is Status.COMPLETED
        following = await ended(ports, await submitted(ports, name="next.md"))
        assert (True, source.pending + 1) == (following.cache_hit, following.id)
        assert (await rulebook.add(ports, LOCAL, Draft("new", mode="skip"))).id > source.rule
        retried = await control.retry(ports, LOCAL, source.task, from_stage="mineru")
        assert source.document == (await ended(ports, retried)).document_id


async def test_a_backup_goes_from_one_kind_of_deployment_to_the_other_and_back(
    source: Source, mode: Mode, tmp_path: Path
) -> None:
    target = at(tmp_path / "data", mode.environment(tmp_path / "data"))
    await restore(target, source.archive)
    there, _ = await back_up(target)

    back = at(tmp_path / "back")
    await restore(back, there)

    async with compose.opened(back) as ports:
        assert TEXT == await blob(ports, source.document)
        assert source.events == await ports.ledger.events(source.task)
        document = await documents.get_document(ports, LOCAL, source.document)
        # The digest fits the changed addresses: storing the same version again is no conflict.
        await ports.documents.put(document)


async def test_a_deployment_with_data_is_left_as_it_is(source: Source, tmp_path: Path) -> None:
    target = at(tmp_path / "data")
    async with deployment(target) as ports:
        own = await ended(ports, await submitted(ports, b"# own", "own.md"))
        before = {key async for key, _, _ in ports.store.list("")}

    with pytest.raises(Conflict, match="empty") as refused:
        await restore(target, source.archive)

    assert "restore_not_empty" == refused.value.code
    async with compose.opened(target) as ports:
        assert [own.id] == [task.id for task in (await ports.ledger.page(Filter(MINE))).tasks]
        assert before == {key async for key, _, _ in ports.store.list("")}


async def test_a_damaged_or_hostile_archive_changes_nothing(source: Source, tmp_path: Path) -> None:
    target = at(tmp_path / "data")
    async with compose.opened(target) as ports:
        for name, (damage, code) in DAMAGES.items():
            with pytest.raises(Invalid) as refused:
                await restore(target, damage(source.archive))
            assert (name, code) == (name, refused.value.code)
        assert 0 == (await contents(ports))["total"]
        assert not await ports.keys.list()
        assert 1 == (await submitted(ports, wishes=Wishes())).id


async def test_an_interrupted_restore_is_finished_by_the_next(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = at(tmp_path / "data")
    async with compose.backup_ports(target) as (database, store):
        put, count = store.put, 0

        async def fail_at_the_second(*args: Any, **how: Any) -> Any:
            nonlocal count
            count += 1
            if count == 2:
                raise DocmillError("storage_unavailable")
            return await put(*args, **how)

        monkeypatch.setattr(store, "put", fail_at_the_second)
        with pytest.raises(DocmillError):
            await backup.restore_backup(database, store, io.BytesIO(source.archive))

    await restore(target, source.archive)

    async with compose.opened(target) as ports:
        assert source.result == (await contents(ports))["tasks"]["note.md"][4]


async def test_an_archive_of_an_older_schema_is_migrated_after_the_restore(source: Source, tmp_path: Path) -> None:
    def as_before_results(members: dict[str, bytes]) -> None:
        manifest = json.loads(members["manifest.json"])
        for table, columns in AFTER_0012.items():
            _drop_columns(members, manifest, table, columns)
        for table in ("results", "access_control"):
            del members[f"tables/{table}.jsonl"], manifest["tables"][table]
        manifest["schema"] = 12
        members["manifest.json"] = json.dumps(manifest).encode()

    target = at(tmp_path / "data")
    await restore(target, rewritten(as_before_results)(source.archive))

    async with compose.opened(target) as ports:
        assert source.result == (await contents(ports))["tasks"]["note.md"][4]


AFTER_0012 = {"api_keys": ["is_operator"], "notices": ["scheduled_ms"]}
"""Columns that later migrations add."""


def _drop_columns(members: dict[str, bytes], manifest: Any, table: str, columns: list[str]) -> None:
    listing = manifest["tables"][table]
    kept = [at for at, name in enumerate(listing["columns"]) if name not in columns]
    rows = [json.loads(line) for line in members[f"tables/{table}.jsonl"].splitlines()]
    lines = b"".join(json.dumps([row[at] for at in kept]).encode() + b"\n" for row in rows)
    members[f"tables/{table}.jsonl"] = lines
    listing["columns"] = [listing["columns"][at] for at in kept]
    listing["sha256"] = sha256(lines).hexdigest()


def cut(archive: bytes) -> bytes:
    return archive[: len(archive) // 2]


def flipped(archive: bytes) -> bytes:
    place = archive.index(TEXT)
    return archive[:place] + b"X" + archive[place + 1 :]


def rewritten(change: Callable[[dict[str, bytes]], None], compression: int = zipfile.ZIP_STORED) -> Any:
    def rewrite(archive: bytes) -> bytes:
        with zipfile.ZipFile(io.BytesIO(archive)) as old:
            members = {name: old.read(name) for name in old.namelist()}
        change(members)
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", compression) as new:
            for name, data in members.items():
                new.writestr(name, data)
        return out.getvalue()

    return rewrite


def without(name: str) -> Callable[[dict[str, bytes]], None]:
    def change(members: dict[str, bytes]) -> None:
        del members[name]

    return change


def resealed(name: str, old: str, new: str) -> Any:
    """Changed by someone who also corrects the checksum."""

    def change(members: dict[str, bytes]) -> None:
        member = "objects.jsonl" if name == "objects" else f"tables/{name}.jsonl"
        before = members[member].decode()
        members[member] = before.replace(old, new).encode()
        assert before != members[member].decode(), "the attack must change something"
        manifest = json.loads(members["manifest.json"])
        listing = manifest["objects"] if name == "objects" else manifest["tables"][name]
        listing["sha256"] = sha256(members[member]).hexdigest()
        members["manifest.json"] = json.dumps(manifest).encode()

    return rewritten(change)


def with_manifest(change: Callable[[Any], None]) -> Any:
    def rewrite(members: dict[str, bytes]) -> None:
        manifest = json.loads(members["manifest.json"])
        change(manifest)
        members["manifest.json"] = json.dumps(manifest).encode()

    return rewritten(rewrite)


def first_line(members: dict[str, bytes]) -> None:
    members["tables/tasks.jsonl"] = members["tables/tasks.jsonl"].split(b"\n")[0]


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut": (cut, "backup_unknown"),
    "empty": (lambda _: b"", "backup_unknown"),
    "no archive": (lambda _: b"PK but not really", "backup_unknown"),
    "another zip": (rewritten(without("manifest.json")), "backup_unknown"),
    "another format": (with_manifest(lambda manifest: manifest.update(format=1)), "backup_unknown"),
    "newer schema": (with_manifest(lambda manifest: manifest.update(schema=9999)), "backup_unknown"),
    "flipped byte": (flipped, "backup_damaged"),
    "line lost": (rewritten(first_line), "backup_damaged"),
    "object lost": (rewritten(without("objects/000000001")), "backup_damaged"),
    "path": (rewritten(lambda members: members.update({"../../etc/passwd": b"x"})), "backup_damaged"),
    "compressed objects": (rewritten(lambda _: None, zipfile.ZIP_DEFLATED), "backup_damaged"),
    "key upwards": (resealed("objects", '"key":"tenants/', '"key":"tenants/../../'), "backup_damaged"),
    "key elsewhere": (resealed("objects", '"key":"tenants/', '"key":"others/'), "backup_damaged"),
    "unknown table": (
        with_manifest(lambda manifest: manifest["tables"].update(sqlite_master=manifest["tables"].pop("loans"))),
        "backup_damaged",
    ),
    "unknown column": (
        with_manifest(lambda manifest: manifest["tables"]["rules"]["columns"].__setitem__(0, "id) --")),
        "backup_damaged",
    ),
    "missing value": (resealed("rules", "[1,", "["), "backup_damaged"),
    "wrong type": (resealed("rules", "[1,", "[[1],"), "backup_damaged"),
    "huge number": (resealed("rules", "[1,", "[92233720368547758080,"), "backup_damaged"),
    "no such task": (resealed("results", "[1,", "[77,"), "backup_damaged"),
    "nul": (resealed("webhooks", '"mine"', '"mi\\u0000ne"'), "backup_damaged"),
}


async def test_the_name_of_an_uploaded_file_goes_along(tmp_path: Path) -> None:
    key = "tenants/t/users/u/raw/1/0b0c.pdf"

    async def chunks() -> AsyncIterator[bytes]:
        yield b"%PDF-1.7"

    source, target = at(tmp_path / "a"), at(tmp_path / "b")
    async with compose.opened(source) as ports:
        await ports.store.put(key, chunks(), filename="Größe 报告.pdf")
    archive, _ = await back_up(source)
    await restore(target, archive)

    async with compose.opened(target) as ports:
        found = await ports.store.stat(key)
    assert found
    assert "Größe 报告.pdf" == found.filename


async def test_a_large_object_is_never_whole_in_memory(tmp_path: Path) -> None:
    size, piece = 48 * 1024**2, os.urandom(1 << 20)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(size >> 20):
            yield piece

    source, target = at(tmp_path / "a"), at(tmp_path / "b")
    async with compose.opened(source) as ports:
        await ports.store.put("tenants/t/users/u/raw/1/big.bin", chunks())
    tracemalloc.start()
    async with compose.backup_ports(source) as (database, store):
        with (tmp_path / "a.zip").open("wb") as out:
            await backup.write_backup(database, store, out, docmill="1")
    async with compose.backup_ports(target) as (database, store):
        with (tmp_path / "a.zip").open("rb") as file:
            restored = await backup.restore_backup(database, store, file)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        found = await store.stat("tenants/t/users/u/raw/1/big.bin")

    assert 1 == restored.objects
    assert found
    assert size == found.size
    assert peak < size / 3
