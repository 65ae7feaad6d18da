"""Two tenants, two users of one, and the same name in both: nobody reaches what is another's.

Tasks, rules, tables and webhooks belong to a user; documents and assets to the whole tenant.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import httpx2
import jwt
import pytest

from support import documents, hostile
from support.serving import Etl, Mode, Service

JWT_SECRET = "a secret of the tests that is long enough for HS256"
PROJECT = 9

ROUTES: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "/api/v1/etl/tasks/{task_id}", {}),
    ("GET", "/api/v1/etl/tasks/{task_id}", {"params": {"wait": 1}}),
    ("GET", "/api/v1/etl/tasks/{task_id}", {"headers": {"If-None-Match": "*"}}),
    ("GET", "/api/v1/etl/tasks/{task_id}/events", {}),
    ("GET", "/api/v1/etl/tasks/{task_id}/events", {"headers": {"Accept": "application/json"}}),
    ("GET", "/api/v1/etl/tasks/{task_id}/extraction", {}),
    ("GET", "/api/v1/etl/tasks/{task_id}/twin", {}),
    ("GET", "/v1/status/poll/{conversion_id}", {}),
    ("GET", "/v1/result/{conversion_id}", {}),
    ("GET", "/tasks/{parse_id}", {}),
    ("GET", "/tasks/{parse_id}/result", {}),
    ("GET", "/api/v4/extract-results/batch/{batch_id}", {}),
    ("GET", "/api/v4/extract/task/{batch_id}", {}),
    ("POST", "/api/v1/etl/tasks/{task_id}/cancel", {}),
    ("POST", "/api/v1/etl/tasks/{task_id}/cancel", {"params": {"force": "true"}}),
    ("POST", "/api/v1/etl/tasks/{task_id}/retry", {"json": {"from_stage": "mineru"}}),
    ("POST", "/api/v1/etl/tasks/{task_id}/retry", {"json": {"from_stage": "postprocess"}}),
    ("POST", "/api/v1/etl/tasks/{task_id}/mount", {"json": {"table_id": 1, "json_path": ""}}),
    ("GET", "/api/v1/etl/rules/{rule_id}", {}),
    ("PUT", "/api/v1/etl/rules/{rule_id}", {"json": {"name": "stolen", "postprocess_mode": "skip"}}),
    ("DELETE", "/api/v1/etl/rules/{rule_id}", {}),
    ("GET", "/api/v1/tables/{table_id}", {}),
    ("PUT", "/api/v1/tables/{table_id}", {"json": {"data": "stolen"}}),
    ("DELETE", "/api/v1/tables/{table_id}", {}),
    ("GET", "/api/v1/tables/{table_id}/data", {}),
    ("GET", "/api/v1/tables/{table_id}/data", {"params": {"pointer": "/secret"}}),
    ("GET", "/api/v1/webhooks/{webhook_id}", {}),
    ("PUT", "/api/v1/webhooks/{webhook_id}", {"json": {"url": "https://stolen.example"}}),
    ("DELETE", "/api/v1/webhooks/{webhook_id}", {}),
    ("POST", "/api/v1/webhooks/{webhook_id}/rotate", {}),
    ("POST", "/api/v1/webhooks/{webhook_id}/test", {}),
    ("POST", "/api/v1/webhooks/{webhook_id}/redeliver", {}),
    ("GET", "/api/v1/webhooks/deliveries/{delivery_id}", {}),
    ("POST", "/api/v1/webhooks/deliveries/{delivery_id}/redeliver", {}),
    ("GET", "/api/external/jobs/{job_id}", {}),
    ("POST", "/api/external/jobs/{job_id}/token", {}),
]
TENANT_ROUTES: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "/api/v1/documents/{document_id}", {}),
    ("GET", "/api/v1/documents/{document_id}", {"params": {"version": ""}}),
    ("GET", "/api/v1/documents/{document_id}/versions", {}),
    ("GET", "/api/v1/documents/{document_id}/blob", {}),
    ("GET", "/api/v1/documents/{document_id}/blob", {"headers": {"Range": "bytes=0-3"}}),
    ("GET", "/api/v1/documents/{document_id}/assets", {}),
    ("GET", "/api/v1/documents/{document_id}/pages/{page}.png", {}),
    ("GET", "/api/v1/assets/{asset_id}", {}),
    ("GET", "/api/v1/assets/{asset_id}/blob", {}),
    ("DELETE", "/api/v1/documents/{document_id}", {}),
    ("DELETE", "/api/v1/documents/{document_id}", {"params": {"hard": "true"}}),
    ("DELETE", "/api/v1/assets/{asset_id}", {}),
    ("DELETE", "/api/v1/assets/{asset_id}", {"params": {"hard": "true"}}),
]
NO_ID = {
    "/api/v1/projects/{project_id}/tables",
    "/api/v1/contracts/{kind}/check",
    "/api/v1/contracts/{kind}/schema",
    "/api/v1/objects/{token}",
    "/api/v4/uploads/{token}",
    "/api/v4/results/{token}.zip",
    "/docs/codes/{code}",
    "/api/external/jobs/{job_id}",
    "/api/v1/tasks/{job_id}/callback",
}
"""A project is only a number, contracts and codes are everybody's, and a signed link says itself who may. Callbacks,
of which the first shares its path with a route of the matrix, take the token of their job and no credential."""
POWERFUL: dict[str, list[str]] = {
    "acme/admin": ["--admin"],
    "beta/admin": ["--admin"],
    "ops/operator": ["--operator"],
}
"""What they may do more concerns keys and the deployment, never rows of others."""
WORKER_KEY = "the key of a worker that is not ours"


class Scribe(ThreadingHTTPServer):
    """An external worker that takes every job and never says a word again."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Takes)
        self.tokens: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def settings(self) -> str:
        url = f"http://127.0.0.1:{self.server_port}/pdf/process"
        return json.dumps({"scribe": {"dialect": "secretary", "url": url, "api_key": WORKER_KEY}})


