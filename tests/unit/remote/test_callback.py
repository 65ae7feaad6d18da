"""The SDK against a receiver that misbehaves."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import time
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from docmill.remote import AsyncCallback, Callback, Cancelled, Receipt, Refused, Undelivered, resume
from docmill.remote.callback import job_in
from docmill.remote.delivery import Patience, check_url
from support.receiver import Receiver, Say

TOKEN = "t0ken-of-the-job"
QUICK: dict[str, Any] = {"backoff": (0.01, 0.05), "timeout": 5.0}


@pytest.fixture
def docmill() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def is_empty(spool: Path) -> bool:
    return [] == list(spool.iterdir())


# What is sent


def test_a_final_is_the_secretarys(docmill: Receiver, spool: Path, tmp_path: Path) -> None:
    assets = tmp_path / "out" / "assets"
    assets.mkdir(parents=True)
    (assets / "p1.png").write_bytes(b"\x89PNG" * 1000)

    with Callback(docmill.job("j-1"), TOKEN, spool=spool, worker="mine") as job:
        receipt = job.complete(text="# Ärger\n\x00\ud800", images=tmp_path / "out", pages=["one", (7, "seven")])

    final = docmill.finals[0]
    data = final.json["data"]
    archive = zipfile.ZipFile(io.BytesIO(base64.b64decode(data["images_archive_data"], validate=True)))
    assert Receipt("j-1", 200, {"status": "ok"}, 1) == receipt
    assert ("completed", "# Ärger\n\x00?", "images.zip") == (
        final.json["phase"],
        data["extracted_text"],
        data["images_archive_filename"],
    )
    assert [{"page": 1, "content": "one"}, {"page": 7, "content": "seven"}] == data["metadata"]["text_contents"]
    assert ["assets/p1.png"] == archive.namelist()
    assert b"\x89PNG" * 1000 == archive.read("assets/p1.png")
    assert (f"Bearer {TOKEN}", "application/json", "mine") == (
        final.headers["authorization"],
        final.headers["content-type"],
        final.headers["x-worker"],
    )
    assert TOKEN not in final.path + final.body.decode()
    assert not {"jobId", "job_id", "correlation"} & final.json.keys()
    assert is_empty(spool)


def test_text_and_images_may_be_files_or_come_one_by_one(docmill: Receiver, tmp_path: Path) -> None:
    """Pieces are cut anywhere, in the middle of characters and of base64 groups too."""
    text = tmp_path / "text.md"
    content = 'Straße "größer" \\ 本页\n' * 20_000
    text.write_text(content, encoding="utf-8", newline="")
    ready = tmp_path / "ready.zip"
    with zipfile.ZipFile(ready, "w") as archive:
        archive.writestr("a.png", bytes(range(256)) * 1000)

    Callback(docmill.job(), TOKEN).complete(text=text, images=ready)
    Callback(docmill.job(), TOKEN).complete(images=((f"{n}.png", bytes([n]) * 9) for n in range(3)))

    first, second = (one.json["data"] for one in docmill.finals)
    assert content == first["extracted_text"]
    assert ready.read_bytes() == base64.b64decode(first["images_archive_data"], validate=True)
    assert "extracted_text" not in second
    assert ["0.png", "1.png", "2.png"] == zipfile.ZipFile(
        io.BytesIO(base64.b64decode(second["images_archive_data"]))
    ).namelist()


@pytest.mark.parametrize(
    ("images", "word"),
    [
        ([("../up.png", b"")], "no name"),
        ([("/root.png", b"")], "no name"),
        ([("a.png", b""), ("a.png", b"")], "twice"),
        (Path(__file__), "neither a folder nor a ZIP"),
        (None, "needs text"),
    ],
)
def test_what_cannot_be_sent_is_said_before_it_is_spooled(
    docmill: Receiver, spool: Path, images: Any, word: str
) -> None:
    with pytest.raises(ValueError, match=word), closing(Callback(docmill.job(), TOKEN, spool=spool)) as job:
        job.complete(images=images)

    assert is_empty(spool)
    assert [] == docmill.heard


def test_a_failure_is_the_secretarys(docmill: Receiver) -> None:
    Callback(docmill.job(), TOKEN).fail("OCR_TIMEOUT", "too slow", {"timeoutMs": 30000})

    expected = {"code": "OCR_TIMEOUT", "message": "too slow", "details": {"timeoutMs": 30000}}
    assert {"phase": "failed", "error": expected} == docmill.finals[0].json


def test_a_dispatcher_has_its_own_words(docmill: Receiver) -> None:
    def callback() -> Callback:
        return Callback(docmill.task("guid-1"), TOKEN, dialect="dispatcher")

    callback().complete(result_key="results/guid-1/output.zip", result_metadata={"pages": 3})
    callback().fail("document_encrypted", "x" * 6000)
    callback().finish("timed_out", None, log_stream="s3://log")
    with closing(callback()) as job:
        job.progress(50)

    done, failed, late = (one.json for one in docmill.finals)
    known = {"status", "exit_code", "result_key", "result_metadata", "error_message", "completed_at", "task_id"}
    assert known | {"log_stream"} >= done.keys() | failed.keys() | late.keys()
    assert ("completed", 0, "results/guid-1/output.zip", {"pages": 3}, "guid-1") == tuple(
        done[name] for name in ("status", "exit_code", "result_key", "result_metadata", "task_id")
    )
    assert ("failed", 1, 5000) == (failed["status"], failed["exit_code"], len(failed["error_message"]))
    assert failed["error_message"].startswith("[document_encrypted] xxx")
    assert ("timed_out", None, "s3://log") == (late["status"], late["exit_code"], late["log_stream"])
    assert [] == docmill.progress
    with closing(callback()) as job, pytest.raises(ValueError, match="object store"):
        job.complete(text="no")
    with closing(callback()) as job, pytest.raises(ValueError, match="result_key is longer"):
        job.complete(result_key="k" * 501)
    with closing(Callback(docmill.job(), TOKEN)) as job, pytest.raises(ValueError, match="dispatcher's"):
        job.finish("completed")


def test_an_exception_inside_is_reported_and_goes_on(docmill: Receiver) -> None:
    with pytest.raises(ZeroDivisionError), Callback(docmill.job(), TOKEN):
        _ = 1 / 0

    error = docmill.finals[0].json["error"]
    assert {"code": "WORKER_ERROR", "message": "ZeroDivisionError: division by zero"} == error


def test_one_terminal_report_is_all(docmill: Receiver) -> None:
    with Callback(docmill.job(), TOKEN) as job:
        job.complete("x")
        with pytest.raises(RuntimeError, match="has had its terminal report"):
            job.fail("A", "b")

    assert 1 == len(docmill.posts)


@pytest.mark.parametrize(
    ("url", "job_id"),
    [
        ("https://x.example/api/external/jobs/4e2f", "4e2f"),
        ("https://x.example/base/api/v1/tasks/550e/callback/", "550e"),
        ("https://x.example/api/v1/tasks/550e/callback?x=1", "550e"),
    ],
)
def test_the_job_is_in_the_address(url: str, job_id: str) -> None:
    assert job_id == job_in(url)


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "gopher://x/1", "http://", "//x/1", "http://u:p@x/1", "http://x:99999/1", "http://x/ 1"],
)
def test_only_plain_web_addresses_are_called(url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        check_url(url)


# Progress


def test_progress_is_throttled_and_the_newest_wins(docmill: Receiver) -> None:
    """500 calls in a second or more: the receiver hears a handful."""
    with Callback(docmill.job(), TOKEN, min_interval=0.2, process_id="sec-1") as job:
        began = time.monotonic()
        for number in range(500):
            job.progress(number / 5, message=f"page {number} of 500")
            time.sleep(0.002)
        took = time.monotonic() - began
        docmill.wait(lambda d: d.progress and d.progress[-1].json["message"] == "page 499 of 500")
        job.complete("x")

    sent = docmill.progress
    values = [one.json["progress"] for one in sent]
    assert 2 <= len(sent) <= took / 0.2 + 3
    assert sorted(set(values)) == values
    assert {"phase": "extract_text", "progress": 99.8, "message": "page 499 of 500", "process": {"id": "sec-1"}} == (
        sent[-1].json
    )
    assert docmill.posts[-1].is_final


def test_the_default_is_at_most_two_a_second(docmill: Receiver) -> None:
    with Callback(docmill.job(), TOKEN) as job:
        began = time.monotonic()
        for number in range(120):
            job.progress(number)
            time.sleep(0.01)
        took = time.monotonic() - began
        job.complete("x")

    assert 2 <= len(docmill.progress) <= 2 * took + 2


def test_a_deaf_receiver_does_not_slow_the_work(docmill: Receiver) -> None:
    docmill.on_progress = Say(503, delay=0.3)
    began = time.monotonic()
    with Callback(docmill.job(), TOKEN, min_interval=0.01, **QUICK) as job:
        for number in range(50):
            job.progress(number)
            time.sleep(0.001)
        worked = time.monotonic() - began
        job.complete("x")

    assert worked < 10, "50 answers take 15 s"
    assert 1 == len(docmill.accepted)
    assert docmill.posts[-1].is_final


def test_lost_progress_is_overtaken_by_the_next(docmill: Receiver) -> None:
    docmill.says(Say(500), Say(reset=True))
    with Callback(docmill.job(), TOKEN, min_interval=0.01, **QUICK) as job:
        job.progress(1)
        docmill.wait(lambda d: len(d.progress) == 1)
        job.progress(2)
        docmill.wait(lambda d: len(d.progress) >= 3)
        job.complete("x")

    assert [1, 2, 2] == [one.json["progress"] for one in docmill.progress][:3]


def test_a_cancel_reaches_the_work(docmill: Receiver) -> None:
    docmill.on_progress = Say(body={"status": "ok", "cancel_requested": True})
    steps = 0
    with Callback(docmill.job(), TOKEN, min_interval=0.01) as job:
        for steps in range(1000):
            job.progress(steps / 10)
            time.sleep(0.005)

    assert steps < 999
    assert job.cancelled
    assert "CANCELLED" == docmill.finals[-1].json["error"]["code"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409])
def test_a_job_that_nobody_knows_stops_the_work(docmill: Receiver, status: int) -> None:
    docmill.on_progress = Say(status, body={"error": {"code": "job_not_found"}})

    with pytest.raises(Refused) as refused, Callback(docmill.job(), TOKEN, min_interval=0.01) as job:
        for number in range(1000):
            job.progress(number / 10)
            time.sleep(0.005)

    assert (status, "job_not_found") == (refused.value.status, refused.value.code)
    assert 1 == len(docmill.posts)


def test_a_heartbeat_speaks_for_slow_work(docmill: Receiver) -> None:
    with Callback(docmill.job(), TOKEN, min_interval=0.01, heartbeat=0.1) as job:
        began = time.monotonic()
        job.progress(10, message="a very slow page")
        docmill.wait(lambda d: len(d.progress) >= 5)
        took = time.monotonic() - began
        job.complete("x")

    assert len(docmill.progress) <= took / 0.1 + 2
    assert {10} == {one.json["progress"] for one in docmill.progress}


# Trying again


def test_a_final_gets_through_whatever_happens_on_the_way(docmill: Receiver, spool: Path) -> None:
    docmill.says(Say(500), Say(reset=True), Say(503, deaf=True), Say(429), Say(502), Say(delay=1.0))

    receipt = Callback(docmill.job(), TOKEN, spool=spool, backoff=(0.01, 0.05), timeout=0.5).complete("x")

    assert (200, 7, False) == (receipt.status, receipt.tries, receipt.is_duplicate)
    assert 1 == len({one.body for one in docmill.finals if not one.said.deaf})
    assert is_empty(spool)


def test_retry_after_is_honoured(docmill: Receiver) -> None:
    docmill.says(Say(429, headers={"Retry-After": "1"}))

    Callback(docmill.job(), TOKEN, **QUICK).complete("x")

    first, second = docmill.finals
    assert 1.0 <= second.at - first.at < 30


def test_pauses_grow_and_are_spread_evenly() -> None:
    patience = Patience(first_s=1, most_s=60)
    for tries, most in enumerate([1, 2, 4, 8, 16, 32, 60, 60]):
        pauses = [patience.pause(tries, None) for _ in range(2000)]
        assert 0 <= min(pauses) < most * 0.05
        assert most * 0.95 < max(pauses) <= most
        assert 0.45 * most < sum(pauses) / len(pauses) < 0.55 * most
    assert 7 <= patience.pause(0, 7) <= 8
    assert patience.pause(5000, None) <= 60


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 302])
def test_a_refusal_ends_it_and_the_report_is_set_aside(docmill: Receiver, spool: Path, status: int) -> None:
    docmill.says(Say(status, body={"error": "nope"}, headers={"Location": "http://127.0.0.1:1/"}))

    with pytest.raises(Refused) as refused:
        Callback(docmill.job("j"), TOKEN, spool=spool, **QUICK).complete("worth an hour of work")

    assert (status, "nope", "j") == (refused.value.status, refused.value.code, refused.value.job_id)
    assert 1 == len(docmill.posts)
    assert [] == resume(spool)
    assert [200] == [one.status for one in resume(spool, refused=True) if isinstance(one, Receipt)]
    assert 1 == len(docmill.accepted)
    assert is_empty(spool)


def test_a_job_that_has_ended_already_counts_as_delivered(docmill: Receiver, spool: Path) -> None:
    docmill.says(Say(409, body={"code": "task_finished"}))

    receipt = Callback(docmill.task(), TOKEN, dialect="dispatcher", spool=spool).finish("completed", 0)

    assert (409, True) == (receipt.status, receipt.is_duplicate)
    assert is_empty(spool)


def test_after_the_deadline_the_report_waits_for_resume(docmill: Receiver, spool: Path) -> None:
    docmill.otherwise = Say(500)

    with pytest.raises(Undelivered, match="500"):
        Callback(docmill.job(), TOKEN, spool=spool, deadline=0.3, **QUICK).complete("x")
    docmill.otherwise = Say()
    receipts = resume(spool, deadline=0)

    assert [200] == [one.status for one in receipts if isinstance(one, Receipt)]
    assert 1 == len(docmill.accepted)
    assert [] == resume(spool)


def test_nobody_is_there(spool: Path) -> None:
    with Receiver() as gone:
        url = gone.job()
    with pytest.raises(Undelivered, match="ConnectError"):
        Callback(url, TOKEN, spool=spool, deadline=0.2, **QUICK).complete("x")

    assert 2 == len(list(spool.iterdir()))


# Secrets


def test_nobody_else_reads_the_spool_and_no_log_has_the_token(
    docmill: Receiver, spool: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    docmill.says(Say(500), Say(reset=True), Say(401))
    job = Callback(docmill.job(), TOKEN, spool=spool, signing_key="sign-me", **QUICK)
    with pytest.raises(Refused) as refused:
        job.complete("x")

    files = list(spool.iterdir())
    assert 2 == len(files)
    assert {0o600} == {file.stat().st_mode & 0o777 for file in files}
    assert 0o700 == spool.stat().st_mode & 0o777
    assert not any(b"sign-me" in file.read_bytes() for file in files)
    said = caplog.text + str(refused.value) + repr(job) + repr(job._inner._address)
    assert TOKEN not in said
    assert "sign-me" not in said


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "ünicode"])
def test_a_token_that_no_header_carries_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(ValueError, match="the token is") as refused:
        Callback("http://127.0.0.1/jobs/1", token)

    assert not token or token not in str(refused.value)


# Async


async def test_the_async_callback_says_the_same(docmill: Receiver, spool: Path) -> None:
    docmill.says(Say(500))
    async with AsyncCallback(docmill.job(), TOKEN, spool=spool, **QUICK) as job:
        await job.progress(10, phase="images")
        receipt = await job.complete("x", pages=["x"])

    assert 200 == receipt.status
    assert {"images", "completed"} >= {one.json["phase"] for one in docmill.posts}


async def test_an_async_worker_hears_of_a_cancel(docmill: Receiver) -> None:
    docmill.on_progress = Say(body={"cancel_requested": True})
    heard: list[Exception] = []
    async with AsyncCallback(docmill.job(), TOKEN, on_stop=heard.append) as job:
        await job.progress(10)
        await asyncio.to_thread(docmill.wait, lambda _: job.cancelled)
        with pytest.raises(Cancelled):
            await job.progress(11)

    assert [Cancelled] == [type(one) for one in heard]
    assert [] == docmill.finals


async def test_a_report_whose_sender_is_stopped_stays_in_the_spool(docmill: Receiver, spool: Path) -> None:
    docmill.otherwise = Say(500)
    job = AsyncCallback(docmill.job(), TOKEN, spool=spool, **QUICK)
    sending = asyncio.create_task(job.complete("x"))
    await asyncio.to_thread(docmill.wait, lambda d: d.finals)
    assert [] == await asyncio.to_thread(resume, spool)  # it is being delivered
    sending.cancel()
    await asyncio.wait({sending})
    await job.aclose()
    docmill.otherwise = Say()

    receipts = await asyncio.to_thread(resume, spool)

    assert 1 == len(receipts)
    assert is_empty(spool)
    assert json.loads(docmill.accepted[0].body)["data"]["extracted_text"] == "x"
