"""The published JSON Schemas are those of the code, and they say what a check says."""

import json

import jsonschema_rs
import pytest

from docmill.contracts import KINDS, json_schema
from docmill.contracts.export import SCHEMAS, published, write

from .samples import INVALID, VALID


@pytest.mark.parametrize("kind", KINDS)
def test_the_published_schema_is_that_of_the_code(kind):
    """`python -m docmill.contracts.export` writes them anew."""
    assert published(kind) == (SCHEMAS / f"{kind}.json").read_text(encoding="utf-8")


def test_writing_publishes_every_kind(tmp_path):
    write(tmp_path)

    assert {f"{kind}.json" for kind in KINDS} == {path.name for path in tmp_path.iterdir()}
    assert {path.name for path in SCHEMAS.iterdir()} == {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize(("kind", "value"), VALID)
def test_a_valid_example_fits_its_schema(kind, value):
    jsonschema_rs.validator_for(json.dumps(json_schema(kind))).validate(value)


@pytest.mark.parametrize(("kind", "value", "codes"), INVALID)
def test_an_invalid_example_does_not_fit_unless_it_takes_arithmetic_to_see(kind, value, codes):
    relations = {"inline_size_mismatch", "asset_tenant_mismatch", "bbox_invalid"}

    fits = jsonschema_rs.validator_for(json.dumps(json_schema(kind))).is_valid(value)

    assert fits is (codes <= relations)
