"""What docmill needs of the outside world. A port promises behaviour, not technology.

Adapters implement these Protocols; `compose` binds them; one conformance suite runs over every adapter of a port.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from docmill.core.clocks import ClockWatch
from docmill.core.retention import Retention
from docmill.ports.engines import (
    Deferred,
    Dispatch,
    Engine,
    ExternalWorker,
    PageReport,
    ProviderEngine,
    Renderer,
    SandboxedEngine,
    Work,
)
from docmill.ports.ledger import (
    Delivery,
    Face,
    Faces,
    Filter,
    JobFilter,
    JobLine,
    JobListing,
    Ledger,
    Listing,
    NewTask,
    Once,
    Tombstones,
    Transition,
)
from docmill.ports.models import Answered, Captioner, Extractor, Picture, Question
from docmill.ports.records import (
    ApiKey,
    Edit,
    Inventory,
    KeyRing,
    Pointer,
    Pointers,
    Repository,
    RuleBook,
    Table,
    Tables,
)
from docmill.ports.signals import Limiter, Queue, RunState, Signals, Subscription
from docmill.ports.stores import Fetched, Fetcher, Library, Links, Place, Store, Stored, Written
from docmill.ports.tracing import NoTracer, Tracer
from docmill.ports.webhooks import NoticeFilter, Outbox, Poster, Sending, Webhooks

__all__ = [
    "Answered",
    "ApiKey",
    "Captioner",
    "Deferred",
    "Delivery",
    "Dispatch",
    "Edit",
    "Engine",
    "ExternalWorker",
    "Extractor",
    "Face",
    "Faces",
    "Fetched",
    "Fetcher",
    "Filter",
    "Inventory",
    "JobFilter",
    "JobLine",
    "JobListing",
    "KeyRing",
    "Ledger",
    "Library",
    "Limiter",
    "Limits",
    "Links",
    "Listing",
    "NewTask",
    "NoTracer",
    "NoticeFilter",
    "Once",
    "Outbox",
    "PageReport",
    "Picture",
    "Place",
    "Pointer",
    "Pointers",
    "Ports",
    "Poster",
    "ProviderEngine",
    "Question",
    "Queue",
    "Renderer",
    "Repository",
    "RuleBook",
    "RunState",
    "SandboxedEngine",
    "Sending",
    "Signals",
    "Store",
    "Stored",
    "Subscription",
    "Table",
    "Tables",
    "Tombstones",
    "Tracer",
    "Transition",
    "Webhooks",
    "Work",
    "Written",
]


@dataclass(frozen=True, slots=True)
class Limits:
    """What the use cases must know of the settings."""

    upload_bytes: int = 2 * 1024**3
    task_timeout_s: float = 600.0
    lease_ms: int = 15_000
    beat_s: float = 5.0
    max_lost_alone: int = 3
    """Workers that may vanish under a task that runs alone, before it is given up."""
    sweep_s: float = 2.0
    failure_grace_ms: int = 30_000
    """How long after an error that a worker logged the job waits for another report before it fails."""
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
    batch_links: Links | None = None
    """Of the files of a batch: paths, to which the service adds the address under which it was called."""
    fetcher: Fetcher | None = None
    limiter: Limiter | None = None
    runstate: RunState | None = None
    extractor: Extractor | None = None
    captioner: Captioner | None = None
    pointers: Pointers | None = None
    tracer: Tracer = field(default_factory=NoTracer)
    limits: Limits = field(default_factory=Limits)
    clock: ClockWatch = field(default_factory=ClockWatch)
