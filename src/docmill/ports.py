"""What docmill needs of the outside world. A port promises behaviour, not technology.

Adapters implement these Protocols; `compose` binds them; one conformance suite runs over every adapter of a port.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from docmill.contracts import Asset, NormalizedDocument
from docmill.core.access import Owner, Principal
from docmill.core.captions import Caption
from docmill.core.machine import Change, Verdict
from docmill.core.moving import Record, RuleRecord, TableRecord, TaskRecord
from docmill.core.parsed import Parsed
from docmill.core.reports import Progress
from docmill.core.retention import Aged, Estate, Retention, Tombstone
from docmill.core.routing import Reach
from docmill.core.rules import Draft, Rule
from docmill.core.task import Attempt, LoggedEvent, Task, Wishes
from docmill.core.turns import Lane, Waiting
from docmill.core.twin import Twin
from docmill.core.webhooks import Answer, Message, Notice, Outcome, Sent, Try, Webhook, WebhookDraft


@dataclass(frozen=True, slots=True)
class Work:
    """One attempt at `parse`, as an engine sees it."""

    task_id: int
    attempt_id: UUID
    source: Path
    """The document's bytes. Only to be read; the file's name means nothing."""
    filename: str
    """The name that the user gave: a hint, never a path."""
    folder: Path
    """An empty folder of this attempt. Figures go to `folder/assets/<name>`."""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deferred:
    """The engine handed the work to an external worker, which reports through a callback."""

    provider_task_id: str | None = None


PageReport = Callable[[int, int | None], None]
"""Called with (pages done, pages in all or None). Cheap, and may be called often."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A job, as it is given to an external worker."""

    job_id: UUID
    task_id: int
    filename: str
    source: Path
    options: dict[str, Any]
    callback_url: str
    callback_token: str
    brief_key: str
    brief_url: str


class ExternalWorker(Protocol):
    """Somebody elsewhere who parses, and reports through callbacks."""

    name: str
    dialect: str
    timeout_s: float
    """How long it may be silent."""

    async def check(self) -> None:
        """Raises StageFailed("worker_unreachable") if it does not answer."""
        ...

    async def dispatch(self, job: Dispatch) -> str | None:
        """Start the job; what the worker calls it. Raises worker_unreachable (retryable) or worker_refused."""
        ...

    async def cancel(self, job_id: UUID, process_id: str | None) -> None:
        """Ask it to stop. Best effort: it may not know how, or not be there."""
        ...

    async def close(self) -> None: ...


class Engine(Protocol):
    """Turns bytes into pages of Markdown plus assets."""

    name: str
    version: str
    """Part of the dedupe key: another version may parse differently."""

    async def start(self, work: Work, report: PageReport) -> Parsed | Deferred:
        """Parse, or hand over. Raises DocumentError for what no retry will mend, StageFailed for the rest.

        When the awaiting task is cancelled, everything that the engine started here has ended before it returns.
        """
        ...

    async def warm(self) -> None:
        """Get ready for the first document before it comes."""
        ...

    async def close(self) -> None:
        """End every process that the engine keeps."""
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """What a language model is asked: instructions, and turns that begin with ours and then alternate."""

    system: str
    turns: tuple[str, ...]
    schema: dict[str, Any] | None
    """Of the JSON that the answer shall be; None: it shall be text."""


@dataclass(frozen=True, slots=True)
class Answered:
    text: str
    model: str
    tokens: int | None
    """In and out, as the server counted; None: it did not."""
    cut: bool = False
    """It would have said more, but had no more room."""


