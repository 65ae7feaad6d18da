"""The dialect of seed 001, with the seed's own examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docmill.core.errors import BadRequest, Conflict, Forbidden, NotFound, TooMany
from docmill.core.machine import MAX_ABSENCES
from docmill.core.reports import Cancelled, Failed, Final
from docmill.core.task import Fault, WorkerError
from docmill.dialects.dispatcher import CALLBACK_SCHEMA, Dispatcher, validation_errors
from docmill.dialects.spill import read

GUID = UUID("550e8400-e29b-41d4-a716-446655440000")

SEED_COMPLETED = """{
  "status": "completed",
  "exit_code": 0,
  "result_key": "results/550e8400-e29b-41d4-a716-446655440000/output.json",
  "result_metadata": {
    "tokens_used": 12450,
    "duration_seconds": 87
  }
}"""
SEED_FAILED = """{
  "status": "failed",
  "exit_code": 137,
  "error_message": "Container killed: OOM (memory limit 2Gi exceeded)"
}"""
SEED_OK = '{"status": "ok", "task_guid": "<uuid>"}'
SEED_BAD_REQUEST = """{
  "error": "Invalid callback payload.",
  "validation_errors": [
    "(root): 'status' is a required property"
  ]
}"""
STATUSES = "['completed', 'failed', 'timed_out', 'cancelled']"


def refused(value: Any) -> dict[str, Any] | None:
    with pytest.raises(BadRequest) as error:
        Dispatcher().read(value)
    return Dispatcher().refusal(error.value)


# Reports


def test_the_seeds_completed_report(tmp_path: Path) -> None:
    assert Final(
        result_key="results/550e8400-e29b-41d4-a716-446655440000/output.json",
        facts={"exit_code": 0, "result_metadata": {"tokens_used": 12450, "duration_seconds": 87}},
    ) == Dispatcher().read(read(SEED_COMPLETED.encode(), tmp_path))


def test_the_seeds_failed_report(tmp_path: Path) -> None:
    message = "Container killed: OOM (memory limit 2Gi exceeded)"

    fault = Fault("worker_failed", message, "mineru", WorkerError(None, message, {"exit_code": 137}))
    assert Failed(fault, details={"exit_code": 137}) == Dispatcher().read(read(SEED_FAILED.encode(), tmp_path))


def test_a_worker_s_restart_is_tried_again_as_often_as_a_worker_that_does_not_answer() -> None:
    report = Dispatcher().read({"status": "failed", "error_message": "[WORKER_RESTARTED] gone"})

    assert isinstance(report, Failed)
    assert (True, MAX_ABSENCES) == (report.retryable, report.tries)


def test_a_completed_report_may_leave_the_key_to_us() -> None:
    assert Final() == Dispatcher().read({"status": "completed"})
    assert Final() == Dispatcher().read({"status": "completed", "result_key": "", "exit_code": None})


def test_running_out_of_time_is_a_failure_of_its_own_stage() -> None:
    silent = Dispatcher().read({"status": "timed_out"})
    telling = Dispatcher().read({"status": "timed_out", "error_message": "after 60 s", "exit_code": None})

    assert Failed(Fault("task_timeout", "The worker reported that its time was up.", "timeout")) == silent
    said = WorkerError(None, "after 60 s")
    assert Failed(Fault("task_timeout", "after 60 s", "timeout", said)) == telling


def test_cancelled_stays_cancelled() -> None:
    assert Cancelled() == Dispatcher().read({"status": "cancelled"})
    assert Cancelled("by admin") == Dispatcher().read({"status": "cancelled", "error": "by admin"})


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({"error": "alias"}, "alias"),
        ({"error_message": "own", "error": "alias"}, "own"),
        ({"error_message": "", "error": "alias"}, "alias"),
        ({}, "The worker reported a failure and gave no reason."),
    ],
)
def test_error_is_another_name_of_error_message(sent: dict[str, str], message: str) -> None:
    report = Dispatcher().read({"status": "failed", **sent})

    assert isinstance(report, Failed)
    assert message == report.fault.message


def test_a_failure_keeps_what_helps_to_find_its_cause() -> None:
    value = {
        "status": "failed",
        "exit_code": 137.0,
        "log_stream": "logs/1",
        "completed_at": "2025-08-22T10:00:00Z",
        "task_id": "not kept",
        "result_metadata": {"duration": 1, "callback_token": "not kept"},
    }

    report = Dispatcher().read(value)

    assert isinstance(report, Failed)
    assert {
        "exit_code": 137,
        "log_stream": "logs/1",
        "completed_at": "2025-08-22T10:00:00Z",
        "result_metadata": {"duration": 1},
    } == report.details


# What is wrong


@pytest.mark.parametrize(
    ("value", "errors"),
    [
        ({}, ["(root): 'status' is a required property"]),
        ({"status": "x"}, [f"status: 'x' is not one of {STATUSES}"]),
        ({"status": "Completed"}, [f"status: 'Completed' is not one of {STATUSES}"]),
        ({"status": None}, ["status: None is not of type 'string'", f"status: None is not one of {STATUSES}"]),
        (
            {"status": "failed", "foo": 1},
            ["(root): Additional properties are not allowed ('foo' was unexpected)"],
        ),
        (
            {"status": "failed", "foo": 1, "bar": 2},
            ["(root): Additional properties are not allowed ('bar', 'foo' were unexpected)"],
        ),
        ({"status": "failed", "exit_code": "a"}, ["exit_code: 'a' is not of type 'integer', 'null'"]),
        ({"status": "failed", "exit_code": 1.5}, ["exit_code: 1.5 is not of type 'integer', 'null'"]),
        ({"status": "failed", "exit_code": True}, ["exit_code: True is not of type 'integer', 'null'"]),
        ({"status": "failed", "result_key": None}, ["result_key: None is not of type 'string'"]),
        ({"status": "failed", "result_metadata": [1]}, ["result_metadata: [1] is not of type 'object'"]),
        ({"status": "failed", "result_key": "k" * 501}, [f"result_key: '{'k' * 501}' is too long"]),
        ({"status": "failed", "error": "e" * 5_001}, [f"error: '{'e' * 5_001}' is too long"]),
        ({"status": "failed", "error_message": "é" * 5_001}, [f"error_message: '{'é' * 5_001}' is too long"]),
        ({"status": "failed", "log_stream": "l" * 1_001}, [f"log_stream: '{'l' * 1_001}' is too long"]),
        ({"status": "failed", "completed_at": "gestern"}, ["completed_at: 'gestern' is not a 'date-time'"]),
        ({"status": "failed", "task_id": 5}, ["task_id: 5 is not of type 'string'"]),
        ([], ["(root): [] is not of type 'object'"]),
        (
            {"zeta": 1, "log_stream": 5, "exit_code": "a"},
            [
                "(root): 'status' is a required property",
                "(root): Additional properties are not allowed ('zeta' was unexpected)",
                "exit_code: 'a' is not of type 'integer', 'null'",
                "log_stream: 5 is not of type 'string'",
            ],
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_every_error_is_told_at_once_in_the_seeds_words(value: Any, errors: list[str]) -> None:
    assert {"error": "Invalid callback payload.", "validation_errors": errors} == refused(value)


def test_the_seeds_bad_request() -> None:
    assert json.loads(SEED_BAD_REQUEST) == refused({})


@pytest.mark.parametrize("name", ["result_key", "error_message", "error", "log_stream"])
def test_texts_may_be_as_long_as_the_seed_says(name: str) -> None:
    limit = {"result_key": 500, "log_stream": 1_000}.get(name, 5_000)

    assert [] == validation_errors({"status": "failed", name: "😀" * limit})


@pytest.mark.parametrize(
    "moment",
    [
        "2025-08-22T10:00:00Z",
        "2025-08-22T10:00:00+02:00",
        "2025-08-22T10:00:00.123456789Z",
        "2025-08-22T10:00:00",
        "2025-08-22 10:00:00",
        "20250822T100000Z",
    ],
)
def test_moments_are_iso_8601(moment: str) -> None:
    assert [] == validation_errors({"status": "failed", "completed_at": moment})


@pytest.mark.parametrize("moment", ["", "2025", "2025-08-22", "2025-13-01T00:00:00Z", "2025-08-22X10:00", "T", "٢٠٢٥"])
def test_what_is_no_moment_is_refused(moment: str) -> None:
    assert [f"completed_at: {moment!r} is not a 'date-time'"] == validation_errors(
        {"status": "failed", "completed_at": moment}
    )


def test_broken_json_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(BadRequest) as error:
        read(b'{"status": completed}', tmp_path)

    assert {
        "error": "Invalid callback payload.",
        "validation_errors": ["(root): the JSON is broken at byte 11: a value was expected"],
    } == Dispatcher().refusal(error.value)


def test_huge_nonsense_is_not_repeated_whole() -> None:
    many = {"status": "x" * 1_000_000, **{f"field_{n:06}": n for n in range(20_000)}}

    errors = validation_errors(many)

    assert 2 == len(errors)
    assert max(len(error) for error in errors) < 13_000
    assert errors[0].endswith(", … were unexpected)")


ANY_VALUE = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.lists(st.none())
)
FIELDS = st.sampled_from([*CALLBACK_SCHEMA["properties"], "foo"])


@given(st.dictionaries(FIELDS, ANY_VALUE | st.sampled_from(["completed", "failed"])))
def test_what_the_schema_allows_is_read_and_nothing_else(value: dict[str, Any]) -> None:
    plain = {key: inner for key, inner in CALLBACK_SCHEMA["properties"].items() if key != "completed_at"}
    bare = jsonschema_rs.is_valid(
        CALLBACK_SCHEMA | {"properties": {**plain, "completed_at": {"type": "string"}}}, value
    )

    errors = validation_errors(value)

    if not bare:
        assert errors
    if not errors:
        Dispatcher().read(value)


def test_the_schema_is_a_schema() -> None:
    assert jsonschema_rs.meta.is_valid(CALLBACK_SCHEMA)
    assert ["status"] == CALLBACK_SCHEMA["required"]


# Replies


def test_the_reply_is_the_seeds() -> None:
    expected = json.loads(SEED_OK.replace("<uuid>", str(GUID)))

    assert expected == Dispatcher().reply(Final(), GUID)


def test_other_refusals_carry_a_sentence_and_a_code() -> None:
    refusals = [
        Dispatcher().refusal(error)
        for error in (
            Forbidden("callback_token_invalid"),
            NotFound("job_not_found", job=GUID),
            Conflict("callback_conflict"),
            TooMany("rate_limited", retry_after=7),
        )
    ]

    assert [
        {"error": "The callback token is missing or wrong.", "code": "callback_token_invalid"},
        {"error": f"There is no job {GUID}.", "code": "job_not_found"},
        {"error": "The job has already ended with another report.", "code": "callback_conflict"},
        {"error": "Too many requests. Try again in 7 seconds.", "code": "rate_limited"},
    ] == refusals
