"""The quick judgement has an opinion on what is usual, and gives ordinary values."""

import copy
import json
import pickle

import pytest
from msgspec.structs import fields

from docmill.contracts import Asset, AssetRef, check, check_value
from docmill.contracts.blob import BLOBS
from docmill.contracts.checking import Checked
from docmill.contracts.document import DocumentMeta, DocumentRef, NormalizedDocument
from docmill.contracts.mode import Mode
from docmill.contracts.shapes import (
    AssetRefShape,
    AssetShape,
    DocumentMetaShape,
    DocumentRefShape,
    DocumentShape,
    ExternalShape,
    FileShape,
    InlineShape,
)
from docmill.contracts.swift import accepted

from .samples import ASSET, COLLECTION_ID, DOCUMENT, VALID, WHOLE_DOCUMENT, changed

PAIRS = [
    (DocumentRefShape, DocumentRef),
    (DocumentMetaShape, DocumentMeta),
    (DocumentShape, NormalizedDocument),
    (AssetRefShape, AssetRef),
    (AssetShape, Asset),
    (FileShape, BLOBS["file"]),
    (InlineShape, BLOBS["inline"]),
    (ExternalShape, BLOBS["external"]),
]


@pytest.mark.parametrize(("shape", "model"), PAIRS)
def test_a_shape_has_the_fields_of_its_model_in_their_order(shape, model):
    expected = [(name, field.is_required()) for name, field in model.model_fields.items() if name != "type"]

    assert expected == [(field.name, field.required) for field in fields(shape)]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("kind", "value"), VALID)
def test_the_usual_is_accepted_at_once(kind, value, strict):
    for text in (json.dumps(value), json.dumps(value, indent=2), json.dumps(value, separators=(",", ":"))):
        assert accepted(kind, text.encode(), Mode(strict=strict)) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"ocr_text": "x\0y" * 4000},
        {"context_before": "Größe 收入 " * 300},
        {"origin_uri": "https://example.org/Größe/收入 Q3"},
        {"created_at": "2024-05-02T12:15:00.5+02:00"},
        {"page_index": None, "bbox": None},
    ],
)
def test_so_are_long_texts_other_scripts_and_other_zones(change):
    asset = {**ASSET, **change}

    make = accepted("asset", json.dumps(asset, ensure_ascii=False).encode(), Mode())

    assert make is not None
    assert repr(check_value("asset", asset).value) == repr(make())


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

    assert checked.value is checked.value
    assert checked == check_value("document-ref", VALID[0][1]) == pickle.loads(pickle.dumps(checked))
    assert hash(checked) == hash(check_value("document-ref", VALID[0][1]))
    assert repr(checked).startswith("Checked(value=DocumentRef(")
    assert checked != check("document-ref", "{}")
    assert Checked(None) != 1
