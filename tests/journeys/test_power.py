"""The power is cut, and what was not synced is gone (R8). `python -m bench.chaos.power` cuts as often as one likes."""

import pytest

from bench.chaos.power import run

CUTS = 2


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_was_answered_is_there_after_a_power_cut() -> None:
    power = run(CUTS, seed=2, pause_s=(1.5, 2.5))

    assert power.findings.is_clean, power.findings.examples
    assert power.told, "nobody was told anything before the cuts"
