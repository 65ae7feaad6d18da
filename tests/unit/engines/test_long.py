"""Long documents: windows that several children read, put together as if one had read them in turn."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pypdfium2
import pytest

from docmill.adapters.engines.local import Limits, LocalEngine
from docmill.adapters.engines.local.pdf import document
from docmill.adapters.engines.local.slots import Slots
from docmill.core.errors import DocumentError, StageFailed
from docmill.core.parsed import Parsed
from docmill.ports import Work
from support import documents
from support.long_pdf import numbered_pdf
from unit.engines.test_confinement import appears, gone, silent

SAMPLES = Path(__file__).parents[3] / "samples"


def glued(path: Path, parts: list[Path], pages: int) -> Path:
    whole = pypdfium2.PdfDocument.new()
    for part in itertools.cycle(parts):
        with pypdfium2.PdfDocument(part) as one:
            whole.import_pages(one)
        if len(whole) >= pages:
            break
    whole.save(str(path))
    whole.close()
    return path


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Chapters with running heads; and all that a page can have, in an order that no window divides evenly."""
    folder = tmp_path_factory.mktemp("books")
    report = documents.pdf_with_headers(folder / "report.pdf", pages=3 * document.WINDOW + 4)
    made = [documents.pdf_rich, documents.pdf_form, documents.pdf_chinese, documents.pdf_spanning]
    parts = [make(folder / f"{make.__name__}.pdf") for make in made]
    parts.append(documents.pdf_turned(folder / "turned.pdf", 90))
    parts.append(documents.pdf_with_headers(folder / "head.pdf", pages=7))
    parts += sorted(SAMPLES.glob("re*.pdf")) + sorted(SAMPLES.glob("*.zh.pdf"))
    return [report, glued(folder / "mixed.pdf", parts, 2 * document.WINDOW + 9)]


def parse(books: list[Path], folder: Path, places: int) -> list[tuple[Parsed, list[int], dict[str, bytes]]]:
    """Of each book what came out, the reports of pages, and the files."""

    async def all_of_them() -> list[tuple[Parsed, list[int], dict[str, bytes]]]:
        engine, found = LocalEngine(places, spares=0), []
        try:
            for book in books:
                own, reports = folder / f"{book.stem}-{places}", []
                own.mkdir()
                work = Work(1, uuid4(), book, book.name, own)
                parsed = await engine.start(work, lambda done, _total, to=reports: to.append(done))
                found.append((parsed, reports, {file.name: file.read_bytes() for file in own.glob("assets/*")}))
        finally:
            await engine.close()
        return found

    return asyncio.run(all_of_them())


def test_with_three_places_comes_out_what_comes_out_with_one(books: list[Path], tmp_path: Path) -> None:
    by_one, by_three = parse(books, tmp_path, 1), parse(books, tmp_path, 3)
    for (alone, slowly, kept), (shared, counted, files) in zip(by_one, by_three, strict=True):
        assert msgspec.json.encode(alone) == msgspec.json.encode(shared)
        total = len(alone.pages)
        assert list(range(total)) == [page.index for page in shared.pages]
        assert list(range(1, total + 1)) == slowly == counted
        assert kept == files
        assert {figure.name for figure in shared.figures} == set(files)
        whole = "\n".join(page.markdown for page in shared.pages)
        assert "Annual report of the harbour office" not in whole
        assert whole.count("# Chapter") >= 7
        assert "en" == shared.language


