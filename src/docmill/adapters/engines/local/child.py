"""The child: confine itself, get warm while nobody asks, parse one document after the other."""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import json
import os
import select
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from docmill.core.errors import DocumentError, NotFound, StorageFull, unwrap
from docmill.core.parsed import Figure, Page

from ..confine import allow_cpu, confine, give_back, resident_mb
from . import frames
from .job import Job, OutputTooLarge
from .limits import NO_MEMORY, Limits

PATIENCE_S = 0.2
"""After a restart documents are waiting: the first one should not wait for imports that it may not need."""
YOUNG = 20_000
"""So many new objects, and the collector looks at them: a page makes many that go by themselves."""
PRELOADED = (
    "PIL.Image",
    "PIL.JpegImagePlugin",
    "PIL.PngImagePlugin",
    "docmill.adapters.engines.local.reading",
    "docmill.adapters.engines.local.pdf",
    "pypdfium2",
    "docvortex.api",
    "docvortex.analyzers.native.models",
    "docvortex.analyzers.native.pdf.pipeline",
    "docvortex.postprocess.document",
    "docvortex.render.api",
    "py3langid.langid",
)


class Line:
    """The way to the parent."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self._in = incoming
        self._out = outgoing

    def waits(self, seconds: float = 0) -> bool:
        """Did the parent say something that we have not read yet, or does it within *seconds*?"""
        return bool(select.select([self._in], [], [], seconds)[0])

    def receive(self) -> frames.Order | None:
        header = self._read(frames.HEADER)
        return frames.read_order(self._read(frames.length(header))) if header else None

    def send(self, message: msgspec.Struct) -> None:
        view = memoryview(frames.pack(message))
        while view:
            view = view[os.write(self._out, view) :]

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            part = os.read(self._in, min(size, 1 << 20))
            if not part:
                return b""
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def main() -> None:
    isolation = confine(**json.loads(sys.argv[1]))
    line = Line(os.dup(0), os.dup(1))
    line.send(frames.Ready(dict(isolation.layers), list(isolation.possible)))
    # Whatever a library prints must not get between our frames.
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    preload(line)
    while (order := line.receive()) is not None:
        if isinstance(order, frames.Stop):  # it came when the window was read already
            continue
        line.send(frames.Started())
        line.send(obey(order, line))
        gc.collect()
        give_back()
        gc.freeze()  # what outlives a document are modules: nobody looks at them again


def preload(line: Line) -> None:
    """Import what most documents need, unless a document is already waiting."""
    get_warm(line.waits if not line.waits(PATIENCE_S) else lambda: True)


def get_warm(is_wanted: Callable[[], bool] = lambda: False) -> None:
    """What a process does once, before documents come: the quality bench does the same."""
    gc.set_threshold(YOUNG)
    if not is_wanted():
        from .language import guess_language

        # First, as long as the process is small: to unpack the model takes more room than it needs.
        guess_language("The first guess loads the model, which takes a second.")
        give_back()
    for module in PRELOADED:
        if is_wanted():
            break
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    else:
        from . import vortex

        vortex.get_warm()
        # Modules stay as long as the process: the collector need not look at them again after every document.
        gc.collect()
    gc.freeze()


def obey(order: frames.Order, line: Line) -> frames.Answer:
    match order:
        case frames.Parse():
            return serve(order, line)
        case frames.Part():
            return read_part(order, line)
        case frames.Conclude():
            return conclude(order)
        case frames.Render():
            return draw(order)
        case _:
            raise frames.BadFrame(f"{type(order).__name__} at the wrong time")


def serve(message: frames.Parse, line: Line) -> frames.Answer:
    job = job_of(message, line)
    job.divisible = True
    with failures(job.limits) as failed:
        from .reading import read

        read(job)
    if failed:
        return failed[0]
    if job.divided:
        from .pdf.document import WINDOW

        return frames.Long(job.media_type, job.title, job.divided, WINDOW, resident_mb())
    return done(job)


def job_of(message: frames.Parse, line: Line) -> Job:
    limits = msgspec.convert(message.limits, Limits)
    allow_cpu(limits.seconds)

    def page_done(page: Page, figures: list[Figure]) -> None:
        line.send(frames.Finished(page, figures))

    def progress(done: int, total: int | None) -> None:
        line.send(frames.Progress(done, total))

    return Job(
        Path(message.source), message.filename, Path(message.folder), message.options, limits, "", page_done, progress
    )


def done(job: Job) -> frames.Done:
    return frames.Done(job.media_type, job.title, job.language, job.facts, resident_mb())


def read_part(order: frames.Part, line: Line) -> frames.Read | frames.Failed:
    """A window of a long document. What stood before it the parent tells, as soon as it knows."""
    job = job_of(order.document, line)
    job.progress = lambda _done, _total: None  # the parent counts the pages of all windows
    window, called = order.window, False

    def before(own: list[list[str]]) -> list[list[str]]:
        nonlocal called
        line.send(frames.Edges(own))
        while not isinstance(told := line.receive(), frames.Before):
            if told is None:
                raise SystemExit
            called = True
        return told.edges

    def is_called() -> bool:
        nonlocal called
        if not called and line.waits():
            called = isinstance(line.receive(), frames.Stop)
        return called

    upto = 0
    with failures(job.limits) as failed:
        from . import pdf

        indices = range(window.start, window.stop)
        upto = pdf.read_part(job, indices, order.total, before, wanted=window.wanted, is_called=is_called)
    if failed:
        return failed[0]
    so_far = frames.SoFar(job.pages, job.damaged, job.sample, job.first_heading, job.facts)
    return frames.Read(upto, so_far, job.written, resident_mb())


def conclude(order: frames.Conclude) -> frames.Done | frames.Failed:
    limits = msgspec.convert(order.limits, Limits)
    allow_cpu(limits.seconds)
    job = Job(Path(order.source), "", Path(), order.options, limits, order.media_type, lambda *_: None, lambda *_: None)
    found = order.so_far
    job.title, job.pages, job.damaged, job.facts = order.title, found.pages, found.damaged, found.facts
    job.sample, job.first_heading = found.sample, found.first_heading
    with failures(limits) as failed:
        from . import pdf, reading

        pdf.conclude(job)
        reading.conclude(job)
    return failed[0] if failed else done(job)


def draw(order: frames.Render) -> frames.Drawn | frames.Failed:
    limits = msgspec.convert(order.limits, Limits)
    allow_cpu(limits.render_seconds)
    png = b""
    with failures(limits) as failed:
        from .drawing import draw_page

        png = draw_page(Path(order.source), order.page, order.width, limits)
    return failed[0] if failed else frames.Drawn(png, resident_mb())


@contextlib.contextmanager
def failures(limits: Limits) -> Iterator[list[frames.Failed]]:
    """Turns whatever goes wrong into one message for the parent."""
    found: list[frames.Failed] = []

    def fail(kind: Literal["document", "stage", "missing"], code: str, **facts: object) -> None:
        found.append(frames.Failed(kind, code, facts, resident_mb()))

    try:
        yield found
    except DocumentError as error:
        fail("document", error.code, **error.facts)
    except NotFound as error:
        fail("missing", error.code, **error.facts)
    except MemoryError:
        fail("stage", "parse_memory", limit_mb=limits.memory_mb)
    except (OutputTooLarge, frames.BadFrame):
        fail("stage", "parse_output_too_large", limit_mb=limits.output_mb)
    except RecursionError:
        fail("document", "document_broken", why="it is nested too deeply")
    except OSError as error:
        if error.errno == errno.EFBIG:
            fail("stage", "parse_output_too_large", limit_mb=limits.output_mb)
        elif error.errno == errno.ENOMEM:
            fail("stage", "parse_memory", limit_mb=limits.memory_mb)
        elif isinstance(unwrap(error), StorageFull):
            fail("stage", "storage_full")
        else:
            fail("stage", "storage_failed", why=error.strerror or type(error).__name__)
    except Exception as error:
        if NO_MEMORY.search(str(error)):  # OCR and others have errors of their own for it
            fail("stage", "parse_memory", limit_mb=limits.memory_mb)
        elif isinstance(unwrap(error), StorageFull):
            fail("stage", "storage_full")
        else:
            sys.excepthook(*sys.exc_info())
            fail("stage", "stage_failed", why=f"{type(error).__name__} in the parser")


if __name__ == "__main__":
    main()