class Extractor(Protocol):
    """A language model. What it says is checked by whoever asks."""

    home: bool
    """It stands in the house: documents that must not leave may be shown to it."""

    @property
    def model(self) -> str: ...

    async def answer(self, question: Question) -> Answered:
        """Raises StageFailed: llm_rate_limit and llm_unreachable (both worth another try later), llm_refused."""
        ...

    async def offered(self) -> Sequence[str]:
        """The models that its server has, as far as it tells. Raises like `answer`."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Picture:
    """An image and what stands around it, each at most 512 bytes."""

    data: bytes
    media_type: str
    before: str = ""
    after: str = ""
    ocr_text: str = ""


class Captioner(Protocol):
    """A vision model."""

    home: bool

    @property
    def model(self) -> str: ...

    async def caption(self, picture: Picture) -> Caption:
        """Raises like an Extractor, and `llm_answer_invalid`."""
        ...

    async def offered(self) -> Sequence[str]: ...

    async def close(self) -> None: ...


class Renderer(Protocol):
    """Shows the pages of a document as they look."""

    async def draw(self, source: Path, page: int, *, width: int) -> bytes:
        """Page *page*, counted from 0, as PNG of this width. NotFound: `page_not_found`, `page_images_unavailable`."""
        ...


@runtime_checkable
class ProviderEngine(Engine, Protocol):
    """An engine over the network: it can say who it is, and how much it takes."""

    media_types: frozenset[str]
    """What it can read."""

    async def describe(self) -> str:
        """Ask it who it is, each time anew. Raises like `start`."""
        ...

    async def reach(self) -> Reach:
        """How much it takes in one go. Raises like `start`."""
        ...


@dataclass(frozen=True, slots=True)
class NewTask:
    """What `Ledger.open` needs. A *fault* makes the task failed from the start, visible and retryable."""

    tenant: str
    owner: str
    project_id: int
    filename: str
    source_key: str
    rule_id: int
    wishes: Wishes
    source_size: int | None = None
    source_sha256: str | None = None
    upload_fault: str | None = None


@dataclass(frozen=True, slots=True)
class Once:
    """An Idempotency-Key with the fingerprint of the request that carried it.

    A fingerprint may have a second part after a colon, of what is not known of every request: the bytes of a file that
    could not be stored. Where only one of two has it, the first parts decide.
    """

    key: str
    fingerprint: str

    def is_same(self, seen: str) -> bool:
        ours = self.fingerprint
        return seen == ours or seen.startswith(f"{ours}:") or ours.startswith(f"{seen}:")


@dataclass(frozen=True, slots=True)
class Filter:
    """Which tasks a list shows, newest first. *before*: the last id of the page before."""

    who: Owner
    project_id: int | None = None
    status: str | None = None
    """As on the wire: `mineru_parsing`, not `running`."""
    limit: int = 50
    offset: int = 0
    before: int | None = None


Face = Sequence[Any]
"""A task's id, and its face (`core.face`) as encoded JSON. A bare row of the database: lists are read often."""


@dataclass(frozen=True, slots=True)
class Faces:
    faces: Sequence[Face]
    total: int


@dataclass(frozen=True, slots=True)
class Listing:
    """A slice of a list, and how many rows there are in all."""

    tasks: Sequence[Task]
    total: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """A callback as it was received: what it said, what we answered, and why."""

    kind: str
    status: int
    reason: str | None
    body_hash: str
    size: int
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Heard:
    """Progress of a job, from somebody whose token has this hash."""

    task_id: int
    job_id: UUID
    token_hash: str
    progress: Progress


Transition = Callable[[Task, Attempt | None], Change]
"""A transition with everything bound but the task and its current attempt."""


