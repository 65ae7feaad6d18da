"""The outbox in SQL: messages on their way to webhooks.

A notice is written in the transaction that ends its task, so that none is lost and none is sent of what did not happen.
Whoever claims one counts its tries up; only the latest claimant's outcome is written. A claim that nobody settles runs
out, and the notice is sent again.
"""

from __future__ import annotations

from typing import Any

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.rows import encode
from docmill.adapters.sql.sealing import Sealer
from docmill.adapters.sql.statement import Bulk, Op, Row, Statement
from docmill.adapters.sql.webhooks import BURY, webhook_of
from docmill.adapters.sql.webhooks import COLUMNS as WEBHOOK_COLUMNS
from docmill.core import webhooks
from docmill.core.access import Owner
from docmill.core.task import Task
from docmill.core.webhooks import Answer, Message, Notice, Outcome, Sent, Try
from docmill.ports import NoticeFilter, Sending

COLUMNS = (
    "id, message_id, webhook_id, kind, task_id, payload, state, tries, round_from, due_ms, queued_ms, created_ms,"
    " ended_ms, status, code"
)
OWN = "id = :id AND tenant = :tenant AND owner = :owner"

ANNOUNCE = Bulk(
    """
    INSERT INTO notices (message_id, webhook_id, tenant, owner, kind, task_id, payload, state, tries, round_from,
                         due_ms, scheduled_ms, queued_ms, created_ms)
    SELECT :message_id, id, tenant, owner, :kind, :task_id, :payload, 'pending', 0, 0, {now}, {now}, {now}, {now}
    FROM webhooks {and_rows}
    WHERE tenant = :tenant AND owner = :owner AND disabled_ms IS NULL AND (kinds = '' OR kinds LIKE :wanted)
    """,
    numbers="task_id",
)
ADD = Statement(
    f"""
    INSERT INTO notices (message_id, webhook_id, tenant, owner, kind, task_id, payload, state, tries, round_from,
                         due_ms, scheduled_ms, queued_ms, created_ms)
    VALUES (:message_id, :webhook_id, :tenant, :owner, :kind, NULL, :payload, 'pending', 1, 0,
            {{now}} + CAST(:lease_ms AS BIGINT), {{now}}, {{now}}, {{now}})
    RETURNING {COLUMNS}, {{now}}
    """
)
WAITING = Statement(
    """
    SELECT id FROM webhooks w WHERE EXISTS (
        SELECT 1 FROM notices n WHERE n.webhook_id = w.id AND n.state = 'pending' AND n.due_ms <= {now}
    )
    """
)
WEBHOOK = Statement(f"SELECT {WEBHOOK_COLUMNS} FROM webhooks WHERE id = :id")
CLAIM = Statement(
    f"""
    UPDATE notices SET tries = tries + 1, due_ms = {{now}} + CAST(:lease_ms AS BIGINT), scheduled_ms = {{now}}
    WHERE id IN (
        SELECT id FROM notices WHERE webhook_id = :webhook_id AND state = 'pending' AND due_ms <= {{now}}
        ORDER BY due_ms, id LIMIT :limit {{skip_locked}}
    )
    RETURNING {COLUMNS}, {{now}}
    """
)
LOCK_WEBHOOK = Statement("SELECT id FROM webhooks WHERE id = :id {lock}")
SETTLE = Statement(
    """
    UPDATE notices SET state = :state, due_ms = {now} + CAST(:delay_ms AS BIGINT), scheduled_ms = {now},
           status = :status, code = :code,
           ended_ms = CASE WHEN CAST(:state AS TEXT) = 'pending' THEN NULL ELSE {now} END
    WHERE id = :id AND tries = :tries AND state = 'pending'
    RETURNING id
    """
)
TRIED = Statement(
    """
    INSERT INTO notice_tries (notice_id, number, status, code, why, took_ms, at_ms)
    VALUES (:id, :number, :status, :code, :why, :took_ms, {now})
    """
)
DISABLE = Statement(
    "UPDATE webhooks SET disabled_ms = {now}, disabled_code = :code, updated_ms = {now}"
    " WHERE id = :id AND disabled_ms IS NULL"
)
RELEASE = Statement(
    "UPDATE notices SET due_ms = {now}, scheduled_ms = {now} WHERE id = :id AND tries = :tries AND state = 'pending'"
)
# The clock was set back after these were scheduled: each waits as long as it was meant to, from now on.
IS_AHEAD = Statement(
    "SELECT id FROM notices WHERE state = 'pending' AND scheduled_ms > {now} + CAST(:margin_ms AS BIGINT) LIMIT 1"
)
RESCHEDULE = Statement(
    """
    UPDATE notices SET due_ms = due_ms - scheduled_ms + {now}, scheduled_ms = {now},
           queued_ms = CASE WHEN queued_ms > {now} THEN {now} ELSE queued_ms END
    WHERE state = 'pending' AND scheduled_ms > {now} + CAST(:margin_ms AS BIGINT) RETURNING id
    """
)
CLOCK_MARGIN_MS = 60_000
"""Further ahead than the clocks of two database servers may differ after a failover."""
GET = Statement(f"SELECT {COLUMNS} FROM notices WHERE {OWN}")
TRIES = Statement(
    "SELECT number, status, code, why, took_ms, at_ms FROM notice_tries WHERE notice_id = :id ORDER BY number"
)
AGAIN = (
    "state = 'pending', round_from = tries, due_ms = {now}, scheduled_ms = {now}, queued_ms = {now}, ended_ms = NULL"
)
REQUEUE = Statement(f"UPDATE notices SET {AGAIN} WHERE {OWN} AND state <> 'pending' RETURNING {COLUMNS}")
REQUEUE_DEAD = Statement(
    f"UPDATE notices SET {AGAIN} WHERE webhook_id = :webhook_id AND tenant = :tenant AND owner = :owner"
    " AND state = 'dead' AND kind <> 'webhook.test' RETURNING id"
)
PRUNE = Statement(
    """
    DELETE FROM notices WHERE id IN (
        SELECT id FROM notices WHERE ended_ms < {now} - CAST(:older_ms AS BIGINT) ORDER BY ended_ms LIMIT :limit
    ) RETURNING id
    """
)
ORPHANS = Statement(
    """
    DELETE FROM notices WHERE state = 'pending' AND due_ms < {now}
      AND NOT EXISTS (SELECT 1 FROM webhooks w WHERE w.id = notices.webhook_id)
    RETURNING id
    """
)


