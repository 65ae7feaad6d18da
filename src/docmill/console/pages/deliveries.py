"""What external workers reported and what we answered; what we told others and how they answered."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.responses import Response

from docmill.console.pages.tasks import address
from docmill.console.visit import Form, Visit
from docmill.core.errors import Conflict, DocmillError, Invalid, NotFound
from docmill.core.task import Attempt
from docmill.core.webhooks import KINDS, Notice, Sent, Try, Webhook, WebhookDraft
from docmill.ports import Delivery
from docmill.work import jobs, webhooks

if TYPE_CHECKING:
    from docmill.console.app import Console

PAGE = 30
SENT_PAGE = 20
CALLBACKS = 20


@dataclass(frozen=True, slots=True)
class Reported:
    job: Attempt
    callbacks: list[Delivery]


@dataclass(frozen=True, slots=True)
class Told:
    """A message to a webhook, and every try to deliver it."""

    notice: Notice
    tries: list[Try]


@dataclass(frozen=True, slots=True)
class Fresh:
    """What the answer to a form shows beside the page."""

    webhook: Webhook | None = None
    secret: str = ""
    error: DocmillError | None = None
    draft: WebhookDraft = field(default_factory=lambda: WebhookDraft(""))


async def show(console: Console, visit: Visit) -> Response:
    return await _show(console, visit, Fresh())


async def add(console: Console, visit: Visit, form: Form) -> Response:
    """The secret is in this one answer, and nowhere else."""
    draft = WebhookDraft(
        form.get("url").strip(), form.get("description").strip()[:1024], tuple(form.all("event")), enabled=True
    )
    try:
        webhook, secret = await webhooks.add(visit.ports, visit.who, draft)
    except (Invalid, Conflict) as error:
        return await _show(console, visit, Fresh(error=error, draft=draft), error.status)
    return await _show(console, visit, Fresh(webhook, secret))


async def rotate(console: Console, visit: Visit, _: Form) -> Response:
    return await _show(console, visit, Fresh(*await webhooks.rotate(visit.ports, visit.who, _webhook(visit))))


async def switch(console: Console, visit: Visit, form: Form) -> Response:
    enabled = form.get("enabled") == "1"
    await webhooks.switch(visit.ports, visit.who, _webhook(visit), enabled=enabled)
    return console.redirect(visit, f"/deliveries?said={'enabled' if enabled else 'disabled'}")


async def remove(console: Console, visit: Visit, form: Form) -> Response:
    _ = visit.words
    if not form.is_confirmed:
        webhook = await webhooks.get(visit.ports, visit.who, _webhook(visit))
        return console.confirm(
            visit,
            form,
            title=_("Delete the webhook %(url)s?", url=webhook.url),
            losses=[
                _("Its signing secret and its delivery history are deleted and cannot be restored."),
                _("Messages that have not been delivered yet will not be sent."),
            ],
            button=_("Delete"),
            back="/deliveries",
        )
    await webhooks.remove(visit.ports, visit.who, _webhook(visit))
    return console.redirect(visit, "/deliveries?said=removed")


async def test(console: Console, visit: Visit, _: Form) -> Response:
    notice, _tries = await webhooks.test(visit.ports, visit.who, _webhook(visit))
    return console.redirect(visit, f"/deliveries?said={'arrived' if notice.state is Sent.DELIVERED else 'lost'}#sent")


async def redeliver(console: Console, visit: Visit, form: Form) -> Response:
    notice_id: int = visit.request.path_params["notice_id"]
    if notice_id >= 2**63:
        raise NotFound("webhook_delivery_not_found", delivery=notice_id)
    notice = await webhooks.redeliver(visit.ports, visit.who, notice_id)
    if form.get("back") == "task" and notice.task_id:
        return console.redirect(visit, address(notice.task_id, "again"))
    return console.redirect(visit, "/deliveries?said=again#sent")


async def redeliver_dead(console: Console, visit: Visit, _: Form) -> Response:
    await webhooks.redeliver_dead(visit.ports, visit.who, _webhook(visit))
    return console.redirect(visit, "/deliveries?said=again#sent")


async def _show(console: Console, visit: Visit, fresh: Fresh, status: int = 200) -> Response:
    ports, who = visit.ports, visit.who
    listing = await jobs.page(ports, who, before_ms=visit.number("before") or None, limit=PAGE)
    found = [one.attempt for one in listing.jobs]
    reported = [Reported(one, await ports.ledger.deliveries(one.id, limit=CALLBACKS)) for one in found]
    state = None
    with suppress(ValueError):
        state = Sent(visit.query("state"))
    notices, following = await webhooks.deliveries(
        ports, who, state=state, task_id=visit.number("task"), before=visit.number("sent") or None, limit=SENT_PAGE
    )
    hooks = await webhooks.listed(ports, who)
    return console.render(
        visit,
        "deliveries.html",
        status,
        page="deliveries",
        reported=reported,
        older=found[-1].started_ms if len(found) == PAGE else None,
        webhooks=hooks,
        addresses={one.id: one.url for one in hooks},
        told=[Told(one, await ports.outbox.tries(one.id, who.owner)) for one in notices],
        older_sent=following,
        state=state,
        task_id=visit.number("task"),
        kinds=KINDS,
        fresh=fresh,
        said=visit.query("said"),
    )


def _webhook(visit: Visit) -> str:
    webhook_id: str = visit.request.path_params["webhook_id"]
    if "\0" in webhook_id:
        raise NotFound("webhook_not_found", webhook="")
    return webhook_id
