"""A worker that is killed loses nothing, and a huge result needs no memory."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from docmill.remote import Receipt, resume
from docmill.remote.spool import SWEEP_AFTER_S, Spool
from support.receiver import Receiver, Say

MB = 1024 * 1024

WORKER = """
import sys
from pathlib import Path
from docmill.remote import Callback

url, spool = sys.argv[1:]
with Callback(url, "token", spool=Path(spool), backoff=(0.05, 0.1)) as job:
    job.complete(text="hours of work")
"""

BIG = """
import re, sys
from pathlib import Path
from docmill.remote import Callback

url, spool, archive, text = sys.argv[1:]
# Not ru_maxrss, which a child inherits from the process that started it.
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024
job = Callback(url, "token", spool=Path(spool), signing_key="key")
job.progress(1)
Callback(url, "token", spool=Path(spool), signing_key="key").complete(text="warm")
before = peak()
job.complete(text=Path(text), images=Path(archive))
print(before, peak())
"""


@pytest.fixture
def docmill() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def test_what_a_killed_worker_left_is_delivered_once(docmill: Receiver, tmp_path: Path) -> None:
    docmill.otherwise = Say(503)
    worker = subprocess.Popen([sys.executable, "-c", WORKER, docmill.job("j-1"), str(tmp_path)])
    docmill.wait(lambda d: len(d.finals) >= 2)

    assert [] == resume(tmp_path), "it lives, and is at it"
    worker.kill()
    worker.wait(30)
    docmill.otherwise = Say()
    first, second = resume(tmp_path), resume(tmp_path)

    assert (["j-1"], []) == ([one.job_id for one in first if isinstance(one, Receipt)], second)
    assert 1 == len(docmill.accepted)
    assert "hours of work" == docmill.accepted[0].json["data"]["extracted_text"]
    assert [] == list(tmp_path.iterdir())


def test_several_resume_at_once_and_each_report_is_sent_once(docmill: Receiver, tmp_path: Path) -> None:
    docmill.otherwise = Say(503)
    workers = [subprocess.Popen([sys.executable, "-c", WORKER, docmill.job(f"j-{n}"), str(tmp_path)]) for n in range(2)]
    docmill.wait(lambda d: len({one.path for one in d.finals}) == 2)
    for worker in workers:
        worker.kill()
        worker.wait(30)
    docmill.otherwise = Say(delay=0.2)
    code = f"from docmill.remote import resume; from pathlib import Path; print(len(resume(Path({str(tmp_path)!r}))))"

    rivals = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    counts = [int(rival.communicate(timeout=60)[0]) for rival in rivals]

    assert 2 == sum(counts)
    assert 2 == len(docmill.accepted) == len({one.path for one in docmill.accepted})


def test_half_a_report_is_no_report(docmill: Receiver, tmp_path: Path) -> None:
    """Killed while it was written: there is a body, or half an address, and nobody sends it."""
    half, young = tmp_path / "1.body", tmp_path / "2.body"
    for path in (half, young, tmp_path / "3.json.part"):
        path.write_bytes(b"{")
    for path in (half, tmp_path / "3.json.part"):
        os.utime(path, (time.time() - 2 * SWEEP_AFTER_S,) * 2)
    (tmp_path / "4.body").write_bytes(b"{}")
    (tmp_path / "4.json").write_bytes(b"not json")

    assert [] == resume(tmp_path)

    assert ["2.body", "4.body", "4.json"] == sorted(path.name for path in tmp_path.iterdir())
    assert [] == docmill.posts


def test_a_report_whose_writing_fails_leaves_nothing(tmp_path: Path) -> None:
    from docmill.remote.spool import Address

    def fails(_: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        Spool(tmp_path).add(Address("http://127.0.0.1/1", "t", "1"), fails)

    assert [] == list(tmp_path.iterdir())


def test_a_final_of_200_mb_needs_no_memory(docmill: Receiver, tmp_path: Path) -> None:
    archive, text, spool = tmp_path / "images.zip", tmp_path / "text.md", tmp_path / "spool"
    archive_with(archive, 140)
    text.write_text("a line of text, größer\n" * (13 * MB // 23))
    began = time.monotonic()

    done = subprocess.run(
        [sys.executable, "-c", BIG, docmill.job(), str(spool), str(archive), str(text)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    before, after = map(int, done.stdout.split())
    final = docmill.finals[-1]
    print(f"{final.size / MB:.0f} MB in {time.monotonic() - began:.1f} s, {before} MB -> {after} MB")
    assert final.size > 198 * MB
    assert after - before <= 12
    assert final.is_accepted
    assert b'"extracted_text":"a line' in final.body
    start = final.body.index(b'"images_archive_data":"') + 23 if b"images_archive_data" in final.body else None
    assert start is None or base64.b64decode(final.body[start : start + 400]) == archive.read_bytes()[:300]
    assert [] == list(spool.iterdir())


def archive_with(path: Path, megabytes: int) -> None:
    import zipfile

    piece = os.urandom(MB)
    with zipfile.ZipFile(path, "w") as archive, archive.open("big.png", "w") as out:
        for _ in range(megabytes):
            out.write(piece)


def test_the_sdk_stands_alone() -> None:
    """It may be lifted out of docmill: of docmill it imports itself, and beyond the standard library an HTTP client."""
    code = """
import sys, docmill.remote
from docmill.remote import wire
ours = {name for name in sys.modules if name.startswith("docmill.")}
assert all(name.startswith("docmill.remote") for name in ours), ours
foreign = {"starlette", "fastapi", "pydantic", "structlog", "msgspec", "uvicorn"} & set(sys.modules)
assert not foreign, foreign
import docmill.remote.server
assert all(name.startswith("docmill.remote") for name in sys.modules if name.startswith("docmill."))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_address_on_disk_is_all_that_is_needed(docmill: Receiver, tmp_path: Path) -> None:
    """A spool may be carried to another machine."""
    from docmill.remote import Callback, Undelivered

    docmill.otherwise = Say(500)
    with pytest.raises(Undelivered):
        Callback(docmill.task("g"), "token", dialect="dispatcher", spool=tmp_path, worker="w", deadline=0).finish(
            "failed", 137, error_message="OOM"
        )
    docmill.otherwise = Say()

    resume(tmp_path)

    (heard,) = docmill.accepted
    assert ("Bearer token", "w", "/api/v1/tasks/g/callback/") == (
        heard.headers["authorization"],
        heard.headers["x-worker"],
        heard.path,
    )
    assert 137 == json.loads(heard.body)["exit_code"]