class SqlOutbox:
    def __init__(self, database: Database, sealer: Sealer) -> None:
        self._database = database
        self._sealer = sealer

    async def add(self, message: Message, webhook_id: str, who: Owner, *, lease_ms: int) -> Sending | None:
        op = _add(message, webhook_id, who, lease_ms, self._sealer)
        return await self._database.write(op, tenant=who.tenant)

    async def waiting(self) -> list[str]:
        return [row[0] for row in await self._database.read(_rows(WAITING))]

    async def claim(self, webhook_id: str, *, limit: int, lease_ms: int) -> list[Sending]:
        return await self._database.write(_claim(webhook_id, limit, lease_ms, self._sealer))

    async def settle(self, notice: Notice, answer: Answer, outcome: Outcome) -> bool:
        return await self._database.write(_settle(notice, answer, outcome))

    async def release(self, notice: Notice) -> None:
        await self._database.write(_rows(RELEASE, id=notice.id, tries=notice.tries))

    async def mend_times(self) -> int:
        # Nearly always there is nothing to mend, and a look costs less than a write.
        if not await self._database.read(_rows(IS_AHEAD, margin_ms=CLOCK_MARGIN_MS)):
            return 0
        return len(await self._database.write(_rows(RESCHEDULE, margin_ms=CLOCK_MARGIN_MS)))

    async def get(self, notice_id: int, who: Owner) -> Notice | None:
        rows = await self._database.read(_rows(GET, id=notice_id, **_owner(who)), tenant=who.tenant)
        return notice_of(rows[0]) if rows else None

    async def tries(self, notice_id: int, who: Owner) -> list[Try]:
        rows = await self._database.read(_rows(TRIES, id=notice_id), tenant=who.tenant)
        return [Try(*row) for row in rows]

    async def page(self, where: NoticeFilter) -> list[Notice]:
        rows = await self._database.read(_page(where), tenant=where.who.tenant)
        return [notice_of(row) for row in rows]

    async def requeue(self, notice_id: int, who: Owner) -> Notice | None:
        rows = await self._database.write(_rows(REQUEUE, id=notice_id, **_owner(who)), tenant=who.tenant)
        return notice_of(rows[0]) if rows else None

    async def requeue_dead(self, webhook_id: str, who: Owner) -> int:
        again = _rows(REQUEUE_DEAD, webhook_id=webhook_id, **_owner(who))
        return len(await self._database.write(again, tenant=who.tenant))

    async def prune(self, *, older_ms: int, limit: int) -> int:
        return len(await self._database.write(_rows(PRUNE, older_ms=older_ms, limit=limit))) + len(
            await self._database.write(_rows(ORPHANS))
        )


