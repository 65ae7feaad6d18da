"""A short storm over API processes, workers, PostgreSQL and Redis. `python -m bench.chaos` is the long one.

Embedded, the same is shown by test_kills.py, over fifty kills.
"""

import pytest

from bench.chaos.deployments import Pace
from bench.chaos.run import Plan, run


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_is_lost_stuck_doubled_wrong_or_unreadable_in_a_short_storm() -> None:
    plan = Plan(
        "distributed",
        seed=20_261_115,
        tasks=30,
        kills=8,
        quiet_tasks=0,
        clients=4,
        pace=Pace(lease_s=4.0, heartbeat_s=1.0, sweep_s=0.5),
        pause_s=(0.3, 1.2),
        away_s=(0.0, 2.0),
    )
    report = run(plan)
    print("\n".join(report.lines()))

    assert plan.tasks == report.accepted
    assert report.findings.is_clean, report.findings.examples
    assert not [said for said in report.answers if said.startswith(("bad", "no Retry-After"))], report.answers
    assert report.kills >= plan.kills
