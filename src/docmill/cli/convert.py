"""`docmill convert`: files and folders become twins, without a server.

Lines of what was converted appear as it is done; what failed, was kept or is not supported is listed at the end, in
groups. Standard output has these results and nothing else.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from docmill.cli import shutdown
from docmill.cli.board import Board, board
from docmill.cli.failed import failed, remember, state_file
from docmill.cli.failure import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_UNSUPPORTED, HINT, Trouble, told
from docmill.cli.output import Out, complain, near, plural, printable, standard_output
from docmill.cli.pace import Pace
from docmill.cli.unsupported import list_unsupported, refusal

if TYPE_CHECKING:
    from docmill.work.convert import Outcome, Report, Source

ALL_FILES = "all files"


@click.command(
    epilog="Exit codes: 0 every document has its twin, 1 some failed or were kept because a person edited their twin, "
    "2 wrong usage, 5 every document has its twin but some files are of unsupported types, 130 stopped by SIGINT, 143 "
    "by SIGTERM. What is done stays done: the same command goes on where it ended."
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
@click.option("--page-files", is_flag=True, help="Also write each page as a file of its own: page_001.md.")
@click.option("--ignore-unsupported", is_flag=True, help="Do not list files of unsupported types; exit with 0.")
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
    page_files: bool,
    ignore_unsupported: bool,
    as_json: bool,
    jsonl: bool,
) -> None:
    """Turn files and folders into twins: Markdown and images beside the original.

    A document whose bytes and options did not change since its last conversion is left alone. A PATH is a file or a
    folder; in folders twins and hidden files are skipped, and files that are not documents are listed as unsupported.
    """
    if as_json and jsonl:
        raise click.UsageError("--json and --jsonl exclude each other.")
    if language is not None and not language.replace("-", "").isalnum():
        raise click.UsageError(f"'{language}' is not a language code such as de or en-US.")
    if page_files and layout == "sidecar":
        raise click.UsageError("--page-files needs --layout folder: a sidecar is one file.")
    options = {"layout": layout, "language": language, "ocr": ocr, "page_images": page_images, "force": force}
    options["page_files"] = page_files
    asked = Asked(paths, out, recursive, jobs, only_failed, dry_run, options)
    with standard_output() as stdout:
        tally = Tally(stdout, asked, ignore_unsupported=ignore_unsupported, as_json=as_json, jsonl=jsonl)
        try:
            with told():
                shutdown.current().run(lambda: _run(asked, tally))
        except (shutdown.Interrupted, KeyboardInterrupt) as stopped:
            tally.interrupted = getattr(stopped, "exit_code", EXIT_INTERRUPTED)
        tally.sum_up()
    raise SystemExit(tally.exit_code)


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
        sources = await find(asked.paths, shelf, refusal, out=asked.out, recursive=asked.recursive)
    except Clash as clash:
        raise click.UsageError(f"{clash}. Convert them in two runs with different -o folders.") from clash
    if asked.only_failed:
        known = failed(state_file())
        sources = [source for source in sources if str(source.path.resolve()) in known]
    tally.begin(sources)
    chosen = settings.load(jobs=asked.jobs)
    shutdown.current().grace_s = chosen.grace
    engine = compose.local_engine(chosen)
    try:
        if chosen.sandbox == "require" and not asked.dry_run:
            await engine.confirm_sandbox()
        with scratch_folder() as scratch:
            worker = Converter(engine, shelf, scratch, Options(**asked.options), chosen.jobs)
            with board(tally.out, lines=not tally.is_json) as shown, tally.remembering(asked.dry_run):
                report = _reporter(shown, tally)
                outcomes = worker.plan(sources) if asked.dry_run else worker.convert(sources, report)
                await _collect(outcomes, tally, shown)
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


async def _collect(outcomes: AsyncGenerator[Outcome, None], tally: Tally, shown: Board) -> None:
    async with aclosing(outcomes) as finished:
        shown.show(ALL_FILES, 0, tally.files, tally.note())
        async for outcome in finished:
            shown.hide(str(outcome.source.path))
            tally.add(outcome, shown)
            shown.show(ALL_FILES, tally.done, tally.files, tally.note())
        shown.hide(ALL_FILES)


def _reporter(shown: Board, tally: Tally) -> Report:
    def report(source: Source, done: int, total: int | None) -> None:
        note = "starting" if not done and not total else f"page {done} of {total}" if total else plural(done, "page")
        shown.show(str(source.path), done, total, note)
        tally.pace.progress(source.path, done, total)
        shown.show(ALL_FILES, tally.done, tally.files, tally.note())

    return report


@dataclass(slots=True)
class Tally:
    """What became of each file, printed as it was asked for."""

    out: Out
    asked: Asked
    ignore_unsupported: bool = False
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
    problems: list[Outcome] = field(default_factory=list)
    pace: Pace = field(default_factory=Pace)
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
        if self.counts["failed"] or self.counts["kept"]:
            return EXIT_FAILED
        return EXIT_UNSUPPORTED if self.counts["unsupported"] and not self.ignore_unsupported else 0

    def begin(self, sources: Sequence[Source]) -> None:
        self.files = len(sources)
        self.pace.begin(source.path for source in sources if source.refusal is None)

    def note(self) -> str:
        """How far the whole run is."""
        failures = f"{self.counts['failed']} failed" if self.counts["failed"] else ""
        return ", ".join(part for part in (f"{self.done} of {self.files}", failures, self.pace.describe()) if part)

    def add(self, outcome: Outcome, shown: Board) -> None:
        self.counts[outcome.state] += 1
        self.pages += outcome.pages
        self.pace.finish(outcome.source.path, outcome.pages, was_work=outcome.state == "converted")
        (self.failing if outcome.state == "failed" else self.fine).append(outcome.source.path.resolve())
        if self.as_json:
            self.records.append(record(outcome))
        elif self.jsonl:
            self.out.json(record(outcome))
            self.out.flush()
        elif outcome.error:
            self.problems.append(outcome)
        elif text := (describe_plan if self.asked.dry_run else describe)(self.out, outcome):
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
            counts = {state: self.counts[state] for state in ("converted", "current", "kept", "unsupported", "failed")}
            total = {"files": self.files, **counts, "pages": self.pages, "seconds": round(seconds, 3)}
            self.out.json({**total, "interrupted": self.interrupted is not None, "outcomes": self.records})
            return
        for line in list_problems(self.out, self.problems, unsupported=not self.ignore_unsupported):
            self.out.line(line)
        self.out.flush()
        complain(f"{self._count()}{self._speed(seconds)}")
        for line in self._advice():
            complain(line)

    def _count(self) -> str:
        would = "would be " if self.asked.dry_run else ""
        parts = [f"{self.counts['converted']} {would}converted"]
        parts += [f"{self.counts[state]} {state}" for state in ("current", "kept", "unsupported", "failed")]
        if any(self.counts.values()):
            return f"{', '.join(part for part in parts if not part.startswith('0 '))}."
        if self.interrupted:
            return "Nothing was done."
        if self.asked.only_failed:
            return "Nothing to do: none of these files failed the last time."
        return f"Nothing to do: there are no documents in {', '.join(map(str, self.asked.paths))}."

    def _speed(self, seconds: float) -> str:
        if not self.pages:
            return ""
        return f" {plural(self.pages, 'page')} in {seconds:.1f} s ({self.pages / seconds:.1f} pages/s)."

    def _advice(self) -> Iterator[str]:
        codes = {one.error.code for one in self.problems if one.error and one.state != "unsupported"}
        if codes:
            yield HINT.format(codes.pop() if len(codes) == 1 else "CODE")
        if self.counts["kept"]:
            yield "--force replaces twins that were edited."
        if self.counts["unsupported"] and not self.ignore_unsupported:
            yield "--ignore-unsupported accepts files of unsupported types."
        if self.interrupted and self.files:
            left = plural(self.files - self.done, "file")
            yield f"Stopped; {left} left. The same command goes on: what is done is not done again."


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


COLOURS = {"converted": "green", "kept": "yellow", "failed": "red", "unsupported": "yellow", "current": "bright_black"}
REASONS = {
    "new": "new",
    "changed": "changed since its twin was written",
    "outdated": "its twin was made by another version or with other options",
    "forced": "forced",
    "current": "nothing changed",
}


def describe(out: Out, outcome: Outcome) -> str | None:
    """The line of a file; none for one that was current: an incremental run should be quiet.

    The twin's path names the source, too, so that one path is enough.
    """
    if outcome.state == "current":
        return None
    damaged = f", {len(outcome.damaged_pages)} damaged" if outcome.damaged_pages else ""
    twin = printable(near(outcome.twin or outcome.source.path))
    word = out.style(outcome.state, fg=COLOURS[outcome.state])
    return f"{word}  {twin}  ({plural(outcome.pages, 'page')}{damaged}, {outcome.seconds:.1f} s)"


def describe_plan(out: Out, outcome: Outcome) -> str:
    word = out.style("convert" if outcome.state == "converted" else outcome.state, fg=COLOURS[outcome.state])
    return f"{word}  {printable(near(outcome.source.path))}  ({REASONS[outcome.reason or 'new']})"


def list_problems(out: Out, problems: Sequence[Outcome], *, unsupported: bool) -> Iterator[str]:
    """Files of the same fate and the same message together, then those of unsupported types."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for one in problems:
        if one.error and one.state != "unsupported":
            # The path of an edited twin is the file's own affair, not the group's.
            message = "A person edited the twin; it was kept." if one.state == "kept" else one.error.message
            groups.setdefault((one.state, f"{one.error.code}: {printable(message)}"), []).append(one)
    for (state, reason), members in sorted(groups.items()):
        yield f"{out.style(state, fg=COLOURS[state])}  {reason}"
        yield from (f"  {printable(near(one.source.path))}" for one in members)
    if unsupported:
        yield from list_unsupported(out, [one.source.path for one in problems if one.state == "unsupported"])
