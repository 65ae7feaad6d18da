"""A long document goes to a provider with a page limit in pieces, and comes out whole and in order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from reportlab.pdfgen import canvas

from docmill.adapters.engines.local import LocalEngine
from docmill.adapters.engines.mineru.cloud import Cloud
from docmill.adapters.engines.mineru.engine import MinerUEngine
from docmill.adapters.engines.slicing.auto import AutoEngine, Member
from docmill.adapters.engines.slicing.cutting import Cutter
from docmill.adapters.engines.slicing.sliced import SlicedEngine
from docmill.adapters.providers.client import ProviderClient
from docmill.core.errors import DocumentError, StageFailed
from docmill.core.parsed import Page, Parsed
from docmill.core.routing import Policy, Quality, Reach, quality
from docmill.ports import Work
from support.long_pdf import numbered_pdf
from support.mineru_peers import CloudPeer
from support.peers import Fault
from support.waiting import until

MakeWork = Callable[..., Work]
MakeClient = Callable[..., ProviderClient]
SAMPLES = Path(__file__).parents[3] / "samples"


@pytest.fixture
def peer() -> Iterator[CloudPeer]:
    with CloudPeer(looks=1) as peer:
        yield peer


def sliced(client: ProviderClient, **options: object) -> SlicedEngine:
    engine = MinerUEngine(client, poll_s=0.02)
    return SlicedEngine(engine, Cutter(), pause_s=0.01, **options)  # type: ignore[arg-type]


async def test_many_pages_through_a_limit_of_200_with_a_slice_that_fails_twice(
    peer: CloudPeer, client: MakeClient, work: MakeWork, tmp_path: Path
) -> None:
    peer.fail_batch_with = {"P00401": 2}
    engine = sliced(client(peer.url))
    seen: list[tuple[int, int | None]] = []
    doing = work(numbered_pdf(tmp_path / "long.pdf", 800))

    parsed = await engine.start(doing, lambda done, total: seen.append((done, total)))
    await engine.close()

    assert [f"P{number:05d}" for number in range(1, 801)] == [
        page.markdown.removeprefix("# ").split()[0] for page in parsed.pages
    ]
    assert list(range(800)) == [page.index for page in parsed.pages]
    assert () == parsed.damaged_pages
    assert 4 == parsed.facts["slices"]
    assert 6 == len(peer.jobs), "four slices, one of them three times"
    assert {200} == {len(job.pages) for job in peer.jobs.values()}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert (800, 800) == seen[-1]
    images = [figure for figure in parsed.figures if figure.kind == "image"]
    assert list(range(0, 800, 200)) == [figure.page_index for figure in images]
    assert all((doing.folder / "assets" / figure.name).stat().st_size == figure.size for figure in parsed.figures)
    assert all(f"](assets/{one.name})" in parsed.pages[one.page_index or 0].markdown for one in images)


async def test_a_slice_that_stays_failed_is_missing_by_name(
    peer: CloudPeer, client: MakeClient, work: MakeWork, tmp_path: Path
) -> None:
    peer.fail_batch_with = {"P00168": 9}
    engine = sliced(client(peer.url))

    parsed = await engine.start(work(numbered_pdf(tmp_path / "long.pdf", 500)), lambda _done, _total: None)
    await engine.close()

    assert list(range(168, 335)) == parsed.facts["missing_pages"]
    assert tuple(range(167, 334)) == parsed.damaged_pages
    assert 500 == len(parsed.pages)


async def test_slices_are_small_enough_too(
    peer: CloudPeer, client: MakeClient, work: MakeWork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine thin pages and a thick one: what came out too large is cut again, and a page that stays so is named."""
    source = tmp_path / "thick.pdf"
    pdf = canvas.Canvas(str(source), pagesize=(200, 200), pageCompression=0)
    for number in range(1, 11):
        pdf.drawString(20, 100, f"P{number:05d} of the report")
        if number == 7:
            pdf.drawString(20, 50, Random(7).randbytes(40_000).hex())  # does not shrink
        pdf.showPage()
    pdf.save()
    monkeypatch.setattr(Cloud, "max_bytes", 20_000)
    engine = sliced(client(peer.url))

    parsed = await engine.start(work(source), lambda _done, _total: None)
    await engine.close()

    assert [f"P{number:05d}" for number in range(1, 11) if number != 7] == [
        page.markdown.removeprefix("# ").split()[0] for page in parsed.pages if page.markdown
    ]
    assert ((6,), [7]) == (parsed.damaged_pages, parsed.facts["missing_pages"])
    assert 2 < len(peer.jobs)


