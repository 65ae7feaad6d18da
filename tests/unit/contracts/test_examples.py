"""The examples of the reference, those it prints and the corrected ones."""

import json

import pytest

from docmill.contracts import check, check_value

from .samples import INLINE_BLOB, INVALID, VALID


@pytest.mark.parametrize(("kind", "value"), VALID)
def test_a_valid_example_is_accepted_as_text_and_as_a_value(kind, value):
    from_text = check(kind, json.dumps(value))

    assert () == from_text.errors
    assert check_value(kind, value).value == from_text.value


@pytest.mark.parametrize(("kind", "value"), VALID)
def test_a_valid_example_is_consistent_in_strict_mode(kind, value):
    assert () == check(kind, json.dumps(value), strict=True).errors


@pytest.mark.parametrize(("kind", "value", "codes"), INVALID)
def test_an_invalid_example_has_the_codes_it_is_printed_with(kind, value, codes):
    assert codes == {error.code for error in check(kind, json.dumps(value)).errors}


def test_the_printed_digest_of_hello_is_wrong_and_strict_mode_says_so():
    printed = {**INLINE_BLOB, "sha256": "64ec88ca00b268e5ba1a35678a1b5316d212f4f366b247724e2e1cda5fb0b3af"}

    assert check("blob", printed, strict=False).valid
    assert ["inline_checksum_mismatch"] == [error.code for error in check("blob", printed, strict=True).errors]
