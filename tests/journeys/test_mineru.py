"""A real MinerU server behind a real docmill: documents go there as tasks and come back as documents."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen import canvas

from support.servers import MinerUServer
from support.serving import Etl, Service

SAMPLES = Path(__file__).parents[2] / "samples"

pytestmark = pytest.mark.timeout(1200)  # whoever comes first may have to install the server


@pytest.fixture(scope="module")
def etl(mineru_server: MinerUServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etl]:
    providers = {"mineru": {"url": mineru_server.url, "api_key": mineru_server.key, "home": True}}
    data = tmp_path_factory.mktemp("docmill")
    with Service(data, DOCMILL_PROVIDERS=json.dumps(providers)) as service, service.client() as client:
        yield Etl(client)


def long_pdf(pages: int) -> bytes:
    buffer = io.BytesIO()
    pdf = canvas.Canvas(buffer, pagesize=A4)
    for number in range(1, pages + 1):
        for line in range(12):
            pdf.drawString(60, 780 - line * 16, f"Page {number}, line {line}: the quick brown fox jumps over the dog.")
        pdf.showPage()
    pdf.save()
    return buffer.getvalue()


def done(etl: Etl, name: str) -> dict[str, Any]:
    """The server loads its libraries with the first document, and on a busy machine that takes a while."""
    task = etl.wait(etl.submit(name, (SAMPLES / name).read_bytes(), engine="mineru"), seconds=300)
    assert "completed" == task["status"], task
    return task


def jobs_of(server: MinerUServer) -> list[dict[str, str]]:
    headers = {"Authorization": f"Bearer {server.key}"}
    return httpx2.get(f"{server.url}/v1/parse/jobs", headers=headers, trust_env=False).json()["data"]


@pytest.mark.slow
def test_a_report_comes_back_with_its_image_table_and_boxes(etl: Etl) -> None:
    task = done(etl, "report.en.pdf")

    assert ("mineru", 2) == (task["metadata"]["engine"], task["metadata"]["pages_total"])
    content = task["result"]["report.en"]["content"]
    assert content.startswith("# River Monitoring 2025")
    assert "| Harbour Gate | 17.5 | 8.1 | 0 |" in content
    document = etl.http.get(f"/api/v1/documents/{task['metadata']['document_id']}").json()
    (image,) = [asset for asset in document["assets"] if asset["media_type"] == "image/jpeg"]
    (table,) = [asset for asset in document["assets"] if asset["media_type"] == "text/html"]
    assert (1, 0) == (image["page_index"], table["page_index"])
    assert pytest.approx([0.105, 0.403, 0.895, 0.507], abs=0.02) == table["bbox"]
    x0, y0, x1, y1 = image["bbox"]
    assert 0 < x0 < x1 < 1
    assert 0 < y0 < y1 < 0.6
    assert "Figure 1 shows the mean nitrate load" in image["context_before"]
    picture = etl.http.get(f"/api/v1/assets/{image['ref']['asset_id']}/blob")
    assert (200, b"\xff\xd8\xff") == (picture.status_code, picture.content[:3])


@pytest.mark.slow
def test_the_other_samples_come_back_too(etl: Etl) -> None:
    words = {
        "bericht.de.pdf": "# Prüfbericht zur Schulküche",
        "budget.xlsx": "| Item | Plan (€) | Actual (€) | Difference (€) |",
        "invoice.en.pdf": "2026-0147",
        "notes.docx": "# Workshop notes",
        "page.html": "# Opening hours",
        "photo.jpg": "](assets/p001_img01.jpg)",
        "rechnung.de.pdf": "Rechnung",
        "rotated.en.pdf": "# Duty roster, week 10",
        "scan.en.pdf": "](assets/p001_img01.jpg)",  # this tier reads no scans: the page comes back as an image
        "slides.pptx": "# A new reading room",
        "报告.zh.pdf": "# 城市图书馆年度报告",
    }
    tasks = {name: etl.submit(name, (SAMPLES / name).read_bytes(), engine="mineru") for name in words}

    for name, task_id in tasks.items():
        task = etl.wait(task_id, seconds=300)
        assert ("completed", []) == (task["status"], task["metadata"]["damaged_pages"] or []), task
        assert words[name] in next(iter(task["result"].values()))["content"], name


def test_what_it_does_not_read_is_a_clear_error(etl: Etl) -> None:
    task = etl.wait(etl.submit("data.csv", b"a,b\n1,2\n3,4\n", engine="mineru"))

    assert ("failed", "document_unsupported") == (task["status"], task["metadata"]["error_code"])


@pytest.mark.slow
def test_a_cancelled_task_is_cancelled_there_too(etl: Etl, mineru_server: MinerUServer) -> None:
    before = {job["job_id"] for job in jobs_of(mineru_server)}
    task_id = etl.submit("long.pdf", long_pdf(30), engine="mineru")

    def new_jobs() -> list[dict[str, str]]:
        return [job for job in jobs_of(mineru_server) if job["job_id"] not in before]

    for _ in range(200):
        if any(job["status"] == "running" for job in new_jobs()):
            break
        etl.task(task_id, wait=0.1)
    assert ["running"] == [job["status"] for job in new_jobs()]

    assert etl.post(f"/tasks/{task_id}/cancel?force=true").is_success

    for _ in range(200):
        if new_jobs()[0]["status"] == "canceled":
            break
        etl.task(task_id, wait=0.1)
    assert ["canceled"] == [job["status"] for job in new_jobs()]
    assert "cancelled" == etl.task(task_id)["status"]


@pytest.mark.slow
def test_its_restart_in_mid_job_ends_in_a_clean_retry(etl: Etl, mineru_server: MinerUServer) -> None:
    task_id = etl.submit("other.pdf", long_pdf(25), engine="mineru")
    for _ in range(200):
        if any(job["status"] == "running" for job in jobs_of(mineru_server)):
            break
        etl.task(task_id, wait=0.1)

    mineru_server.kill()
    mineru_server.start()

    task = etl.wait(task_id, seconds=300)
    assert "completed" == task["status"], task
    assert 25 == task["metadata"]["pages_total"]
    assert 1 < task["metadata"]["attempt"]
    kinds = [event["kind"] for event in etl.events(task_id)]
    assert 1 == kinds.count("completed")
    assert "Page 25, line 11" in str(task["result"])
