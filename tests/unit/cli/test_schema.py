"""`docmill schema`"""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from docmill.contracts import KINDS, json_schema


@pytest.mark.parametrize("kind", list(KINDS))
def test_each_kind_prints_its_schema(docmill: Any, kind: str) -> None:
    result = docmill("schema", kind)

    assert 0 == result.exit_code
    assert json_schema(kind) == json.loads(result.stdout)
    assert jsonschema_rs.meta.is_valid(json.loads(result.stdout))


def test_all_is_one_object_of_kinds(docmill: Any) -> None:
    assert {kind: json_schema(kind) for kind in KINDS} == json.loads(docmill("schema", "all").stdout)


@pytest.mark.parametrize(("indent", "more_than_one_line"), [("0", False), ("4", True)])
def test_indent_zero_is_one_line(docmill: Any, indent: str, more_than_one_line: bool) -> None:
    result = docmill("schema", "blob", "--indent", indent)

    assert more_than_one_line == (len(result.stdout.splitlines()) > 1)
    assert json_schema("blob") == json.loads(result.stdout)


def test_an_unknown_kind_is_a_usage_error_that_lists_the_kinds(docmill: Any) -> None:
    result = docmill("schema", "documnet")

    assert 2 == result.exit_code
    assert "'document-ref'" in result.stderr


def test_the_schema_accepts_what_check_accepts(docmill: Any, document: dict[str, Any]) -> None:
    schema = json.loads(docmill("schema", "document").stdout)

    assert jsonschema_rs.is_valid(schema, document)
    assert not jsonschema_rs.is_valid(schema, document | {"checksum": 7})
