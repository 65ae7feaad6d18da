"""Everything leaves one docmill in an archive and arrives in another: whole, once, or not at all."""

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
from docmill.contracts import Asset, NormalizedDocument
from docmill.core import machine
from docmill.core.access import LOCAL, Owner, Principal
from docmill.core.errors import Conflict, DocmillError, Invalid
from docmill.core.machine import Handover
from docmill.core.reports import Failed
from docmill.core.retention import Retention
from docmill.core.rules import Draft
from docmill.core.task import Fault, Status, Task, Wishes, WorkerError
from docmill.core.webhooks import WebhookDraft
from docmill.ports import Filter, JobFilter, Ports
from docmill.settings import Settings
from docmill.work import control, documents, intake, keys, moving, query, rulebook, tables, webhooks
from docmill.work.moving import Exported, Imported
from docmill.work.receive import receive
from support.serving import Mode

TEXT = b"# Hello\n\nfrom afar\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
MINE = Owner(LOCAL.tenant, LOCAL.user)
SCHEMA = {"type": "object", "properties": {"total": {"type": "number"}}}


@dataclass
class Source:
    """A docmill with something of everything, and its archive."""

    chosen: Settings
    archive: bytes
    exported: Exported
    task: int
    failed: int
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
async def house(chosen: Settings) -> AsyncIterator[Ports]:
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


async def exported_from(chosen: Settings) -> tuple[bytes, Exported]:
    out = io.BytesIO()
    async with compose.moving(chosen) as (inventory, store):
        done = await moving.export(inventory, store, out, docmill="1")
    return out.getvalue(), done


async def imported_to(chosen: Settings, archive: bytes, **how: bool) -> Imported:
    async with compose.moving(chosen) as (inventory, store):
        return await moving.load(inventory, store, io.BytesIO(archive), **how)


@pytest.fixture(scope="module")
async def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    chosen = at(tmp_path_factory.mktemp("source"))
    async with house(chosen) as ports:
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
        # Nobody works here: it stays unfinished. The service holds its folder while everything is exported.
        await submitted(ports, b"# waits", "waits.md")
        archive, exported = await exported_from(chosen)
    assert task.document_id
    assert Status.FAILED is failed.status
    said = (rule.id, table.id, task.document_id, secret, webhook_secret, events, result)
    return Source(chosen, archive, exported, task.id, failed.id, *said)


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


async def test_an_archive_says_what_is_in_it_and_what_is_not(source: Source) -> None:
    names = zipfile.ZipFile(io.BytesIO(source.archive)).namelist()
    manifest = json.loads(zipfile.ZipFile(io.BytesIO(source.archive)).read("manifest.json"))

    assert {"rules": 2, "tasks": 2, "tables": 1, "documents": 1, "keys": 1, "webhooks": 1} == {
        kind: count for kind, count in source.exported.counts.items() if kind != "objects"
    }
    assert 1 == source.exported.left_out["unfinished_tasks"] == manifest["left_out"]["unfinished_tasks"]
    assert source.exported.counts["objects"] == len([name for name in names if name.startswith("objects/")])
    plain = b"".join(zipfile.ZipFile(io.BytesIO(source.archive)).read(name) for name in names)
    assert TEXT in plain
    assert source.secret.encode() not in plain
    assert source.webhook_secret.encode() not in plain


