"""How fast pages are read and how long the rest takes, with a clock that the test moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from docmill.cli.pace import Pace, format_duration


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / name for name in ("a.pdf", "b.pdf", "c.pdf", "d.pdf")]
    for path in paths:
        path.write_bytes(b"x" * 1000)
    return paths


def test_nothing_is_said_before_it_can_be_known(files: list[Path]) -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.begin(files)
    before = pace.describe()
    pace.progress(files[0], 0, None)
    clock.now += 60
    without_a_page = pace.describe()
    pace.progress(files[0], 1, None)

    assert ("", "") == (before, without_a_page)
    assert "0.0 pages/s" == pace.describe()


def test_documents_and_the_pages_of_those_that_run_count(files: list[Path]) -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.begin(files)
    pace.progress(files[0], 0, 10)
    pace.progress(files[1], 0, 10)
    clock.now += 10
    pace.finish(files[0], 10, was_work=True)
    pace.progress(files[1], 5, 10)

    # 15 pages in 10 s; 1,500 of 4,000 bytes are read.
    assert "1.5 pages/s, about 17 s left" == pace.describe()


def test_what_was_current_does_not_make_the_rest_look_quick(files: list[Path]) -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.begin(files)
    pace.finish(files[0], 0, was_work=False)
    pace.progress(files[1], 0, 1)
    clock.now += 10
    pace.finish(files[1], 1, was_work=True)

    assert "0.1 pages/s, about 20 s left" == pace.describe()


def test_a_file_that_is_gone_counts_nothing(tmp_path: Path) -> None:
    pace = Pace(Clock())

    pace.begin([tmp_path / "gone.pdf"])

    assert 0 == pace.bytes_left


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (59.4, "59 s"), (61, "1 min 1 s"), (3600, "1 h 0 min"), (7380, "2 h 3 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert text == format_duration(seconds)
