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
from docmill.core.task import Fault, WorkerError
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
    def read_report(body: bytes | str | dict[str, Any]) -> Outcome:
        raw = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
        return Secretary().read(read(raw, tmp_path, SPILLS))

    return read_report


@pytest.fixture
def refused(said: Any) -> Any:
    def why(body: str | dict[str, Any]) -> str:
        with pytest.raises(BadRequest) as error:
            said(body)
        return str(error.value.facts["why"])

    return why


def texts(report: Final) -> list[tuple[int, str]]:
    """The pages' numbers and texts."""
    return [
        (page.number, page.path.read_bytes()[page.start : page.start + page.size].decode()) for page in report.pages
    ]


NO_REASON = "The worker reported a failure and gave no reason."


def completed(**data: Any) -> dict[str, Any]:
    return {"phase": "completed", "data": data}


# Progress


def test_the_seeds_progress_reports(said: Any) -> None:
    assert Progress(42.0, "extract_text", "Seite 12/28 verarbeitet", "sec-1234") == said(SEED_PROGRESS)
    assert Progress(55.0, "extract_text", "Seite 14/26 verarbeitet", "sec-98765") == said(SEED_PROGRESS_REQUEST)


def test_progress_may_say_little(said: Any) -> None:
    assert Progress(phase="queued") == said({"phase": "queued", "progress": None, "message": None, "process": None})
    assert Progress(phase="x") == said({"phase": "x", "process": "sec-1"})
    assert Progress(0.0, process_id="7") == said({"progress": 0, "process": {"id": 7}})


@pytest.mark.parametrize("body", [{}, {"phase": None, "data": None}, {"process": {"id": 7}, "status": "ok"}])
def test_a_body_that_says_nothing_is_refused(body: dict[str, Any], refused: Any) -> None:
    assert "it has none of phase, progress, message, data, error" == refused(body)


@pytest.mark.parametrize(
    ("given", "percent"),
    [(0, 0.0), (42.5, 42.5), ("42", 42.0), (" 42.5 ", 42.5), (100, 100.0), ("-0", 0.0)],
)
def test_progress_is_read_leniently(given: Any, percent: float, said: Any) -> None:
    assert Progress(percent) == said({"progress": given})


@pytest.mark.parametrize("given", [-1, 101, 1e300, "1000", -0.001, 2**62])
def test_progress_outside_of_0_to_100_is_refused(given: Any, refused: Any) -> None:
    assert "progress is not between 0 and 100" == refused({"progress": given})


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
    assert [(1, "...")] == texts(report)
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
    for name in ("images_archive_url", "pages_archive_url", "mistral_ocr_images_url", "archive_url"):
        assert Final(archive_urls={name: "/api/jobs/1/zip"}) == said(completed(**{name: "/api/jobs/1/zip"}))
    assert Final(text_url="/api/jobs/1/md") == said(completed(markdown_url="/api/jobs/1/md"))
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
    names = (
        "extracted_text", "images_archive_data", "images_archive_url", "pages_archive_url", "mistral_ocr_images_url",
        "archive_url", "markdown_url", "result_key",
    )  # fmt: skip
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

    assert [(1, "a"), (2, "b"), (3, "")] == texts(report)
    assert 5 == report.facts["pages_ignored"]


def test_pages_share_one_file_and_may_be_larger_than_what_is_kept_in_memory(said: Any, tmp_path: Path) -> None:
    contents = [{"page": n, "content": chr(64 + n) * 1024**2} for n in range(1, 13)]

    report = said(completed(extracted_text="all", metadata={"text_contents": contents}))

    assert [(n, 1024**2, chr(64 + n)) for n in range(1, 13)] == [(n, len(text), text[0]) for n, text in texts(report)]
    assert 1 == len({page.path for page in report.pages})
    assert 2 == len(list(tmp_path.iterdir()))


