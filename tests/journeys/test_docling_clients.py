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


ALL_FORMATS = ["md", "json", "html", "text", "doctags"]


def check_all_outputs(document: dict[str, Any]) -> None:
    assert {"filename", *(f"{one}_content" for one in ALL_FORMATS)} <= document.keys()
    assert "# River Monitoring 2025" in document["md_content"]
    assert json.dumps(document["json_content"]).startswith('{"schema_name": "DoclingDocument"')
    assert "River Monitoring 2025" in document["text_content"]
    assert document["doctags_content"] is None
    html = document["html_content"]
    assert html.startswith("<!DOCTYPE html>\n<html>\n<head>\n")
    for part in ('<meta charset="utf-8">', "<title>report.en</title>", "</head>\n<body>\n", "</body>\n</html>"):
        assert 1 == html.count(part), part
    assert "<h1>River Monitoring 2025</h1>" in html


def test_a_format_that_cannot_be_given_is_null_beside_the_others(http: httpx2.Client) -> None:
    """With the options that docling-serve's own tests send, as a form and as JSON."""
    options = {
        "from_formats": ["docx", "pptx", "html", "image", "pdf", "asciidoc", "md", "xlsx"],
        "to_formats": ALL_FORMATS,
        "image_export_mode": "placeholder",
        "ocr": True,
        "force_ocr": False,
        "ocr_engine": "easyocr",
        "ocr_lang": ["en"],
        "pdf_backend": "dlparse_v2",
        "table_mode": "fast",
        "abort_on_error": False,
        "return_as_file": False,
    }
    form = http.post("/v1/convert/file", files={"files": ("report.en.pdf", REPORT.read_bytes())}, data=options)
    source = {"kind": "file", "filename": REPORT.name, "base64_string": base64.b64encode(REPORT.read_bytes()).decode()}
    body = http.post("/v1/convert/source", json={"sources": [source], "options": options, "target": {"kind": "inbody"}})

    for answer in (form, body):
        assert 200 == answer.status_code, answer.text
        assert ("success", []) == (answer.json()["status"], answer.json()["errors"])
        check_all_outputs(answer.json()["document"])


def test_the_options_may_come_as_one_unknown_field(http: httpx2.Client) -> None:
    files = {"files": ("report.en.pdf", REPORT.read_bytes(), "application/pdf")}
    answer = http.post("/v1/convert/file", files=files, data={"parameters": json.dumps({"to_formats": ALL_FORMATS})})

    assert 200 == answer.status_code, answer.text
    assert "# River Monitoring 2025" in answer.json()["document"]["md_content"]


def test_an_archive_leaves_out_what_cannot_be_given(http: httpx2.Client) -> None:
    files = [("files", (name, (SAMPLES / name).read_bytes())) for name in ("notes.docx", "data.csv")]
    answer = http.post("/v1/convert/file", files=files, data={"to_formats": ALL_FORMATS})

    assert ("application/zip", 'attachment; filename="converted_docs.zip"') == (
        answer.headers["content-type"],
        answer.headers["content-disposition"],
    )
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        endings = {name.rpartition(".")[2] for name in archive.namelist()}
    assert {"md", "json", "html", "txt"} == endings


def test_cleared_results_are_gone_and_ordinary_tasks_are_not(http: httpx2.Client) -> None:
    mine = {
        "s3_key": http.post("/api/v1/etl/upload", data={"project_id": "0"}, files={"file": ("a.md", b"# a")}).json()[
            "key"
        ]
    }
    ordinary = http.post("/api/v1/etl/submit", json=mine).json()["task_id"]
    task_id = submitted(http, "data.csv", to_formats=["json"])
    assert "success" == ended(http, task_id)["task_status"]
    number = int(task_id.partition(".")[0])
    document = http.get(f"/api/v1/etl/tasks/{number}").json()["metadata"]["document_id"]

    for _ in range(2):
        result = http.get(f"/v1/result/{task_id}")
        assert "DoclingDocument" == result.json()["document"]["json_content"]["schema_name"]
    recent = http.get("/v1/clear/results")
    kept = http.get(f"/v1/result/{task_id}")
    cleared = http.get("/v1/clear/results", params={"older_then": 0})

    assert [200, 200, 200] == [recent.status_code, kept.status_code, cleared.status_code]
    assert {"status": "ok"} == recent.json() == cleared.json() == http.get("/v1/clear/converters").json()
    gone = http.get(f"/v1/result/{task_id}"), http.get(f"/v1/status/poll/{task_id}")
    assert [404, 404] == [answer.status_code for answer in gone]
    assert 410 == http.get(f"/api/v1/etl/tasks/{number}").status_code
    assert 404 == http.get(f"/api/v1/documents/{document}").status_code
    assert 200 == http.get(f"/api/v1/etl/tasks/{ordinary}").status_code


@pytest.mark.parametrize("path", ["/health", "/livez", "/readyz"])
def test_probes_of_docling_serve_are_answered(http: httpx2.Client, path: str) -> None:
    answer = http.get(path)

    assert (200, "ok") == (answer.status_code, answer.json()["status"])


def test_what_still_runs_is_not_cleared(http: httpx2.Client) -> None:
    task_id = submitted(http, "report.en.pdf", force_ocr="true")
    assert 200 == http.get("/v1/clear/results", params={"older_then": 0}).status_code
    status = http.get(f"/v1/status/poll/{task_id}")

    assert 200 == status.status_code
    assert "success" == ended(http, task_id)["task_status"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Origin": "https://evil.example"},
    ],
    ids=["image", "link", "script"],
)
def test_a_page_of_another_site_cannot_clear_results(http: httpx2.Client, headers: dict[str, str]) -> None:
    answer = http.get("/v1/clear/results", params={"older_then": 0}, headers=headers)

    assert (403, "forbidden") == (answer.status_code, answer.json()["code"])


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
        ({"sources": [{"kind": "file", "base64_string": "eA=="}], "options": {"to_formats": ["md", "odt"]}}, 422),
        ({"sources": [{"kind": "file", "base64_string": "eA=="}], "options": {"to_formats": []}}, 422),
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
