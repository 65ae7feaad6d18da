"""How fast pages are read, and how long the rest will take at that speed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

MIN_SECONDS = 2.0
"""Before that the first document says more about the start of the parser than about the rest."""


@dataclass(slots=True)
class Pace:
    """The rest is estimated by its bytes: how many pages a file has is known only once it was opened."""

    clock: Callable[[], float] = monotonic
    sizes: dict[Path, int] = field(default_factory=dict)
    """Of the files that are not done."""
    running: dict[Path, tuple[int, float]] = field(default_factory=dict)
    """Pages that are read, and the share of the file that they are."""
    pages: int = 0
    bytes_left: int = 0
    bytes_read: int = 0
    began: float | None = None
    """When the first document that is not current began."""

    def begin(self, files: Iterable[Path]) -> None:
        for file in files:
            try:
                self.sizes[file] = file.stat().st_size
            except OSError:
                self.sizes[file] = 0  # it will fail in no time
        self.bytes_left = sum(self.sizes.values())

    def progress(self, file: Path, done: int, total: int | None) -> None:
        if self.began is None:
            self.began = self.clock()
        self.running[file] = (done, done / total if total else 0.0)

    def finish(self, file: Path, pages: int, *, was_work: bool) -> None:
        self.running.pop(file, None)
        size = self.sizes.pop(file, 0)
        self.bytes_left -= size
        if was_work:
            self.pages += pages
            self.bytes_read += size

    def describe(self) -> str:
        """`12.0 pages/s, about 40 s left`; nothing as long as that would be a guess."""
        elapsed = self.clock() - self.began if self.began is not None else 0.0
        pages = self.pages + sum(done for done, _ in self.running.values())
        if elapsed < MIN_SECONDS or not pages:
            return ""
        under_way = sum(self.sizes.get(file, 0) * share for file, (_, share) in self.running.items())
        speed = f"{pages / elapsed:.1f} pages/s"
        if not self.bytes_read + under_way:
            return speed
        seconds = elapsed * (self.bytes_left - under_way) / (self.bytes_read + under_way)
        return f"{speed}, about {format_duration(seconds)} left"


def format_duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
