"""Every requirement has its proof, and every proof exists."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/requirements.md").read_text("utf-8")
ROWS = [f"R{number}" for number in range(1, 33)] + [f"S{number}" for number in range(1, 34)]
TESTS = re.findall(r"`(tests/[^`]+)`", PAGE)
MODULES = re.findall(r"`python -m ([a-z._]+)", PAGE)
TARGETS = re.findall(r"`make ([a-z-]+)`", PAGE)


@pytest.mark.parametrize("row", ROWS)
def test_each_row_is_there_once_with_a_proof(row: str) -> None:
    [proof] = re.findall(rf"^\| {row} \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)

    assert "`" in proof or "see below" in proof


@pytest.mark.parametrize("name", sorted(set(TESTS)))
def test_each_test_exists(name: str) -> None:
    path, _, function = name.partition("::")

    assert not function or f"def {function}(" in (ROOT / path).read_text("utf-8")
    assert (ROOT / path).is_file()


def test_each_command_exists() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")

    assert [] == [module for module in MODULES if find_spec(module) is None]
    assert [] == [target for target in TARGETS if f"\n{target}:" not in makefile]
    assert len(MODULES) > 5
