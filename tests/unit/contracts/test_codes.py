"""The codes are wire format: each is reachable, none is undocumented, none has gone."""

import pytest

from docmill.contracts import CODES, check

from .reaching import REACHING

REFERENCE = [
    "tenant_empty",
    "tenant_too_long",
    "workflow_empty",
    "workflow_invalid_char",
    "workflow_too_long",
    "uuid_empty",
    "uuid_invalid",
    "uuid_type",
    "version_too_long",
    "version_invalid",
    "title_too_long",
    "language_invalid",
    "tags_type",
    "tag_invalid",
    "tag_too_long",
    "crawl_timestamp_naive",
    "external_ref_too_many",
    "external_ref_key_empty",
    "external_ref_key_too_long",
    "external_ref_value_empty",
    "external_ref_value_too_long",
    "uri_empty",
    "sha256_invalid",
    "size_negative",
    "inline_size_mismatch",
    "inline_checksum_mismatch",
    "media_type_empty",
    "media_type_invalid",
    "base64_invalid",
    "literal_error",
    "meta_tenant_mismatch",
    "meta_workflow_mismatch",
    "asset_tenant_mismatch",
    "asset_document_mismatch",
    "asset_collection_mismatch",
    "asset_workflow_mismatch",
    "checksum_invalid",
    "document_checksum_missing",
    "document_checksum_mismatch",
    "created_at_naive",
    "media_type_mismatch",
    "media_type_guard",
    "asset_checksum_missing",
    "asset_checksum_mismatch",
    "page_index_negative",
    "bbox_invalid",
    "caption_model_required",
    "caption_confidence_required",
    "caption_confidence_range",
    "missing",
    "union_tag_invalid",
    "extra_forbidden",
]


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
