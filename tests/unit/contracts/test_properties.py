"""What holds for every input."""

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic_core import from_json

from docmill.contracts import CODES, KINDS, check, check_value
from docmill.contracts.checking import ADAPTERS, _explained
from docmill.contracts.mode import Mode, strict_mode
from docmill.contracts.text import clean, cut

from .samples import (
    ASSET,
    ASSET_REF,
    DOCUMENT,
    DOCUMENT_META,
    DOCUMENT_REF,
    EXTERNAL_BLOB,
    FILE_BLOB,
    INLINE_BLOB,
    VALID,
)

quick = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))

kinds = st.sampled_from(sorted(KINDS))
any_text = st.text(st.characters(exclude_categories=[]), max_size=40)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | any_text | st.just(10**400)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4)
)

words = st.sampled_from(
    ["acme", "ingest-2024", "Größe", " x ", "a\u200d\u0323", "．．／", "..", "", "收入", "a/b", "ﬁ"]
)
spoiled = words | scalars


def mostly(value):
    """*value*, rarely with fields left out, spoiled or added."""
    fields = {name: nested(item) for name, item in value.items()}
    drops = st.sets(st.sampled_from(sorted(value)), max_size=1)
    spoils = st.dictionaries(st.sampled_from(sorted(value)), spoiled, max_size=1)
    rarely = st.sampled_from([False, False, False, True])
    return st.tuples(st.fixed_dictionaries(fields), drops, spoils, rarely, rarely).map(
        lambda drawn: {
            name: item
            for name, item in (drawn[0] | (drawn[2] if drawn[4] else {})).items()
            if not (drawn[3] and name in drawn[1])
        }
    )


def nested(item):
    return mostly(item) if isinstance(item, dict) and item else st.just(item)


blobs = st.one_of(mostly(FILE_BLOB), mostly(INLINE_BLOB), mostly(EXTERNAL_BLOB))
assets = st.tuples(mostly({**ASSET, "ocr_text": "x\0y"}), blobs).map(lambda drawn: {**drawn[0], "blob": drawn[1]})
documents = st.tuples(
    mostly({**DOCUMENT, "meta": DOCUMENT_META}), blobs, st.lists(assets | st.just(ASSET), max_size=2)
).map(lambda drawn: {**drawn[0], "blob": drawn[1], "assets": drawn[2]})
values = st.one_of(
    st.tuples(st.just("document-ref"), mostly(DOCUMENT_REF)),
    st.tuples(st.just("document-meta"), mostly(DOCUMENT_META)),
    st.tuples(st.just("asset-ref"), mostly(ASSET_REF)),
    st.tuples(st.just("blob"), blobs),
    st.tuples(st.just("asset"), assets),
    st.tuples(st.just("document"), documents),
)


@quick
@given(kinds, st.text(max_size=60) | st.binary(max_size=60))
def test_any_text_gets_an_answer(kind, text):
    assert {error.code for error in check(kind, text).errors} <= CODES.keys()


@quick
@given(kinds, anything, st.booleans())
def test_any_value_gets_an_answer_with_known_codes(kind, value, strict):
    checked = check_value(kind, value, strict=strict)

    assert {error.code for error in checked.errors} <= CODES.keys()
    assert checked.valid is (checked.value is not None)
    json.dumps([error.as_dict() for error in checked.errors], ensure_ascii=False).encode()


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(values, st.booleans())
def test_the_quick_and_the_explaining_judgement_agree(drawn, strict):
    """The quick one may have no opinion, but never another one."""
    kind, value = drawn
    try:
        text = json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    explained = _explained(kind, json.loads(text), Mode(strict=strict))
    quick = check(kind, text, strict=strict)

    assert explained == quick
    assert same(explained.value, quick.value)


def same(one, other):
    """Also what equality leaves out: the order of fields, which of them were given, and the types."""
    return repr(one) == repr(other) and (
        one is None or one.model_dump_json(exclude_unset=True) == other.model_dump_json(exclude_unset=True)
    )


bits = st.sampled_from(
    [b'"', b"\\", b"\\u0000", b"\\ud800", b"\xff", b"\n", b"\0", b",", b":", b"{", b"]", b"1e5", b"-0", b".5", b"\x7f"]
)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(VALID), st.integers(0), st.integers(0, 3), bits)
def test_a_spoiled_text_is_judged_the_same_by_both_parsers(sample, at, length, bit):
    kind, value = sample
    text = json.dumps(value, ensure_ascii=False).encode()
    at %= len(text)
    text = text[:at] + bit + text[at + length :]
    try:
        parsed = from_json(text, allow_inf_nan=True)
    except ValueError:
        assert ["json_invalid"] == [error.code for error in check(kind, text).errors]
    else:
        explained = _explained(kind, parsed, Mode())
        assert explained == check(kind, text)
        assert same(explained.value, check(kind, text).value)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(values, st.booleans())
def test_a_check_and_the_models_themselves_agree(drawn, strict):
    kind, value = drawn
    checked = check_value(kind, value, strict=strict)
    try:
        with strict_mode(strict):
            validated = ADAPTERS[kind].validate_python(value)
    except ValidationError as refused:
        found = sorted((line["type"], line["loc"], line["msg"]) for line in refused.errors(include_url=False))
        assert found == sorted((error.code, error.loc, error.message) for error in checked.errors)
    else:
        assert checked.valid
        assert same(validated, checked.value)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(values)
def test_an_accepted_value_written_and_checked_again_is_equal(drawn):
    kind, raw = drawn
    value = check_value(kind, raw).value
    if value is not None:
        assert value == check(kind, value.model_dump_json()).value
        assert value == check_value(kind, value.model_dump(mode="json")).value


@quick
@given(st.text(st.characters(exclude_categories=[])))
def test_cleaning_twice_changes_nothing(text):
    assert clean(text) == clean(clean(text))


def test_cleaning_goes_on_until_nothing_changes():
    assert "ạ" == clean("a\u200d\u0323") == clean(clean("a\u200d\u0323"))


@quick
@given(st.text(st.characters(exclude_categories=[])), st.integers(0, 60))
def test_a_cut_text_fits_and_is_a_beginning(text, limit):
    whole = text.encode("utf-8", "ignore").decode().replace("\0", "")

    short = cut(text, limit)

    assert len(short.encode()) <= limit
    assert whole.startswith(short)
    assert short == whole or len(short.encode()) > limit - 4


@quick
@given(any_text | words)
def test_an_accepted_name_never_walks_through_folders(name):
    ref = check_value("document-ref", {**DOCUMENT_REF, "workflow_id": name, "version": name}).value
    meta = check_value("document-meta", {**DOCUMENT_META, "tags": [name]}).value
    names = [ref.workflow_id, ref.version or "-"] if ref else []

    for accepted in names + (meta.tags if meta else []):
        assert not {"/", "\\", "\0"} & set(accepted)
        assert accepted not in ("", ".", "..")
