"""Webhooks: who wants to hear of a task's end, what they are told, and when it is said again.

A message follows Standard Webhooks (https://www.standardwebhooks.com): an id that stays the same however often it is
sent, the time of sending, and a signature for every secret in force. It is thin: ids and states, never content.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from hashlib import sha256
from secrets import token_bytes, token_hex
from typing import Any, Final

from docmill.core.errors import Invalid, Unavailable
from docmill.core.face import iso
from docmill.core.machine import wire_status
from docmill.core.task import Task

KINDS: Final = ("task.completed", "task.failed", "task.cancelled")
TEST: Final = "webhook.test"
PREFIX: Final = "whsec_"
MOST_SECRETS: Final = 2
"""In force at once: the new one, and while rotating the one before."""

DAY_MS: Final = 24 * 3600 * 1000
SCHEDULE_S: Final = (5, 30, 120, 600, 1_800, 3_600, 7_200, 14_400, 28_800, 43_200, 43_200, 43_200, 43_200)
"""Waits between the tries when they go on for three days; for another time they stretch or shrink with it."""
SCHEDULE_FOR_MS: Final = 3 * DAY_MS
JITTER: Final = 0.1
"""A wait is up to a tenth shorter or longer, so that what failed together does not come back together."""


@dataclass(frozen=True, slots=True)
class Secret:
    text: str
    until_ms: int | None = None
    """None: it is the current one."""


@dataclass(frozen=True, slots=True)
class WebhookDraft:
    """What people say of a webhook."""

    url: str
    description: str = ""
    kinds: tuple[str, ...] = ()
    """Of which events; none: of all."""
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Webhook:
    id: str
    url: str
    description: str
    kinds: tuple[str, ...]
    secrets: tuple[Secret, ...]
    """The newest first."""
    created_ms: int
    updated_ms: int
    disabled_ms: int | None = None
    disabled_code: str | None = None
    """Why; None: somebody wanted it."""

    @property
    def is_enabled(self) -> bool:
        return self.disabled_ms is None


class Sent(StrEnum):
    """What became of a notice."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DEAD = "dead"
    """Given up: a dead letter. It can be sent again by hand."""


@dataclass(frozen=True, slots=True)
class Message:
    """What is said. The same for every webhook that hears it."""

    id: str
    kind: str
    task_id: int | None
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Notice:
    """A message on its way to one webhook."""

    id: int
    message_id: str
    webhook_id: str
    kind: str
    task_id: int | None
    payload: str
    """JSON, the same bytes at every try."""
    state: Sent
    tries: int
    """Rises with every claim: only the latest one's outcome counts."""
    round_from: int
    """Tries before somebody had it sent again: the waits begin anew."""
    due_ms: int
    queued_ms: int
    created_ms: int
    ended_ms: int | None
    status: int | None
    """Of the last answer."""
    code: str | None
    """Why the last try failed."""


