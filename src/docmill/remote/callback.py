"""Speaking for a job: progress while it runs, one terminal report at its end.

with Callback(url, token, spool=Path("spool")) as job:
    for number, page in enumerate(pages, 1):
        job.progress(100 * number / len(pages), message=f"page {number} of {len(pages)}")
    job.complete(text=markdown, images=folder)

`AsyncCallback` does the work; `Callback` is the same on a thread of its own, for code without an event loop.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, TypedDict, TypeVar, Unpack
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import httpx2

from . import wire
from .delivery import DAY_S, Answer, Patience, Receipt, check_url, deliver, open_client, post
from .errors import CallbackError, Cancelled, Refused
from .signing import Signing, secret
from .spool import Address, Held, Spool
from .wire import Dialect, Images, Pages, Status

log = logging.getLogger("docmill.remote")

T = TypeVar("T")

LAST_WORD_S = 2.0
"""How long a terminal report waits for a progress report that is on its way."""
SLOWEST_PROGRESS_S = 30.0
_TOKEN = re.compile(r"[\x21-\x7e]+")


class Options(TypedDict, total=False):
    """What both callbacks take; `AsyncCallback` says what each means."""

    dialect: Dialect
    signing_key: str | None
    signing: Signing
    job_id: str | None
    process_id: str | None
    spool: Path | None
    worker: str
    min_interval: float
    heartbeat: float | None
    deadline: float
    timeout: float
    backoff: tuple[float, float]
    on_spooled: Callable[[], None] | None
    on_stop: Callable[[CallbackError], None] | None


class AsyncCallback:
    """Reports on one job.

    *spool* is a folder that survives the process: a terminal report lies there until it is delivered, and `resume`
    delivers what a killed worker left. *heartbeat* repeats the last progress after so many silent seconds, so that slow
    work is not taken for dead and hears of a cancel. *on_spooled* is called once the terminal report is safe, in the
    thread that wrote it: from then on the job's own files may go. *on_stop* is called once when the other side no
    longer wants the work, with the error that the next `progress` raises.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        dialect: Dialect = "secretary",
        signing_key: str | None = None,
        signing: Signing = "legacy",
        job_id: str | None = None,
        process_id: str | None = None,
        spool: Path | None = None,
        worker: str = "secretary",
        min_interval: float = 0.5,
        heartbeat: float | None = None,
        deadline: float = DAY_S,
        timeout: float = 120.0,
        backoff: tuple[float, float] = (0.5, 60.0),
        on_spooled: Callable[[], None] | None = None,
        on_stop: Callable[[CallbackError], None] | None = None,
        client: httpx2.AsyncClient | None = None,
    ) -> None:
        if dialect not in ("secretary", "dispatcher"):
            raise ValueError(f"there is no dialect {dialect!r}: secretary or dispatcher")
        if signing not in ("legacy", "standard"):
            raise ValueError(f"there is no way of signing {signing!r}: legacy or standard")
        if not _TOKEN.fullmatch(token):
            raise ValueError("the token is empty, or has characters that no header carries")
        if signing_key and signing == "standard":
            secret(signing_key)
        self.job_id = job_id or job_in(url)
        self.process_id = process_id
        self._address = Address(
            check_url(url), token, self.job_id, dialect, worker, signing, is_signed=bool(signing_key)
        )
        self._key = signing_key or None
        self._patience = Patience(deadline, *backoff, timeout)
        self._folder = spool
        self._min_interval = min_interval
        self._heartbeat = heartbeat
        self._on_spooled = on_spooled
        self._on_stop = on_stop
        self._client = client
        self._owns_client = client is None
        self._newest: bytes | None = None
        self._last: bytes | None = None
        self._offered: asyncio.Event | None = None
        self._pump: asyncio.Task[None] | None = None
        self._line = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._stopped: CallbackError | None = None
        self._has_ended = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of job {self.job_id}>"

    @property
    def cancelled(self) -> bool:
        """Whether the other side asked to stop."""
        return isinstance(self._stopped, Cancelled)

    @property
    def has_ended(self) -> bool:
        """Whether the terminal report was made."""
        return self._has_ended

    # Progress

    async def progress(
        self, percent: float, phase: str = "extract_text", message: str | None = None, process_id: str | None = None
    ) -> None:
        """Say how far the work is. Raises Cancelled or Refused if an earlier answer said that nobody waits for it."""
        self.offer(percent, phase, message, process_id)
        await asyncio.sleep(0)

    def offer(
        self, percent: float, phase: str = "extract_text", message: str | None = None, process_id: str | None = None
    ) -> None:
        """`progress` for code that cannot await, on the loop's own thread."""
        if self._stopped:
            raise self._stopped
        # The dispatcher's contract knows no progress.
        if self._has_ended or self._address.dialect == "dispatcher":
            return
        self._newest = wire.encode(wire.progress(percent, phase, message, process_id or self.process_id))
        if self._offered is None or self._pump is None:
            self._offered = asyncio.Event()
            self._pump = asyncio.create_task(self._send_progress(self._offered))
        self._offered.set()

    async def _send_progress(self, offered: asyncio.Event) -> None:
        """Send the newest, then rest. What was offered meanwhile and overtaken is never sent."""
        loop = asyncio.get_running_loop()
        client = await self._http()
        failures = 0
        while not self._stopped:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._heartbeat if self._last else None):
                    await offered.wait()
            body = self._newest or self._last
            if body is None:
                continue
            self._newest, self._last = None, body
            offered.clear()
            began = loop.time()
            async with self._line:
                answer = await self._try(client, body)
            failures = 0 if answer.is_ok else failures + 1
            if not answer.is_ok and not self._newest:
                self._newest = body
                offered.set()
            rest = self._min_interval - (loop.time() - began)
            if failures:
                pause = self._patience.pause(failures, answer.retry_after)
                rest = max(rest, pause if answer.retry_after else min(pause, SLOWEST_PROGRESS_S))
            await asyncio.sleep(max(0.0, rest))

    async def _try(self, client: httpx2.AsyncClient, body: bytes) -> Answer:
        address = replace(self._address, message_id=f"msg_{uuid4().hex}")
        try:
            answer = await post(client, address, self._key, body, self._patience.timeout_s / 10)
        except httpx2.RequestError as error:
            log.info("progress_lost job=%s why=%s", self.job_id, type(error).__name__)
            return Answer(503)
        if not answer.is_ok and not answer.may_pass:
            self._stop(Refused(answer.status, answer.code, self.job_id))
        elif answer.data.get("cancel_requested") is True:
            self._stop(Cancelled(self.job_id))
        return answer

    def _stop(self, why: CallbackError) -> None:
        if self._stopped:
            return
        log.warning("job_unwanted job=%s why=%s", self.job_id, why)
        self._stopped = why
        if self._on_stop:
            self._on_stop(why)

    # Terminal reports

    async def complete(
        self,
        text: str | Path | None = None,
        *,
        images: Images | None = None,
        pages: Pages = (),
        result_key: str | None = None,
        message: str | None = None,
        images_name: str = "images.zip",
        result_metadata: Mapping[str, Any] | None = None,
    ) -> Receipt:
        """The work is done. *text* may be a file; *images* a folder, a ZIP, or (name, bytes or file) one by one.

        The dispatcher's contract carries no content: upload it, and give the *result_key*.
        """
        if self._address.dialect == "dispatcher":
            if result_key is None or text is not None or images is not None:
                raise ValueError("a dispatcher's result lies in the object store: upload it, and give only result_key")
            return await self.finish("completed", 0, result_key=result_key, result_metadata=result_metadata)
        final = wire.Final(text, images, pages, result_key, message, images_name)
        return await self._end(final.write)

    async def fail(self, code: str, message: str, details: Mapping[str, Any] | None = None) -> Receipt:
        """The work failed. *code* is stable, *message* is for people."""
        if self._address.dialect == "dispatcher":
            return await self.finish("failed", 1, error_message=f"[{code}] {message}", result_metadata=details)
        return await self._end_with(wire.failed(code, message, details))

    async def finish(
        self,
        status: Status,
        exit_code: int | None = None,
        result_key: str | None = None,
        result_metadata: Mapping[str, Any] | None = None,
        error_message: str | None = None,
        log_stream: str | None = None,
    ) -> Receipt:
        """The dispatcher's terminal report."""
        if self._address.dialect != "dispatcher":
            raise ValueError("finish() is the dispatcher's; a secretary says complete() or fail()")
        return await self._end_with(
            wire.finished(
                self.job_id,
                status,
                exit_code=exit_code,
                result_key=result_key,
                result_metadata=result_metadata,
                error_message=error_message,
                log_stream=log_stream,
            )
        )

    async def cancel(self) -> Receipt:
        """The work was stopped because somebody asked for it."""
        if self._address.dialect == "dispatcher":
            return await self.finish("cancelled", error_message="cancelled on request")
        return await self.fail("CANCELLED", "cancelled on request")

    async def _end_with(self, report: Mapping[str, Any]) -> Receipt:
        body = wire.encode(report)

        def write(out: BinaryIO) -> None:
            out.write(body)

        return await self._end(write)

    async def _end(self, write: Callable[[BinaryIO], None]) -> Receipt:
        if self._has_ended:
            raise RuntimeError(f"job {self.job_id} has had its terminal report")
        spool = await asyncio.to_thread(self._open_spool)
        try:
            held = await self._keep(spool, write)
            try:
                await self._end_progress()
                return await deliver(await self._http(), held, self._key, self._patience)
            finally:
                held.release()
                await self.aclose()
        finally:
            spool.discard()

    def _open_spool(self) -> Spool:
        return Spool(self._folder) if self._folder else Spool.temporary()

    async def _keep(self, spool: Spool, write: Callable[[BinaryIO], None]) -> Held:
        address = replace(self._address, message_id=f"msg_{uuid4().hex}")

        def keep() -> Held:
            held = spool.add(address, write)
            self._has_ended = True
            if self._on_spooled:
                self._on_spooled()
            return held

        keeping = asyncio.ensure_future(asyncio.to_thread(keep))
        try:
            return await asyncio.shield(keeping)
        except asyncio.CancelledError:
            # A thread cannot be stopped: what it wrote is a report, and waits for `resume`.
            await asyncio.wait({keeping})
            if not keeping.exception():
                keeping.result().release()
            raise

    async def _end_progress(self) -> None:
        """No progress after the end: what is on its way may arrive, what waits is dropped."""
        pump, self._pump, self._newest = self._pump, None, None
        if not pump:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORD_S), self._line:
                pump.cancel()
        pump.cancel()
        await asyncio.wait({pump})

    async def _http(self) -> httpx2.AsyncClient:
        async with self._opening:
            if self._client is None:
                self._client = await asyncio.to_thread(open_client, connections=2)
            return self._client

    async def aclose(self) -> None:
        """Stop reporting, without a terminal report."""
        await self._end_progress()
        if self._owns_client and self._client:
            await self._client.aclose()
            self._client = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """An exception inside becomes the terminal report, and goes on; being cancelled is no exception."""
        try:
            return await self._say_goodbye(error)
        finally:
            await self.aclose()

    async def _say_goodbye(self, error: BaseException | None) -> bool:
        if error is None or self._has_ended or isinstance(error, Refused):
            return False
        if isinstance(error, Cancelled):
            await self.cancel()
            return True
        if isinstance(error, Exception):
            await self.fail("WORKER_ERROR", f"{type(error).__name__}: {error}")
        return False


