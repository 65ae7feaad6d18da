"""The composition root: Settings become Ports, and Ports become an HTTP app and a worker.

This is the only place that asks which world we are in.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import hmac
import os
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from ipaddress import ip_network
from pathlib import Path
from secrets import token_hex, token_urlsafe
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import structlog

from docmill import __version__
from docmill.adapters.engines.local import Limits as ParseLimits
from docmill.adapters.engines.local import LocalEngine
from docmill.adapters.fetching.guarded import GuardedFetcher
from docmill.adapters.fetching.posting import GuardedPoster
from docmill.adapters.libraries import Shelves
from docmill.adapters.libraries.disk import DiskLibrary
from docmill.adapters.libraries.objects import ObjectLibrary
from docmill.adapters.limiters.local import LocalLimiter
from docmill.adapters.links.signed import SignedLinks
from docmill.adapters.queues.local import LocalQueue
from docmill.adapters.signals.local import LocalSignals
from docmill.adapters.sql.database import Database
from docmill.adapters.sql.documents import SqlDocuments
from docmill.adapters.sql.keys import SqlKeys
from docmill.adapters.sql.ledger import SqlLedger
from docmill.adapters.sql.migrate import migrate
from docmill.adapters.sql.outbox import SqlOutbox
from docmill.adapters.sql.rules import SqlRules
from docmill.adapters.sql.sqlite import SqliteDatabase
from docmill.adapters.sql.tables import SqlTables
from docmill.adapters.sql.tombstones import SqlTombstones
from docmill.adapters.sql.webhooks import SqlWebhooks
from docmill.adapters.stores.local import LocalStore
from docmill.adapters.workers.dispatcher import DispatcherWorker
from docmill.adapters.workers.secretary import SecretaryWorker
from docmill.core import routing
from docmill.core.access import Principal
from docmill.core.errors import Conflict, DocmillError, DocumentError, Forbidden, Invalid, TooLarge
from docmill.core.retention import Retention
from docmill.core.routing import Foresight, Policy, Reach, stricter
from docmill.core.task import TwinWish, Wishes
from docmill.ports import (
    Captioner,
    Engine,
    ExternalWorker,
    Extractor,
    Inventory,
    KeyRing,
    Ledger,
    Library,
    Limiter,
    Limits,
    Links,
    NoTracer,
    Ports,
    Queue,
    RunState,
    Signals,
    Store,
    Tracer,
)
from docmill.settings import InboxSettings, ModelSettings, Settings
from docmill.work import doctor, sweep
from docmill.work.heart import Heart
from docmill.work.places import Places
from docmill.work.sessions import Sessions
from docmill.worker import Worker

if TYPE_CHECKING:
    from fastapi import FastAPI

    from docmill.adapters.engines.slicing.auto import AutoEngine
    from docmill.adapters.engines.slicing.cutting import Cutter
    from docmill.adapters.engines.slicing.sliced import SlicedEngine
    from docmill.adapters.libraries.tokens import MsalTokens
    from docmill.adapters.providers.chat import Chat
    from docmill.adapters.providers.client import ProviderClient
    from docmill.http.auth import Authenticator
    from docmill.http.callbacks import CallbackOptions

log = structlog.get_logger(__name__)

MB = 1024 * 1024
DAY_MS = 24 * 3600 * 1000
ASSUMED_PAGES = 200
"""That a provider takes in one go, as long as nobody has asked it."""
LOCK = ".lock"


def open_database(settings: Settings, *, connections: int = 10) -> Database:
    if settings.database_url:
        from docmill.adapters.sql.postgres import PostgresDatabase

        return PostgresDatabase(settings.database_url, size=connections)
    settings.data.mkdir(parents=True, exist_ok=True)
    return SqliteDatabase(settings.data / "docmill.db")


def local_engine(settings: Settings) -> LocalEngine:
    return LocalEngine(
        settings.jobs,
        ParseLimits(
            seconds=settings.etl_task_timeout,
            memory_mb=settings.memory_mb,
            pages=settings.max_pages,
        ),
        spares=1 if settings.warm else 0,
    )


def external_workers(settings: Settings) -> dict[str, ExternalWorker]:
    kinds: dict[str, Callable[[str, str, str | None, float], ExternalWorker]] = {
        "secretary": SecretaryWorker,
        "dispatcher": DispatcherWorker,
    }
    return {
        name: kinds[one.dialect](name, one.url, one.api_key.get_secret_value() if one.api_key else None, one.timeout)
        for name, one in settings.workers.items()
    }


def provider_client(settings: Settings, name: str) -> ProviderClient:
    """How one provider is called: as often, as long and as patiently as its settings say."""
    from docmill.adapters.providers.client import Patience, ProviderClient

    chosen = settings.providers[name]
    key = chosen.api_key.get_secret_value() if chosen.api_key else ""
    headers = {"X-Api-Key": key} if (chosen.kind or name) == "docling" else {"Authorization": f"Bearer {key}"}
    return ProviderClient(
        name,
        chosen.url,
        headers if key else {},
        concurrency=chosen.concurrency,
        patience=Patience(tries=chosen.tries, request_s=chosen.timeout),
    )


def provider_engine(settings: Settings, name: str) -> SlicedEngine:
    """An engine over the network that takes documents of any length, as far as the policy lets them go there."""
    from docmill.adapters.engines.docling.engine import DoclingEngine
    from docmill.adapters.engines.mineru.engine import MinerUEngine
    from docmill.adapters.engines.slicing.sliced import SlicedEngine

    chosen = settings.providers[name]
    kind = DoclingEngine if (chosen.kind or name) == "docling" else MinerUEngine
    return SlicedEngine(
        kind(provider_client(settings, name), options=chosen.options, max_pages=chosen.max_pages),
        cutter(settings),
        policy=policy(settings),
        home=chosen.home,
        parallel=chosen.concurrency,
    )


def auto_engine(settings: Settings, local: Engine, providers: Mapping[str, SlicedEngine]) -> AutoEngine:
    from docmill.adapters.engines.slicing.auto import AutoEngine, Member

    members = {
        name: Member(engine, settings.providers[name].home, Reach(settings.providers[name].max_pages or ASSUMED_PAGES))
        for name, engine in providers.items()
    }
    return AutoEngine(local, members, cutter(settings), policy(settings))


def cutter(settings: Settings) -> Cutter:
    from docmill.adapters.engines.slicing.cutting import Cutter

    return Cutter(memory_mb=settings.memory_mb)


def policy(settings: Settings) -> Policy:
    chosen = settings.routing
    return Policy(chosen.stay_home, chosen.budget_pages, chosen.prefer)


async def foresee(settings: Settings, file: Path, engine: str, options: Mapping[str, Any]) -> Foresight:
    """What would happen to a file. Nothing is parsed, and nobody is called."""
    from docmill.adapters.engines.local.reading import READERS

    local = local_engine(settings)
    providers = {name: provider_engine(settings, name) for name in settings.providers}
    if engine not in {"local", "auto", *providers}:
        raise Invalid("engine_unknown", engine=engine[:64], known=", ".join(sorted({"local", "auto", *providers})))
    size = (await asyncio.to_thread(file.stat)).st_size
    try:
        facts = await cutter(settings).facts(file, file.name)
        if not size:
            raise DocumentError("document_empty")
        if facts.pages and facts.pages > settings.max_pages:
            raise DocumentError("document_too_many_pages", pages=facts.pages, limit=settings.max_pages)
        if facts.media_type not in READERS and engine in ("local", "auto"):
            raise DocumentError("document_unsupported", media_type=facts.media_type)
        if size > settings.max_upload_mb * MB:
            raise TooLarge("upload_too_large", limit=settings.max_upload_mb * MB)
    except (DocumentError, TooLarge) as error:
        return Foresight("", size, None, engine, code=error.code, message=error.message)
    offers = auto_engine(settings, local, providers).offers()
    at_once = {name: chosen.concurrency for name, chosen in settings.providers.items()}
    return routing.foresee(facts, engine, offers, stricter(policy(settings), options), parallel=at_once)


def model_chat(name: str, chosen: ModelSettings) -> Chat:
    """A conversation with the model that the settings name."""
    from docmill.adapters.providers.chat import Chat
    from docmill.adapters.providers.client import Patience, ProviderClient

    key = chosen.api_key.get_secret_value() if chosen.api_key else ""
    client = ProviderClient(
        name,
        chosen.url,
        {"Authorization": f"Bearer {key}"} if key else {},
        concurrency=chosen.concurrency,
        patience=Patience(tries=chosen.tries, silence_s=chosen.timeout, request_s=chosen.timeout),
    )
    return Chat(client, chosen.model, chosen.options)


def extractor(settings: Settings) -> Extractor | None:
    if settings.llm is None:
        return None
    from docmill.adapters.extractors.openai import OpenAIExtractor

    return OpenAIExtractor(model_chat("llm", settings.llm), settings.llm.max_tokens, settings.llm.home)


def captioner(settings: Settings) -> Captioner | None:
    if settings.captions is None:
        return None
    from docmill.adapters.captioners.openai import OpenAICaptioner

    chosen = settings.captions
    return OpenAICaptioner(model_chat("captions", chosen), chosen.max_tokens, chosen.home)


def limits(settings: Settings) -> Limits:
    llm, captions = settings.llm, settings.captions
    plain = Limits(
        upload_bytes=settings.max_upload_mb * MB,
        task_timeout_s=settings.etl_task_timeout,
        lease_ms=round(settings.lease * 1000),
        beat_s=settings.heartbeat,
        sweep_s=settings.sweep,
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


def libraries(settings: Settings, store: Store) -> Library:
    shelves: dict[str, Library] = {"": DiskLibrary((settings.library_root,)), "objects": ObjectLibrary(store)}
    if settings.onedrive:
        from docmill.adapters.libraries.graph import Graph
        from docmill.adapters.libraries.onedrive import OneDriveLibrary

        chosen = settings.onedrive
        graph = Graph(onedrive_tokens(settings), drive=chosen.drive, base=chosen.graph)
        shelves["onedrive"] = OneDriveLibrary(graph, chosen.root)
    return Shelves(shelves)


def onedrive_tokens(settings: Settings) -> MsalTokens:
    from docmill.adapters.libraries.tokens import App, MsalTokens

    chosen = settings.onedrive
    if chosen is None:
        raise Invalid("setting_invalid", name="onedrive", why="it is not set.")
    secret = chosen.client_secret.get_secret_value() if chosen.client_secret else ""
    key = chosen.token_key.get_secret_value() if chosen.token_key else ""
    app = App(chosen.client_id, chosen.tenant, secret, chosen.login)
    return MsalTokens(app, settings.data / "onedrive.tokens", key=key)


def link_secret(settings: Settings) -> bytes:
    """The secret of signed links and sessions: given, or made once and kept with the data.

    Processes that share no folder need the same one: the database's password is a secret that they all know.
    """
    if settings.secret:
        return settings.secret.get_secret_value().encode()
    if settings.is_distributed:
        return hmac.digest((settings.database_url or "").encode(), b"docmill links", "sha256")
    path = settings.data / "secret"
    if not path.exists():
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.touch(mode=0o600)
        fresh.write_text(token_urlsafe(48))
        fresh.replace(path)
    return path.read_bytes()


def open_store(settings: Settings) -> Store:
    url = settings.objects_url
    if url is None:
        return LocalStore(settings.data / "objects")
    if url.startswith("file://"):
        return LocalStore(Path(unquote(urlsplit(url).path)))
    from docmill.adapters.stores.s3 import CloudStore

    return CloudStore(url)


def links(settings: Settings, store: Store, app_url: str) -> Links:
    """A bucket signs its own links; files are given out by this service."""
    if isinstance(store, LocalStore):
        return SignedLinks(link_secret(settings), app_url)
    from docmill.adapters.links.presigned import PresignedLinks
    from docmill.adapters.stores.s3 import CloudStore

    assert isinstance(store, CloudStore)  # noqa: S101 - there are two kinds
    return PresignedLinks(store.sign)


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


def bind(settings: Settings, database: Database, shared: Shared, scratch: Path, app_url: str = "") -> Ports:
    local = local_engine(settings)
    engines: dict[str, Engine] = {"local": local}
    providers = {name: provider_engine(settings, name) for name in settings.providers}
    engines |= {**providers, "auto": auto_engine(settings, local, providers)}
    store = open_store(settings)
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
        webhooks=SqlWebhooks(database),
        outbox=SqlOutbox(database),
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
        limiter=shared.limiter,
        runstate=shared.runstate,
        fetcher=GuardedFetcher(allow_networks=[ip_network(one) for one in settings.fetch_networks]),
        extractor=extractor(settings),
        captioner=captioner(settings),
        tracer=tracer(settings),
        limits=limits(settings),
    )


@asynccontextmanager
async def opened(settings: Settings, app_url: str = "") -> AsyncIterator[Ports]:
    """Ports on a database of the newest schema. One process alone holds its data folder; several share nothing on disk
    but a folder in which each has its own."""
    async with AsyncExitStack() as stack:
        if settings.is_distributed:
            scratch = stack.enter_context(own_scratch(settings.data / "scratch"))
        else:
            stack.enter_context(alone_in(settings.data))
            scratch = (settings.data / "scratch").resolve()
            clear_scratch(scratch)
        database = open_database(settings)
        stack.push_async_callback(database.close)
        await migrate(database)
        shared = await stack.enter_async_context(sharing(settings))
        ports = bind(settings, database, shared, scratch, settings.app_url or app_url)
        stack.push_async_callback(_close, ports)
        # Whoever knows its id may name the default rule in the very first request.
        await ports.rules.default()
        yield ports


def tracer(settings: Settings) -> Tracer:
    if not settings.otel_endpoint:
        return NoTracer()
    try:
        from docmill.adapters.tracing.otel import OtelTracer
    except ImportError as error:
        raise Invalid("setting_invalid", name="otel_endpoint", why=NO_OTEL) from error
    return OtelTracer(settings.otel_endpoint, __version__)


NO_OTEL = "traces need the packages of OpenTelemetry. Install them with: pip install 'docmill[otel]'."


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
async def moving(settings: Settings) -> AsyncIterator[tuple[Inventory, Store]]:
    """Everything in the database and in the store: to export or import it, while the service runs or not."""
    from docmill.adapters.sql.inventory import SqlInventory

    async with AsyncExitStack() as stack:
        database = open_database(settings)
        stack.push_async_callback(database.close)
        await migrate(database)
        await SqlRules(database).default()
        store = open_store(settings)
        stack.push_async_callback(store.close)
        yield SqlInventory(database), store


async def has_accounts(settings: Settings, keys: KeyRing) -> bool:
    """Whether there is any credential. Without one only loopback is served."""
    if settings.jwt_secret or settings.jwks_url or await keys.any_active():
        return True
    if not settings.is_loopback:
        raise Forbidden("bind_refused", host=settings.host)
    return False


async def authenticator(settings: Settings, keys: KeyRing) -> Authenticator:
    """Who may call."""
    from docmill.http.auth import Authenticator, AuthOptions

    has_credentials = await has_accounts(settings, keys)
    jwks = settings.jwks_url or ""
    is_address = jwks.startswith(("http://", "https://"))
    return Authenticator(
        AuthOptions(
            require=settings.require_auth or not settings.is_loopback or has_credentials,
            jwt_secret=settings.jwt_secret.get_secret_value() if settings.jwt_secret else None,
            jwks_url=jwks if is_address else None,
            jwks_file=Path(jwks) if jwks and not is_address else None,
            audience=settings.jwt_audience,
        ),
        keys,
        sessions=Sessions(link_secret(settings), keys),
    )


YOUNG = 20_000


def settle() -> None:
    """What was imported and built stays until the end: the collector need not look at it again and again."""
    gc.set_threshold(YOUNG)
    gc.freeze()


async def serve(settings: Settings, *, on_ready: Callable[[str], None]) -> None:
    """Serve until a signal says stop. *on_ready* gets the address once requests are answered."""
    listener = listen(settings.host, settings.port)
    async with opened(settings, address(listener)) as ports:
        await has_accounts(settings, ports.keys)
        async with AsyncExitStack() as stack:
            # Where workers are processes of their own, the API works only if it is told to.
            worker = await stack.enter_async_context(working(settings, ports)) if settings.jobs else None
            if settings.inbox:
                await stack.enter_async_context(watching(settings.inbox, ports))
            # What a crash interrupted goes on while the web framework is still being imported.
            await asyncio.to_thread(import_module, "docmill.http.server")
            from docmill.http.app import HttpOptions, build_app
            from docmill.http.server import run

            auth = await authenticator(settings, ports.keys)
            options = HttpOptions(
                version=__version__,
                allowed_hosts=(*settings.allowed_hosts, *own_names(ports.app_url)),
                max_upload_bytes=ports.limits.upload_bytes,
                is_working=(lambda: worker.is_alive) if worker else None,
                checks={"redis": redis_check(ports)} if settings.is_distributed else {},
            )
            app = build_app(ports, auth=auth, options=options, callbacks=callback_options(settings))
            add_console(app, settings, ports, auth)
            # The socket listens already: who calls between this line and the next is answered, only later.
            on_ready(address(listener))
            settle()
            await run(app, listener, grace_s=settings.grace)


@asynccontextmanager
async def watching(chosen: InboxSettings, ports: Ports) -> AsyncIterator[None]:
    """The inbox is watched as long as the service runs."""
    from docmill.adapters.watching.folder import Inbox
    from docmill.core.inbox import is_wanted
    from docmill.work.inbox import take

    chosen.folder.mkdir(parents=True, exist_ok=True)
    who = Principal(chosen.user, chosen.tenant)
    wishes = Wishes(engine=chosen.engine, twin=TwinWish() if chosen.twin else None)
    inbox = Inbox(chosen.folder, is_wanted, DiskLibrary((chosen.folder.resolve(),)).ours, settle_s=chosen.settle)

    async def watch() -> None:
        async for path in inbox.files():
            try:
                task = await take(ports, who, path, project_id=chosen.project, wishes=wishes)
                log.info("inbox_taken" if task else "inbox_known", file=path.name, task=task.id if task else None)
            except (DocmillError, OSError) as error:
                inbox.forget(path)
                log.warning("inbox_waits", file=path.name, why=f"{type(error).__name__}: {error}")

    running = asyncio.ensure_future(watch())
    running.add_done_callback(_told_if_broken)
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _told_if_broken(watch: asyncio.Future[None]) -> None:
    if not watch.cancelled() and (error := watch.exception()):
        log.error("inbox_broke", exc_info=error)


def add_console(app: FastAPI, settings: Settings, ports: Ports, auth: Authenticator) -> None:
    """The pages for people, beside the doors for programs."""
    from docmill.console import Console, ConsoleOptions

    console = Console(
        ports,
        identify=auth.identify,
        sessions=Sessions(link_secret(settings), ports.keys),
        options=ConsoleOptions(
            version=__version__,
            openapi=app.openapi,
            examine=lambda: doctor.examine(ports),
            settings=settings.shown(),
            needs_sign_in=auth.options.require,
        ),
    )
    app.router.routes.extend(console.routes())


async def work(settings: Settings, *, on_ready: Callable[[str], None]) -> None:
    """Work until a signal says stop. *on_ready* gets the worker's name."""
    if not settings.is_distributed:
        raise Invalid("setting_invalid", name="redis_url", why=WORKER_ALONE)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    async with opened(settings) as ports, working(settings, ports) as worker:
        on_ready(worker.name)
        settle()
        await stopping.wait()