@dataclass(frozen=True, slots=True)
class Try:
    """One try to deliver a notice."""

    number: int
    status: int | None
    code: str | None
    why: str | None
    took_ms: int
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """How a receiver answered, or why it did not."""

    status: int | None
    code: str | None = None
    why: str | None = None
    retry_after_s: float | None = None
    took_ms: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What follows from an answer."""

    state: Sent
    delay_ms: int = 0
    disables: bool = False


def checked_kinds(kinds: Iterable[str]) -> tuple[str, ...]:
    """Each once, in their usual order; else Invalid `webhook_kind_unknown`."""
    wanted = set(kinds)
    for unknown in sorted(wanted - set(KINDS)):
        raise Invalid("webhook_kind_unknown", kind=unknown[:64], known=", ".join(KINDS))
    return tuple(kind for kind in KINDS if kind in wanted)


def message_of(before: Task | None, now: Task, *, message_id: str) -> Message | None:
    """What to say when a task ended; None if it did not."""
    if not now.is_final or (before is not None and before.is_final):
        return None
    kind = f"task.{now.status.value}"
    data = {
        "task_id": now.id,
        "project_id": now.project_id,
        "status": wire_status(now),
        "attempt": now.attempt,
        "document_id": str(now.document_id) if now.document_id and kind == "task.completed" else None,
        "error_code": now.fault.code if now.fault else None,
        "error_stage": now.fault.stage if now.fault else None,
    }
    return Message(message_id, kind, now.id, _said(kind, now.updated_ms, data))


def trial_message(webhook_id: str, now_ms: int, *, message_id: str) -> Message:
    """By which people see whether their receiver works."""
    return Message(message_id, TEST, None, _said(TEST, now_ms, {"webhook_id": webhook_id}))


def _said(kind: str, at_ms: int, data: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": kind, "timestamp": iso(at_ms), "data": dict(data)}


def new_message_id() -> str:
    return f"msg_{token_hex(16)}"


def new_webhook_id() -> str:
    return f"wh_{token_hex(16)}"


def new_secret() -> str:
    return PREFIX + base64.b64encode(token_bytes(32)).decode()


def rotated(secrets: Sequence[Secret], fresh: str, *, now_ms: int, overlap_ms: int) -> tuple[Secret, ...]:
    """The fresh secret, and for the overlap the one before; older ones are no longer used."""
    kept = [Secret(one.text, now_ms + overlap_ms) for one in in_force(secrets, now_ms)[:1]] if overlap_ms > 0 else []
    return (Secret(fresh), *kept)[:MOST_SECRETS]


def in_force(secrets: Sequence[Secret], now_ms: int) -> list[Secret]:
    return [one for one in secrets if one.until_ms is None or one.until_ms > now_ms]


def headers(secrets: Sequence[Secret], message_id: str, now_ms: int, body: bytes) -> dict[str, str]:
    """The three headers of Standard Webhooks, signed with every secret in force."""
    if not in_force(secrets, now_ms):
        raise Unavailable("webhook_secret_unreadable")
    seconds = now_ms // 1000
    content = f"{message_id}.{seconds}.".encode() + body
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(_signature(one.text, content) for one in in_force(secrets, now_ms)),
    }


def _signature(secret: str, content: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(PREFIX))
    return f"v1,{base64.b64encode(hmac.digest(key, content, sha256)).decode()}"


def judge(answer: Answer, notice: Notice, *, now_ms: int, window_ms: int, luck: float) -> Outcome:
    """Whether the notice arrived, is sent again, or is given up. *luck* is random, from -1 to 1."""
    if answer.status is not None and 200 <= answer.status < 300:
        return Outcome(Sent.DELIVERED)
    if answer.status == 410:
        return Outcome(Sent.DEAD, disables=notice.kind != TEST)
    if notice.kind == TEST:
        return Outcome(Sent.DEAD)
    wait = _wait_ms(notice.tries - notice.round_from, window_ms, luck)
    if wait is None:
        return Outcome(Sent.DEAD)
    if answer.retry_after_s is not None:
        # The receiver knows best; but a wait that it made up must not outlast everybody's patience.
        wait = max(wait, round(min(answer.retry_after_s * 1000, window_ms / 6)))
    if now_ms + wait > notice.queued_ms + window_ms:
        return Outcome(Sent.DEAD)
    return Outcome(Sent.PENDING, wait)


def _wait_ms(tries: int, window_ms: int, luck: float) -> int | None:
    """After so many tries; None: there were enough."""
    if tries > len(SCHEDULE_S):
        return None
    return round(SCHEDULE_S[max(tries, 1) - 1] * 1000 * window_ms / SCHEDULE_FOR_MS * (1 + JITTER * luck))


def retry_after(text: str | None, now: datetime) -> float | None:
    """Seconds, of a `Retry-After` header: a number, or a date. Nonsense is None."""
    said = (text or "").strip()
    if said.isascii() and said.isdecimal():
        return float(said[:9])
    try:
        when = parsedate_to_datetime(said)
    except (ValueError, IndexError, TypeError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max((when - now).total_seconds(), 0.0)
