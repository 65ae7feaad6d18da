"""Webhooks: who shall hear of the ends of tasks, and what they were sent."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from docmill.core.face import iso
from docmill.core.webhooks import KINDS, Notice, Sent, Try, Webhook, WebhookDraft
from docmill.http.bound import Bound
from docmill.http.caller import Caller
from docmill.http.errors import problems
from docmill.http.strict import StrictModel
from docmill.http.uploads import MAX_ROW_ID
from docmill.http.wire import Json
from docmill.work import webhooks

router = APIRouter(prefix="/api/v1/webhooks", tags=["webhooks"], responses=problems(403, 404, 409, 429))

WebhookId = Annotated[str, Path(pattern="^wh_[0-9a-f]{32}$")]
DeliveryId = Annotated[int, Path(ge=1, le=MAX_ROW_ID)]
MAX_OVERLAP_HOURS = 24 * 7


class WebhookIn(StrictModel):
    url: str = Field(min_length=1, max_length=2048, description="Where messages are posted to; http or https")
    description: str = Field("", max_length=1024)
    events: list[str] = Field(
        default_factory=list, max_length=16, description=f"{', '.join(KINDS)}; left out or empty: all"
    )
    enabled: bool = True

    def draft(self) -> WebhookDraft:
        return WebhookDraft(self.url, self.description, tuple(self.events), self.enabled)


class WebhookOut(BaseModel):
    id: str
    url: str
    description: str
    events: list[str]
    enabled: bool
    disabled_at: datetime | None
    disabled_code: str | None = Field(description="Why docmill itself disabled it, such as webhook_gone")
    secrets: int = Field(description="Secrets with which messages are signed: two while they are being rotated")
    created_at: datetime
    updated_at: datetime


class WebhookMade(WebhookOut):
    secret: str = Field(description="Verifies the signatures. It is shown this once.")


class WebhookList(BaseModel):
    webhooks: list[WebhookOut]
    total: int


class Rotation(StrictModel):
    overlap_hours: float = Field(
        webhooks.OVERLAP_HOURS,
        ge=0,
        le=MAX_OVERLAP_HOURS,
        description="How long messages are signed with the old secret, too; 0: it is revoked at once",
    )


class DeliveryOut(BaseModel):
    id: int
    message_id: str = Field(description="The header webhook-id: the same however often the message is sent")
    webhook_id: str
    event: str
    task_id: int | None
    state: Literal["pending", "delivered", "dead"]
    tries: int
    status: int | None = Field(description="Of the last answer")
    error_code: str | None = Field(description="Why the last try failed")
    next_try_at: datetime | None
    created_at: datetime
    ended_at: datetime | None


class TryOut(BaseModel):
    number: int
    at: datetime
    status: int | None
    error_code: str | None
    error: str | None
    ms: int


class DeliveryWhole(DeliveryOut):
    payload: str = Field(description="The body, byte for byte")
    attempts: list[TryOut]


class DeliveryList(BaseModel):
    deliveries: list[DeliveryOut]
    next_cursor: int | None = Field(description="Give it as ?cursor= to go on.")


class Redelivered(BaseModel):
    redelivered: int


@router.get("", response_model=WebhookList, summary="The caller's webhooks")
async def list_webhooks(who: Caller, ports: Bound) -> Json:
    """The webhooks of the caller."""
    found = await webhooks.listed(ports, who)
    return Json({"webhooks": [webhook_json(one) for one in found], "total": len(found)})


@router.post("", status_code=201, response_model=WebhookMade, summary="Make a webhook; its secret is shown this once")
async def create_webhook(body: WebhookIn, who: Caller, ports: Bound) -> Json:
    """Create a webhook. The answer is the only one that has its secret."""
    webhook, secret = await webhooks.add(ports, who, body.draft())
    return Json(webhook_json(webhook) | {"secret": secret}, 201)


@router.get("/deliveries", response_model=DeliveryList, summary="What was sent, newest first")
async def list_webhook_deliveries(
    who: Caller,
    ports: Bound,
    webhook_id: Annotated[str | None, Query(pattern="^wh_[0-9a-f]{32}$")] = None,
    state: Sent | None = None,
    task_id: Annotated[int | None, Query(ge=1, le=MAX_ROW_ID)] = None,
    cursor: Annotated[int | None, Query(ge=1, le=MAX_ROW_ID)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
) -> Json:
    """Messages to the webhooks of the caller, the newest first, a page at a time."""
    found, following = await webhooks.deliveries(
        ports, who, webhook_id=webhook_id, state=state, task_id=task_id, before=cursor, limit=limit
    )
    return Json({"deliveries": [delivery_json(one) for one in found], "next_cursor": following})


@router.get("/deliveries/{delivery_id}", response_model=DeliveryWhole, summary="A delivery with its attempts")
async def get_webhook_delivery(delivery_id: DeliveryId, who: Caller, ports: Bound) -> Json:
    """A message with its body and every attempt to deliver it."""
    return Json(whole_json(*await webhooks.delivery(ports, who, delivery_id)))


@router.post(
    "/deliveries/{delivery_id}/redeliver",
    status_code=202,
    response_model=DeliveryOut,
    summary="Send a message again, under its old id",
)
async def redeliver_message(delivery_id: DeliveryId, who: Caller, ports: Bound) -> Json:
    """Send a message again. Its id stays the same, so that a receiver can tell."""
    return Json(delivery_json(await webhooks.redeliver(ports, who, delivery_id)), 202)


@router.get("/{webhook_id}", response_model=WebhookOut, summary="A webhook")
async def get_webhook(webhook_id: WebhookId, who: Caller, ports: Bound) -> Json:
    """A webhook, without its secret."""
    return Json(webhook_json(await webhooks.get(ports, who, webhook_id)))


@router.put("/{webhook_id}", response_model=WebhookOut, summary="Change a webhook; its secret stays")
async def replace_webhook(webhook_id: WebhookId, body: WebhookIn, who: Caller, ports: Bound) -> Json:
    """Change the address, events or state of a webhook. Its secret stays."""
    return Json(webhook_json(await webhooks.replace(ports, who, webhook_id, body.draft())))


@router.delete("/{webhook_id}", status_code=204, summary="Delete a webhook with its deliveries")
async def delete_webhook(webhook_id: WebhookId, who: Caller, ports: Bound) -> None:
    """Delete a webhook with its messages."""
    await webhooks.remove(ports, who, webhook_id)


@router.post("/{webhook_id}/rotate", response_model=WebhookMade, summary="A new secret; it is shown this once")
async def rotate_webhook_secret(webhook_id: WebhookId, who: Caller, ports: Bound, body: Rotation | None = None) -> Json:
    """Create a new secret. For the overlap messages are signed with the old one, too."""
    hours = (body or Rotation.model_validate({})).overlap_hours
    webhook, secret = await webhooks.rotate(ports, who, webhook_id, overlap_hours=hours)
    return Json(webhook_json(webhook) | {"secret": secret})


@router.post("/{webhook_id}/test", response_model=DeliveryWhole, summary="Send a test message now, once")
async def send_test_message(webhook_id: WebhookId, who: Caller, ports: Bound) -> Json:
    """Send a test message at once, and answer with what became of it."""
    return Json(whole_json(*await webhooks.test(ports, who, webhook_id)))


@router.post("/{webhook_id}/redeliver", response_model=Redelivered, summary="Send all dead letters again")
async def redeliver_dead_messages(webhook_id: WebhookId, who: Caller, ports: Bound) -> Json:
    """Send every message again that was given up."""
    return Json({"redelivered": await webhooks.redeliver_dead(ports, who, webhook_id)})


def webhook_json(webhook: Webhook) -> dict[str, Any]:
    return {
        "id": webhook.id,
        "url": webhook.url,
        "description": webhook.description,
        "events": webhook.kinds,
        "enabled": webhook.is_enabled,
        "disabled_at": iso(webhook.disabled_ms) if webhook.disabled_ms else None,
        "disabled_code": webhook.disabled_code,
        "secrets": len(webhook.secrets),
        "created_at": iso(webhook.created_ms),
        "updated_at": iso(webhook.updated_ms),
    }


def delivery_json(notice: Notice) -> dict[str, Any]:
    return {
        "id": notice.id,
        "message_id": notice.message_id,
        "webhook_id": notice.webhook_id,
        "event": notice.kind,
        "task_id": notice.task_id,
        "state": notice.state.value,
        "tries": notice.tries,
        "status": notice.status,
        "error_code": notice.code,
        "next_try_at": iso(notice.due_ms) if notice.state is Sent.PENDING else None,
        "created_at": iso(notice.created_ms),
        "ended_at": iso(notice.ended_ms) if notice.ended_ms else None,
    }


def whole_json(notice: Notice, tries: list[Try]) -> dict[str, Any]:
    attempts = [
        {
            "number": one.number,
            "at": iso(one.at_ms),
            "status": one.status,
            "error_code": one.code,
            "error": one.why,
            "ms": one.took_ms,
        }
        for one in tries
    ]
    return delivery_json(notice) | {"payload": notice.payload, "attempts": attempts}
