"""One child process as its parent sees it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import structlog

from docmill.adapters.engines.confine import LEAST_FILE_MB, MB, bare_environment
from docmill.adapters.engines.sandbox.home import PREFIX, Home, UnsafeResult, remove_tree
from docmill.adapters.engines.sandbox.levels import Isolation, Level, judge
from docmill.core.errors import SENTENCES, DocumentError, NotFound, StageFailed, Unavailable
from docmill.core.parsed import Figure, Parsed

from . import frames
from .gathering import Gathered, LongDocument, named_files
from .limits import NO_MEMORY, Limits

if TYPE_CHECKING:
    from docmill.ports import PageReport, Work

log = structlog.get_logger(__name__)

T = TypeVar("T")

STDERR_KEPT = 8 * 1024
WATCH_S = 0.1
READY_S = 60.0
"""How long a child may take to start, on a crowded machine."""
MEASURE_S = 1.0
"""How often the disk that a child uses is measured."""
LITTLE_MB = 128
"""A child that dies with less than this left of its address space died of that."""


class ChildLost(Exception):
    """The child was gone before it took the document: another one may take it."""


class Child:
    """A process that parses one document at a time. Whoever holds it decides when it ends."""

    def __init__(
        self, process: asyncio.subprocess.Process, home: Home, limits: Limits, *, needs_full: bool = False
    ) -> None:
        self.documents = 0
        self.rss_mb = 0
        self.tenant: str | None = None
        """Whose documents it reads; None: nobody's so far. One that was taken over must not meet those of others."""
        self.isolation: Isolation | None = None
        """Known as soon as it has said it, which is before it reads a document."""
        self._process = process
        self._home = home
        self._needs_full = needs_full
        self._placed: tuple[object, ...] | None = None
        self._is_over_disk = False
        self._limits = limits
        self._stderr = bytearray()
        self._size_mb = 0
        self._oom_kills = count_oom_kills()
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise ValueError("a child is spoken to through its three pipes")
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._draining = asyncio.create_task(self._drain(process.stderr))

    @classmethod
    async def spawn(
        cls, module: str | Path, limits: Limits, scratch: Path | None = None, *, needs_full: bool = False
    ) -> Child:
        """Its folder is made in *scratch*. With *needs_full* it takes no document below that level."""
        home = await asyncio.to_thread(Home.make, scratch)
        setup = json.dumps(
            {"parent": os.getpid(), "memory_mb": limits.memory_mb, "output_mb": limits.output_mb} | home.setup()
        )
        # -I: neither the working folder nor the environment may lend modules to the child.
        program = ("-I", str(module)) if isinstance(module, Path) else ("-I", "-m", module)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *program,
                setup,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=home.temp,
                env=bare_environment(home.temp),
                start_new_session=True,
                limit=1024 * 1024,
            )
        except BaseException:
            home.remove()
            raise
        return cls(process, home, limits, needs_full=needs_full)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    @property
    def stderr(self) -> str:
        """The last words, for diagnosis. They may quote the document: not for the log of everyday."""
        return self._stderr.decode("utf-8", "replace")

    @property
    def is_worn(self) -> bool:
        return self.documents >= self._limits.documents_per_child or self.rss_mb > self._limits.child_rss_mb

    @property
    def out(self) -> Path:
        return self._home.out

    async def run(self, work: Work, report: PageReport) -> Parsed | frames.Long:
        """Parse one document, unless it is so long that its windows had better be read one by one."""
        await self._place(work.source, may_link=work.is_source_ours)
        found = await self._supervised(self._order(work), self._collect(work.folder, report), self._limits.seconds)
        if isinstance(found, Parsed):
            await self._forget()
        return found

    async def part(self, document: LongDocument, window: frames.Window) -> None:
        """Read a window of a long document."""
        await self._place(document.work.source, may_link=document.work.is_source_ours)
        order = frames.Part(self._order(document.work), window, document.total)
        await self._supervised(order, self._collect_part(document, window), self._limits.seconds)

    def _order(self, work: Work) -> frames.Parse:
        return frames.Parse(
            source=str(self._home.input),
            filename=work.filename,
            folder=str(self._home.out),
            options=work.options,
            limits=asdict(self._limits),
        )

    async def _place(self, source: Path, *, may_link: bool) -> None:
        """Give it the document, unless it has it already, and an empty folder for results."""
        await self.confirm()
        try:
            found = await asyncio.to_thread(os.stat, source)
            identity = (source, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if identity == self._placed:
                await asyncio.to_thread(self._home.clear)
                return
            self._placed = None
            await asyncio.to_thread(self._home.place, source, may_link=may_link)
        except OSError as error:
            self.documents = self._limits.documents_per_child  # its folder may be at fault: replace it
            raise storage_failed(error) from error
        except asyncio.CancelledError:
            await self.kill()  # the copy may still be under way
            raise
        self._placed = identity

    async def _forget(self) -> None:
        """An idle child keeps nothing of a document on disk. If that fails, its next order says so."""
        self._placed = None
        with contextlib.suppress(OSError):
            await asyncio.to_thread(self._home.forget)

    def call(self) -> None:
        """Somebody waits for the child's place: it gives its window back after the page that it is at."""
        with contextlib.suppress(ConnectionError, RuntimeError):  # if it just ended, its place is free anyway
            self._stdin.write(frames.pack(frames.Stop()))

    async def conclude(self, document: LongDocument) -> Parsed:
        """All windows of a long document are read: what is to be said of the whole."""
        work, facts = document.work, document.facts
        await self._place(work.source, may_link=work.is_source_ours)
        order = frames.Conclude(
            source=str(self._home.input),
            options=work.options,
            limits=asdict(self._limits),
            media_type=facts.media_type,
            title=facts.title,
            so_far=document.conclusion(),
        )
        parsed = await self._supervised(order, self._conclusion(document), self._limits.seconds)
        await self._forget()
        return parsed

    async def draw(self, source: Path, page: int, width: int) -> bytes:
        """One page as PNG."""
        await self._place(source, may_link=True)
        order = frames.Render(str(self._home.input), page, width, asdict(self._limits))
        png = await self._supervised(order, self._picture(), self._limits.render_seconds)
        await self._forget()
        return png

    async def _supervised(self, order: frames.Order, listening: Coroutine[None, None, T], seconds: float) -> T:
        """Give the order and listen. When this raises anything but an error that a living child reported,
        the child has ended."""
        self.documents += 1
        for _ in range(3):  # what the document before said may still be on its way to us
            await asyncio.sleep(0)
        self._stderr.clear()
        watching = asyncio.create_task(self._watch())
        try:
            async with asyncio.timeout(seconds):
                return await self._converse(order, listening, seconds)
        except TimeoutError:
            await self.kill()
            raise StageFailed("parse_timeout", seconds=round(seconds, 1)) from None
        except (frames.BadFrame, UnsafeResult):
            await self.kill()
            raise StageFailed("parse_crashed", how="it broke the protocol") from None
        except (DocumentError, StageFailed, NotFound):
            raise
        except BaseException:
            await self.kill()
            raise
        finally:
            watching.cancel()

    async def _converse(self, order: frames.Order, listening: Coroutine[None, None, T], seconds: float) -> T:
        started = False
        try:
            await self.ready()
            self._stdin.write(frames.pack(order))
            await self._stdin.drain()
            answer = await self._receive()
            started = isinstance(answer, frames.Started)
            self._home.started.touch()
            return await listening
        except (asyncio.IncompleteReadError, ConnectionError):
            if not started:
                await self.kill()
                raise ChildLost(self.stderr) from None
            raise await self._post_mortem(seconds) from None
        finally:
            listening.close()

    async def confirm(self) -> Isolation:
        """Wait until it is confined, without an order."""
        try:
            async with asyncio.timeout(READY_S):
                return await self.ready()
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError, frames.BadFrame):
            await self.kill()
            raise ChildLost(self.stderr) from None
        except BaseException:
            await self.kill()
            raise

    async def ready(self) -> Isolation:
        """Wait until it is confined. What it says of that is believed: it has not read a document yet."""
        if self.isolation is None:
            answer = await self._receive()
            if not isinstance(answer, frames.Ready):
                raise frames.BadFrame(f"{type(answer).__name__} at the wrong time")
            self.isolation = judge(answer.layers, answer.possible)
        if self._needs_full and self.isolation.level is not Level.FULL:
            raise Unavailable("sandbox_insufficient", level=self.isolation.level, why=self.isolation.missing())
        return self.isolation

    async def _collect(self, folder: Path, report: PageReport) -> Parsed | frames.Long:
        gathered = Gathered(self._home.out, self._limits)
        while True:
            match await self._receive():
                case frames.Progress(done, total):
                    report(done, total)
                case frames.Finished(page, of_page):
                    gathered.add(page, of_page)
                    await self._check_size(gathered)
                case frames.Done() as done:
                    self.rss_mb = done.rss_mb
                    await self._take_files(gathered.files(done.facts), folder)
                    return self._sign(gathered.parsed(done))
                case frames.Long() as long if not gathered.count and self._is_plausible(long):
                    self.rss_mb = long.rss_mb
                    return long
                case other:
                    self._end(other)

    def _is_plausible(self, long: frames.Long) -> bool:
        return 0 < long.pages <= self._limits.pages and long.window > 0

    async def _collect_part(self, document: LongDocument, window: frames.Window) -> None:
        figures: list[Figure] = []
        while True:
            match await self._receive():
                case frames.Edges(edges):
                    told = frames.Before(await document.before(window, edges))
                    self._stdin.write(frames.pack(told))
                    await self._stdin.drain()
                case frames.Finished(page, of_page):
                    document.add(window, page, of_page, self._home.out)
                    figures += of_page
                    await self._check_size(document.gathered)
                case frames.Read() as read:
                    self.rss_mb = read.rss_mb
                    await self._take_files(named_files(figures, read.so_far.facts), document.work.folder)
                    document.end(window, read)
                    await self._check_size(document.gathered)
                    return
                case other:
                    self._end(other)

    async def _conclusion(self, document: LongDocument) -> Parsed:
        answer = await self._receive()
        if not isinstance(answer, frames.Done):
            self._end(answer)
        self.rss_mb = answer.rss_mb
        return self._sign(document.gathered.parsed(answer))

    async def _take_files(self, wanted: dict[str, str], folder: Path) -> None:
        """Copy its results to where they belong."""
        max_bytes = self._limits.output_mb * MB
        try:
            await asyncio.to_thread(self._home.collect, "assets", wanted, folder / "assets", max_bytes)
        except OSError as error:
            raise storage_failed(error) from error

    def _sign(self, parsed: Parsed) -> Parsed:
        """How the parser was confined is said by us: it may have been taken over since."""
        known = self.isolation.facts() if self.isolation else {}
        return replace(parsed, facts={**parsed.facts, "isolation": known})

    async def _check_size(self, gathered: Gathered) -> None:
        if gathered.is_too_much:
            await self.kill()
            raise StageFailed("parse_output_too_large", limit_mb=self._limits.output_mb)

    async def _picture(self) -> bytes:
        answer = await self._receive()
        if not isinstance(answer, frames.Drawn):
            self._end(answer)
        self.rss_mb = answer.rss_mb
        return answer.png

    def _end(self, answer: frames.Answer) -> NoReturn:
        """What is none of the expected answers is the child's failure, or nonsense."""
        if not isinstance(answer, frames.Failed):
            raise frames.BadFrame(f"{type(answer).__name__} at the wrong time")
        self.rss_mb = answer.rss_mb
        if answer.kind == "stage":
            self.documents = self._limits.documents_per_child  # it may have been hurt: replace it
        raise rebuild(answer.kind, answer.code, answer.facts)

    async def _receive(self) -> frames.Answer:
        size = frames.length(await self._stdout.readexactly(frames.HEADER))
        return frames.read_answer(await self._stdout.readexactly(size))

    async def _watch(self) -> None:
        """Know how large the child was: when there is no memory left, PDFium dies without a word."""
        loop = asyncio.get_running_loop()
        due = loop.time() + MEASURE_S
        with opened_size(self.pid) as read_mb:
            while True:
                self._size_mb = read_mb() or self._size_mb
                await asyncio.sleep(WATCH_S)
                if loop.time() >= due:
                    await self._watch_disk()
                    due = loop.time() + MEASURE_S

    async def _watch_disk(self) -> None:
        """The limit of one file does not limit their number."""
        used = await asyncio.to_thread(self._home.used_bytes, self.pid)
        if used > (self._limits.output_mb + LEAST_FILE_MB) * MB:
            self._is_over_disk = True
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _post_mortem(self, seconds: float) -> StageFailed:
        """The child closed its mouth: find out how it died."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self._process.wait()
        code = self._process.returncode
        await self.kill()
        if self._is_over_disk:
            return StageFailed("parse_output_too_large", limit_mb=self._limits.output_mb)
        if code == -signal.SIGXCPU:
            return StageFailed("parse_timeout", seconds=round(seconds, 1))
        how = f"signal {-code}" if code is not None and code < 0 else f"exit {code}"
        log.warning("parser_died", pid=self.pid, how=how, size_mb=self._size_mb, documents=self.documents)
        log.debug("parser_last_words", pid=self.pid, stderr=self.stderr)
        if (
            NO_MEMORY.search(self.stderr)
            or self._limits.memory_mb - self._size_mb < LITTLE_MB
            or (code == -signal.SIGKILL and count_oom_kills() > self._oom_kills)
        ):
            return StageFailed("parse_memory", limit_mb=self._limits.memory_mb)
        return StageFailed("parse_crashed", how=how)

    async def kill(self) -> None:
        """End the whole process group and wait until it is gone; a second cancellation does not stop this."""
        ending = asyncio.ensure_future(self._kill())
        cancelled = False
        while not ending.done():
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError:
                cancelled = True
        ending.result()
        if cancelled:
            raise asyncio.CancelledError

    async def _kill(self) -> None:
        # The group outlives its leader as long as a member lives, so this is also right after a crash.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        self._stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self._draining
        await asyncio.to_thread(self._home.remove)

    async def _drain(self, stderr: asyncio.StreamReader) -> None:
        while chunk := await stderr.read(4096):
            self._stderr += chunk
            del self._stderr[:-STDERR_KEPT]


@contextlib.contextmanager
def opened_size(pid: int) -> Iterator[Callable[[], int]]:
    """Something to call for the address space of a process; 0 when it has none any more."""

    def read_mb() -> int:
        try:
            return int(os.pread(facts, 64, 0).split()[0]) * resource.getpagesize() >> 20
        except (OSError, IndexError):
            return 0

    try:
        facts = os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield lambda: 0
        return
    try:
        yield read_mb
    finally:
        os.close(facts)


def count_oom_kills() -> int:
    """How many processes the system has killed for want of memory, in whatever container."""
    try:
        found = re.search(r"^oom_kill (\d+)", Path("/proc/vmstat").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def rebuild(kind: str, code: str, facts: dict[str, object]) -> DocumentError | StageFailed | NotFound:
    """The child's error as ours."""
    kinds: dict[str, type[DocumentError | StageFailed | NotFound]] = {"document": DocumentError, "missing": NotFound}
    error = kinds.get(kind, StageFailed)
    try:
        return error(code, **facts) if code in SENTENCES else StageFailed("stage_failed", why=code)
    except (KeyError, TypeError) as missing:
        raise frames.BadFrame(f"facts of {code}") from missing


def storage_failed(error: OSError) -> StageFailed:
    return StageFailed("storage_failed", why=error.strerror or type(error).__name__)


def sweep_temp() -> None:
    """Remove what children of a service left that was killed without a chance to tidy up."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        owner = folder.name.removeprefix(PREFIX).split("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            remove_tree(folder, ignore_errors=True)