def test_what_no_store_can_hold_is_removed_from_texts_and_counted(said: Any) -> None:
    body = rb"""{"phase": "completed", "data": {
        "extracted_text": "a\u0000b\ud800c\udc00\ud83d\ude00\\u0000 \\\ud800d",
        "metadata": {"text_contents": [{"page": 1, "content": "x\u0000\ud83d"}, {"page": 2, "content": "RAW"}]}}}"""

    report = said(body.replace(b"RAW", b"y\x00\xed\xa0\x80z"))

    assert "abc\U0001f600\\u0000 \\d" == report.text.read_text("utf-8")
    assert [(1, "x"), (2, "yz")] == texts(report)
    assert 8 == report.facts["characters_removed"]


@pytest.mark.parametrize("metadata", [None, [], "x", {}, {"text_contents": None}, {"text_contents": "x"}])
def test_metadata_that_says_nothing_does_no_harm(metadata: Any, said: Any) -> None:
    assert () == said(completed(extracted_text="a", metadata=metadata)).pages


def test_plain_values_are_read_with_a_folder_for_their_texts(tmp_path: Path) -> None:
    contents = [{"page": 2, "content": "b"}, {"page": 1, "content": "ä"}]
    value = completed(extracted_text="é", images_archive_data="QUJD", metadata={"text_contents": contents})

    report = Secretary().read(value, tmp_path)

    assert isinstance(report, Final)
    assert report.text is not None
    assert report.archive is not None
    assert ["é".encode(), b"ABC"] == [report.text.read_bytes(), report.archive.read_bytes()]
    assert [(1, "ä"), (2, "b")] == texts(report)
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
    error = WorkerError("OCR_TIMEOUT", "Timeout beim OCR-Dienst", {"service": "tesseract", "timeoutMs": 30000})
    assert Failed(
        Fault("worker_failed", "Timeout beim OCR-Dienst", "mineru", error),
        details={"code": "OCR_TIMEOUT", "details": {"service": "tesseract", "timeoutMs": 30000}},
    ) == said(SEED_FAILED)
    error = WorkerError("LLM_RATE_LIMIT", "Rate limit exceeded", {"retryAfterSec": 30})
    assert Failed(
        Fault("worker_failed", "Rate limit exceeded", "mineru", error),
        details={"code": "LLM_RATE_LIMIT", "details": {"retryAfterSec": 30}},
    ) == said(SEED_FAILED_REQUEST)


def test_details_of_an_error_that_are_too_large_to_show_everywhere_stand_in_the_log_alone(said: Any) -> None:
    large = {"trace": "x" * 9_000}
    report = said({"phase": "failed", "error": {"code": "E1", "details": large}})

    assert large == report.details["details"]
    assert WorkerError("E1", "", {"left_out_bytes": 9_012}) == report.fault.worker_error


@pytest.mark.parametrize(
    ("body", "message", "is_final"),
    [
        ({"phase": "failed"}, NO_REASON, False),
        ({"phase": " FAILED", "message": "why"}, "why", False),
        ({"phase": "failed", "error": None}, NO_REASON, False),
        ({"phase": "failed", "error": ""}, NO_REASON, False),
        ({"phase": "failed", "data": {"extracted_text": "half"}}, NO_REASON, False),
        ({"phase": "failed", "error": {}}, NO_REASON, True),
        ({"phase": "failed", "error": {"code": "E1"}}, "E1", True),
        ({"phase": "images", "error": {}}, NO_REASON, True),
        ({"error": "plain"}, "plain", True),
        ({"error": {"message": "m" * 9_999}}, "m" * 5_000, True),
        ({**completed(extracted_text="a"), "error": {"message": "no"}}, "no", True),
    ],
    ids=lambda value: str(value)[:40],
)
def test_failures_are_recognised(body: dict[str, Any], message: str, is_final: bool, said: Any) -> None:
    """Without an error it is a line of the worker's log, and perhaps not the end."""
    report = said(body)

    assert isinstance(report, Failed)
    fault = report.fault
    assert ("worker_failed", message, "mineru", is_final) == (fault.code, fault.message, fault.stage, report.is_final)


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
