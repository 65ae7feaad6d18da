"""The dialect of seed 000, with the seed's own examples."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from docmill.core.errors import BadRequest
from docmill.core.machine import MAX_ABSENCES
from docmill.core.reports import Cancelled, Failed, Final, Progress
from docmill.core.task import Fault
from docmill.dialects.base import MAX_DETAILS, Outcome
from docmill.dialects.secretary import DATA_SPILLS, SPILLS, Secretary
from docmill.dialects.spill import read

JOB = UUID("4e2f4a09-0000-4000-8000-000000000000")

SEED_PROGRESS = """{
  "phase": "extract_text",
  "progress": 42,
  "message": "Seite 12/28 verarbeitet",
  "process": { "id": "sec-1234" }
}"""
SEED_FINAL = """{
  "phase": "completed",
  "message": "Extraktion abgeschlossen",
  "data": {
    "extracted_text": "<vollständiger Markdown-/Textinhalt>",
    "images_archive_data": "UEsDB... (base64)",
    "images_archive_filename": "pdf_images.zip",
    "metadata": {
      "text_contents": [
        { "page": 1, "content": "..." }
      ]
    }
  }
}"""
SEED_FAILED = """{
  "phase": "failed",
  "error": {
    "code": "OCR_TIMEOUT",
    "message": "Timeout beim OCR-Dienst",
    "details": { "service": "tesseract", "timeoutMs": 30000 }
  }
}"""
SEED_PROGRESS_REQUEST = """{
  "phase": "extract_text",
  "progress": 55,
  "message": "Seite 14/26 verarbeitet",
  "process": { "id": "sec-98765" }
}"""
SEED_FINAL_REQUEST = """{
  "phase": "completed",
  "data": {
    "extracted_text": "...",
    "images_archive_data": "UEsDB...",
    "images_archive_filename": "pdf_images.zip",
    "metadata": {
      "text_contents": [{ "page": 1, "content": "..." }]
    }
  }
}"""
SEED_FAILED_REQUEST = """{
  "phase": "failed",
  "error": {
    "code": "LLM_RATE_LIMIT",
    "message": "Rate limit exceeded",
    "details": { "retryAfterSec": 30 }
  }
}"""


@pytest.fixture
def said(tmp_path: Path) -> Any:
    def read_report(body: str | dict[str, Any]) -> Outcome:
        raw = body if isinstance(body, str) else json.dumps(body)
        return Secretary().read(read(raw.encode(), tmp_path, SPILLS))

    return read_report


@pytest.fixture
def refused(said: Any) -> Any:
    def why(body: str | dict[str, Any]) -> str:
        with pytest.raises(BadRequest) as error:
            said(body)
        return str(error.value.facts["why"])

    return why


def completed(**data: Any) -> dict[str, Any]:
    return {"phase": "completed", "data": data}


# Progress


def test_the_seeds_progress_reports(said: Any) -> None:
    assert Progress(42.0, "extract_text", "Seite 12/28 verarbeitet", "sec-1234") == said(SEED_PROGRESS)
    assert Progress(55.0, "extract_text", "Seite 14/26 verarbeitet", "sec-98765") == said(SEED_PROGRESS_REQUEST)


def test_progress_may_say_little(said: Any) -> None:
    assert Progress() == said("{}")
    assert Progress(phase="queued") == said({"phase": "queued", "progress": None, "message": None, "process": None})
    assert Progress(phase="x") == said({"phase": "x", "process": "sec-1"})
    assert Progress(process_id="7") == said({"process": {"id": 7}})


@pytest.mark.parametrize(
    ("given", "percent"),
    [(0, 0.0), (42.5, 42.5), ("42", 42.0), (" 42.5 ", 42.5), (-1, 0.0), (101, 100.0), (1e300, 100.0), ("1000", 100.0)],
)
def test_progress_is_read_leniently(given: Any, percent: float, said: Any) -> None:
    assert Progress(percent) == said({"progress": given})


@pytest.mark.parametrize("given", ["NaN", "", "4_2", "٤٢", "0x2A", "42%", "inf", True, [], {}])
def test_progress_that_is_no_number_is_refused(given: Any, refused: Any) -> None:
    assert "progress is not a number" == refused({"progress": given})


def test_nan_is_refused_in_plain_values_too() -> None:
    for given in (float("nan"), float("inf")):
        with pytest.raises(BadRequest, match="progress is not a number"):
            Secretary().read({"progress": given})


def test_unknown_fields_and_those_that_must_not_be_sent_are_not_kept(said: Any) -> None:
    sent = {
        "correlation": {"a": "canary"},
        "jobId": "canary",
        "callback_token": "canary",
        "token": "canary",
        "x": "canary",
    }

    for report in (
        said({"phase": "images", **sent}),
        said({**completed(extracted_text="a", **sent), **sent}),
        said({"phase": "failed", "error": {"code": "E", "details": {"nested": [sent], "left": 1}, **sent}, **sent}),
    ):
        assert "canary" not in repr(report).replace("'x': 'canary'", "")


def test_long_texts_are_cut(said: Any) -> None:
    report = said({"phase": "p" * 999, "message": "m" * 9_999, "process": {"id": "i" * 999}})

    assert [200, 1_000, 200] == [len(text) for text in (report.phase, report.message, report.process_id)]


@pytest.mark.parametrize("value", [[], "text", 5, None, True])
def test_a_body_that_is_no_object_is_refused(value: Any) -> None:
    with pytest.raises(BadRequest, match="not a JSON object"):
        Secretary().read(value)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"phase": 5}, "phase is not a text"),
        ({"message": ["a"]}, "message is not a text"),
        ({"data": []}, "data is not an object"),
        (completed(extracted_text=5), "data.extracted_text is not a text"),
        (completed(images_archive_data={}), "data.images_archive_data is not a text"),
        (
            completed(images_archive_data="***"),
            "data.images_archive_data is not base64: its length is not a multiple of 4",
        ),
        (completed(images_archive_url="u" * 2_001), "data.images_archive_url has more than 2000 characters"),
        ({"error": {"message": 5}}, "error.message is not a text"),
    ],
)
def test_fields_of_a_wrong_type_are_refused(body: dict[str, Any], told: str, refused: Any) -> None:
    assert told == refused(body)


# Final reports


def test_the_seeds_final_report_with_a_real_archive(said: Any) -> None:
    archive = b"PK\x03\x04 a real one"
    body = SEED_FINAL.replace("UEsDB... (base64)", b64encode(archive).decode())

    report = said(body)

    assert isinstance(report, Final)
    assert report.text is not None
    assert report.archive is not None
    assert "<vollständiger Markdown-/Textinhalt>" == report.text.read_text("utf-8")
    assert archive == report.archive.read_bytes()
    assert ((1, "..."),) == report.pages
    assert "Extraktion abgeschlossen" == report.message
    assert "pdf_images.zip" == report.facts["archive_filename"]
    assert [len(archive), 37] == [report.facts["archive_size"], report.facts["text_size"]]


def test_the_seeds_final_request(said: Any) -> None:
    report = said(SEED_FINAL_REQUEST.replace("UEsDB...", "UEsDBA=="))

    assert ["...", b"PK\x03\x04"] == [report.text.read_text(), report.archive.read_bytes()]


@pytest.mark.parametrize("seed", [SEED_FINAL, SEED_FINAL_REQUEST])
def test_the_seeds_stand_in_for_base64_is_called_what_it_is(seed: str, refused: Any) -> None:
    assert "data.images_archive_data is not base64" == refused(seed)


@pytest.mark.parametrize("phase", ["completed", "Completed ", "images", None])
def test_a_report_with_a_result_is_final_whatever_its_phase(phase: str | None, said: Any) -> None:
    assert isinstance(said({"phase": phase, "data": {"extracted_text": "a"}}), Final)
    assert isinstance(said({"phase": phase, "data": {"images_archive_data": "QUJD"}}), Final)


def test_results_may_lie_elsewhere(said: Any) -> None:
    assert Final(archive_url="https://worker/a.zip") == said(completed(images_archive_url="https://worker/a.zip"))
    assert Final(result_key="jobs/1/result.md", process_id="p") == said(
        {**completed(result_key="jobs/1/result.md"), "process": {"id": "p"}}
    )


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"extracted_text": None},
        {"images_archive_data": ""},
        {"images_archive_url": "", "result_key": ""},
        {"images_archive_filename": "a.zip", "metadata": {}},
    ],
    ids=str,
)
def test_a_final_report_without_a_result_is_refused(data: dict[str, Any], refused: Any) -> None:
    names = ("extracted_text", "images_archive_data", "images_archive_url", "result_key")
    told = f"a final report needs one of {', '.join(f'data.{name}' for name in names)}"

    assert told == refused(completed(**data))
    assert told == refused({"phase": "completed"})


def test_an_empty_text_is_a_result(said: Any) -> None:
    assert b"" == said(completed(extracted_text="")).text.read_bytes()


def test_pages_are_sorted_and_nonsense_among_them_is_counted(said: Any) -> None:
    contents = [
        {"page": 2, "content": "b"},
        {"page": "1", "content": "a"},
        {"page": 3.0, "content": ""},
        {"page": 0, "content": "x"},
        {"page": True, "content": "x"},
        {"page": 4},
        "x",
        {"content": "x"},
    ]

    report = said(completed(extracted_text="ab", metadata={"text_contents": contents}))

    assert ((1, "a"), (2, "b"), (3, "")) == report.pages
    assert 5 == report.facts["pages_ignored"]


@pytest.mark.parametrize("metadata", [None, [], "x", {}, {"text_contents": None}, {"text_contents": "x"}])
def test_metadata_that_says_nothing_does_no_harm(metadata: Any, said: Any) -> None:
    assert () == said(completed(extracted_text="a", metadata=metadata)).pages


def test_plain_values_are_read_with_a_folder_for_their_texts(tmp_path: Path) -> None:
    value = completed(extracted_text="é", images_archive_data="QUJD")

    report = Secretary().read(value, tmp_path)

    assert isinstance(report, Final)
    assert report.text is not None
    assert report.archive is not None
    assert ["é".encode(), b"ABC"] == [report.text.read_bytes(), report.archive.read_bytes()]
    with pytest.raises(ValueError, match="folder"):
        Secretary().read(value)
    with pytest.raises(BadRequest, match="not base64"):
        Secretary().read(completed(images_archive_data="QUJD*"), tmp_path)


def test_a_stored_result_holds_the_data_alone(tmp_path: Path) -> None:
    value = read(b'{"extracted_text": "# A", "images_archive_data": "QUJD"}', tmp_path, DATA_SPILLS)

    report = Secretary().read_data(value)

    assert report.text is not None
    assert "# A" == report.text.read_text()
    with pytest.raises(BadRequest, match="not a JSON object"):
        Secretary().read_data([])


# Failures


def test_the_seeds_failures(said: Any) -> None:
    assert Failed(
        Fault("worker_failed", "Timeout beim OCR-Dienst", "mineru"),
        details={"code": "OCR_TIMEOUT", "details": {"service": "tesseract", "timeoutMs": 30000}},
    ) == said(SEED_FAILED)
    assert Failed(
        Fault("worker_failed", "Rate limit exceeded", "mineru"),
        details={"code": "LLM_RATE_LIMIT", "details": {"retryAfterSec": 30}},
    ) == said(SEED_FAILED_REQUEST)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"phase": "failed"}, "The worker reported a failure and gave no reason."),
        ({"phase": " FAILED", "message": "why"}, "why"),
        ({"phase": "failed", "error": None}, "The worker reported a failure and gave no reason."),
        ({"phase": "failed", "error": {"code": "E1"}}, "E1"),
        ({"phase": "images", "error": {}}, "The worker reported a failure and gave no reason."),
        ({"error": "plain"}, "plain"),
        ({"error": {"message": "m" * 9_999}}, "m" * 5_000),
        ({**completed(extracted_text="a"), "error": {"message": "no"}}, "no"),
        ({"phase": "failed", "data": {"extracted_text": "half"}}, "The worker reported a failure and gave no reason."),
    ],
    ids=lambda value: str(value)[:40],
)
def test_failures_are_recognised(body: dict[str, Any], message: str, said: Any) -> None:
    report = said(body)

    assert isinstance(report, Failed)
    assert Fault("worker_failed", message, "mineru") == report.fault


def test_a_worker_s_restart_is_tried_again_as_often_as_a_worker_that_does_not_answer(said: Any) -> None:
    report = said({"phase": "failed", "error": {"code": "WORKER_RESTARTED", "message": "gone"}})

    assert (True, MAX_ABSENCES) == (report.retryable, report.tries)


def test_an_empty_error_does_not_spoil_a_completed_report(said: Any) -> None:
    assert isinstance(said({**completed(extracted_text="a"), "error": {}}), Final)


def test_details_that_are_too_many_are_left_out(said: Any) -> None:
    report = said({"phase": "failed", "error": {"details": {"log": "x" * MAX_DETAILS}}})

    assert {"details": {"left_out_bytes": MAX_DETAILS + 10}} == report.details


# Replies


def test_replies_are_the_seeds() -> None:
    def reply(report: Outcome, *, cancel: bool = False) -> dict[str, Any]:
        return Secretary().reply(report, JOB, cancel_requested=cancel)

    failed = Failed(Fault("worker_failed", "", "mineru"))
    assert {"status": "ok", "kind": "progress", "jobId": str(JOB)} == reply(Progress())
    assert {"status": "ok", "kind": "final", "jobId": str(JOB)} == reply(Final(), cancel=True)
    assert {"status": "ok", "kind": "failed", "jobId": str(JOB)} == reply(failed, cancel=True)
    assert {"status": "ok", "kind": "failed", "jobId": str(JOB)} == reply(Cancelled())
    assert {"status": "ok", "kind": "progress", "jobId": str(JOB), "cancel_requested": True} == reply(
        Progress(), cancel=True
    )


def test_errors_have_no_form_of_their_own() -> None:
    assert None is Secretary().refusal(BadRequest("callback_payload_invalid", why=""))
