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


def test_rows_that_should_not_depend_on_the_tasks_are_found() -> None:
    samples = Samples()
    for at in range(50):
        samples.add(float(at), {"rows in notices": float(at % 5) * 20, "rows in loans": 4.0 * at})

    assert {"rows in notices": True, "rows in loans": False} == {one.name: one.is_flat for one in samples.fits()}


def test_a_leak_of_4_kb_per_task_breaks_the_limit_within_an_hour() -> None:
    chance = random.Random(2)
    series = [(at, 150.0 + at * 4 / 1024 + chance.uniform(-2, 2)) for at in range(0, 3600, 10)]

    assert not fit("memory of api0", series, limit_of("memory of api0")).is_flat


def test_every_series_that_is_sampled_has_a_limit() -> None:
    for name in (
        *("memory of api0", "descriptors of api0", "threads of api0", "parsers of worker0"),
        *("redis keys beside run states", "scratch files", "objects per task", "rows in loans"),
        *("rows per task in events", "redis run states per task"),
    ):
        assert limit_of(name)
    assert limit_of("memory of the largest parser of worker0") != limit_of("memory of worker0")