class Takes(BaseHTTPRequestHandler):
    server: Scribe

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"]))
        found = re.search(rb'name="callback_token"\r\n(?:[^\r]+\r\n)*\r\n([^\r]+)', form)
        assert found
        self.server.tokens.append(found[1].decode())
        self._say(202, b'{"status": "accepted", "process": {"id": "p1"}}')

    def do_GET(self) -> None:
        self._say(200, b'{"status": "ok"}')

    def _say(self, status: int, answer: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@dataclass
class House:
    """The service, and who may come in."""

    service: Service
    secrets: dict[str, str]
    local_task: int
    callers: dict[str, Etl] = field(default_factory=dict)
    key_ids: dict[str, str] = field(default_factory=dict)
    scribe: Scribe | None = None
    env: dict[str, str] = field(default_factory=dict)

    def etl(self, who: str) -> Etl:
        if who not in self.callers:
            self.callers[who] = self.with_token(self.secrets[who])
        return self.callers[who]

    def with_token(self, token: str) -> Etl:
        return Etl(self.service.client(headers={"Authorization": f"Bearer {token}"}))


def docmill(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "docmill", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


@pytest.fixture(scope="module")
def house(mode: Mode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    data = tmp_path_factory.mktemp("house") / "data"
    with mode.serve(data) as before_there_were_accounts, before_there_were_accounts.client() as client:
        local_task = Etl(client).done("local.txt", b"of the user without an account")["task_id"]
    secrets, ids, env = {}, {}, os.environ | mode.environment(data) | {"DOCMILL_DATA": str(data)}
    for who in ("acme/alice", "acme/bob", "beta/alice", "acme/leaver", *POWERFUL, "local/local", "local/anna"):
        tenant, user = who.split("/")
        flags = ["--user", user, "--tenant", tenant, "--json", *POWERFUL.get(who, ())]
        made = docmill("keys", "create", who, *flags, env=env)
        assert 0 == made.returncode, made.stderr
        key = json.loads(made.stdout)
        secrets[who], ids[who] = key["secret"], key["id"]
    scribe = Scribe()
    settings = {"DOCMILL_JWT_SECRET": JWT_SECRET, "DOCMILL_WORKERS": scribe.settings, "APP_URL": "http://127.0.0.1:1"}
    settings |= {"DOCMILL_WEBHOOK_NETWORKS": '["127.0.0.1/32"]', "DOCMILL_WEBHOOK_PORTS": "[9]"}
    with scribe, mode.serve(data, **settings) as service:
        found = House(service, secrets, local_task, key_ids=ids, scribe=scribe, env=env)
        yield found
        for caller in found.callers.values():
            caller.http.close()
        scribe.shutdown()


@dataclass(frozen=True)
class Goods:
    """What acme's alice has, by the names in the addresses; her upload; and the bytes of it."""

    ids: dict[str, Any]
    key: str
    source: bytes
    webhook_secret: str


@pytest.fixture(scope="module")
def goods(house: House) -> Goods:
    alice = house.etl("acme/alice")
    source = hostile.built(documents.pdf_rich)
    key = alice.upload("minutes.pdf", source, project=PROJECT)["key"]
    webhook = alice.http.post("/api/v1/webhooks", json={"url": "http://127.0.0.1:9/"}).json()
    task = alice.wait(alice.post("/submit", json={"s3_key": key, "filename": "minutes.pdf"}).json()["task_id"])
    assert "completed" == task["status"], task
    [delivery] = alice.http.get("/api/v1/webhooks/deliveries").json()["deliveries"]
    document = task["metadata"]["document_id"]
    assets = alice.http.get(f"/api/v1/documents/{document}/assets").json()["assets"]
    rule = alice.post("/rules", json={"name": "alices", "postprocess_mode": "skip"}).json()["rule_id"]
    table = alice.http.post(f"/api/v1/projects/{PROJECT}/tables", json={"name": "alices", "data": {"secret": 1}})
    announced = alice.http.post("/api/v4/file-urls/batch", json={"files": [{"name": "minutes.pdf"}]})
    job = alice.submit("far.pdf", hostile.pages(1), project=PROJECT, engine="scribe")
    while "handed_over" not in {event["kind"] for event in alice.events(job)}:
        assert "failed" != alice.task(job, wait=5)["status"], alice.events(job)[-1]
    ids = {
        "job_id": alice.task(job)["metadata"]["job_id"],
        "task_id": task["task_id"],
        "conversion_id": f"{task['task_id']}.mj.e.1-0.i",
        "parse_id": f"{task['task_id']}.m.0-99999.auto.pipeline",
        "batch_id": announced.json()["data"]["batch_id"],
        "rule_id": rule,
        "table_id": table.json()["id"],
        "document_id": document,
        "asset_id": assets[0]["ref"]["asset_id"],
        "page": 1,
        "webhook_id": webhook["id"],
        "delivery_id": delivery["id"],
    }
    return Goods(ids, key, source, webhook["secret"])


def asked(etl: Etl, goods: Goods, method: str, path: str, options: dict[str, Any]) -> httpx2.Response:
    return etl.http.request(method, path.format(**goods.ids), **options)


def test_the_matrix_has_every_route_with_an_id(house: House) -> None:
    paths = house.etl("acme/alice").http.get("/openapi.json").json()["paths"]
    operations = {(method.upper(), path) for path in paths for method in paths[path] if "{" in path}
    covered = {(method, path) for method, path, _ in ROUTES + TENANT_ROUTES}
    assert ("GET", "/api/external/jobs/{job_id}") in covered
    assert set() == {one for one in operations - covered if one[1] not in NO_ID}, "put the new route into the matrix"


@pytest.mark.parametrize(("method", "path", "options"), ROUTES + TENANT_ROUTES)
def test_another_tenant_finds_nothing(
    house: House, goods: Goods, method: str, path: str, options: dict[str, Any]
) -> None:
    """Also under the same user id, and whatever rights the key has there."""
    for who in ("beta/alice", "beta/admin", "ops/operator"):
        answer = asked(house.etl(who), goods, method, path, options)
        assert 404 == answer.status_code, (who, answer.text)
        # MinerU's cloud has numbers for codes.
        assert re.search("_not_found$|^-60012$", str(answer.json()["code"]))


@pytest.mark.parametrize(("method", "path", "options"), ROUTES)
def test_another_user_of_the_tenant_finds_nothing(
    house: House, goods: Goods, method: str, path: str, options: dict[str, Any]
) -> None:
    for who in ("acme/bob", "acme/admin"):
        answer = asked(house.etl(who), goods, method, path, options)
        assert 404 == answer.status_code, (who, answer.text)


@pytest.mark.parametrize(("method", "path", "options"), [one for one in TENANT_ROUTES if one[0] == "GET"])
def test_documents_are_the_whole_tenants(
    house: House, goods: Goods, method: str, path: str, options: dict[str, Any]
) -> None:
    for who in ("acme/alice", "acme/bob"):
        answer = asked(house.etl(who), goods, method, path, options)
        # The task's document has a version, so the one without a version is nobody's.
        assert answer.status_code in ((404,) if "params" in options else (200, 206)), answer.text


@pytest.mark.parametrize("who", ["beta/alice", "acme/bob"])
def test_lists_show_nothing_of_others(house: House, goods: Goods, who: str) -> None:
    etl, ids = house.etl(who), goods.ids
    own = etl.done("own.txt", b"own of " + who.encode(), project=PROJECT)["task_id"]
    batch = etl.get("/tasks/batch", params={"task_ids": f"{ids['task_id']},{own},{house.local_task}"}).json()
    assert [own] == [task["task_id"] for task in batch["tasks"]]
    listed = etl.get("/tasks", params={"include": "result"}).json()
    assert {who.partition("/")[2]} == {task["user_id"] for task in listed["tasks"]}
    assert ids["task_id"] not in {task["task_id"] for task in listed["tasks"]}
    assert listed["total"] == len(listed["tasks"]), "the count gives nothing away"
    assert [True] == [rule["is_default"] for rule in etl.get("/rules").json()["rules"]]
    assert [] == etl.http.get(f"/api/v1/projects/{PROJECT}/tables").json()["tables"]
    found = {one["ref"]["document_id"] for one in etl.http.get("/api/v1/documents").json()["documents"]}
    assert (ids["document_id"] in found) == who.startswith("acme/")
    assert [] == etl.http.get("/api/external/jobs").json()["jobs"]
    assert [] == etl.http.get("/api/v1/webhooks").json()["webhooks"]
    assert [] == etl.http.get("/api/v1/webhooks/deliveries").json()["deliveries"]


@pytest.mark.parametrize("who", ["acme/alice", "acme/admin", "beta/admin", "ops/operator"])
def test_deployment_wide_pages_are_the_operators(house: House, who: str) -> None:
    """As through a proxy: on the machine itself the metrics are open to all."""
    http, through = house.etl(who).http, {"X-Forwarded-For": "198.51.100.1"}
    is_operator = who == "ops/operator"
    assert (200 if is_operator else 403) == http.get("/metrics", headers=through).status_code
    settings, workers = http.get("/settings").text, http.get("/workers").text
    assert is_operator == ("Current settings" in settings)
    assert is_operator == ("In progress" in workers)
    mine = who.partition("/")[0]
    for other in set(house.key_ids) - {who}:
        is_shown = is_operator or (who.endswith("/admin") and other.startswith(f"{mine}/"))
        assert is_shown == (f'value="{house.key_ids[other]}"' in settings), other


@pytest.mark.parametrize(("who", "status"), [("beta/alice", 404), ("acme/bob", 403)])
def test_an_upload_is_its_owners(house: House, goods: Goods, who: str, status: int) -> None:
    """To beta's alice the key looks like her own, and there is nothing under it."""
    answer = house.etl(who).post("/submit", json={"s3_key": goods.key})
    assert status == answer.status_code, answer.text


def test_no_rule_is_tried_on_the_documents_of_others_and_none_of_theirs(house: House, goods: Goods) -> None:
    draft = {"name": "spy", "postprocess_mode": "skip"}
    for who in ("beta/alice", "acme/bob"):
        etl = house.etl(who)
        default = etl.get("/rules").json()["rules"][0]["rule_id"]
        for body, code in (
            ({"rule": draft, "task_id": goods.ids["task_id"]}, "task_not_found"),
            ({"rule_id": default, "document_id": goods.ids["document_id"]}, "_not_found"),
            ({"rule_id": goods.ids["rule_id"], "task_id": goods.ids["task_id"]}, "rule_not_found"),
        ):
            answer = etl.post("/rules/test", json=body)
            assert 404 == answer.status_code, answer.text
            assert answer.json()["code"].endswith(code)


def test_rules_and_tables_of_others_cannot_be_used_by_a_task(house: House, goods: Goods) -> None:
    beta = house.etl("beta/alice")
    key = beta.upload("mine.txt", b"mine")["key"]
    assert 404 == beta.post("/submit", json={"s3_key": key, "rule_id": goods.ids["rule_id"]}).status_code
    mine = beta.done("mine.txt", b"mine")["task_id"]
    body = {"table_id": goods.ids["table_id"], "json_path": ""}
    assert 404 == beta.post(f"/tasks/{mine}/mount", json=body).status_code
    wish = beta.post("/submit", json={"s3_key": key, "mount": body})
    assert (404, "table_not_found") == (wish.status_code, wish.json()["code"])


def test_the_parse_of_another_tenant_is_not_taken(house: House, goods: Goods) -> None:
    """That would tell that somebody else has the same file."""
    task = house.etl("beta/alice").done("minutes.pdf", goods.source)
    assert not task["metadata"]["cache_hit"]


def test_the_parse_of_a_colleague_is_taken_but_not_their_name(house: House, goods: Goods) -> None:
    bob = house.etl("acme/bob")
    task = bob.done("minutes.pdf", goods.source)
    document = bob.http.get(f"/api/v1/documents/{task['metadata']['document_id']}").text

    assert task["metadata"]["cache_hit"]
    assert task["metadata"]["artifact_mineru_markdown_key"].startswith("users/bob/")
    assert "users/bob/" in document
    assert "users/alice/" not in document + json.dumps(task)


def test_twins_lie_apart(house: House) -> None:
    paths = {}
    for who in ("acme/alice", "acme/bob", "beta/alice"):
        task = house.etl(who).done("note.md", f"# {who}\n".encode(), twin={"folder": "shared", "force": True})
        paths[who] = Path(task["metadata"]["twin_path"])
    assert 3 == len(set(paths.values()))
    for who, path in paths.items():
        assert who in next(path.rglob("note.md") if path.is_dir() else iter([path])).read_text()
    for thief in ("acme/bob", "local/local", "local/anna"):
        stolen = house.etl(thief)
        wish = {"folder": str(paths["acme/alice"].parent), "force": True}
        task = stolen.wait(stolen.submit("note.md", b"# mine now\n", twin=wish))
        assert ("failed", "twin_target_invalid") == (task["status"], task["metadata"]["error_code"])
    # A relative name leads into the own folder only, also that of the user who was here before there were accounts.
    task = house.etl("local/local").done("note.md", b"# local\n", twin={"folder": "acme/alice/shared", "force": True})
    assert "/local/local/acme/alice/shared/" in task["metadata"]["twin_path"]
    assert "acme/alice" in next(paths["acme/alice"].parent.rglob("note.md")).read_text()


def test_a_twin_folder_has_a_depth_limit(house: House) -> None:
    alice = house.etl("acme/alice")
    task = alice.wait(alice.submit("note.md", b"# deep\n", twin={"folder": "/".join("d" * 2000)}))
    assert ("failed", "twin_target_invalid") == (task["status"], task["metadata"]["error_code"])


def test_a_body_cannot_name_another_tenant(house: House, goods: Goods) -> None:
    alice, beta = house.etl("acme/alice"), house.etl("beta/alice")
    document = alice.http.get(f"/api/v1/documents/{goods.ids['document_id']}").json()
    asset = alice.http.get(f"/api/v1/assets/{goods.ids['asset_id']}").json()
    assert 403 == beta.http.post("/api/v1/documents", json=document).status_code
    assert 403 == beta.http.post("/api/v1/assets", json=asset).status_code
    # As one of her own, but with the bytes of acme.
    names = {**document["ref"], "tenant_id": "beta", "document_id": str(uuid4())}
    meta = {**document["meta"], "tenant_id": "beta"}
    own = {**document, "ref": names, "meta": meta, "assets": []}
    assert 403 == beta.http.post("/api/v1/documents", json=own).status_code


def test_after_all_that_alice_still_has_everything(house: House, goods: Goods) -> None:
    alice = house.etl("acme/alice")
    assert "completed" == alice.task(goods.ids["task_id"])["status"]
    assert "alices" == alice.get(f"/rules/{goods.ids['rule_id']}").json()["name"]
    assert {"secret": 1} == alice.http.get(f"/api/v1/tables/{goods.ids['table_id']}/data").json()
    blob = alice.http.get(f"/api/v1/documents/{goods.ids['document_id']}/blob")
    assert 200 == blob.status_code
    assert 200 == alice.http.get(f"/api/v1/assets/{goods.ids['asset_id']}/blob").status_code
    assert "running" == alice.http.get(f"/api/external/jobs/{goods.ids['job_id']}").json()["status"]
    webhook = alice.http.get(f"/api/v1/webhooks/{goods.ids['webhook_id']}").json()
    assert ("http://127.0.0.1:9/", True, 1) == (webhook["url"], webhook["enabled"], webhook["secrets"])
    assert [goods.ids["job_id"]] == [one["jobId"] for one in alice.http.get("/api/external/jobs").json()["jobs"]]


# Who comes in


def token(secret: str = JWT_SECRET, algorithm: str = "HS256", **claims: Any) -> str:
    given = {"sub": "carol", "exp": time.time() + 600, "app_metadata": {"tenant_id": "acme"}, **claims}
    return jwt.encode(given, secret, algorithm)


def test_without_a_credential_every_route_is_401(house: House, goods: Goods) -> None:
    with house.service.client() as client:
        paths = client.get("/openapi.json").json()["paths"]
        open_to_all = {"/health", "/ready", "/livez", "/readyz", "/metrics", "/docs/codes/{code}"}
        for path, operations in paths.items():
            for method in operations:
                ids = {**goods.ids, "project_id": 1, "kind": "document", "token": "junk"}
                ids["code"] = "task_not_found"
                body = {} if method in ("get", "delete") else {"json": {}}
                answer = client.request(method, path.format(**ids), **body)
                if "{token}" in path:
                    assert answer.status_code in (403, 404)
                    continue
                if operations[method]["operationId"].startswith("report_"):
                    assert answer.status_code in (401, 403, 404), "a callback needs the token of its job"
                    continue
                expected = 200 if path in open_to_all else 401
                assert expected == answer.status_code, (method, path, answer.text)
                if expected == 401:
                    code = "A0202" if path.startswith("/api/v4/") else "unauthenticated"  # MinerU's cloud says it so
                    assert code == answer.json()["code"]
                    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer dm_wrong"},
        {"Authorization": "Bearer"},
        {"Authorization": "Basic YWxpY2U6eA=="},
        {"X-API-Key": "dm_wrong"},
        {"Authorization": f"Bearer {token('another secret that is long enough, too')}"},
        {"Authorization": f"Bearer {token(exp=time.time() - 3600)}"},
        {"Authorization": f"Bearer {jwt.encode({'sub': 'carol', 'exp': time.time() + 600}, None, 'none')}"},
        {"Authorization": f"Bearer {token(sub='')}"},
        {"Authorization": f"Bearer {token(sub='a' + chr(10) + 'b')}"},
    ],
)
def test_a_bad_credential_is_401(house: House, headers: dict[str, str]) -> None:
    with house.service.client(headers=headers) as client:
        answer = client.get("/api/v1/etl/tasks")
    assert (401, "credential_invalid") == (answer.status_code, answer.json()["code"])


def test_a_key_in_the_address_is_not_read(house: House) -> None:
    secret = house.secrets["acme/alice"]
    with house.service.client() as client:
        for name in ("api_key", "token", "access_token", "key"):
            assert 401 == client.get("/api/v1/etl/tasks", params={name: secret}).status_code


def test_a_token_is_a_user_of_its_tenant(house: House, goods: Goods) -> None:
    carol = house.with_token(token())
    with carol.http:
        task = carol.done("carol.txt", b"carol")
        assert "carol" == task["user_id"]
        assert task["metadata"]["s3_key"].startswith("users/carol/raw/")
        assert 404 == carol.get(f"/tasks/{goods.ids['task_id']}").status_code
        assert 200 == carol.http.get(f"/api/v1/documents/{goods.ids['document_id']}").status_code
    other = house.with_token(token(app_metadata={"tenant_id": "beta"}))
    with other.http:
        assert 404 == other.get(f"/tasks/{task['task_id']}").status_code, "the same user id in another tenant"
        assert 404 == other.http.get(f"/api/v1/documents/{goods.ids['document_id']}").status_code


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": "local", "app_metadata": {"tenant_id": "local"}},
        {"sub": "carol", "app_metadata": {"tenant_id": "local"}},
        {"sub": "local", "app_metadata": {}, "tenant_id": "local"},
    ],
)
def test_no_token_makes_a_caller_the_user_without_an_account(house: House, claims: dict[str, Any]) -> None:
    """That one owns what was there before, and may write to the whole library."""
    caller = house.with_token(token(**claims))
    with caller.http:
        answer = caller.get(f"/tasks/{house.local_task}")
        listed = caller.http.get("/api/v1/documents")
    assert (401, "credential_invalid") == (answer.status_code, answer.json()["code"])
    assert 401 == listed.status_code