class Callback:
    """`AsyncCallback` without an event loop: the same words, each returns when it is done."""

    def __init__(self, url: str, token: str, **options: Unpack[Options]) -> None:
        self._inner = AsyncCallback(url, token, **options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def __repr__(self) -> str:
        return f"<Callback of job {self.job_id}>"

    @property
    def job_id(self) -> str:
        return self._inner.job_id

    @property
    def cancelled(self) -> bool:
        return self._inner.cancelled

    @property
    def has_ended(self) -> bool:
        return self._inner.has_ended

    def progress(
        self, percent: float, phase: str = "extract_text", message: str | None = None, process_id: str | None = None
    ) -> None:
        """Say how far the work is, and go on at once."""
        if self._inner._stopped:
            raise self._inner._stopped
        if self.has_ended:
            return

        def offer() -> None:
            with suppress(CallbackError):  # the next call raises it
                self._inner.offer(percent, phase, message, process_id)

        self._running().call_soon_threadsafe(offer)

    def complete(
        self,
        text: str | Path | None = None,
        *,
        images: Images | None = None,
        pages: Pages = (),
        result_key: str | None = None,
        message: str | None = None,
        images_name: str = "images.zip",
        result_metadata: Mapping[str, Any] | None = None,
    ) -> Receipt:
        return self._end(
            self._inner.complete(
                text,
                images=images,
                pages=pages,
                result_key=result_key,
                message=message,
                images_name=images_name,
                result_metadata=result_metadata,
            )
        )

    def fail(self, code: str, message: str, details: Mapping[str, Any] | None = None) -> Receipt:
        return self._end(self._inner.fail(code, message, details))

    def finish(
        self,
        status: Status,
        exit_code: int | None = None,
        result_key: str | None = None,
        result_metadata: Mapping[str, Any] | None = None,
        error_message: str | None = None,
        log_stream: str | None = None,
    ) -> Receipt:
        return self._end(self._inner.finish(status, exit_code, result_key, result_metadata, error_message, log_stream))

    def cancel(self) -> Receipt:
        return self._end(self._inner.cancel())

    def close(self) -> None:
        """Stop reporting. After a terminal report there is nothing left to close."""
        if self._loop and self._thread:
            self._wait(self._inner.aclose())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop = self._thread = None

    def _end(self, report: Coroutine[Any, Any, Receipt]) -> Receipt:
        try:
            return self._wait(report)
        finally:
            if self.has_ended:
                self.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._running())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                name = f"report-{self.job_id[:8]}"
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name=name, daemon=True)
                self._thread.start()
            return self._loop

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            return not self.has_ended and self._wait(self._inner.__aexit__(kind, error, trace))
        finally:
            self.close()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def job_in(url: str) -> str:
    """The job's id: `…/jobs/<id>` and `…/tasks/<id>/callback/` carry it in their path."""
    parts = [unquote(part) for part in urlsplit(url).path.split("/") if part]
    if parts and parts[-1] == "callback":
        parts.pop()
    if not parts:
        raise ValueError("the address names no job; give job_id")
    return parts[-1]


