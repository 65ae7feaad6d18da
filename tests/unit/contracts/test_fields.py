"""What single fields accept, what they turn it into, and what they refuse."""

import json
from datetime import UTC, datetime
from uuid import UUID

import pytest
from pydantic import ValidationError

from docmill.contracts import AssetRef, DocumentMeta, DocumentRef, FileBlob, NormalizedDocument, check, check_value

from .samples import (
    ASSET,
    ASSET_REF,
    DOCUMENT_META,
    DOCUMENT_REF,
    EXTERNAL_BLOB,
    FILE_BLOB,
    INLINE_BLOB,
    WHOLE_DOCUMENT,
    changed,
)


def codes(kind, value, **options):
    """The codes of *value*, which must be the same as JSON text and as a Python value."""
    as_value = check_value(kind, value, **options)
    as_text = check(kind, json.dumps(value), **options)
    assert as_value.errors == as_text.errors
    return [error.code for error in as_value.errors]


def kept(kind, value, name):
    checked = check(kind, json.dumps(value))
    assert () == checked.errors
    assert checked == check_value(kind, value)
    return getattr(checked.value, name)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [(" acme\n", "acme"), ("Ａcme", "Acme"), ("a\u200d\u0323", "ạ"), ("\ufeffMüller GmbH", "Müller GmbH")],
)
def test_a_tenant_is_normalised(raw, expected):
    assert expected == kept("document-ref", {**DOCUMENT_REF, "tenant_id": raw}, "tenant_id")


@pytest.mark.parametrize("name", [".", "..", "．．／", "a/b", "a\\b", "ä", "a b", "․․"])
def test_a_name_that_could_walk_through_folders_is_refused(name):
    """The reference's pattern allows '.' and '..', which must never become a path."""
    assert ["workflow_invalid_char"] == codes("document-ref", {**DOCUMENT_REF, "workflow_id": name})
    assert ["version_invalid"] == codes("document-ref", {**DOCUMENT_REF, "version": name})
    assert ["tag_invalid"] == codes("document-meta", {**DOCUMENT_META, "tags": [name]})


@pytest.mark.parametrize("name", ["...", ".a", "..a", "a..", "-", "_", "v2.1", "1"])
def test_other_names_of_the_pattern_are_accepted(name):
    assert name == kept("document-ref", {**DOCUMENT_REF, "version": name}, "version")


@pytest.mark.parametrize("field", ["version", "collection_id"])
def test_null_counts_as_absent(field):
    assert None is kept("document-ref", {**DOCUMENT_REF, field: None}, field)


@pytest.mark.parametrize("field", ["title", "language", "origin_uri"])
@pytest.mark.parametrize("blank", ["", "  ", "\u200b", None])
def test_a_blank_optional_text_is_none(field, blank):
    assert None is kept("document-meta", {**DOCUMENT_META, field: blank}, field)


@pytest.mark.parametrize(("field", "empty"), [("tags", []), ("external_ref", {})])
def test_a_null_collection_is_empty(field, empty):
    assert empty == kept("document-meta", {**DOCUMENT_META, field: None}, field)


@pytest.mark.parametrize("language", ["de", "en-US", "zh-Hant-TW", "x-1", "i", "1-a", "de-1996"])
def test_a_language_is_accepted(language):
    assert language == kept("document-meta", {**DOCUMENT_META, "language": language}, "language")


@pytest.mark.parametrize("language", ["--de", "de-", "de--AT", "abcdefghi", "12", "dé", "de_AT", "a" * 300])
def test_a_malformed_language_is_refused(language):
    assert ["language_invalid"] == codes("document-meta", {**DOCUMENT_META, "language": language})


def test_tags_lose_blanks_and_doubles_and_are_sorted():
    raw = ["q1", " finance", "", "q1", "\u200b", "Ａ"]

    assert ["A", "finance", "q1"] == kept("document-meta", {**DOCUMENT_META, "tags": raw}, "tags")
    assert ["a", "b"] == kept("document-meta", {**DOCUMENT_META, "tags": ["b", "a", "b"]}, "tags")


def test_every_bad_tag_is_reported_at_its_place():
    checked = check("document-meta", {**DOCUMENT_META, "tags": ["ok", 5, "a b", "t" * 65]})

    expected = [("tags_type", "/tags/1"), ("tag_invalid", "/tags/2"), ("tag_too_long", "/tags/3")]
    assert expected == [(error.code, error.pointer) for error in checked.errors]


@pytest.mark.parametrize("value", [{"id": 5}, {"id": None}, {"id": {}}, "x", 5, [["id", "1"]]])
def test_an_external_ref_of_another_shape_is_refused(value):
    assert ["external_ref_type"] == codes("document-meta", {**DOCUMENT_META, "external_ref": value})


@pytest.mark.parametrize("raw", [5, 5.5, True, [], {}, "null"])
def test_a_uuid_of_another_type_is_an_error_like_all_others(raw):
    expected = "uuid_invalid" if isinstance(raw, str) else "uuid_type"

    assert [expected] == codes("asset-ref", {**ASSET_REF, "asset_id": raw})


