"""Files and folders become twins, without a server. Nothing here prints.

    find      which files, and where their twins go
    look      what has to be done for one of them, and why
    convert   do it, several at a time; an outcome for each

A run is incremental by content: a twin whose manifest names the same source bytes and the same fingerprint is current.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import file_digest, sha256
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, Protocol
from uuid import uuid4

import msgspec

from docmill.core.errors import Conflict, DocmillError, StageFailed
from docmill.core.parsed import Parsed
from docmill.core.twin import Layout, Manifest, Twin, drifted, plan_twin
from docmill.ports import Deferred, Engine, Work

GENERATED_BY = "docmill"

Reason = Literal["new", "changed", "outdated", "edited", "forced", "current", "unsupported"]
"""`outdated`: made by another version of the engine or with other options. `edited`: a person changed the twin."""
State = Literal["converted", "current", "kept", "unsupported", "failed"]
STATES_BY_CODE: Mapping[str, State] = {
    "twin_drift": "kept",
    "document_unsupported": "unsupported",
    "document_needs_program": "unsupported",
}
TO_DO: frozenset[Reason] = frozenset({"new", "changed", "outdated", "forced"})


class Placed(Protocol):
    """A twin as it lies there now."""

    @property
    def path(self) -> str: ...


class Shelf(Protocol):
    """Where twins lie: what conversion needs of a library on a disk."""

    async def write(self, source_dir: Path, twin: Twin, assets: Mapping[str, Path], *, force: bool = False) -> Placed:
        """A reader sees the old twin or the new one. Edited by a person: Conflict("twin_drift")."""
        ...

    async def read_manifest(self, source: Path, layout: Layout, language: str | None = None) -> Manifest | None: ...

    async def ours(self, folder: Path) -> frozenset[str]:
        """Names in the folder that are twins, not sources."""
        ...


@dataclass(frozen=True, slots=True)
class Options:
    """How to convert. What is left at its default does not count as an option of the engine."""

    layout: Layout = "folder"
    language: str | None = None
    ocr: Literal["auto", "always", "never"] = "auto"
    page_images: bool = False
    page_files: bool = False
    """Also a Markdown file for each page. Off: a program that reads every `*.md` would read each page twice."""
    force: bool = False

    def of_engine(self) -> dict[str, Any]:
        asked = {
            "language": self.language,
            "ocr": self.ocr if self.ocr != "auto" else None,
            "page_images": self.page_images or None,
        }
        return {name: value for name, value in asked.items() if value is not None}

    def of_twin(self) -> dict[str, Any]:
        """Those that decide the twin. Older versions always wrote page files: their twins count as made with them."""
        without_pages = self.layout == "folder" and not self.page_files
        return {**self.of_engine(), **({"page_files": False} if without_pages else {})}


@dataclass(frozen=True, slots=True)
class Source:
    path: Path
    """As it was named, or found below what was named."""
    target: Path
    """The folder into which its twin goes."""
    refusal: DocmillError | None = None
    """Why a file that was found in a folder is not a document."""


@dataclass(frozen=True, slots=True)
class Look:
    """What there is to do for a source."""

    reason: Reason
    sha256: str = ""
    stamp: tuple[int, int] = (0, 0)
    """Size and time of the last change when the bytes were hashed."""
    edited: Path | None = None
    twin: Path | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    source: Source
    state: State
    reason: Reason | None = None
    twin: Path | None = None
    pages: int = 0
    damaged_pages: tuple[int, ...] = ()
    seconds: float = 0.0
    error: DocmillError | None = None


class Clash(Exception):
    """Two sources would write the same twin."""

    def __init__(self, one: Path, other: Path) -> None:
        self.one, self.other = one, other
        super().__init__(f"{one} and {other} would have the same twin")


Report = Callable[[Source, int, int | None], None]
"""Called with (source, pages done, pages in all or None); first when work on the source begins."""


async def find(
    paths: Iterable[Path],
    shelf: Shelf,
    refusal: Callable[[Path], DocmillError | None],
    *,
    out: Path | None = None,
    recursive: bool = True,
) -> list[Source]:
    """The sources, each once, in a stable order. Twins and what is hidden are no sources. Raises Clash.

    *refusal* says why a file in a folder is not a document, and is None for a document. What is named is always tried.
    """
    skip = _real(out) if out else None
    found: dict[Path, Source] = {}
    for path in paths:
        if await _is_twin(path, shelf):
            continue  # a pattern of the shell names twins, too
        if path.is_dir():
            async for source in _walk(path, path, shelf, refusal, out, skip, recursive=recursive):
                found.setdefault(source.path.resolve(), source)
        else:
            found[path.resolve()] = Source(path, out or path.parent)
    _check_targets(found.values())
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Converter:
    engine: Engine
    shelf: Shelf
    scratch: Path
    """An empty folder for what the engine leaves on its way."""
    options: Options = field(default_factory=Options)
    jobs: int = 1

    @property
    def fingerprint(self) -> str:
        """Of everything but the source that decides the result."""
        options = msgspec.json.encode(self.options.of_twin(), order="sorted").decode()
        return sha256("\n".join((self.engine.name, self.engine.version, options)).encode()).hexdigest()

    async def look(self, source: Source) -> Look:
        if source.refusal:
            return Look("unsupported")
        stamp = _stamp(source.path)
        digest = await asyncio.to_thread(_digest, source.path)
        language = self.options.language
        beside = source.target / source.path.name
        manifest = await self.shelf.read_manifest(beside, self.options.layout, language)
        twin = source.target / manifest.document if manifest else None
        reason: Reason = "new"
        if manifest:
            if manifest.is_current(digest, self.fingerprint) and not self.options.force:
                return Look("current", digest, stamp, twin=twin)
            if edited := await asyncio.to_thread(_edited, source.target, manifest):
                return Look("forced" if self.options.force else "edited", digest, stamp, edited, twin)
            reason = "changed" if manifest.source_sha256 != digest else "outdated"
            reason = "forced" if manifest.is_current(digest, self.fingerprint) else reason
        return Look(reason, digest, stamp, twin=twin)

    async def plan(self, sources: Sequence[Source]) -> AsyncGenerator[Outcome, None]:
        """What `convert` would do, in the order of the sources; nothing is written."""
        for source in sources:
            try:
                look = await self.look(source)
            except OSError as error:
                yield Outcome(source, "failed", error=_unreadable(source, error))
            else:
                state: State = "converted" if look.reason in TO_DO else _untouched(look)
                yield Outcome(source, state, look.reason, look.twin, error=_objection(source, look))

    async def convert(self, sources: Iterable[Source], report: Report) -> AsyncGenerator[Outcome, None]:
        """An outcome per source, as they finish. When this is closed, what it started has ended."""
        waiting = iter(sources)
        running: set[asyncio.Task[Outcome]] = set()
        try:
            while True:
                while len(running) < self.jobs and (source := next(waiting, None)):
                    running.add(asyncio.create_task(self._one(source, report)))
                if not running:
                    return
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _one(self, source: Source, report: Report) -> Outcome:
        began = perf_counter()
        try:
            look = await self.look(source)
            if look.reason not in TO_DO:
                return Outcome(source, _untouched(look), look.reason, look.twin, error=_objection(source, look))
            report(source, 0, None)
            parsed, path = await self._write(source, look, report)
            return Outcome(
                source,
                "converted",
                look.reason,
                path,
                len(parsed.pages),
                parsed.damaged_pages,
                perf_counter() - began,
            )
        except DocmillError as error:
            state = STATES_BY_CODE.get(error.code, "failed")
            return Outcome(source, state, seconds=perf_counter() - began, error=error)
        except OSError as error:
            return Outcome(source, "failed", seconds=perf_counter() - began, error=_unreadable(source, error))

    async def _write(self, source: Source, look: Look, report: Report) -> tuple[Parsed, Path]:
        attempt = uuid4()
        with _folder(self.scratch / str(attempt)) as folder:
            work = Work(0, attempt, source.path.resolve(), source.path.name, folder, self.options.of_engine())
            parsed = await self.engine.start(work, lambda done, total: report(source, done, total))
            if isinstance(parsed, Deferred):
                raise StageFailed("stage_failed", why=f"the engine '{self.engine.name}' does not work here")
            if _stamp(source.path) != look.stamp:
                raise StageFailed("stage_failed", why="the file changed while it was read. Run again.")
            twin = plan_twin(
                source.path.name,
                parsed,
                layout=self.options.layout,
                source_sha256=look.sha256,
                generated_by=GENERATED_BY,
                generated_at=datetime.now(UTC),
                language=self.options.language,
                fingerprint=self.fingerprint,
                page_files=self.options.page_files,
            )
            assets = {file.asset: folder / "assets" / file.asset for file in twin.files if file.asset}
            source.target.mkdir(parents=True, exist_ok=True)
            placed = await self.shelf.write(source.target, twin, assets, force=self.options.force)
        # As the caller spelled the folder: the shelf knows its real path.
        return parsed, source.target / Path(placed.path).relative_to(source.target.resolve())


async def _is_twin(path: Path, shelf: Shelf) -> bool:
    return path.name in await shelf.ours(_real(path.parent))


async def _walk(
    folder: Path,
    root: Path,
    shelf: Shelf,
    refusal: Callable[[Path], DocmillError | None],
    out: Path | None,
    skip: Path | None,
    *,
    recursive: bool,
) -> AsyncIterator[Source]:
    """Depth first, by name. Links to folders are not followed, so there are no loops."""
    try:
        entries = await asyncio.to_thread(_entries, folder)
        twins = await shelf.ours(folder)
    except (OSError, DocmillError):
        yield Source(folder, folder)  # whoever reads it learns why that cannot be done
        return
    inner = []
    target = out / folder.relative_to(root) if out else folder
    for entry in entries:
        if entry.name.startswith(".") or entry.name in twins:
            continue
        path = folder / entry.name
        if entry.is_dir(follow_symlinks=False):
            if path.resolve() != skip:
                inner.append(path)
        elif entry.is_file():
            yield Source(path, target, await asyncio.to_thread(refusal, path))
    if recursive:
        for path in inner:
            async for source in _walk(path, root, shelf, refusal, out, skip, recursive=True):
                yield source


def _real(path: Path) -> Path:
    return path.resolve()


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _check_targets(sources: Iterable[Source]) -> None:
    taken: dict[tuple[Path, str], Path] = {}
    for source in sources:
        if source.refusal is None:
            other = taken.setdefault((source.target.resolve(), source.path.name), source.path)
            if other != source.path:
                raise Clash(other, source.path)


def _untouched(look: Look) -> State:
    states: dict[Reason, State] = {"current": "current", "edited": "kept", "unsupported": "unsupported"}
    return states[look.reason]


def _objection(source: Source, look: Look) -> DocmillError | None:
    """Why a source is not converted, unless its twin is current."""
    if look.reason == "unsupported":
        return source.refusal
    return Conflict("twin_drift", path=look.edited) if look.edited else None


def _edited(folder: Path, manifest: Manifest) -> Path | None:
    """A file of the twin that is not as we wrote it."""
    there = [path for path in manifest.files if (folder / path).is_file()]
    found = drifted(manifest, {path: _digest(folder / path) for path in there})
    return folder / found[0] if found else None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _unreadable(source: Source, error: OSError) -> StageFailed:
    why = error.strerror or type(error).__name__
    # Each outcome names its source already.
    is_named = error.filename is None or Path(os.fsdecode(error.filename)) == source.path
    return StageFailed("stage_failed", why=why if is_named else f"{why}: {error.filename}")


@contextmanager
def _folder(path: Path) -> Iterator[Path]:
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
