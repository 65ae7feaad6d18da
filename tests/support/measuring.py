"""CPU time instead of wall-clock time: a busy machine hardly changes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil


@contextmanager
def costs_at_most(cpu_s: float) -> Iterator[None]:
    """Assert that the block uses less CPU time than this in the calling thread."""
    began = time.thread_time()
    yield
    used_s = time.thread_time() - began
    assert used_s < cpu_s, f"{used_s:.2f} s of CPU time, allowed are {cpu_s:g} s"


def measure(run: Callable[[], object]) -> float:
    """Seconds of CPU time that a call uses in this thread."""
    began = time.thread_time()
    run()
    return time.thread_time() - began


def used_by(pid: int) -> float:
    """Seconds of CPU time that a process has used so far, in all its threads. The kernel counts in steps of 10 ms."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
