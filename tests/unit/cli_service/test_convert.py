"""Conversion as a use case, on a real disk with an engine that is quick."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from docmill.adapters.libraries.disk import DiskLibrary
from docmill.cli.unsupported import refusal
from docmill.core.errors import DocumentError
from docmill.core.parsed import Page, Parsed
from docmill.ports import PageReport, Work
from docmill.work.convert import Clash, Converter, Options, Outcome, Source, find


@dataclass
class Typist:
    """An engine: a text becomes pages, cut at form feeds. `slow.txt` never ends, `bad.txt` is refused."""

    version: str = "1"
    name: str = "typist"
    running: set[str] = field(default_factory=set)
    most: int = 0

    async def start(self, work: Work, report: PageReport) -> Parsed:
        self.running.add(work.filename)
        self.most = max(self.most, len(self.running))
        try:
            if work.filename == "slow.txt":
                await asyncio.Event().wait()
            await asyncio.sleep(0.01)
            if work.filename == "bad.txt":
                raise DocumentError("document_encrypted")
            report(1, 1)
            pages = tuple(Page(index, text) for index, text in enumerate(work.source.read_text().split("\f")))
            return Parsed(self.name, "text/plain", pages, language="en")
        finally:
            self.running.discard(work.filename)

    async def close(self) -> None: ...


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "inner").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "inner/c.txt", ".hidden.txt"):
        (folder / name).write_text(f"I am {name}")
    return folder


@pytest.fixture
def engine() -> Typist:
    return Typist()


async def run(folder: Path, engine: Typist, out: Path | None = None, jobs: int = 2, **options: object) -> list[Outcome]:
    library = DiskLibrary()
    sources = await find([folder], library, refusal, out=out)
    worker = Converter(engine, library, folder.parent / "scratch", Options(**options), jobs)  # type: ignore[arg-type]
    async with aclosing(worker.convert(sources, lambda *_: None)) as outcomes:
        return sorted([one async for one in outcomes], key=lambda one: one.source.path)


def twins(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.md"))


def names_in(folder: Path) -> list[Path]:
    """What a `*` of the shell would name, and more."""
    return sorted(folder.iterdir())


def code_of(outcome: Outcome) -> str | None:
    return outcome.error.code if outcome.error else None


def states(outcomes: list[Outcome]) -> dict[str, tuple[str, str | None]]:
    return {one.source.path.name: (one.state, one.reason) for one in outcomes}


async def test_a_folder_is_converted_once(folder: Path, engine: Typist) -> None:
    first = await run(folder, engine)
    second = await run(folder, engine)

    assert {"a.txt": ("converted", "new"), "b.txt": ("converted", "new"), "c.txt": ("converted", "new")} == states(
        first
    )
    assert {
        "a.txt": ("current", "current"),
        "b.txt": ("current", "current"),
        "c.txt": ("current", "current"),
    } == states(second)
    assert [] == list((folder.parent / "scratch").iterdir())


async def test_only_what_changed_is_converted_again(folder: Path, engine: Typist) -> None:
    await run(folder, engine)
    (folder / "a.txt").write_text("I am another one")

    assert ("converted", "changed") == states(await run(folder, engine))["a.txt"]
    assert "another one" in (folder / "_a.txt" / "a.md").read_text()


async def test_page_files_are_written_when_asked_for_and_go_when_not(folder: Path, engine: Typist) -> None:
    (folder / "a.txt").write_text("one\ftwo")
    twin = folder / "_a.txt"

    await run(folder, engine)
    without = sorted(path.name for path in twin.glob("*.md"))
    asked = await run(folder, engine, page_files=True)
    with_files = sorted(path.name for path in twin.glob("*.md"))
    back = await run(folder, engine)

    assert ["a.md"] == without == sorted(path.name for path in twin.glob("*.md"))
    assert ["a.md", "page_001.md", "page_002.md"] == with_files
    assert ("converted", "outdated") == states(asked)["a.txt"] == states(back)["a.txt"]


async def test_a_twin_is_named_as_its_folder_was(folder: Path, engine: Typist, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)

    twins = {str(one.twin) for one in await run(Path("docs"), engine)}

    assert {"docs/_a.txt/a.md", "docs/_b.txt/b.md", "docs/inner/_c.txt/c.md"} == twins
    assert twins == {str(one.twin) for one in await run(Path("docs"), engine)}


@pytest.mark.parametrize("change", [{"page_images": True}, {"ocr": "always"}, {"language": "en"}])
async def test_other_options_make_a_twin_outdated(folder: Path, engine: Typist, change: dict[str, object]) -> None:
    await run(folder, engine)

    assert ("converted", "outdated") == states(await run(folder, engine, **change))["a.txt"]


async def test_another_version_of_the_engine_makes_a_twin_outdated(folder: Path, engine: Typist) -> None:
    await run(folder, engine)

    assert ("converted", "outdated") == states(await run(folder, Typist(version="2")))["a.txt"]


async def test_an_edited_twin_is_kept_without_parsing_for_nothing(folder: Path, engine: Typist) -> None:
    await run(folder, engine)
    (folder / "a.txt").write_text("new words")
    twin = folder / "_a.txt" / "a.md"
    twin.write_text("mended by hand")

    kept = next(one for one in await run(folder, engine) if one.source.path.name == "a.txt")

    assert ("kept", "edited", "twin_drift") == (kept.state, kept.reason, kept.error and kept.error.code)
    assert "mended by hand" == twin.read_text()
    assert ("converted", "forced") == states(await run(folder, engine, force=True))["a.txt"]
    assert "new words" in twin.read_text()


async def test_an_edit_alone_is_no_reason_to_complain(folder: Path, engine: Typist) -> None:
    """Nothing would be written anyway, so nothing is at stake."""
    await run(folder, engine)
    (folder / "_a.txt" / "a.md").write_text("mended by hand")

    assert ("current", "current") == states(await run(folder, engine))["a.txt"]


async def test_one_bad_document_hurts_no_other(folder: Path, engine: Typist) -> None:
    (folder / "bad.txt").write_text("?")

    outcomes = await run(folder, engine)

    bad = next(one for one in outcomes if one.source.path.name == "bad.txt")
    assert ("failed", "document_encrypted") == (bad.state, bad.error and bad.error.code)
    assert 3 == sum(one.state == "converted" for one in outcomes)


async def test_a_file_that_is_gone_when_its_turn_comes_fails(folder: Path, engine: Typist) -> None:
    worker = Converter(engine, DiskLibrary(), folder / "scratch")

    [outcome] = [one async for one in worker.convert([Source(folder / "gone.txt", folder)], lambda *_: None)]

    assert ("failed", "stage_failed") == (outcome.state, outcome.error and outcome.error.code)


async def test_the_tree_is_mirrored_elsewhere(folder: Path, engine: Typist, tmp_path: Path) -> None:
    out = tmp_path / "out"

    await run(folder, engine, out)

    assert ["_a.txt/a.md", "_b.txt/b.md", "inner/_c.txt/c.md"] == twins(out)
    assert [] == twins(folder)
    assert {"current"} == {one.state for one in await run(folder, engine, out)}


async def test_an_output_folder_inside_is_not_a_source(folder: Path, engine: Typist) -> None:
    await run(folder, engine, folder / "out")
    (folder / "out" / "note.txt").write_text("mine")

    assert {"a.txt", "b.txt", "c.txt"} == states(await run(folder, engine, folder / "out")).keys()


@pytest.mark.parametrize("layout", ["folder", "sidecar"])
async def test_twins_are_no_sources_even_when_they_are_named(folder: Path, engine: Typist, layout: str) -> None:
    await run(folder, engine, layout=layout)

    everything = await find(names_in(folder), DiskLibrary(), refusal)

    names = {source.path.name for source in everything}
    assert {"a.txt", "b.txt", "c.txt", ".hidden.txt"} == names


async def test_links_lead_to_no_loop_and_unreadable_names_to_no_crash(folder: Path, engine: Typist) -> None:
    (folder / "inner" / "up").symlink_to(folder)
    (folder / "dangling.pdf").symlink_to(folder / "nowhere")
    (folder / "linked.txt").symlink_to(folder / "a.txt")

    found = await find([folder, folder / "a.txt"], DiskLibrary(), refusal)

    assert ["a.txt", "b.txt", "c.txt"] == [source.path.name for source in found]


async def test_flat_stays_flat(folder: Path) -> None:
    found = await find([folder], DiskLibrary(), refusal, recursive=False)

    assert ["a.txt", "b.txt"] == [source.path.name for source in found]


async def test_what_is_no_document_is_unsupported_in_a_folder_and_tried_when_named(
    folder: Path, engine: Typist
) -> None:
    (folder / "program.py").write_text("print('hello')")
    (folder / "noise").write_bytes(bytes(range(256)))

    found = {one.source.path.name: one for one in await run(folder, engine)}

    assert ("unsupported", "document_unsupported") == (found["program.py"].state, code_of(found["program.py"]))
    assert ("unsupported", "document_unsupported") == (found["noise"].state, code_of(found["noise"]))
    [named] = await find([folder / "program.py"], DiskLibrary(), refusal)
    assert named.refusal is None


async def test_two_sources_with_one_twin_are_told_before_anything_is_written(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.txt").write_text("I am somebody else")

    with pytest.raises(Clash):
        await find([folder, other], DiskLibrary(), refusal, out=tmp_path / "out")


async def test_the_plan_says_why_and_writes_nothing(folder: Path, engine: Typist) -> None:
    await run(folder, engine)
    (folder / "b.txt").write_text("changed")
    (folder / "d.txt").write_text("new")
    (folder / "x.py").write_text("print()")
    library = DiskLibrary()
    worker = Converter(engine, library, folder.parent / "scratch")

    plan = [one async for one in worker.plan(await find([folder], library, refusal))]

    reasons = {one.source.path.name: one.reason for one in plan}
    expected = {"a.txt": "current", "b.txt": "changed", "d.txt": "new", "x.py": "unsupported", "c.txt": "current"}
    assert expected == reasons
    assert not (folder / "_d.txt").exists()


async def test_no_more_at_once_than_jobs(folder: Path, engine: Typist) -> None:
    for number in range(12):
        (folder / f"{number}.txt").write_text(str(number))

    await run(folder, engine, jobs=3)

    assert 3 == engine.most


async def test_closing_ends_what_was_started(folder: Path, engine: Typist) -> None:
    (folder / "slow.txt").write_text("...")
    library = DiskLibrary()
    worker = Converter(engine, library, folder.parent / "scratch", jobs=8)
    sources = await find([folder], library, refusal)

    async with aclosing(worker.convert(sources, lambda *_: None)) as outcomes:
        seen = [await anext(outcomes) for _ in range(3)]

    assert {"converted"} == {one.state for one in seen}
    assert set() == engine.running
    assert [] == list((folder.parent / "scratch").iterdir())
