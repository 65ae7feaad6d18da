"""The OpenAPI document is complete, and everything that it shows is true to its own schemas."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from docmill.core.webhooks import KINDS, TEST

METHODS = ("get", "put", "post", "delete", "patch")
SEEDS = re.compile(r"/v1/convert/|/api/v4/|/api/external/jobs/[^/]+$|/api/v1/tasks/[^/]+/callback$")
"""Bodies that other products define. Most ignore unknown fields; the tests of the dialects say which do not."""
SURPRISE = "surprising_field"


_read_once: dict[str, Any] = {}


@pytest.fixture
async def document(desk: Any) -> dict[str, Any]:
    if not _read_once:
        _read_once.update((await desk.http.get("/openapi.json")).json())
    return _read_once


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for place in ("paths", "webhooks"):
        for path, item in document[place].items():
            for method in METHODS:
                if method in item:
                    yield path, method, item[method]


def contents(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every body of every request and answer, with its place."""
    for path, method, operation in operations(document):
        if body := operation.get("requestBody"):
            for media, content in body["content"].items():
                yield f"{method} {path} body {media}", content
        for status, response in operation["responses"].items():
            for media, content in response.get("content", {}).items():
                yield f"{method} {path} {status} {media}", content


def nodes(value: Any, place: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        yield place, value
        for name, one in value.items():
            yield from nodes(one, f"{place}/{name}")
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from nodes(one, f"{place}/{index}")


def validator(document: dict[str, Any], schema: dict[str, Any]) -> Draft202012Validator:
    registry = Registry().with_resource("urn:openapi", Resource(document, DRAFT202012))

    def absolute(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: f"urn:openapi{one}" if name == "$ref" and one.startswith("#") else absolute(one)
                for name, one in value.items()
            }
        return [absolute(one) for one in value] if isinstance(value, list) else value

    return Draft202012Validator(absolute(schema), registry=registry, format_checker=FormatChecker())


async def test_the_document_says_what_the_service_is(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1.")
    assert {"name": "Apache License 2.0", "identifier": "Apache-2.0"} == document["info"]["license"]
    assert "contact" not in document["info"]
    assert "/" == document["servers"][-1]["url"]
    described = {tag["name"] for tag in document["tags"] if tag["description"]}
    assert described == {tag for _, _, operation in operations(document) for tag in operation["tags"]}


async def test_operation_ids_are_short_unique_and_in_snake_case(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(document)]

    assert len(ids) == len(set(ids))
    assert [] == [one for one in ids if not re.fullmatch(r"[a-z]+(_[a-z]+){1,4}", one)]
    assert {"submit_task", "get_task", "follow_task", "report_to_job", "report_end_of_job"} <= set(ids)


async def test_every_operation_parameter_body_and_answer_is_described(document: dict[str, Any]) -> None:
    missing = []
    for path, method, operation in operations(document):
        place = f"{method} {path}"
        if not operation.get("summary") or not operation.get("description", "").endswith("."):
            missing.append(place)
        missing += [f"{place} {one['name']}" for one in operation.get("parameters", ()) if not one.get("description")]
        if "requestBody" in operation and not operation["requestBody"].get("description"):
            missing.append(f"{place} body")
        for status, response in operation["responses"].items():
            if not response.get("description", "").endswith("."):
                missing.append(f"{place} {status}")

    assert [] == missing


async def test_every_body_and_answer_has_an_example(document: dict[str, Any]) -> None:
    def is_file(content: dict[str, Any]) -> bool:
        return content.get("schema", {}).get("format") == "binary"

    missing = [
        place
        for place, content in contents(document)
        if "example" not in content and not content.get("examples") and not is_file(content)
    ]

    assert [] == missing


async def test_every_example_is_valid_by_its_schema(document: dict[str, Any]) -> None:
    wrong = []
    for place, content in contents(document):
        shown = [content["example"]] if "example" in content else []
        for example in content.get("examples", {}).values():
            name = example["$ref"].rpartition("/")[2]
            shown.append(document["components"]["examples"][name]["value"])
        check = validator(document, content["schema"])
        wrong += [
            f"{place}: {error.json_path} {error.message[:200]}" for one in shown for error in check.iter_errors(one)
        ]

    assert [] == wrong


async def test_every_example_of_a_parameter_is_valid_by_its_schema(document: dict[str, Any]) -> None:
    wrong, without = [], []
    for path, _, operation in operations(document):
        for parameter in operation.get("parameters", ()):
            if "example" in parameter:
                check = validator(document, parameter["schema"])
                wrong += [
                    f"{path} {parameter['name']}: {one.message}" for one in check.iter_errors(parameter["example"])
                ]
            elif parameter["in"] == "path":
                without.append(f"{path} {parameter['name']}")

    assert ([], []) == (wrong, without)


async def test_every_schema_is_one_and_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    for place, node in nodes(document):
        if isinstance(ref := node.get("$ref"), str):
            found: Any = document
            for step in ref.removeprefix("#/").split("/"):
                assert step in found, (place, ref)
                found = found[step]


async def test_limits_are_those_of_json_schema(document: dict[str, Any]) -> None:
    literal = [place for place, node in nodes(document) for name in ("ge", "le", "gt", "lt") if name in node]
    submit = document["components"]["schemas"]["Submit"]["properties"]

    assert [] == literal
    assert (-10, 10) == (submit["priority"]["minimum"], submit["priority"]["maximum"])


async def test_the_credentials_of_each_operation_exist(document: dict[str, Any]) -> None:
    schemes = document["components"]["securitySchemes"]
    by_id = {operation["operationId"]: operation for _, _, operation in operations(document)}

    assert [{"bearer": []}, {"api_key": []}] == document["security"]
    for operation in by_id.values():
        for choice in operation.get("security", ()):
            assert choice.keys() <= schemes.keys()
    assert "security" not in by_id["submit_task"]
    assert [] == by_id["get_health"]["security"]
    assert [] == by_id["download_object"]["security"]
    assert {"metrics_token"} <= {name for one in by_id["get_metrics"]["security"] for name in one}
    assert {"callback_token"} == {name for one in by_id["report_end_of_job"]["security"] for name in one}


async def test_the_messages_to_webhooks_are_in_the_document(document: dict[str, Any]) -> None:
    assert {*KINDS, TEST} == document["webhooks"].keys()


async def test_the_document_names_the_public_address(open_desk: Any) -> None:
    async with open_desk(alter=lambda ports: replace(ports, app_url="https://docmill.example.org/")) as desk:
        servers = (await desk.http.get("/openapi.json")).json()["servers"]

    assert ["https://docmill.example.org", "/"] == [one["url"] for one in servers]


async def test_a_field_that_no_json_body_knows_is_refused_with_its_name(desk: Any, document: dict[str, Any]) -> None:
    """On every route whose body docmill defines, at the top of the example and in each object inside it."""
    accepted, checked = [], set()
    for path, method, operation in operations(document):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if content is None or path in document["webhooks"] or (method == "post" and SEEDS.match(path)):
            continue
        schema = content["schema"]
        if operation["operationId"] == "check_contract":
            schema = {"$ref": "#/components/schemas/DocumentRef"}
        for body in with_surprise(document, schema, content["example"]):
            checked.add(operation["operationId"])
            answer = await desk.http.request(method.upper(), filled(path, operation), json=body)
            # A check answers 200 with what it found.
            is_refused = answer.status_code in (400, 422) or not answer.json().get("valid", True)
            if not is_refused or SURPRISE not in answer.text:
                accepted.append(f"{method} {path} {answer.status_code} {answer.text[:300]}")

    assert [] == accepted
    assert {
        *("submit_task", "retry_task", "mount_task", "create_rule", "replace_rule", "try_rule", "create_table"),
        *("replace_table", "store_document", "store_asset", "check_contract", "create_webhook", "replace_webhook"),
        "rotate_webhook_secret",
    } == checked


def filled(path: str, operation: dict[str, Any]) -> str:
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            example = "document-ref" if parameter["name"] == "kind" else parameter["example"]
            path = path.replace(f"{{{parameter['name']}}}", str(example))
    return path


def with_surprise(document: dict[str, Any], schema: dict[str, Any], example: Any) -> Iterator[Any]:
    """The example with an unknown field, once for each object in it that has a fixed set of names."""
    for choice in choices(document, schema):
        if isinstance(example, list):
            for index, one in enumerate(example):
                for changed in with_surprise(document, choice.get("items", {}), one):
                    yield [*example[:index], changed, *example[index + 1 :]]
        elif isinstance(example, dict) and example.keys() <= (properties := choice.get("properties", {})).keys():
            if choice.get("additionalProperties") is False:
                yield {**example, SURPRISE: 1}
            for name, one in example.items():
                for changed in with_surprise(document, properties[name], one):
                    yield {**example, name: changed}


def choices(document: dict[str, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    among = schema.get("anyOf") or schema.get("oneOf")
    return [found for one in among for found in choices(document, one)] if among else [schema]


async def test_the_service_answers_while_the_document_is_built(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone may ask for it, and building it takes longer than the event loop may stand still."""
    go_on, has_begun = threading.Event(), threading.Event()

    def build(*_: Any) -> dict[str, Any]:
        has_begun.set()
        assert go_on.wait(30)
        return {"openapi": "3.1.0"}

    monkeypatch.setattr("docmill.http.openapi.build_openapi", build)
    asked = asyncio.create_task(desk.http.get("/openapi.json"))
    assert await asyncio.to_thread(has_begun.wait, 30)

    assert 200 == (await asyncio.wait_for(desk.http.get("/health"), 30)).status_code
    go_on.set()
    assert {"openapi": "3.1.0"} == (await asked).json()
