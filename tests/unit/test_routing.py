"""Routes, slices, quality and merging: pure rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docmill.core.parsed import Block, Figure, Page, Parsed
from docmill.core.routing import (
    PDF,
    Facts,
    Offer,
    Part,
    Policy,
    Reach,
    Slice,
    expected_s,
    fitted,
    foresee,
    halves,
    is_garbled,
    merge,
    quality,
    route,
    slices,
    stricter,
)

"""On a busy machine even a number takes its time."""
CLOUD = Offer("cloud", frozenset({PDF, "image/png"}), Reach(200))
HOME = Offer("home", frozenset({PDF}), Reach(1000), home=True)
REPORT = Facts(PDF, 10_000, 12, 6, 12)


def parsed(*pages: str, figures: tuple[Figure, ...] = ()) -> Parsed:
    return Parsed("x", PDF, tuple(Page(index, text) for index, text in enumerate(pages)), figures, facts={"a": 1})


def test_the_local_engine_comes_first_and_providers_after_it_in_their_order() -> None:
    assert ("local", "cloud", "home") == route(REPORT, [CLOUD, HOME], Policy()).engines
    assert ("cloud", "home", "local") == route(REPORT, [CLOUD, HOME], Policy(prefer="provider")).engines


@pytest.mark.parametrize(
    ("facts", "policy", "engines", "why"),
    [
        (REPORT, Policy(stay_home=True), ("local", "home"), "it must not leave the house"),
        (REPORT, Policy(budget_pages=11), ("local", "home"), "12 pages are more than the budget of 11"),
        (REPORT, Policy(budget_pages=12), ("local", "cloud", "home"), ""),
        (Facts("text/csv", 10), Policy(), ("local",), "it does not read this type"),
        (Facts("image/png", 500 << 20, 1), Policy(), ("local",), "it takes files up to 200 MB"),
    ],
)
def test_who_may_not_is_named_with_the_reason(facts: Facts, policy: Policy, engines: tuple[str, ...], why: str) -> None:
    found = route(facts, [CLOUD, HOME], policy)

    assert engines == found.engines
    assert why == next((one.why for one in found.refusals if one.engine == "cloud"), "")


def test_a_document_can_only_be_stricter_than_the_house() -> None:
    house = Policy(stay_home=True, budget_pages=10)

    assert house == stricter(house, {"stay_home": False, "budget_pages": 99})
    assert 5 == stricter(house, {"budget_pages": 5}).budget_pages
    assert stricter(Policy(), {"stay_home": True}).stay_home


@given(pages=st.integers(1, 5000), limit=st.integers(1, 700), size=st.integers(1, 10_000))
def test_slices_cover_every_page_once_in_order_and_within_the_limits(pages: int, limit: int, size: int) -> None:
    found = slices(Facts(PDF, size, pages), Reach(limit, 100))

    assert list(range(pages)) == [page for one in found for page in range(one.first, one.last + 1)]
    assert max(one.pages for one in found) <= limit
    assert len(found) == min(max(-(-pages // limit), -(-size // 100)), pages)


def test_only_a_pdf_is_cut() -> None:
    assert 1 == len(slices(Facts("image/tiff", 1, 500), Reach(10)))
    assert "" == next((one.why for one in route(Facts(PDF, 500 << 20, 9), [CLOUD], Policy()).refusals), "")


@given(first=st.integers(0, 50), pages=st.integers(1, 50))
def test_halves_are_the_whole(first: int, pages: int) -> None:
    found = halves(Slice(first, first + pages - 1))

    assert list(range(first, first + pages)) == [page for one in found for page in range(one.first, one.last + 1)]
    assert min(pages, 2) == len(found)


def test_a_result_has_the_pages_of_its_document_and_no_others() -> None:
    gap = Parsed("x", PDF, (Page(2, "three"),), (figure("a", 2),))
    whole = fitted(gap, 4)

    assert whole
    assert ["", "", "three", ""] == [page.markdown for page in whole.pages]
    assert ((0, 1, 3), [1, 2, 4]) == (whole.damaged_pages, whole.facts["missing_pages"])
    assert None is fitted(gap, 2)
    assert None is fitted(parsed("one", figures=(figure("a", 7),)), 1)
    assert None is fitted(Parsed("x", PDF, (Page(0, "one"), Page(0, "again"))), 1)


@pytest.mark.parametrize(
    ("pages", "poor"),
    [
        (["text"] * 10, False),
        (["text"] * 8 + [""] * 2, False),
        (["text"] * 7 + ["![](assets/a.png)"] * 3, True),
        (["\ue001\ue002 \ufffd\ufffd"] * 2 + ["text"], True),
        (["(cid:12)(cid:7)(cid:99) a"], True),
        ([], True),
    ],
)
def test_empty_and_garbled_pages_make_a_result_poor(pages: list[str], poor: bool) -> None:
    assert poor == quality(parsed(*pages).pages).is_poor


@pytest.mark.parametrize("text", ["Übergrößenträger für 12,50 €", "报告第一页", "f(x) = ∑ xᵢ", "| 1 | 2 |", "1.5"])
def test_real_text_is_not_garbage(text: str) -> None:
    assert not is_garbled(text)


def figure(name: str, page: int) -> Figure:
    return Figure(name, "image", "image/png", "0" * 64, 1, page)


def test_parts_are_merged_in_order_with_figures_under_their_new_pages() -> None:
    second = parsed("three ![](assets/p001_img01.png)", "four", figures=(figure("p001_img01.png", 0),))
    first = parsed("one ![](assets/p001_img01.png)", "two", figures=(figure("p001_img01.png", 0),))

    merged = merge("cloud", [Part(Slice(2, 3), second), Part(Slice(0, 1), first)])

    assert ["one ![](assets/p001_img01.png)", "two", "three ![](assets/p003_img01.png)", "four"] == [
        page.markdown for page in merged.parsed.pages
    ]
    assert [0, 1, 2, 3] == [page.index for page in merged.parsed.pages]
    assert [("p001_img01.png", 0), ("p003_img01.png", 2)] == [
        (one.name, one.page_index) for one in merged.parsed.figures
    ]
    assert {(0, "p001_img01.png"): "p001_img01.png", (1, "p001_img01.png"): "p003_img01.png"} == merged.renamed
    assert {"a": 1, "slices": 2} == merged.parsed.facts


def test_blocks_of_a_part_keep_their_lines_whatever_their_figures_are_called() -> None:
    blocks = (Block("figure", 0, 1, (0.1, 0.1, 0.2, 0.2)), Block("text", 2, 3, (0.1, 0.3, 0.2, 0.4)))
    page = Page(0, "![](assets/p001_img01.png)\n\ntext", blocks=blocks)
    part = Parsed("x", PDF, (page,), (figure("p001_img01.png", 0),))

    merged = merge("cloud", [Part(Slice(0, 1998)), Part(Slice(1999, 1999), part)]).parsed.pages[-1]

    assert "![](assets/p2000_img01.png)\n\ntext" == merged.markdown
    assert blocks == merged.blocks


def test_missing_pages_are_named() -> None:
    merged = merge(
        "cloud", [Part(Slice(0, 1), fitted(parsed("one"), 2)), Part(Slice(2, 3), None, "provider_failed: no")]
    )

    assert [2, 3, 4] == merged.parsed.facts["missing_pages"]
    assert (1, 2, 3) == merged.parsed.damaged_pages
    assert "one\n" == merged.parsed.markdown


def test_a_plan_says_engine_slices_time_and_refusals() -> None:
    long = Facts(PDF, 1, 2000, 12, 24)

    found = foresee(long, "auto", [CLOUD, HOME], Policy(prefer="provider", stay_home=True), parallel={"home": 4})

    assert ("home", ("local",)) == (found.engine, found.then)
    assert [Slice(0, 999), Slice(1000, 1999)] == list(found.slices)
    assert ["cloud"] == [one.engine for one in found.refusals]
    assert 0 < found.expected_s < expected_s(long, "home")
    refused = foresee(long, "cloud", [CLOUD, HOME], Policy(stay_home=True), parallel={})
    assert ("provider_forbidden", "cloud: it must not leave the house") == (refused.code, refused.message)
    assert expected_s(long, "local") > 2000, "half of it is scanned"
