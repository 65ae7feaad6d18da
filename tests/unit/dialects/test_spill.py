"""The streaming reader says what `json.loads` says, wherever the pieces are cut, or refuses more strictly."""

from __future__ import annotations

import json
import tracemalloc
from base64 import b64decode, b64encode
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from docmill.core.errors import BadRequest
from docmill.dialects.secretary import SPILLS
from docmill.dialects.spill import Limits, Reader, Spilled, fingerprint, read, spilled

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"))
)
KEYS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=8)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=20
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=6)
TEXTS = st.text(
    st.sampled_from('aé文😀"\\/\n\t\x7f\u2028uD83') | st.characters(exclude_categories=("Cs",)), max_size=80
).map(lambda text: text.replace("\0", ""))
CUTS = st.lists(st.integers(0, 10_000), max_size=12)


def pieces(body: bytes, cuts: list[int]) -> list[bytes]:
    borders = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    return [body[start:end] for start, end in pairwise(borders)]


def in_pieces(body: bytes, cuts: list[int], folder: Path, limits: Limits | None = None) -> dict[str, Any]:
    reader = Reader(folder, SPILLS, limits)
    for piece in pieces(body, cuts):
        reader.feed(piece)
    return reader.close()


def by_bytes(body: bytes, folder: Path) -> dict[str, Any]:
    return in_pieces(body, list(range(len(body))), folder)


def why(body: bytes, folder: Path, limits: Limits | None = None) -> str:
    """Why the reader refuses; the same in one piece and byte by byte, and no file is left."""
    told = set()
    for cuts in ([], list(range(len(body)))):
        with pytest.raises(BadRequest) as refused:
            in_pieces(body, cuts, folder, limits)
        assert "callback_payload_invalid" == refused.value.code
        assert [] == list(folder.iterdir())
        told.add(refused.value.facts["why"])
    assert 1 == len(told), told
    return told.pop()


@given(OBJECTS, CUTS, st.booleans(), st.sampled_from([None, 1]))
def test_any_object_reads_as_json_loads_reads_it(
    value: dict[str, Any], cuts: list[int], ascii_only: bool, indent: int | None
) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()

    with TemporaryDirectory() as folder:
        found = in_pieces(body, cuts, Path(folder))

    assert repr(json.loads(body)) == repr(found)


@given(TEXTS, CUTS, st.booleans())
@example("😀", [0], True)
@example("\\" * 9 + '"', [0], False)
def test_a_text_arrives_in_its_file_wherever_it_is_cut(text: str, cuts: list[int], ascii_only: bool) -> None:
    body = json.dumps({"data": {"extracted_text": text}, "n": 1}, ensure_ascii=ascii_only).encode()

    with TemporaryDirectory() as folder:
        for borders in (cuts, list(range(len(body)))):
            found = in_pieces(body, borders, Path(folder))["data"]["extracted_text"]
            assert text.encode() == found.path.read_bytes()
            assert (len(text.encode()), sha256(text.encode()).hexdigest()) == (found.size, found.sha256)


@given(st.binary(max_size=200), CUTS, st.booleans())
def test_an_archive_arrives_decoded_wherever_it_is_cut(content: bytes, cuts: list[int], slashes: bool) -> None:
    encoded = b64encode(content).decode()
    body = json.dumps({"data": {"images_archive_data": encoded}})
    raw = (body.replace("/", "\\/") if slashes else body).encode()

    with TemporaryDirectory() as folder:
        found = in_pieces(raw, cuts, Path(folder))["data"]["images_archive_data"]
        assert content == found.path.read_bytes()

    assert Spilled(found.path, len(content), sha256(content).hexdigest()) == found


@given(OBJECTS, st.integers(0, 10_000))
def test_no_beginning_of_an_object_passes_for_the_whole(value: dict[str, Any], end: int) -> None:
    body = json.dumps(value).encode()

    with TemporaryDirectory() as folder, pytest.raises(BadRequest):
        read(body[: end % len(body)], Path(folder), SPILLS)


