"""MinerU's contracts of 3.x and the cloud, told apart by asking; and what their misbehaviour becomes."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from docmill.adapters.engines.mineru.engine import MinerUEngine
from docmill.adapters.engines.mineru.results import read
from docmill.adapters.engines.polling import Origin
from docmill.adapters.providers.client import ProviderClient
from docmill.core.errors import DocmillError, DocumentError, StageFailed
from docmill.core.parsed import Parsed
from docmill.ports import Work
from support.mineru_peers import CloudPeer, ThreePeer, result_zip
from support.mineru_today import TodayPeer
from support.peers import Asked, Fault, ProviderPeer, Reply, route
from support.waiting import until

Peer = ThreePeer | CloudPeer
MakeWork = Callable[..., Work]
MakeClient = Callable[..., ProviderClient]


@pytest.fixture(params=[ThreePeer, CloudPeer])
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    with request.param() as peer:
        yield peer


async def parse(peer: ProviderPeer, client: ProviderClient, work: Work) -> tuple[Parsed, list[tuple[int, int | None]]]:
    seen: list[tuple[int, int | None]] = []
    engine = MinerUEngine(client, poll_s=0.02)
    try:
        return await engine.start(work, lambda done, total: seen.append((done, total))), seen
    finally:
        await engine.close()


async def test_a_document_comes_back_with_pages_image_table_and_boxes(
    peer: Peer, client: MakeClient, work: MakeWork
) -> None:
    doing = work()
    parsed, _ = await parse(peer, client(peer.url), doing)

    assert 2 == len(parsed.pages)
    first = parsed.pages[0].markdown
    assert first.startswith("# River Monitoring 2025")
    assert "PAGE HEADER" not in parsed.markdown
    assert "3.1 Outlook" in parsed.pages[1].markdown
    image, table = sorted(parsed.figures, key=lambda figure: figure.kind)
    assert ("image", "image/jpeg", 0, (0.1, 0.2005, 0.5, 0.6)) == (
        image.kind,
        image.media_type,
        image.page_index,
        image.bbox,
    ), "from units of the page, which are more exact than thousandths"
    assert (0.0, 0.0, 1.0, 0.1) == table.bbox
    assert f"](assets/{image.name})" in first
    placed = {block.kind: block for block in parsed.pages[0].blocks}
    assert (image.bbox, table.bbox) == (placed["figure"].bbox, placed["table"].bbox)
    assert first.split("\n")[placed["heading"].first].startswith("# River Monitoring 2025")
    assert "| 1\\|2 | b |" in first
    kept = {path.name for path in (doing.folder / "assets").iterdir()}
    assert {image.name, table.name} == kept
    html = (doing.folder / "assets" / table.name).read_text()
    assert '<td colspan="2">a</td>' in html
    assert "alert" not in html
    assert "onclick" not in html


async def test_the_document_goes_there_under_a_name_that_says_nothing(
    peer: Peer, client: MakeClient, work: MakeWork
) -> None:
    await parse(peer, client(peer.url), work())

    assert ["document.pdf"] == [job.name for job in peer.jobs.values()]


async def test_pages_of_the_cloud_are_progress(client: MakeClient, work: MakeWork) -> None:
    with CloudPeer(looks=3) as peer:
        _, seen = await parse(peer, client(peer.url), work())

    assert [(0, 2), (1, 2), (1, 2)] == seen


@pytest.mark.parametrize("path", ["/api/v4", ""])
async def test_the_cloud_is_found_with_and_without_its_path(client: MakeClient, work: MakeWork, path: str) -> None:
    with CloudPeer() as peer:
        engine = MinerUEngine(client(peer.url + path))
        assert ("MinerU cloud v4", 200) == (await engine.describe(), (await engine.reach()).pages)
        await engine.close()


async def test_the_3_server_is_found(client: MakeClient) -> None:
    with ThreePeer() as peer:
        engine = MinerUEngine(client(peer.url), max_pages=10)
        assert ("MinerU 3.4.5", 10) == (await engine.describe(), (await engine.reach()).pages)
        await engine.close()


class Stranger(ProviderPeer):
    @route("GET", "/.*")
    def page(self, asked: Asked) -> Reply:
        return Reply(body=b"<html>hello</html>", headers={"Content-Type": "text/html"})


async def test_what_is_no_mineru_is_said_to_be_none(client: MakeClient) -> None:
    with Stranger() as peer:
        engine = MinerUEngine(client(peer.url))
        with pytest.raises(StageFailed) as failed:
            await engine.describe()
        await engine.close()
    assert failed.value.code in {"provider_refused", "provider_answer_invalid"}


async def test_a_wrong_key_is_named_as_such(client: MakeClient) -> None:
    with CloudPeer() as peer:
        engine = MinerUEngine(client(peer.url, key="wrong"))
        with pytest.raises(StageFailed, match="is the key right") as failed:
            await engine.describe()
        await engine.close()
    assert "provider_refused" == failed.value.code
    assert not failed.value.retryable


@pytest.mark.parametrize(
    ("code", "ours", "retryable"),
    [
        (-60009, "provider_busy", True),
        (-60007, "provider_busy", True),
        (-60012, "provider_lost", True),
        (-60018, "provider_quota", False),
        (-60005, "provider_refused", False),
        (-60003, "document_broken", False),
        (-60004, "document_empty", False),
        ("A0211", "provider_refused", False),
        (-99999, "provider_refused", False),
    ],
)
async def test_the_clouds_codes_are_ours_and_say_whether_to_try_again(
    client: MakeClient, work: MakeWork, code: int | str, ours: str, retryable: bool
) -> None:
    with CloudPeer() as peer:
        peer.codes.append(code)
        with pytest.raises(DocmillError) as failed:
            await parse(peer, client(peer.url), work())
    assert (ours, retryable) == (failed.value.code, failed.value.retryable)
    assert "10.0.0.7" not in failed.value.message


async def test_a_failed_task_says_so_without_names_of_hosts(peer: Peer, client: MakeClient, work: MakeWork) -> None:
    peer.fail_next = 1
    with pytest.raises(StageFailed) as failed:
        await parse(peer, client(peer.url), work())
    assert "provider_failed" == failed.value.code
    assert "host" not in failed.value.message


LOOK = {ThreePeer: "/tasks/[^/]+", CloudPeer: "/api/v4/extract-results/batch/[^/]+"}
RESULT = {ThreePeer: "/tasks/[^/]+/result", CloudPeer: "/cdn/.*"}


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 429, "headers": {"Retry-After": "0"}, "times": 2},
        {"status": 502, "times": 2},
        {"cut": True, "times": 2},
        {"hang_up": True, "times": 2},
        {"slow_s": 0.3},
    ],
    ids=["429", "502", "cut", "silence", "slow"],
)
async def test_passing_faults_while_looking_and_fetching_are_waited_out(
    peer: Peer, client: MakeClient, work: MakeWork, fault: dict[str, object]
) -> None:
    where = peer.storage if isinstance(peer, CloudPeer) else peer
    peer.faults.append(Fault("GET", LOOK[type(peer)], **fault))  # type: ignore[arg-type]
    where.faults.append(Fault("GET", RESULT[type(peer)], **fault))  # type: ignore[arg-type]

    parsed, _ = await parse(peer, client(peer.url), work())

    assert 2 == len(parsed.pages)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"{}",
        b"[]",
        b'{"code": 0}',
        b'{"code": 0, "data": {"extract_result": [7]}}',
        b'{"status": "odd"}',
        b'{"status": ["pending"], "code": 0, "data": {"extract_result": [{"state": {}}]}}',
    ],
)
async def test_wrong_json_while_looking_is_an_invalid_answer(
    peer: Peer, client: MakeClient, work: MakeWork, body: bytes
) -> None:
    peer.faults.append(Fault("GET", LOOK[type(peer)], status=200, body=body, times=9))
    with pytest.raises(StageFailed) as failed:
        await parse(peer, client(peer.url), work())
    assert "provider_answer_invalid" == failed.value.code
    assert failed.value.retryable


def bomb() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("full.md", b"\0" * 64_000_000)
    return buffer.getvalue()


def odd_zip(name: str, data: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, data)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "body",
    [
        b"not a zip",
        odd_zip("x.txt", "nothing of use"),
        odd_zip("a_content_list.json", '{"type": 1}'),
        odd_zip("a_content_list.json", '[{"type": "text", "page_idx": -1}]'),
        odd_zip("structured_content.json", '{"pages": 7}'),
        odd_zip("a_content_list.json", "[" * 10_000),
    ],
)
async def test_an_archive_that_is_no_good_is_an_invalid_answer(client: MakeClient, work: MakeWork, body: bytes) -> None:
    with ThreePeer() as peer:
        peer.faults.append(Fault("GET", RESULT[ThreePeer], status=200, body=body, times=9))
        with pytest.raises(StageFailed) as failed:
            await parse(peer, client(peer.url), work())
    assert "provider_answer_invalid" == failed.value.code


def test_a_bomb_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "bomb.zip").write_bytes(bomb())
    with pytest.raises(StageFailed, match="would unpack to far more"):
        read(tmp_path / "bomb.zip", tmp_path, Origin("mineru", "application/pdf", {}))
    assert [] == list((tmp_path / "assets").iterdir())


def test_nothing_found_is_an_error_and_names_in_the_archive_are_no_paths(tmp_path: Path) -> None:
    (tmp_path / "empty.zip").write_bytes(odd_zip("full.md", "  \n"))
    with pytest.raises(DocumentError) as failed:
        read(tmp_path / "empty.zip", tmp_path, Origin("mineru", "application/pdf", {}))
    assert "document_no_text" == failed.value.code
    (tmp_path / "slip.zip").write_bytes(result_zip(["hello"], "../../", "full", layout="layout.json"))
    parsed = read(tmp_path / "slip.zip", tmp_path, Origin("mineru", "application/pdf", {}))
    assert 2 == len(list((tmp_path / "assets").iterdir()))
    assert "hello" in parsed.markdown


async def test_a_restarted_server_knows_the_job_no_more(client: MakeClient, work: MakeWork) -> None:
    with ThreePeer(looks=1000) as peer:
        running = asyncio.create_task(parse(peer, client(peer.url), work()))
        await until(lambda: peer.jobs)
        peer.jobs.clear()
        with pytest.raises(StageFailed) as failed:
            await running
    assert "provider_lost" == failed.value.code
    assert failed.value.retryable


async def test_the_submission_is_not_sent_twice_when_its_answer_gets_lost(client: MakeClient, work: MakeWork) -> None:
    with ThreePeer() as peer:
        peer.faults.append(Fault("POST", "/tasks", hang_up=True, after=True))
        with pytest.raises(StageFailed, match="does not answer"):
            await parse(peer, client(peer.url), work())
        assert 1 == len(peer.jobs)


# --- the server of today, where it cannot be the real one


@pytest.fixture
def today() -> Iterator[TodayPeer]:
    with TodayPeer() as peer:
        yield peer


async def test_bytes_that_it_knows_do_not_travel_again(today: TodayPeer, client: MakeClient, work: MakeWork) -> None:
    for _ in range(2):
        parsed, _ = await parse(today, client(today.url), work())
        assert 2 == len(parsed.pages)

    assert (2, 1) == (len(today.jobs), len(today.asked("PUT", ".*")))


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (Fault("GET", "/v1/parse/jobs/.*", body=b'{"status": []}'), "canceled"),
        (Fault("GET", "/v1/parse/jobs/.*", status=500, times=3), "canceled"),
        (Fault("GET", "/v1/files/.*", body=b"", status=404), "completed"),
    ],
    ids=["no sense", "no answer", "lost"],
)
async def test_a_job_that_nobody_waits_for_any_more_is_called_off(
    today: TodayPeer, client: MakeClient, work: MakeWork, fault: Fault, status: str
) -> None:
    today.faults.append(fault)
    with pytest.raises(StageFailed) as failed:
        await parse(today, client(today.url), work())
    assert failed.value.retryable
    assert [status] == [job.status for job in today.jobs.values()]


async def test_a_job_whose_id_is_still_on_the_way_is_called_off_too(
    today: TodayPeer, client: MakeClient, work: MakeWork
) -> None:
    today.faults.append(Fault("POST", "/v1/parse/jobs", slow_s=0.5))
    running = asyncio.create_task(parse(today, client(today.url), work()))
    await until(lambda: today.asked("POST", "/v1/parse/jobs"))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert ["canceled"] == [job.status for job in today.jobs.values()]


async def test_a_document_that_is_no_kind_of_theirs_never_leaves(
    peer: Peer, client: MakeClient, work: MakeWork, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,4\n")
    (tmp_path / "empty.pdf").touch()
    for name, code in (("a.csv", "document_unsupported"), ("empty.pdf", "document_empty")):
        with pytest.raises(DocumentError) as failed:
            await parse(peer, client(peer.url), work(tmp_path / name))
        assert code == failed.value.code
    assert [] == peer.seen
