"""MinerU's clients, pointed at docmill unchanged: Open WebUI's loader, and docmill's own engine for MinerU."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.mineru_client import ensure_client
from support.open_webui import LoaderFailed, load_cloud, load_local
from support.serving import Etl, Mode, Service

SAMPLES = Path(__file__).parents[2] / "samples"
REPORT = SAMPLES / "report.en.pdf"
MAX_UPLOAD_MB = 1

PUBLISHED = """
import asyncio, json, sys
from pathlib import Path
import click, httpx
from mineru.cli import api_client as mineru

async def main(url, out, *paths):
    async with httpx.AsyncClient(timeout=mineru.build_http_timeout(), follow_redirects=True) as client:
        health = await mineru.fetch_server_health(client, mineru.normalize_base_url(url))
        form = mineru.build_parse_request_form_data(
            ["ch"], "pipeline", "auto", True, True, None, 0, None, return_md=True, return_middle_json=True,
            return_model_output=True, return_content_list=True, return_images=True, response_format_zip=True,
            return_original_file=True)
        assets = [mineru.UploadAsset(Path(path), Path(path).name) for path in paths]
        submitted = await mineru.submit_parse_task(health.base_url, assets, form)
        await mineru.wait_for_task_result(client, submitted, "test")
        archive = await mineru.download_result_zip(client, submitted, "test")
        mineru.safe_extract_zip(archive, Path(out))
        archive.unlink()
    print(json.dumps(submitted.file_names))

try:
    asyncio.run(main(*sys.argv[1:]))
except click.ClickException as error:
    sys.exit(f"client: {error.message}")
"""


@dataclass
class Guarded:
    """A service that wants credentials, and the keys of two tenants."""

    service: Service
    keys: dict[str, str]
    data: Path

    def client(self, who: str) -> httpx2.Client:
        return self.service.client(headers={"Authorization": f"Bearer {self.keys[who]}"})


def create_key(tenant: str, data: Path, mode: Mode) -> str:
    command = [sys.executable, "-m", "docmill", "keys", "create", tenant, "--user", "alice", "--tenant", tenant]
    env = os.environ | mode.environment(data) | {"DOCMILL_DATA": str(data)}
    made = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True, timeout=60, env=env)
    return json.loads(made.stdout)["secret"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Without credentials, on loopback."""
    with Service(tmp_path_factory.mktemp("mineru") / "data") as running:
        yield running


@pytest.fixture
def http(service: Service) -> Iterator[httpx2.Client]:
    with service.client() as client:
        yield client