async def test_a_blank_slice_is_no_failure(peer: CloudPeer, client: MakeClient, work: MakeWork, tmp_path: Path) -> None:
    source = tmp_path / "blank.pdf"
    pdf = canvas.Canvas(str(source), pagesize=(200, 200))
    for number in range(4):
        if number > 1:
            pdf.drawString(20, 100, f"P{number:05d} of the report")
        pdf.showPage()
    pdf.save()
    peer.pictures = False
    engine = SlicedEngine(MinerUEngine(client(peer.url), poll_s=0.02, max_pages=2), Cutter(), pause_s=0.01)

    parsed = await engine.start(work(source), lambda _done, _total: None)
    await engine.close()

    assert ([0, 1, 2, 3], ()) == ([page.index for page in parsed.pages], parsed.damaged_pages)
    assert [False, False, True, True] == [bool(page.markdown) for page in parsed.pages]
    assert (2, 2) == (parsed.facts["slices"], len(peer.jobs))


async def test_all_slices_failing_is_a_failure(
    peer: CloudPeer, client: MakeClient, work: MakeWork, tmp_path: Path
) -> None:
    peer.fail_next = 99
    engine = sliced(client(peer.url))
    with pytest.raises(StageFailed) as failed:
        await engine.start(work(numbered_pdf(tmp_path / "long.pdf", 300)), lambda _done, _total: None)
    await engine.close()
    assert "provider_failed" == failed.value.code


@pytest.mark.parametrize(
    ("codes", "ours"),
    [([-60018] * 9, "provider_quota"), ([-60009] * 99, "provider_busy"), (["A0202"], "provider_refused")],
)
async def test_what_every_slice_would_hear_ends_the_whole(
    peer: CloudPeer, client: MakeClient, work: MakeWork, tmp_path: Path, codes: list[int | str], ours: str
) -> None:
    engine = sliced(client(peer.url))
    await engine.describe()
    peer.codes = codes
    with pytest.raises(StageFailed) as failed:
        await engine.start(work(numbered_pdf(tmp_path / "long.pdf", 300)), lambda _done, _total: None)
    await engine.close()
    assert ours == failed.value.code


async def test_a_policy_holds_whoever_asks(peer: CloudPeer, client: MakeClient, work: MakeWork) -> None:
    for engine, options in (
        (sliced(client(peer.url), policy=Policy(stay_home=True)), {}),
        (sliced(client(peer.url)), {"stay_home": True}),
        (sliced(client(peer.url)), {"budget_pages": 1}),
    ):
        with pytest.raises(StageFailed) as failed:
            await engine.start(work(**options), lambda _done, _total: None)
        assert "provider_forbidden" == failed.value.code
        await engine.close()
    assert [] == peer.seen


async def test_a_cancelled_document_stops_every_slice(client: MakeClient, work: MakeWork, tmp_path: Path) -> None:
    with CloudPeer(looks=10_000) as peer:
        engine = sliced(client(peer.url))
        running = asyncio.create_task(
            engine.start(work(numbered_pdf(tmp_path / "long.pdf", 900)), lambda _done, _total: None)
        )
        await until(lambda: len([job for job in tuple(peer.jobs.values()) if job.looks]) >= 4)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await engine.close()
        looks = sum(job.looks for job in peer.jobs.values())
        await asyncio.sleep(0.2)
        assert looks == sum(job.looks for job in peer.jobs.values())


@pytest.mark.parametrize(("data", "code"), [(b"%PDF-1.4 nonsense", "document_broken"), (b"", "")])
async def test_a_broken_pdf_is_an_error_of_the_document(tmp_path: Path, data: bytes, code: str) -> None:
    (tmp_path / "x.pdf").write_bytes(data)
    if not code:
        assert "application/x-empty" == (await Cutter().facts(tmp_path / "x.pdf", "x.pdf")).media_type
        return
    with pytest.raises(DocumentError) as failed:
        await Cutter().facts(tmp_path / "x.pdf", "x.pdf")
    assert code == failed.value.code


