"""A task that was kept long enough goes whole and leaves a tombstone; what others use stays. On every database."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import MISSING, dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from docmill.adapters.sql import migrate, tombstones
from docmill.adapters.sql.database import Database
from docmill.adapters.sql.documents import SqlDocuments
from docmill.adapters.sql.ledger import SqlLedger
from docmill.adapters.sql.outbox import SqlOutbox
from docmill.adapters.sql.postgres import PostgresDatabase
from docmill.adapters.sql.sealing import Sealer
from docmill.adapters.sql.sqlite import SqliteDatabase
from docmill.adapters.sql.statement import Op, Row, Statement
from docmill.adapters.sql.tombstones import SqlTombstones
from docmill.adapters.sql.webhooks import SqlWebhooks
from docmill.adapters.stores.local import LocalStore
from docmill.contracts import FileBlob
from docmill.core import machine
from docmill.core.access import Owner, Principal
from docmill.core.assemble import build_document
from docmill.core.errors import DocmillError, Gone, NotFound, Unavailable
from docmill.core.machine import Change, StageResult
from docmill.core.parsed import Page, Parsed
from docmill.core.retention import Retention
from docmill.core.task import Artifacts, Status, Task
from docmill.core.webhooks import WebhookDraft, new_secret, new_webhook_id
from docmill.ports import Delivery, Filter, Limits, Once, Ports
from docmill.work import query, retention
from docmill.work.objects import objects
from docmill.work.stages.step import Step, brief_key, result_prefix
from support.databases import KINDS, open_database, url_of
from support.ledgers import ANNA, BERT, CARL, a_task, claimed, complete, fail, opened, succeed

DAY_MS = 24 * 3600 * 1000
WEEK = Retention(7 * DAY_MS, 7 * DAY_MS)
ONES_OWN = ("attempts", "events", "deliveries", "parses", "idempotency", "notices", "tasks")


@dataclass
class House:
    database: Database
    folder: Path

    def __post_init__(self) -> None:
        self.ledger = SqlLedger(self.database)
        self.tombstones = SqlTombstones(self.database)
        self.documents = SqlDocuments(self.database)
        self.store = LocalStore(self.folder / "objects")

    def ports(self, kept: Retention = WEEK) -> Ports:
        unneeded: dict[str, Any] = {
            one.name: SimpleNamespace() for one in fields(Ports) if one.default is one.default_factory is MISSING
        }
        given = {name: getattr(self, name) for name in ("ledger", "tombstones", "documents", "store")}
        return Ports(**unneeded | given | {"limits": Limits(retention=kept)})

    async def sql(self, text: str, **params: Any) -> list[Row]:
        def op() -> Op[list[Row]]:
            return (yield Statement(text)(**params))

        return await self.database.write(op())

    async def aged(self, task: Task, days: float) -> None:
        ms = round(days * DAY_MS)
        await self.sql(
            "UPDATE tasks SET created_ms = created_ms - :ms, updated_ms = updated_ms - :ms WHERE id = :id",
            ms=ms,
            id=task.id,
        )

    async def ended(self, days: float, who: Owner = ANNA) -> Task:
        task = await complete(self.ledger, await opened(self.ledger, a_task(who)))
        await self.aged(task, days)
        return task

    async def made(self, source: str, *, borrowed: Artifacts | None = None) -> tuple[Task, list[str]]:
        """A completed task with everything that it may have in the store; the keys are those of its own."""
        task = await opened(self.ledger, replace(a_task(), source_key=source))
        store, keys = objects(self.ports(), task.tenant), [source]
        task, attempt = await claimed(self.ledger, task)
        step = Step(task, attempt, lambda _done, _total: None)
        own = Artifacts(step.key("mineru.md"), step.key("parsed.json"))
        if borrowed is None:
            keys += [own.markdown_key or "", own.parsed_key or "", step.key("assets/a.png")]
        keys += [brief_key(attempt.id), f"{result_prefix(attempt.id)}o.zip"]
        task = (await self.succeed(task, attempt.id, borrowed or own)).task
        while not task.is_final:
            task, attempt = await claimed(self.ledger, task)
            output = Step(task, attempt, lambda _done, _total: None).key("output.json")
            keys.append(output)
            task = (await self.succeed(task, attempt.id, replace(task.artifacts, output_key=output))).task
        for key in keys:
            await store.put_bytes(key, key.encode())
        return task, sorted(set(keys))

    async def succeed(self, task: Task, attempt_id: UUID, artifacts: Artifacts) -> Change:
        outcome = StageResult(artifacts=artifacts)
        return await self.ledger.decide(
            task.id,
            lambda one, held: machine.on_success(one, held, outcome, next_id=uuid4()),
            attempt_id=attempt_id,
        )

    async def document_of(self, task: Task) -> UUID:
        """What the task published: its source, and its Markdown as an asset."""
        store, key = objects(self.ports(), task.tenant), task.artifacts.markdown_key or ""

        def blob(key: str) -> FileBlob:
            data = key.encode()
            return FileBlob(type="file", uri=store.uri(key), sha256=sha256(data).hexdigest(), size=len(data))

        parsed = Parsed("local", "text/plain", (Page(0, "# Hello"),))
        document = build_document(task, parsed, source=blob(task.source_key), markdown=blob(key), figure_uri=store.uri)
        await self.documents.put(document)
        return document.ref.document_id

    async def kept(self) -> list[str]:
        prefix = objects(self.ports(), ANNA.tenant).prefix
        return sorted([key.removeprefix(prefix) async for key, _, _ in self.store.list(prefix)])


@pytest.fixture(params=KINDS)
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    async with open_database(request.param, tmp_path, url_of(request.param, request)) as database:
        yield House(database, tmp_path)


def principal(who: Owner) -> Principal:
    return Principal(who.user, who.tenant)


async def test_a_task_goes_whole_and_its_tombstone_tells_its_owner_alone(house: House) -> None:
    sealer = Sealer(lambda: [b"secret of the tests"])
    ledger, webhooks = house.ledger, SqlWebhooks(house.database, sealer)
    webhook = await webhooks.add(new_webhook_id(), WebhookDraft("https://x.example"), new_secret(), ANNA, most=9)
    task, _ = await ledger.open(a_task(), attempt_id=uuid4(), once=Once("k", "f"))
    task, attempt = await claimed(ledger, task)
    await ledger.record_delivery(attempt, Delivery("final", 200, None, "h", 1))
    await succeed(ledger, task.id, attempt.id, reuse_as="mark")
    found = await ledger.get(task.id)
    assert found
    task = await complete(ledger, found)
    for sending in await SqlOutbox(house.database, sealer).claim(webhook.id, limit=9, lease_ms=1000):
        await house.sql("UPDATE notices SET state = 'delivered' WHERE id = :id", id=sending.notice.id)
    assert all([(await house.sql(f"SELECT count(*) FROM {table}"))[0][0] for table in ONES_OWN])
    await house.aged(task, 8)

    assert await house.tombstones.bury(task.id, WEEK)

    assert dict.fromkeys(ONES_OWN, 0) == {
        table: (await house.sql(f"SELECT count(*) FROM {table}"))[0][0] for table in ONES_OWN
    }
    assert ([], 0) == ((page := await ledger.page(Filter(ANNA))).tasks, page.total)
    assert {"completed": 0} == {status: n for status, n in (await ledger.counts()).items() if status == "completed"}
    assert [] == await ledger.batch([task.id], ANNA)
    stone = await house.tombstones.find(task.id, ANNA)
    assert stone
    assert (task.id, "acme", "anna", "completed") == (stone.task_id, stone.tenant, stone.owner, stone.status)
    assert task.updated_ms - 8 * DAY_MS == stone.ended_ms < stone.expired_ms
    whole = await house.sql("SELECT * FROM tombstones")
    assert task.filename not in str(whole)
    for who, kind in ((ANNA, Gone), (BERT, NotFound), (CARL, NotFound)):
        for refused in await asyncio.gather(
            query.task(house.ports(), principal(who), task.id),
            query.events(house.ports(), principal(who), task.id, after=0, limit=9),
            ledger.decide(task.id, lambda one, held: machine.cancel(one, held, force=True), who=who),
            return_exceptions=True,
        ):
            assert isinstance(refused, kind)
            assert isinstance(refused, DocmillError)
            assert ("task_expired" if kind is Gone else "task_not_found") == refused.code
    again, is_new = await ledger.open(a_task(), attempt_id=uuid4(), once=Once("k", "f"))
    assert is_new
    assert again.id > task.id, "an id is never given twice"


async def test_what_is_young_or_not_final_stays_and_each_end_has_its_own_time(house: House) -> None:
    young, old = await house.ended(6), await house.ended(8)
    waiting, (running, _) = await opened(house.ledger), await claimed(house.ledger, await opened(house.ledger))
    broken, attempt = await claimed(house.ledger, await opened(house.ledger))
    await fail(house.ledger, broken.id, attempt.id)
    for task in (waiting, running, broken):
        await house.aged(task, 400)
    retried = await house.ended(400)
    await house.ledger.decide(retried.id, lambda one, _: machine.retry(one, from_stage="mineru", next_id=uuid4()))

    assert 0 == await retention.expire(house.ports(Retention(7 * DAY_MS, None)))

    async def left() -> set[int]:
        return {task.id for task in (await house.ledger.page(Filter(ANNA))).tasks}

    assert {one.id for one in (young, waiting, running, broken, retried)} == await left()
    assert await house.tombstones.find(old.id, ANNA)
    await retention.expire(house.ports(Retention(None, DAY_MS)))
    assert {one.id for one in (young, waiting, running, retried)} == await left()
    await retention.expire(house.ports(Retention()))
    assert {one.id for one in (young, waiting, running, retried)} == await left(), "for ever, unless it is said"


async def test_two_sweepers_remove_a_task_once_and_pages_follow_each_other(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PAGE", 3)
    old = [await house.ended(8) for _ in range(7)]
    young = await house.ended(0)

    assert [False, True] == sorted(
        await asyncio.gather(house.tombstones.bury(old[0].id, WEEK), house.tombstones.bury(old[0].id, WEEK))
    )
    after, rounds = await retention.expire(house.ports()), 1
    while after:
        after, rounds = await retention.expire(house.ports(), after=after), rounds + 1

    assert 3 == rounds
    page = await house.ledger.page(Filter(ANNA))
    assert ([young.id], 1) == ([task.id for task in page.tasks], page.total)
    assert [] == await house.tombstones.full(after=0, limit=9)


async def test_objects_go_save_those_that_a_document_names_and_documents_only_if_asked(house: House) -> None:
    task, keys = await house.made("users/anna/raw/7/a.pdf")
    bare, _ = await house.made("users/anna/raw/7/b.pdf")
    await house.document_of(task)
    for one in (task, bare):
        await house.aged(one, 8)
    other = "users/anna/raw/7/other.pdf"
    await objects(house.ports(), "acme").put_bytes(other, b"never submitted")

    await retention.expire(house.ports())

    named = {task.source_key, task.artifacts.markdown_key or ""}
    assert sorted({*named, other}) == await house.kept()
    assert named < set(keys)

    last, _ = await house.made("users/anna/raw/7/c.pdf")
    document_id = await house.document_of(last)
    await house.aged(last, 8)
    await retention.expire(house.ports(replace(WEEK, documents=True)))

    assert sorted({*named, other}) == await house.kept()
    assert await house.documents.get("acme", document_id) is None


async def test_a_source_and_a_parse_stay_as_long_as_somebody_uses_them(house: House) -> None:
    first, _ = await house.made("users/anna/raw/7/a.pdf")
    second, keys = await house.made("users/anna/raw/7/a.pdf")
    await house.aged(first, 8)
    await retention.expire(house.ports())
    assert keys == await house.kept()
    await house.aged(second, 8)
    await retention.expire(house.ports())
    assert [] == await house.kept()

    lender, lent = await house.made("users/anna/raw/7/a.pdf")
    borrowed = Artifacts(lender.artifacts.markdown_key, lender.artifacts.parsed_key)
    borrower, keys = await house.made("users/anna/raw/7/b.pdf", borrowed=borrowed)
    parse = [key for key in lent if key.rpartition("/")[0].startswith(borrowed.parsed_key.rpartition("/")[0])]  # type: ignore[union-attr]
    assert 3 == len(parse)
    await house.aged(lender, 8)

    await retention.expire(house.ports())
    assert sorted([*parse, *keys]) == await house.kept()

    await house.aged(borrower, 8)
    await retention.expire(house.ports())
    assert [] == await house.kept(), "the last one out turns off the light"


async def test_nobody_borrows_from_a_task_that_goes_at_that_moment(house: House) -> None:
    for _ in range(4):
        lender, _ = await house.made(f"users/anna/raw/7/{uuid4()}.pdf")
        await house.aged(lender, 8)
        borrower, attempt = await claimed(house.ledger, await opened(house.ledger))
        key = lender.artifacts.parsed_key or ""

        async def goes(task: Task = lender, key: str = key) -> bool:
            """Whether its objects would stay."""
            assert await house.tombstones.bury(task.id, WEEK)
            return await house.tombstones.is_parse_used(key)

        stays, change = await asyncio.gather(
            goes(), house.succeed(borrower, attempt.id, Artifacts("m.md", key)), return_exceptions=True
        )

        assert isinstance(change, Change) == stays
        if not stays:
            assert isinstance(change, Unavailable)
            found = await house.ledger.get(borrower.id)
            assert found
            assert (Status.RUNNING, None) == (found.status, found.artifacts.parsed_key), "nothing of it was written"


async def test_who_borrows_slowly_is_waited_for(tmp_path: Path, postgres_copy: str) -> None:
    """SQLite has one writer; here two transactions are open at once."""
    async with open_database("postgres", tmp_path, postgres_copy) as database:
        house = House(database, tmp_path)
        lender, _ = await house.made("users/anna/raw/7/a.pdf")
        await house.aged(lender, 8)
        borrower, key = await opened(house.ledger), lender.artifacts.parsed_key or ""

        def slow() -> Op[bool]:
            lent = yield from tombstones.borrow(borrower, replace(borrower, artifacts=Artifacts("m.md", key)))
            yield Statement("SELECT pg_sleep(0.5)")()
            return lent

        lending = asyncio.create_task(database.write(slow()))
        sleeping = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        while not await house.sql(sleeping):
            assert not lending.done()

        assert await house.tombstones.bury(lender.id, WEEK)
        assert await house.tombstones.is_parse_used(key)
        assert await lending


async def test_who_dies_between_tombstone_and_objects_is_followed_by_one_who_goes_on(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [(await house.made(f"users/anna/raw/7/{n}.pdf"))[0] for n in range(3)]
    for task in tasks:
        await house.aged(task, 8)
    delete, calls = house.store.delete, 0

    async def breaks(key: str) -> bool:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise OSError("the disk is gone")
        return await delete(key)

    monkeypatch.setattr(house.store, "delete", breaks)
    await retention.expire(house.ports())

    assert [tasks[0].id] == [one.stone.task_id for one in await house.tombstones.full(after=0, limit=9)]
    assert await house.kept()
    with pytest.raises(Gone):
        await query.task(house.ports(), principal(ANNA), tasks[0].id)
    await retention.expire(house.ports(Retention()))
    assert [] == await house.kept(), "also when nothing is to be removed any more"
    assert [] == await house.tombstones.full(after=0, limit=9)


@pytest.mark.parametrize("kind", KINDS)
async def test_loans_of_before_the_upgrade_are_known_after_it(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = migrate.known()
    monkeypatch.setattr(migrate, "known", lambda: [one for one in everything if one.number != 8])
    url = request.getfixturevalue("postgres_database") if kind == "postgres" else None
    database: Database = PostgresDatabase(url) if url else SqliteDatabase(tmp_path / "docmill.db")
    try:
        await migrate.migrate(database)
        house = House(database, tmp_path)
        task, attempt = await claimed(house.ledger, await opened(house.ledger))
        await succeed(house.ledger, task.id, attempt.id, cache_hit=True)
        monkeypatch.setattr(migrate, "known", lambda: everything)

        assert [one.name for one in everything if one.number == 8] == await migrate.migrate(database)

        assert [[task.id, "p.json"]] == [list(row) for row in await house.sql("SELECT * FROM loans")]
    finally:
        await database.close()
