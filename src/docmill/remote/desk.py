"""The jobs of a worker server: taken, run a few at a time, reported; and taken up again after a kill.

A job is a folder: `job.json` (what was asked, and the token to answer with), the source, and what the parser made of
it. The folder goes as soon as the terminal report is safe in the spool.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import shutil
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from uuid import uuid4

import httpx2

from . import brief as briefs
from . import wire
from .brief import JobFault
from .callback import AsyncCallback, resume_async
from .delivery import Receipt, open_client
from .errors import CallbackError, Refused, is_storage_full
from .signing import Signing
from .spool import Spool, write_private
from .wire import Dialect, Status

log = logging.getLogger("docmill.remote")

MAX_STARTS = 3
KEEP_ENDED = 1_000
KEEP_REFUSED_S = 7 * 86_400.0
RESUME_EVERY_S = 3_600.0
HEARTBEAT_S = 10.0
FULL_RETRY_S = 5.0
"""Between two looks whether the disk has room again."""
RESTARTED = "WORKER_RESTARTED"

PageReport = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True)
class Order:
    """One document to parse. Images go to `folder/assets`."""

    source: Path
    filename: str
    folder: Path
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Parsed:
    markdown: str
    pages: Sequence[tuple[int, str]]
    """Markdown by page, counted from 1."""
    facts: dict[str, Any] = field(default_factory=dict)


class Parser(Protocol):
    """Whatever turns a document into Markdown."""

    async def parse(self, order: Order, report: PageReport) -> Parsed:
        """An exception with a `code` is reported under it. When cancelled, everything has ended before it returns."""
        ...


@dataclass(frozen=True, slots=True)
class Record:
    """What is written down of a job."""

    id: str
    dialect: Dialect
    callback_url: str
    token: str = field(repr=False)
    process_id: str
    """As the caller knows it: `process.id`, or the task's id."""
    filename: str = "document"
    size: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    wants_images: bool = True
    brief_url: str = field(default="", repr=False)
    timeout_s: float | None = None
    accepted: float = field(default_factory=time.time)
    starts: int = 0
    """Times that the work began. Who only waits when the worker dies has nothing to do with its death."""


@dataclass(frozen=True, slots=True)
class Ending:
    status: Status
    code: str = ""
    message: str = ""


@dataclass(slots=True)
class Job:
    record: Record
    folder: Path
    state: str = "queued"
    percent: float = 0.0
    message: str = "queued"
    error: dict[str, str] | None = None
    delivered: bool = False
    stopped_by: CallbackError | str | None = None
    task: asyncio.Task[None] | None = None
    result_key: str | None = None
    is_from_before: bool = False
    """Accepted by an earlier process."""

    @property
    def source(self) -> Path:
        return self.folder / "source"

    @property
    def has_ended(self) -> bool:
        return self.state not in ("queued", "running", "cancelling")

    def stop(self, why: CallbackError | str) -> None:
        """Stop the work; what was reported is on its way and cannot be stopped."""
        if self.has_ended or self.stopped_by is not None:
            return
        self.stopped_by = why
        self.state = "cancelling"
        if self.task:
            self.task.cancel()

    def shown(self) -> dict[str, Any]:
        return {
            "status": self.state,
            "progress": self.percent,
            "message": self.message,
            "error": self.error,
            "delivered": self.delivered,
            "accepted_at": round(self.record.accepted, 3),
        }


class Busy(Exception):
    """Too many jobs wait already."""


class SpoolTaken(Exception):
    """Another server works in the spool."""


