"""Ports become a service: the doors for programs, the pages for people, and what runs beside them."""

from __future__ import annotations

import asyncio
import gc
import signal
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
from docmill.compose.binding import opened, working
from docmill.compose.keeping import link_secret
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

log = structlog.get_logger(__name__)

YOUNG = 20_000


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


WORKER_ALONE = (
    "it is not set, and a worker finds its work through it. Set REDIS_URL, DATABASE_URL and OBJECTS_URL as for "
    "'docmill serve'; without them 'docmill serve' works by itself."
)


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
