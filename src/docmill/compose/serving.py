"""Ports become a service: the doors for programs, the pages for people, and what runs beside them."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import structlog

from docmill import __version__
from docmill.adapters.libraries.disk import DiskLibrary
from docmill.compose.binding import confirming_sandbox, opened, working
from docmill.compose.keeping import link_secret
from docmill.compose.observing import metrics_token, observed
from docmill.core.access import Principal
from docmill.core.errors import DocmillError, Forbidden, Invalid
from docmill.core.task import TwinWish, Wishes
from docmill.ports import KeyRing, Ports
from docmill.settings import InboxSettings, Settings
from docmill.work import doctor
from docmill.work.sessions import Sessions

if TYPE_CHECKING:
    from fastapi import FastAPI

    from docmill.http.auth import Authenticator
    from docmill.http.callbacks import CallbackOptions
    from docmill.http.connections import ConnectionLimits

log = structlog.get_logger(__name__)

YOUNG = 20_000
MAX_OPEN_FILES = 65_536
RESERVED_FILES = 256
"""Not for connections: databases, files on their way, pipes to parsers."""


def settle() -> None:
    """What was imported and built stays until the end: the collector need not look at it again and again."""
    gc.set_threshold(YOUNG)
    gc.freeze()


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


def own_names(app_url: str) -> tuple[str, ...]:
    """The name under which workers and people reach us is one of ours."""
    host = urlsplit(app_url).hostname
    return (host,) if host else ()


def raise_open_files() -> int:
    """Raise the soft limit of open files as far as the system allows; the limit that is then in force."""
    try:
        import resource
    except ImportError:
        return MAX_OPEN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            log.warning("open_files_limited", soft=soft, wanted=wanted, why=str(error))
            return soft
        return wanted
    return MAX_OPEN_FILES if soft == resource.RLIM_INFINITY else soft


def connection_limits(settings: Settings, open_files: int) -> ConnectionLimits:
    """As the settings say, but no more than there are files for."""
    from docmill.http.connections import ConnectionLimits
    from docmill.http.peers import networks

    possible = max(16, open_files - RESERVED_FILES)
    if possible < settings.max_connections:
        log.warning("connections_limited_by_open_files", open_files=open_files, connections=possible)
    return ConnectionLimits(
        max_open=min(settings.max_connections, possible),
        max_per_address=settings.max_connections_per_address,
        proxies=networks(settings.trusted_proxies),
        head_s=settings.head_timeout,
        keep_alive_s=settings.keep_alive,
    )


async def has_accounts(settings: Settings, keys: KeyRing) -> bool:
    """Whether credentials are or ever were in use. Without any, only loopback is served."""
    if settings.jwt_secret or settings.jwks_url:
        # Kept in the database: a start without these settings must not open the service to everybody.
        await keys.require()
        return True
    if await keys.is_required():
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
            issuer=settings.jwt_issuer,
        ),
        keys,
        sessions=Sessions(link_secret(settings), keys),
    )


def callback_options(settings: Settings) -> CallbackOptions:
    from docmill.http.callbacks import CallbackOptions
    from docmill.http.peers import networks

    key = settings.callback_signing_key
    keys = key.get_secret_value().split(",") if key else []
    return CallbackOptions(
        signing_keys=tuple(one.strip() for one in keys if one.strip()),
        trusted_proxies=networks(settings.trusted_proxies),
    )


def redis_check(ports: Ports) -> Callable[[], Awaitable[str | None]]:
    """Without Redis everything goes on, only slower: whoever looks shall see it, but nobody be turned away."""

    async def check() -> str | None:
        return None if ports.runstate is None or await ports.runstate.is_there() else "degraded"

    return check


def add_console(app: FastAPI, settings: Settings, ports: Ports, auth: Authenticator) -> None:
    """The pages for people, beside the doors for programs."""
    from starlette.exceptions import HTTPException

    from docmill.console import Console, ConsoleOptions
    from docmill.http.peers import bucket_of, networks, peer_of

    proxies = networks(settings.trusted_proxies)
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
            client_of=lambda scope: bucket_of(peer_of(scope, proxies)),
        ),
    )
    app.router.routes.extend(console.routes())
    for kind in (DocmillError, HTTPException):
        app.add_exception_handler(kind, console.pages_for_browsers(app.exception_handlers[kind]))


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


async def serve(settings: Settings, *, on_ready: Callable[[str], None]) -> None:
    """Serve until cancelled, then stop in order. *on_ready* gets the address once requests are answered."""
    open_files = raise_open_files()
    listener = listen(settings.host, settings.port)
    async with opened(settings, address(listener)) as ports:
        await has_accounts(settings, ports.keys)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(confirming_sandbox(settings, ports))
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
                allowed_hosts=settings.allowed_hosts,
                own_hosts=own_names(ports.app_url),
                allowed_origins=settings.allowed_origins,
                metrics_token=metrics_token(settings),
                max_upload_bytes=ports.limits.upload_bytes,
                max_event_streams=settings.max_event_streams,
                is_working=(lambda: worker.is_alive) if worker else None,
                checks={"redis": redis_check(ports)} if settings.is_distributed else {},
            )
            app = build_app(ports, auth=auth, options=options, callbacks=callback_options(settings))
            if worker:
                app.state.metrics.observe_worker(is_alive=lambda: worker.is_alive, count_running=lambda: worker.busy)
            add_console(app, settings, ports, auth)
            # The socket listens already: who calls between this line and the next is answered, only later.
            on_ready(address(listener))
            settle()
            await run(app, listener, grace_s=settings.grace, limits=connection_limits(settings, open_files))


WORKER_ALONE = (
    "it is not set, and a worker finds its work through it. Set REDIS_URL, DATABASE_URL and OBJECTS_URL as for "
    "'docmill serve'; without them 'docmill serve' works by itself."
)


async def work(settings: Settings, *, on_ready: Callable[[str, str], None]) -> None:
    """Work until cancelled, then return unfinished tasks to the queue.

    *on_ready* gets the worker's name, and the address of its metrics if they have one.
    """
    if not settings.is_distributed:
        raise Invalid("setting_invalid", name="redis_url", why=WORKER_ALONE)
    listener = None if settings.metrics_port is None else listen(settings.host, settings.metrics_port)
    async with (
        opened(settings) as ports,
        confirming_sandbox(settings, ports),
        working(settings, ports) as worker,
        observed(settings, ports, worker, listener),
    ):
        on_ready(worker.name, address(listener) if listener else "")
        settle()
        await asyncio.get_running_loop().create_future()
