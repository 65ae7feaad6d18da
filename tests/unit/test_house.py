"""The house rules hold: format, lint, types, and who may import whom."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "format", "--check", "."],
        ["ruff", "check", "."],
        ["mypy"],
        ["lint-imports", "--no-cache"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_make_check_would_pass(command: list[str]) -> None:
    tool = Path(sys.executable).parent / command[0]
    done = subprocess.run([tool, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False, timeout=880)

    assert 0 == done.returncode, done.stdout + done.stderr


def test_what_must_not_be_in_the_tree_is_not() -> None:
    """Pins carry hashes and no addresses; nothing is named for saying nothing."""
    for pins in ROOT.glob("requirements*.txt"):
        assert "://" not in pins.read_text()
    vague = {"utils", "util", "helpers", "common", "misc", "services", "managers", "handlers"}
    assert [] == [path for path in (ROOT / "src").rglob("*.py") if path.stem in vague or path.parent.name in vague]