def test_a_uuid_is_trimmed_and_may_be_an_object():
    number = UUID(ASSET_REF["asset_id"])

    assert number == kept("asset-ref", {**ASSET_REF, "asset_id": f" {number}\n"}, "asset_id")
    assert number == AssetRef(**{**ASSET_REF, "asset_id": number}).asset_id


@pytest.mark.parametrize(
    "digest", ["A" * 64, "a" * 63, "a" * 65, "g" * 64, "a" * 64 + "\n", " " + "a" * 64, "ａ" * 64, ""]
)
def test_a_digest_is_64_lower_case_hex_digits_and_nothing_else(digest):
    assert ["sha256_invalid"] == codes("blob", {**FILE_BLOB, "sha256": digest})
    assert ["sha256_invalid"] == codes("blob", {**EXTERNAL_BLOB, "sha256": digest})
    assert ["checksum_invalid"] == codes("asset", {**ASSET, "checksum": digest})
    assert ["sha256_invalid"] == codes("document", changed(WHOLE_DOCUMENT, "assets.0.blob.sha256", digest))


def test_a_media_type_is_lower_cased():
    assert "text/plain" == kept("blob", {**INLINE_BLOB, "media_type": " Text/PLAIN "}, "media_type")


@pytest.mark.parametrize("media_type", ["text", "text/", "/plain", "text/plain;a=b", "text/pl ain", "a/b/c", "text/ä"])
def test_a_malformed_media_type_is_refused(media_type):
    assert ["media_type_invalid"] == codes("blob", {**INLINE_BLOB, "media_type": media_type})


@pytest.mark.parametrize("encoded", ["SGVsbG8", "SGVs*bG8=", "SGVs\nbG8=", "=", "SGVsbG8=AAAA", "SGVs-_8=", "Ä==="])
def test_base64_outside_the_standard_is_refused(encoded):
    assert ["base64_invalid"] == codes("blob", {**INLINE_BLOB, "base64": encoded})


def test_padding_inside_a_long_payload_is_refused():
    """A payload is decoded in pieces, and each piece alone would be fine."""
    encoded = "A" * ((1 << 18) - 4) + "AAA=" + "AAAA"

    assert ["base64_invalid"] == codes("blob", {**INLINE_BLOB, "base64": encoded})


def test_base64_is_trimmed():
    assert "SGVsbG8=" == kept("blob", {**INLINE_BLOB, "base64": " SGVsbG8=\n"}, "base64")


@pytest.mark.parametrize("size", [True, "14", 1.5, None, [], float("inf")])
def test_a_size_of_another_type_is_refused(size):
    assert ["int_type"] == codes("blob", {**FILE_BLOB, "size": size})


def test_a_size_stays_within_what_sql_can_hold():
    assert 2**63 - 1 == kept("blob", {**FILE_BLOB, "size": 2**63 - 1}, "size")
    assert 14 == kept("blob", {**FILE_BLOB, "size": 14.0}, "size")
    assert ["less_than_equal"] == codes("blob", {**FILE_BLOB, "size": 10**400})
    assert ["less_than_equal"] == codes("blob", {**FILE_BLOB, "size": 1e300})
    assert ["size_negative"] == codes("blob", {**FILE_BLOB, "size": -(10**400)})


@pytest.mark.parametrize(
    "bbox",
    [
        [0, 0, 1],
        [0, 0, 1, 1, 1],
        [0.2, 0.2, 0.2, 0.5],
        [0, 0, 1.1, 1],
        [-0.1, 0, 1, 1],
        [0, 0, float("nan"), 1],
        [0, 0, 1, float("inf")],
        [False, False, True, True],
        ["0", "0", "1", "1"],
        [0, 0, 10**400, 1],
        "0011",
        {},
    ],
)
def test_a_box_is_four_finite_numbers_in_order(bbox):
    """NaN is no JSON, but Python writes it; it must not hide behind a code about syntax."""
    assert ["bbox_invalid"] == codes("asset", {**ASSET, "bbox": bbox})


def test_a_box_may_use_whole_numbers():
    assert [0.0, 0.0, 1.0, 1.0] == kept("asset", {**ASSET, "bbox": [0, 0, 1, 1]}, "bbox")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.01, 1.01, 10**400])
