"""A text that is in order is accepted by Pydantic alone, and gives the same value as the rules in Python."""

import copy
import json
import pickle

import pytest

from docmill.contracts import check, check_value
from docmill.contracts.checking import Checked, _validator
from docmill.contracts.mode import Mode

from .samples import ASSET, COLLECTION_ID, DOCUMENT, VALID, WHOLE_DOCUMENT, changed


@pytest.mark.parametrize(("kind", "value"), VALID)
def test_what_is_in_order_needs_no_explanation(kind, value):
    for text in (json.dumps(value), json.dumps(value, indent=2), json.dumps(value, separators=(",", ":"))):
        plain = _validator(kind).validate_python(json.loads(text), context=Mode())
        assert repr(check_value(kind, value).value) == repr(plain)


@pytest.mark.parametrize(
    "change",
    [
        {"ocr_text": "x\0y" * 4000},
        {"context_before": "Größe 收入 " * 300},
        {"origin_uri": "https://example.org/Größe/收入 Q3"},
        {"origin_uri": "  https://example.org/Größe  "},
        {"created_at": "2024-05-02T12:15:00.5+02:00"},
        {"created_at": "2024-05-02T12:15:00.1234567Z"},
        {"page_index": None, "bbox": None},
        {"page_index": 14.0},
        {"bbox": [0, 0, 1, 1]},
    ],
)
def test_neither_do_values_that_are_normalised(change):
    asset = {**ASSET, **change}
    plain = _validator("asset").validate_python(asset, context=Mode())
    assert repr(check_value("asset", asset).value) == repr(plain)


@pytest.mark.parametrize("moment", ["1714644900", "20240502", 1714644900, "2024-05-02", "2024-05-02T12:15:00"])
def test_what_pydantic_alone_would_take_for_a_moment_is_judged_by_the_rule(moment):
    asset = {**ASSET, "created_at": moment}
    assert check_value("asset", asset).errors == check("asset", json.dumps(asset)).errors != ()


def test_an_inherited_collection_counts_as_given():
    document = changed(WHOLE_DOCUMENT, "ref.collection_id", COLLECTION_ID)

    quick, explained = check("document", json.dumps(document)).value, check_value("document", document).value

    assert quick.assets[0].ref.model_fields_set == explained.assets[0].ref.model_fields_set
    assert COLLECTION_ID == str(quick.assets[0].ref.collection_id)
    assert repr(quick) == repr(explained)


def test_a_value_is_an_ordinary_model():
    value = check("document", json.dumps(WHOLE_DOCUMENT)).value

    assert value == check_value("document", WHOLE_DOCUMENT).value
    assert value == pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == value.model_copy()
    assert value.model_copy(update={"source": "other"}).model_fields_set == value.model_fields_set
    assert value.__pydantic_extra__ is None
    with pytest.raises(ValueError, match="frozen"):
        value.source = "other"


def test_absent_lists_are_not_shared():
    text = json.dumps({name: item for name, item in DOCUMENT.items() if name != "assets"})
    one, other = check("document", text).value, check("document", text).value

    assert [] == one.assets
    assert one.assets is not other.assets
    assert one.meta.external_ref is not other.meta.external_ref


def test_an_outcome_is_a_plain_value():
    checked = check("document-ref", json.dumps(VALID[0][1]))

    assert checked == check_value("document-ref", VALID[0][1]) == pickle.loads(pickle.dumps(checked))
    assert hash(checked) == hash(check_value("document-ref", VALID[0][1]))
    assert repr(checked).startswith("Checked(value=DocumentRef(")
    assert checked != check("document-ref", "{}")
    assert Checked(None) != 1
