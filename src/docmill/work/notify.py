"""Sends what waits in the outbox. Every worker does; a notice is claimed first, so that one of them sends it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress

import structlog

from docmill.core import webhooks
from docmill.core.errors import DocmillError, Unavailable
from docmill.core.webhooks import Answer, Outcome
from docmill.ports import Ports, Sending

log = structlog.get_logger(__name__)

AT_ONCE = 32
AT_ONCE_TO_ONE = 4
"""To one webhook: a slow receiver does not keep the others waiting."""
LEASE_EXTRA_S = 5.0
SETTLE_S = 0.1
"""After a sign of change, before the outbox is looked at: one look for many changes."""
KEPT_MS = 30 * 24 * 3600 * 1000
"""For how long people can look up what was sent."""
PRUNED_AT_ONCE = 1000


def lease_ms(ports: Ports) -> int:
    """Longer than any try: a claim that outlives this was its claimant's last."""
    return round((ports.limits.webhook_s + LEASE_EXTRA_S) * 1000)


async def send(ports: Ports, sending: Sending) -> Outcome:
    """One try: sign, post, write down what became of it."""
    notice, webhook = sending.notice, sending.webhook
    with ports.tracer.span("webhook", parent=await _trace_of(ports, sending), number=notice.tries):
        answer = await _post(ports, sending)
    outcome = webhooks.judge(
        answer,
        notice,
        now_ms=sending.now_ms + answer.took_ms,
        window_ms=ports.limits.webhook_window_ms,
        luck=random.uniform(-1, 1),
    )
    counted = await ports.outbox.settle(notice, answer, outcome)
    log.info(
        "webhook_tried",
        webhook=webhook.id,
        message=notice.message_id,
        delivery=notice.id,
        number=notice.tries,
        status=answer.status,
        code=answer.code,
        state=outcome.state.value if counted else "superseded",
    )
    return outcome


async def _post(ports: Ports, sending: Sending) -> Answer:
    notice, webhook = sending.notice, sending.webhook
    body = notice.payload.encode()
    try:
        signed = webhooks.headers(webhook.secrets, notice.message_id, sending.now_ms, body)
    except Unavailable as error:
        # Nothing is sent without a signature. It is tried again: the deployment's secret may be restored.
        return Answer(None, error.code, error.message)
    headers = {"Content-Type": "application/json", **signed}
    return await ports.poster.post(webhook.url, body, headers, seconds=ports.limits.webhook_s)


async def _trace_of(ports: Ports, sending: Sending) -> str:
    if not ports.tracer.is_on or sending.notice.task_id is None:
        return ""
    task = await ports.ledger.get(sending.notice.task_id)
    return task.wishes.trace if task else ""


async def prune(ports: Ports) -> int:
    """Forget what ended long ago."""
    return await ports.outbox.prune(older_ms=KEPT_MS, limit=PRUNED_AT_ONCE)


class Notifier:
    """Looks into the outbox when a task changed, when a try ended, and now and then."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._sending: dict[asyncio.Task[None], str] = {}
        self._wake = asyncio.Event()

    async def run(self) -> None:
        listening = asyncio.create_task(self._listen())
        try:
            while True:
                self._wake.clear()
                try:
                    await self.round()
                except DocmillError as error:
                    log.warning("notify_failed", code=error.code)
                except Exception:
                    log.exception("notify_fault")
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._ports.limits.sweep_s):
                        await self._wake.wait()
        finally:
            ending = [listening, *self._sending]
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    async def round(self) -> int:
        """Start to send what is due, as far as there is room; how many."""
        started = 0
        waiting = await self._ports.outbox.waiting()
        random.shuffle(waiting)  # nobody is always the last one
        busy = Counter(self._sending.values())
        for webhook_id in waiting:
            room = min(AT_ONCE - len(self._sending), AT_ONCE_TO_ONE - busy[webhook_id])
            if room <= 0:
                continue
            for sending in await self._ports.outbox.claim(webhook_id, limit=room, lease_ms=lease_ms(self._ports)):
                task = asyncio.create_task(self._send(sending))
                self._sending[task] = webhook_id
                task.add_done_callback(self._ended)
                started += 1
        return started

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._sending.pop(task, None)
        self._wake.set()

    async def _send(self, sending: Sending) -> None:
        try:
            await send(self._ports, sending)
        except asyncio.CancelledError:
            # We stop. Perhaps it arrived, perhaps not: whoever is next sends it again, under the same id.
            with suppress(DocmillError):
                await self._ports.outbox.release(sending.notice)
            raise
        except DocmillError as error:
            # The database is away: nobody knows of this try, and when its lease has run out it is made again.
            log.warning("notify_failed", code=error.code, delivery=sending.notice.id)
        except Exception:
            log.exception("notify_fault", delivery=sending.notice.id)

    async def _listen(self) -> None:
        with self._ports.signals.subscribe() as changes:
            while True:
                if await changes.wait(60) is None:
                    continue
                await asyncio.sleep(SETTLE_S)
                while await changes.wait(0) is not None:
                    pass
                self._wake.set()