@pytest.fixture(scope="module")
def guarded(mode: Mode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    data = tmp_path_factory.mktemp("guarded") / "data"
    keys = {tenant: create_key(tenant, data, mode) for tenant in ("acme", "beta")}
    with mode.serve(data, DOCMILL_MAX_UPLOAD_MB=str(MAX_UPLOAD_MB)) as running:
        yield Guarded(running, keys, data)


def form(*names: str) -> list[tuple[str, tuple[str, bytes]]]:
    return [("files", (name, (SAMPLES / name).read_bytes())) for name in names]


def unzip(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


# Open WebUI


def test_open_webui_reads_a_file_in_local_mode(service: Service) -> None:
    text, told = load_local(service.url, REPORT, enable_ocr=False, language="en", model_version="pipeline")

    assert text.startswith("# River Monitoring 2025")
    assert "](images/p002_img01.png)" in text
    assert "pipeline" == told["backend"]
    assert told["version"] != "unknown"


def test_open_webui_sees_why_a_file_fails_in_local_mode(service: Service, tmp_path: Path) -> None:
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7 nothing")

    with pytest.raises(LoaderFailed, match=r"409: .*document_broken"):
        load_local(service.url, tmp_path / "broken.pdf")


def test_open_webui_reads_a_file_in_cloud_mode(guarded: Guarded) -> None:
    params = {"enable_ocr": False, "enable_formula": True, "language": "en", "model_version": "pipeline"}

    text = load_cloud(f"{guarded.service.url}/api/v4", guarded.keys["acme"], REPORT, **params)
    second = load_cloud(f"{guarded.service.url}/api/v4", guarded.keys["acme"], REPORT, page_ranges="2", **params)

    assert text.startswith("# River Monitoring 2025")
    assert second.startswith("## 3 Trend")
    assert text.endswith(second)


def test_open_webui_sees_what_is_wrong_in_cloud_mode(guarded: Guarded, tmp_path: Path) -> None:
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7 nothing")
    url = f"{guarded.service.url}/api/v4"

    with pytest.raises(LoaderFailed, match="processing failed: document_broken"):
        load_cloud(url, guarded.keys["acme"], tmp_path / "broken.pdf")
    with pytest.raises(LoaderFailed, match="credential_invalid"):
        load_cloud(url, "dm_wrong", REPORT)
    with pytest.raises(LoaderFailed, match="extra_formats"):
        load_cloud(url, guarded.keys["acme"], REPORT, extra_formats=["docx"])


# MinerU's own client


def run_published(service: Service, out: Path, *paths: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PUBLISHED, f"{service.url}/mineru", str(out), *map(str, paths)],
        env={**os.environ, "NO_PROXY": "*", "PYTHONPATH": str(ensure_client())},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_mineru_s_own_client_parses_files(service: Service, tmp_path: Path) -> None:
    done = run_published(service, tmp_path / "out", REPORT, SAMPLES / "notes.docx")

    assert 0 == done.returncode, done.stderr[-3000:]
    assert ["report.en", "notes"] == json.loads(done.stdout)
    folder = tmp_path / "out" / "report.en" / "auto"
    assert (folder / "report.en.md").read_text("utf-8").startswith("# River Monitoring 2025")
    listed = json.loads((folder / "report.en_content_list.json").read_text("utf-8"))
    [image] = [item for item in listed if item["type"] == "image"]
    assert (folder / image["img_path"]).is_file()
    assert (tmp_path / "out/notes/auto/notes.md").read_text("utf-8")


def test_mineru_s_own_client_says_why_a_file_fails(service: Service, tmp_path: Path) -> None:
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7 nothing")
    done = run_published(service, tmp_path / "out", tmp_path / "broken.pdf")

    assert 1 == done.returncode
    assert "client: Task " in done.stderr
    assert "document_broken" in done.stderr


# docmill as the client


def test_docmill_is_a_client_of_docmill_in_both_contracts(guarded: Guarded, tmp_path: Path) -> None:
    providers = {
        "three": {"kind": "mineru", "url": f"{guarded.service.url}/mineru", "api_key": guarded.keys["acme"]},
        "cloud": {"kind": "mineru", "url": guarded.service.url, "api_key": guarded.keys["acme"]},
    }
    with (
        Service(tmp_path / "client", DOCMILL_PROVIDERS=json.dumps(providers)) as service,
        service.client() as client,
    ):
        etl = Etl(client)
        for engine, job in (("three", "-99999.auto.pipeline"), ("cloud", "-")):
            task = etl.done("report.en.pdf", REPORT.read_bytes(), engine=engine, no_cache=True)

            assert (engine, 2) == (task["metadata"]["engine"], task["metadata"]["pages_total"])
            assert job in task["metadata"]["provider_task_id"]
            text = task["result"]["report.en"]["content"]
            assert "# River Monitoring 2025" in text
            assert "| Oak Weir | 14.2 | 8.9 | 7 |" in text
            document = client.get(f"/api/v1/documents/{task['metadata']['document_id']}").json()
            [image] = [asset for asset in document["assets"] if asset["media_type"].startswith("image/")]
            assert pytest.approx([0.214, 0.152, 0.786, 0.377], abs=0.002) == image["bbox"]

        failed = etl.wait(etl.submit("broken.pdf", b"%PDF-1.7 nothing", engine="three"))
        assert "failed" == failed["status"]


# The self-hosted contract


def test_several_files_come_back_in_one_json_answer(http: httpx2.Client) -> None:
    fields = {"return_content_list": "true", "return_images": "true", "return_middle_json": "true"}
    answer = http.post("/file_parse", data=fields, files=form("report.en.pdf", "data.csv", "data.csv"))

    assert 200 == answer.status_code, answer.text
    found = answer.json()
    assert ("completed", ["report.en", "data", "data_2"]) == (found["status"], found["file_names"])
    assert ["report.en", "data", "data_2"] == list(found["results"])
    report = found["results"]["report.en"]
    assert report["middle_json"] is None
    [image] = [item for item in json.loads(report["content_list"]) if item["type"] == "image"]
    assert (1, ["Figure 1: Nitrate load, mean of twelve stations."]) == (image["page_idx"], image["image_caption"])
    name = image["img_path"].removeprefix("images/")
    assert f"](images/{name})" in report["md_content"]
    assert base64.b64decode(report["images"][name].removeprefix("data:image/png;base64,")).startswith(b"\x89PNG")


def test_pages_are_chosen_and_counted_from_the_first(http: httpx2.Client) -> None:
    fields = {"start_page_id": "1", "end_page_id": "1", "return_content_list": "true"}
    [found] = http.post("/file_parse", data=fields, files=form("report.en.pdf")).json()["results"].values()

    assert found["md_content"].startswith("## 3 Trend")
    assert {0} == {item["page_idx"] for item in json.loads(found["content_list"])}


def test_a_zip_is_streamed_with_what_was_asked_for(http: httpx2.Client) -> None:
    fields = {
        "response_format_zip": "true",
        "return_content_list": "true",
        "return_images": "true",
        "return_original_file": "true",
        "backend": "hybrid-engine",
    }
    answer = http.post("/file_parse", data=fields, files=form("report.en.pdf"))

    assert (200, "application/zip") == (answer.status_code, answer.headers["content-type"])
    assert answer.headers["x-mineru-task-status"] == "completed"
    found = unzip(answer.content)
    folder = "report.en/hybrid_auto"
    assert {
        f"{folder}/report.en.md",
        f"{folder}/report.en_content_list.json",
        f"{folder}/images/p002_img01.png",
        f"{folder}/report.en_origin.pdf",
    } == set(found)
    assert REPORT.read_bytes() == found[f"{folder}/report.en_origin.pdf"]


@pytest.mark.parametrize("prefix", ["", "/mineru"])
def test_a_task_is_submitted_polled_and_fetched(http: httpx2.Client, prefix: str) -> None:
    submitted = http.post(f"{prefix}/tasks", data={"lang_list": ["ch", "en"]}, files=form("notes.docx"))
    assert 202 == submitted.status_code, submitted.text
    task = submitted.json()
    assert task["status_url"] == f"{http.base_url}{prefix}/tasks/{task['task_id']}"
    ends = time.monotonic() + 60
    while (status := http.get(task["status_url"]).json())["status"] in ("pending", "processing"):
        assert http.get(task["result_url"]).status_code in (200, 202)
        assert time.monotonic() < ends
        time.sleep(0.1)

    assert ("completed", None) == (status["status"], status["error"])
    result = http.get(task["result_url"])
    assert {"backend", "version", "results"} == set(result.json())
    assert result.json()["results"]["notes"]["md_content"]
    assert "no-store" == result.headers["cache-control"]


def test_one_bad_file_does_not_take_the_others_along(http: httpx2.Client) -> None:
    files = [*form("data.csv"), ("files", ("broken.pdf", b"%PDF-1.7 nothing"))]
    found = http.post("/file_parse", files=files).json()

    assert "completed" == found["status"]
    assert found["error"].startswith("broken.pdf: document_broken")
    assert found["results"]["data"]["md_content"]
    assert found["results"]["broken"]["error"].startswith("document_broken")


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"server_url": "http://127.0.0.1:1"}, 400),
        ({"client_side_output_generation": "true"}, 400),
        ({"start_page_id": "3", "end_page_id": "2"}, 400),
        ({"backend": "../etc"}, 422),
        ({"parse_method": "guess"}, 422),
        ({"start_page_id": "-1"}, 422),
        ({"return_md": "perhaps"}, 422),
        ({"lang_list": ["x" * 200]}, 422),
    ],
)
def test_what_is_not_offered_is_refused_by_name(http: httpx2.Client, fields: Any, status: int) -> None:
    answer = http.post("/file_parse", data=fields, files=form("data.csv"))

    assert (status, "request_invalid") == (answer.status_code, answer.json()["code"])
    assert next(iter(fields)) in answer.json()["detail"] or "end_page_id" in answer.json()["detail"]