class Ledger(Protocol):
    """The only truth. Every write is one transaction, and answers after its commit."""

    async def open(self, new: NewTask, *, attempt_id: UUID, once: Once | None = None) -> tuple[Task, bool]:
        """Write task, attempt and event. False: *once* was seen before, and this is the task of then."""
        ...

    async def decide(
        self, task_id: int, rule: Transition, *, attempt_id: UUID | None = None, who: Owner | None = None
    ) -> Change:
        """Load, let *rule* decide, write what it says, all in one transaction.

        With *attempt_id* the rule sees that attempt, else the current one. A foreign or missing task: NotFound.
        """
        ...

    async def progress(self, reports: Sequence[Heard]) -> list[Verdict | None]:
        """Write the progress of many jobs at once: APPLIED, or why a report changed nothing. None: no such job.

        CONFLICT: the job has ended by its own report; SUPERSEDED: it was dropped; REPLACED: another token holds now.
        """
        ...

    async def claim(self, attempt_id: UUID, *, worker: str, lease_ms: int) -> tuple[Task, Attempt] | None:
        """Take a queued attempt that is due. None: somebody else has it, or it is no longer wanted."""
        ...

    async def beat(self, attempt_ids: Sequence[UUID], *, worker: str, lease_ms: int) -> set[UUID]:
        """Extend the leases; the ids that are still ours. What is missing from the answer must stop."""
        ...

    async def get(self, task_id: int, who: Owner | None = None) -> Task | None: ...

    async def find(self, attempt_id: UUID) -> tuple[Task, Attempt] | None: ...

    async def batch(self, task_ids: Sequence[int], who: Owner) -> list[Task]:
        """In the order of the ids; foreign and unknown ones are left out."""
        ...

    async def page(self, where: Filter) -> Listing: ...

    async def faces(self, where: Filter) -> Faces:
        """The same page, each task as the JSON text that clients get."""
        ...

    async def events(
        self, task_id: int, *, after: int = 0, limit: int = 500, who: Owner | None = None
    ) -> list[LoggedEvent]: ...

    async def attempts(self, task_id: int) -> list[Attempt]: ...

    async def due(self, *, limit: int) -> list[tuple[Task, Attempt]]:
        """Queued attempts whose time has come, in the order of `core.turns`: what the queue may have forgotten."""
        ...

    async def lapsed(self, *, limit: int) -> list[tuple[Attempt, int]]:
        """Running attempts whose lease ran out, handed-over ones past their deadline; and for how many ms."""
        ...

    async def mend_times(self, *, lease_ms: int) -> int:
        """Let leases, deadlines and delays that lie impossibly far ahead count from now: the clock was put back."""
        ...

    async def held(self, *, limit: int, owner: str | None = None) -> list[Attempt]:
        """Running attempts of this worker; without one, all: for the one process that knows it is alone."""
        ...

    async def leavings(self, *, older_ms: int, limit: int) -> list[tuple[Task, UUID]]:
        """Attempts that came to nothing, longer ago than *older_ms*, and whose objects nobody has collected yet."""
        ...

    async def collected(self, attempt_id: UUID) -> None:
        """Nothing of it is left in the store."""
        ...

    async def parse_of(self, tenant: str, fingerprint: str) -> tuple[str, str] | None:
        """Markdown key and parsed key of an equal parse."""
        ...

    async def record_delivery(self, attempt: Attempt, delivery: Delivery) -> None:
        """Keep a line about a callback, accepted or refused."""
        ...

    async def deliveries(self, attempt_id: UUID, *, limit: int) -> list[Delivery]:
        """Of a job, newest first."""
        ...

    async def jobs(self, who: Owner, *, before_ms: int, limit: int) -> list[Attempt]:
        """Attempts that were handed to external workers, newest first."""
        ...

    async def ping(self) -> None:
        """Raises if the database does not answer."""
        ...

    async def counts(self) -> dict[str, int]:
        """Tasks by status, of everybody: for metrics."""
        ...


class Tombstones(Protocol):
    """Tasks that were kept long enough, and what is left of them."""

    async def aged(self, *, after: int, limit: int) -> list[Aged]:
        """The next tasks after this id, in the order of their ids, final or not."""
        ...

    async def bury(self, task_id: int, retention: Retention) -> bool:
        """Put a tombstone in the place of a task whose time is over, in one transaction.

        Attempts, events, callbacks, its parse kept for reuse, its idempotency key and what webhooks said go with it.
        False: it is no longer there, or its time is not over.
        """
        ...

    async def find(self, task_id: int, who: Owner) -> Tombstone | None: ...

    async def full(self, *, after: int, limit: int) -> list[Estate]:
        """Tombstones whose objects have yet to be removed, of the next tasks after this id."""
        ...

    async def emptied(self, task_id: int) -> None:
        """Nothing of it is left in the store that has to go."""
        ...

    async def is_parse_used(self, parsed_key: str) -> bool:
        """Whether the task that made the parse is there, or any other that uses it."""
        ...

    async def is_source_used(self, tenant: str, key: str) -> bool:
        """Whether any task was made from this file."""
        ...


class Queue(Protocol):
    """Rings workers. The ledger remembers; the queue may forget."""

    async def put(self, waiting: Waiting, *, delay_ms: int = 0) -> None:
        """Deliver at least once, soon after *delay_ms*. Putting the same id twice is harmless."""
        ...

    async def get(self, lane: Lane) -> UUID:
        """Wait for the next attempt id of a lane, in the order of `core.turns`."""
        ...


class Signals(Protocol):
    """Says that a task changed, to whoever waits. A signal may get lost: waiters look again by themselves."""

    def changed(self, task_id: int) -> None: ...

    def subscribe(self, task_id: int | None = None) -> Subscription:
        """Signals of one task, or with None of all."""
        ...


