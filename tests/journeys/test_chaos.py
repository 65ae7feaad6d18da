"""Short storms under the wide load, checked by what the API shows. `make chaos` runs longer ones.

Over fifty kills of the embedded process are in test_kills.py.
"""

import pytest

from bench.chaos.deployments import Pace
from bench.chaos.run import Plan, Report, run

PLANS = {
    "distributed": Plan(
        "distributed",
        seed=20_261_115,
        tasks=30,
        kills=8,
        quiet_tasks=0,
        clients=4,
        pace=Pace(lease_s=4.0, heartbeat_s=1.0, sweep_s=0.5),
        pause_s=(0.3, 1.2),
        away_s=(0.0, 2.0),
    ),
    "embedded": Plan("embedded", seed=20_261_118, tasks=16, kills=3, quiet_tasks=0, clients=4, pause_s=(0.5, 1.0)),
}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", PLANS)
def test_nothing_is_lost_stuck_doubled_wrong_or_unreadable_in_a_short_storm(mode: str) -> None:
    plan = PLANS[mode]
    report: Report = run(plan)
    print("\n".join(report.lines()))

    assert plan.tasks == report.accepted
    assert report.findings.is_clean, report.findings.examples
    assert not [said for said in report.answers if said.startswith(("bad", "no Retry-After"))], report.answers
    assert report.kills >= plan.kills
    assert not report.unfinished_clients
    idle = [name for name, number in report.observed.items() if number == 0 and name != "webhook tries refused"]
    assert not idle, f"the load had none of {idle}, so this run shows nothing about them"