@given(OBJECTS, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=3), CUTS)
def test_what_json_loads_refuses_is_refused(
    value: dict[str, Any], changes: list[tuple[int, int]], cuts: list[int]
) -> None:
    body = bytearray(json.dumps(value, ensure_ascii=False).encode())
    for at, byte in changes:
        body[at % len(body)] = byte

    with TemporaryDirectory() as folder:
        try:
            found = in_pieces(bytes(body), cuts, Path(folder))
        except BadRequest:
            return
    # A broken encoding must not pass either: json.loads would guess at UTF-16.
    assert repr(json.loads(body.decode())) == repr(found)


@given(st.text(st.sampled_from('abcUVD+/=\\"\n -_'), max_size=24), CUTS)
def test_base64_is_strict(given_text: str, cuts: list[int]) -> None:
    body = b'{"data":{"images_archive_data":"' + given_text.encode() + b'"}}'

    with TemporaryDirectory() as folder:
        try:
            found = in_pieces(body, cuts, Path(folder))["data"]["images_archive_data"].path.read_bytes()
        except BadRequest:
            return
    assert b64decode(given_text.replace("\\/", "/"), validate=True) == found


@pytest.mark.parametrize(
    ("archive", "told"),
    [
        ("QUJ", "its length is not a multiple of 4"),
        ("QQ==QUJD", ""),
        ("QUJD====", "is not base64"),
        ("QU*D", "is not base64"),
        ("QU-_", "is not base64"),
        ("QUJD\\n", ""),
        ("QUJD\\u0041QUJ", "is not base64"),
        ("QUJD\\\\/AA", "is not base64"),
        ("QUJ\n", "is not base64"),
        ("QUJ ", "is not base64"),
        ("QUJ\\", "is not base64"),
    ],
)
def test_base64_that_is_not_quite_is_refused(archive: str, told: str, tmp_path: Path) -> None:
    body = b'{"data":{"images_archive_data":"' + archive.encode() + b'"}}'

    for cuts in ([], list(range(len(body)))):
        with pytest.raises(BadRequest, match=r"data\.images_archive_data") as refused:
            in_pieces(body, cuts, tmp_path)
        assert told in refused.value.facts["why"]
        assert [] == list(tmp_path.iterdir())


