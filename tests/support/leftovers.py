"""Finds processes that outlive the test run which started them."""

from __future__ import annotations

import os
import time
from contextlib import suppress

import psutil

VARIABLE = "PYTEST_RUN_OF_DOCMILL"
"""In the environment of everything that a run starts, also of processes whose parent has ended."""


def find_leftovers(run: str, within_s: float = 10.0) -> list[psutil.Process]:
    """Processes of this run, except this one, that have not ended after some seconds."""
    ends = time.monotonic() + within_s
    while (found := [one for one in psutil.process_iter() if _belongs_to(run, one)]) and time.monotonic() < ends:
        time.sleep(0.1)
    return found


def end(processes: list[psutil.Process]) -> str:
    """Kill them; a line for each."""
    lines = []
    for one in processes:
        with suppress(psutil.Error):
            lines.append(f"pid {one.pid}: {' '.join(one.cmdline())[:300]}")
            one.kill()
    return "\n".join(lines)


def _belongs_to(run: str, process: psutil.Process) -> bool:
    try:
        is_alive = process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
        return is_alive and process.environ().get(VARIABLE) == run
    except psutil.Error:
        return False
