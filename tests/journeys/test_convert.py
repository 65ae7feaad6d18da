"""`docmill convert` from the outside, with the real engine."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support import hostile
from support.serving import hears_ctrl_c
from support.waiting import read_line

DOCMILL = str(Path(sys.executable).parent / "docmill")
SAMPLES = Path(__file__).parents[2] / "samples"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A text, a table and a web page, one of them deeper, one with a name outside ASCII."""
    folder = tmp_path / "docs"
    (folder / "tief").mkdir(parents=True)
    shutil.copy(SAMPLES / "zeichen.txt", folder / "zeichen.txt")
    shutil.copy(SAMPLES / "page.html", folder / "tief" / "Übersicht 报告.html")
    (folder / "data.csv").write_text("name,size\nAnna,3\nBen,4\n")
    return folder


class Shell:
    def __init__(self, home: Path) -> None:
        self.home = home
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DOCMILL_")}
        self.env = {**kept, "HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "NO_COLOR": "1"}

    def convert(self, *args: object) -> subprocess.CompletedProcess[str]:
        command = [DOCMILL, "convert", *map(str, args)]
        return subprocess.run(
            command, cwd=self.home, env=self.env, capture_output=True, text=True, check=False, timeout=60
        )

    def summary(self, *args: object) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.convert(*args, "--json").stdout)
        return found


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_twice_over_a_folder(shell: Shell, folder: Path) -> None:
    first = shell.convert("docs")
    second = shell.convert("docs")

    assert (0, 0) == (first.returncode, second.returncode), first.stderr + second.stderr
    paths = sorted(line.split("  ")[1] for line in first.stdout.splitlines())
    assert [
        "docs/_data.csv/data.md",
        "docs/_zeichen.txt/zeichen.md",
        "docs/tief/_Übersicht 报告.html/Übersicht 报告.md",
    ] == paths
    assert re.fullmatch(r"3 converted\. 3 pages in \d+\.\d s \(\d+\.\d pages/s\)\.\n", first.stderr)
    assert ("", "3 current.\n") == (second.stdout, second.stderr)
    twin = folder / "tief" / "_Übersicht 报告.html" / "Übersicht 报告.md"
    assert twin.read_text().startswith("---\ntype:")


def test_a_changed_file_an_edited_twin_and_a_broken_one(shell: Shell, folder: Path) -> None:
    (folder / "broken.docx").write_bytes((SAMPLES / "notes.docx").read_bytes()[:9000])
    before = shell.convert("docs")
    (folder / "data.csv").write_text("name,size\nCarla,5\nDora,6\n")
    (folder / "zeichen.txt").write_text("Something else altogether.\n")
    (folder / "_zeichen.txt" / "zeichen.md").write_text("mended by hand\n")

    after = shell.summary("docs")

    assert 1 == before.returncode
    assert re.search(r"^failed  document_broken: .*\n  docs/broken\.docx$", before.stdout, re.MULTILINE)
    assert "docmill explain document_broken" in before.stderr
    states = {Path(one["path"]).name: (one["state"], one["reason"]) for one in after["outcomes"]}
    assert ("converted", "changed") == states["data.csv"]
    assert ("kept", "edited") == states["zeichen.txt"]
    assert ("current", "current") == states["Übersicht 报告.html"]
    assert (1, 1, 1, 1) == (after["converted"], after["kept"], after["current"], after["failed"])
    assert "Carla" in (folder / "_data.csv" / "data.md").read_text()
    assert "mended by hand\n" == (folder / "_zeichen.txt" / "zeichen.md").read_text()


def test_only_what_failed_is_tried_again(shell: Shell, folder: Path) -> None:
    (folder / "empty.pdf").touch()
    shell.convert("docs")
    (folder / "empty.pdf").write_text("Now it has words, and they are read by their bytes.\n")
    (folder / "new.txt").write_text("Not asked for.\n")

    again = shell.summary("docs", "--only-failed")
    once_more = shell.summary("docs", "--only-failed")

    assert [("docs/empty.pdf", "converted")] == [(one["path"], one["state"]) for one in again["outcomes"]]
    assert (0, []) == (once_more["files"], once_more["outcomes"])