@pytest.mark.parametrize("kind", ["plain", "mixed"])
def test_a_thousand_pages_fit_into_200_mb_from_the_first_to_the_last(kind: str, tmp_path: Path) -> None:
    """In a process that has read nothing before: what it loads on the way counts. The mixed ones bring their fonts."""
    source = tmp_path / f"{kind}.pdf"
    if kind == "plain":
        numbered_pdf(source, 1000)
    else:
        glued(source, [one for one in sorted(SAMPLES.glob("*.pdf")) if not one.name.startswith("scan")], 1000)

    def children() -> set[str]:
        return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())

    async def read() -> tuple[int, list[int]]:
        others, engine = children(), LocalEngine(1, spares=0)
        try:
            parsed = await engine.start(Work(1, uuid4(), source, source.name, tmp_path), silent)
            said = [Path(f"/proc/{pid}/status").read_text() for pid in children() - others]
        finally:
            await engine.close()
        return len(parsed.pages), [int(peak) // 1024 for peak in re.findall(r"VmHWM:\s+(\d+)", "".join(said))]

    pages, peaks = asyncio.run(read())
    assert pages >= 1000
    assert 1 <= len(peaks)
    assert max(peaks) < 200


def test_cancelling_ends_all_children_of_the_document(naughty: Callable[..., Any]) -> None:
    async def play(engine: Any, work: Any) -> None:
        job = work("long", "hang")
        running = asyncio.create_task(engine.start(job, silent))
        pids = [await asyncio.to_thread(appears, engine, f"pid{start}") for start in (0, 100, 200)]
        assert 3 == len(set(pids))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert all(gone(pid) for pid in pids)
        assert "fine" == (await engine.start(work("say", "fine"), silent)).pages[0].markdown

    naughty(play, slots=3)


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("crash", "parse_crashed"),
        ("refuse", "document_broken"),
        ("lie", "parse_crashed"),
        ("publish", "parse_output_too_large"),
    ],
)
def test_what_goes_wrong_in_one_window_fails_the_document_and_nothing_else(
    naughty: Callable[..., Any], what: str, code: str
) -> None:
    async def play(engine: Any, work: Any) -> None:
        job = work("long", what)
        with pytest.raises((StageFailed, DocumentError)) as caught:
            await engine.start(job, silent)
        assert code == caught.value.code
        # Whoever read the other windows has ended, or waits for the next document.
        assert all(gone(child.pid) or child in engine._idle for child in engine._children)
        answers = await asyncio.gather(*(engine.start(work("say", "fine"), silent) for _ in range(4)))
        assert ["fine"] * 4 == [answer.pages[0].markdown for answer in answers]

    naughty(play, Limits(seconds=20, output_mb=20), slots=2)


def test_a_long_document_that_takes_too_long_is_stopped_with_all_its_children(naughty: Callable[..., Any]) -> None:
    async def play(engine: Any, work: Any) -> None:
        running = asyncio.create_task(engine.start(work("long", "hang"), silent))
        pids = [await asyncio.to_thread(appears, engine, f"pid{start}") for start in (0, 100)]
        with pytest.raises(StageFailed) as caught:
            await running
        assert "parse_timeout" == caught.value.code
        assert all(gone(pid) for pid in pids)

    naughty(play, Limits(seconds=5), slots=2)


def test_who_comes_gets_a_place_after_a_page_and_the_long_document_loses_nothing(naughty: Callable[..., Any]) -> None:
    async def play(engine: Any, work: Any) -> None:
        job, done = work("long", "slow"), []
        running = asyncio.create_task(engine.start(job, lambda count, _total: done.append(count)))
        for start in (0, 100):
            await asyncio.to_thread(appears, engine, f"pid{start}")
        answers = await asyncio.gather(*(engine.start(work("say", "fine"), silent) for _ in range(3)))
        assert ["fine"] * 3 == [answer.pages[0].markdown for answer in answers]
        assert not running.done()
        assert len(done) < 100
        parsed = await running
        assert [f"page {index}" for index in range(300)] == [page.markdown for page in parsed.pages]
        assert list(range(1, 301)) == done
        assert most_at_once(parsed) == 2

    naughty(play, slots=2)


def most_at_once(*documents: Parsed) -> int:
    """How many children wrote pages in the same moment: they say when they made each."""
    spans = [tuple(map(float, span.split()[1:])) for parsed in documents for span in parsed.facts["spans"]]
    steps = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    return max(itertools.accumulate(step for _, step in steps))


def test_two_long_documents_share_the_places(naughty: Callable[..., Any]) -> None:
    async def play(engine: Any, work: Any) -> None:
        jobs = [work("long", "slow") for _ in range(2)]
        both = await asyncio.gather(*(engine.start(job, silent) for job in jobs))
        for parsed in both:
            assert [f"page {index}" for index in range(300)] == [page.markdown for page in parsed.pages]
        assert all(most_at_once(parsed) >= 2 for parsed in both)
        assert most_at_once(*both) <= 4

    naughty(play, slots=4)


def test_a_place_goes_to_who_waits_before_it_is_spare() -> None:
    async def play() -> None:
        slots = Slots(1)
        assert slots.take_spare()
        assert not slots.take_spare()
        first, second = (asyncio.create_task(slots.take()) for _ in range(2))
        await asyncio.sleep(0)
        assert slots.wanted
        slots.free()
        assert not slots.take_spare()
        await first
        slots.free()
        second.cancel()  # in the very moment in which the place became its own
        with pytest.raises(asyncio.CancelledError):
            await second
        assert not slots.wanted
        assert slots.take_spare()

    asyncio.run(asyncio.wait_for(play(), 30))
