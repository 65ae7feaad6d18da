"""Webhooks: people say who shall hear of the ends of their tasks, and look at what was sent."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace as replaced

from docmill.core import webhooks
from docmill.core.access import Principal
from docmill.core.errors import Conflict, NotFound
from docmill.core.webhooks import Notice, Sent, Try, Webhook, WebhookDraft
from docmill.ports import NoticeFilter, Ports
from docmill.work import notify

MOST = 50
"""Webhooks of one user."""
HOUR_MS = 3600 * 1000
OVERLAP_HOURS = 24


async def add(ports: Ports, who: Principal, draft: WebhookDraft) -> tuple[Webhook, str]:
    """A new webhook, and its secret, which nobody sees again."""
    secret = webhooks.new_secret()
    draft = _checked(ports, draft)
    return await ports.webhooks.add(webhooks.new_webhook_id(), draft, secret, who.owner, most=MOST), secret


async def listed(ports: Ports, who: Principal) -> list[Webhook]:
    return await ports.webhooks.list(who.owner)


async def get(ports: Ports, who: Principal, webhook_id: str) -> Webhook:
    return _found(await ports.webhooks.get(webhook_id, who.owner), webhook_id)


async def replace(ports: Ports, who: Principal, webhook_id: str, draft: WebhookDraft) -> Webhook:
    """Enabling one again sends nothing of what was missed; `redeliver_dead` does."""
    await get(ports, who, webhook_id)  # what is not theirs is not there, whatever they say of it
    return _found(await ports.webhooks.replace(webhook_id, _checked(ports, draft), who.owner), webhook_id)


async def switch(ports: Ports, who: Principal, webhook_id: str, *, enabled: bool) -> Webhook:
    is_now = await get(ports, who, webhook_id)
    draft = WebhookDraft(is_now.url, is_now.description, is_now.kinds, enabled)
    return _found(await ports.webhooks.replace(webhook_id, draft, who.owner), webhook_id)


async def rotate(
    ports: Ports, who: Principal, webhook_id: str, *, overlap_hours: float = OVERLAP_HOURS
) -> tuple[Webhook, str]:
    """A new secret. Messages are signed with the old one, too, until the overlap has passed."""
    secret = webhooks.new_secret()
    overlap_ms = round(overlap_hours * HOUR_MS)
    webhook = await ports.webhooks.rotate(webhook_id, secret, who.owner, overlap_ms=overlap_ms)
    return _found(webhook, webhook_id), secret


async def remove(ports: Ports, who: Principal, webhook_id: str) -> None:
    if not await ports.webhooks.remove(webhook_id, who.owner):
        raise NotFound("webhook_not_found", webhook=webhook_id)


async def test(ports: Ports, who: Principal, webhook_id: str) -> tuple[Notice, list[Try]]:
    """Send a test message now, once; what became of it. A webhook that is disabled can be tested, too."""
    webhook = await get(ports, who, webhook_id)
    now_ms = round(time.time() * 1000)
    message = webhooks.trial_message(webhook.id, now_ms, message_id=webhooks.new_message_id())
    sending = await ports.outbox.add(message, webhook.id, who.owner, lease_ms=notify.lease_ms(ports))
    if sending is None:
        raise NotFound("webhook_not_found", webhook=webhook_id)
    await notify.send(ports, sending)
    return await delivery(ports, who, sending.notice.id)


async def deliveries(
    ports: Ports,
    who: Principal,
    *,
    webhook_id: str | None = None,
    state: Sent | None = None,
    task_id: int | None = None,
    before: int | None = None,
    limit: int = 50,
) -> tuple[Sequence[Notice], int | None]:
    """The newest first, and where the next page begins."""
    where = NoticeFilter(who.owner, webhook_id, state, task_id, before, limit + 1)
    found = await ports.outbox.page(where)
    return found[:limit], found[limit - 1].id if len(found) > limit else None


async def delivery(ports: Ports, who: Principal, notice_id: int) -> tuple[Notice, list[Try]]:
    notice = await ports.outbox.get(notice_id, who.owner)
    if notice is None:
        raise NotFound("webhook_delivery_not_found", delivery=notice_id)
    return notice, await ports.outbox.tries(notice_id, who.owner)


async def redeliver(ports: Ports, who: Principal, notice_id: int) -> Notice:
    """Send a message again, under the id that it had. One that is on its way already stays there."""
    notice, _ = await delivery(ports, who, notice_id)
    await _enabled(ports, who, notice.webhook_id)
    again = await ports.outbox.requeue(notice_id, who.owner)
    return again or replaced(notice, state=Sent.PENDING)


async def redeliver_dead(ports: Ports, who: Principal, webhook_id: str) -> int:
    """Send every dead letter of a webhook again; how many."""
    await _enabled(ports, who, webhook_id)
    return await ports.outbox.requeue_dead(webhook_id, who.owner)


async def _enabled(ports: Ports, who: Principal, webhook_id: str) -> None:
    webhook = await get(ports, who, webhook_id)
    if not webhook.is_enabled:
        raise Conflict("webhook_disabled", webhook=webhook_id)


def _checked(ports: Ports, draft: WebhookDraft) -> WebhookDraft:
    ports.poster.check(draft.url)
    return replaced(draft, kinds=webhooks.checked_kinds(draft.kinds))


def _found(webhook: Webhook | None, webhook_id: str) -> Webhook:
    if webhook is None:
        raise NotFound("webhook_not_found", webhook=webhook_id)
    return webhook