def test_a_dry_run_says_what_and_why_and_writes_nothing(shell: Shell, folder: Path) -> None:
    (folder / "program.py").write_text("print()")

    plan = shell.convert("docs", "--dry-run")

    assert 5 == plan.returncode
    assert "convert  docs/data.csv  (new)\n" in plan.stdout
    assert "unsupported: docs/program.py (PY)\n" in plan.stdout
    assert "3 would be converted, 1 unsupported." in plan.stderr
    assert not list(folder.rglob("_*"))


def test_elsewhere_as_sidecars_one_line_of_json_per_file(shell: Shell, folder: Path) -> None:
    done = shell.convert("docs", "-o", "out", "--layout", "sidecar", "--language", "de", "--jsonl")

    lines = [json.loads(line) for line in done.stdout.splitlines()]
    keys = {"path", "state", "reason", "twin", "pages", "damaged_pages", "seconds", "error"}
    assert 3 == len(lines)
    assert [keys] * 3 == [set(line) for line in lines]
    assert {"out/data.de.md", "out/zeichen.de.md", "out/tief/Übersicht 报告.de.md"} == {line["twin"] for line in lines}
    assert not [path for path in folder.rglob("*") if path.suffix == ".md"]


def test_a_file_that_is_named_must_be_a_document(shell: Shell) -> None:
    (shell.home / "noise.bin").write_bytes(bytes(range(256)) * 8)

    done = shell.convert("noise.bin")

    assert 5 == done.returncode
    assert "unsupported: noise.bin (BIN)\n" == done.stdout


def test_every_page_is_read_once_unless_page_files_are_asked_for(shell: Shell) -> None:
    (shell.home / "docs").mkdir()
    shutil.copy(SAMPLES / "report.en.pdf", shell.home / "docs" / "report.en.pdf")

    shell.convert("docs")
    once = [path.name for path in (shell.home / "docs").rglob("*.md")]
    asked = shell.convert("docs", "--page-files")
    twice = sorted(path.name for path in (shell.home / "docs").rglob("*.md"))
    refused = shell.convert("docs", "--page-files", "--layout", "sidecar")

    assert ["report.en.md"] == once
    assert (0, ["page_001.md", "page_002.md", "report.en.md"]) == (asked.returncode, twice)
    assert (2, True) == (refused.returncode, "--page-files needs --layout folder" in refused.stderr)


def test_unsupported_files_are_listed_by_their_type_and_the_exit_code_says_so(shell: Shell, folder: Path) -> None:
    (folder / "a.dwg").write_bytes(b"AC1032" + bytes(2000))
    (folder / "tief" / "b.py").write_text("print()")

    first = shell.convert("docs")
    again = shell.convert("docs")
    accepted = shell.convert("docs", "--ignore-unsupported")
    counted = shell.summary("docs")

    assert (5, 5, 0) == (first.returncode, again.returncode, accepted.returncode)
    listed = "unsupported: docs/a.dwg (DWG)\nunsupported: docs/tief/b.py (PY)\n"
    assert listed == again.stdout
    assert "--ignore-unsupported" in again.stderr
    assert ("", "3 current, 2 unsupported.\n") == (accepted.stdout, accepted.stderr)
    assert (2, "document_unsupported") == (
        counted["unsupported"],
        next(one["error"]["code"] for one in counted["outcomes"] if one["state"] == "unsupported"),
    )


def test_failures_are_grouped_at_the_end(shell: Shell, folder: Path) -> None:
    for name in ("a0.docx", "x1.docx", "y2.docx"):
        (folder / name).write_bytes((SAMPLES / "notes.docx").read_bytes()[:9000])
    (folder / "a1.pdf").touch()

    done = shell.convert("docs", "--jobs", 1)

    lines = done.stdout.splitlines()
    assert [True] * 3 == [line.startswith("converted  ") for line in lines[:3]]
    assert lines[3].startswith("failed  document_broken: ")
    assert ["  docs/a0.docx", "  docs/x1.docx", "  docs/y2.docx"] == lines[4:7]
    assert lines[7].startswith("failed  document_empty: ")
    assert ["  docs/a1.pdf"] == lines[8:]
    assert "3 converted, 4 failed." in done.stderr
    assert "docmill explain CODE" in done.stderr


