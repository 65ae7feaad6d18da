"""Settings become Ports, and Ports a worker. Whether one process is alone or many share is asked here."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from pathlib import Path
from secrets import token_hex

import structlog

from docmill import __version__
from docmill.adapters.fetching.guarded import GuardedFetcher
from docmill.adapters.fetching.posting import GuardedPoster
from docmill.adapters.limiters.local import LocalLimiter
from docmill.adapters.queues.local import LocalQueue
from docmill.adapters.signals.local import LocalSignals
from docmill.adapters.sql.database import Database
from docmill.adapters.sql.documents import SqlDocuments
from docmill.adapters.sql.keys import SqlKeys
from docmill.adapters.sql.ledger import SqlLedger
from docmill.adapters.sql.migrate import migrate
from docmill.adapters.sql.outbox import SqlOutbox
from docmill.adapters.sql.pointers import SqlPointers
from docmill.adapters.sql.rules import SqlRules
from docmill.adapters.sql.sealing import Sealer
from docmill.adapters.sql.sqlite import SqliteDatabase
from docmill.adapters.sql.tables import SqlTables
from docmill.adapters.sql.tombstones import SqlTombstones
from docmill.adapters.sql.webhooks import SqlWebhooks
from docmill.compose.engines import auto_engine, captioner, external_workers, extractor, local_engine, provider_engine
from docmill.compose.folders import alone_in, clear_scratch, own_scratch
from docmill.compose.keeping import (
    batch_links,
    libraries,
    links,
    open_database,
    open_store,
    sealing_secrets,
    tighten_data,
)
from docmill.core.clocks import MIN_WATCH_MS, ClockWatch
from docmill.core.errors import Invalid
from docmill.core.retention import Retention
from docmill.ports import (
    BackupDatabase,
    Engine,
    KeyRing,
    Ledger,
    Limiter,
    Limits,
    NoTracer,
    Pointers,
    Ports,
    Queue,
    RunState,
    SandboxedEngine,
    Signals,
    Store,
    Tracer,
)
from docmill.settings import Settings
from docmill.work import sweep
from docmill.work.heart import Heart
from docmill.work.places import Places
from docmill.worker import Worker

log = structlog.get_logger(__name__)

MAX_MISSED_SWEEPS = 10
"""After more the clock counts as unwatched: on a busy machine rounds take longer than the pause between them."""

DAY_MS = 24 * 3600 * 1000


MAX_LOST_ALONE_IN_FLEET = 3
MAX_LOST_ALONE_EMBEDDED = 100
"""One process does everything here: its death says little about the document that it was parsing, which a child process
reads. A document is given up only so that a machine does not restart for ever."""


def limits(settings: Settings) -> Limits:
    llm, captions = settings.llm, settings.captions
    plain = Limits(
        upload_bytes=settings.upload_bytes,
        task_timeout_s=settings.etl_task_timeout,
        lease_ms=round(settings.lease * 1000),
        beat_s=settings.heartbeat,
        max_lost_alone=MAX_LOST_ALONE_IN_FLEET if settings.database_url else MAX_LOST_ALONE_EMBEDDED,
        sweep_s=settings.sweep,
        failure_grace_ms=round(settings.failure_grace * 1000),
        stay_home=settings.routing.stay_home,
        webhook_s=settings.webhook_timeout,
        webhook_window_ms=round(settings.webhook_days * DAY_MS),
        retention=retention(settings),
    )
    if llm:
        plain = replace(plain, llm_tokens=llm.budget_tokens, llm_seconds=llm.budget_seconds)
    if captions:
        plain = replace(
            plain,
            caption_confidence=captions.min_confidence,
            caption_seconds=captions.budget_seconds,
            captions=captions.max_images,
        )
    return plain


def retention(settings: Settings) -> Retention:
    days = settings.retention_days
    failed = days if settings.retention_failed_days is None else settings.retention_failed_days
    return Retention(
        completed_ms=None if days is None else round(days * DAY_MS),
        failed_ms=None if failed is None else round(failed * DAY_MS),
        documents=settings.retention_documents,
    )


@dataclass(frozen=True)
class Shared:
    """What the processes of a deployment share besides database and store. One process alone shares with itself."""

    queue: Queue = field(default_factory=LocalQueue)
    signals: Signals = field(default_factory=LocalSignals)
    limiter: Limiter = field(default_factory=LocalLimiter)
    runstate: RunState | None = None


@asynccontextmanager
async def sharing(settings: Settings) -> AsyncIterator[Shared]:
    if settings.redis_url is None:
        yield Shared()
        return
    from docmill.adapters import redis
    from docmill.adapters.limiters.redis import RedisLimiter
    from docmill.adapters.queues.arq import ArqQueue
    from docmill.adapters.runstate.redis import RedisRunState
    from docmill.adapters.signals.redis import RedisSignals

    client = redis.connect(settings.redis_url.get_secret_value())
    queue, signals, runstate = ArqQueue(client), RedisSignals(client), RedisRunState(client)
    try:
        yield Shared(queue, signals, RedisLimiter(client), runstate)
    finally:
        for part in (queue, signals, runstate):
            await part.close()
        await client.aclose()


NO_OTEL = "traces need the packages of OpenTelemetry. Install them with: pip install 'docmill[otel]'."


def tracer(settings: Settings) -> Tracer:
    if not settings.otel_endpoint:
        return NoTracer()
    try:
        from docmill.adapters.tracing.otel import OtelTracer
    except ImportError as error:
        raise Invalid("setting_invalid", name="otel_endpoint", why=NO_OTEL) from error
    return OtelTracer(settings.otel_endpoint, __version__)


def bind(settings: Settings, database: Database, shared: Shared, scratch: Path, app_url: str = "") -> Ports:
    local = local_engine(settings, scratch)
    engines: dict[str, Engine] = {"local": local}
    providers = {name: provider_engine(settings, name, scratch) for name in settings.providers}
    engines |= {**providers, "auto": auto_engine(settings, local, providers, scratch)}
    store, sealer = open_store(settings), Sealer(lambda: sealing_secrets(settings))
    return Ports(
        ledger=SqlLedger(database),
        tombstones=SqlTombstones(database),
        queue=shared.queue,
        signals=shared.signals,
        store=store,
        rules=SqlRules(database),
        tables=SqlTables(database),
        documents=SqlDocuments(database),
        keys=SqlKeys(database),
        webhooks=SqlWebhooks(database, sealer),
        outbox=SqlOutbox(database, sealer),
        poster=GuardedPoster(
            GuardedFetcher(
                allow_networks=[ip_network(one) for one in settings.webhook_networks], ports=settings.webhook_ports
            )
        ),
        engines=engines,
        renderer=local,
        library=libraries(settings, store),
        scratch=scratch,
        workers=external_workers(settings),
        app_url=app_url,
        links=links(settings, store, app_url),
        batch_links=batch_links(settings),
        limiter=shared.limiter,
        runstate=shared.runstate,
        fetcher=GuardedFetcher(allow_networks=[ip_network(one) for one in settings.fetch_networks]),
        pointers=SqlPointers(database),
        extractor=extractor(settings),
        captioner=captioner(settings),
        tracer=tracer(settings),
        limits=limits(settings),
        clock=ClockWatch(max(MIN_WATCH_MS, round(settings.sweep * 1000) * MAX_MISSED_SWEEPS)),
    )


@asynccontextmanager
async def opened(settings: Settings, app_url: str = "") -> AsyncIterator[Ports]:
    """Ports on a database of the newest schema. One process alone holds its data folder; several share nothing on disk
    but a folder in which each has its own."""
    async with AsyncExitStack() as stack:
        if settings.is_distributed:
            scratch = stack.enter_context(own_scratch(settings.data / "scratch"))
            tighten_data(settings)
        else:
            stack.enter_context(alone_in(settings.data))
            scratch = (settings.data / "scratch").resolve()
            clear_scratch(scratch)
        database = open_database(settings)
        stack.push_async_callback(database.close)
        await migrate(database)
        await seal_secrets(settings, database)
        shared = await stack.enter_async_context(sharing(settings))
        ports = bind(settings, database, shared, scratch, settings.app_url or app_url)
        stack.push_async_callback(_close, ports)
        # Whoever knows its id may name the default rule in the very first request.
        await ports.rules.default()
        yield ports


def webhooks(settings: Settings, database: Database) -> SqlWebhooks:
    return SqlWebhooks(database, Sealer(lambda: sealing_secrets(settings)))


def pointers(database: Database) -> Pointers:
    return SqlPointers(database)


async def seal_secrets(settings: Settings, database: Database) -> None:
    """Encrypt the secrets of webhooks that an older version stored as they are, or under an older secret."""
    sealed, unreadable = await webhooks(settings, database).seal_all()
    if sealed:
        log.info("webhook_secrets_encrypted", webhooks=sealed)
        if isinstance(database, SqliteDatabase):
            await database.truncate_log()  # the plain text is also in the log
    if unreadable:
        log.error("webhook_secret_unreadable", webhooks=unreadable)


@asynccontextmanager
async def confirming_sandbox(settings: Settings, ports: Ports) -> AsyncIterator[None]:
    """Learn at start how parsers are confined: before anything else if the settings require a level, else beside it.

    A service that starts no parser before the first document (`warm = false`) learns it from that one.
    """
    if not settings.warm and settings.sandbox != "require":
        yield
        return
    confined = [engine for engine in ports.engines.values() if isinstance(engine, SandboxedEngine)]
    looking = asyncio.gather(*map(log_sandbox, confined))
    try:
        if settings.sandbox == "require":
            await looking
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def log_sandbox(engine: SandboxedEngine) -> None:
    facts = await engine.confirm_sandbox()
    reached = facts.pop("level", "unknown")
    say = log.info if reached == "full" else log.warning
    say("sandbox", reached=reached, **facts)


async def _close(ports: Ports) -> None:
    for model in (ports.extractor, ports.captioner):
        if model is not None:
            await model.close()
    for engine in ports.engines.values():
        await engine.close()
    for worker in ports.workers.values():
        await worker.close()
    await ports.library.close()
    await ports.store.close()
    await ports.tracer.close()


@asynccontextmanager
async def working(settings: Settings, ports: Ports) -> AsyncIterator[Worker]:
    """A worker in this process. What a crash left behind is free again before it starts, if nobody else may hold it;
    else when its lease has run out."""
    if not settings.database_url:
        freed = await sweep.free_all(ports)
        if freed:
            log.info("recovered", tasks=freed)
    name = f"{socket.gethostname()}-{os.getpid()}-{token_hex(3)}"

    @asynccontextmanager
    async def heart_ledger() -> AsyncIterator[Ledger]:
        if not settings.database_url:
            yield ports.ledger
            return
        # The heart beats in a thread of its own: a connection belongs to one event loop.
        database = open_database(settings, connections=1)
        try:
            yield SqlLedger(database)
        finally:
            await database.close()

    heart = Heart(heart_ledger, worker=name, lease_ms=ports.limits.lease_ms, beat_s=ports.limits.beat_s)
    worker = Worker(ports, heart, Places(jobs=settings.jobs, stage_jobs=settings.stage_jobs), name=name)
    worker.start()
    engines = ports.engines.values() if settings.warm else ()
    warming = asyncio.gather(*(engine.warm() for engine in engines), return_exceptions=True)
    try:
        yield worker
    finally:
        warming.cancel()
        await worker.stop()


@asynccontextmanager
async def key_ring(settings: Settings) -> AsyncIterator[KeyRing]:
    """The API keys alone: to create one while the service runs, or before it ever did."""
    database = open_database(settings)
    try:
        await migrate(database)
        yield SqlKeys(database)
    finally:
        await database.close()


@asynccontextmanager
async def backup_ports(settings: Settings) -> AsyncIterator[tuple[BackupDatabase, Store]]:
    """Database and store of the whole deployment, while the service runs or not. No migration is applied here: a
    restore begins with the schema of its archive."""
    from docmill.adapters.sql.backup import SqlBackup

    async with AsyncExitStack() as stack:
        database = open_database(settings)
        stack.push_async_callback(database.close)
        store = open_store(settings)
        stack.push_async_callback(store.close)
        yield SqlBackup(database), store
