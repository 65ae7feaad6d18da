"""Every wait in the tests has a limit: a hang must fail with its reason, not after five minutes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("tests",)
RUNS = {"run", "call", "check_call", "check_output"}
PROCESSES = {"process", "supervisor", "child"}
CLOCKS = {"monotonic", "perf_counter", "time"}


def find_unlimited_waits(source: str) -> list[tuple[int, str]]:
    """Line and text of every call that may wait for ever."""
    found = sorted((node.lineno, ast.unparse(node)) for node in unlimited(ast.parse(source)))
    return [(line, text.splitlines()[0][:100]) for line, text in found]


def unlimited(node: ast.AST, *, is_awaited: bool = False) -> Iterator[ast.Call | ast.While]:
    if sets_limit(node):
        return
    if isinstance(node, ast.Call) and waits_for_ever(node, is_awaited=is_awaited):
        yield node
    if isinstance(node, ast.While) and polls_for_ever(node):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from unlimited(child, is_awaited=isinstance(node, ast.Await))


def sets_limit(node: ast.AST) -> bool:
    """`async with asyncio.timeout(...)`, or `wait_for(...)`."""
    if isinstance(node, ast.AsyncWith):
        calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
        return any(name_of(call.func)[1] == "timeout" for call in calls)
    return isinstance(node, ast.Call) and name_of(node.func)[1] == "wait_for"


def waits_for_ever(call: ast.Call, *, is_awaited: bool) -> bool:
    owner, name = name_of(call.func)
    has_arguments = bool(call.args or call.keywords)
    timeouts = [word.value for word in call.keywords if word.arg in ("timeout", None)]
    if any(isinstance(one, ast.Constant) and one.value is None for one in timeouts):
        return True
    if (owner == "subprocess" and name in RUNS) or name in ("urlopen", "create_connection"):
        return not timeouts and not (name == "create_connection" and len(call.args) > 1)
    if name == "communicate":
        return not timeouts
    if name == "readline":
        return owner in ("stdout", "stderr")
    if name == "wait" and is_awaited:
        # An event of asyncio is waited for by a fake, and its test limits it; a process is not.
        return owner in PROCESSES and not has_arguments
    return name in ("wait", "join", "result") and not has_arguments and owner != "str"


def polls_for_ever(loop: ast.While) -> bool:
    """It sleeps between two looks, and no clock ends it. One that serves until its test says stop is no wait."""
    names = {name_of(node.func)[1] for node in ast.walk(loop) if isinstance(node, ast.Call)}
    is_stopped_by_test = isinstance(loop.test, ast.Constant) or any(
        word in ast.unparse(loop.test) for word in ("stop", "is_over")
    )
    return "sleep" in names and not names & CLOCKS and not is_stopped_by_test


def name_of(function: ast.expr) -> tuple[str, str]:
    """`a.b.c(...)` -> ("b", "c")."""
    if isinstance(function, ast.Name):
        return "", function.id
    if not isinstance(function, ast.Attribute):
        return "", ""
    value = function.value
    owner = value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""
    return ("str" if isinstance(value, ast.Constant) else owner), function.attr


def modules() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).rglob("*.py"))


def test_every_wait_in_the_tests_has_a_limit() -> None:
    unlimited = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in modules()
        for line, text in find_unlimited_waits(path.read_text("utf-8"))
    ]

    assert [] == unlimited, "\n".join(unlimited)


WITHOUT_LIMIT = """
subprocess.run(["true"], check=True)
process.communicate(b"")
thread.join()
process.wait()
future.result()
urlopen("http://127.0.0.1/")
line = process.stdout.readline()
httpx2.get("http://127.0.0.1/", timeout=None)
while not peer.jobs:
    time.sleep(0.01)
async def wait_for_process():
    await process.wait()
"""
WITH_LIMIT = """
subprocess.run(["true"], check=True, timeout=5)
process.communicate(timeout=5)
thread.join(5)
process.wait(5)
future.result(5)
urlopen("http://127.0.0.1/", timeout=5)
", ".join(names)
while time.monotonic() < ends:
    time.sleep(0.01)
while not stop.is_set():
    time.sleep(0.01)
async def wait_for_process():
    async with asyncio.timeout(5):
        await process.wait()
        while not peer.jobs:
            await asyncio.sleep(0.01)
    await asyncio.wait_for(process.wait(), 5)
"""


def test_the_guard_finds_each_kind_of_wait() -> None:
    assert WITHOUT_LIMIT.count("\n") - 3 == len(find_unlimited_waits(WITHOUT_LIMIT))
    assert [] == find_unlimited_waits(WITH_LIMIT)
