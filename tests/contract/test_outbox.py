"""What every outbox promises, on every database: none lost, none of what did not happen, and one sender at a time."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.ledger import SqlLedger
from docmill.adapters.sql.outbox import SqlOutbox, page_statement
from docmill.adapters.sql.statement import Op, Row, Statement
from docmill.adapters.sql.webhooks import SqlWebhooks
from docmill.core import machine, webhooks
from docmill.core.access import Owner
from docmill.core.errors import Conflict
from docmill.core.webhooks import Answer, Outcome, Sent, Webhook, WebhookDraft
from docmill.ports import NewTask, NoticeFilter, Sending
from support.databases import KINDS, open_database, url_of
from support.ledgers import ANNA, BERT, CARL, SEALER, a_task, claimed, complete, fail, opened

LEASE_MS = 60_000
URL = "https://hooks.example/in"


@dataclass
class House:
    """Two processes on one database."""

    databases: tuple[Database, Database]

    def __post_init__(self) -> None:
        self.ledger = SqlLedger(self.databases[0])
        self.webhooks = SqlWebhooks(self.databases[0], SEALER)
        self.outboxes = [SqlOutbox(database, SEALER) for database in self.databases]
        self.outbox = self.outboxes[0]

    async def webhook(self, who: Owner = ANNA, *kinds: str, enabled: bool = True) -> Webhook:
        draft = WebhookDraft(URL, "a receiver", kinds, enabled)
        return await self.webhooks.add(webhooks.new_webhook_id(), draft, webhooks.new_secret(), who, most=9)

    async def claim(self, webhook: Webhook, *, lease_ms: int = LEASE_MS, limit: int = 10) -> list[Sending]:
        return await self.outbox.claim(webhook.id, limit=limit, lease_ms=lease_ms)

    async def sql(self, text: str, **params: Any) -> list[Row]:
        def op() -> Op[list[Row]]:
            return (yield Statement(text)(**params))

        return await self.databases[0].write(op())


@pytest.fixture(params=KINDS)
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    url = url_of(request.param, request)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(open_database(request.param, tmp_path, url))
        yield House((first, await stack.enter_async_context(open_database(request.param, tmp_path, url))))


async def test_every_end_of_a_task_is_told_once_to_every_webhook_that_wants_to_know(house: House) -> None:
    all_of_them, failures = await house.webhook(), await house.webhook(ANNA, "task.failed")
    off = await house.webhook(enabled=False)
    others = [await house.webhook(BERT), await house.webhook(CARL)]

    done = await complete(house.ledger, await opened(house.ledger))
    task, attempt = await claimed(house.ledger, await opened(house.ledger))
    await fail(house.ledger, task.id, attempt.id)
    dropped = await opened(house.ledger)
    await house.ledger.decide(dropped.id, lambda one, held: machine.cancel(one, held, force=True), who=ANNA)
    new = a_task()
    broken = NewTask(**{name: getattr(new, name) for name in NewTask.__slots__} | {"upload_fault": "cut off"})
    lost = await opened(house.ledger, broken)
    await opened(house.ledger)  # not at its end yet

    told = [one.notice for one in await house.claim(all_of_them)]
    assert {
        ("task.completed", done.id, "completed", None),
        ("task.failed", task.id, "failed", "document_broken"),
        ("task.cancelled", dropped.id, "cancelled", None),
        ("task.failed", lost.id, "failed", "upload_failed"),
    } == {
        (said["type"], one.task_id, said["data"]["status"], said["data"]["error_code"])
        for one in told
        for said in [json.loads(one.payload)]
    }
    assert 4 == len(told) == len({one.message_id for one in told})
    heard = [one.notice for one in await house.claim(failures)]
    assert {task.id, lost.id} == {one.task_id for one in heard}
    assert {one.message_id for one in heard} <= {one.message_id for one in told}, "one message, many receivers"
    assert [[]] * 3 == [await house.claim(one) for one in (off, *others)]


async def test_a_retried_task_is_told_again_as_another_message(house: House) -> None:
    webhook = await house.webhook()
    task = await complete(house.ledger, await opened(house.ledger))
    await house.ledger.decide(task.id, lambda one, _: machine.retry(one, from_stage="mineru", next_id=uuid4()))
    again = await house.ledger.get(task.id)
    assert again
    await complete(house.ledger, again)

    first, second = [one.notice for one in await house.claim(webhook)]

    assert [task.id] * 2 == [first.task_id, second.task_id]
    assert first.message_id != second.message_id


async def test_what_was_not_committed_is_not_told(house: House) -> None:
    webhook = await house.webhook()
    task, attempt = await claimed(house.ledger, await opened(house.ledger))

    def refuses(one: Any, held: Any) -> Any:
        machine.on_failure(
            one, held, machine.Fault("x", "x", "mineru"), retryable=False, crashed=False, next_id=uuid4()
        )
        raise Conflict("task_busy", task=one.id, status="running")

    with pytest.raises(Conflict):
        await house.ledger.decide(task.id, refuses, attempt_id=attempt.id)

    assert [] == await house.claim(webhook)


async def test_two_processes_never_hold_the_same_notice(house: House) -> None:
    webhook = await house.webhook()
    for _ in range(12):
        await complete(house.ledger, await opened(house.ledger))

    assert [webhook.id] == await house.outbox.waiting()
    takes = [house.outboxes[n % 2].claim(webhook.id, limit=2, lease_ms=LEASE_MS) for n in range(12)]
    held = [one.notice.id for taken in await asyncio.gather(*takes) for one in taken]
    held += [one.notice.id for one in await house.claim(webhook, limit=50)]

    assert 12 == len(held) == len(set(held))
    assert [] == await house.outbox.waiting()


async def test_a_claim_that_nobody_settles_runs_out_and_its_outcome_comes_too_late(house: House) -> None:
    webhook = await house.webhook()
    await complete(house.ledger, await opened(house.ledger))
    [dead] = await house.claim(webhook, lease_ms=0)
    [living] = await house.claim(webhook)

    assert dead.notice.message_id == living.notice.message_id
    assert (1, 2) == (dead.notice.tries, living.notice.tries)
    assert not await house.outbox.settle(dead.notice, Answer(200), Outcome(Sent.DELIVERED))
    assert await house.outbox.settle(living.notice, Answer(500, "webhook_refused"), Outcome(Sent.DEAD))
    assert not await house.outbox.settle(living.notice, Answer(200), Outcome(Sent.DELIVERED)), "an end is an end"
    found = await house.outbox.get(living.notice.id, ANNA)
    assert found
    assert (Sent.DEAD, 500, "webhook_refused") == (found.state, found.status, found.code)


async def test_a_try_that_failed_is_due_again_after_its_wait(house: House) -> None:
    webhook = await house.webhook()
    await complete(house.ledger, await opened(house.ledger))
    [first] = await house.claim(webhook)
    await house.outbox.settle(first.notice, Answer(503, "webhook_refused", "503"), Outcome(Sent.PENDING, 3_600_000))

    assert [] == await house.claim(webhook)
    await house.sql("UPDATE notices SET due_ms = due_ms - 3600000")
    [second] = await house.claim(webhook)
    await house.outbox.settle(second.notice, Answer(204, took_ms=7), Outcome(Sent.DELIVERED))

    assert [(1, 503, "webhook_refused", "503", 0), (2, 204, None, None, 7)] == [
        (one.number, one.status, one.code, one.why, one.took_ms) for one in await house.outbox.tries(1, ANNA)
    ]
    assert first.notice.payload == second.notice.payload


async def test_a_notice_given_back_is_due_at_once(house: House) -> None:
    webhook = await house.webhook()
    await complete(house.ledger, await opened(house.ledger))
    [held] = await house.claim(webhook)
    await house.outbox.release(held.notice)

    [again] = await house.claim(webhook)

    assert held.notice.id == again.notice.id


async def test_gone_disables_the_webhook_and_buries_what_waits(house: House) -> None:
    webhook = await house.webhook()
    for _ in range(3):
        await complete(house.ledger, await opened(house.ledger))
    held = await house.claim(webhook, limit=2)
    gone = [
        outbox.settle(one.notice, Answer(410, "webhook_gone"), Outcome(Sent.DEAD, disables=True))
        for one, outbox in zip(held, house.outboxes, strict=True)
    ]
    await asyncio.gather(*gone)

    found = await house.webhooks.get(webhook.id, ANNA)
    assert found
    assert (False, "webhook_gone") == (found.is_enabled, found.disabled_code)
    notices = await house.outbox.page(NoticeFilter(ANNA))
    assert [Sent.DEAD] * 3 == [one.state for one in notices]
    await complete(house.ledger, await opened(house.ledger))
    assert 3 == len(await house.outbox.page(NoticeFilter(ANNA))), "a disabled one hears of nothing new"

    enabled = await house.webhooks.replace(webhook.id, WebhookDraft(URL), ANNA)
    assert enabled
    assert (True, None) == (enabled.is_enabled, enabled.disabled_code)
    assert 3 == await house.outbox.requeue_dead(webhook.id, ANNA)
    assert 3 == len(await house.claim(webhook))


async def test_a_notice_for_a_webhook_that_was_disabled_in_that_moment_is_buried(house: House) -> None:
    webhook = await house.webhook()
    await complete(house.ledger, await opened(house.ledger))
    await house.sql("UPDATE webhooks SET disabled_ms = 1")

    assert [webhook.id] == await house.outbox.waiting()
    assert [] == await house.claim(webhook)
    assert [] == await house.outbox.waiting()
    [notice] = await house.outbox.page(NoticeFilter(ANNA))
    assert (Sent.DEAD, "webhook_disabled") == (notice.state, notice.code)


async def test_sent_again_it_keeps_its_id_and_its_waits_begin_anew(house: House) -> None:
    webhook = await house.webhook()
    await complete(house.ledger, await opened(house.ledger))
    [held] = await house.claim(webhook)
    assert await house.outbox.requeue(held.notice.id, ANNA) is None, "it is on its way"
    await house.outbox.settle(held.notice, Answer(200), Outcome(Sent.DELIVERED))
    assert await house.outbox.requeue(held.notice.id, BERT) is None

    again = await house.outbox.requeue(held.notice.id, ANNA)

    assert again
    assert (held.notice.message_id, Sent.PENDING, 1, 1) == (
        again.message_id,
        again.state,
        again.tries,
        again.round_from,
    )
    [second] = await house.claim(webhook)
    assert (2, held.notice.payload) == (second.notice.tries, second.notice.payload)


async def test_lists_are_the_owners_and_can_be_narrowed(house: House) -> None:
    webhook, other = await house.webhook(), await house.webhook()
    tasks = [await complete(house.ledger, await opened(house.ledger)) for _ in range(3)]
    [held] = await house.claim(webhook, limit=1)
    await house.outbox.settle(held.notice, Answer(200), Outcome(Sent.DELIVERED))

    async def ids(**where: Any) -> list[int]:
        return [one.id for one in await house.outbox.page(NoticeFilter(ANNA, **where))]

    everything = await ids()
    assert everything == sorted(everything, reverse=True)
    assert 6 == len(everything)
    assert everything[:2] == await ids(limit=2)
    assert everything[2:4] == await ids(limit=2, before=everything[1])
    assert 3 == len(await ids(webhook_id=other.id))
    assert [held.notice.id] == await ids(state=Sent.DELIVERED)
    assert 2 == len(await ids(task_id=tasks[1].id))
    for stranger in (BERT, CARL):
        assert [] == await house.outbox.page(NoticeFilter(stranger))
        assert await house.outbox.get(everything[0], stranger) is None
        assert 0 == await house.outbox.requeue_dead(webhook.id, stranger)


async def test_secrets_are_rotated_and_two_are_in_force_meanwhile(house: House) -> None:
    webhook = await house.webhook()
    fresh = [webhooks.new_secret() for _ in range(3)]

    first = await house.webhooks.rotate(webhook.id, fresh[0], ANNA, overlap_ms=60_000)
    second = await house.webhooks.rotate(webhook.id, fresh[1], ANNA, overlap_ms=60_000)
    third = await house.webhooks.rotate(webhook.id, fresh[2], ANNA, overlap_ms=0)

    assert first
    assert second
    assert third
    assert [fresh[0], webhook.secrets[0].text] == [one.text for one in first.secrets]
    assert [fresh[1], fresh[0]] == [one.text for one in second.secrets]
    assert [fresh[2]] == [one.text for one in third.secrets]
    assert third == await house.webhooks.get(webhook.id, ANNA)
    for stranger in (BERT, CARL):
        assert await house.webhooks.rotate(webhook.id, "x", stranger, overlap_ms=0) is None


async def test_a_webhook_is_its_owners(house: House) -> None:
    webhook = await house.webhook()
    assert [webhook] == await house.webhooks.list(ANNA)
    for stranger in (BERT, CARL):
        assert await house.webhooks.get(webhook.id, stranger) is None
        assert await house.webhooks.replace(webhook.id, WebhookDraft("https://x.example"), stranger) is None
        assert not await house.webhooks.remove(webhook.id, stranger)
        assert [] == await house.webhooks.list(stranger)
    assert webhook == await house.webhooks.get(webhook.id, ANNA)
    await complete(house.ledger, await opened(house.ledger))
    assert await house.webhooks.remove(webhook.id, ANNA)
    assert not await house.webhooks.remove(webhook.id, ANNA)
    assert [] == await house.outbox.page(NoticeFilter(ANNA))


async def test_nobody_has_more_than_so_many(house: House) -> None:
    for _ in range(9):
        await house.webhook()
    with pytest.raises(Conflict) as refused:
        await house.webhook()
    assert "webhook_limit" == refused.value.code
    await house.webhook(BERT)


async def test_what_ended_long_ago_is_forgotten_and_what_belongs_to_nobody_too(house: House) -> None:
    webhook = await house.webhook()
    for _ in range(3):
        await complete(house.ledger, await opened(house.ledger))
    held = await house.claim(webhook, limit=2)
    for one in held:
        await house.outbox.settle(one.notice, Answer(200), Outcome(Sent.DELIVERED))
    await house.sql("UPDATE notices SET ended_ms = 1 WHERE id = :id", id=held[0].notice.id)

    assert 1 == await house.outbox.prune(older_ms=LEASE_MS, limit=10)
    assert 2 == len(await house.outbox.page(NoticeFilter(ANNA)))
    await house.sql("DELETE FROM webhooks")
    await house.sql("UPDATE notices SET due_ms = due_ms - 1000")
    assert 1 == await house.outbox.prune(older_ms=LEASE_MS, limit=10)


@pytest.mark.parametrize("more", [{}, {"webhook_id": "wh_1"}, {"state": Sent.DEAD}, {"before": 9}])
async def test_the_messages_about_a_task_are_found_by_an_index_of_their_own(
    house: House, request: pytest.FixtureRequest, more: dict[str, Any]
) -> None:
    """However many messages about other tasks their owner has."""
    text = page_statement(NoticeFilter(ANNA, task_id=7, **more)).sqlite
    for name in ("tenant", "owner", "webhook_id", "state"):
        text = text.replace(f":{name}", "'x'")
    for name in ("task_id", "before", "limit"):
        text = text.replace(f":{name}", "7")
    is_postgres = "postgres" in request.node.name

    def op() -> Op[list[Row]]:
        if is_postgres:
            yield Statement("SET LOCAL enable_seqscan = off")()  # a table of no rows is read whole otherwise
        return (yield Statement(f"EXPLAIN {'' if is_postgres else 'QUERY PLAN'} {text}")())

    plan = str([tuple(row) for row in await house.databases[0].write(op())])

    assert "notices_of_task" in plan, plan
