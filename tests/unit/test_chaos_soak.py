"""The soak run tells a series that grows from one that only wavers."""

import random

from bench.chaos.soak import Limit, Samples, fit, limit_of


def test_a_rise_during_the_warm_up_does_not_count() -> None:
    series = [(float(at), 100.0 + min(at, 20)) for at in range(100)]

    found = fit("memory of serve", series, Limit(1.0))

    assert found.is_flat
    assert abs(found.rise) < 0.01


def test_a_leak_is_found_under_noise() -> None:
    chance = random.Random(1)
    noise = [(float(at), 200.0 + chance.uniform(-10, 10)) for at in range(200)]
    leak = [(at, value + 0.5 * at) for at, value in noise]

    assert fit("memory of serve", noise, limit_of("memory of serve")).is_flat
    assert not fit("memory of serve", leak, limit_of("memory of serve")).is_flat


def test_rows_that_grow_faster_than_tasks_are_found() -> None:
    samples = Samples()
    for at in range(50):
        samples.add(float(at), {"rows per task in events": 8.0, "rows per task in leak": 1.0 + at / 10})

    assert {"rows per task in events": True, "rows per task in leak": False} == {
        one.name: one.is_flat for one in samples.fits()
    }


def test_every_series_that_is_sampled_has_a_limit() -> None:
    for name in (
        "memory of api0",
        "descriptors of api0",
        "threads of api0",
        "redis keys beside run states",
        "scratch files",
    ):
        assert limit_of(name)
    assert limit_of("objects per task")
    assert limit_of("redis run states per task") != limit_of("redis keys beside run states")