class Desk:
    def __init__(
        self,
        parser: Parser,
        spool: Path,
        *,
        slots: int = 2,
        signing_key: str | None = None,
        signing: Signing = "legacy",
        max_waiting: int = 1_000,
        heartbeat_s: float = HEARTBEAT_S,
        backoff: tuple[float, float] = (0.5, 60.0),
    ) -> None:
        self._parser = parser
        self._root = spool
        self._jobs_folder = spool / "jobs"
        self._reports = spool / "reports"
        self._slots = asyncio.Semaphore(slots)
        self._signing_key = signing_key or None
        self._signing: Signing = signing
        self._max_waiting = max_waiting
        self._heartbeat_s = heartbeat_s
        self._backoff = backoff
        self._jobs: dict[tuple[Dialect, str], Job] = {}
        self._client: httpx2.AsyncClient | None = None
        self._lock: BinaryIO | None = None
        self._background: set[asyncio.Task[Any]] = set()
        self._is_closing = False

    # Life

    async def open(self) -> None:
        for folder in (self._root, self._jobs_folder, self._reports):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = (self._root / "lock").open("wb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise SpoolTaken(str(self._root)) from None
        self._client = await asyncio.to_thread(open_client, connections=64)
        reports = Spool(self._reports)
        await asyncio.to_thread(reports.forget_refused, KEEP_REFUSED_S)
        reported = await asyncio.to_thread(reports.urls)
        self._later(self._resume())
        for folder in sorted(self._jobs_folder.iterdir()):
            self._take_up(folder, reported)

    async def close(self) -> None:
        """Stop without a word: the folders of what was running stay, and the next start takes them up."""
        self._is_closing = True
        tasks = {job.task for job in self._jobs.values() if job.task and not job.task.done()} | self._background
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._client:
            await self._client.aclose()
        if self._lock:
            self._lock.close()

    async def _resume(self) -> None:
        """Deliver what an earlier process left; and from time to time, what was given up after its deadline."""
        while True:
            ends = await resume_async(
                self._reports, signing_key=self._signing_key, backoff=self._backoff, client=self._client
            )
            for end in ends:
                if isinstance(end, Receipt):
                    log.info("report_resumed job=%s tries=%d", end.job_id, end.tries)
                else:
                    log.error("report_not_resumed why=%s", end)
            await asyncio.sleep(RESUME_EVERY_S)

    def _take_up(self, folder: Path, reported: set[str]) -> None:
        """A job of before: reported already, to be run again, or to be given up."""
        try:
            record = Record(**json.loads((folder / "job.json").read_bytes()))
        except (OSError, ValueError, TypeError):
            log.warning("job_unreadable folder=%s", folder.name)
            shutil.rmtree(folder, ignore_errors=True)
            return
        if record.callback_url in reported:
            shutil.rmtree(folder, ignore_errors=True)
            return
        job = Job(record, folder, is_from_before=True)
        shutil.rmtree(folder / "out", ignore_errors=True)
        self._remember(job)
        is_there = record.dialect == "dispatcher" or (job.source.is_file() and job.source.stat().st_size == record.size)
        if is_there and record.starts < MAX_STARTS:
            log.info("job_again job=%s starts=%d", record.process_id, record.starts)
            job.task = asyncio.create_task(self._safely(job, self._run(job)))
        else:
            ending = Ending("failed", RESTARTED, "the worker was restarted while the job ran")
            job.task = asyncio.create_task(self._safely(job, self._give_up(job, ending)))

    # Jobs

    def find(self, dialect: Dialect, process_id: str) -> Job | None:
        return self._jobs.get((dialect, process_id))

    def find_by_callback(self, url: str) -> Job | None:
        return next((job for job in self._jobs.values() if job.record.callback_url == url), None)

    def counts(self) -> dict[str, int]:
        states = [job.state for job in self._jobs.values()]
        return {
            "running": states.count("running"),
            "waiting": states.count("queued"),
            "undelivered": len(Spool(self._reports).waiting()),
        }

    def check_room(self) -> None:
        if self._is_closing or sum(not job.has_ended for job in self._jobs.values()) >= self._max_waiting:
            raise Busy

    def new_folder(self) -> Path:
        """Where a job's source may be streamed to before the job is accepted."""
        folder = self._jobs_folder / f"{time.time_ns():020d}-{uuid4().hex[:8]}"
        folder.mkdir(mode=0o700)
        return folder

    def accept(self, record: Record, folder: Path) -> Job:
        """Write the job down, then start it. Who calls must answer only afterwards."""
        job = Job(record, folder)
        self._write(job)
        self._remember(job)
        job.task = asyncio.create_task(self._safely(job, self._run(job)))
        return job

    def _remember(self, job: Job) -> None:
        self._jobs[job.record.dialect, job.record.process_id] = job
        ended = [key for key, one in self._jobs.items() if one.has_ended and (one.task is None or one.task.done())]
        for key in ended[:-KEEP_ENDED]:
            del self._jobs[key]

    def _write(self, job: Job) -> None:
        write_private(job.folder / "job.json", json.dumps(asdict(job.record)).encode())

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # One job

    def _callback(self, job: Job) -> AsyncCallback:
        record = job.record
        return AsyncCallback(
            record.callback_url,
            record.token,
            dialect=record.dialect,
            signing_key=self._signing_key,
            signing=self._signing,
            process_id=record.process_id,
            spool=self._reports,
            worker="docmill-worker",
            heartbeat=self._heartbeat_s,
            backoff=self._backoff,
            on_spooled=lambda: shutil.rmtree(job.folder, ignore_errors=True),
            on_stop=job.stop,
            client=self._client,
        )

    async def _safely(self, job: Job, work: Coroutine[Any, Any, None]) -> None:
        """Not even the report could be made (the disk is full): the folder stays for the next start."""
        try:
            await work
        except Exception as error:
            log.exception("job_stuck job=%s", job.record.process_id)
            job.state, job.error = "failed", {"code": "WORKER_ERROR", "message": type(error).__name__}

    async def _run(self, job: Job) -> None:
        async with self._callback(job) as callback:
            ending = await self._work(job, callback)
            if isinstance(job.stopped_by, Refused):
                # Nobody knows the job any more: there is nothing to say and nobody to say it to.
                self._end(job, Ending("failed", "callback_refused", str(job.stopped_by)))
                await asyncio.to_thread(shutil.rmtree, job.folder, ignore_errors=True)
            elif isinstance(ending, Ending):
                await self._report(job, callback, ending)
            else:
                await self._report(job, callback, Ending("completed"), ending)

    async def _give_up(self, job: Job, ending: Ending) -> None:
        async with self._callback(job) as callback:
            await self._report(job, callback, ending)

    async def _work(self, job: Job, callback: AsyncCallback) -> Parsed | Ending:
        """Every way in which the work can end, but for our own shutdown: that goes on as CancelledError."""
        timeout_s = job.record.timeout_s
        left = None if timeout_s is None else max(0.0, timeout_s - (time.time() - job.record.accepted))
        try:
            async with asyncio.timeout(left) as timer:
                self._offer(callback, 0, "queued", "queued")
                async with self._slots:
                    self._begin(job)
                    return await self._parse_with_room(job, callback)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if job.stopped_by is None or self._is_closing or task is None:
                self._leave(job)
                raise
            task.uncancel()
            return Ending("cancelled", "CANCELLED", "cancelled on request")
        except Exception as error:
            if timer.expired():
                return Ending("timed_out", "task_timeout", f"the job took longer than {timeout_s:g} s")
            return _ending_of(error, job)

    def _begin(self, job: Job) -> None:
        job.state = "running"
        job.record = replace(job.record, starts=job.record.starts + 1)
        with suppress(OSError):  # a start that cannot be counted is no reason not to begin
            self._write(job)

    def _leave(self, job: Job) -> None:
        """A planned stop is no strike against the job."""
        if job.state == "queued":
            return
        job.record = replace(job.record, starts=max(0, job.record.starts - 1))
        with suppress(OSError):
            self._write(job)

    async def _parse_with_room(self, job: Job, callback: AsyncCallback) -> Parsed:
        """A full disk is not the document's fault: tried again for as long as the job may take."""
        while True:
            try:
                return await self._parse(job, callback)
            except Exception as error:
                if not is_storage_full(error):
                    raise
                log.warning("storage_full job=%s", job.record.process_id)
            self._offer(callback, job.percent, "queued", "the disk of the worker is full")
            await asyncio.to_thread(shutil.rmtree, job.folder / "out", ignore_errors=True)
            await asyncio.sleep(FULL_RETRY_S)

    async def _parse(self, job: Job, callback: AsyncCallback) -> Parsed:
        record, brief = job.record, None
        options, filename = record.options, record.filename
        if self._client is None:
            raise RuntimeError("the desk is not open")
        if record.dialect == "dispatcher":
            brief = await briefs.fetch(self._client, record.brief_url, record.process_id)
            if not job.source.exists():
                await briefs.download(self._client, brief, job.source)
            options, filename = brief.options, brief.filename
        out = job.folder / "out"
        out.mkdir()

        def report(done: int, total: int | None) -> None:
            job.percent = round(5 + 85 * min(1.0, done / total), 1) if total else job.percent
            job.message = f"page {done} of {total}" if total else f"page {done}"
            self._offer(callback, job.percent, "extract_text", job.message)

        parsed = await self._parser.parse(Order(job.source, filename, out, options), report)
        self._offer(callback, 95, "finalizing", "finalizing")
        if brief:
            archive = job.folder / "output.zip"
            await asyncio.to_thread(_pack_result, archive, parsed.markdown, out / "assets")
            await briefs.upload(self._client, brief, archive)
            job.result_key = brief.result_key
        return parsed

    @staticmethod
    def _offer(callback: AsyncCallback, percent: float, phase: str, message: str) -> None:
        with suppress(CallbackError):  # `on_stop` has cancelled the job
            callback.offer(percent, phase, message)

    async def _report(self, job: Job, callback: AsyncCallback, ending: Ending, parsed: Parsed | None = None) -> None:
        self._end(job, ending)
        while True:
            try:
                await self._say(job, callback, ending, parsed)
                job.delivered = True
                return
            except CallbackError as error:
                log.error("report_undelivered job=%s why=%s", job.record.process_id, error)
                return
            except OSError as error:
                # Nothing was sent yet: a report is written to the spool first.
                if not is_storage_full(error) or callback.has_ended:
                    raise
                log.warning("storage_full job=%s", job.record.process_id)
            await asyncio.sleep(FULL_RETRY_S)

    async def _say(self, job: Job, callback: AsyncCallback, ending: Ending, parsed: Parsed | None) -> None:
        if job.record.dialect == "dispatcher":
            facts = parsed.facts if parsed else {}
            why = f"[{ending.code}] {ending.message}" if ending.code else None
            code = {"completed": 0, "failed": 1}.get(ending.status)
            await callback.finish(ending.status, code, job.result_key if parsed else None, facts, why)
        elif parsed:
            # Entries are named as the Markdown links to them.
            images = (
                list(wire.folder_items(job.folder / "out" / "assets", "assets/")) if job.record.wants_images else []
            )
            await callback.complete(
                parsed.markdown, pages=parsed.pages, images=images or None, message=f"{len(parsed.pages)} pages"
            )
        else:
            await callback.fail(ending.code, ending.message)

    @staticmethod
    def _end(job: Job, ending: Ending) -> None:
        job.state = ending.status
        job.message = ending.message or ending.status
        job.percent = 100.0 if ending.status == "completed" else job.percent
        job.error = {"code": ending.code, "message": ending.message} if ending.code else None
        log.info("job_ended job=%s status=%s code=%s", job.record.process_id, ending.status, ending.code)


def _ending_of(error: Exception, job: Job) -> Ending:
    code, message = getattr(error, "code", None), getattr(error, "message", None)
    if isinstance(error, JobFault) and job.is_from_before and code in ("brief_unavailable", "source_unavailable"):
        return Ending("failed", RESTARTED, f"the worker was restarted, and meanwhile {message}")
    if isinstance(code, str) and code:
        return Ending("failed", code, str(message or error))
    log.error("job_broke job=%s", job.record.process_id, exc_info=error)
    return Ending("failed", "WORKER_ERROR", f"{type(error).__name__}: {error}"[:500])


def _pack_result(archive: Path, markdown: str, assets: Path) -> None:
    items: list[tuple[str, bytes | Path]] = [("document.md", markdown.encode("utf-8", "replace"))]
    with archive.open("w+b") as out:
        wire.pack(out, items + list(wire.folder_items(assets, "assets/")))