def test_data_after_the_padding_is_refused_wherever_the_border_is(tmp_path: Path) -> None:
    body = b'{"data":{"images_archive_data":"QQ==QUJD"}}'

    for border in range(len(body)):
        with pytest.raises(BadRequest):
            in_pieces(body, [border], tmp_path)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "the body is empty"),
        (b"  ", "the JSON ends too early"),
        (b"[]", "the body is not a JSON object"),
        (b'"text"', "the body is not a JSON object"),
        (b"\xef\xbb\xbf{}", "the body is not a JSON object"),
        ('{"a": 1}'.encode("utf-16"), "the body is not a JSON object"),
        (b'{"a": 1', "the JSON ends too early"),
        (b'{"a": "b', "the JSON ends too early"),
        (b'{"data": {"extracted_text": "b', "the JSON ends too early"),
        (b'{"data": {"images_archive_data": "QUJD', "the JSON ends too early"),
        (b"{} {}", "the JSON is broken at byte 3: nothing more was expected"),
        (b'{"a": 1, "a": 2}', "the key 'a' occurs twice"),
        (b'{"a": 1, "\\u0061": 2}', "the key 'a' occurs twice"),
        (b'{"a": 1,}', "the JSON is broken at byte 8: a key was expected"),
        (b'{"a": [1,]}', "the JSON is broken at byte 9: a value was expected"),
        (b'{"a" 1}', "the JSON is broken at byte 5: ':' was expected"),
        (b'{"a": 1]', "the JSON is broken at byte 7: ',' or the end of the object or array was expected"),
        (b"{'a': 1}", "the JSON is broken at byte 1: a key or '}' was expected"),
        (b'{"a": NaN}', "the JSON is broken at byte 6: a value was expected"),
        (b'{"a": Infinity}', "the JSON is broken at byte 6: a value was expected"),
        (b'{"a": -Infinity}', "- is not a number"),
        (b'{"a": 01}', "01 is not a number"),
        (b'{"a": 1.}', "1. is not a number"),
        (b'{"a": 1e999}', "1e999 is too large for a number"),
        (b'{"a": 9223372036854775808}', "9223372036854775808 does not fit in 64 bits"),
        (b'{"a": ' + b"1" * 101 + b"}", "a number has more than 100 characters"),
        (b'{"\\u0000": 1}', "a key has a NUL character"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(body: bytes, told: str, tmp_path: Path) -> None:
    assert told == why(body, tmp_path)


BESIDES = "data.extracted_text and data.images_archive_data and data.metadata.text_contents.*.content"
BROKEN = (b"\n", b"\x1f", b"\xff", b"\xc3", b"\xc0\x80", b"\xf5\x80\x80\x80", b"\\x", b"\\u12g4", b"\\u12")
UNSTORABLE = {
    b"\x00": "",
    b"\\u0000\\u0000": "",
    b"\xed\xa0\x80": "",
    b"\\ud800": "",
    b"\\uD800x": "x",
    b"\\ud800\\n": "\n",
    b"\\udc00": "",
    b"\\udc00\\ud800": "",
    b"\\ud800\\ud800\\udc00": "\U00010000",
    b"\\\\u0000\\u0000": "\\u0000",
    b"\\ud83d\\ude00\\ude00": "\U0001f600",
}


@pytest.mark.parametrize("inside", BROKEN)
@pytest.mark.parametrize("name", [b"extracted_text", b"other"])
def test_broken_strings_are_refused_in_files_and_in_values(inside: bytes, name: bytes, tmp_path: Path) -> None:
    for before in (b"", b"abc", b"\\\\"):
        body = b'{"data": {"' + name + b'": "' + before + inside + b'"}}'
        assert "is not a JSON string" in why(body, tmp_path)


@pytest.mark.parametrize("inside", UNSTORABLE)
def test_nul_and_lone_surrogates_are_removed_from_strings_and_refused_in_keys(inside: bytes, tmp_path: Path) -> None:
    for before in (b"", b"abc", b"\\\\", "\u00e4\u20ac".encode()):
        body = b'{"data": {"%s": "' + before + inside + b'"}}'
        expected = before.replace(b"\\\\", b"\\").decode() + UNSTORABLE[inside]
        for read_body in (by_bytes, lambda body, folder: read(body, folder, SPILLS)):
            [text] = spilled(read_body(body.replace(b"%s", b"extracted_text"), tmp_path))
            assert expected.encode() == text.path.read_bytes()
            assert text.removed >= 1
            text.path.unlink()
            assert {"data": {"other": expected}} == read_body(body.replace(b"%s", b"other"), tmp_path)
        key = b'{"' + before + inside + b'": 1}'
        assert any(part in why(key, tmp_path) for part in ("JSON string", "NUL character"))


def test_strings_of_an_array_share_a_file_wherever_it_is_cut(tmp_path: Path) -> None:
    body = (
        b'{"data": {"metadata": {"text_contents": [{"page": 1, "content": "\xc3\xa4\\n"}, {"content": ""}, [],'
        b' {"more": {"content": "kept"}, "content": "c\\u0000d"}], "content": "kept"}}}'
    )

    value = by_bytes(body, tmp_path)

    found = list(spilled(value))
    [path] = {one.path for one in found}
    assert ["\u00e4\n".encode(), b"", b"cd"] == [path.read_bytes()[one.start : one.start + one.size] for one in found]
    assert [sha256(b"cd").hexdigest(), 1] == [found[-1].sha256, found[-1].removed]
    assert (
        "kept"
        == value["data"]["metadata"]["content"]
        == value["data"]["metadata"]["text_contents"][3]["more"]["content"]
    )
    assert [path] == list(tmp_path.iterdir())


def test_strings_only_spill_at_their_own_place(tmp_path: Path) -> None:
    body = b'{"extracted_text": "a", "data": [{"extracted_text": "b"}], "x": {"data": {"extracted_text": "c"}}}'

    assert json.loads(body) == by_bytes(body, tmp_path)
    assert [] == list(tmp_path.iterdir())


def test_what_is_no_string_stays_where_a_string_would_spill(tmp_path: Path) -> None:
    body = b'{"data": {"extracted_text": null, "images_archive_data": [1]}}'

    assert json.loads(body) == by_bytes(body, tmp_path)


def test_empty_strings_spill_too(tmp_path: Path) -> None:
    value = by_bytes(b'{"data": {"extracted_text": "", "images_archive_data": ""}}', tmp_path)

    assert [0, 0] == [file.size for file in spilled(value)]


def test_limits_hold(tmp_path: Path) -> None:
    assert "it is nested deeper than 3 levels" == why(b'{"a":[{"b":[]}]}', tmp_path, Limits(depth=3))
    assert "there are more than 2 values" == why(b'{"a":[1,2]}', tmp_path, Limits(values=2))
    assert "it holds more than 3 bytes of text besides " + BESIDES == why(b'{"a":"bcd"}', tmp_path, Limits(kept=3))
    assert {"a": "bc"} == in_pieces(b'{"a":"bc"}', [], tmp_path, Limits(kept=3))


def test_the_usual_limits_stop_deep_and_wide_bodies_early(tmp_path: Path) -> None:
    assert "nested deeper" in why(b'{"a":' + b"[" * 500, tmp_path)
    reader = Reader(tmp_path)
    with pytest.raises(BadRequest, match="values"):
        reader.feed(b'{"a":[' + b"1," * 300_000)


def test_spilled_strings_do_not_count_as_kept(tmp_path: Path) -> None:
    body = json.dumps({"data": {"extracted_text": "x" * 10_000, "images_archive_data": "QUJD" * 1_000}}).encode()

    value = in_pieces(body, [5_000], tmp_path, Limits(kept=100))

    assert [10_000, 3_000] == [file.size for file in spilled(value)]


def test_a_piece_of_any_size_is_taken(tmp_path: Path) -> None:
    content = bytes(range(256)) * 20_000
    body = b'{"data": {"images_archive_data": "' + b64encode(content) + b'"}, "z": 1}'

    value = read(body, tmp_path, SPILLS)

    assert content == value["data"]["images_archive_data"].path.read_bytes()
    assert 1 == value["z"]


def test_memory_stays_flat_however_large_the_strings_are(tmp_path: Path) -> None:
    reader = Reader(tmp_path, SPILLS)
    tracemalloc.start()
    reader.feed(b'{"data": {"images_archive_data": "')
    for _ in range(300):
        reader.feed(b"QUJDREVG" * 8_192)
    reader.feed(b'", "extracted_text": "')
    for _ in range(300):
        reader.feed(b'a\\n\\"\xc3\xa9b' * 8_192)
    reader.feed(b'"}}')
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert [300 * 8_192 * 6, 300 * 8_192 * 6] == [file.size for file in spilled(reader.close())]
    assert peak < 2 * 1024**2


def test_a_failing_disk_is_no_fault_of_the_body_and_leaves_nothing(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "gone", SPILLS)

    with pytest.raises(OSError, match="gone"):
        reader.feed(b'{"data": {"extracted_text": "a')


def test_discarding_deletes_the_files_and_ends_the_reader(tmp_path: Path) -> None:
    reader = Reader(tmp_path, SPILLS)
    reader.feed(b'{"data": {"images_archive_data": "QUJD", "extracted_text": "a')
    assert 2 == len(list(tmp_path.iterdir()))

    reader.discard()

    assert [] == list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="closed"):
        reader.feed(b"}")
    with pytest.raises(ValueError, match="closed"):
        reader.close()


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    value = by_bytes(b'{"data": {"extracted_text": "a"}}', tmp_path)

    assert 0o600 == value["data"]["extracted_text"].path.stat().st_mode & 0o777


def test_a_fingerprint_knows_the_report_not_its_spelling(tmp_path: Path) -> None:
    one = read(b'{"phase": "completed", "data": {"extracted_text": "\\u00e9"}}', tmp_path, SPILLS)
    same = read('{"data":{"extracted_text":"é"},"phase":"completed"}'.encode(), tmp_path, SPILLS)
    other = read(b'{"data":{"extracted_text":"e"},"phase":"completed"}', tmp_path, SPILLS)

    assert fingerprint(one) == fingerprint(same)
    assert fingerprint(one) != fingerprint(other)
