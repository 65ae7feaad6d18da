"""The client commands and the service, as a person at a shell meets them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from docmill.client import Client as Connection
from support import hostile
from support.serving import hears_ctrl_c
from support.waiting import read_line

DOCMILL = str(Path(sys.executable).parent / "docmill")
SAMPLES = Path(__file__).parents[2] / "samples"


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DOCMILL_")}
    return {**kept, "NO_COLOR": "1", **more}


@contextmanager
def service(data: Path, *args: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    with (data.parent / f"{data.name}.log").open("w") as log:
        command = [DOCMILL, "serve", "--port", "0", "--data", str(data), *args]
        process = subprocess.Popen(
            command, cwd=data.parent, stdout=subprocess.PIPE, stderr=log, text=True, env=environment()
        )
        try:
            assert process.stdout
            line = read_line(process)
            assert " serves http://127.0.0.1:" in line, Path(log.name).read_text()
            yield line.split()[3], process
        finally:
            process.terminate()
            process.communicate(timeout=30)


class Client:
    def __init__(self, url: str, home: Path) -> None:
        self.env = environment(DOCMILL_URL=url)
        self.home = home

    def __call__(self, *args: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [DOCMILL, *map(str, args)]
        done = subprocess.run(
            command, cwd=self.home, env=self.env, capture_output=True, text=True, check=False, timeout=60
        )
        assert code == done.returncode, f"{command}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *args: object) -> Any:
        return json.loads(self(*args, "--json").stdout)

    def submit(self, file: Path, *args: object) -> int:
        task_id: int = self.json("submit", file, *args)["tasks"][0]["task_id"]
        return task_id

    def until(self, task_id: int, *statuses: str) -> None:
        ends = time.monotonic() + 30
        while self.json("tasks", "show", task_id)["status"] not in statuses:
            assert time.monotonic() < ends
            time.sleep(0.1)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service that does one document at a time, so that another one waits."""
    with service(tmp_path_factory.mktemp("service") / "data", "--jobs", "1") as (url, _):
        yield url


@pytest.fixture
def docmill(url: str, tmp_path: Path) -> Client:
    return Client(url, tmp_path)


@pytest.fixture
def note(tmp_path: Path) -> Path:
    file = tmp_path / "note.txt"
    file.write_text("The quick brown fox jumps over the lazy dog.\n")
    return file


def test_submit_and_follow_to_the_twin(docmill: Client, note: Path) -> None:
    done = docmill("submit", note, "--twin", "--follow", "--project", 7)

    submitted, completed = done.stdout.splitlines()
    task_id = submitted.split()[1]
    assert f"task {task_id}  note.txt  pending" == submitted
    assert completed.startswith(f"completed  note.txt  (task {task_id}, 1 page")
    assert "quick brown fox" in (docmill.home / completed.partition(" -> ")[2]).read_text()