async def resume_async(
    spool: Path,
    *,
    signing_key: str | None = None,
    refused: bool = False,
    deadline: float = DAY_S,
    timeout: float = 120.0,  # noqa: ASYNC109 - of each try, not of a call
    backoff: tuple[float, float] = (0.5, 60.0),
    client: httpx2.AsyncClient | None = None,
) -> list[Receipt | Exception]:
    """Deliver what killed workers left in the spool; with *refused* also what was refused before.

    What a living process delivers is left to it. Every report ends as its receipt or the error that stopped it.
    """
    reports = await asyncio.to_thread(Spool(spool).take_all, refused=refused)
    patience = Patience(deadline, *backoff, timeout)
    http = client or open_client()
    try:
        ends = await asyncio.gather(
            *(deliver(http, held, signing_key, patience) for held in reports), return_exceptions=True
        )
    finally:
        if client is None:
            await http.aclose()
    for end in ends:
        if isinstance(end, BaseException) and not isinstance(end, Exception):
            raise end
    return [end for end in ends if isinstance(end, Receipt | Exception)]


def resume(
    spool: Path,
    *,
    signing_key: str | None = None,
    refused: bool = False,
    deadline: float = DAY_S,
    timeout: float = 120.0,
    backoff: tuple[float, float] = (0.5, 60.0),
) -> list[Receipt | Exception]:
    """`resume_async` without an event loop."""
    return asyncio.run(
        resume_async(
            spool, signing_key=signing_key, refused=refused, deadline=deadline, timeout=timeout, backoff=backoff
        )
    )
