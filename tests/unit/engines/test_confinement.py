"""What a child may not do, and what happens to it when it tries."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from docmill.adapters.engines.confine import bare_environment
from docmill.adapters.engines.local import Limits, process
from docmill.adapters.engines.sandbox.home import Home
from docmill.core.errors import StageFailed, Unavailable
from support.waiting import wait_until
from unit.engines.conftest import NAUGHTY


def silent(_done: int, _total: int | None) -> None:
    pass


def gone(pid: int) -> bool:
    """Ended, or only waiting to be reaped by whoever inherited it."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


def appears(engine: Any, name: str = "pid") -> int:
    """The process id that a child wrote down in its folder."""
    return awaited(lambda: [child.out / name for child in tuple(engine._children)])


def awaited(places: Callable[[], Iterable[Path]]) -> int:
    deadline = time.monotonic() + 20
    while True:
        for path in places():
            with contextlib.suppress(OSError, ValueError):
                return int(path.read_text())
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("order", "code", "how"),
    [
        ("segfault", "parse_crashed", "signal 11"),
        ("abort", "parse_memory", None),
        ("rust_oom", "parse_memory", None),
        ("onnx_oom", "parse_memory", None),
        ("eat_and_abort", "parse_memory", None),
        ("exit", "parse_crashed", "exit 3"),
        ("babble", "parse_crashed", "it broke the protocol"),
        ("swap", "parse_crashed", "it broke the protocol"),
        ("folder", "parse_crashed", "it broke the protocol"),
        ("path", "parse_crashed", "it broke the protocol"),
        ("forge", "parse_crashed", "it broke the protocol"),
        ("fill", "parse_output_too_large", None),
        ("allocate", "parse_memory", None),
        ("write", "parse_output_too_large", None),
        ("publish", "parse_output_too_large", None),
    ],
)
def test_a_broken_parser_is_a_failed_stage_and_the_next_document_is_fine(
    naughty: Callable[..., Any], order: str, code: str, how: str | None
) -> None:
    async def play(engine: Any, work: Any) -> None:
        with pytest.raises(StageFailed) as caught:
            await engine.start(work(order), silent)
        assert code == caught.value.code
        assert (code == "parse_crashed") == caught.value.retryable
        assert how == caught.value.facts.get("how")
        assert "fine" == (await engine.start(work("say", "fine"), silent)).pages[0].markdown

    naughty(play, Limits(seconds=20, memory_mb=1024, output_mb=20))


def test_a_parser_gets_warm_however_little_documents_may_write(tmp_path: Path) -> None:
    script = """
import json, os, sys
from docmill.adapters.engines.local import child
from docmill.adapters.engines.confine import confine
confine(parent=os.getppid(), memory_mb=1024, output_mb=1, **json.loads(sys.argv[1]))
child.get_warm()
print("warm")
"""
    home = Home.make(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(home.setup())],
        env=bare_environment(home.temp),
        cwd=home.temp,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert "warm\n" == done.stdout, done.stderr


def test_what_an_earlier_document_said_of_memory_is_not_held_against_the_next(naughty: Callable[..., Any]) -> None:
    async def play(engine: Any, work: Any) -> None:
        await engine.start(work("mutter", "fine"), silent)
        with pytest.raises(StageFailed) as caught:
            await engine.start(work("segfault"), silent)
        assert "parse_crashed" == caught.value.code

    naughty(play)


@pytest.mark.parametrize(("oom_kills", "code"), [(8, "parse_memory"), (7, "parse_crashed")])
def test_a_kill_is_want_of_memory_if_the_system_counted_one(
    naughty: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, oom_kills: int, code: str
) -> None:
    monkeypatch.setattr(process, "count_oom_kills", lambda: 7)

    async def play(engine: Any, work: Any) -> None:
        job = work("hang")
        running = asyncio.create_task(engine.start(job, silent))
        child = await asyncio.to_thread(appears, engine)
        monkeypatch.setattr(process, "count_oom_kills", lambda: oom_kills)
        os.kill(child, signal.SIGKILL)
        with pytest.raises(StageFailed) as caught:
            await running
        assert code == caught.value.code

    naughty(play)


@pytest.mark.parametrize("order", ["hang", "burn"])
def test_a_document_that_takes_too_long_is_stopped(naughty: Callable[..., Any], order: str) -> None:
    async def play(engine: Any, work: Any) -> None:
        await engine.warm()
        started = time.monotonic()
        with pytest.raises(StageFailed) as caught:
            await engine.start(work(order), silent)
        assert "parse_timeout" == caught.value.code
        assert time.monotonic() - started < 30, "the child itself ends after 60 s"

    naughty(play, Limits(seconds=1))


