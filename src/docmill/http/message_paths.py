"""OpenAPI of what docmill sends: the messages to webhooks (Standard Webhooks)."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from docmill.core.webhooks import KINDS, TEST
from docmill.http.example_values import MESSAGE, MESSAGE_ID, WEBHOOK_ID

TaskKind = Literal["task.completed", "task.failed", "task.cancelled"]
HEADERS: Final = {
    "webhook-id": ("The id of the message, the same however often it is sent.", MESSAGE_ID),
    "webhook-timestamp": ("The time of sending, in seconds since 1970.", "1794994202"),
    "webhook-signature": (
        "`v1,` and the HMAC-SHA256 of id, time and body in Base64; one for each secret in force.",
        "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
    ),
}
SAID: Final = {
    "task.completed": "A task has ended with a result.",
    "task.failed": "A task has failed.",
    "task.cancelled": "A task was cancelled.",
}


class TaskMessageData(BaseModel):
    task_id: int
    project_id: int
    status: str
    attempt: int
    document_id: UUID | None = Field(description="The document that the task made.")
    error_code: str | None
    error_stage: str | None


class TaskMessage(BaseModel):
    """Ids and states, never content: ask for the task."""

    type: TaskKind
    timestamp: datetime
    data: TaskMessageData


class WebhookTestMessageData(BaseModel):
    webhook_id: str


class WebhookTestMessage(BaseModel):
    type: Literal["webhook.test"]
    timestamp: datetime
    data: WebhookTestMessageData


def add_messages(schema: dict[str, Any]) -> None:
    for model in (TaskMessage, WebhookTestMessage):
        one = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schema["components"]["schemas"].update({**one.pop("$defs", {}), model.__name__: one})
    ended = {"task.failed": ("failed", "document_broken", "mineru"), "task.cancelled": ("cancelled", None, None)}
    webhooks = {}
    for kind in KINDS:
        example: dict[str, Any] = {**MESSAGE, "type": kind}
        if kind in ended:
            status, code, stage = ended[kind]
            changed = {"status": status, "error_code": code, "error_stage": stage, "document_id": None}
            example["data"] = example["data"] | changed
        webhooks[kind] = {"post": _operation(kind, SAID[kind], "TaskMessage", example)}
    trial = {"type": TEST, "timestamp": MESSAGE["timestamp"], "data": {"webhook_id": WEBHOOK_ID}}
    webhooks[TEST] = {"post": _operation(TEST, "Somebody tests the webhook.", "WebhookTestMessage", trial)}
    schema["webhooks"] = webhooks


def _operation(kind: str, said: str, model: str, example: dict[str, Any]) -> dict[str, Any]:
    content = {"schema": {"$ref": f"#/components/schemas/{model}"}, "example": example}
    return {
        "tags": ["webhooks"],
        "operationId": f"on_{kind.replace('.', '_')}",
        "summary": said.rstrip("."),
        "description": f"{said} Verify the signature, answer with 2xx, and do the rest afterwards.",
        "security": [],
        "parameters": [
            {
                "name": name,
                "in": "header",
                "required": True,
                "description": text,
                "schema": {"type": "string"},
                "example": value,
            }
            for name, (text, value) in HEADERS.items()
        ],
        "requestBody": {
            "required": True,
            "description": "The message.",
            "content": {"application/json": content},
        },
        "responses": {
            "2XX": {"description": "The message was received."},
            "410": {"description": "The webhook is disabled: nothing more is sent to it."},
            "default": {"description": "The message is sent again later, with growing pauses."},
        },
    }
