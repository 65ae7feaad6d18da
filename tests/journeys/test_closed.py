"""Credentials once made keep the service closed, and what lies on disk is its owner's alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import jwt
import pytest

from docmill.client import Client, TaskEnded
from support.serving import Etl, Service

JWT_SECRET = "a secret of the tests that is long enough for HS256"


def docmill(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "docmill", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def create_key(data: Path, *flags: str) -> dict[str, Any]:
    made = docmill("keys", "create", "test", "--data", data, "--json", *flags)
    assert 0 == made.returncode, made.stderr
    key: dict[str, Any] = json.loads(made.stdout)
    return key


def status(service: Service, secret: str = "", path: str = "/api/v1/etl/tasks") -> int:
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    with service.client(headers=headers) as client:
        return client.get(path).status_code


def test_revoking_the_last_key_opens_nothing_also_after_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Service(data) as service:
        assert 200 == status(service), "nobody has an account yet"
    key = create_key(data)
    with Service(data) as service:
        assert (401, 200) == (status(service), status(service, key["secret"]))
        assert 0 == docmill("keys", "revoke", key["id"], "--data", data).returncode
        assert 401 == status(service)
    with Service(data) as service:
        assert 401 == status(service)
        assert 401 == status(service, key["secret"])
        assert 401 == status(service, path="/api/v1/documents")
        with service.client(follow_redirects=False) as client:
            assert "/sign-in" in client.get("/settings").headers["location"]
        fresh = create_key(data)
        assert 200 == status(service, fresh["secret"]), "the command line on the machine makes a new one"


def test_a_start_without_the_settings_of_tokens_opens_nothing(tmp_path: Path) -> None:
    """Behind a proxy on the same machine, loopback is the whole world."""
    data = tmp_path / "data"
    token = jwt.encode({"sub": "anna", "exp": time.time() + 600}, JWT_SECRET, "HS256")
    with Service(data, DOCMILL_JWT_SECRET=JWT_SECRET) as service:
        assert (401, 200) == (status(service), status(service, token))
    with Service(data) as service:
        assert (401, 401) == (status(service), status(service, token))


def test_the_issuer_and_a_long_secret_are_required_where_they_are_set(tmp_path: Path) -> None:
    def token(**claims: Any) -> str:
        return jwt.encode({"sub": "anna", "exp": time.time() + 600, **claims}, JWT_SECRET, "HS256")

    settings = {"DOCMILL_JWT_ISSUER": "https://id.example", "DOCMILL_JWT_AUDIENCE": "d"}
    with Service(tmp_path / "data", DOCMILL_JWT_SECRET=JWT_SECRET, **settings) as service:
        assert 200 == status(service, token(iss="https://id.example", aud="d"))
        for wrong in ({"aud": "d"}, {"iss": "https://other.example", "aud": "d"}, {"iss": "https://id.example"}):
            assert 401 == status(service, token(**wrong))
    environment = os.environ | {"DOCMILL_JWT_SECRET": "short"}
    refused = docmill("serve", "--port", "0", "--data", tmp_path / "x", env=environment)
    assert 0 != refused.returncode
    assert "32 bytes" in refused.stderr


def test_nobody_else_on_the_machine_reads_the_data_and_a_dump_has_no_secret(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    settings = {"DOCMILL_WEBHOOK_NETWORKS": '["127.0.0.1/32"]', "DOCMILL_WEBHOOK_PORTS": "[9]"}
    with Service(data, **settings) as service, service.client() as client:
        assert "completed" == Etl(client).done("a.txt", b"text")["status"]
        made = client.post("/api/v1/webhooks", json={"url": "http://127.0.0.1:9/"}).json()
        again = client.post(f"/api/v1/webhooks/{made['id']}/rotate").json()
        assert 2 == again["secrets"]
        names = ("docmill.db", "docmill.db-wal", "docmill.db-shm", "secret")
        modes = {name: (data / name).stat().st_mode & 0o777 for name in names}
        assert 0o700 == data.stat().st_mode & 0o777
        assert {0o600} == set(modes.values()), modes
        running = b"".join((data / name).read_bytes() for name in names)
    for secret in (made["secret"], again["secret"]):
        assert secret.encode() not in running
        assert secret.removeprefix("whsec_").encode() not in running

    archive = tmp_path / "backup.zip"
    assert 0 == docmill("backup", archive, "--data", data).returncode
    assert 0o600 == archive.stat().st_mode & 0o777
    with zipfile.ZipFile(archive) as members:
        backed_up = b"".join(members.read(name) for name in members.namelist())
    assert made["id"].encode() in backed_up
    for secret in (made["secret"], again["secret"], (data / "secret").read_text().strip()):
        assert secret.removeprefix("whsec_").encode() not in backed_up
    elsewhere = tmp_path / "elsewhere"
    assert 0 == docmill("restore", archive, "--data", elsewhere).returncode
    assert 0o700 == elsewhere.stat().st_mode & 0o777
    with Service(elsewhere, **settings) as service, service.client() as client:
        [there] = client.get("/api/v1/webhooks").json()["webhooks"]
        assert (made["id"], True) == (there["id"], there["enabled"])
        assert 200 == client.post(f"/api/v1/webhooks/{made['id']}/rotate").status_code


def test_a_lost_secret_is_reported_and_messages_wait(tmp_path: Path) -> None:
    data = tmp_path / "data"
    settings = {"DOCMILL_WEBHOOK_NETWORKS": '["127.0.0.1/32"]', "DOCMILL_WEBHOOK_PORTS": "[9]"}
    with Service(data, **settings) as service, service.client() as client:
        made = client.post("/api/v1/webhooks", json={"url": "http://127.0.0.1:9/"}).json()
    (data / "secret").rename(tmp_path / "kept")
    with Service(data, **settings) as service, service.client() as client:
        tested = client.post(f"/api/v1/webhooks/{made['id']}/test").json()
        assert "webhook_secret_unreadable" == tested["error_code"]
        assert any("webhook_secret_unreadable" in line for line in service.log)
        found = docmill("doctor", "--data", data, "--json", "--url", service.url)
        checks = {one["name"]: one for one in json.loads(found.stdout)["checks"]}
        assert "fail" == checks["secrets"]["status"]
        assert "DOCMILL_SECRET" in checks["secrets"]["next_step"]
    (tmp_path / "kept").replace(data / "secret")
    with Service(data, **settings) as service, service.client() as client:
        tested = client.post(f"/api/v1/webhooks/{made['id']}/test").json()
        assert "webhook_unreachable" == tested["error_code"], "signed again, and sent"


def test_the_doctor_names_what_a_restore_lost(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Service(data) as service, service.client() as client:
        task = Etl(client).done("a.txt", b"text of the first")
    before = {path: path.read_bytes() for path in data.glob("docmill.db*")}
    with Service(data) as service, service.client() as client:
        later = Etl(client).done("b.txt", b"text of the second")["task_id"]
    for path, content in before.items():
        path.write_bytes(content)

    def objects() -> dict[str, Any]:
        found = docmill("doctor", "--data", data, "--json", "--url", "http://127.0.0.1:9")
        return {one["name"]: one for one in json.loads(found.stdout)["checks"]}["objects"]

    older = objects()
    assert ("warn", True) == (older["status"], f"/{later}/" in older["detail"]), "a database older than its objects"

    [output] = [path for path in data.rglob("output.json") if path.parts[-3] == str(task["task_id"])]
    output.unlink()
    newer = objects()
    assert ("fail", True) == (newer["status"], f"task {task['task_id']} " in newer["detail"])
    with Service(data) as service, service.client() as client:
        lost = Etl(client).task(task["task_id"])
        assert (None, "object_not_found") == (lost["result"], lost["metadata"]["result_error"])
        assert 200 == client.get("/api/v1/etl/tasks", params={"include": "result"}).status_code
        shown = docmill("tasks", "result", str(task["task_id"]), "--url", service.url)
        assert (1, "null\n") == (shown.returncode, shown.stdout)
        assert "object_not_found" in shown.stderr
        with Client(service.url) as python, pytest.raises(TaskEnded) as caught:
            python.result(task["task_id"])
        assert "object_not_found" == caught.value.code
        assert "completed" == Etl(client).done("c.txt", b"goes on")["status"]
