"""Final reports as today's workers send them: archives by address, pictures by page, several reports at once."""

import base64
import io
import json
import os
import threading
import zipfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx2
import pytest

from support.elsewhere import Elsewhere, Job
from support.serving import Etl, Mode, Service

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
JOBS = 15
REPORTS = 6
PARALLEL = 20
LARGE = PNG + os.urandom(6 * 1024**2)


@pytest.fixture(scope="module")
def worker() -> Iterator[Elsewhere]:
    with Elsewhere() as running:
        yield running


@pytest.fixture(scope="module")
def service(mode: Mode, worker: Elsewhere, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with mode.serve(tmp_path_factory.mktemp("finals") / "data", DOCMILL_WORKERS=worker.settings()) as running:
        yield running


@pytest.fixture
def etl(service: Service) -> Iterator[Etl]:
    with service.client() as client:
        yield Etl(client)


def started(etl: Etl, worker: Elsewhere, **wishes: Any) -> tuple[int, Job]:
    task = etl.submit("scan.pdf", b"%PDF-1.7 " + uuid4().bytes, engine="secretary", **wishes)
    return task, worker.next_job()


def picture(seed: object) -> bytes:
    """A PNG that no other picture equals."""
    return PNG + str(seed).encode()


def archive(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as zipped:
        for name, data in files.items():
            zipped.writestr(name, data)
    return buffer.getvalue()


def final(pages: int, **data: Any) -> dict[str, Any]:
    """A final of so many pages as the secretary of today builds it: the whole text, and the same by page."""
    contents = [{"page": n, "content": f"Text of page {n}."} for n in range(1, pages + 1)]
    text = "\n\n".join(f"--- Seite {one['page']} ---\n{one['content']}" for one in contents)
    metadata = {"page_count": pages, "extraction_method": "native", "text_contents": contents}
    return {
        "phase": "completed",
        "message": "Extraktion abgeschlossen",
        "data": {"extracted_text": text, "metadata": metadata, **data},
    }


def document_of(etl: Etl, task: dict[str, Any]) -> dict[str, Any]:
    return etl.http.get(f"/api/v1/documents/{task['metadata']['document_id']}").json()


def blobs_of(etl: Etl, document: dict[str, Any]) -> list[bytes]:
    """The bytes of all assets, each compared with the checksum that the document gives."""
    found = []
    for asset in document["assets"]:
        answer = etl.http.get(f"/api/v1/assets/{asset['ref']['asset_id']}/blob")
        assert 200 == answer.status_code, answer.text
        assert asset["checksum"] == sha256(answer.content).hexdigest()
        found.append(answer.content)
    return found


def parse_event(etl: Etl, task: int) -> dict[str, Any]:
    """What the log says of the parse that succeeded."""
    return next(
        event["data"]
        for event in etl.events(task)
        if event["kind"] == "stage_succeeded" and event["data"]["stage"] == "parse"
    )


# Addresses


@pytest.mark.parametrize("form", ["/api/jobs/{}/download-archive", "api/jobs/{}/x.zip", "{origin}/api/jobs/{}/y?a=b"])
def test_an_archive_at_the_worker_s_own_origin_is_fetched_with_its_key(etl: Etl, worker: Elsewhere, form: str) -> None:
    task, job = started(etl, worker)
    address = form.format(job.id, origin=worker.origin)
    parts = urlsplit(address)
    path = "/" + parts.path.lstrip("/") + (f"?{parts.query}" if parts.query else "")
    worker.files[path] = archive({"image_1.png": picture(1), "image_2.png": picture(2)})

    answer = job.send(final(2, images_archive_url=address, images_archive_filename="pdf_images.zip"))

    assert (200, "final") == (answer.status_code, answer.json()["kind"]), answer.text
    done = etl.wait(task)
    assert ("completed", []) == (done["status"], done["metadata"]["missing_archives"]), done
    assert ["Bearer sec-key", "sec-key"] == [
        next(headers for got, headers in worker.fetched if got == path)[name]
        for name in ("Authorization", "X-Service-Token")
    ]
    document = document_of(etl, done)
    assert [None, 0, 1] == [asset["page_index"] for asset in document["assets"]]
    assert [picture(1), picture(2)] == blobs_of(etl, document)[1:]


def test_all_addresses_that_workers_send_are_fetched(etl: Etl, worker: Elsewhere) -> None:
    task, job = started(etl, worker)
    base = f"/api/pdf/jobs/{job.id}"
    worker.files |= {
        f"{base}/download-pages-archive": archive({"pages/page_001.jpeg": picture("whole page")}),
        f"{base}/mistral-ocr-images": archive({"img-0.jpeg": picture("figure")}),
    }
    body = final(
        1,
        pages_archive_url=f"{base}/download-pages-archive",
        mistral_ocr_images_url=f"{base}/mistral-ocr-images",
        archive_url=f"{base}/everything",
        mistral_ocr_raw_url=f"{base}/mistral-ocr-raw",
    )
    body["data"]["metadata"]["text_contents"][0]["content"] = "Seen: ![img-0.jpeg](img-0.jpeg)."

    assert 200 == job.send(body).status_code
    done = etl.wait(task)
    document = document_of(etl, done)
    assert [picture("whole page"), picture("figure")] == blobs_of(etl, document)[1:]
    assert [0, 0] == [asset["page_index"] for asset in document["assets"][1:]]
    content = done["result"]["scan"]["content"]
    assert 2 == content.count("](assets/"), content
    assert f"{base}/everything" not in [path for path, _ in worker.fetched], "it would hold the same once more"

    task, job = started(etl, worker)
    worker.files[f"/api/jobs/{job.id}/md"] = "# Überschrift\n".encode()
    assert 200 == job.send({"phase": "completed", "data": {"markdown_url": f"/api/jobs/{job.id}/md"}}).status_code
    assert "# Überschrift\n" == etl.wait(task)["result"]["scan"]["content"]


def test_a_report_with_text_completes_although_its_archive_cannot_be_had(etl: Etl, worker: Elsewhere) -> None:
    with Elsewhere() as stranger:
        stranger.files["/api/secret"] = archive({"image_1.png": PNG})
        worker.files["/api/login"] = b"<html>please log in</html>"
        worker.moved["/api/moved"] = f"{stranger.origin}/api/secret"
        for address, code in (
            ("/api/jobs/gone", "fetch_failed"),
            ("/api/login", "archive_invalid"),
            (f"{stranger.origin}/api/secret", "address_refused"),
            (f"//{urlsplit(stranger.origin).netloc}/api/secret", "address_refused"),
            ("/api/moved", "address_refused"),
            ("http://169.254.169.254/latest/meta-data", "address_refused"),
            ("file:///etc/passwd", "address_refused"),
        ):
            task, job = started(etl, worker)

            answer = job.send(final(2, images_archive_url=address))

            assert 200 == answer.status_code, answer.text
            done = etl.wait(task)
            assert ("completed", ["images_archive_url"]) == (done["status"], done["metadata"]["missing_archives"])
            [missing] = parse_event(etl, task)["missing_archives"]
            assert ("images_archive_url", code) == (missing["field"], missing["code"]), address
            assert "Text of page 2." in done["result"]["scan"]["content"]
        assert [] == stranger.fetched, "no other origin is asked, and none hears the key"


def test_without_text_an_archive_that_is_refused_is_400_and_one_that_is_away_503(etl: Etl, worker: Elsewhere) -> None:
    task, job = started(etl, worker)

    for address, status, code in (
        ("http://127.0.0.1:1/a.zip", 400, "address_refused"),
        ("http://[::1", 400, "address_refused"),
        ("/api/jobs/gone", 503, "fetch_failed"),
    ):
        answer = job.send({"phase": "completed", "data": {"images_archive_url": address}})
        assert (status, code) == (answer.status_code, answer.json()["code"]), address
    assert "mineru_parsing" == etl.task(task)["status"]


# Pictures


def test_pictures_stand_on_the_page_that_their_name_tells(etl: Etl, worker: Elsewhere, mode: Mode) -> None:
    forms = ("image_{}.png", "images/page_{:03}.jpg", "x/y/PREVIEW_{:05}.tiff")
    task, job = started(etl, worker, twin=True)
    names = {n: forms[n % 3].format(n) for n in range(1, 151)}
    zipped = archive({names[n]: picture(n) for n in sorted(names, key=str)} | {"image_151.png": picture("no page")})
    body = final(150, images_archive_data=base64.b64encode(zipped).decode())
    body["data"]["metadata"]["text_contents"][6]["content"] = "![seven](images/page_007.png) ![7](page_007.jpg)"
    body["data"]["metadata"]["text_contents"][7]["content"] = "![eight](PREVIEW_00008.tiff)"

    assert 200 == job.send(body).status_code

    done = etl.wait(task)
    assert "completed" == done["status"], done
    document = document_of(etl, done)
    placed = {
        blob: asset["page_index"] for blob, asset in zip(blobs_of(etl, document), document["assets"], strict=True)
    }
    assert {picture(n): n - 1 for n in names} | {picture("no page"): 149} == {
        blob: page for blob, page in placed.items() if page is not None
    }
    pages = done["result"]["scan"]["content"].split("Text of page ")
    assert 151 == done["result"]["scan"]["content"].count("](assets/")
    assert 1 == pages[1].count("](assets/"), pages[1]
    assert 2 == pages[-1].count("](assets/"), "its own, and the one of no page"
    if not mode.is_distributed:
        folder = Path(done["metadata"]["twin_path"]).parent
        for n in names:
            assert picture(n) == (folder / f"page_{n:03}.png").read_bytes()
            assert f"](page_{n:03}.png)" in (folder / f"page_{n:03}.md").read_text()


# Texts


def test_progress_out_of_range_and_a_report_that_says_nothing_are_400(etl: Etl, worker: Elsewhere) -> None:
    task, job = started(etl, worker)

    for body in ({"progress": 101}, {"progress": -1, "phase": "x"}, {}, {"process": {"id": "p"}}, {"phase": None}):
        answer = job.send(body)
        assert (400, "callback_payload_invalid") == (answer.status_code, answer.json()["code"]), body
    assert 200 == job.send({"progress": 100}).status_code
    assert "mineru_parsing" == etl.task(task)["status"]


@pytest.mark.parametrize("filling", [0, 100_000], ids=["small", "streamed"])
def test_nul_and_lone_surrogates_are_removed_from_a_final_s_texts(etl: Etl, worker: Elsewhere, filling: int) -> None:
    task, job = started(etl, worker)
    body = final(1)
    body["data"]["extracted_text"] = "A\0B\ud800C " + "x" * filling
    body |= {"message": "d\0one\ud800", "phase": "comp\0leted", "process": {"id": "p\0"}}
    body["data"]["images_archive_filename"] = "\udc00a.zip"
    body["data"]["metadata"]["text_contents"][0]["content"] = "A\0B\udfffC\U0001f600 RAW " + "x" * filling
    raw = json.dumps(body).encode().replace(b"RAW", b"\x00\xed\xa0\x80")

    answer = job.send(raw)

    assert 200 == answer.status_code, answer.text
    done = etl.wait(task)
    assert done["result"]["scan"]["content"].startswith("ABC\U0001f600")
    assert 6 == parse_event(etl, task)["characters_removed"]


@pytest.mark.parametrize("filling", [0, 100_000], ids=["small", "streamed"])
def test_nul_and_lone_surrogates_are_removed_from_progress_and_failures(
    etl: Etl, worker: Elsewhere, filling: int
) -> None:
    task, job = started(etl, worker)
    progress = job.send({"phase": "a\0b", "message": "half \ud800 of it", "x": "x" * filling})
    failure = job.send(
        {"error": {"code": "E\0", "message": "n\0o \udc00", "details": {"a": ["\0"], "x": "x" * filling}}}
    )

    assert [200, 200] == [progress.status_code, failure.status_code], (progress.text, failure.text)
    done = etl.wait(task)
    assert ("failed", "E", "no ") == (
        done["status"],
        *(done["metadata"]["worker_error"][k] for k in ("code", "message")),
    )


# Several reports for one job


def in_halves(body: bytes, gate: threading.Barrier) -> Iterator[bytes]:
    """A body whose second half is sent when all others have sent their first."""
    yield body[: len(body) // 2]
    gate.wait(60)
    yield body[len(body) // 2 :]


def post_slowly(job: Job, chunks: Iterable[bytes]) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {job.token}", "Content-Type": "application/json"}
    with httpx2.Client(timeout=120, trust_env=False) as client:
        return client.post(job.url, content=chunks, headers=headers)


def illustrated(job: Job, report: int) -> bytes:
    zipped = archive({f"image_{n}.png": picture((job.id, report, n)) for n in (1, 2)})
    body = final(2, images_archive_data=base64.b64encode(zipped).decode())
    for content in body["data"]["metadata"]["text_contents"]:
        content["content"] += f" Report {report}."
    return json.dumps(body).encode()


@pytest.mark.parametrize("are_equal", [False, True], ids=["different", "equal"])
def test_of_many_finals_at_once_one_counts_and_no_byte_of_it_is_lost(
    etl: Etl, worker: Elsewhere, are_equal: bool
) -> None:
    jobs = [started(etl, worker) for _ in range(JOBS)]
    gate = threading.Barrier(JOBS * REPORTS)
    answers: list[tuple[int, str]] = []

    def send(job: Job, report: int) -> None:
        answer = post_slowly(job, in_halves(illustrated(job, report), gate))
        answers.append((answer.status_code, answer.json().get("kind")))

    threads = [
        threading.Thread(target=send, args=(job, 0 if are_equal else report))
        for _, job in jobs
        for report in range(REPORTS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert [(200, "final")] * JOBS * REPORTS == answers
    for task, job in jobs:
        done = etl.wait(task)
        assert "completed" == done["status"], done
        content = done["result"]["scan"]["content"]
        winner = int(content.partition("Report ")[2][0])
        markdown, *pictures = blobs_of(etl, document_of(etl, done))
        assert content.encode() == markdown
        assert [picture((job.id, winner, n)) for n in (1, 2)] == pictures
        assert 2 == content.count(f"Report {winner}.") == content.count("Report ")


def test_a_final_that_ends_after_the_job_did_changes_nothing(etl: Etl, worker: Elsewhere) -> None:
    task, job = started(etl, worker)
    has_begun, may_go_on = threading.Event(), threading.Event()
    late, answers = illustrated(job, 7), []

    def body() -> Iterator[bytes]:
        yield late[:-10]
        has_begun.set()
        assert may_go_on.wait(60)
        yield late[-10:]

    thread = threading.Thread(target=lambda: answers.append(post_slowly(job, body())))
    thread.start()
    assert has_begun.wait(60)
    assert 200 == job.send(illustrated(job, 1)).status_code
    first = etl.wait(task)
    before = blobs_of(etl, document_of(etl, first))
    may_go_on.set()
    thread.join(60)

    assert [(200, "final")] == [(answer.status_code, answer.json()["kind"]) for answer in answers]
    assert before == blobs_of(etl, document_of(etl, first))
    deliveries = etl.http.get(f"/api/external/jobs/{job.id}").json()["deliveries"]
    assert ["ignored: conflict"] == [one["reason"] for one in deliveries if one["reason"]]
    assert 200 == etl.post(f"/tasks/{task}/retry", json={"from_stage": "postprocess"}).status_code
    assert first["result"] == etl.wait(task)["result"]


def test_twenty_large_finals_at_once_take_little_memory(tmp_path: Path) -> None:
    """Bodies of 8 MB stream to files: all of them together must not stand in memory."""
    with (
        Elsewhere() as worker,
        Service(tmp_path / "data", "--jobs", "1", DOCMILL_WORKERS=worker.settings()) as service,
        service.client() as client,
    ):
        etl = Etl(client)
        jobs = [started(etl, worker) for _ in range(PARALLEL)]
        body = final(2, images_archive_data=base64.b64encode(archive({"image_1.png": LARGE})).decode())
        raw = json.dumps(body).encode()
        before = service.memory()
        with ThreadPoolExecutor(PARALLEL) as pool:
            statuses = list(pool.map(lambda job: job[1].send(raw).status_code, jobs))
        grown = service.memory(peak=True) - before
        print(f"{PARALLEL} x {len(raw) / 1024**2:.1f} MB: {grown / 1024**2:.1f} MB")

        assert {200} == set(statuses)
        assert grown < PARALLEL * len(raw) / 2
        assert {"completed"} == {etl.wait(task, seconds=120)["status"] for task, _ in jobs}