def test_a_folder_without_documents_says_so(shell: Shell) -> None:
    (shell.home / "docs").mkdir()

    done = shell.convert("docs")

    assert (0, "", "Nothing to do: there are no documents in docs.\n") == (done.returncode, done.stdout, done.stderr)


def test_standard_output_has_the_json_lines_and_nothing_else(shell: Shell, folder: Path) -> None:
    """Broken, scanned and unsupported files make warnings and logs, which go to standard error."""
    for name in ("photo.jpg", "scan.en.pdf"):
        shutil.copy(SAMPLES / name, folder / name)
    (folder / "broken.pdf").write_bytes((SAMPLES / "report.en.pdf").read_bytes()[:20000])
    (folder / "half.jpg").write_bytes((SAMPLES / "photo.jpg").read_bytes()[:40000])
    (folder / "a.dwg").write_bytes(b"AC1032" + bytes(2000))

    done = shell.convert("docs", "--jsonl")

    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert 8 == len(lines)
    assert {"path", "state"} <= set.intersection(*(set(line) for line in lines))
    assert "converted" in done.stderr


@pytest.mark.parametrize("args", [(), ("missing",), ("docs", "--json", "--jsonl"), ("docs", "--language", "../x")])
def test_wrong_usage(shell: Shell, folder: Path, args: tuple[str, ...]) -> None:
    assert 2 == shell.convert(*args).returncode


def test_a_terminal_shows_pages_per_second_and_the_time_left(shell: Shell) -> None:
    """Standard error is a terminal, standard output is not: as with `docmill convert docs > list`."""
    (shell.home / "docs").mkdir()
    (shell.home / "docs" / "scans.pdf").write_bytes(hostile.scans(40))
    terminal, inner = pty.openpty()
    process = subprocess.Popen(
        [DOCMILL, "convert", "docs", "--jobs", "1"],
        cwd=shell.home,
        env={**shell.env, "TERM": "xterm", "COLUMNS": "160"},
        stdout=subprocess.PIPE,
        stderr=inner,
        preexec_fn=hears_ctrl_c,
    )
    os.close(inner)
    shown = ""
    ends = time.monotonic() + 120
    try:
        while not re.search(r"0 of 1, \d+\.\d pages/s, about (\d+ min )?\d+ s left", shown):
            assert time.monotonic() < ends, shown[-2000:]
            ready, _, _ = select.select([terminal], [], [], 1)
            shown += os.read(terminal, 65536).decode(errors="replace") if ready else ""
    finally:
        process.send_signal(signal.SIGINT)
        # The terminal is read to its end, or the command could not write its last words.
        with suppress(OSError):
            while part := os.read(terminal, 65536):
                shown += part.decode(errors="replace")
        printed, _ = process.communicate(timeout=30)
        os.close(terminal)

    assert (130, b"") == (process.returncode, printed)
    assert "Stopped; 1 file left." in shown


def test_an_interrupted_run_says_how_to_go_on(shell: Shell, folder: Path) -> None:
    for number in range(3):
        shutil.copy(SAMPLES / "scan.en.pdf", folder / f"z{number}.pdf")
    command = [DOCMILL, "convert", "docs", "--jobs", "1"]
    with subprocess.Popen(
        command,
        cwd=shell.home,
        env=shell.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hears_ctrl_c,
    ) as process:
        assert process.stdout
        first = read_line(process)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)

    assert first.startswith("converted")
    assert 130 == process.returncode
    assert "The same command goes on" in told
    assert "Traceback" not in told
    assert not list(folder.rglob(".docmill-*.tmp"))
    assert not list(shell.home.glob("docmill-convert-*"))
