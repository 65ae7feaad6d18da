"""A final of hundreds of megabytes streams: memory stays flat, and it costs little more than writing the bytes."""

import base64
import os
import time
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import httpx2
import psutil
import pytest

from support.elsewhere import Elsewhere
from support.measuring import used_by
from support.serving import Etl, Service

MB = 1024 * 1024
ARCHIVE_MB = int(os.environ.get("DOCMILL_BIG_FINAL_MB", "225"))
MORE_MB = 64
PAGES_MB = 40
PAGES_MORE_MB = 20
PNG = b"\x89PNG\r\n\x1a\n"


def archive(path: Path, megabytes: int) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as out:
        for n in range(megabytes // 5):
            out.writestr(f"images/page_{n:03}.png", PNG + os.urandom(5 * MB - len(PNG)))
    return path


def body(path: Path) -> Iterator[bytes]:
    yield b'{"phase":"completed","data":{"images_archive_filename":"i.zip","images_archive_data":"'
    with path.open("rb") as source:
        while chunk := source.read(3 * 256 * 1024):
            yield base64.b64encode(chunk)
    yield b'","extracted_text":"# Big\\n\\n![first](images/page_000.png)"}}'


def pages_body(megabytes: int) -> Iterator[bytes]:
    """The text whole and by page, as the secretary sends it: pages of 100 KB."""
    page = ("Zeile mit Umlauten: äöü. " * 40 + "\n").encode()
    content = page.replace(b"\n", b"\\n") * (100 * 1024 // len(page))
    numbers = range(1, megabytes * MB // len(content) + 1)
    yield b'{"phase":"completed","data":{"extracted_text":"'
    for number in numbers:
        yield b"--- Seite %d ---\\n" % number + content
    yield b'","metadata":{"text_contents":['
    for number in numbers:
        yield b'%s{"page":%d,"content":"%s"}' % (b"," if number > 1 else b"", number, content)
    yield b"]}}}"


def written_and_hashed(path: Path, to: Path) -> float:
    """The floor: CPU time for the same bytes decoded, hashed and written, once."""
    began, hashed = time.thread_time(), sha256()
    with to.open("wb") as out:
        for chunk in body(path):
            if chunk[:1] not in b'{"':
                decoded = base64.b64decode(chunk)
                hashed.update(decoded)
                out.write(decoded)
        out.flush()
        os.fsync(out.fileno())
    return time.thread_time() - began


@pytest.mark.slow
def test_a_final_of_300_mb_keeps_memory_flat(tmp_path: Path) -> None:
    source = archive(tmp_path / "images.zip", ARCHIVE_MB)
    with (
        Elsewhere() as worker,
        Service(tmp_path / "data", "--jobs", "1", DOCMILL_WORKERS=worker.settings()) as service,
        service.client() as client,
    ):
        etl = Etl(client)
        etl.done("warm.txt", b"warm up")
        task = etl.submit("big.pdf", b"%PDF " + uuid4().bytes, engine="secretary")
        job = worker.next_job()
        process = psutil.Process(service.pid)
        idle = process.memory_info().rss
        floor = written_and_hashed(source, tmp_path / "floor")
        before = used_by(service.pid)
        peaks = [idle]

        def watched() -> Iterator[bytes]:
            for n, chunk in enumerate(body(source)):
                if n % 16 == 0:
                    peaks.append(process.memory_info().rss)
                yield chunk

        with httpx2.Client(timeout=120, trust_env=False) as sender:
            answer = sender.post(job.url, content=watched(), headers={"Authorization": f"Bearer {job.token}"})
        took = used_by(service.pid) - before
        peaks.append(process.memory_info().rss)
        assert 200 == answer.status_code, answer.text
        done = etl.wait(task, seconds=120)
        more = (max(peaks) - idle) / MB
        print(
            f"{ARCHIVE_MB * 4 // 3} MB: +{more:.0f} MB, {took:.1f} s of CPU, floor {floor:.1f} s: {took / floor:.1f} x"
        )

    assert "completed" == done["status"]
    assert "![first](assets/" in done["result"]["big"]["content"]
    assert more < MORE_MB
    assert took < 6 * floor, "CPU time of decoding, hashing and writing the same bytes"


@pytest.mark.slow
def test_pages_may_be_as_large_as_the_text_and_arrive_with_flat_memory(tmp_path: Path) -> None:
    with (
        Elsewhere() as worker,
        Service(tmp_path / "data", "--jobs", "1", DOCMILL_WORKERS=worker.settings()) as service,
        service.client() as client,
    ):
        etl = Etl(client)
        etl.done("warm.txt", b"warm up")
        task = etl.submit("big.pdf", b"%PDF " + uuid4().bytes, engine="secretary")
        job = worker.next_job()
        process = psutil.Process(service.pid)
        peaks = [process.memory_info().rss]

        def watched() -> Iterator[bytes]:
            for n, chunk in enumerate(pages_body(PAGES_MB)):
                if n % 50 == 0:
                    peaks.append(process.memory_info().rss)
                yield chunk
            peaks.append(process.memory_info().rss)

        with httpx2.Client(timeout=120, trust_env=False) as sender:
            answer = sender.post(job.url, content=watched(), headers={"Authorization": f"Bearer {job.token}"})
        assert 200 == answer.status_code, answer.text
        done = etl.wait(task, seconds=120)
        more = (max(peaks) - peaks[0]) / MB
        print(f"2 x {PAGES_MB} MB of text: +{more:.0f} MB")

    assert ("completed", sum(1 for _ in pages_body(PAGES_MB)) // 2 - 1) == (
        done["status"], done["metadata"]["pages_total"],
    )  # fmt: skip
    content = done["result"]["big"]["content"]
    assert PAGES_MB - 1 <= len(content.encode()) / MB <= PAGES_MB
    assert "--- Seite" not in content, "the pages, not the whole text"
    assert more < PAGES_MORE_MB