def test_a_user_called_local_is_not_the_user_without_an_account(house: House) -> None:
    caller = house.with_token(token(sub="local", app_metadata={}))
    with caller.http:
        assert 404 == caller.get(f"/tasks/{house.local_task}").status_code
        assert [] == caller.http.get("/api/v1/documents").json()["documents"]


def test_a_user_who_is_called_like_a_tenant_is_not_the_tenant(house: House, goods: Goods) -> None:
    acme = house.with_token(token(sub="acme", app_metadata={}))
    with acme.http:
        assert 404 == acme.http.get(f"/api/v1/documents/{goods.ids['document_id']}").status_code


def test_a_revoked_key_is_refused_within_six_seconds(house: House) -> None:
    leaver = house.etl("acme/leaver")
    assert 200 == leaver.get("/tasks").status_code
    gone = docmill("keys", "revoke", house.key_ids["acme/leaver"], env=house.env)
    assert 0 == gone.returncode, gone.stderr
    began = time.monotonic()
    while 200 == (answer := leaver.get("/tasks")).status_code:
        assert time.monotonic() - began < 20, "5 s in a cache, and what a busy machine adds"
        time.sleep(0.1)
    assert (401, "credential_invalid") == (answer.status_code, answer.json()["code"])
    assert 200 == house.etl("acme/alice").get("/tasks").status_code


