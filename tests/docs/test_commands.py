"""The commands that the pages show are run, and must print what the pages say.

A ```console block that starts with `$ docmill` is executed; a ```json block with `file=NAME` is written to the
working folder first. A line of `…` in an output stands for any lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("start.md", "reference/cli-contracts.md", "howto/providers.md")
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "-- end of output --"


@dataclass(frozen=True)
class Step:
    command: str
    output: str


@pytest.mark.parametrize("name", PAGES)
def test_the_page_shows_what_the_commands_print(name: str, tmp_path: Path) -> None:
    page = (DOCS / name).read_text("utf-8")
    for file, text in files(page):
        (tmp_path / file).write_text(text, "utf-8")
    shown = list(steps(page))

    printed = run([step.command for step in shown], tmp_path)

    assert shown
    for step, text in zip(shown, printed, strict=True):
        assert not step.output or re.fullmatch(pattern(step.output), text), f"$ {step.command}\n{text}"


def files(page: str) -> Iterator[tuple[str, str]]:
    for _, info, body in FENCE.findall(page):
        if named := re.search(r"\bfile=(\S+)", info):
            yield named[1], body


def steps(page: str) -> Iterator[Step]:
    for language, _, body in FENCE.findall(page):
        if language == "console" and body.startswith("$ docmill"):
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                yield Step(command, output)


def run(commands: list[str], folder: Path) -> list[str]:
    """What each command prints. One shell runs them all, so that `echo $?` sees the command before it."""
    script = "".join(f"{command}\n__status=$?; printf '%s\\n' '{MARK}'; (exit $__status)\n" for command in commands)
    env = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
    }
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
    )
    return done.stdout.decode().split(MARK + "\n")[:-1]


def pattern(output: str) -> str:
    return "".join("(?:.*\n)*?" if line.strip() == "…" else re.escape(line) for line in output.splitlines(True))
