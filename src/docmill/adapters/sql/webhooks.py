"""Webhooks in SQL: where to send, and with which secrets.

Every message is signed with the secrets, so they must be readable: they are encrypted with the deployment's secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.rows import decode, encode
from docmill.adapters.sql.sealing import Sealer, Unreadable
from docmill.adapters.sql.statement import Op, Row, Statement
from docmill.core.access import Owner
from docmill.core.errors import Conflict
from docmill.core.webhooks import Secret, Webhook, WebhookDraft, rotated

COLUMNS = "id, url, description, kinds, secrets, created_ms, updated_ms, disabled_ms, disabled_code"
OWN = "id = :id AND tenant = :tenant AND owner = :owner"

COUNT = Statement("SELECT count(*) FROM webhooks WHERE tenant = :tenant AND owner = :owner")
ADD = Statement(
    "INSERT INTO webhooks (id, tenant, owner, url, description, kinds, secrets, disabled_ms, created_ms, updated_ms)"
    " VALUES (:id, :tenant, :owner, :url, :description, :kinds, :secrets,"
    " CASE WHEN CAST(:enabled AS BIGINT) = 1 THEN NULL ELSE {now} END, {moment}, {moment})"
    f" RETURNING {COLUMNS}"
)
ANY = Statement("SELECT 1 FROM webhooks LIMIT 1")
GET = Statement(f"SELECT {COLUMNS} FROM webhooks WHERE {OWN}")
LOAD = Statement(f"SELECT {COLUMNS}, {{now}} FROM webhooks WHERE {OWN} {{lock}}")
LIST = Statement(f"SELECT {COLUMNS} FROM webhooks WHERE tenant = :tenant AND owner = :owner ORDER BY created_ms, id")
REPLACE = Statement(
    "UPDATE webhooks SET url = :url, description = :description, kinds = :kinds, updated_ms = {now},"
    " disabled_ms = CASE WHEN CAST(:enabled AS BIGINT) = 1 THEN NULL ELSE COALESCE(disabled_ms, {now}) END,"
    " disabled_code = CASE WHEN CAST(:enabled AS BIGINT) = 1 THEN NULL ELSE disabled_code END"
    f" WHERE {OWN} RETURNING {COLUMNS}"
)
ROTATE = Statement(f"UPDATE webhooks SET secrets = :secrets, updated_ms = {{now}} WHERE id = :id RETURNING {COLUMNS}")
REMOVE = Statement(f"DELETE FROM webhooks WHERE {OWN} RETURNING id")
REMOVE_NOTICES = Statement("DELETE FROM notices WHERE webhook_id = :id")
BURY = Statement(
    "UPDATE notices SET state = 'dead', code = :code, ended_ms = {now} WHERE webhook_id = :id AND state = 'pending'"
)


SECRETS = Statement("SELECT id, secrets FROM webhooks ORDER BY id LIMIT 1000")
NOT_SEALED = Statement(
    "SELECT id, secrets FROM webhooks WHERE substr(secrets, 1, CAST(:length AS INTEGER)) <> :mark ORDER BY id"
)
RESEAL = Statement("UPDATE webhooks SET secrets = :sealed WHERE id = :id AND secrets = :before")


class SqlWebhooks:
    def __init__(self, database: Database, sealer: Sealer) -> None:
        self._database = database
        self._sealer = sealer

    async def unreadable(self) -> int:
        count = 0
        for webhook_id, value in await self._database.read(_rows(SECRETS)):
            try:
                self._sealer.unseal(value, bound_to=webhook_id)
            except Unreadable:
                count += 1
        return count

    async def seal_all(self) -> tuple[int, int]:
        """Encrypt what the current key has not encrypted yet; how many were, and how many no key can read."""
        if not await self._database.read(_rows(ANY)):
            return 0, 0  # a deployment without webhooks needs no key
        mark = self._sealer.mark
        rows = await self._database.read(_rows(NOT_SEALED, mark=mark, length=len(mark)))
        sealed = unreadable = 0
        for webhook_id, before in rows:
            try:
                text = self._sealer.unseal(before, bound_to=webhook_id)
            except Unreadable:
                unreadable += 1
                continue
            after = self._sealer.seal(text, bound_to=webhook_id)
            await self._database.write(_rows(RESEAL, id=webhook_id, before=before, sealed=after))
            sealed += 1
        return sealed, unreadable

    async def add(self, webhook_id: str, draft: WebhookDraft, secret: str, who: Owner, *, most: int) -> Webhook:
        op = _add(webhook_id, draft, secret, who, most, self._sealer)
        return await self._database.write(op, tenant=who.tenant)

    async def get(self, webhook_id: str, who: Owner) -> Webhook | None:
        rows = await self._database.read(_rows(GET, id=webhook_id, **_owner(who)), tenant=who.tenant)
        return webhook_of(rows[0], self._sealer) if rows else None

    async def list(self, who: Owner) -> list[Webhook]:
        rows = await self._database.read(_rows(LIST, **_owner(who)), tenant=who.tenant)
        return [webhook_of(row, self._sealer) for row in rows]

    async def replace(self, webhook_id: str, draft: WebhookDraft, who: Owner) -> Webhook | None:
        return await self._database.write(_replace(webhook_id, draft, who, self._sealer), tenant=who.tenant)

    async def rotate(self, webhook_id: str, secret: str, who: Owner, *, overlap_ms: int) -> Webhook | None:
        op = _rotate(webhook_id, secret, who, overlap_ms, self._sealer)
        return await self._database.write(op, tenant=who.tenant)

    async def remove(self, webhook_id: str, who: Owner) -> bool:
        return await self._database.write(_remove(webhook_id, who), tenant=who.tenant)


def _rows(statement: Statement, **params: Any) -> Op[list[Row]]:
    return (yield statement(**params))


def _add(webhook_id: str, draft: WebhookDraft, secret: str, who: Owner, most: int, sealer: Sealer) -> Op[Webhook]:
    count = yield COUNT(**_owner(who))
    if count[0][0] >= most:
        raise Conflict("webhook_limit", limit=most)
    sealed = _sealed(sealer, webhook_id, [Secret(secret)])
    rows = yield ADD(id=webhook_id, secrets=sealed, **_owner(who), **_columns(draft))
    return webhook_of(rows[0], sealer)


def _replace(webhook_id: str, draft: WebhookDraft, who: Owner, sealer: Sealer) -> Op[Webhook | None]:
    rows = yield REPLACE(id=webhook_id, **_owner(who), **_columns(draft))
    if not rows:
        return None
    if not draft.enabled:
        # What waits would clog the line for ever; as dead letters it can be sent again with one word.
        yield BURY(id=webhook_id, code="webhook_disabled")
    return webhook_of(rows[0], sealer)


def _rotate(webhook_id: str, secret: str, who: Owner, overlap_ms: int, sealer: Sealer) -> Op[Webhook | None]:
    rows = yield LOAD(id=webhook_id, **_owner(who))
    if not rows:
        return None
    secrets = rotated(webhook_of(rows[0], sealer).secrets, secret, now_ms=rows[0][-1], overlap_ms=overlap_ms)
    rows = yield ROTATE(id=webhook_id, secrets=_sealed(sealer, webhook_id, secrets))
    return webhook_of(rows[0], sealer)


def _remove(webhook_id: str, who: Owner) -> Op[bool]:
    gone = yield REMOVE(id=webhook_id, **_owner(who))
    if gone:
        yield REMOVE_NOTICES(id=webhook_id)
    return bool(gone)


def _owner(who: Owner) -> dict[str, str]:
    return {"tenant": who.tenant, "owner": who.user}


def _columns(draft: WebhookDraft) -> dict[str, Any]:
    return {
        "url": draft.url,
        "description": draft.description,
        "kinds": spelled(draft.kinds),
        "enabled": int(draft.enabled),
    }


def spelled(kinds: tuple[str, ...]) -> str:
    """With a space around each, so that `LIKE '% kind %'` finds it."""
    return f" {' '.join(kinds)} " if kinds else ""


def _sealed(sealer: Sealer, webhook_id: str, secrets: Sequence[Secret]) -> str:
    return sealer.seal(encode([asdict(one) for one in secrets]), bound_to=webhook_id)


def _unsealed(sealer: Sealer, webhook_id: str, value: str) -> tuple[Secret, ...]:
    """Without the deployment's secret there are none: the webhook is still listed, and can get a new one."""
    try:
        return tuple(Secret(**one) for one in decode(sealer.unseal(value, bound_to=webhook_id)))
    except Unreadable:
        return ()


def webhook_of(row: Row, sealer: Sealer) -> Webhook:
    webhook_id, url, description, kinds, secrets, created_ms, updated_ms, disabled_ms, disabled_code = row[:9]
    return Webhook(
        id=webhook_id,
        url=url,
        description=description,
        kinds=tuple(kinds.split()),
        secrets=_unsealed(sealer, webhook_id, secrets),
        created_ms=created_ms,
        updated_ms=updated_ms,
        disabled_ms=disabled_ms,
        disabled_code=disabled_code,
    )
