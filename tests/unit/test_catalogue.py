"""Every code is explained once, completely, in three languages."""

from __future__ import annotations

import re

import pytest

from docmill import contracts
from docmill.core import catalogue, errors
from docmill.core.catalogue import LANGUAGES, Entry, entries, entry, suggest

NOT_OURS = frozenset({"contracts"})
"""Areas whose codes are not those of `docmill.core.errors`."""


@pytest.mark.parametrize("one", entries(), ids=lambda e: e.code)
def test_an_entry_has_a_sentence_and_a_next_step_in_every_language(one: Entry) -> None:
    texts = [text.strip() for lang in LANGUAGES for text in one.text[lang]]

    assert 2 * len(LANGUAGES) == len([text for text in texts if text])
    assert all(text.endswith((".", "。")) for text in texts)


@pytest.mark.parametrize("one", entries(), ids=lambda e: e.code)
def test_each_language_is_what_it_says(one: Entry) -> None:
    chinese = {lang: bool(re.search("[\u4e00-\u9fff]", "".join(one.text[lang]))) for lang in LANGUAGES}

    assert {"en": False, "de": False, "zh": True} == chinese
    assert one.text["en"] != one.text["de"]


def test_german_is_neutral_and_keeps_its_umlauts() -> None:
    german = " ".join(text for one in entries() for text in one.text["de"])

    assert [] == re.findall(r"(?i)\b(?:du|dein\w*|dir|dich)\b", german)
    assert [] == re.findall(r"(?i)\b(?:fuer|ueber|koennen|muessen|waehlen|pruefen|groesser|laenger)\b", german)


def test_codes_are_snake_case_and_statuses_are_errors() -> None:
    assert [] == [one.code for one in entries() if not re.fullmatch("[a-z][a-z0-9_]*", one.code)]
    assert [] == [one.code for one in entries() if one.status is not None and not 400 <= one.status < 600]


def test_every_contract_code_is_in_the_catalogue_and_no_other() -> None:
    explained = {one.code for one in entries() if one.area == "contracts"}

    assert set(contracts.CODES) == explained


def test_every_error_of_ours_is_in_the_catalogue_and_no_other() -> None:
    explained = {one.code for one in entries() if one.area not in NOT_OURS}

    assert errors.all_codes() == explained


def test_catalogue_and_errors_agree_on_retrying() -> None:
    says_yes = {one.code for one in entries() if one.retryable}

    assert errors.RETRYABLE == says_yes


def test_a_code_in_two_sheets_is_refused() -> None:
    sheet = 'status = 400\n[twice]\nen = ["a.", "b."]\nde = ["a.", "b."]\nzh = ["a。", "b。"]\n'
    both = [*catalogue.read("one", sheet), *catalogue.read("two", sheet)]

    with pytest.raises(ValueError, match="twice stands in the areas one and two"):
        catalogue.by_code(both)


def test_an_entry_takes_over_what_its_sheet_says_unless_it_says_otherwise() -> None:
    texts = 'en = ["a.", "b."]\nde = ["a.", "b."]\nzh = ["a。", "b。"]\n'
    sheet = f"status = 400\n[plain]\n{texts}[special]\nstatus = 503\nretryable = true\n{texts}"

    found = {one.code: (one.status, one.retryable) for one in catalogue.read("area", sheet)}

    assert {"plain": (400, False), "special": (503, True)} == found


def test_a_code_is_found_and_a_stranger_is_not() -> None:
    found = entry("rate_limited")

    assert found is not None
    assert ("http", 429, True) == (found.area, found.status, found.retryable)
    assert entry("no_such_code") is None


@pytest.mark.parametrize("typo", ["tenant_emty", "TENANT_EMPTY", "tenant-empty", " tenant_empty "])
def test_a_near_miss_is_suggested_first(typo: str) -> None:
    assert "tenant_empty" == suggest(typo)[0]


def test_nothing_is_suggested_for_nonsense() -> None:
    assert [] == suggest("qqqqzzzz")