def test_submit_a_folder(docmill: Client, note: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    for place in (tree / "note.txt", tree / "inner" / "note.txt"):
        shutil.copy(note, place)
    (tree / "inner" / "program.py").write_text("print()")
    (tree / ".hidden.txt").write_text("not sent")

    sent = docmill("submit", "tree", "--twin-folder", "from-tree", "--follow", code=5)
    accepted = docmill("submit", "tree", "--ignore-unsupported")
    counted = json.loads(docmill("submit", "tree", "--json", code=5).stdout)

    lines = sent.stdout.splitlines()
    assert [["inner/note.txt", "pending"], ["note.txt", "pending"]] == sorted(line.split()[2:] for line in lines[:2])
    twins = sorted(line.partition(" -> ")[2].partition("/from-tree/")[2] for line in lines[2:4])
    assert ["_note.txt/note.md", "inner/_note.txt/note.md"] == twins
    assert ["unsupported: tree/inner/program.py (PY)"] == lines[4:]
    assert 2 == len(accepted.stdout.splitlines())
    assert (2, ["tree/inner/program.py"]) == (len(counted["tasks"]), counted["unsupported"])


def test_the_markdown_of_a_task(docmill: Client, note: Path, scans: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.pdf").touch()
    done = docmill.submit(note, "--follow")
    failed = json.loads(docmill("submit", "empty.pdf", "--follow", "--json", code=1).stdout)["tasks"][0]["task_id"]
    running = docmill.submit(scans, "--no-cache")

    assert "The quick brown fox jumps over the lazy dog.\n" == docmill("tasks", "markdown", done).stdout
    docmill("tasks", "markdown", done, "-o", "note.md")
    assert "The quick brown fox jumps over the lazy dog.\n" == (tmp_path / "note.md").read_text()
    assert "document_empty" in docmill("tasks", "markdown", failed, code=1).stderr
    assert f"docmill watch {running}" in docmill("tasks", "markdown", running, code=1).stderr
    assert "task_not_found" in docmill("tasks", "markdown", 999_999, code=4).stderr
    docmill("tasks", "cancel", running, "--force")


def test_look_at_tasks(docmill: Client, note: Path) -> None:
    task_id = docmill.submit(note, "--project", 8, "--follow")

    listed = docmill("tasks", "list", "--project", 8, "--status", "completed").stdout.splitlines()
    shown = docmill("tasks", "show", task_id).stdout
    events = docmill("tasks", "events", task_id, "--json").stdout
    followed = docmill("tasks", "follow", task_id)
    result = json.loads(docmill("tasks", "result", task_id).stdout)

    assert ["TASK", "STATUS", "%", "PROJECT", "PAGES", "UPDATED", "FILE"] == listed[0].split()
    assert [str(task_id), "completed", "100", "8"] == listed[1].split()[:4]
    assert "document_id" in shown
    assert "completed" == json.loads(events)["events"][-1]["kind"]
    assert followed.stdout.splitlines()[-1].startswith("completed  note.txt")
    assert "quick brown fox" in result["note"]["content"]
    page = docmill.json("tasks", "list", "--limit", 1)
    assert {"tasks", "total", "limit", "offset", "next_cursor"} == page.keys()


def test_lists_can_be_walked_to_their_end(docmill: Client, note: Path) -> None:
    ids = [docmill.submit(note, "--project", 9) for _ in range(3)]

    page = docmill.json("tasks", "list", "--project", 9, "--limit", 2, "--all")

    assert sorted(ids, reverse=True) == [task["task_id"] for task in page["tasks"]]


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """Read for as long as it takes to cancel it."""
    path = tmp_path / "scans.pdf"
    path.write_bytes(hostile.scans(20))
    return path


def test_cancel_and_retry(docmill: Client, note: Path, scans: Path) -> None:
    running = docmill.submit(scans, "--no-cache")
    waiting = docmill.submit(note)
    docmill.until(running, "mineru_parsing")

    refused = docmill("cancel", running, code=4)
    docmill("tasks", "cancel", waiting)
    docmill("tasks", "cancel", running, "--force")
    again = docmill("retry", waiting, "--from", "parse")
    watched = docmill("watch", waiting)
    docmill("retry", waiting, "--from", "mineru")
    docmill("watch", waiting)
    gone = docmill("watch", running, code=1)

    assert "Error: task_running: " in refused.stderr
    assert "docmill explain task_running" in refused.stderr
    assert f"task {waiting}  pending" in again.stdout
    assert watched.stdout.splitlines()[-1].startswith("completed")
    assert gone.stdout.splitlines()[-1].startswith("cancelled")


def test_a_document_that_fails(docmill: Client, tmp_path: Path) -> None:
    (tmp_path / "empty.pdf").touch()

    done = docmill("submit", "empty.pdf", "--follow", code=1)

    assert "failed     empty.pdf" in done.stdout
    assert "document_empty" in done.stdout
    assert "docmill explain CODE" in done.stderr


def test_ctrl_c_detaches_and_says_how_to_come_back(docmill: Client, url: str, scans: Path) -> None:
    command = [DOCMILL, "submit", str(scans), "--no-cache", "--follow"]
    with subprocess.Popen(
        command,
        env=docmill.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hears_ctrl_c,
    ) as process:
        assert process.stdout
        task_id = read_line(process).split()[1]
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=20)

    assert 130 == process.returncode
    assert f"docmill tasks follow {task_id} --url {url}" in told
    assert "Traceback" not in told
    assert docmill.json("tasks", "show", task_id)["status"] != "cancelled"
    docmill("tasks", "cancel", task_id, "--force")


def test_ctrl_c_lists_only_the_tasks_that_go_on(docmill: Client, note: Path, scans: Path) -> None:
    command = [DOCMILL, "submit", str(note), str(scans), "--no-cache", "--follow"]
    with subprocess.Popen(
        command,
        env=docmill.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hears_ctrl_c,
    ) as process:
        ended, running = (read_line(process).split()[1] for _ in range(2))
        assert read_line(process).startswith("completed  note.txt")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=20)
    docmill("tasks", "cancel", running, "--force")

    assert 130 == process.returncode
    assert f"docmill tasks follow {running} " in told
    assert f"follow {ended} " not in told
    assert 2 == len(told.splitlines()), told


