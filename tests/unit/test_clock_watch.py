"""A wall clock that is set is told from one that runs."""

import pytest

from docmill.core.clocks import MIN_WATCH_MS, ClockWatch

HOUR_MS = 3_600_000


def test_the_first_observation_is_no_jump() -> None:
    assert 0 == ClockWatch().observe(5 * HOUR_MS, 7)


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS, 11_000, -11_000])
def test_a_jump_is_told_until_it_is_settled(jump_ms: int) -> None:
    watch = ClockWatch()
    watch.observe(HOUR_MS, 0)

    assert jump_ms == watch.observe(HOUR_MS + 2_000 + jump_ms, 2_000)
    assert max(0, jump_ms) == watch.observe(HOUR_MS + 4_000 + jump_ms, 4_000)
    watch.settle()
    assert 0 == watch.observe(HOUR_MS + 6_000 + jump_ms, 6_000)


def test_a_jump_that_is_taken_back_needs_nothing() -> None:
    watch = ClockWatch()
    watch.observe(HOUR_MS, 0)

    assert HOUR_MS == watch.observe(2 * HOUR_MS, 0)
    assert -HOUR_MS == watch.observe(HOUR_MS, 0)
    assert 0 == watch.observe(HOUR_MS + 2_000, 2_000)


@pytest.mark.parametrize("off_ms", [9_000, -9_000])
def test_a_small_correction_is_no_jump(off_ms: int) -> None:
    watch = ClockWatch()
    watch.observe(HOUR_MS, 0)

    assert 0 == watch.observe(HOUR_MS + 2_000 + off_ms, 2_000)


def test_a_clock_that_drifts_for_a_day_is_no_jump() -> None:
    watch = ClockWatch()
    watch.observe(0, 0)

    assert 0 == watch.observe(24 * HOUR_MS + 40_000, 24 * HOUR_MS)


def test_a_watch_is_sure_when_it_has_watched_for_a_while() -> None:
    watch = ClockWatch()
    sure = []
    for at_ms in (0, MIN_WATCH_MS - 1, MIN_WATCH_MS, MIN_WATCH_MS + 1):
        watch.observe(HOUR_MS + at_ms, at_ms)
        sure.append(watch.is_sure)

    assert [False, False, True, True] == sure


def test_after_a_gap_the_watch_begins_again() -> None:
    watch = ClockWatch(max_gap_ms=20_000)
    sure = []
    for at_ms in (0, 10_000, 30_000, 50_001, 55_000, 55_001):
        watch.observe(HOUR_MS + at_ms, at_ms)
        sure.append(watch.is_sure)

    assert [False, True, True, False, False, True] == sure
