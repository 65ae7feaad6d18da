"""A rule is tried from its editor: what is wrong is said beside what was typed, and nothing is saved."""

import pytest

SCHEMA = '{"type": "object", "properties": {"a": {"type": "string"}}}'
TYPED = {"name": "mine", "mode": "llm", "json_schema": SCHEMA, "strategy": "", "description": "of mine"}


async def test_without_a_document_there_is_nothing_to_try_it_on(visitor):
    page = await visitor.see("/rules/new")

    assert "Once a task has completed" in page
    assert "/rules/new/test" not in page


@pytest.mark.parametrize(
    ("task", "status", "code"),
    [("", 422, "request_invalid"), ("x", 422, "request_invalid"), ("7", 404, "task_not_found"), ("9" * 30, 422, "")],
)
async def test_a_document_that_is_not_there_is_said_beside_what_was_typed(visitor, task, status, code):
    answer = await visitor.fill("/rules/new", "/rules/new/test", **TYPED, task=task)

    assert status == answer.status_code, answer.text[:500]
    assert code in answer.text
    assert "of mine" in answer.text


async def test_a_task_without_markdown_cannot_be_tried(visitor):
    task = await visitor.submit()

    answer = await visitor.fill("/rules/new", "/rules/new/test", **TYPED, task=str(task))

    assert (409, True) == (answer.status_code, "artifact_missing" in answer.text)


async def test_a_schema_that_is_wrong_is_said_first(visitor):
    typed = TYPED | {"json_schema": '{\n"type": "strin"}'}
    answer = await visitor.fill("/rules/new", "/rules/new/test", **typed, task="1")

    assert 422 == answer.status_code
    assert "line 2" in answer.text


async def test_trying_saves_nothing_and_takes_no_foreign_form(visitor):
    await visitor.fill("/rules/new", "/rules/new/test", **TYPED, task="1")
    foreign = await visitor.http.post("/rules/new/test", data={**TYPED, "task": "1", "token": "0" * 64})

    assert 403 == foreign.status_code
    assert "No custom rules yet" in await visitor.see("/rules")
    assert 404 == (await visitor.fill("/rules/new", "/rules/99/test", **TYPED, task="1")).status_code