class RunState(Protocol):
    """The hot state of tasks where every process sees it. It may forget, but never says what was not committed."""

    def keep(self, task: Task) -> None:
        """Remember a task as it was committed. Returns at once; something older never replaces something newer."""
        ...

    async def newest(self, tasks: Sequence[Task]) -> list[Task]:
        """Each of these tasks as read from the ledger, or a newer state of it."""
        ...

    async def newest_faces(self, faces: Sequence[Face]) -> Sequence[Face]:
        """The same for a list: newer progress in the same status, so that a filter still holds."""
        ...

    async def is_there(self) -> bool:
        """Whether anything can be kept right now."""
        ...


class Subscription(Protocol):
    def __enter__(self) -> Subscription: ...

    def __exit__(self, *exc: object) -> None: ...

    async def wait(self, seconds: float) -> int | None:
        """The id of a task that changed since the last call, or None after *seconds*."""
        ...


@dataclass(frozen=True, slots=True)
class Stored:
    """An object in the store. `sha256` is empty where the store does not know it."""

    key: str
    size: int
    sha256: str
    etag: str


class Store(Protocol):
    """Keeps bytes under keys. An object is visible whole or not at all, and never changes."""

    bucket: str

    async def put(self, key: str, chunks: AsyncIterable[bytes], *, limit: int | None = None) -> Stored:
        """Store a stream, hashed on the way. Beyond *limit*: TooLarge, and nothing is left behind."""
        ...

    async def put_bytes(self, key: str, data: bytes) -> Stored: ...

    async def put_file(self, key: str, path: Path) -> Stored: ...

    async def stat(self, key: str) -> Stored | None: ...

    async def read(self, key: str, *, limit: int | None = None) -> bytes:
        """The whole object. A missing one: NotFound("object_not_found")."""
        ...

    def stream(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]: ...

    async def fetch(self, key: str, path: Path) -> Stored:
        """Copy the object into a local file, hashed on the way."""
        ...

    async def delete(self, key: str) -> bool: ...

    def list(self, prefix: str) -> AsyncIterator[tuple[str, int, float]]:
        """Keys below *prefix* with size and time of writing (seconds since 1970)."""
        ...

    async def free_bytes(self) -> int | None: ...

    async def close(self) -> None: ...


class RuleBook(Protocol):
    """The rules of every user, and the global default that all see."""

    async def default(self) -> Rule:
        """The one global default rule; created on the first call, once, however many call."""
        ...

    async def get(self, rule_id: int, who: Owner) -> Rule | None: ...

    async def list(self, who: Owner, *, limit: int, offset: int) -> tuple[list[Rule], int]: ...

    async def add(self, draft: Draft, who: Owner) -> Rule: ...

    async def replace(self, rule_id: int, draft: Draft, who: Owner) -> Rule | None: ...

    async def remove(self, rule_id: int, who: Owner) -> bool: ...


@dataclass(frozen=True, slots=True)
class Table:
    """A JSON value of a project."""

    id: int
    project_id: int
    name: str
    data: Any
    created_ms: int
    updated_ms: int


Edit = Callable[[Any, Callable[[str, str], int | None]], tuple[Any, str | None, str | None, int | None]]
"""Takes the table's value and `who_mounted(pointer, entry) -> task id`; gives the new value and, for a mount,
pointer, entry and task id to remember."""


class Tables(Protocol):
    async def add(self, who: Owner, project_id: int, name: str, data: Any) -> Table: ...

    async def get(self, table_id: int, who: Owner) -> Table | None: ...

    async def list(self, who: Owner, project_id: int) -> list[Table]:
        """Oldest first, without their data."""
        ...

    async def replace(self, table_id: int, who: Owner, *, name: str | None, data: Any) -> Table | None: ...

    async def remove(self, table_id: int, who: Owner) -> bool: ...

    async def edit(self, table_id: int, who: Owner, edit: Edit) -> Table | None:
        """Read, change and write in one transaction. None: no such table."""
        ...


