"""What comes out of a document, from one child or from several that read its windows."""

from __future__ import annotations

import asyncio
import re
import stat
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from docmill.core.parsed import Figure, Page, Parsed

from . import frames
from .frames import Window
from .job import MOST_WARNINGS, SAMPLE
from .limits import Limits

if TYPE_CHECKING:
    from docmill.ports import PageReport, Work

SAFE_NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,80}\.[a-z0-9]{1,5}")
REMEMBERED = 64
"""Pages whose edges tell what runs."""


class Gathered:
    """Pages and figures, as far as they may become."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.count = 0
        self._folder = folder
        self._most = limits.output_mb * 1024 * 1024
        self._seen = self._said = 0
        self._pages: list[tuple[int, Page, list[Figure]]] = []

    def add(self, page: Page, figures: list[Figure], folder: Path | None = None) -> None:
        """*folder* is where the child wrote the figures, unless it is that of all pages."""
        written = sum(check_figure(folder or self._folder, figure) for figure in figures)
        self._seen += len(page.markdown) + written
        self._pages.append((page.index, page, figures))
        self.count += 1

    def say(self, written: int) -> None:
        """What a child says that it has written: of some of it nobody else knows."""
        self._said += written

    @property
    def is_too_much(self) -> bool:
        return max(self._seen, self._said) > self._most

    def files(self, facts: Mapping[str, Any]) -> dict[str, str]:
        return named_files([figure for _, _, of_page in self._pages for figure in of_page], facts)

    def parsed(self, done: frames.Done) -> Parsed:
        self._pages.sort(key=lambda entry: entry[0])
        figures = tuple(figure for _, _, of_page in self._pages for figure in of_page)
        pages = tuple(page for _, page, _ in self._pages)
        return Parsed("local", done.media_type, pages, figures, done.title, done.language, done.facts)


def named_files(figures: Iterable[Figure], facts: Mapping[str, Any]) -> dict[str, str]:
    """The files that the child says it wrote, with the SHA-256 of each, if it said one. Names are no paths."""
    images = facts.get("page_images", [])
    if not isinstance(images, list):
        raise frames.BadFrame("page images that are no list")
    found = dict.fromkeys(images, "") | {figure.name: figure.sha256 for figure in figures}
    for name in found:
        if not isinstance(name, str) or not SAFE_NAME.fullmatch(name):
            raise frames.BadFrame("the name of a file")
    return found


def check_figure(folder: Path, figure: Figure) -> int:
    """A child that was taken over must not make us follow its links. Gives the file's size."""
    if not SAFE_NAME.fullmatch(figure.name):
        raise frames.BadFrame("a figure's name")
    try:
        found = (folder / "assets" / figure.name).lstat()
    except OSError as error:
        raise frames.BadFrame("a figure without a file") from error
    if not stat.S_ISREG(found.st_mode) or found.st_size != figure.size:
        raise frames.BadFrame("a figure that is not what it says")
    return found.st_size


class LongDocument:
    """A document whose windows are read by whoever has a hand free; it comes out as if one had read them in turn."""

    def __init__(self, work: Work, report: PageReport, facts: frames.Long, limits: Limits) -> None:
        self.work = work
        self.facts = facts
        self.total = facts.pages
        self.gathered = Gathered(work.folder, limits)
        self.hands = 1
        """Children at work, the document's own one included."""
        self._report = report
        self._step = facts.window
        starts = range(0, self.total, facts.window)
        self._todo = deque(Window(start, min(start + facts.window, self.total), start) for start in starts)
        loop = asyncio.get_running_loop()
        self._edges: list[asyncio.Future[list[list[str]]]] = [loop.create_future() for _ in starts]
        self._found: dict[int, frames.SoFar] = {}
        self._news = asyncio.Event()

    @property
    def is_waiting(self) -> bool:
        """Whether there is a window that nobody reads."""
        return bool(self._todo)

    def take(self) -> Window | None:
        return self._todo.popleft() if self._todo else None

    def put_back(self, window: Window) -> None:
        self._todo.appendleft(window)
        self._news.set()

    async def next(self) -> Window | None:
        """The next window, also one that comes back; nothing when all are read."""
        while self.gathered.count < self.total and not self._todo:
            self._news.clear()
            await self._news.wait()
        return self.take()

    async def before(self, window: Window, own: list[list[str]]) -> list[list[str]]:
        """The edges of the pages before a window, as soon as they are known; windows are begun in their order."""
        number = window.start // self._step
        if not self._edges[number].done():
            self._edges[number].set_result(own)
        seen: list[list[str]] = []
        while number and len(seen) < REMEMBERED:
            number -= 1
            seen = await asyncio.shield(self._edges[number]) + seen
        return seen[-REMEMBERED:]

    def add(self, window: Window, page: Page, figures: list[Figure], folder: Path) -> None:
        if not window.wanted <= page.index < window.stop:
            raise frames.BadFrame("a page of another window")
        self.gathered.add(page, figures, folder)
        self._report(self.gathered.count, self.total)

    def end(self, window: Window, read: frames.Read) -> None:
        """A window is read, or the beginning of it."""
        if not window.wanted < read.upto <= window.stop or read.so_far.pages != read.upto - window.wanted:
            raise frames.BadFrame("a window that is not what it says")
        self._found[window.wanted] = read.so_far
        self.gathered.say(read.written)
        if read.upto < window.stop:
            self.put_back(msgspec.structs.replace(window, wanted=read.upto))
        self._news.set()

    def conclusion(self) -> frames.SoFar:
        """What was found in all windows, in their order."""
        sample, heading = "", None
        facts: dict[str, Any] = {}
        parts = [found for _, found in sorted(self._found.items(), key=lambda entry: entry[0])]
        for part in parts:
            sample += part.sample[: max(0, SAMPLE - len(sample))]
            heading = heading if heading is not None else part.first_heading
            for name, value in part.facts.items():
                facts[name] = facts[name] + value if name in facts else value
        if "warnings" in facts:
            facts["warnings"] = facts["warnings"][:MOST_WARNINGS]
        pages, damaged = sum(part.pages for part in parts), sum(part.damaged for part in parts)
        return frames.SoFar(pages, damaged, sample, heading, facts)