def test_no_file_is_no_request(http: httpx2.Client) -> None:
    for path in ("/file_parse", "/tasks"):
        answer = http.post(path, data={"return_md": "true"}, files={"other": ("a.txt", b"a")})
        assert (422, "upload_missing_file") == (answer.status_code, answer.json()["code"])


@pytest.mark.parametrize(
    "task_id", ["9999999.m.0-99999.auto.pipeline", "99999999999999999999.m.0-1.auto.pipeline", "1.mm.0-1.abcd.x", "a"]
)
def test_an_id_that_nobody_gave_out_is_unknown(http: httpx2.Client, task_id: str) -> None:
    for path in (f"/tasks/{task_id}", f"/mineru/tasks/{task_id}", f"/tasks/{task_id}/result"):
        assert 404 == http.get(path).status_code


def test_the_console_keeps_its_pages_below_tasks(http: httpx2.Client) -> None:
    http.post("/file_parse", files=form("data.csv"))

    for path in ("/tasks", "/tasks/1"):
        assert "text/html" in http.get(path).headers["content-type"]
    answer = http.post("/tasks/bulk", content=b"x" * (4 * 1024**2 + 1))
    assert (413, "body_too_large") == (answer.status_code, answer.json()["code"])


def test_health_is_told_in_mineru_s_words_below_mineru(http: httpx2.Client) -> None:
    told = http.get("/mineru/health").json()

    assert ("healthy", 2) == (told["status"], told["protocol_version"])
    assert told["max_concurrent_requests"] > 0
    assert "ok" == http.get("/health").json()["status"]