def test_ctrl_c_ends_any_command_in_one_line(tmp_path: Path) -> None:
    """A service that accepts the connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        command = [DOCMILL, "tasks", "list", "--url", f"http://127.0.0.1:{silent.getsockname()[1]}"]
        with subprocess.Popen(
            command,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=hears_ctrl_c,
        ) as process:
            silent.settimeout(30)
            with silent.accept()[0]:
                process.send_signal(signal.SIGINT)
                printed, told = process.communicate(timeout=20)

    assert (130, "", "Stopped.\n") == (process.returncode, printed, told)


def test_one_default_project(docmill: Client, url: str, note: Path) -> None:
    """Commands, Python's client and the console's form mean the same one when no project is named."""
    task_id = docmill.submit(note)
    docmill.json("tables", "add", "default")
    with Connection(url) as python:
        sent = python.submit(note)
        assert 0 == docmill.json("tasks", "show", task_id)["project_id"] == python.task(sent.task_id).project_id
    form = urlopen(f"{url}/", timeout=30).read().decode()

    assert 'name="project_id" min="0" value="0"' in form
    assert "default" in docmill("tables", "list", "--project", 0).stdout


def test_rules_and_what_the_service_refuses(docmill: Client, tmp_path: Path, note: Path) -> None:
    (tmp_path / "schema.json").write_text('{"type": "object", "properties": {"total": {"type": "number"}}}')

    rule = docmill.json("rules", "add", "totals", "--schema", "schema.json", "--prompt", "Find the total.")
    kept = docmill.json("rules", "replace", rule["id"], "as it is", "--mode", "skip")
    listed = docmill("rules", "list").stdout
    task_id = docmill.submit(note, "--rule", rule["id"], "--follow")
    docmill("rules", "remove", rule["id"])
    unknown = docmill("submit", note, "--rule", 4711, code=4)

    assert ("llm", "skip") == (rule["postprocess_mode"], kept["postprocess_mode"])
    assert "as it is" in listed
    assert "completed" == docmill.json("tasks", "show", task_id)["status"]
    assert "rule_not_found" in unknown.stderr
    assert "rule_not_found" in docmill("rules", "show", rule["id"], code=4).stderr


def test_mount_into_a_table(docmill: Client, note: Path, tmp_path: Path) -> None:
    (tmp_path / "start.json").write_text('{"notes": {}}')
    table = docmill.json("tables", "add", "book", "--project", 3, "--data", "start.json")["id"]
    task_id = docmill.submit(note, "--project", 3, "--follow")

    mounted = docmill("tasks", "mount", task_id, "--table", table, "--pointer", "/notes")
    at_once = docmill.json("submit", note, "--table", table, "--project", 3, "--follow")["tasks"][0]

    assert "Mounted at /notes/note." in mounted.stdout
    value = json.loads(docmill("tables", "show", table, "--pointer", "/notes/note/filename").stdout)
    assert "note.txt" == value
    assert "/note" == at_once["metadata"]["mounted_path"]
    assert "book" in docmill("tables", "list", "--project", 3).stdout
    docmill("tables", "remove", table)


def test_documents_and_assets(docmill: Client, tmp_path: Path) -> None:
    shutil.copy(SAMPLES / "data.csv", tmp_path / "data.csv")
    task_id = docmill.submit(tmp_path / "data.csv", "--follow")
    document_id = docmill.json("tasks", "show", task_id)["metadata"]["document_id"]

    assert document_id in docmill("docs", "list").stdout
    assert document_id in docmill("docs", "show", document_id).stdout
    assert document_id in docmill("docs", "versions", document_id).stdout
    assert (SAMPLES / "data.csv").read_text() == docmill("docs", "get", document_id).stdout
    assert "| station |" in docmill("docs", "get", document_id, "--markdown").stdout
    assets = docmill.json("assets", "list", document_id)["assets"]
    [asset] = [one["ref"]["asset_id"] for one in assets if one["media_type"] == "text/html"]
    assert asset in docmill("assets", "show", asset).stdout
    docmill("assets", "get", asset, "-o", "table.html")
    assert "<table" in (tmp_path / "table.html").read_text()
    docmill("docs", "delete", document_id)
    assert "document_not_found" in docmill("docs", "show", document_id, code=4).stderr


def test_nobody_answers(tmp_path: Path) -> None:
    done = Client("http://127.0.0.1:9", tmp_path)("tasks", "list", code=2)

    assert "Error: No docmill answers at http://127.0.0.1:9. Start one with 'docmill serve'" in done.stderr


def test_a_service_stops_on_a_signal_and_keeps_others_out(tmp_path: Path) -> None:
    shell = Client("http://127.0.0.1:9", tmp_path)
    with service(tmp_path / "data") as (url, process):
        port = url.rpartition(":")[2]
        locked = shell("serve", "--data", "data", "--port", 0, code=2)
        taken = shell("serve", "--data", "other", "--port", port, code=2)
        open_to_all = shell("serve", "--data", "third", "--host", "0.0.0.0", "--port", 0, code=2)
        process.send_signal(signal.SIGTERM)
        process.wait(20)

    assert 0 == process.returncode
    assert "Error: data_locked: " in locked.stderr
    assert f"Error: address_taken: Something else serves on 127.0.0.1:{port} already." in taken.stderr
    assert "Error: bind_refused: " in open_to_all.stderr


def test_keys_are_made_before_the_service_and_asked_for_by_it(tmp_path: Path) -> None:
    shell = Client("http://127.0.0.1:9", tmp_path)
    made = shell.json(
        "keys", "create", "laptop", "--user", "anna", "--tenant", "acme", "--expires", 30, "--data", "data"
    )
    with service(tmp_path / "data") as (url, _):
        stranger = Client(url, tmp_path)("tasks", "list", code=4)
        anna = Client(url, tmp_path)
        anna.env["DOCMILL_API_KEY"] = made["secret"]
        assert [] == anna.json("tasks", "list")["tasks"]
    listed = shell("keys", "list", "--data", "data").stdout
    shell("keys", "revoke", made["id"], "--data", "data")

    assert "unauthenticated" in stranger.stderr
    assert "DOCMILL_API_KEY" in stranger.stderr
    assert made["secret"] not in listed
    assert ["acme", "anna", "good"] == listed.splitlines()[1].split()[1:4]
    assert "revoked" == shell.json("keys", "list", "--data", "data")["keys"][0]["state"]
    shell("keys", "revoke", made["id"], "--data", "data", code=1)


def test_the_database_is_looked_at_and_upgraded(tmp_path: Path) -> None:
    shell = Client("http://127.0.0.1:9", tmp_path)

    assert "docmill db upgrade" in shell("db", "check", "--data", "data", code=2).stderr
    assert not (tmp_path / "data").exists()
    assert shell.json("db", "upgrade", "--data", "data")["applied"]
    assert [] == shell.json("db", "check", "--data", "data")["pending"]
    (tmp_path / "data" / "docmill.db").write_bytes(b"This was a database once. " * 100)
    assert "Error: The database cannot be used: NotADBError" in shell("keys", "list", "--data", "data", code=2).stderr


def test_the_doctor_finds_a_sound_machine_and_a_sick_one(docmill: Client, url: str, tmp_path: Path) -> None:
    sound = docmill.json("doctor", "--data", "data")
    (tmp_path / "file").touch()
    docmill.env["DOCMILL_DATA"] = "file"
    sick = docmill("doctor", code=1)

    checks = {one["name"]: one["status"] for one in sound["checks"]}
    assert sound["ok"]
    assert "ok" == checks["engine"] == checks["service"] == checks["ocr"] == checks["database"]
    assert {"python", "packages", "settings", "data", "isolation", "fonts"} <= checks.keys()
    assert "fail  data" in sick.stdout


def test_the_demo_from_end_to_end(tmp_path: Path) -> None:
    (tmp_path / "few").mkdir()
    for name in ("data.csv", "readme.md", "README.md"):
        shutil.copy(SAMPLES / name, tmp_path / "few" / name)
    (tmp_path / "none").mkdir()
    shell = Client("http://127.0.0.1:9", tmp_path)

    shown = shell("demo", "--samples", "few", "--data", "demo").stdout

    assert "2 of 2 completed" in shown
    assert "There is nothing in none." in shell("demo", "--samples", "none", code=2).stderr
    assert "it is ready" in shown
    twins = [line.partition(" -> ")[2] for line in shown.splitlines() if line.startswith("completed  ")]
    assert [("demo", True)] * 2 == [(Path(twin).parts[0], (tmp_path / twin).is_file()) for twin in twins]
