"""Where an extracted value stands in the document, judged by code."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docmill.core.parsed import Page
from docmill.core.provenance import tally, trace
from support.measuring import costs_at_most

PAGES = (
    Page(0, "# Rechnung Nr. 2026/0089\n\nRechnungsdatum: 02.03.2026, Kunde **Grünspecht\nGmbH**, Ver-\nsand frei"),
    Page(1, "| Gesamtbetrag | 4.652,90 € |\n| Umsatzsteuer | 19 % |\n| Saldo | -12,50 |\nAnzahl 1 234 in 2012. A\\_B"),
    Page(2, "Paid on March 12, 2026, or 报告日期：2026年4月1日。 Price 1,180.00 and 3.5 of 1.500. The sentence goes"),
    Page(3, "on here. Fish &amp; Chips — “best” in town. 00042"),
)


@pytest.mark.parametrize(
    ("value", "found", "page", "text"),
    [
        ("2026/0089", "verbatim", 1, None),
        ("Grünspecht\nGmbH", "verbatim", 1, None),
        ("Grünspecht GmbH", "normalised", 1, None),
        ("GRÜNSPECHT GMBH", "normalised", 1, None),
        ("Versand frei", "normalised", 1, None),
        ("Grünspecht AG", "not_found", None, None),
        ("2026-03-02", "normalised", 1, "02.03.2026"),
        ("2026-03-12", "normalised", 3, "March 12, 2026"),
        ("2026-03-12T00:00:00Z", "normalised", 3, "March 12, 2026"),
        ("2026-04-01", "normalised", 3, "2026年4月1"),
        ("2026-05-01", "not_found", None, None),
        ("报告日期", "verbatim", 3, None),
        (4652.9, "normalised", 2, "4.652,90"),
        (4652.91, "not_found", None, None),
        ("4652.90", "normalised", 2, "4.652,90"),
        ("4652.90 EUR", "normalised", 2, "4.652,90"),
        (19, "verbatim", 2, None),
        (0.19, "normalised", 2, "19 %"),
        (-12.5, "normalised", 2, "-12,50"),
        ("-12.50", "normalised", 2, "-12,50"),
        (1234, "normalised", 2, "1 234"),
        (12, "verbatim", 3, None),
        (201, "not_found", None, None),
        ("201", "not_found", None, None),
        (1180, "normalised", 3, "1,180.00"),
        (3.5, "verbatim", 3, None),
        (1500, "normalised", 3, "1.500"),
        (1.5, "normalised", 3, "1.500"),
        ("The sentence goes on here", "normalised", 3, None),
        ('Fish & Chips - "best"', "normalised", 4, None),
        ("A_B", "normalised", 2, None),
        (42, "normalised", 4, "00042"),
        (True, "not_found", None, None),
        (10**60, "not_found", None, None),
    ],
)
def test_a_value_is_found_where_and_as_it_stands(value: object, found: str, page: int | None, text: str | None) -> None:
    [source] = trace({"a/b": value}, PAGES)

    assert ("/a~1b", found, page, text) == (source.pointer, source.found, source.page, source.text)


def test_every_value_has_its_source_in_order_and_what_is_absent_has_none() -> None:
    value = {"number": "2026/0089", "none": None, "empty": "", "items": [{"total": 4652.9}, {"total": 1.0}], "x": {}}

    sources = trace(value, PAGES)

    assert ["/number", "/items/0/total", "/items/1/total"] == [one.pointer for one in sources]
    assert {"verbatim": 2, "normalised": 1, "not_found": 0} == tally(sources)


def test_a_bare_value_and_a_document_without_pages() -> None:
    assert ("", "not_found") == (trace("x", ())[0].pointer, trace("x", ())[0].found)
    assert () == trace(None, PAGES)


@given(st.recursive(st.text() | st.floats() | st.integers() | st.booleans() | st.none(), st.lists), st.text())
def test_nothing_breaks_it(value: object, text: str) -> None:
    trace(value, (Page(0, text),))


def test_hostile_text_costs_no_more_than_long_text() -> None:
    """A page of digits and one of blanks: every pattern must stay linear."""
    for page in ("1" * 200_000, "1." * 100_000, "1 " * 100_000, " " * 200_000, "<b" * 50_000, "jan 1 " * 30_000):
        with costs_at_most(10):
            trace({"a": 12, "b": "2026-01-01", "c": "x" * 1000}, (Page(0, page),))
