"""The codes are wire format: each is reachable, none is undocumented, none has gone."""

import pytest

from docmill.contracts import CODES, check

from .reaching import REACHING, REFERENCE


@pytest.mark.parametrize("code", REACHING)
def test_a_code_is_reached_by_its_input(code):
    kind, text, options = REACHING[code]

    checked = check(kind, text, **options)

    assert code in {error.code for error in checked.errors}
    assert checked.value is None
    assert all(error.message and "{" not in error.message for error in checked.errors)


def test_every_code_of_the_reference_exists():
    assert set() == set(REFERENCE) - CODES.keys()


def test_every_code_has_an_input_that_reaches_it():
    # JSON has no other keys than strings, so this one is for Python values only.
    assert set(CODES) - {"invalid_key"} == set(REACHING)


def test_a_key_that_is_no_string_has_its_code():
    assert ["invalid_key"] == [error.code for error in check("document-ref", {1: 2}).errors if "key" in error.code]


@pytest.mark.parametrize("code", ["document_checksum_mismatch", "asset_checksum_mismatch", "inline_checksum_mismatch"])
def test_a_checksum_error_names_both_digests(code):
    kind, text, options = REACHING[code]

    message = next(error.message for error in check(kind, text, **options).errors if error.code == code)

    assert 2 == sum(1 for word in message.replace(",", " ").split() if len(word) == 64)
