"""A process dies at a point where something becomes true, and nobody notices (R9).

A few points, evenly chosen; all of them with `pytest -m long` or `python -m bench.chaos.failpoints`.
"""

import pytest

from bench.chaos.failpoints import ELSEWHERE, Coverage, file_points, run

POINTS = {"embedded": 4, "distributed": 3}
PARTS = {"embedded": 5, "distributed": 6}
"""So many walks take all points, each of them a part that is evenly chosen."""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", POINTS)
def test_a_death_at_any_point_loses_doubles_and_breaks_nothing(mode: str) -> None:
    walked, findings = run(mode, most=POINTS[mode])

    assert findings.is_clean, findings.examples
    assert len(walked.died_at) >= POINTS[mode] // 2, walked.missed
    assert not walked.odd
    assert sorted(walked.died_at + walked.missed) == sorted(walked.wanted), "each point is counted once"
    assert f"covered {len(walked.died_at)} of {len(walked.wanted)} points" in walked.coverage.lines()[0]


def test_the_report_names_points_without_a_death_and_calls_that_no_walk_comes_to() -> None:
    reached = "before fsync in adapters.stores.drafts.sync#1"
    coverage = Coverage(
        [reached, "after commit save#1"], [reached, "after commit save#1"], [reached], ["after commit save#1"]
    )

    text = "\n".join(coverage.lines())

    assert "covered 1 of 2 points (50.0 %), 1 of 2 names" in text
    assert "names without any death: ['after commit save']" in text
    assert not coverage.is_complete
    assert len(file_points()) > 10
    elsewhere = ELSEWHERE.keys() | {"fsync in adapters.stores.drafts.sync"}
    assert all(point in text for point in file_points() - elsewhere)
    assert not ELSEWHERE.keys() - file_points(), "it names calls that are not there"


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("mode", "part"), [(mode, part) for mode, parts in PARTS.items() for part in range(parts)])
def test_a_death_at_every_point_loses_doubles_and_breaks_nothing(mode: str, part: int) -> None:
    walked, findings = run(mode, every=PARTS[mode], offset=part)
    print(f"{mode} {part}", *walked.coverage.lines(), sep="\n")

    assert findings.is_clean, findings.examples
    assert len(walked.died_at) > 2 * len(walked.missed), walked.missed
    assert not walked.odd
