"""`docmill convert`: files and folders become twins, without a server."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from docmill.cli import shutdown
from docmill.cli.board import Board, board
from docmill.cli.failed import failed, remember, state_file
from docmill.cli.failure import EXIT_FAILED, EXIT_INTERRUPTED, HINT, Trouble, told
from docmill.cli.output import Out, complain, plural, printable, standard_output

if TYPE_CHECKING:
    from docmill.work.convert import Outcome, Report, Source

ALL_FILES = "all files"


@click.command(
    epilog="Exit codes: 0 every document has its twin, 1 some failed or were kept because a person edited their twin, "
    "2 wrong usage, 130 stopped by SIGINT, 143 by SIGTERM. What is done stays done: the same command goes on where it "
    "ended."
)
@click.argument(
    "paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(exists=True, path_type=Path, readable=False)
)
@click.option(
    "-o", "--out", type=click.Path(file_okay=False, path_type=Path), help="Write the twins below this folder."
)
@click.option(
    "--layout",
    type=click.Choice(("folder", "sidecar")),
    default="folder",
    show_default=True,
    help="_report.pdf/report.md, or report.en.md beside it.",
)
@click.option("--recursive/--no-recursive", "-r", default=True, help="Walk into the folders of a folder (the default).")
@click.option("--jobs", "-j", type=click.IntRange(1, 256), help="Documents at once; default: the number of cores.")
@click.option("--only-failed", is_flag=True, help="Only those that failed the last time.")
@click.option("--dry-run", is_flag=True, help="Say what would be done and why; write nothing.")
@click.option("--force", is_flag=True, help="Write although the twin is current, or was edited by a person.")
@click.option("--language", metavar="CODE", help="Language of the documents, for example de; default: found out.")
@click.option(
    "--ocr",
    type=click.Choice(("auto", "always", "never")),
    default="auto",
    show_default=True,
    help="Whether to read pages as images.",
)
@click.option("--page-images", is_flag=True, help="Also keep an image of every page.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
@click.option("--jsonl", is_flag=True, help="Print one JSON object per file, as it is done.")
def convert(
    paths: tuple[Path, ...],
    out: Path | None,
    layout: str,
    recursive: bool,
    jobs: int | None,
    only_failed: bool,
    dry_run: bool,
    force: bool,
    language: str | None,
    ocr: str,
    page_images: bool,
    as_json: bool,
    jsonl: bool,
) -> None:
    """Turn files and folders into twins: Markdown and images beside the original.

    A document whose bytes and options did not change since its last conversion is left alone. A PATH is a file or a
    folder; twins, hidden files and files that are no documents are skipped in folders.
    """
    if as_json and jsonl:
        raise click.UsageError("--json and --jsonl exclude each other.")
    if language is not None and not language.replace("-", "").isalnum():
        raise click.UsageError(f"'{language}' is not a language code such as de or en-US.")
    options = {"layout": layout, "language": language, "ocr": ocr, "page_images": page_images, "force": force}
    asked = Asked(paths, out, recursive, jobs, only_failed, dry_run, options)
    with standard_output() as stdout:
        told_all = Tally(stdout, dry_run=dry_run, as_json=as_json, jsonl=jsonl)
        try:
            with told():
                shutdown.current().run(lambda: _run(asked, told_all))
        except (shutdown.Interrupted, KeyboardInterrupt) as stopped:
            told_all.interrupted = getattr(stopped, "exit_code", EXIT_INTERRUPTED)
        told_all.sum_up()
    raise SystemExit(told_all.exit_code)


@dataclass(frozen=True, slots=True)
class Asked:
    paths: tuple[Path, ...]
    out: Path | None
    recursive: bool
    jobs: int | None
    only_failed: bool
    dry_run: bool
    options: dict[str, Any]


async def _run(asked: Asked, tally: Tally) -> None:
    # Imported here, so that a wrong flag is told at once.
    from docmill import compose, settings
    from docmill.adapters.libraries.disk import DiskLibrary
    from docmill.work.convert import Clash, Converter, Options, find

    shelf = DiskLibrary()
    try:
        sources = await find(asked.paths, shelf, is_document, out=asked.out, recursive=asked.recursive)
    except Clash as clash:
        raise click.UsageError(f"{clash}. Convert them in two runs with different -o folders.") from clash
    if asked.only_failed:
        known = failed(state_file())
        sources = [source for source in sources if str(source.path.resolve()) in known]
    tally.files = len(sources)
    chosen = settings.load(jobs=asked.jobs)
    shutdown.current().grace_s = chosen.grace
    engine = compose.local_engine(chosen)
    try:
        if chosen.sandbox == "require" and not asked.dry_run:
            await engine.confirm_sandbox()
        with scratch_folder() as scratch:
            worker = Converter(engine, shelf, scratch, Options(**asked.options), chosen.jobs)
            with board(tally.out, lines=not tally.is_json) as shown, tally.remembering(asked.dry_run):
                outcomes = worker.plan(sources) if asked.dry_run else worker.convert(sources, _reporter(shown))
                await _tell(outcomes, tally, shown)
    finally:
        await engine.close()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    try:
        folder = tempfile.TemporaryDirectory(prefix="docmill-convert-", ignore_cleanup_errors=True)
    except OSError as error:
        where = tempfile.gettempdir()
        raise Trouble(f"{where} cannot be written: {error.strerror or error}. TMPDIR names another folder.") from error
    with folder as name:
        yield Path(name)


async def _tell(outcomes: AsyncGenerator[Outcome, None], tally: Tally, shown: Board) -> None:
    async with aclosing(outcomes) as finished:
        shown.show(ALL_FILES, 0, tally.files, f"0 of {tally.files}")
        async for outcome in finished:
            shown.hide(str(outcome.source.path))
            tally.add(outcome, shown)
            shown.show(ALL_FILES, tally.done, tally.files, f"{tally.done} of {tally.files}")
        shown.hide(ALL_FILES)


def _reporter(shown: Board) -> Report:
    def report(source: Source, done: int, total: int | None) -> None:
        note = "starting" if not done and not total else f"page {done} of {total}" if total else plural(done, "page")
        shown.show(str(source.path), done, total, note)

    return report


def is_document(path: Path) -> bool:
    """Whether a file that lies in a folder is meant to be converted: by its name, or as a binary format by its bytes.

    Source code, logs of machines and the like are text as well; who wants them converted names them.
    """
    from docmill.adapters.engines import sniff
    from docmill.adapters.engines.local.reading import READERS

    if sniff.claimed(path.name):
        return True
    try:
        return sniff.sniff(path) in READERS.keys() - {sniff.TEXT, sniff.MARKDOWN, sniff.CSV, sniff.HTML, sniff.EML}
    except OSError:
        return False


@dataclass(slots=True)
class Tally:
    """What became of each file, told as it was asked for."""

    out: Out
    dry_run: bool = False
    as_json: bool = False
    jsonl: bool = False
    files: int = 0
    interrupted: int | None = None
    """The exit code of a run that a signal stopped."""
    counts: Counter[str] = field(default_factory=Counter)
    pages: int = 0
    records: list[dict[str, Any]] = field(default_factory=list)
    failing: list[Path] = field(default_factory=list)
    fine: list[Path] = field(default_factory=list)
    codes: set[str] = field(default_factory=set)
    began: float = field(default_factory=perf_counter)

    @property
    def is_json(self) -> bool:
        return self.as_json or self.jsonl

    @property
    def done(self) -> int:
        return self.counts.total()

    @property
    def exit_code(self) -> int:
        if self.interrupted:
            return self.interrupted
        return EXIT_FAILED if self.counts["failed"] or self.counts["kept"] else 0

    def add(self, outcome: Outcome, shown: Board) -> None:
        self.counts[outcome.state] += 1
        self.pages += outcome.pages
        (self.failing if outcome.state == "failed" else self.fine).append(outcome.source.path.resolve())
        if outcome.error:
            self.codes.add(outcome.error.code)
        if self.as_json:
            self.records.append(record(outcome))
        elif self.jsonl:
            self.out.json(record(outcome))
            self.out.flush()
        elif text := (planned if self.dry_run else told_outcome)(self.out, outcome):
            shown.line(text)

    @contextmanager
    def remembering(self, dry_run: bool) -> Iterator[None]:
        """What was done is remembered, also when the run is interrupted."""
        try:
            yield
        finally:
            if not dry_run and not remember(state_file(), failing=self.failing, fine=self.fine) and self.failing:
                complain(f"{state_file()} cannot be written: --only-failed will not know of this run.")

    def sum_up(self) -> None:
        seconds = perf_counter() - self.began
        if self.as_json:
            counts = {state: self.counts[state] for state in ("converted", "current", "kept", "skipped", "failed")}
            total = {"files": self.files, **counts, "pages": self.pages, "seconds": round(seconds, 3)}
            self.out.json({**total, "interrupted": self.interrupted is not None, "outcomes": self.records})
            return
        would = "would be " if self.dry_run else ""
        parts = [f"{self.counts['converted']} {would}converted"]
        parts += [f"{self.counts[state]} {state}" for state in ("current", "kept", "skipped", "failed")]
        told_parts = [part for part in parts if not part.startswith("0 ")] or [
            "nothing was done" if self.interrupted else "nothing to do"
        ]
        pages = f" {plural(self.pages, 'page')} in {seconds:.1f} s." if self.pages else ""
        complain(f"{', '.join(told_parts)}.{pages}".capitalize())
        if self.codes:
            complain(HINT.format("CODE"))
        if self.counts["kept"]:
            complain("--force replaces twins that were edited.")
        if self.interrupted:
            left = self.files - self.done
            complain(f"Stopped; {plural(left, 'file')} left. The same command goes on: what is done is not done again.")


def record(outcome: Outcome) -> dict[str, Any]:
    error = outcome.error
    return {
        "path": os.fspath(outcome.source.path),
        "state": outcome.state,
        "reason": outcome.reason,
        "twin": os.fspath(outcome.twin) if outcome.twin else None,
        "pages": outcome.pages,
        "damaged_pages": [index + 1 for index in outcome.damaged_pages],
        "seconds": round(outcome.seconds, 3),
        "error": {"code": error.code, "message": error.message} if error else None,
    }


PLANNED = {"converted": "convert", "kept": "keep", "failed": "fail", "skipped": "skip", "current": "current"}
COLOURS = {
    "converted": "green",
    "kept": "yellow",
    "failed": "red",
    "skipped": "bright_black",
    "current": "bright_black",
}


def told_outcome(out: Out, outcome: Outcome) -> str | None:
    """The line of a file; none for one that was current: an incremental run should be quiet."""
    if outcome.state == "current":
        return None
    word = out.style(f"{outcome.state:<9}", fg=COLOURS[outcome.state])
    return f"{word}  {printable(str(outcome.source.path))}{_detail(outcome)}"


def planned(out: Out, outcome: Outcome) -> str:
    word = out.style(f"{PLANNED[outcome.state]:<9}", fg=COLOURS[outcome.state])
    why = outcome.error.message if outcome.error else REASONS[outcome.reason or "new"]
    return f"{word}  {printable(str(outcome.source.path))}  ({printable(why)})"


REASONS = {
    "new": "new",
    "changed": "changed since its twin was written",
    "outdated": "its twin was made by another version or with other options",
    "edited": "a person edited its twin",
    "forced": "forced",
    "current": "nothing changed",
    "unsupported": "not a document",
}


def _detail(outcome: Outcome) -> str:
    if outcome.error:
        return f": {outcome.error.code}: {printable(outcome.error.message)}"
    if outcome.state == "skipped":
        return f"  ({REASONS[outcome.reason or 'new']})"
    damaged = f", {len(outcome.damaged_pages)} damaged" if outcome.damaged_pages else ""
    twin = printable(near(outcome.twin or outcome.source.path))
    return f" -> {twin}  ({plural(outcome.pages, 'page')}{damaged}, {outcome.seconds:.1f} s)"


def near(path: Path) -> str:
    """The path as seen from here, if it lies below."""
    here = Path.cwd().resolve()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
