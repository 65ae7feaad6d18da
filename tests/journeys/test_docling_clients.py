"""docling-serve's clients, pointed at docmill unchanged."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.serving import Service

SAMPLES = Path(__file__).parents[2] / "samples"
REPORT = SAMPLES / "report.en.pdf"

PUBLISHED = """
import json, sys, warnings
warnings.simplefilter("ignore")
from docling.datamodel.service.options import ConvertDocumentsOptions
from docling.service_client import DoclingServiceClient
from docling.service_client.exceptions import ServiceError

url, path, broken = sys.argv[1:]
with DoclingServiceClient(url, poll_server_wait=2, poll_client_interval=0.05) as client:
    healthy = client.health().status
    done = client.convert(path, options=ConvertDocumentsOptions(to_formats=["md", "json"]))
    document = done.document
    first = client.convert(path, page_range=(1, 1)).document
    try:
        failure = client.convert(broken).status.value
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    print(json.dumps({
        "healthy": healthy,
        "version": client.version(),
        "status": done.status.value,
        "markdown": document.export_to_markdown(),
        "headings": [text.text for text in document.texts if text.label in ("title", "section_header")],
        "tables": [[cell.text for cell in table.data.table_cells] for table in document.tables],
        "pictures": [bool(picture.image and picture.image.pil_image) for picture in document.pictures],
        "pages": [sorted(document.pages), sorted(first.pages)],
        "failure": failure,
    }))
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("docling") / "data") as running:
        yield running


@pytest.fixture
def http(service: Service) -> Iterator[httpx2.Client]:
    with service.client() as client:
        yield client


@pytest.mark.slow
def test_the_published_client_converts_a_pdf(service: Service, tmp_path: Path) -> None:
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7 nothing")
    done = subprocess.run(
        [sys.executable, "-c", PUBLISHED, service.url, str(REPORT), str(tmp_path / "broken.pdf")],
        env={**os.environ, "NO_PROXY": "*"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert 0 == done.returncode, done.stderr[-3000:]
    found = json.loads(done.stdout)

    assert ("ok", "success") == (found["healthy"], found["status"])
    assert "docmill" in found["version"]
    assert "River Monitoring 2025" == found["headings"][0]
    assert found["markdown"].startswith("# River Monitoring 2025")
    assert all(len(cells) > 3 for cells in found["tables"])
    assert found["tables"]
    assert all(found["pictures"])
    assert [["1", "2"], ["1"]] == [[str(page) for page in pages] for pages in found["pages"]]
    assert "document_broken" in found["failure"]


def test_a_chat_program_sends_a_file_and_reads_its_markdown(http: httpx2.Client) -> None:
    """As Open WebUI does it."""
    answer = http.post(
        "/v1/convert/file",
        files={"files": ("report.en.pdf", REPORT.read_bytes(), "application/pdf")},
        data={"image_export_mode": "placeholder", "do_ocr": "true", "ocr_engine": "tesseract", "table_mode": "fast"},
    )

    assert 200 == answer.status_code, answer.text
    found = answer.json()
    assert "success" == found["status"]
    assert found["document"]["md_content"].startswith("# River Monitoring 2025")
    assert "assets/" not in found["document"]["md_content"]
    assert found["document"]["json_content"] is None


def test_every_format_and_images_inside(http: httpx2.Client) -> None:
    formats = ["md", "json", "html", "text"]
    answer = http.post(
        "/v1/convert/source",
        json={
            "sources": [
                {
                    "kind": "file",
                    "filename": "page.html",
                    "base64_string": base64.b64encode((SAMPLES / "page.html").read_bytes()).decode(),
                }
            ],
            "options": {"to_formats": formats, "pipeline": "standard"},
        },
    )

    assert 200 == answer.status_code, answer.text
    document = answer.json()["document"]
    assert all(document[f"{one}_content"] for one in formats)
    assert "DoclingDocument" == document["json_content"]["schema_name"]
    assert "<script" not in document["html_content"]
    assert "#" not in document["text_content"].split("\n")[0]


def submitted(http: httpx2.Client, *names: str, **fields: Any) -> str:
    files = [("files", (name, (SAMPLES / name).read_bytes())) for name in names]
    answer = http.post("/v1/convert/file/async", files=files, data=fields)
    assert 200 == answer.status_code, answer.text
    return answer.json()["task_id"]


def ended(http: httpx2.Client, task_id: str) -> dict[str, Any]:
    for _ in range(30):
        status = http.get(f"/v1/status/poll/{task_id}", params={"wait": 5}).json()
        if status["task_status"] not in ("pending", "started"):
            return status
    raise AssertionError(status)


def test_several_files_come_back_as_one_archive(http: httpx2.Client) -> None:
    task_id = submitted(http, "notes.docx", "data.csv", to_formats=["md", "json"], image_export_mode="referenced")

    status = ended(http, task_id)
    answer = http.get(f"/v1/result/{task_id}")

    assert ("success", 2) == (status["task_status"], status["task_meta"]["num_succeeded"])
    assert "application/zip" == answer.headers["content-type"]
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        names = set(archive.namelist())
        assert {"notes.md", "notes.json", "data.md", "data.json"} <= names
        text = archive.read("notes.md").decode()
        assert all(part.split(")")[0] in names for part in text.split("](")[1:] if part.startswith("notes_artifacts"))


def test_what_cannot_be_converted_says_why(http: httpx2.Client) -> None:
    broken = {"files": ("broken.pdf", b"%PDF-1.7 nothing")}
    waiting = http.post("/v1/convert/file", files=broken)
    assert (422, "document_broken") == (waiting.status_code, waiting.json()["code"])

    task_id = http.post("/v1/convert/file/async", files=broken).json()["task_id"]
    status = ended(http, task_id)
    assert "failure" == status["task_status"]
    assert status["error_message"].startswith("document_broken")
    assert 404 == http.get(f"/v1/result/{task_id}").status_code


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"sources": []}, 422),
        ({"sources": [{"kind": "file", "base64_string": "***"}]}, 422),
        ({"sources": [{"kind": "http", "url": "http://127.0.0.1:1/x.pdf"}]}, 422),
        ({"sources": [{"kind": "http", "url": "http://example.org/x.pdf", "headers": {"Cookie": "x"}}]}, 422),
        ({"sources": [{"kind": "file", "base64_string": "eA=="}], "options": {"to_formats": ["doctags"]}}, 422),
        ({"sources": [{"kind": "file", "base64_string": "eA=="}], "target": {"kind": "s3"}}, 422),
        ({"sources": [{"kind": "file", "base64_string": "eA=="}], "target": {"kind": "presigned_url"}}, 400),
    ],
)
def test_what_is_not_offered_is_refused_with_a_reason(http: httpx2.Client, body: Any, status: int) -> None:
    answer = http.post("/v1/convert/source/async", json=body)

    assert status == answer.status_code, answer.text
    assert answer.json()["code"] in ("request_invalid", "address_refused")


@pytest.mark.parametrize("task_id", ["1", "9999999.m.e.1-0.i", "1.x.e.1-0.i", "99999999999999999999.m.e.1-0.i"])
def test_an_id_that_nobody_gave_out_is_unknown(http: httpx2.Client, task_id: str) -> None:
    for path in (f"/v1/status/poll/{task_id}", f"/v1/result/{task_id}"):
        answer = http.get(path)
        assert (404, "Task not found.") == (answer.status_code, answer.json()["detail"])
