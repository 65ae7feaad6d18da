"""Who is told what happened, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from docmill.core.access import Owner
from docmill.core.webhooks import Answer, Message, Notice, Outcome, Sent, Try, Webhook, WebhookDraft


class Webhooks(Protocol):
    """Who wants to hear of the ends of tasks."""

    async def add(self, webhook_id: str, draft: WebhookDraft, secret: str, who: Owner, *, most: int) -> Webhook:
        """Conflict("webhook_limit") if the owner has *most* already."""
        ...

    async def unreadable(self) -> int:
        """How many webhooks of all tenants have secrets that the deployment's secret cannot decrypt."""
        ...

    async def get(self, webhook_id: str, who: Owner) -> Webhook | None: ...

    async def list(self, who: Owner) -> list[Webhook]:
        """Oldest first."""
        ...

    async def replace(self, webhook_id: str, draft: WebhookDraft, who: Owner) -> Webhook | None:
        """What waits for one that is disabled becomes a dead letter."""
        ...

    async def rotate(self, webhook_id: str, secret: str, who: Owner, *, overlap_ms: int) -> Webhook | None:
        """The secret before stays in force for the overlap."""
        ...

    async def remove(self, webhook_id: str, who: Owner) -> bool:
        """With everything that was sent or waits to be."""
        ...


@dataclass(frozen=True, slots=True)
class Sending:
    """A notice that was claimed, where it goes, and the database's clock."""

    notice: Notice
    webhook: Webhook
    now_ms: int


@dataclass(frozen=True, slots=True)
class NoticeFilter:
    """Which notices a list shows, newest first. *before*: the last id of the page before."""

    who: Owner
    webhook_id: str | None = None
    state: Sent | None = None
    task_id: int | None = None
    before: int | None = None
    limit: int = 50


class Outbox(Protocol):
    """Messages on their way. The ledger writes them when it ends a task, in the same transaction."""

    async def add(self, message: Message, webhook_id: str, who: Owner, *, lease_ms: int) -> Sending | None:
        """Write one and claim it at once. None: no such webhook."""
        ...

    async def waiting(self) -> list[str]:
        """Webhooks for which something is due."""
        ...

    async def claim(self, webhook_id: str, *, limit: int, lease_ms: int) -> list[Sending]:
        """Take what is due. Nobody else gets it until the lease has run out."""
        ...

    async def settle(self, notice: Notice, answer: Answer, outcome: Outcome) -> bool:
        """Write what became of a try. False: somebody else has the notice by now, and nothing was written."""
        ...

    async def release(self, notice: Notice) -> None:
        """Give a claimed one back, to be sent at once."""
        ...

    async def mend_times(self) -> int:
        """Let notices that were scheduled in the future wait from now on: the clock was set back. How many."""
        ...

    async def get(self, notice_id: int, who: Owner) -> Notice | None: ...

    async def tries(self, notice_id: int, who: Owner) -> list[Try]: ...

    async def page(self, where: NoticeFilter) -> list[Notice]: ...

    async def requeue(self, notice_id: int, who: Owner) -> Notice | None:
        """Send one again that has ended, under its old message id. None: there is none that has ended."""
        ...

    async def requeue_dead(self, webhook_id: str, who: Owner) -> int:
        """The same for every dead letter of a webhook; how many."""
        ...

    async def prune(self, *, older_ms: int, limit: int) -> int:
        """Forget what ended longer ago than *older_ms*; how many."""
        ...


class Poster(Protocol):
    """Posts to addresses that somebody else named: only where it is safe to, and following no redirect."""

    def check(self, url: str) -> None:
        """Invalid("address_refused") for an address to which nothing will ever be sent."""
        ...

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], *, seconds: float) -> Answer:
        """Never raises: whatever goes wrong is an answer, too."""
        ...
