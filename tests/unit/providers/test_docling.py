"""docling-serve: submit, poll, fetch once; boxes from the bottom left, pages from 1; and its misbehaviour."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from docmill.adapters.engines.docling.engine import DoclingEngine
from docmill.adapters.providers.breaker import Breaker
from docmill.adapters.providers.client import Patience, ProviderClient
from docmill.core.errors import StageFailed
from docmill.core.parsed import Parsed
from docmill.ports import Work
from support.docling_peer import KEY, DoclingPeer, docling_document
from support.peers import Fault

QUICK = Patience(tries=3, first_pause_s=0.01, longest_pause_s=0.5, connect_s=10, silence_s=10, request_s=20)
MakeWork = Callable[..., Work]


@pytest.fixture
def peer() -> Iterator[DoclingPeer]:
    with DoclingPeer() as peer:
        yield peer


async def parse(peer: DoclingPeer, work: Work, key: str = KEY) -> Parsed:
    client = ProviderClient("docling", peer.url, {"X-Api-Key": key}, patience=QUICK, breaker=Breaker(50))
    engine = DoclingEngine(client, poll_s=0.02, options={"pipeline": "standard"})
    try:
        return await engine.start(work, lambda _done, _total: None)
    finally:
        await engine.close()


async def test_a_document_comes_back_with_picture_table_list_and_boxes(peer: DoclingPeer, work: MakeWork) -> None:
    doing = work(ocr="never")
    parsed = await parse(peer, doing)

    assert [0, 1] == [page.index for page in parsed.pages]
    first = parsed.pages[0].markdown
    assert first.startswith("# River Monitoring 2025")
    assert "River Monitoring 2025" == parsed.title
    assert "PAGE HEADER" not in parsed.markdown
    assert 1 == parsed.markdown.count("A teal box.")
    assert "1. first" in first
    assert "| head |  |\n| --- | --- |\n| a\\|b | <b> |" in first
    assert parsed.pages[1].markdown.startswith("## ")
    table, image = sorted(parsed.figures, key=lambda figure: figure.media_type, reverse=True)
    assert ("image/png", 0, (0.1, 0.2, 0.5, 0.6)) == (image.media_type, image.page_index, image.bbox)
    assert (0.1, 0.1, 0.5, 0.2) == table.bbox, "this one counts from the top"
    lines = first.split("\n")
    placed = {block.kind: block for block in parsed.pages[0].blocks}
    assert (image.bbox, table.bbox) == (placed["figure"].bbox, placed["table"].bbox)
    assert f"](assets/{image.name})" in lines[placed["figure"].first]
    assert "# River Monitoring 2025" == lines[placed["heading"].first]
    assert f"](assets/{image.name})" in first
    assert "&lt;b&gt;" in (doing.folder / "assets" / table.name).read_text()
    assert {image.name, table.name} == {path.name for path in (doing.folder / "assets").iterdir()}
    sent = peer.asked("POST", "/v1/convert/file/async")[0].form()
    assert ("document.pdf", ["json"], ["false"]) == (sent[1]["files"][0], sent[0]["to_formats"], sent[0]["do_ocr"])


async def test_who_it_is(peer: DoclingPeer) -> None:
    client = ProviderClient("docling", peer.url, patience=QUICK)
    engine = DoclingEngine(client, max_pages=7)

    assert ("docling-serve 1.38.2", 7) == (await engine.describe(), (await engine.reach()).pages)
    await engine.close()


async def test_a_wrong_key(peer: DoclingPeer, work: MakeWork) -> None:
    with pytest.raises(StageFailed, match="401; is the key right") as failed:
        await parse(peer, work(), key="wrong")
    assert "provider_refused" == failed.value.code


@pytest.mark.parametrize(
    "fault",
    [
        Fault("GET", "/v1/status/poll/.*", status=429, headers={"Retry-After": "0"}, times=2),
        Fault("GET", "/v1/status/poll/.*", status=503, times=2),
        Fault("GET", "/v1/status/poll/.*", cut=True, times=2),
        Fault("POST", "/v1/convert/file/async", status=503, times=2),
        Fault("GET", "/v1/result/.*", hang_up=True, times=2),
        Fault("GET", "/v1/result/.*", slow_s=0.3),
    ],
    ids=["429", "503", "cut", "busy at the door", "no answer", "slow"],
)
async def test_passing_faults_are_waited_out(peer: DoclingPeer, work: MakeWork, fault: Fault) -> None:
    peer.faults.append(fault)

    assert 2 == len((await parse(peer, work())).pages)


async def test_a_result_that_breaks_off_is_gone_and_the_job_is_done_again(peer: DoclingPeer, work: MakeWork) -> None:
    peer.faults.append(Fault("GET", "/v1/result/.*", cut=True))
    with pytest.raises(StageFailed) as failed:
        await parse(peer, work())
    assert "provider_lost" == failed.value.code
    assert failed.value.retryable


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        ({"category": "invalid_source", "message": "at http://inner.host", "retryable": False}, "provider_failed"),
        ({"category": "worker_lost", "message": "x", "retryable": True}, "provider_lost"),
        ({"category": "see http://inner.host/", "retryable": False}, "provider_failed"),
    ],
)
async def test_its_verdict_says_whether_to_try_again(
    peer: DoclingPeer, work: MakeWork, failure: dict[str, object], code: str
) -> None:
    peer.failures.append(failure)
    with pytest.raises(StageFailed) as failed:
        await parse(peer, work())
    assert code == failed.value.code
    assert "host" not in failed.value.message


@pytest.mark.parametrize("where", ["/v1/status/poll/.*", "/v1/result/.*"])
@pytest.mark.parametrize(
    "body", [b"<html>", b"{}", b"[]", b'{"document": {}}', b'{"document": {"json_content": {"body": 3}}}']
)
async def test_wrong_json_is_an_invalid_answer(peer: DoclingPeer, work: MakeWork, where: str, body: bytes) -> None:
    peer.faults.append(Fault("GET", where, status=200, body=body, times=9))
    with pytest.raises(StageFailed) as failed:
        await parse(peer, work())
    assert "provider_answer_invalid" == failed.value.code


@pytest.mark.parametrize(
    "spoil",
    [
        lambda raw: raw["body"]["children"].append({"$ref": "#/../etc/passwd"}),
        lambda raw: raw["body"]["children"].append({"$ref": "#/texts/9999"}),
        lambda raw: raw["texts"][3]["prov"][0].update(page_no=0),
        lambda raw: raw["texts"][3]["prov"][0].update(page_no=10**9),
        lambda raw: raw["pages"]["1"]["size"].update(width=0),
        lambda raw: raw["pictures"][0]["image"].update(uri="data:image/png;base64,####"),
    ],
)
async def test_a_document_that_breaks_its_own_rules_is_an_invalid_answer(
    peer: DoclingPeer, work: MakeWork, spoil: Callable[[dict[str, object]], object], tmp_path: Path
) -> None:
    raw = docling_document(["Title\ntext"])
    spoil(raw)
    body = msgspec.json.encode({"document": {"json_content": raw}, "status": "success"})
    peer.faults.append(Fault("GET", "/v1/result/.*", status=200, body=body, times=9))
    with pytest.raises(StageFailed) as failed:
        await parse(peer, work())
    assert "provider_answer_invalid" == failed.value.code


async def test_groups_that_hold_each_other_end(peer: DoclingPeer, work: MakeWork) -> None:
    raw = docling_document(["Title\ntext"])
    raw["groups"][0]["children"] += [{"$ref": "#/groups/0"}]
    body = msgspec.json.encode({"document": {"json_content": raw}, "status": "partial_success"})
    peer.faults.append(Fault("GET", "/v1/result/.*", status=200, body=body))

    parsed = await parse(peer, work())

    assert ["the provider read the document in part only"] == parsed.facts["warnings"]
