"""Real workers and SQL on a virtual clock, with faults drawn from a seed: no invariant breaks (R19)."""

import pytest

from bench.chaos.simulation import simulate

SEEDS = 8
"""`python -m bench.chaos.simulation --seeds 1000` runs more."""


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_no_invariant_breaks(seed: int) -> None:
    outcome = simulate(seed)

    assert outcome.broken is None
    assert outcome.tasks == 18
    assert sum(outcome.faults.values()) > 50


def test_a_seed_gives_the_same_run_again() -> None:
    first, second = simulate(99, keep_trace=True), simulate(99, keep_trace=True)

    assert first.trace == second.trace
    assert first.trace != simulate(98, keep_trace=True).trace