# The cloud's contract


def announce(client: httpx2.Client, *names: str, **options: Any) -> dict[str, Any]:
    files = [{"name": name, "data_id": f"id-{name}"} for name in names]
    answer = client.post("/api/v4/file-urls/batch", json={"files": files, **options})
    assert 200 == answer.status_code, answer.text
    return answer.json()["data"]


def await_batch(client: httpx2.Client, batch_id: str) -> list[dict[str, Any]]:
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        answer = client.get(f"/api/v4/extract-results/batch/{batch_id}").json()
        items = answer["data"]["extract_result"]
        if all(item["state"] in ("done", "failed", "waiting-file") for item in items):
            return items
        time.sleep(0.1)
    raise AssertionError(items)


def test_a_batch_tells_the_state_of_each_file(guarded: Guarded) -> None:
    with guarded.client("acme") as client, guarded.service.client() as bare:
        batch = announce(client, "report.en.pdf", "broken.pdf", "never sent.pdf", "report.en.pdf")
        for index, data in ((0, REPORT.read_bytes()), (1, b"%PDF-1.7 nothing")):
            assert 200 == bare.put(batch["file_urls"][index], content=data).status_code
        done, failed, missing, twin = await_batch(client, batch["batch_id"])

        assert ("done", "id-report.en.pdf", "") == (done["state"], done["data_id"], done["err_msg"])
        assert ("failed", -60003) == (failed["state"], failed["err_code"])
        assert ("never sent.pdf", "waiting-file") == (missing["file_name"], missing["state"])
        assert "waiting-file" == twin["state"]
        found = unzip(bare.get(done["full_zip_url"]).content)
        assert {"full.md", f"{batch['batch_id']}_content_list.json", "images/p002_img01.png"} == set(found)
        task = client.get(f"/api/v4/extract/task/{batch['batch_id']}").json()["data"]
        assert ("done", batch["batch_id"]) == (task["state"], task["task_id"])


def test_a_file_that_is_uploaded_twice_is_one_task(guarded: Guarded) -> None:
    with guarded.client("acme") as client:
        before = Etl(client).get("/tasks").json()["total"]
        batch = announce(client, "data.csv")
        for _ in range(2):
            assert 200 == client.put(batch["file_urls"][0], content=b"a,b\n1,2\n").status_code
        [item] = await_batch(client, batch["batch_id"])

        assert "done" == item["state"]
        assert before + 1 == Etl(client).get("/tasks").json()["total"]


def test_a_batch_belongs_to_its_user(guarded: Guarded) -> None:
    with guarded.client("acme") as acme, guarded.client("beta") as beta:
        batch = announce(acme, "data.csv")
        foreign = beta.get(f"/api/v4/extract-results/batch/{batch['batch_id']}")
        task = acme.post("/tasks", files=form("data.csv")).json()["task_id"]

        assert (404, -60012) == (foreign.status_code, foreign.json()["code"])
        assert "data" not in foreign.json()
        assert 404 == beta.get(f"/tasks/{task}").status_code
        assert 404 == beta.get(f"/tasks/{task}/result").status_code


