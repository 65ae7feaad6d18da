"""Providers behind a real service: where documents go, what comes back, what is foreseen."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from reportlab.pdfgen import canvas

from docmill.cli.group import root
from support.docling_peer import KEY as DOCLING_KEY
from support.docling_peer import DoclingPeer
from support.long_pdf import numbered_pdf
from support.mineru_peers import KEY, CloudPeer, ThreePeer
from support.model_peer import ModelPeer
from support.peers import Fault
from support.serving import Etl, Service

SAMPLES = Path(__file__).parents[2] / "samples"
REPORT = (SAMPLES / "report.en.pdf").read_bytes()


@dataclass
class House:
    etl: Etl
    three: ThreePeer
    cloud: CloudPeer
    docling: DoclingPeer
    service: Service
    providers: dict[str, Any]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with ExitStack() as stack:
        three, cloud, docling = (stack.enter_context(kind()) for kind in (ThreePeer, CloudPeer, DoclingPeer))
        providers = {
            "three": {"kind": "mineru", "url": three.url, "home": True},
            "cloud": {"kind": "mineru", "url": cloud.url, "api_key": KEY},
            "docling": {"url": docling.url, "api_key": DOCLING_KEY},
        }
        data = tmp_path_factory.mktemp("docmill")
        service = stack.enter_context(Service(data, DOCMILL_PROVIDERS=json.dumps(providers), DOCMILL_JOBS="4"))
        client = stack.enter_context(service.client())
        yield House(Etl(client), three, cloud, docling, service, providers)


@pytest.mark.parametrize("engine", ["three", "cloud", "docling"])
def test_a_task_goes_there_and_comes_back(house: House, engine: str) -> None:
    task = house.etl.done("report.en.pdf", REPORT, engine=engine, no_cache=True)

    assert engine == task["metadata"]["engine"]
    assert 2 == task["metadata"]["pages_total"]
    assert task["metadata"]["provider_task_id"]
    document = house.etl.http.get(f"/api/v1/documents/{task['metadata']['document_id']}").json()
    (image,) = [asset for asset in document["assets"] if asset["media_type"].startswith("image/")]
    assert pytest.approx([0.1, 0.2, 0.5, 0.6], abs=0.001) == image["bbox"]
    assert house.etl.http.get(f"/api/v1/assets/{image['ref']['asset_id']}/blob").is_success


def test_what_stays_ends_in_a_clear_failure(house: House) -> None:
    house.cloud.codes.append(-60018)
    task = house.etl.wait(house.etl.submit("report.en.pdf", REPORT, engine="cloud", no_cache=True))

    assert ("failed", "provider_quota") == (task["status"], task["metadata"]["error_code"])
    assert "mineru" == task["metadata"]["error_stage"]
    assert "127.0.0.1" not in json.dumps(task)
    assert "10.0.0.7" not in json.dumps(task)


def test_a_document_that_must_stay_does(house: House) -> None:
    before = len(house.cloud.seen)
    options = {"stay_home": True}
    task = house.etl.wait(house.etl.submit("report.en.pdf", REPORT, engine="cloud", options=options, no_cache=True))
    assert ("failed", "provider_forbidden") == (task["status"], task["metadata"]["error_code"])
    assert before == len(house.cloud.seen)
    task = house.etl.done("report.en.pdf", REPORT, engine="three", options=options, no_cache=True)
    assert "three" == task["metadata"]["engine"]


def test_auto_keeps_a_good_local_result_and_sends_a_poor_one_on(house: House) -> None:
    good = house.etl.done("report.en.pdf", REPORT, engine="auto")
    assert "local" == good["metadata"]["engine"]

    poor = house.etl.done("drawing.pdf", drawing(), engine="auto")
    assert "three" == poor["metadata"]["engine"]
    assert "A teal box." in str(poor["result"])
    (said,) = [event["data"] for event in house.etl.events(poor["task_id"]) if "routed" in event["data"]]
    assert ["local", "three"] == said["routed"]


def drawing() -> bytes:
    """Pages with lines and no letters."""
    buffer = io.BytesIO()
    pdf = canvas.Canvas(buffer, pagesize=(200, 200))
    for _ in range(3):
        pdf.line(10, 10, 190, 190)
        pdf.showPage()
    pdf.save()
    return buffer.getvalue()


@pytest.mark.slow
def test_pages_that_stay_lost_are_named(house: House, tmp_path: Path) -> None:
    house.cloud.fail_batch_with = {"P00126": 9}
    pdf = numbered_pdf(tmp_path / "long.pdf", 250).read_bytes()

    task = house.etl.wait(house.etl.submit("lost.pdf", pdf, engine="cloud"), seconds=120)

    assert "completed" == task["status"], task
    assert list(range(125, 250)) == task["metadata"]["damaged_pages"]
    (said,) = [event["data"] for event in house.etl.events(task["task_id"]) if "missing_pages" in event["data"]]
    assert (126, 250, 2) == (said["missing_pages"][0], said["missing_pages"][-1], said["slices"])
    house.cloud.fail_batch_with = {}


def test_doctor_says_what_is_configured_and_who_answers(house: House, tmp_path: Path) -> None:
    nobody = "http://127.0.0.1:9"
    worker = {"dialect": "dispatcher", "url": f"{nobody}/tasks"}
    with ModelPeer() as model:
        environment = {
            "DOCMILL_PROVIDERS": json.dumps(house.providers | {"gone": {"kind": "docling", "url": nobody, "tries": 1}}),
            "DOCMILL_WORKERS": json.dumps({"away": worker, "there": worker | {"url": f"{model.url}/tasks"}}),
            "DOCMILL_LLM": model.settings(),
            "DOCMILL_CAPTIONS": model.settings(model="other"),
        }
        done = CliRunner().invoke(root, ["doctor", "--data", str(tmp_path / "d"), "--json"], env=environment)

    checks = json.loads(done.output)["checks"]
    found = {one["detail"].split(":")[0]: one for one in checks if one["name"] in ("provider", "worker")}
    assert {"three": "ok", "cloud": "ok", "docling": "ok", "gone": "fail", "away": "fail", "there": "ok"} == {
        name: one["status"] for name, one in found.items()
    }
    assert "MinerU cloud v4, up to 200 pages" in found["cloud"]["detail"]
    assert "docling-serve 1.38.2" in found["docling"]["detail"]
    assert "docmill explain provider_unreachable" == found["gone"]["next_step"]
    assert {"llm": "ok", "captions": "warn"} == {
        one["name"]: one["status"] for one in checks if one["name"] in ("llm", "captions")
    }
    told = json.dumps([one for one in checks if one["name"] in ("provider", "worker", "llm", "captions")])
    assert "127.0.0.1" not in told
    assert "sk-test-secret" not in told
    assert 1 == done.exit_code


def test_the_console_asks_them_each_time_anew(house: House) -> None:
    house.docling.faults.append(Fault("GET", "/version", status=503, times=4))

    first, second = (house.etl.http.get("/settings?examine=1").text for _ in range(2))

    assert "docling: provider_unreachable" in first
    assert "docling: docling-serve 1.38.2" in second
    assert "three: MinerU 3.4.5" in first
    assert KEY not in first + second
    assert DOCLING_KEY not in first + second


def test_a_plan_runs_nothing(house: House, tmp_path: Path) -> None:
    long = numbered_pdf(tmp_path / "long.pdf", 450)
    environment = {
        "DOCMILL_PROVIDERS": json.dumps(house.providers),
        "DOCMILL_ROUTING": json.dumps({"prefer": "provider", "budget_pages": 100}),
    }
    before = len(house.three.seen + house.cloud.seen + house.docling.seen)

    done = CliRunner().invoke(root, ["plan", str(long), "--json"], env=environment)
    found = json.loads(done.output)

    assert 0 == done.exit_code
    assert ("application/pdf", 450, "three", ["local"]) == tuple(
        found[key] for key in ("media_type", "pages", "engine", "then")
    )
    assert [(0, 149), (150, 299), (300, 449)] == [(one["first"], one["last"]) for one in found["slices"]]
    assert {"cloud", "docling"} == {one["engine"] for one in found["refusals"]}
    assert 0 < found["expected_s"]
    assert before == len(house.three.seen + house.cloud.seen + house.docling.seen)
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"%PDF-1.7 nothing")
    done = CliRunner().invoke(root, ["plan", str(broken), "--json"], env=environment)
    assert (1, "document_broken") == (done.exit_code, json.loads(done.output)["code"])
    done = CliRunner().invoke(root, ["plan", str(long), "--engine", "nobody"], env=environment)
    assert 2 == done.exit_code
    assert "engine_unknown" in done.output
