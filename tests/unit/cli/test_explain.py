"""`docmill explain`"""

from __future__ import annotations

import json
from typing import Any

import pytest

from docmill.cli.explain import language
from docmill.core.catalogue import entries


def test_a_code_is_explained_with_its_next_step(docmill: Any) -> None:
    result = docmill("explain", "rate_limited", "--lang", "en")

    assert 0 == result.exit_code
    assert [
        "rate_limited: Too many requests in a short time.",
        "Next step: Wait as long as Retry-After says, then try again.",
        "Area: http",
        "HTTP status: 429",
        "Retrying helps: yes",
    ] == result.stdout.splitlines()


def test_a_code_without_a_status_shows_none(docmill: Any) -> None:
    assert "HTTP" not in docmill("explain", "twin_drift", "--lang", "en").stdout


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"LANG": "de_DE.UTF-8"}, "Zu viele Anfragen"),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "zh_CN.UTF-8"}, "请求过多"),
        ({"LANG": "fr_FR.UTF-8"}, "Too many requests"),
    ],
)
def test_the_locale_chooses_the_language(docmill: Any, env: dict[str, str], expected: str) -> None:
    clean: dict[str, Any] = {"LC_ALL": None, "LC_MESSAGES": None, "LANG": None}

    assert expected in docmill("explain", "rate_limited", env=clean | env).stdout


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, "en"),
        ({"LANG": "C"}, "en"),
        ({"LANG": "de"}, "de"),
        ({"LANG": "zh-Hans"}, "zh"),
        ({"LANG": "de.UTF-8"}, "de"),
        ({"LC_ALL": "", "LANG": "de_AT"}, "de"),
        ({"LC_MESSAGES": "zh_TW.UTF-8", "LANG": "de_AT"}, "zh"),
    ],
)
def test_locales_are_read_in_their_order(env: dict[str, str], expected: str) -> None:
    assert expected == language(env)


def test_an_unknown_code_is_a_usage_error_with_suggestions(docmill: Any) -> None:
    result = docmill("explain", "tenant-emty")

    assert 2 == result.exit_code
    assert "There is no code 'tenant-emty'. Did you mean tenant_empty" in result.stderr


def test_nonsense_points_to_the_list(docmill: Any) -> None:
    result = docmill("explain", "qqqqzzzz")

    assert 2 == result.exit_code
    assert "'docmill explain' lists all codes." in result.stderr


def test_without_a_code_all_are_listed_under_their_area(docmill: Any) -> None:
    lines = docmill("explain", "--lang", "en").stdout.splitlines()

    assert sorted({one.area for one in entries()}) == [line for line in lines if not line.startswith(" ")]
    assert [one.code for one in entries()] == [line.split()[0] for line in lines if line.startswith(" ")]


def test_json_carries_all_there_is_to_know(docmill: Any) -> None:
    result = docmill("explain", "rate_limited", "--lang", "de", "--json")

    assert {
        "code": "rate_limited",
        "area": "http",
        "status": 429,
        "retryable": True,
        "lang": "de",
        "sentence": "Zu viele Anfragen in kurzer Zeit.",
        "next_step": "So lange warten, wie Retry-After angibt, dann erneut versuchen.",
    } == json.loads(result.stdout)


def test_json_of_all_codes_is_one_object_per_line(docmill: Any) -> None:
    lines = docmill("explain", "--json").stdout.splitlines()

    assert [one.code for one in entries()] == [json.loads(line)["code"] for line in lines]
