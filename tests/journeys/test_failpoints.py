"""A process dies at a point where something becomes true, and nobody notices (R9).

A few points, evenly chosen; all of them with `pytest -m long` or `python -m bench.chaos.failpoints`.
"""

import pytest

from bench.chaos.failpoints import run

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


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("mode", "part"), [(mode, part) for mode, parts in PARTS.items() for part in range(parts)])
def test_a_death_at_every_point_loses_doubles_and_breaks_nothing(mode: str, part: int) -> None:
    walked, findings = run(mode, every=PARTS[mode], offset=part)
    print(f"{mode} {part}: died at {len(walked.died_at)}, not reached again: {walked.missed}")

    assert findings.is_clean, findings.examples
    assert len(walked.died_at) > 2 * len(walked.missed), walked.missed
    assert not walked.odd