class Repository(Protocol):
    """Documents and assets of every tenant. Key: tenant, document, version; latest is the newest `created_at`."""

    async def put(self, document: NormalizedDocument) -> bool:
        """Store document and assets. True: it is new; False: the same was there. Other content: Conflict."""
        ...

    async def get(self, tenant: str, document_id: UUID, version: str | None = None) -> NormalizedDocument | None:
        """A version, or the latest. Deleted ones are not found."""
        ...

    async def versions(self, tenant: str, document_id: UUID) -> list[NormalizedDocument]: ...

    async def list(
        self, tenant: str, *, collection_id: UUID | None, limit: int, after: str | None
    ) -> tuple[list[NormalizedDocument], str | None]:
        """A page and the cursor of the next, or None. A foreign cursor: BadRequest("cursor_invalid")."""
        ...

    async def delete(
        self, tenant: str, document_id: UUID, *, version: str | None = None, hard: bool = False
    ) -> bool: ...

    async def uses(self, tenant: str, document_id: UUID) -> set[str]:
        """The URIs of all blobs that the document's versions and assets still name, hidden ones included."""
        ...

    async def used(self, tenant: str, uris: Sequence[str]) -> set[str]:
        """Those of these URIs (of our own store) that any document or asset names, hidden ones included."""
        ...

    async def put_asset(self, asset: Asset) -> bool:
        """Add the asset to the latest version of its document, or replace it there. True: it is new.

        No such document: Conflict("document_missing"); an id of another document's: Conflict("asset_conflict").
        """
        ...

    async def get_asset(self, tenant: str, asset_id: UUID) -> Asset | None: ...

    async def list_assets(
        self, tenant: str, document_id: UUID, *, limit: int, after: str | None
    ) -> tuple[Sequence[Asset], str | None]: ...

    async def delete_asset(self, tenant: str, asset_id: UUID, *, hard: bool = False) -> bool: ...


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its secret."""

    id: str
    name: str
    principal: Principal
    created_ms: int
    used_ms: int | None
    expires_ms: int | None
    revoked_ms: int | None


class KeyRing(Protocol):
    """API keys. Only the SHA-256 of a secret is stored."""

    async def add(self, name: str, principal: Principal, *, digest: str, expires_ms: int | None = None) -> ApiKey: ...

    async def find(self, digest: str) -> Principal | None:
        """Whose key it is; None if unknown, expired or revoked (judged by the database's clock)."""
        ...

    async def list(self) -> list[ApiKey]: ...

    async def revoke(self, key_id: str) -> bool: ...

    async def any_active(self) -> bool: ...


Place = str
"""The address of a folder or file in a library: a path on a disk, or `onedrive:/...`, `objects:/...`."""


@dataclass(frozen=True, slots=True)
class Written:
    """A twin as it lies there now."""

    path: Place
    """The main Markdown file."""
    replaced: bool
    """False: the same twin was there already."""
    kept: Sequence[str] = ()
    """Files that people had added to the twin's folder."""


class Library(Protocol):
    """Where originals and their twins lie."""

    def folder(self, who: Owner, project_id: int, task_id: int, wanted: str) -> Place:
        """The folder of a task's twin. One outside the library: Invalid("twin_target_invalid")."""
        ...

    async def keep_original(self, folder: Place, name: str, source: Path) -> None:
        """Lay the original beside its twin, unless it is there. Another file of that name: twin_target_invalid."""
        ...

    async def write(self, folder: Place, twin: Twin, assets: Mapping[str, Path], *, force: bool = False) -> Written:
        """Write the twin; a reader sees the old or the new one. Edited by a person: Conflict("twin_drift")."""
        ...

    async def close(self) -> None: ...


class Limiter(Protocol):
    """Counts what happens in a window of time. Shared by all processes of a deployment, where there are several."""

    async def hit(self, bucket: str, *, limit: int, window_s: float) -> float | None:
        """Count one more. None: within the limit; else the seconds until there is room again."""
        ...


class Links(Protocol):
    """Signed, expiring addresses of objects, for workers without access to the store."""

    def download(self, tenant: str, key: str, *, seconds: float) -> str: ...

    def upload(self, tenant: str, key: str, *, seconds: float) -> str: ...

    def read(self, token: str, *, method: str) -> tuple[str, str]:
        """Tenant and key of a link; Forbidden("link_invalid")."""
        ...


@dataclass(frozen=True, slots=True)
class Fetched:
    size: int
    sha256: str
    content_type: str


class Fetcher(Protocol):
    """Fetches from addresses that somebody else named: only where it is safe to."""

    async def fetch(self, url: str, path: Path, *, limit_bytes: int, seconds: float) -> Fetched: ...


class Webhooks(Protocol):
    """Who wants to hear of the ends of tasks."""

    async def add(self, webhook_id: str, draft: WebhookDraft, secret: str, who: Owner, *, most: int) -> Webhook:
        """Conflict("webhook_limit") if the owner has *most* already."""
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


class Inventory(Protocol):
    """Everything in the database, of all tenants, as records that another deployment can take."""

    async def identity(self) -> str:
        """Who this deployment is: the same answer for as long as its database lives."""
        ...

    def records(self, kind: str) -> AsyncIterator[Record]:
        """In a stable order; of tasks those that have ended. Each record is consistent in itself."""
        ...

    async def unfinished(self) -> set[int]:
        """Tasks that have not ended."""
        ...

    async def reserve(self, highest: Mapping[str, int], *, keep: bool = True) -> dict[str, int]:
        """By kind: new things get numbers above this one from now on. The last numbers that were given out before.

        Without *keep* nothing is written.
        """
        ...

    async def number(
        self, origin: str, record: RuleRecord | TableRecord | TaskRecord, *, floor: int, keep: bool = True
    ) -> int | None:
        """The number that the record of *origin* has here, or gets: its own if that was never given out (the last one
        was *floor*), else a new one.

        Asked again, the answer is the same. Without *keep* nothing is written, and None stands for a new one.
        """
        ...

    def check(self, record: Record) -> None:
        """Invalid("backup_damaged") for a record that could not be read again once it was taken."""
        ...

    async def has(self, record: Record) -> bool:
        """Conflict("document_exists") if it is here with other content."""
        ...

    async def take(self, record: Record) -> bool:
        """Write a record whole, or leave what is there as it is: False. Raises like `has`, and Conflict if one of its
        parts belongs to something else."""
        ...


class Poster(Protocol):
    """Posts to addresses that somebody else named: only where it is safe to, and following no redirect."""

    def check(self, url: str) -> None:
        """Invalid("address_refused") for an address to which nothing will ever be sent."""
        ...

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], *, seconds: float) -> Answer:
        """Never raises: whatever goes wrong is an answer, too."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """What the use cases must know of the settings."""

    upload_bytes: int = 2 * 1024**3
    task_timeout_s: float = 600.0
    lease_ms: int = 15_000
    beat_s: float = 5.0
    sweep_s: float = 2.0
    table_bytes: int = 16 * 1024**2
    leavings_ms: int = 24 * 3600 * 1000
    """How long the objects of an attempt that came to nothing are kept: longer than any worker may still write."""
    retention: Retention = field(default_factory=Retention)
    stay_home: bool = False
    """No document leaves the house."""
    llm_tokens: int = 1_000_000
    """That one extraction may use."""
    llm_seconds: float = 300.0
    caption_confidence: float = 0.5
    """A caption of which the model is less sure is not taken."""
    caption_seconds: float = 120.0
    """For all images of a document."""
    captions: int = 100
    """Images of a document that a model looks at."""
    webhook_s: float = 20.0
    """That a receiver may take to answer."""
    webhook_window_ms: int = 3 * 24 * 3600 * 1000
    """For how long a message is sent again."""


class Tracer(Protocol):
    """Tells a collector what was done for whom, and how long it took. Facts are ids, names and codes, never content."""

    is_on: bool

    def span(self, name: str, *, parent: str = "", **facts: str | int) -> AbstractContextManager[str]:
        """What is done inside; gives the `traceparent` under which others go on. *parent* is such a one."""
        ...

    def record(self, name: str, *, parent: str, began_ms: int, ended_ms: int, **facts: str | int) -> None:
        """Something that is over, like a wait."""
        ...

    async def close(self) -> None: ...


class NoTracer:
    is_on = False

    def span(self, name: str, *, parent: str = "", **facts: str | int) -> AbstractContextManager[str]:  # noqa: ARG002
        return nullcontext(parent)

    def record(self, name: str, *, parent: str, began_ms: int, ended_ms: int, **facts: str | int) -> None:
        pass

    async def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything that the use cases need, bound once by `compose`."""

    ledger: Ledger
    tombstones: Tombstones
    queue: Queue
    signals: Signals
    store: Store
    rules: RuleBook
    tables: Tables
    documents: Repository
    keys: KeyRing
    webhooks: Webhooks
    outbox: Outbox
    poster: Poster
    engines: dict[str, Engine]
    renderer: Renderer
    library: Library
    scratch: Path
    workers: dict[str, ExternalWorker] = field(default_factory=dict)
    app_url: str = ""
    """Where workers reach this service."""
    links: Links | None = None
    fetcher: Fetcher | None = None
    limiter: Limiter | None = None
    runstate: RunState | None = None
    extractor: Extractor | None = None
    captioner: Captioner | None = None
    tracer: Tracer = field(default_factory=NoTracer)
    limits: Limits = field(default_factory=Limits)
