"""The Markdown of every sample is the one that lies here, to the last character.

`make goldens` writes the files again after a change of the engine. Look at `git diff tests/golden` beside the rendered
pages before you commit it: what stands here is what a reader gets.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from difflib import unified_diff
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SAMPLES = HERE.parents[1] / "samples"
NAMES = sorted(path.name for path in SAMPLES.iterdir() if path.name != "README.md")
CONVERT_TIMEOUT_S = 240


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Every sample, converted by the command."""
    return convert_samples(tmp_path_factory.mktemp("golden"))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_sample_becomes_its_golden_markdown(name: str, converted: dict[str, str]) -> None:
    golden = (HERE / f"{name}.md").read_text("utf-8")

    diff = "\n".join(unified_diff(golden.split("\n"), converted[name].split("\n"), "golden", "now", lineterm=""))

    assert not diff, f"{name}: the Markdown changed. 'make goldens' renews the file if that is right.\n{diff}"


def test_there_is_no_golden_file_without_its_sample() -> None:
    assert {f"{name}.md" for name in NAMES} == {path.name for path in HERE.glob("*.md")}


def convert_samples(folder: Path) -> dict[str, str]:
    """The Markdown of each sample by its name, without the front matter: that has the date."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DOCMILL_")}
    command = [str(Path(sys.executable).parent / "docmill"), "convert", *(str(SAMPLES / name) for name in NAMES)]
    done = subprocess.run(
        [*command, "-o", str(folder)],
        env={**kept, "XDG_STATE_HOME": str(folder / "state")},
        capture_output=True,
        text=True,
        check=False,
        timeout=CONVERT_TIMEOUT_S,
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    return {name: body_of((folder / f"_{name}" / f"{Path(name).stem}.md").read_text("utf-8")) for name in NAMES}


def body_of(markdown: str) -> str:
    return markdown.split("\n---\n", 1)[1].removeprefix("\n")


def renew() -> None:
    for file in HERE.glob("*.md"):
        file.unlink()
    with tempfile.TemporaryDirectory() as folder:
        for name, markdown in convert_samples(Path(folder)).items():
            (HERE / f"{name}.md").write_text(markdown, "utf-8")


if __name__ == "__main__":
    renew()
