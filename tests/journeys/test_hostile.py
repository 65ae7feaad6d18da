"""Broken and hostile files through a real service: each ends with its own code, and nobody else notices.

All are submitted at once, with honest documents between them; the tests then look at what became of each.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from support import documents, hostile
from support.serving import Etl, Service

Build = Callable[[], bytes]

REFUSED: dict[str, tuple[Build, str]] = {
    "empty.pdf": (hostile.empty, "document_empty"),
    "noise.bin": (hostile.noise, "document_unsupported"),
    "noise.pdf": (hostile.noise, "document_mislabelled"),
    "locked.pdf": (hostile.encrypted_pdf, "document_encrypted"),
    "locked.docx": (lambda: hostile.built(documents.encrypted_office), "document_encrypted"),
    "half.pdf": (lambda: hostile.truncated(hostile.pages(3)), "document_broken"),
    "half.docx": (lambda: hostile.truncated(hostile.built(documents.docx)), "document_broken"),
    "half.png": (lambda: hostile.truncated(documents.picture_bytes()), "document_broken"),
    "bomb.docx": (hostile.zip_bomb, "document_bomb"),
    "entities.docx": (hostile.xml_bomb, "document_bomb"),
    "overlap.docx": (hostile.overlapping_zip, "document_bomb"),
    "many-entries.docx": (lambda: hostile.zip_of_many(25_000), "document_bomb"),
    "lying.docx": (hostile.lying_zip, "document_broken"),
    "million-pages.pdf": (hostile.million_pages, "document_too_many_pages"),
    "circle.pdf": (hostile.circular_pages, "document_broken"),
    "huge.png": (hostile.huge_png, "document_too_many_pixels"),
}
READ: dict[str, tuple[Build, str]] = {
    "really-a-picture.pdf": (lambda: documents.text_image(["A picture that calls itself a PDF"]), "picture"),
    "really-a-pdf.docx": (lambda: hostile.pages(1), "Chapter 1"),
    "really-text.pdf": (lambda: b"just text and no PDF at all\n", "just text"),
    "also-a-zip.pdf": (hostile.polyglot, "Chapter 1"),
    "entities.html": (hostile.html_bomb, "Harbour"),
    "nested.html": (hostile.nested_html, "deep"),
    "self-drawing.pdf": (hostile.self_drawing_form, ""),
    "town-sized.pdf": (hostile.endless_page, "Harbour"),
    "wide.csv": (hostile.wide_csv, "c999999"),
    "one-line.txt": (lambda: hostile.one_line(16 * hostile.MiB), "harbour harbour"),
}
POISON: dict[str, Build] = {"two-forms.pdf": hostile.recursive_form}
"""They eat all memory that there is, and their parser dies of it."""
VICTIM = "victim.pdf"
"""An honest document whose parser is killed each time, as if by a bug."""
HONEST_EVERY = 4


@dataclass
class Fates:
    """What became of all."""

    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    honest: list[dict[str, Any]] = field(default_factory=list)
    ready: dict[str, Any] = field(default_factory=dict)
    strays: list[psutil.Process] = field(default_factory=list)
    leftovers: list[Path] = field(default_factory=list)
    exit_code: int = -1


@pytest.fixture(scope="module")
def fates(tmp_path_factory: pytest.TempPathFactory) -> Fates:
    data = tmp_path_factory.mktemp("hostile") / "data"
    files = POISON | {name: build for name, (build, _) in (REFUSED | READ).items()}
    files |= {VICTIM: lambda: hostile.scans(8)}  # the last, for it is killed only from then on
    found = Fates()
    # Less memory, so that a parser that eats all of it does so soon; but more than OCR takes in its largest moments, or
    # the victim could seem to have died of that.
    service = Service(data, "--jobs", "2", DOCMILL_MEMORY_MB="2304").start()
    try:
        with service.client() as client:
            etl = Etl(client)
            ids, honest = {}, []
            for number, (name, build) in enumerate(files.items()):
                ids[name] = etl.submit(name, build())
                if number % HONEST_EVERY == 0:
                    honest.append(etl.submit(f"honest-{number}.md", b"# Honest %d\n" % number))
            while etl.task(ids[VICTIM])["status"] not in ("completed", "failed"):
                kill_parsers_of(len(hostile.scans(8)), service.pid)
            found.tasks = {name: etl.wait(task_id, seconds=120) for name, task_id in ids.items()}
            found.honest = [etl.wait(task_id) for task_id in honest]
            found.honest.append(etl.done("after.txt", b"after all of them"))
            found.ready = client.get("/ready").json()
        children = psutil.Process(service.pid).children(recursive=True)
        pid = service.pid
        found.exit_code = service.stop()
        _, found.strays = psutil.wait_procs(children, timeout=30)
        found.leftovers = [*(data / "scratch").iterdir(), *Path(tempfile.gettempdir()).glob(f"docmill-child-{pid}-*")]
    finally:
        if service.is_running:
            service.kill()
    return found


def kill_parsers_of(size: int, service: int) -> None:
    """End the children that read a PDF of this size."""
    for child in psutil.Process(service).children():
        with contextlib.suppress(psutil.Error, OSError):
            if hostile.size_of_input(Path(child.cwd()).parent) == size:
                child.send_signal(signal.SIGSEGV)
    time.sleep(0.05)


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_document_fails_with_its_own_code(fates: Fates, name: str) -> None:
    task = fates.tasks[name]
    assert ("failed", REFUSED[name][1]) == (task["status"], task["metadata"]["error_code"]), task["error"]
    assert ("mineru", 1) == (task["metadata"]["error_stage"], task["metadata"]["attempt"]), "once is enough"
    assert task["error"]
    assert task["result"] is None


@pytest.mark.parametrize("name", READ)
def test_a_strange_document_that_can_be_read_is_read(fates: Fates, name: str) -> None:
    task = fates.tasks[name]
    assert ("completed", None) == (task["status"], task["error"]), task["error"]
    [output] = task["result"].values()
    assert name == output["filename"]
    assert READ[name][1] in output["content"]


def test_entities_do_not_grow(fates: Fates) -> None:
    [output] = fates.tasks["entities.html"]["result"].values()
    assert "haha" not in output["content"]


@pytest.mark.parametrize("name", POISON)
def test_poison_is_tried_once(fates: Fates, name: str) -> None:
    task = fates.tasks[name]
    metadata = task["metadata"]
    assert ("failed", "parse_memory", "crash") == (task["status"], metadata["error_code"], metadata["error_stage"])
    assert 1 == metadata["attempt"], "more memory will not be there next time"


def test_a_document_whose_parser_crashes_is_given_up_after_three_tries(fates: Fates) -> None:
    metadata = fates.tasks[VICTIM]["metadata"]
    assert ("crash", "parse_crashed", 3) == (metadata["error_stage"], metadata["error_code"], metadata["attempt"])


def test_honest_documents_between_them_are_done(fates: Fates) -> None:
    assert {"completed"} == {task["status"] for task in fates.honest}
    assert {1} == {task["metadata"]["attempt"] for task in fates.honest}


def test_the_service_stays_ready_and_leaves_nothing(fates: Fates) -> None:
    assert "ready" == fates.ready["status"], fates.ready
    assert 0 == fates.exit_code
    assert [] == fates.strays
    assert [] == fates.leftovers
