"""Rules of mode llm and captions, through a real service and a model's server that can misbehave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from support.model_peer import CHAT, INVOICE_SCHEMA, MODEL, ModelPeer
from support.peers import Fault
from support.serving import Etl, Service

SAMPLES = Path(__file__).parents[2] / "samples"
TEXT = b"# Invoice 2026-0147\n\nInvoice date: 2 March 2026\n\n| Total | 333.00 |\n"


@pytest.fixture(scope="module")
def peer() -> Iterator[ModelPeer]:
    with ModelPeer() as peer:
        yield peer


@pytest.fixture(scope="module")
def served(peer: ModelPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    llm = peer.settings(tries=2, timeout=3, budget_tokens=100_000, max_tokens=500)
    captions = peer.settings(tries=1, timeout=5, min_confidence=0.6)
    with Service(tmp_path_factory.mktemp("llm"), DOCMILL_LLM=llm, DOCMILL_CAPTIONS=captions) as service:
        yield service


@pytest.fixture
def etl(served: Service, peer: ModelPeer) -> Iterator[Etl]:
    peer.answers, peer.refuses = [], set()
    peer.faults.clear()
    peer.seen.clear()
    with served.client() as http:
        yield Etl(http)


def a_rule(etl: Etl, name: str, **more: Any) -> int:
    body = {"name": name, "json_schema": INVOICE_SCHEMA, "system_prompt": "Amounts are gross.", **more}
    answer = etl.post("/rules", json=body)
    assert 201 == answer.status_code, answer.text
    return int(answer.json()["rule_id"])


def extraction(etl: Etl, task_id: int) -> dict[str, Any]:
    answer = etl.get(f"/tasks/{task_id}/extraction")
    assert 200 == answer.status_code, answer.text
    return dict(answer.json())


@pytest.mark.parametrize(
    ("sample", "number", "day", "as_written", "total", "total_as"),
    [
        ("invoice.en.pdf", "2026-0147", "2026-03-02", "2 March 2026", 333.0, "333.00"),
        ("rechnung.de.pdf", "2026/0089", "2026-03-02", "02.03.2026", 4652.9, "4.652,90"),
    ],
)
def test_an_invoice_gives_valid_output_with_the_provenance_of_every_value(
    etl: Etl, peer: ModelPeer, sample: str, number: str, day: str, as_written: str, total: float, total_as: str
) -> None:
    task = etl.done(sample, (SAMPLES / sample).read_bytes(), rule_id=a_rule(etl, sample))
    told = extraction(etl, task["task_id"])
    sources = {one["pointer"]: (one["found"], one["page"], one["text"]) for one in told["provenance"]}

    assert jsonschema_rs.validator_for(INVOICE_SCHEMA).is_valid(task["result"])
    assert (number, day, total) == tuple(task["result"][name] for name in ("invoice_number", "invoice_date", "total"))
    assert ("verbatim", 1, None) == sources["/invoice_number"]
    assert ("normalised", 1, as_written) == sources["/invoice_date"]
    assert ("normalised", 1, total_as) == sources["/total"]
    assert ("verbatim", 1, None) == sources["/items/0/name"]
    assert ("not_found", None, None) == sources["/items/3/name"], "the model made it up"
    assert "/paid" not in sources
    assert (MODEL, 1, 120, "direct-json") == (told["model"], told["tries"], told["tokens"], told["strategy"])
    assert task["metadata"]["artifact_extraction_key"].endswith("/extraction.json")
    system = peer.bodies()[0]["messages"][0]["content"]
    assert "Amounts are gross." in system
    assert "sk-test-secret" not in json.dumps([task, told])


def test_three_failing_answers_end_in_a_clear_error_with_the_last_one_kept(etl: Etl, peer: ModelPeer) -> None:
    peer.answers = ["I would rather not.", {"total": "much"}, '{"total": 5, "secret": "last words"}']

    task = etl.wait(etl.submit("a.md", TEXT, rule_id=a_rule(etl, "failing")))
    told = extraction(etl, task["task_id"])

    assert ("failed", "postprocess") == (task["status"], task["metadata"]["error_stage"])
    assert "llm_answer_invalid" == task["metadata"]["error_code"]
    assert "3 tries" in task["error"]
    assert ('{"total": 5, "secret": "last words"}', False, 3) == (told["answer"], told["valid"], told["tries"])
    assert any("invoice_number" in error for error in told["errors"])
    first, second, third = peer.bodies()
    assert 2 == len(first["messages"])
    assert "it is not JSON" in second["messages"][3]["content"]
    assert "/total" in third["messages"][3]["content"]
    assert '{"total": "much"}' == third["messages"][2]["content"]
    peer.answers = []
    assert 200 == etl.post(f"/tasks/{task['task_id']}/retry", json={"from_stage": "postprocess"}).status_code
    assert "completed" == etl.wait(task["task_id"])["status"]
    assert extraction(etl, task["task_id"])["valid"]


def test_an_error_that_is_fed_back_mends_the_answer(etl: Etl, peer: ModelPeer) -> None:
    good = {"invoice_number": "2026-0147", "invoice_date": "2026-03-02", "total": 333}
    peer.answers = ["```json\n{}\n```", good]

    task = etl.done("a.md", TEXT, rule_id=a_rule(etl, "mended"))

    assert good == task["result"]
    assert 2 == extraction(etl, task["task_id"])["tries"]


@pytest.mark.parametrize(
    "fault",
    [
        Fault("POST", CHAT, status=429, headers={"Retry-After": "0"}),
        Fault("POST", CHAT, status=500),
        Fault("POST", CHAT, cut=True),
        Fault("POST", CHAT, body=b"<html>oops"),
        Fault("POST", CHAT, body=b'{"choices": [["http://gpu.inner.host"]]}'),
        Fault("POST", CHAT, slow_s=5),
        Fault("POST", CHAT, promise=2),
        Fault("POST", CHAT, promise=0.5),
        Fault("POST", CHAT, hang_up=True),
    ],
    ids=["429", "500", "cut", "html", "wrong JSON", "slow", "promises more", "promises less", "silence"],
)
def test_a_fault_of_the_server_is_waited_out(etl: Etl, peer: ModelPeer, fault: Fault) -> None:
    peer.faults.append(fault)

    task = etl.done("a.md", TEXT, rule_id=a_rule(etl, f"fault {fault}"[:100]))

    assert "2026-0147" == task["result"]["invoice_number"]
    assert 0 == fault.times
    assert "inner.host" not in json.dumps([task, etl.events(task["task_id"])])


def test_a_server_without_structured_output_gets_the_schema_in_words(tmp_path: Path) -> None:
    with ModelPeer() as peer, Service(tmp_path, DOCMILL_LLM=peer.settings(budget_tokens=3_000)) as service:
        peer.refuses = {"json_schema", "json_object"}
        peer.counts_tokens = False
        with service.client() as http:
            etl = Etl(http)
            task = etl.done("a.md", TEXT, rule_id=a_rule(etl, "plain"))
            asked = len(peer.bodies())
            again = etl.done("b.md", TEXT + b"\n", rule_id=a_rule(etl, "plain too"))
            long = etl.wait(etl.submit("c.md", b"word " * 9_000, rule_id=a_rule(etl, "dear")))

    assert task["result"] == again["result"]
    assert (3, 4) == (asked, len(peer.bodies()))
    assert "additionalProperties" in peer.bodies()[-1]["messages"][0]["content"]
    assert "llm_budget" == long["metadata"]["error_code"]
    assert "caption_method" not in json.dumps(task)


def test_a_long_document_is_read_in_pieces_and_none_is_dropped(etl: Etl, peer: ModelPeer) -> None:
    chapters = [f"# Chapter {number}\n\nMark-{number:03d} {'lorem ipsum ' * 400}\n\n" for number in range(30)]
    text = "".join(chapters) + TEXT.decode()
    seen: list[str] = []

    def note(messages: list[dict[str, Any]]) -> str:
        asked = messages[1]["content"]
        if "Part " not in asked.split("<document>")[0]:
            return json.dumps({"invoice_number": "2026-0147", "invoice_date": "2026-03-02", "total": 333})
        seen.append(asked.split("<document>\n")[1].split("\n</document>")[0])
        return "Invoice 2026-0147" if "0147" in asked else "NOTHING"

    peer.answers = [note]

    task = etl.done("long.md", text.encode(), rule_id=a_rule(etl, "long", postprocess_strategy="chunked-summarize"))
    told = extraction(etl, task["task_id"])

    assert ("chunked-summarize", len(seen)) == (told["strategy"], told["pieces"])
    assert len(seen) >= 3
    assert all(len(piece) <= 50_000 for piece in seen)
    assert all(any(f"Mark-{number:03d}" in piece for piece in seen) for number in range(30))
    assert {"/invoice_number": "verbatim"}.items() <= {
        one["pointer"]: one["found"] for one in told["provenance"]
    }.items()
    assert "Part 1:\nNOTHING" in peer.bodies()[-1]["messages"][1]["content"]


def test_a_rule_is_tried_without_being_saved(etl: Etl, peer: ModelPeer) -> None:
    task = etl.done("try.md", TEXT)
    document = task["metadata"]["document_id"]
    rules = etl.get("/rules").json()["total"]
    draft = {"name": "draft", "json_schema": INVOICE_SCHEMA}

    good = etl.post("/rules/test", json={"rule": draft, "task_id": task["task_id"]}).json()
    by_document = etl.post("/rules/test", json={"rule": draft, "document_id": document}).json()
    peer.answers = ["no"]
    bad = etl.post("/rules/test", json={"rule": draft, "task_id": task["task_id"]}).json()
    skip = etl.post("/rules/test", json={"rule_id": task["rule_id"], "task_id": task["task_id"]}).json()

    assert (True, "2026-0147") == (good["valid"], good["output"]["invoice_number"])
    assert good["output"] == by_document["output"]
    assert (False, "llm_answer_invalid", "no") == (bad["valid"], bad["error_code"], bad["extraction"]["answer"])
    assert {"try": {"filename": "try.md", "content": TEXT.decode()}} == skip["output"]
    assert rules == etl.get("/rules").json()["total"]
    assert task["result"] == etl.task(task["task_id"])["result"]
    assert 404 == etl.get(f"/tasks/{task['task_id']}/extraction").status_code


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 422, "request_invalid"),
        ({"rule_id": 1, "rule": {"name": "x"}, "task_id": 1}, 422, "request_invalid"),
        ({"rule_id": 999, "task_id": 1}, 404, "rule_not_found"),
        ({"rule_id": 1, "task_id": 99999}, 404, "task_not_found"),
        ({"rule_id": 1, "document_id": "00000000-0000-4000-8000-000000000000"}, 404, "document_not_found"),
        ({"rule": {"name": "x", "json_schema": {"type": "nope"}}, "task_id": 1}, 422, "rule_schema_invalid"),
    ],
)
def test_a_trial_that_cannot_be(etl: Etl, body: dict[str, Any], status: int, code: str) -> None:
    answer = etl.post("/rules/test", json=body)

    assert (status, code) == (answer.status_code, answer.json()["code"])


def test_a_document_that_must_not_leave_is_shown_to_no_model_outside(etl: Etl, peer: ModelPeer) -> None:
    rule, wish = a_rule(etl, "home"), {"stay_home": True}

    task = etl.wait(etl.submit("home.md", TEXT, rule_id=rule, options=wish))
    report = etl.done("report.en.pdf", (SAMPLES / "report.en.pdf").read_bytes(), options=wish)

    assert ("failed", "llm_forbidden") == (task["status"], task["metadata"]["error_code"])
    assert any("llm_forbidden" in event["data"] for event in etl.events(report["task_id"]))
    assert [] == peer.bodies()


def test_docmill_rules_test(etl: Etl, served: Service, peer: ModelPeer, tmp_path: Path) -> None:
    task = etl.done("cli.md", TEXT)["task_id"]
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(INVOICE_SCHEMA))

    good = docmill(served, "rules", "test", "--schema", str(schema), "--task", str(task))
    peer.answers = ["never"]
    bad = docmill(served, "rules", "test", "--schema", str(schema), "--task", str(task), "--json")
    wrong = docmill(served, "rules", "test", "--task", str(task))

    assert 0 == good.returncode, good.stderr
    assert '"invoice_number": "2026-0147"' in good.stdout
    assert "normalised" in good.stdout
    assert (1, "never") == (bad.returncode, json.loads(bad.stdout)["extraction"]["answer"])
    assert 2 == wrong.returncode


def docmill(served: Service, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "docmill", *words],
        capture_output=True,
        text=True,
        env=os.environ | {"DOCMILL_URL": served.url},
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("answer", "fault", "method", "text"),
    [
        ({"caption": "A chart of sales.", "confidence": 0.9}, None, "vlm_caption", "A chart of sales."),
        ({"caption": "A chart?", "confidence": 0.3}, None, None, None),
        ("nonsense", None, None, None),
        (None, Fault("POST", CHAT, status=500, times=99), None, None),
        (None, Fault("POST", CHAT, status=401, times=99), None, None),
    ],
    ids=["sure", "unsure", "nonsense", "broken", "refused"],
)
def test_images_get_captions_and_a_failing_captioner_loses_nothing(
    etl: Etl, peer: ModelPeer, answer: Any, fault: Fault | None, method: str | None, text: str | None
) -> None:
    peer.answers = [answer] if answer else []
    if fault:
        peer.faults.append(fault)

    task = etl.done("report.en.pdf", (SAMPLES / "report.en.pdf").read_bytes())
    found = etl.http.get(f"/api/v1/documents/{task['metadata']['document_id']}").json()
    images = [asset for asset in found["assets"] if asset["media_type"].startswith("image/")]

    assert images
    for image in images:
        fallback = "ocr_only" if image["ocr_text"] else "none"
        description = text if method else cut(image["ocr_text"])
        assert (method or fallback, description) == (image["caption_method"], image["text_description"])
        assert (MODEL if method else None) == image["caption_model"]
    if method:
        words = peer.bodies()[0]["messages"][1]["content"][0]["text"]
        assert len(words.encode()) < 512 * 2 + 4_000
    else:
        assert (
            method
            or answer == {"caption": "A chart?", "confidence": 0.3}
            or any("captions_missing" == event["kind"] for event in etl.events(task["task_id"]))
        )


def cut(text: str | None) -> str | None:
    return text.encode()[:2048].decode("utf-8", "ignore") if text else None