async def test_everything_arrives_in_an_empty_docmill_once(source: Source, mode: Mode, tmp_path: Path) -> None:
    target = at(tmp_path / "data", mode.environment(tmp_path / "data"))

    would = await imported_to(target, source.archive, dry_run=True, keys=True)
    first = await imported_to(target, source.archive, keys=True)
    again = await imported_to(target, source.archive, keys=True)

    assert dict(first.taken) == dict(would.taken) == source.exported.counts | {"rules": 1}
    assert not again.taken
    assert not [*first.refused, *again.refused]
    assert first.renumbered == again.renumbered == {"rules": {}, "tasks": {}, "tables": {}}
    async with house(target) as ports:
        there = await contents(ports)
        assert {"note.md", "empty.pdf"} == set(there["tasks"])
        assert {"completed": 1, "failed": 1} == {kind: n for kind, n in there["counts"].items() if n}
        assert source.result == there["tasks"]["note.md"][4]
        assert source.events == await ports.ledger.events(source.task)
        assert source.rule == there["tasks"]["empty.pdf"][1]
        assert "note" in (await tables.get(ports, LOCAL, source.table)).data
        assert TEXT == await blob(ports, source.document)
        assert Principal("anna", "acme") == await ports.keys.find(keys.digest(source.secret))
        [hook] = await webhooks.listed(ports, LOCAL)
        assert hook.disabled_ms is not None
        assert source.webhook_secret not in [one.text for one in hook.secrets]
        # Life goes on: new numbers follow, an old task can be run again and its equal is reused.
        assert (await ended(ports, await submitted(ports, name="next.md"))).cache_hit
        assert (await rulebook.add(ports, LOCAL, Draft("new", mode="skip"))).id > source.rule
        newest = (await ports.ledger.page(Filter(MINE, limit=1))).tasks[0]
        assert newest.id > source.failed

    back, _ = await exported_from(target)
    home = await imported_to(source.chosen, back)
    assert {"tasks": 1, "rules": 1} == {kind: n for kind, n in home.taken.items() if kind in ("tasks", "rules")}
    assert not home.refused


async def test_jobs_of_external_workers_are_listed_where_they_arrive(tmp_path: Path) -> None:
    chosen, target = at(tmp_path / "here"), at(tmp_path / "there")
    handover = Handover("elsewhere", "secretary", "hash", 600_000)
    fault = Fault("worker_failed", "no OCR", "mineru", WorkerError("OCR_TIMEOUT", "no OCR", {"page": 3}))
    async with compose.opened(chosen) as ports:
        task = await submitted(ports)
        assert task.attempt_id
        await ports.ledger.claim(task.attempt_id, worker="w", lease_ms=60_000)
        await ports.ledger.decide(task.id, lambda task, attempt: machine.hand_over(task, attempt, handover))
        await receive(ports, task.id, task.attempt_id, Failed(fault))
        before = await ports.ledger.jobs(JobFilter(MINE))
    archive, _ = await exported_from(chosen)

    await imported_to(target, archive)

    async with compose.opened(target) as ports:
        after = await ports.ledger.jobs(JobFilter(MINE, "failed"))
    assert [("failed", fault)] == [(line.attempt.job_status, line.attempt.failure) for line in after.jobs]
    assert [line.attempt.id for line in before.jobs] == [line.attempt.id for line in after.jobs]