def test_a_public_address_without_credentials_is_refused(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::"):
        refused = docmill("serve", "--host", host, "--port", "0", "--data", tmp_path / "open")
        assert 0 != refused.returncode
        assert "bind_refused" in refused.stderr
        assert "" == refused.stdout


def files(data: Path) -> bytes:
    return b"".join(path.read_bytes() for path in data.glob("docmill.db*"))


def dumped(url: str) -> bytes:
    """Every row of every table, as text, read past the walls between tenants."""

    async def rows() -> bytes:
        connection = await asyncpg.connect(url, server_settings={"docmill.scope": "*"})
        try:
            names = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
            found = [await connection.fetch(f'SELECT t::text FROM "{name[0]}" t') for name in names]
            return "\n".join(row[0] for table in found for row in table).encode()
        finally:
            await connection.close()

    return asyncio.run(rows())


def test_no_secret_is_written_anywhere(house: House, goods: Goods) -> None:
    carol = token(sub="canary")
    with house.with_token(carol).http as client:
        assert 200 == client.get("/api/v1/etl/tasks").status_code
        assert 404 == client.get(f"/api/v1/etl/{house.secrets['acme/alice']}").status_code
    kept = dumped(house.env["DATABASE_URL"]) if "DATABASE_URL" in house.env else files(house.service.data)
    ends = time.monotonic() + 30
    while b"canary" not in (said := "".join(list(house.service.log)).encode()):
        assert time.monotonic() < ends, "the log does not say who called"
        time.sleep(0.05)
    assert b"acme" in kept
    assert house.scribe
    assert house.scribe.tokens
    for secret in (*house.secrets.values(), JWT_SECRET, carol, WORKER_KEY, goods.webhook_secret, *house.scribe.tokens):
        assert secret.encode() not in kept
        assert secret.encode() not in said