def test_a_confidence_beyond_its_range_is_refused(value):
    assert ["caption_confidence_range"] == codes("asset", {**ASSET, "caption_confidence": value})


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("2024-05-02T12:15:00+02:00", "2024-05-02T10:15:00Z"),
        ("2024-05-02T10:15:00Z", "2024-05-02T10:15:00Z"),
        ("2024-05-02 10:15Z", "2024-05-02T10:15:00Z"),
        (" 2024-05-02T10:15:00.5-00:30 ", "2024-05-02T10:45:00.500000Z"),
    ],
)
def test_a_moment_is_kept_in_utc(raw, expected):
    checked = check("asset", {**ASSET, "created_at": raw})

    assert expected == checked.value.model_dump(mode="json")["created_at"]
    assert 0 == checked.value.created_at.utcoffset().total_seconds()


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (1714644900, "datetime_type"),
        (True, "datetime_type"),
        (None, "datetime_type"),
        ("1714644900", "datetime_parsing"),
        ("1714644900000", "datetime_parsing"),
        ("", "datetime_parsing"),
        ("2024-13-02T10:15:00Z", "datetime_parsing"),
        ("0001-01-01T00:00:00+14:00", "datetime_parsing"),
        ("2024-05-02", "created_at_naive"),
        ("2024-05-02T10:15:00", "created_at_naive"),
    ],
)
def test_what_is_no_moment_is_refused(raw, code):
    assert [code] == codes("asset", {**ASSET, "created_at": raw})


def test_a_naive_datetime_object_is_refused():
    naive = datetime(2024, 5, 2, 10, 15)  # noqa: DTZ001 - the fault under test

    assert ["created_at_naive"] == [error.code for error in check("asset", {**ASSET, "created_at": naive}).errors]
    assert check("asset", {**ASSET, "created_at": naive.replace(tzinfo=UTC)}).valid


@pytest.mark.parametrize(
    ("field", "limit"),
    [("context_before", 2048), ("context_after", 2048), ("text_description", 2048), ("ocr_text", 8192)],
)
def test_a_long_text_is_cut_at_a_character_and_never_an_error(field, limit):
    text = kept("asset", {**ASSET, field: "x" + "ä€𝄞" * limit}, field)

    assert limit - 3 <= len(text.encode()) <= limit
    assert text.encode().decode() == text
    assert "y" * limit == kept("asset", {**ASSET, field: "y" * (limit + 1)}, field)


def test_a_describing_text_keeps_its_lines_but_no_nul():
    assert " a\n\tb " == kept("asset", {**ASSET, "ocr_text": " a\n\tb\0 "}, "ocr_text")


def test_a_lone_surrogate_does_not_survive():
    """As JSON text it is refused at once; in a Python value it is taken out."""
    value = check_value("asset", {**ASSET, "ocr_text": "a\ud800b", "origin_uri": "x\udfffy"}).value

    assert ("ab", "xy") == (value.ocr_text, value.origin_uri)
    assert ["json_invalid"] == [e.code for e in check("asset", json.dumps({**ASSET, "ocr_text": "\ud800"})).errors]


def test_a_text_far_beyond_its_limit_is_refused_before_it_is_normalised():
    """Normalising a run of combining marks takes quadratic time."""
    marks = "a" + "\u0301\u0323" * 500_000

    assert ["tenant_too_long"] == codes("document-ref", {**DOCUMENT_REF, "tenant_id": marks})
    assert ["title_too_long"] == codes("document-meta", {**DOCUMENT_META, "title": marks})
    assert ["string_too_long"] == codes("blob", {**FILE_BLOB, "uri": marks})


def test_models_are_immutable():
    ref = DocumentRef(**DOCUMENT_REF)

    with pytest.raises(ValidationError, match="frozen"):
        ref.tenant_id = "other"


def test_a_model_alone_raises_with_the_same_codes():
    with pytest.raises(ValidationError) as caught:
        DocumentMeta.model_validate_json(json.dumps({**DOCUMENT_META, "tags": 5, "language": "--"}))

    assert ["language_invalid", "tags_type"] == [error["type"] for error in caught.value.errors()]
    with pytest.raises(ValidationError) as caught:
        FileBlob(type="file", uri="", sha256="x", size=-1)
    assert ["uri_empty", "sha256_invalid", "size_negative"] == [error["type"] for error in caught.value.errors()]


def test_a_model_alone_judges_relationships_too():
    broken = changed(WHOLE_DOCUMENT, "assets.0.ref.tenant_id", "other")

    with pytest.raises(ValidationError) as caught:
        NormalizedDocument.model_validate(changed(broken, "checksum", "x"))

    assert ["checksum_invalid", "asset_tenant_mismatch"] == [error["type"] for error in caught.value.errors()]


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        ("2024-05-02T10:15:00.1234564Z", "2024-05-02T10:15:00.123456+00:00"),
        ("2024-05-02T10:15:00.1234565Z", "2024-05-02T10:15:00.123457+00:00"),
        ("2024-05-02T23:59:59.999999999+01:00", "2024-05-02T23:00:00+00:00"),
    ],
)
def test_what_is_finer_than_a_microsecond_is_rounded(raw, kept):
    asset = {**ASSET, "created_at": raw}

    assert kept == check_value("asset", asset).value.created_at.isoformat()
    assert kept == check("asset", json.dumps(asset)).value.created_at.isoformat()


def test_a_moment_that_rounding_takes_beyond_all_years_is_refused():
    assert ["datetime_parsing"] == codes("asset", {**ASSET, "created_at": "9999-12-31T23:59:59.9999999Z"})