def test_cancelling_ends_the_process_within_a_second(naughty: Callable[..., Any]) -> None:
    async def play(engine: Any, work: Any) -> None:
        job = work("hang")
        running = asyncio.create_task(engine.start(job, silent))
        pid = await asyncio.to_thread(appears, engine)
        started = time.monotonic()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert time.monotonic() - started < 30, "the child itself ends after 60 s"
        assert gone(pid)

    naughty(play)


def test_close_ends_every_child_also_at_work(naughty: Callable[..., Any]) -> None:
    async def play(engine: Any, work: Any) -> None:
        job = work("hang")
        running = asyncio.create_task(engine.start(job, silent))
        pid = await asyncio.to_thread(appears, engine)
        await engine.close()
        assert gone(pid)
        with pytest.raises(Unavailable):
            await running
        with pytest.raises(Unavailable):
            await engine.start(work("say"), silent)

    naughty(play)


def test_there_is_no_network(naughty: Callable[..., Any]) -> None:
    async def play(engine: Any, work: Any) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            parsed = await engine.start(work("connect", server.getsockname()[1]), silent)
        assert parsed.pages[0].markdown.startswith("refused")

    naughty(play)


def test_secrets_of_the_service_are_not_in_the_environment(
    naughty: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBACK_SIGNING_KEY", "canary-4711")

    async def play(engine: Any, work: Any) -> None:
        found = json.loads((await engine.start(work("environment"), silent)).pages[0].markdown)
        assert not any("canary" in entry or "CALLBACK" in entry for entry in found)

    naughty(play)


def test_what_libraries_print_does_not_disturb(naughty: Callable[..., Any]) -> None:
    async def play(engine: Any, work: Any) -> None:
        assert "fine" == (await engine.start(work("print", "fine"), silent)).pages[0].markdown

    naughty(play)


def test_a_child_is_used_again_and_replaced_after_its_share(naughty: Callable[..., Any]) -> None:
    async def play(engine: Any, work: Any) -> None:
        pids = [int((await engine.start(work("pid"), silent)).pages[0].markdown) for _ in range(6)]
        assert 2 <= len(set(pids)) <= 4
        assert max(pids.count(pid) for pid in pids) == 2

    naughty(play, Limits(seconds=20, documents_per_child=2))


def test_a_child_that_has_worked_is_preferred_to_one_that_was_just_started(naughty: Callable[..., Any]) -> None:
    """Else a document that kills its parser makes all others wait for the new one to get warm."""

    async def play(engine: Any, work: Any) -> None:
        first = (await engine.start(work("pid"), silent)).pages[0].markdown
        await engine.warm()
        assert first == (await engine.start(work("pid"), silent)).pages[0].markdown
        suspect = replace(work("pid"), is_suspect=True)
        assert first != (await engine.start(suspect, silent)).pages[0].markdown, "a warm one would be a pity"

    naughty(play)


def test_a_child_that_grew_too_large_is_replaced(naughty: Callable[..., Any]) -> None:
    async def play(engine: Any, work: Any) -> None:
        pids = [(await engine.start(work("pid"), silent)).pages[0].markdown for _ in range(3)]
        assert 3 == len(set(pids))

    naughty(play, Limits(seconds=20, child_rss_mb=1))


def test_an_idle_child_that_died_costs_nobody_a_document(naughty: Callable[..., Any]) -> None:
    async def play(engine: Any, work: Any) -> None:
        pid = int((await engine.start(work("pid"), silent)).pages[0].markdown)
        os.kill(pid, signal.SIGKILL)
        assert "fine" == (await engine.start(work("say", "fine"), silent)).pages[0].markdown

    naughty(play)


def test_children_die_when_the_service_is_killed(tmp_path: Path) -> None:
    (tmp_path / "order").write_text("hang\n")
    service = subprocess.Popen(
        [sys.executable, "-c", SERVICE, str(NAUGHTY), str(tmp_path)],
        stdin=subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    try:
        pid = awaited(lambda: tmp_path.glob("docmill-child-*/out/pid"))
    finally:
        service.kill()
        service.wait(30)
    wait_until(lambda: gone(pid))


SERVICE = """
import asyncio, sys, uuid
from pathlib import Path
from docmill.adapters.engines.local import LocalEngine
from docmill.ports import Work

folder = Path(sys.argv[2])
engine = LocalEngine(1, child_module=Path(sys.argv[1]))
work = Work(1, uuid.uuid4(), folder / "order", "order.txt", folder)
asyncio.run(engine.start(work, lambda done, total: None))
"""
