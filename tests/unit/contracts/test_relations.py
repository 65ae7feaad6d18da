"""What must agree between the parts of a value, and how a check reports that it does not."""

import json

import pytest

from docmill.contracts import Violation, check, media_guard, strict_mode

from .samples import (
    ASSET,
    COLLECTION_ID,
    DOCUMENT,
    EXTERNAL_BLOB,
    INLINE_BLOB,
    WHOLE_DOCUMENT,
    changed,
    without,
)

OTHER_ID = "11111111-1111-1111-1111-111111111111"


def codes(kind, value, **options):
    return [error.code for error in check(kind, json.dumps(value), **options).errors]


@pytest.mark.parametrize("as_text", [True, False])
def test_an_asset_without_a_collection_takes_the_documents(as_text):
    document = changed(WHOLE_DOCUMENT, "ref.collection_id", COLLECTION_ID)

    value = check("document", json.dumps(document) if as_text else document).value

    assert COLLECTION_ID == str(value.assets[0].ref.collection_id)
    assert COLLECTION_ID == value.model_dump(mode="json", exclude_unset=True)["assets"][0]["ref"]["collection_id"]


def test_an_asset_of_another_collection_is_refused():
    document = changed(WHOLE_DOCUMENT, "ref.collection_id", COLLECTION_ID)

    assert ["asset_collection_mismatch"] == codes("document", changed(document, "assets.0.ref.collection_id", OTHER_ID))


def test_an_asset_handed_in_as_a_value_is_left_as_it_was():
    asset = check("asset", ASSET).value

    document = check("document", {**changed(DOCUMENT, "ref.collection_id", COLLECTION_ID), "assets": [asset]}).value

    assert None is asset.ref.collection_id
    assert COLLECTION_ID == str(document.assets[0].ref.collection_id)


def test_all_errors_come_at_once_fields_first():
    document = changed(WHOLE_DOCUMENT, "assets.0.ref.tenant_id", "other")
    document = changed(document, "assets.0.bbox", [1, 2])
    document = changed(document, "meta", {"tenant_id": "third"})
    document["colour"] = "red"

    expected = [
        ("missing", "/meta/workflow_id"),
        ("bbox_invalid", "/assets/0/bbox"),
        ("extra_forbidden", "/colour"),
        ("meta_tenant_mismatch", "/meta/tenant_id"),
        ("asset_tenant_mismatch", "/assets/0/ref/tenant_id"),
    ]
    assert expected == [(error.code, error.pointer) for error in check("document", document).errors]


def test_a_place_in_a_blob_does_not_name_the_variant():
    """The place is a pointer into the data, and the data has no such step."""
    assert ["/blob/sha256"] == [
        error.pointer for error in check("document", changed(DOCUMENT, "blob.sha256", "x")).errors
    ]


def test_a_pointer_escapes_what_rfc_6901_escapes():
    violation = Violation("missing", ("a/b", 0, "c~d"), "Field required")

    assert "/a~1b/0/c~0d" == violation.pointer
    assert {"code": "missing", "loc": ["a/b", 0, "c~d"], "message": "Field required"} == violation.as_dict()


@pytest.mark.parametrize("kind", ["vlm_caption", "ocr_only", "manual", "none"])
def test_only_a_models_caption_needs_model_and_confidence(kind):
    bare = {**without(without(ASSET, "caption_model"), "caption_confidence"), "caption_method": kind}
    expected = ["caption_model_required", "caption_confidence_required"] if kind == "vlm_caption" else []

    assert expected == codes("asset", bare)


def test_strict_mode_is_a_parameter_and_a_context():
    asset = {**ASSET, "blob": without(EXTERNAL_BLOB, "sha256")}

    assert [] == codes("asset", asset)
    assert ["asset_checksum_missing"] == codes("asset", asset, strict=True)
    with strict_mode():
        assert ["asset_checksum_missing"] == codes("asset", asset)
        assert [] == codes("asset", asset, strict=False)
    assert [] == codes("asset", asset)


def test_the_media_guard_is_for_blobs_that_are_not_inline():
    inline = {**ASSET, "media_type": "text/plain", "blob": INLINE_BLOB}

    assert [] == codes("asset", inline, media_guard=("image/",))
    assert [] == codes("asset", ASSET, media_guard=("text/", "IMAGE/"))
    with media_guard("text/"):
        assert ["media_type_guard"] == codes("asset", ASSET)
        assert [] == codes("asset", inline)


def test_both_faults_of_an_inline_blob_are_reported():
    blob = {**INLINE_BLOB, "size": 6, "sha256": "0" * 64}

    assert ["inline_size_mismatch", "inline_checksum_mismatch"] == codes("blob", blob, strict=True)


def test_a_key_that_comes_twice_is_an_error_in_strict_mode():
    text = json.dumps(WHOLE_DOCUMENT).replace('"page', '"page').replace('"size": 512', '"size": 1, "size" : 512')

    checked = check("document", text, strict=True)

    assert [("json_duplicate_key", "/assets/0/blob/size")] == [(e.code, e.pointer) for e in checked.errors]
    assert 512 == check("document", text).value.assets[0].blob.size


def test_a_text_that_looks_like_a_key_is_no_duplicate():
    assert [] == codes("asset", {**ASSET, "ocr_text": '": "a" : ":'}, strict=True)
