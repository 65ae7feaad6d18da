"""docmill in the hands of an operator: misspelt folders and settings, a first key, a log in a file."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from docmill.adapters.libraries.disk import DiskLibrary
from docmill.adapters.watching.folder import Inbox
from docmill.core.inbox import is_wanted
from support.serving import Etl, Fleet, Service, WorkerServer

COMMANDS = (
    ("serve",),
    ("worker",),
    ("worker-server",),
    ("keys", "list"),
    ("db", "check"),
    ("backup", "all.zip"),
    ("convert", "a.txt"),
    ("plan", "a.txt"),
    ("onedrive", "login"),
)
SHARED = {"DATABASE_URL": "postgresql://u:hunter2@127.0.0.1:9/x"}


def docmill(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "docmill", *words],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def entries(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_broken_file_ends_every_command_with_one_line(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "docmill.toml").write_text("jobs = 2\nport = oops\n")

    done = docmill(tmp_path, *words)

    first, hint = done.stderr.splitlines()
    assert 2 == done.returncode
    assert first.startswith("Error: settings_file_invalid: docmill.toml cannot be read: line 2, column 8")
    assert "docmill explain settings_file_invalid" in hint
    assert ["a.txt", "docmill.toml"] == entries(tmp_path)


@pytest.mark.parametrize(
    ("words", "entry"),
    [
        (("keys", "list"), "typo"),
        (("keys", "revoke", "some-id"), "typo"),
        (("db", "check"), "typo"),
        (("backup", "all.zip"), "typo"),
    ],
)
def test_reading_from_a_misspelt_folder_creates_nothing(words: tuple[str, ...], entry: str, tmp_path: Path) -> None:
    done = docmill(tmp_path, *words, "--data", entry)

    assert 2 == done.returncode
    assert "Error: There is no database in typo." in done.stderr
    assert [] == entries(tmp_path)


@pytest.mark.parametrize("words", [("keys", "list"), ("keys", "create", "x"), ("db", "upgrade")])
def test_a_flag_that_another_setting_overrides_is_refused(words: tuple[str, ...], tmp_path: Path) -> None:
    done = docmill(tmp_path, *words, "--data", "here", **SHARED)

    assert 2 == done.returncode
    assert "--data has no effect here, because database_url is set (DATABASE_URL)" in done.stderr


async def test_an_inbox_leaves_docmills_own_data_alone(tmp_path: Path) -> None:
    for name in ("a.txt", "data/docmill.db", "data/docmill.db-wal", "data/objects/1/b.txt", "more/c.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    library = DiskLibrary((tmp_path,))
    try:
        inbox = Inbox(tmp_path, is_wanted, library.ours, settle_s=0.05)
        found = [path.relative_to(tmp_path).as_posix() async for path in inbox.files(once=True)]
    finally:
        await library.close()

    assert ["a.txt", "more/c.txt"] == sorted(found)


def doctor(folder: Path, **environment: str) -> dict[str, Any]:
    done = docmill(folder, "doctor", "--json", "--url", "http://127.0.0.1:9", **environment)
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout)


def test_the_doctor_names_every_setting_and_its_origin(tmp_path: Path) -> None:
    (tmp_path / "docmill.toml").write_text("jobs = 3\n")
    environment = {"DOCMILL_PORT": "9000", "DOCMILL_JWT_SECRET": "hunter2" * 6, "DOCMILL_COLOUR_OF_THE_SKY": "blue"}

    found = doctor(tmp_path, **environment)
    text = docmill(tmp_path, "doctor", "--data", "d", "--url", "http://127.0.0.1:9", **environment).stdout

    settings = {one["name"]: one for one in found["settings"]}
    assert ("3", "file", "docmill.toml, line 1") == tuple(settings["jobs"][key] for key in ("value", "origin", "place"))
    assert ("9000", "environment", "DOCMILL_PORT") == tuple(
        settings["port"][key] for key in ("value", "origin", "place")
    )
    assert "default" == settings["lease"]["origin"]
    assert "hunter2" not in json.dumps(found) + text
    assert any("DOCMILL_COLOUR_OF_THE_SKY" in one["detail"] for one in found["checks"] if one["status"] == "warn")
    assert "(--data)" in next(line for line in text.splitlines() if line.startswith("set   data "))


def test_the_doctor_says_what_a_bad_setting_is(tmp_path: Path) -> None:
    found = doctor(tmp_path, DOCMILL_WORKERS="{bad")

    [check] = [one for one in found["checks"] if one["name"] == "settings"]
    assert "fail" == check["status"]
    assert "workers (DOCMILL_WORKERS)" in check["detail"]


def test_the_doctor_asks_redis_objects_and_database(
    tmp_path: Path, postgres_database: str, redis_url: str, s3: Any, s3_prefix: str
) -> None:
    there = {
        "DATABASE_URL": postgres_database,
        "REDIS_URL": redis_url,
        "OBJECTS_URL": f"s3://{s3.bucket}/{s3_prefix}",
        "DOCMILL_SECRET": "s",
        **s3.environment,
    }
    away = {"REDIS_URL": "redis://127.0.0.1:9/0", "OBJECTS_URL": "s3://no-such-bucket/x"}

    fine = {one["name"]: one["status"] for one in doctor(tmp_path, **there)["checks"]}
    bad = {one["name"]: one["status"] for one in doctor(tmp_path, **there | away)["checks"]}

    assert ("ok", "ok") == (fine["redis"], fine["objects"])
    assert fine["database"] in ("ok", "warn")
    assert ("fail", "fail") == (bad["redis"], bad["objects"])


def test_a_log_in_a_file_has_no_escape_codes(tmp_path: Path) -> None:
    environment = {"DOCMILL_LOG_FORMAT": "console", "FORCE_COLOR": "1"}
    with Service(tmp_path / "data", **environment) as service, service.client() as client:
        client.get("/health")
    log = "".join(service.log)

    assert "Started server process" in log
    assert "color_message" not in log
    assert "\\x1b" not in log
    assert "\x1b" not in log


def test_warnings_of_a_command_do_not_go_among_its_results(tmp_path: Path) -> None:
    script = (
        "import structlog\nfrom docmill.cli.failure import told\nwith told(): structlog.get_logger('t').warning('w')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"FORCE_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert "" == done.stdout
    assert "w" in done.stderr
    assert "\x1b" not in done.stderr


def test_the_image_starts_once_there_is_a_key(tmp_path: Path) -> None:
    """The image sets DOCMILL_HOST and DOCMILL_DATA; its how-to creates the key in the same volume first."""
    image = {"DOCMILL_HOST": "0.0.0.0", "DOCMILL_DATA": str(tmp_path / "volume")}

    refused = docmill(tmp_path, "serve", "--port", "0", **image)
    key = docmill(tmp_path, "keys", "create", "me", "--admin", **image).stdout.strip()
    with Service(tmp_path / "volume", **image) as service, httpx2.Client(trust_env=False) as client:
        address = f"http://127.0.0.1:{service.port}/api/v1/etl/tasks"
        stranger = client.get(address)
        owner = client.get(address, headers={"Authorization": f"Bearer {key}"})

    assert 2 == refused.returncode
    assert "bind_refused" in refused.stderr
    assert "docmill keys create" in refused.stderr
    assert (401, 200) == (stranger.status_code, owner.status_code)


def test_external_workers_take_and_leave_files_through_the_api(
    tmp_path: Path, postgres_database: str, redis_url: str, s3: Any, s3_prefix: str
) -> None:
    """With links of the service nobody but docmill itself talks to the bucket."""
    with WorkerServer(tmp_path / "spool") as elsewhere:
        environment = {
            "DATABASE_URL": postgres_database,
            "REDIS_URL": redis_url,
            "OBJECTS_URL": f"s3://{s3.bucket}/{s3_prefix}",
            "DOCMILL_OBJECT_LINKS": "service",
            "DOCMILL_WORKERS": elsewhere.settings(),
            "DOCMILL_FETCH_NETWORKS": "127.0.0.0/8",
            **s3.environment,
        }
        with Fleet(tmp_path / "data", **environment) as service, service.client() as client:
            Etl(client).done("a.txt", b"a text for a worker elsewhere", engine="dispatcher")
            asked = 'docmill_http_requests_total{method="GET",route="/api/v1/objects/{token}",status="2xx"}'
            assert asked in client.get("/metrics").text