async def test_pages_with_text_are_counted() -> None:
    report = await Cutter().facts(SAMPLES / "report.en.pdf", "report.en.pdf")
    scan = await Cutter().facts(SAMPLES / "scan.en.pdf", "scan.en.pdf")

    assert (2, 0.0) == (report.pages, report.scanned_share)
    assert 1.0 == scan.scanned_share


# --- the choice


class Fixed:
    """A local engine with a result that is told beforehand."""

    name = "local"
    version = "1"

    def __init__(self, parsed: Parsed | Exception) -> None:
        self.parsed = parsed

    async def start(self, work: Work, report: object) -> Parsed:
        if isinstance(self.parsed, Exception):
            raise self.parsed
        return self.parsed

    async def warm(self) -> None: ...

    async def close(self) -> None: ...


def auto(local: object, client: ProviderClient, **policy: object) -> AutoEngine:
    member = Member(sliced(client), home=False, reach=Reach(200))
    return AutoEngine(local, {"mineru": member}, Cutter(), Policy(**policy))  # type: ignore[arg-type]


async def test_a_good_local_result_stays_at_home(peer: CloudPeer, client: MakeClient, work: MakeWork) -> None:
    local = LocalEngine(1, spares=0)
    engine = auto(local, client(peer.url))
    try:
        parsed = await engine.start(work(), lambda _done, _total: None)
    finally:
        await local.close()

    assert ("local", ["local"]) == (parsed.engine, parsed.facts["routed"])
    assert [] == peer.seen


@pytest.mark.parametrize(
    "local",
    [
        Fixed(Parsed("local", "application/pdf", ())),
        Fixed(StageFailed("parse_crashed", how="signal 11")),
        Fixed(DocumentError("document_no_text")),
    ],
    ids=["poor", "crashed", "no text"],
)
async def test_a_poor_one_goes_to_the_provider(
    peer: CloudPeer, client: MakeClient, work: MakeWork, local: Fixed
) -> None:
    doing = work()
    parsed = await auto(local, client(peer.url)).start(doing, lambda _done, _total: None)

    assert ("mineru", ["local", "mineru"]) == (parsed.engine, parsed.facts["routed"])
    assert {figure.name for figure in parsed.figures} == {path.name for path in (doing.folder / "assets").iterdir()}


async def test_unless_it_must_not(peer: CloudPeer, client: MakeClient, work: MakeWork) -> None:
    engine = auto(Fixed(StageFailed("parse_crashed", how="signal 11")), client(peer.url), stay_home=True)
    with pytest.raises(StageFailed) as failed:
        await engine.start(work(), lambda _done, _total: None)
    assert "parse_crashed" == failed.value.code
    assert [] == peer.seen


async def test_a_provider_that_fails_leaves_the_poor_result(
    peer: CloudPeer, client: MakeClient, work: MakeWork
) -> None:
    peer.faults.append(Fault("GET", "/.*", status=500, times=99))
    poor = Parsed("local", "application/pdf", (Page(0, "some"), Page(1, "")))
    parsed = await auto(Fixed(poor), client(peer.url)).start(work(), lambda _done, _total: None)

    assert "local" == parsed.engine


async def test_a_result_is_judged_in_a_child(
    peer: CloudPeer, client: MakeClient, work: MakeWork, tmp_path: Path
) -> None:
    """A large result of hostile text must not take the service's own time. As a ratio, for the machine may be busy."""
    parsed = Parsed(
        "local", "application/pdf", (Page(0, "![" * 8_000_000), Page(1, "\ud800 fine"), Page(2, "", "torn"))
    )
    began = time.process_time()
    judged = quality(parsed.pages)
    alone_s = time.process_time() - began

    began = time.process_time()
    found = await Cutter(scratch=tmp_path).judge(parsed, tmp_path)
    with_child_s = time.process_time() - began

    assert Quality(3, 0, 0, 1) == judged == found
    assert with_child_s < alone_s / 2
    assert [] == list(tmp_path.iterdir())


async def test_the_result_of_the_only_engine_is_not_judged(client: MakeClient, work: MakeWork) -> None:
    blank = Parsed("local", "application/pdf", (Page(0, ""),), facts={"a": 1})
    engine = AutoEngine(Fixed(blank), {}, Cutter(), Policy())  # type: ignore[arg-type]

    parsed = await engine.start(work(), lambda _done, _total: None)

    assert {"a": 1, "routed": ["local"]} == parsed.facts
