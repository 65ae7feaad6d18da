"""A task as clients see it: the encoded face of a task that runs is moved on without being encoded anew."""

from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docmill.core.face import MAX_LISTED_RESULT_BYTES, face_of, insert_result, listed_result, moved, omit_result
from docmill.core.task import Stage, Status, Task

LATEST_MS = 253_402_300_799_999
"""The last moment of the year 9999."""


def running(filename: str) -> Task:
    return Task(
        7, "acme", "anna", 1, filename, "users/anna/raw/1/x.pdf", 1, Status.RUNNING, Stage.PARSE,
        attempt=1, attempt_id=None, version=1, event_seq=1, created_ms=1, updated_ms=2,
    )  # fmt: skip


def encoded(task: Task) -> str:
    return msgspec.json.encode(face_of(task)).decode()


def decoded(task: Task) -> dict[str, Any]:
    return cast("dict[str, Any]", msgspec.json.decode(encoded(task)))


@given(st.text(), st.integers(0, 100), st.integers(0, LATEST_MS))
def test_a_moved_face_is_that_of_the_task_as_it_is_now(filename: str, progress: int, updated_ms: int) -> None:
    task = running(filename)
    assert encoded(replace(task, progress=progress, updated_ms=updated_ms)) == moved(
        encoded(task), progress, updated_ms
    )


@pytest.mark.parametrize("filename", [',"progress":5,"created_at":"', '","progress":1,"x":"', '\\",\\"progress\\":7'])
def test_a_name_that_looks_like_a_face_does_not_mislead(filename: str) -> None:
    task = running(filename)
    assert encoded(replace(task, progress=55, updated_ms=99)) == moved(encoded(task), 55, 99)


@given(st.text(), st.text())
def test_a_result_is_spliced_into_an_encoded_face(filename: str, content: str) -> None:
    task = replace(running(filename), status=Status.COMPLETED)
    result = {"stem": {"filename": filename, "content": content}}

    spliced = insert_result(encoded(task), listed_result(msgspec.json.encode(result)))

    assert decoded(task) | {"result": result} == msgspec.json.decode(spliced)


@pytest.mark.parametrize(
    "filename", [',"result":null', '","result":null,"', ',"result_omitted":false,"result_error":null']
)
@pytest.mark.parametrize("error", [None, "object_not_found"])
def test_an_omitted_result_is_said_in_the_metadata_alone(filename: str, error: str | None) -> None:
    task = replace(running(filename), status=Status.COMPLETED)

    found = msgspec.json.decode(omit_result(encoded(task), error))

    said = {"result_omitted": error is None, "result_error": error}
    assert decoded(task) | {"metadata": decoded(task)["metadata"] | said} == found


def test_only_a_small_output_is_kept_for_lists() -> None:
    assert "x" * MAX_LISTED_RESULT_BYTES == listed_result(b"x" * MAX_LISTED_RESULT_BYTES)
    assert "" == listed_result(b"x" * (MAX_LISTED_RESULT_BYTES + 1))