async def test_in_a_used_docmill_taken_numbers_change_and_nothing_else(source: Source, tmp_path: Path) -> None:
    target = at(tmp_path / "data")
    async with house(target) as ports:
        own = [await ended(ports, await submitted(ports, b"# own", f"own{n}.md")) for n in range(3)]
        own_rule = await rulebook.add(ports, LOCAL, Draft("own", mode="skip"))
        own_table = await tables.add(ports, LOCAL, 1, "own", {"own": 1})

    would = await imported_to(target, source.archive, dry_run=True)
    done = await imported_to(target, source.archive)
    again = await imported_to(target, source.archive)

    new = done.renumbered["tasks"]
    assert {source.task, source.failed} <= {task.id for task in own} | set(new)
    assert set(new) == set(would.renumbered["tasks"]) == {source.task, source.failed} & {task.id for task in own}
    assert {source.table: done.renumbered["tables"][source.table]} == done.renumbered["tables"]
    assert done.renumbered == again.renumbered
    assert not again.taken
    assert 1 == done.left_out["keys"]
    async with house(target) as ports:
        assert {"own": 1} == (await tables.get(ports, LOCAL, own_table.id)).data
        assert "own" == (await rulebook.get(ports, LOCAL, own_rule.id)).name
        moved = await query.task(ports, LOCAL, new[source.task])
        assert ("note.md", source.result) == (moved.filename, await query.result(ports, moved))
        assert f"/{moved.id}/" in (moved.artifacts.markdown_key or "")
        assert moved.document_id
        assert TEXT == await blob(ports, moved.document_id)
        document = await documents.get_document(ports, LOCAL, moved.document_id)
        assert str(moved.id) == (document.meta.external_ref or {})["task_id"]
        assert TEXT.strip() in await whole(ports, document.assets[0])
        assert [b"# own"] * 3 == [await blob(ports, task.document_id) for task in own if task.document_id]
        rule = (await query.task(ports, LOCAL, new.get(source.failed, source.failed))).rule_id
        assert "invoice" == (await rulebook.get(ports, LOCAL, rule)).name
        # The mount still belongs to its task: it may replace its own entry.
        table = done.renumbered["tables"][source.table]
        await control.mount(ports, LOCAL, moved.id, table_id=table, json_path="")
        other = await ended(ports, await submitted(ports))
        with pytest.raises(Conflict):
            await control.mount(ports, LOCAL, other.id, table_id=table, json_path="")
        retried = await control.retry(ports, LOCAL, moved.id, from_stage="mineru")
        assert moved.document_id == (await ended(ports, retried)).document_id
        assert 2 == len(await documents.get_versions(ports, LOCAL, moved.document_id))
        assert all([await query.result(ports, task) for task in own])
        assert not await ports.keys.list()


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
    """Somebody who also mends the checksums."""

    def change(members: dict[str, bytes]) -> None:
        before = members[f"{name}.jsonl"].decode()
        members[f"{name}.jsonl"] = before.replace(old, new).encode()
        assert before != members[f"{name}.jsonl"].decode(), "the attack must change something"
        manifest = json.loads(members["manifest.json"])
        manifest["lists"][name]["sha256"] = sha256(members[f"{name}.jsonl"]).hexdigest()
        members["manifest.json"] = json.dumps(manifest).encode()

    return rewritten(change)


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut": (cut, "backup_unknown"),
    "empty": (lambda _: b"", "backup_unknown"),
    "no archive": (lambda _: b"PK but not really", "backup_unknown"),
    "another zip": (rewritten(without("manifest.json")), "backup_unknown"),
    "newer": (
        rewritten(lambda members: members.update({"manifest.json": b'{"format": 2}'})),
        "backup_unknown",
    ),
    "flipped byte": (flipped, "backup_damaged"),
    "line lost": (rewritten(lambda m: m.update({"tasks.jsonl": m["tasks.jsonl"].split(b"\n")[0]})), "backup_damaged"),
    "object lost": (rewritten(without("objects/000000001")), "backup_damaged"),
    "path": (rewritten(lambda members: members.update({"../../etc/passwd": b"x"})), "backup_damaged"),
    "compressed objects": (rewritten(lambda _: None, zipfile.ZIP_DEFLATED), "backup_damaged"),
    "key upwards": (resealed("objects", '"key":"tenants/', '"key":"tenants/../../'), "backup_damaged"),
    "key elsewhere": (resealed("objects", '"key":"tenants/', '"key":"others/'), "backup_damaged"),
    "running task": (resealed("tasks", '"status":"failed"', '"status":"pending"'), "backup_damaged"),
    "huge number": (resealed("tasks", '{"id":1,', '{"id":9223372036854775807,'), "backup_damaged"),
    "unknown field": (resealed("rules", '{"id":1,', '{"id":1,"x":1,'), "backup_damaged"),
    "broken contract": (resealed("documents", '\\"blob\\"', '\\"blub\\"'), "backup_damaged"),
    "foreign asset": (resealed("documents", '"position":0', '"position":0,"asset_id":"x"'), "backup_damaged"),
    "foreign tenant": (resealed("documents", '{"tenant":"local"', '{"tenant":"other"'), "backup_damaged"),
    "nul": (resealed("webhooks", '"mine"', '"mi\\u0000ne"'), "backup_damaged"),
}


async def test_what_others_borrowed_of_a_task_that_is_gone_goes_along(tmp_path: Path) -> None:
    first, second = (at(tmp_path / name) for name in "ab")
    async with house(first) as ports:
        lender = await ended(ports, await submitted(ports))
        borrower = await ended(ports, await submitted(ports, name="same.md"))
        before, _ = await exported_from(first)
        assert borrower.cache_hit
        assert await ports.tombstones.bury(lender.id, Retention(completed_ms=-1))
    archive, _ = await exported_from(first)

    await imported_to(second, archive)
    restored = await imported_to(first, before)

    async with house(second) as ports:
        result = await query.result(ports, await query.task(ports, LOCAL, borrower.id))
        assert ["same"] == list(result)
        assert await ports.tombstones.is_parse_used(borrower.artifacts.parsed_key or "")
    assert restored.renumbered["tasks"].keys() == {lender.id}, "what was buried comes back as another task"


