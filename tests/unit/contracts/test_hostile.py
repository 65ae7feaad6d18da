"""A check answers whatever it is given."""

import json
import subprocess
import sys
import time
import tracemalloc

import pybase64
import pytest

from docmill.contracts import KINDS, check, check_value

from .samples import ASSET, DOCUMENT_REF, FILE_BLOB, INLINE_BLOB, WHOLE_DOCUMENT, changed

FOREIGN = [object(), b"x", {1, 2}, len, 1j, float("nan"), 10**5000, NotImplemented]


def only_code(checked):
    (error,) = checked.errors
    return error.code


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf{}",
        b'{"a": 1,}',
        b"{} {}",
        b"1" * 5000,
        b'"\\ud800"',
        '"\ud800"',
        "{'a': 1}",
    ],
)
def test_what_is_not_json_is_said_to_be_so(text):
    assert "json_invalid" == only_code(check("blob", text))


@pytest.mark.parametrize("depth", [65, 199, 201, 20_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_deep_nesting_has_its_own_code(depth, opening, closing):
    assert "json_too_deep" == only_code(check("document", opening * depth + "1" + closing * depth))


def test_a_depth_of_64_is_judged_like_any_other():
    assert "model_type" == only_code(check("document", "[" * 64 + "]" * 64))


def test_a_value_that_contains_itself_is_too_deep():
    loop: list[object] = []
    loop += [loop, loop]

    assert "json_too_deep" == only_code(check_value("document", {"assets": loop}))


def test_bytes_arrays_and_views_are_read_like_bytes():
    text = json.dumps(FILE_BLOB).encode()

    assert check("blob", text) == check("blob", bytearray(text)) == check("blob", memoryview(text))


def test_an_already_parsed_string_is_no_json_text():
    assert "model_type" == only_code(check_value("blob", json.dumps(FILE_BLOB)))


def test_an_unknown_kind_is_a_mistake_of_the_caller():
    with pytest.raises(KeyError):
        check("letter", b"{}")


@pytest.mark.parametrize("value", FOREIGN, ids=type)
@pytest.mark.parametrize("field", ["ref", "blob", "created_at", "checksum", "bbox", "page_index", "ocr_text", "colour"])
def test_a_foreign_object_in_a_field_is_an_ordinary_error(field, value):
    assert not check_value("asset", {**ASSET, field: value}).valid


@pytest.mark.parametrize("kind", KINDS)
def test_an_unencodable_key_does_not_spoil_the_report(kind):
    for error in check_value(kind, {"\ud800": 1, "type": "\ud800"}).errors:
        json.dumps(error.as_dict(), ensure_ascii=False).encode()


def test_a_long_value_is_cut_in_its_message():
    assert 400 > max(len(e.message) for e in check("document-ref", {**DOCUMENT_REF, "document_id": "x" * 10**6}).errors)


def test_braces_in_a_value_are_shown_as_they_are():
    assert "'{value}{0}'" in check("document-ref", {**DOCUMENT_REF, "document_id": "{value}{0}"}).errors[0].message


@pytest.fixture(scope="module")
def large():
    """100 MiB inline, as JSON, with its digest right."""
    from hashlib import sha256

    payload = bytes(100 << 20)
    blob = {**INLINE_BLOB, "sha256": sha256(payload).hexdigest(), "size": len(payload), "base64": "@"}
    return json.dumps(blob).encode().replace(b"@", pybase64.b64encode(payload))


@pytest.mark.parametrize("strict", [False, True])
def test_a_large_inline_blob_is_checked_with_one_copy_of_its_text(large, strict):
    """The one copy is the value's own base64; the decoded payload never exists as a whole."""
    tracemalloc.start()
    checked = check("blob", large, strict=strict)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert checked.valid
    assert peak < 1.1 * len(large)


def test_a_large_broken_blob_is_explained_within_two_copies(large):
    broken = large.replace(b'"size": ', b'"size": 1')

    tracemalloc.start()
    checked = check("blob", broken, strict=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert ["inline_size_mismatch"] == [error.code for error in checked.errors]
    assert peak < 2.2 * len(broken)


def test_payloads_lifted_out_of_a_large_text_return_to_their_places():
    encoded = [pybase64.b64encode(bytes([i]) * (1 << 20)).decode() for i in range(3)]
    assets = [
        {**ASSET, "media_type": "text/plain", "blob": {**INLINE_BLOB, "base64": text, "size": 1 << 20}}
        for text in encoded
    ]
    document = changed(WHOLE_DOCUMENT, "assets", assets)

    checked = check("document", json.dumps(document))

    assert encoded == [asset.blob.base64 for asset in checked.value.assets]
    assert check_value("document", document) == checked


@pytest.mark.parametrize("payload", ["A\\u0041AA", " AAAA ", "A" * 7, 'AA"AA', "ÄÄÄÄ", "AA\\"])
def test_a_large_text_is_judged_as_a_small_one(payload):
    blob = {**INLINE_BLOB, "size": 3, "base64": "@"}
    small = json.dumps(blob).replace("@", payload)
    wide = small + " " * (2 << 20)

    assert [e.code for e in check("blob", small).errors] == [e.code for e in check("blob", wide).errors]
    assert check("blob", small).value == check("blob", wide).value


HOSTILE = {
    "broken assets": b'{"assets":[' + b",".join([b"{}"] * 330_000) + b"]}",
    "no assets": b'{"assets":[' + b",".join([b"0"] * 500_000) + b"]}",
    "lists": b'{"assets":[' + b",".join([b"[]"] * 330_000) + b"]}",
    "unknown keys": b"{" + b",".join(b'"k%d":0' % number for number in range(100_000)) + b"}",
    "double keys": b"{" + b",".join([b'"k":0'] * 160_000) + b"}",
    "broken tags": b'{"meta":{"tags":[' + b",".join([b'"/"'] * 250_000) + b"]}}",
    "marks": json.dumps(
        {"assets": [{"origin_uri": "\u0345\u0316" * 2000, "caption_model": "\u0f73" * 4000}] * 50}, ensure_ascii=False
    ).encode(),
    "broken all over": json.dumps({"assets": [{key: {"": []} for key in ASSET}] * 2500}).encode(),
    "foreign assets": json.dumps(
        {**WHOLE_DOCUMENT, "assets": [changed(ASSET, "ref.tenant_id", " x ")] * 1200}
    ).encode(),
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_megabyte_is_judged_within_a_second(name, strict):
    text = HOSTILE[name]
    assert 600_000 < len(text) < 1_300_000

    checked, took = timed(text, strict)
    if took >= 1:  # a neighbour on the same core costs CPU time, too
        took = min(timed(text, strict)[1] for _ in range(8))

    assert not checked.valid
    assert 10_001 >= len(checked.errors)
    assert 1 > took


def timed(text, strict):
    begin = time.thread_time()
    checked = check("document", text, strict=strict)
    return checked, time.thread_time() - begin


def test_what_is_left_out_of_a_report_is_said_at_its_end():
    checked = check("document", HOSTILE["broken assets"])

    assert 10_001 == len(checked.errors)
    assert ("errors_truncated", ()) == (checked.errors[-1].code, checked.errors[-1].loc)
    assert {"missing"} == {error.code for error in checked.errors[:-1]}


def test_exactly_as_many_errors_as_a_report_holds_are_no_more():
    known = len(check("document", {}).errors)
    checked = check("document", {f"k{number}": 0 for number in range(10_000 - known)})

    assert 10_000 == len(checked.errors)
    assert "errors_truncated" not in {error.code for error in checked.errors}


def test_the_contracts_stand_alone():
    """A client or worker imports them without the service."""
    script = "import sys, docmill.contracts; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()

    ours = {name for name in loaded if name.startswith("docmill.") and not name.startswith("docmill.contracts")}
    assert set() == ours
    assert set() == {"fastapi", "apsw", "asyncpg", "httpx2", "click", "rich", "msgspec", "asyncio"} & set(loaded)
