"""The command starts fast and loads only what it needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

import pytest

DOCMILL = str(Path(sys.executable).parent / "docmill")
HEAVY = {"fastapi", "starlette", "uvicorn", "apsw", "asyncpg", "httpx2", "rich", "structlog", "asyncio"}


def seconds(*command: str) -> float:
    """Of the processor, not of the clock: other tests run beside this one."""
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=60)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.slow
def test_help_takes_at_most_five_times_as_long_as_the_bare_interpreter() -> None:
    pairs = [(seconds(sys.executable, "-c", "pass"), seconds(DOCMILL, "--help")) for _ in range(15)]

    bare, helped = (min(times) for times in zip(*pairs, strict=True))

    assert 5 > helped / bare


def loaded(tmp_path: Path, *args: str) -> set[str]:
    """Top-level modules that `docmill ARGS…` has loaded when it ends."""
    script = tmp_path / "run.py"
    script.write_text(
        "import atexit, json, pathlib, sys\n"
        "report = pathlib.Path(sys.argv.pop(1))\n"
        "atexit.register(lambda: report.write_text(json.dumps(sorted(sys.modules))))\n"
        "from docmill.cli import main\n"
        "main()\n",
        "utf-8",
    )
    report = tmp_path / "modules.json"
    subprocess.run([sys.executable, script, report, *args], stdout=subprocess.DEVNULL, check=True, timeout=60)
    return {name.partition(".")[0] for name in json.loads(report.read_text("utf-8"))}


def test_check_loads_neither_web_framework_nor_database(tmp_path: Path, document: dict[str, Any]) -> None:
    file = tmp_path / "document.json"
    file.write_text(json.dumps(document), "utf-8")

    assert set() == HEAVY & loaded(tmp_path, "check", "document", str(file))


def test_help_loads_not_even_the_contracts(tmp_path: Path) -> None:
    assert set() == (HEAVY | {"pydantic", "tomllib"}) & loaded(tmp_path, "--help")


def test_explain_needs_no_contracts(tmp_path: Path) -> None:
    assert set() == (HEAVY | {"pydantic"}) & loaded(tmp_path, "explain", "rate_limited")


@pytest.mark.parametrize("columns", ["60", "80", "200"])
def test_the_quick_help_is_the_one_that_click_would_print(columns: str) -> None:
    environment = {**os.environ, "COLUMNS": columns}
    by_click = "from docmill.cli.group import root; root(['--help'], prog_name='docmill')"

    quick, slow = (
        subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=60).stdout
        for command in ([DOCMILL, "--help"], [sys.executable, "-c", by_click])
    )

    assert slow == quick