def announcement(before: Task | None, now: Task) -> dict[str, Any] | None:
    """Part of the transaction that changes a task: if that ends it, every webhook that wants to know gets a notice."""
    if not now.is_final:
        return None
    message = webhooks.message_of(before, now, message_id=webhooks.new_message_id())
    if message is None:
        return None
    return {
        "message_id": message.id,
        "kind": message.kind,
        "task_id": message.task_id,
        "payload": encode(message.payload),
        "tenant": now.tenant,
        "owner": now.owner,
        "wanted": f"% {message.kind} %",
    }


def _rows(statement: Statement, **params: Any) -> Op[list[Row]]:
    return (yield statement(**params))


def _add(message: Message, webhook_id: str, who: Owner, lease_ms: int, sealer: Sealer) -> Op[Sending | None]:
    found = yield WEBHOOK(id=webhook_id)
    if not found:
        return None
    rows = yield ADD(
        message_id=message.id,
        webhook_id=webhook_id,
        kind=message.kind,
        payload=encode(message.payload),
        lease_ms=lease_ms,
        **_owner(who),
    )
    return Sending(notice_of(rows[0]), webhook_of(found[0], sealer), rows[0][-1])


def _claim(webhook_id: str, limit: int, lease_ms: int, sealer: Sealer) -> Op[list[Sending]]:
    found = yield WEBHOOK(id=webhook_id)
    if not found:
        return []
    webhook = webhook_of(found[0], sealer)
    if not webhook.is_enabled:
        # Somebody disabled it in the moment in which a task ended.
        yield BURY(id=webhook_id, code="webhook_disabled")
        return []
    rows = yield CLAIM(webhook_id=webhook_id, limit=limit, lease_ms=lease_ms)
    return [Sending(notice_of(row), webhook, row[-1]) for row in rows]


def _settle(notice: Notice, answer: Answer, outcome: Outcome) -> Op[bool]:
    if outcome.disables:
        # The webhook's row before any notice's: one order, no deadlock.
        yield LOCK_WEBHOOK(id=notice.webhook_id)
    said = {"status": answer.status, "code": answer.code}
    rows = yield SETTLE(id=notice.id, tries=notice.tries, state=outcome.state.value, delay_ms=outcome.delay_ms, **said)
    if not rows:
        return False
    yield TRIED(id=notice.id, number=notice.tries, why=answer.why, took_ms=answer.took_ms, **said)
    if outcome.disables:
        yield DISABLE(id=notice.webhook_id, code="webhook_gone")
        yield BURY(id=notice.webhook_id, code="webhook_gone")
    return True


_PAGES: dict[tuple[bool, bool, bool, bool], Statement] = {}


def page_statement(where: NoticeFilter) -> Statement:
    """A statement for every mix of filters, so that each one uses its own index."""
    given = (
        where.webhook_id is not None,
        where.state is not None,
        where.task_id is not None,
        where.before is not None,
    )
    if given not in _PAGES:
        # A task has few messages, its owner may have a million: SQLite must not go by the owner's index.
        plain = " || ''" if where.task_id is not None else ""
        parts = (f"webhook_id{plain} = :webhook_id", "state = :state", "task_id = :task_id", "id < :before")
        own = (f"tenant{plain} = :tenant", f"owner{plain} = :owner")
        wanted = " AND ".join([*own, *(part for part, on in zip(parts, given, strict=True) if on)])
        _PAGES[given] = Statement(f"SELECT {COLUMNS} FROM notices WHERE {wanted} ORDER BY id DESC LIMIT :limit")
    return _PAGES[given]


def _page(where: NoticeFilter) -> Op[list[Row]]:
    return (
        yield page_statement(where)(
            webhook_id=where.webhook_id,
            state=where.state.value if where.state else None,
            task_id=where.task_id,
            before=where.before,
            limit=where.limit,
            **_owner(where.who),
        )
    )


def _owner(who: Owner) -> dict[str, str]:
    return {"tenant": who.tenant, "owner": who.user}


def notice_of(row: Row) -> Notice:
    notice_id, message_id, webhook_id, kind, task_id, payload, state, *rest = row[:15]
    return Notice(notice_id, message_id, webhook_id, kind, task_id, payload, Sent(state), *rest)
