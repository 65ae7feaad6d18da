"""The process dies at a point where something becomes true, and nobody notices (R9).

A few points, evenly chosen; `python -m bench.chaos.failpoints` takes all of them, in both modes.
"""

import pytest

from bench.chaos.failpoints import run

POINTS = 4


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_death_at_any_point_loses_doubles_and_breaks_nothing() -> None:
    walked, findings = run("embedded", most=POINTS)

    assert findings.is_clean, findings.examples
    assert len(walked.died_at) >= POINTS // 2, walked.missed
    assert not walked.odd