WORKER_ALONE = (
    "it is not set, and a worker finds its work through it. Set REDIS_URL, DATABASE_URL and OBJECTS_URL as for "
    "'docmill serve'; without them 'docmill serve' works by itself."
)


def redis_check(ports: Ports) -> Callable[[], Awaitable[str | None]]:
    """Without Redis everything goes on, only slower: whoever looks shall see it, but nobody be turned away."""

    async def check() -> str | None:
        return None if ports.runstate is None or await ports.runstate.is_there() else "degraded"

    return check


def callback_options(settings: Settings) -> CallbackOptions:
    from docmill.http.callbacks import CallbackOptions
    from docmill.http.peers import networks

    key = settings.callback_signing_key
    keys = key.get_secret_value().split(",") if key else []
    return CallbackOptions(
        signing_keys=tuple(one.strip() for one in keys if one.strip()),
        trusted_proxies=networks(settings.trusted_proxies),
    )


def own_names(app_url: str) -> tuple[str, ...]:
    """The name under which workers and people reach us is one of ours."""
    host = urlsplit(app_url).hostname
    return (host,) if host else ()


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(2048)
    return listener


def address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the data folder's lock: two services on one folder would take each other's work for orphaned."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Conflict("data_locked", folder=folder) from error
        yield


@contextmanager
def own_scratch(folder: Path) -> Iterator[Path]:
    """A folder of this process alone below *folder*. Those whose process is gone are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    for other in folder.iterdir():
        with suppress(OSError), (other / LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(other, ignore_errors=True)
    mine = (folder / f"{os.getpid()}-{token_hex(4)}").resolve()
    mine.mkdir()
    with (mine / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield mine
        finally:
            shutil.rmtree(mine, ignore_errors=True)


def clear_scratch(folder: Path) -> None:
    """What a killed process left there belongs to nobody."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