def test_an_address_is_good_for_one_purpose(guarded: Guarded) -> None:
    with guarded.client("acme") as client, guarded.service.client() as bare:
        batch = announce(client, "data.csv", "other.csv")
        url = batch["file_urls"][0]
        token = url.rsplit("/", 1)[1]
        forged = token[:-2] + ("AA" if not token.endswith("AA") else "BB")

        for method, path in (
            ("PUT", f"/api/v4/uploads/{forged}"),
            ("GET", f"/api/v4/results/{token}.zip"),
            ("PUT", f"/api/v1/objects/{token}"),
            ("PUT", "/api/v4/uploads/x"),
        ):
            assert 403 == bare.request(method, path, content=b"x").status_code, path
        assert ["waiting-file"] * 2 == [item["state"] for item in await_batch(client, batch["batch_id"])]


@pytest.mark.parametrize("is_announced", [True, False], ids=["with its length", "in chunks"])
def test_a_file_over_the_limit_is_refused_and_leaves_nothing(guarded: Guarded, is_announced: bool) -> None:
    data = b"x" * (MAX_UPLOAD_MB * 1024**2 + 1)
    with guarded.client("acme") as client:
        batch = announce(client, "large.csv")
        content = data if is_announced else iter([data[:1000], data[1000:]])
        answer = client.put(batch["file_urls"][0], content=content)

        assert (413, -60005) == (answer.status_code, answer.json()["code"])
        assert ["waiting-file"] == [item["state"] for item in await_batch(client, batch["batch_id"])]
        files = {"files": ("large.csv", data)}
        assert 413 == client.post("/file_parse", files=files).status_code


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"{", "JSON"),
        (b"[]", "body"),
        (b'{"files": []}', "files"),
        (b'{"files": [{"name": ""}]}', "name"),
        (b'{"files": [{"name": "a\\u0000.pdf"}]}', "NUL"),
        (b'{"files": [{"name": "a.pdf", "page_ranges": "1-2-3"}]}', "page_ranges"),
        (b'{"files": [{"name": "a.pdf"}], "callback": "http://x.test"}', "callback"),
        (json.dumps({"files": [{"name": "a.pdf"}] * 201}).encode(), "files"),
        (b'{"files": [{"name": "a.pdf"}], "x": "' + b"x" * 1024**2 + b'"}', "larger"),
    ],
)
def test_a_wrong_announcement_is_refused_in_the_envelope(guarded: Guarded, body: bytes, word: str) -> None:
    with guarded.client("acme") as client:
        answer = client.post("/api/v4/file-urls/batch", content=body, headers={"Content-Type": "application/json"})

    assert answer.status_code in (400, 413, 422), answer.text
    told = answer.json()
    assert (-10002, True) == (told["code"], bool(told["trace_id"]))
    assert word in told["msg"]


def test_without_a_credential_the_envelope_says_so(guarded: Guarded) -> None:
    with guarded.service.client() as bare:
        answer = bare.post("/api/v4/file-urls/batch", json={"files": [{"name": "a.pdf"}]})

        assert (401, "A0202", False) == (answer.status_code, answer.json()["code"], answer.json()["success"])
        for method, path in (("POST", "/file_parse"), ("POST", "/mineru/tasks"), ("GET", "/api/v4/extract/task/x")):
            assert 401 == bare.request(method, path).status_code


def test_an_address_inside_the_house_is_not_fetched(guarded: Guarded) -> None:
    with guarded.client("acme") as client:
        answer = client.post("/api/v4/extract/task", json={"url": f"{guarded.service.url}/health"})

    assert 422 == answer.status_code
    assert "address_refused" in answer.json()["msg"]


def test_links_name_the_address_that_the_proxy_was_asked_for(guarded: Guarded) -> None:
    forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "docs.example.org"}
    with guarded.client("acme") as client:
        body = {"files": [{"name": "a.pdf"}]}
        [url] = client.post("/api/v4/file-urls/batch", json=body, headers=forwarded).json()["data"]["file_urls"]

    assert url.startswith("https://docs.example.org/api/v4/uploads/")


def test_a_batch_survives_a_kill(tmp_path: Path) -> None:
    with ExitStack() as stack:
        service = Service(tmp_path / "data").start()
        stack.callback(lambda: service.is_running and service.stop())
        with service.client() as client:
            batch = announce(client, "report.en.pdf", "data.csv")
            client.put(batch["file_urls"][0], content=REPORT.read_bytes())
        service.kill()
        service.start()
        with service.client() as client:
            assert 200 == client.put(batch["file_urls"][1], content=b"a,b\n1,2\n").status_code
            items = await_batch(client, batch["batch_id"])

            assert ["done", "done"] == [item["state"] for item in items]
            assert b"River Monitoring" in unzip(client.get(items[0]["full_zip_url"]).content)["full.md"]
