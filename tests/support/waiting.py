"""Waits with a limit. Who waits in vain learns what the other side said."""

from __future__ import annotations

import asyncio
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import AnyStr

WITHIN_S = 60.0
"""Far more than anything takes on a busy machine, and far less than pytest's own limit, which tells nothing."""


def read_line(process: subprocess.Popen[AnyStr], within_s: float = WITHIN_S) -> AnyStr:
    """The next line of standard output; empty if the process closed it. If none comes in time, the process is killed
    and what it wrote to standard error is shown."""
    stream = process.stdout
    assert stream
    lines: queue.Queue[AnyStr] = queue.Queue()
    threading.Thread(target=lambda: lines.put(stream.readline()), daemon=True).start()
    try:
        return lines.get(timeout=within_s)
    except queue.Empty:
        process.kill()
        raise AssertionError(f"{process.args!r} printed no line in {within_s:g} s{_said(process)}") from None


def _said(process: subprocess.Popen[AnyStr]) -> str:
    said: AnyStr | None = None
    if process.stderr:
        with suppress(subprocess.TimeoutExpired, ValueError, OSError):
            _, said = process.communicate(timeout=10)
    text = said.decode(errors="replace") if isinstance(said, bytes) else said
    return f":\n{text[-5000:]}" if text else ""


def wait_until(condition: Callable[[], object], within_s: float = WITHIN_S) -> None:
    ends = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < ends, f"still not so after {within_s:g} s"
        time.sleep(0.01)


async def until(condition: Callable[[], object], within_s: float = WITHIN_S) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.001)