async def test_what_is_here_with_other_content_is_refused_and_the_rest_is_taken(source: Source, tmp_path: Path) -> None:
    target = at(tmp_path / "data")
    await imported_to(target, source.archive)
    other = resealed("documents", '\\"title\\":\\"', '\\"title\\":\\"Another ')(source.archive)
    other = resealed("documents", '"digest":"', '"digest":"0')(other)

    again = await imported_to(target, other, keys=True)

    assert [f"documents {source.document}: document_exists"] == again.refused
    assert {"keys": 1} == dict(again.taken)


async def test_a_damaged_or_hostile_archive_changes_nothing(source: Source, tmp_path: Path) -> None:
    target = at(tmp_path / "data")
    async with compose.opened(target) as ports:
        for name, (damage, code) in DAMAGES.items():
            with pytest.raises(Invalid) as refused:
                await imported_to(target, damage(source.archive), keys=True)
            assert (name, code) == (name, refused.value.code)
        assert 0 == (await contents(ports))["total"]
        assert not [key async for key, _, _ in ports.store.list("")]
        assert not await ports.keys.list()
        assert 1 == (await ended_number(ports))


async def ended_number(ports: Ports) -> int:
    """The next task gets the very first number: nothing was reserved either."""
    return (await submitted(ports, wishes=Wishes())).id


async def test_an_import_that_was_cut_off_is_finished_by_the_next(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = at(tmp_path / "data")
    async with compose.moving(target) as (inventory, store):
        put, count = store.put, 0

        async def dying(*args: Any, **how: Any) -> Any:
            nonlocal count
            count += 1
            if count == 2:
                raise DocmillError("storage_unavailable")
            return await put(*args, **how)

        monkeypatch.setattr(store, "put", dying)
        with pytest.raises(DocmillError):
            await moving.load(inventory, store, io.BytesIO(source.archive))

    done = await imported_to(target, source.archive)

    assert 1 == done.known["objects"]
    assert not any(done.renumbered.values())
    async with compose.opened(target) as ports:
        assert source.result == (await contents(ports))["tasks"]["note.md"][4]


async def test_the_name_of_an_uploaded_file_goes_along(tmp_path: Path) -> None:
    key = "tenants/t/users/u/raw/1/0b0c.pdf"

    async def chunks() -> AsyncIterator[bytes]:
        yield b"%PDF-1.7"

    async with compose.moving(at(tmp_path / "a")) as (inventory, store):
        await store.put(key, chunks(), filename="Größe 报告.pdf")
        with (tmp_path / "a.zip").open("wb") as out:
            await moving.export(inventory, store, out, docmill="1")
    async with compose.moving(at(tmp_path / "b")) as (inventory, store):
        with (tmp_path / "a.zip").open("rb") as file:
            await moving.load(inventory, store, file)
        found = await store.stat(key)

    assert found
    assert "Größe 报告.pdf" == found.filename


async def test_a_large_object_is_never_whole_in_memory(tmp_path: Path) -> None:
    size, piece = 48 * 1024**2, os.urandom(1 << 20)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(size >> 20):
            yield piece

    async with compose.moving(at(tmp_path / "a")) as (inventory, store):
        await store.put("tenants/t/users/u/raw/1/big.bin", chunks())
        tracemalloc.start()
        with (tmp_path / "a.zip").open("wb") as out:
            await moving.export(inventory, store, out, docmill="1")
    async with compose.moving(at(tmp_path / "b")) as (inventory, store):
        with (tmp_path / "a.zip").open("rb") as file:
            done = await moving.load(inventory, store, file)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        found = await store.stat("tenants/t/users/u/raw/1/big.bin")

    assert 1 == done.taken["objects"]
    assert found
    assert size == found.size
    assert peak < size / 3
